//! `foothold-agent node`.

use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Subcommand;
use serde::de::DeserializeOwned;

use super::plan::{NodePlan, ResetPlan, SoftwarePlan};
use super::{LOCK, Server, check, kubernetes, reset, run, software};
use crate::host::{System, files};
use crate::terminal::show;

/// What a server does.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Print what the server is, and why it cannot become a node, if so. Nothing is changed.
    Check,
    /// Make the server a node, as the plan on standard input says; what happens is printed as JSON lines.
    Apply,
    /// Print how others join the cluster of this server.
    Invite {
        /// As members of the control plane, too. This is the address of this one.
        #[arg(long, value_name = "ADDRESS")]
        control_plane: Option<IpAddr>,
    },
    /// Ask whether the API at an address is ready (called by keepalived).
    Answers {
        /// `HOST:PORT`.
        at: String,
    },
    /// Install packages from the box, as the plan on standard input says, and print what is installed and what lags.
    Software,
    /// Take the server out of its cluster, and remove what Kubernetes left on it.
    Reset {
        /// Only if it is a node of the cluster that the plan on standard input names.
        #[arg(long)]
        planned: bool,
    },
}

impl Node {
    /// Runs it.
    ///
    /// # Errors
    /// A plan that cannot be read, or what failed.
    pub fn run(&self) -> anyhow::Result<()> {
        let server = Server::this(Arc::new(System::new()));
        match self {
            Self::Check => {
                let plan = plan()?;
                let facts = check::judge(&check::look(&server, &plan)?, &plan);
                show(&format!("{}\n", serde_json::to_string(&facts)?));
            }
            Self::Apply => {
                let plan: NodePlan = plan()?;
                let _ = rustls::crypto::ring::default_provider().install_default();
                let _alone = files::lock(&server.path(LOCK))?;
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
                runtime.block_on(run::apply(&server, &plan))?;
            }
            Self::Invite { control_plane } => {
                let invitation = kubernetes::invite(&server, *control_plane)?;
                show(&format!("{}\n", serde_json::to_string(&invitation)?));
            }
            Self::Answers { at } => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(kubernetes::answers(at))?;
            }
            Self::Software => {
                let plan: SoftwarePlan = plan()?;
                let _ = rustls::crypto::ring::default_provider().install_default();
                let _alone = files::lock(&server.path(LOCK))?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let facts = runtime.block_on(software::run(&server, &plan))?;
                show(&format!("{}\n", serde_json::to_string(&facts)?));
            }
            Self::Reset { planned } => {
                let plan: Option<ResetPlan> = planned.then(plan).transpose()?;
                let _alone = files::lock(&server.path(LOCK))?;
                reset::leave(&server, plan.as_ref())?;
            }
        }
        Ok(())
    }
}

fn plan<T: DeserializeOwned>() -> anyhow::Result<T> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    serde_json::from_str(&text).context("the plan on standard input")
}
