//! What the controllers of clusters share: the hosts, the box, and the way to servers.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use agent_api::ports;
use agent_api::release::Digest;
use anyhow::Context as _;
use kube::runtime::reflector::Store;
use serde::Deserialize;

use super::servers::Agent;
use crate::content::server::HOSTS_TOML;
use crate::node::plan::Program;
use crate::operators::kit::Base;

/// Name of the operator: source of its events, and field manager of what it writes.
pub const MANAGER: &str = "bpa-operator";
/// Longest wait for an answer of the box.
const ANSWER: Duration = Duration::from_secs(30);
/// Where programs go on a node, except CNI plugins.
const BIN: &str = "/usr/bin";
/// Where the runtime looks for plugins.
const CNI_BIN: &str = "/opt/cni/bin";
/// Plugins among the programs; all others are commands.
const PLUGINS: [&str; 5] = ["bridge", "flannel", "host-local", "loopback", "portmap"];
/// Name of the agent among the programs: it is brought by SSH.
const AGENT: &str = "foothold-agent";
/// flannel's objects, among the programs.
const FLANNEL: &str = "kube-flannel.yaml";

/// The box, as the servers reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address on their network.
    pub address: IpAddr,
    /// Version of Kubernetes that it has.
    pub version: String,
}

/// Images of the box's own parts that clusters may have, too. `None`: the box does not carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Of metrics-server.
    pub metrics: Option<String>,
    /// Of local-path-provisioner.
    pub storage: Option<String>,
}

/// What the box has for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goods {
    /// Programs, and where they go.
    pub programs: Vec<Program>,
    /// flannel's manifest.
    pub flannel: Option<String>,
    /// containerd's `hosts.toml`.
    pub hosts_toml: String,
}

/// What the controllers have in common.
#[derive(Clone)]
pub struct Common {
    /// The box's cluster.
    pub base: Base,
    /// The hosts as they are watched.
    pub hosts: Store<BareMetalHost>,
    /// The box.
    pub place: Place,
    /// What it carries for clusters.
    pub parts: Parts,
    /// Folder with a folder for each cluster.
    pub folder: PathBuf,
    /// The same folder as the pods of installers mount it.
    pub folder_on_host: PathBuf,
    /// Files with DHCP's leases.
    pub leases: Vec<PathBuf>,
    /// The agent that is brought to servers.
    pub agent: Arc<Agent>,
}

/// An entry of a listing of the content.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Entry {
    File { name: String, digest: Digest },
    Folder { name: String },
}

/// What a folder of the content has; `None`: there is no such folder.
async fn listing(client: &reqwest::Client, folder: &str) -> anyhow::Result<Option<Vec<Entry>>> {
    let asked = client.get(folder).header("Accept", "application/json").send().await;
    let answer = asked.with_context(|| format!("asking the box for `{folder}`"))?;
    if answer.status() == reqwest::StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(answer.error_for_status()?.json().await?))
}

impl Place {
    /// `http://BOX:PORT` of the content.
    pub fn content(&self) -> String {
        format!("http://{}", std::net::SocketAddr::new(self.address, ports::CONTENT))
    }

    /// What servers must reach.
    pub fn reach(&self) -> Vec<String> {
        [ports::CONTENT, ports::REGISTRY].map(|port| std::net::SocketAddr::new(self.address, port).to_string()).to_vec()
    }

    /// Asks the box what it has for nodes of this version.
    ///
    /// # Errors
    /// The box does not answer, or has nothing for that version; it is named.
    pub async fn goods(&self, version: &str) -> anyhow::Result<Goods> {
        let client = crate::http::client::plain().timeout(ANSWER).build()?;
        let all = format!("{}/kubernetes/", self.content());
        let folder = format!("{all}{version}/");
        let Some(entries) = listing(&client, &folder).await? else {
            let versions = listing(&client, &all).await?.unwrap_or_default();
            let names = versions.into_iter().filter_map(|entry| match entry {
                Entry::Folder { name } => Some(name),
                Entry::File { .. } => None,
            });
            let has = names.collect::<Vec<_>>().join(", ");
            anyhow::bail!(
                "the box has no Kubernetes {version} for servers; hint: it has {has}; `services.clusters.versions` of its \
                 definition brings others"
            );
        };
        let mut programs = Vec::new();
        let mut flannel = None;
        for entry in entries {
            let Entry::File { name, digest } = entry else { continue };
            let url = format!("{folder}{name}");
            if name == FLANNEL {
                flannel = Some(client.get(&url).send().await?.error_for_status()?.text().await?);
            } else if name != AGENT {
                let into = if PLUGINS.contains(&&*name) { CNI_BIN } else { BIN };
                programs.push(Program { path: format!("{into}/{name}"), url, digest });
            }
        }
        let hosts = format!("{}{HOSTS_TOML}", self.content());
        let hosts_toml = client.get(&hosts).send().await?.error_for_status()?.text().await?;
        Ok(Goods { programs, flannel, hosts_toml })
    }
}
