//! Starts the operator: watches, controllers, and the server of metrics and health.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use kube::runtime::reflector;
use tokio_util::sync::CancellationToken;

use super::common::{Common, MANAGER, Parts, Place};
use super::{provisioning, software};
use crate::operators::kit::{Base, serve};

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Kubeconfig; that of the pod, or of the environment, when `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the clusters; all when `None`.
    pub namespace: Option<String>,
    /// The box, as the servers reach it.
    pub place: Place,
    /// What it carries for clusters.
    pub parts: Parts,
    /// Folder with a folder for each cluster.
    pub folder: PathBuf,
    /// The same folder as the pods of installers mount it.
    pub folder_on_host: PathBuf,
    /// Files with DHCP's leases.
    pub leases: Vec<PathBuf>,
    /// Where metrics and health are served; nowhere when `None`.
    pub serve: Option<SocketAddr>,
}

/// Runs until told to stop.
pub async fn run(settings: &Settings, stop: &CancellationToken) -> anyhow::Result<()> {
    let (hosts, host_writer) = reflector::store::<BareMetalHost>();
    let base = Base::connect(settings.kubeconfig.as_deref(), settings.namespace.as_deref(), MANAGER).await?;
    let common = Common {
        base,
        hosts: hosts.clone(),
        place: settings.place.clone(),
        parts: settings.parts.clone(),
        folder: settings.folder.clone(),
        folder_on_host: settings.folder_on_host.clone(),
        leases: settings.leases.clone(),
        agent: Arc::default(),
    };
    let ready = move || {
        let hosts = hosts.clone();
        async move {
            let listed = tokio::time::timeout(Duration::from_millis(100), hosts.wait_until_ready()).await;
            listed.ok().and_then(Result::ok).ok_or("the hosts are not listed yet")
        }
    };
    let work = async {
        tokio::select! {
            () = provisioning::run(common.clone(), host_writer) => {}
            () = software::run(common) => {}
        }
    };
    serve::beside(work, settings.serve, serve::router(String::new, ready), stop).await
}
