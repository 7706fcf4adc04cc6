//! `foothold-agent vino-node`: what the containers of `Vino`'s pod run. Their settings come from the pod's environment.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use agent_api::vino::values::{CONSOLE_PORT, REDFISH_PORT};
use anyhow::Context as _;
use clap::Subcommand;

use super::builder::{self, Builder, Place};
use super::redfish::serve::{self, Htpasswd};
use super::virsh::Virsh;
use super::{Paths, libvirt};
use crate::host::System;
use crate::operators::kit::command::{client, run, variable};

/// A container of the pod.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum VinoNode {
    /// Run libvirt.
    Libvirt,
    /// Serve Redfish for the domains, in place of `sushy-tools`.
    Sushy,
    /// Bring libvirt to what the node's annotation says.
    Builder,
    /// Ask whether the builder has made what the values say (called by the kubelet).
    Ready,
}

impl VinoNode {
    /// Runs it.
    ///
    /// # Errors
    /// The container cannot work: the error says what is missing.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let paths = Paths::below(Path::new("/"));
        match self {
            Self::Libvirt => {
                let code = libvirt::run(&paths)?;
                Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
            }
            Self::Sushy => {
                let (user, password) = (variable("BASIC_AUTH_USERNAME")?, variable("BASIC_AUTH_PASSWORD")?);
                let guard = Arc::new(Htpasswd { paths: paths.clone(), first: Option::zip(user, password) });
                let ip: IpAddr = needed("NODE_IP")?;
                let virsh = virsh();
                run(|_| async move {
                    let listener = serve::listen(SocketAddr::new(ip, REDFISH_PORT)).await?;
                    let consoles = serve::listen(SocketAddr::new(ip, CONSOLE_PORT)).await?;
                    serve::serve(listener, consoles, virsh, paths, guard).await
                })?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Builder => {
                let interface = variable("VM_BRIDGE_INTERFACE")?;
                let builder = Builder { virsh: virsh(), paths, node_ip: needed("NODE_IP")?, interface };
                let place = Place {
                    node: needed("NODE_NAME")?,
                    pod: needed("POD_NAME")?,
                    namespace: needed("POD_NAMESPACE")?,
                    vino: needed("VINO")?,
                };
                run(|_| async move { builder::follow(builder, place, client(None).await?).await })?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Ready => {
                let ready = paths.ready().exists();
                Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
        }
    }
}

fn virsh() -> Virsh {
    Virsh::new(Arc::new(System::new()))
}

fn needed<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> anyhow::Result<T> {
    variable(name)?.with_context(|| format!("the variable `{name}` is missing, which the pod's template sets"))
}
