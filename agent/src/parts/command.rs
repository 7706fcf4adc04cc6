//! `foothold-agent parts`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use agent_api::release::Release;
use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};

use super::{NodeSettings, print, run};
use crate::services::clusters;
use crate::terminal::show;

/// What `foothold-agent parts` does.
#[derive(Debug, Subcommand)]
pub enum Parts {
    /// Print the objects of each part of a release as JSON, with the values of a chart.
    Print {
        /// The release.
        #[arg(long, value_name = "FILE")]
        release: PathBuf,
    },
    /// Make the folder of the controller of clusters on this node.
    Folder,
    /// Run services of the box on this node.
    Node(Box<Node>),
}

/// What runs on a node beside the operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnNode {
    /// Ironic.
    #[value(name = "baremetalhost")]
    Ironic,
    /// DHCP, TFTP and network boot.
    Dhcp,
    /// Images, files and uploads.
    Registry,
}

/// What `parts node` takes.
#[derive(Debug, Args)]
pub struct Node {
    /// Which services, separated by commas; empty ones are passed over.
    #[arg(long, value_name = "SERVICES", value_delimiter = ',')]
    services: Vec<String>,
    /// Folder with the files of the release, as `foothold export` wrote it.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/foothold/medium")]
    medium: PathBuf,
    /// Site of the node: its network for servers, and who may come in.
    #[arg(long, value_name = "FILE")]
    site: PathBuf,
    /// Registry that images of services are pulled from.
    #[arg(long, value_name = "REGISTRY")]
    registry: String,
    /// Namespace of the controller of `BareMetalHost`s.
    #[arg(long, value_name = "NAME")]
    namespace: String,
    /// Name of the node.
    #[arg(long = "node", value_name = "NAME")]
    name: String,
    /// Address of the node.
    #[arg(long, value_name = "ADDRESS")]
    address: IpAddr,
    /// Where health is served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8090")]
    health_address: SocketAddr,
}

impl Parts {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Print { release } => {
                let text = fs_err::read(release)?;
                let release: Release =
                    serde_json::from_slice(&text).with_context(|| format!("reading `{}`", release.display()))?;
                show(&(serde_json::to_string_pretty(&print(&release)?)? + "\n"));
                Ok(())
            }
            Self::Folder => clusters::make_folder(Path::new(clusters::FOLDER)),
            Self::Node(node) => {
                let settings = node.settings()?;
                // One provider in the process: the libraries must not choose.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
                let ended = runtime.block_on(run(&settings));
                runtime.shutdown_background();
                ended
            }
        }
    }
}

impl Node {
    fn settings(&self) -> anyhow::Result<NodeSettings> {
        let named = self.services.iter().filter(|name| !name.is_empty());
        let services = named.map(|name| {
            OnNode::from_str(name, false)
                .map_err(|_| anyhow::anyhow!("`--services`: `{name}` is none of baremetalhost, dhcp, registry"))
        });
        Ok(NodeSettings {
            services: services.collect::<anyhow::Result<_>>()?,
            medium: self.medium.clone(),
            site: self.site.clone(),
            registry: self.registry.clone(),
            namespace: self.namespace.clone(),
            node: self.name.clone(),
            address: self.address,
            serve: self.health_address,
        })
    }
}
