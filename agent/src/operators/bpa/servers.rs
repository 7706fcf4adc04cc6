//! The agent on the servers of a cluster: it is copied there and called, over SSH.

use std::time::Duration;

use agent_api::clusters::provisioning::NodeStatus;
use agent_api::hash;
use agent_api::release::Digest;
use anyhow::Context as _;
use tokio::sync::OnceCell;

use super::login::Login;
use crate::node::plan::ResetPlan;
use crate::ssh::Session;
use crate::steps::blocking;

/// This program.
const OWN: &str = "/proc/self/exe";

/// Where the agent is copied to, if the server's system has none of this release.
const AGENT: &str = "/usr/local/lib/foothold/foothold-agent";
/// Where our own OS images have it.
const CARRIED: &str = "/usr/bin/foothold-agent";
/// Longest wait for a server that runs.
const ANSWERS: Duration = Duration::from_secs(60);

/// This program, which servers get. It is hashed once, and held in memory only while it is sent.
#[derive(Debug, Default)]
pub struct Agent(OnceCell<Digest>);

impl Agent {
    async fn digest(&self) -> anyhow::Result<&Digest> {
        let hashed = || blocking(|| Ok(hash::blob(fs_err::File::open(OWN)?)?.digest));
        self.0.get_or_try_init(hashed).await.context("reading this program, which servers get")
    }

    /// Path of the agent on the server: in its own system, or where it is copied to now.
    pub async fn bring(&self, session: &Session) -> anyhow::Result<&'static str> {
        let digest = self.digest().await?;
        let asked =
            session.output(&["sh", "-c", "sha256sum \"$@\" 2>/dev/null || true", "sh", CARRIED, AGENT], b"").await?;
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        for path in [CARRIED, AGENT] {
            if said.lines().any(|line| line.starts_with(digest.hex()) && line.ends_with(path)) {
                return Ok(path);
            }
        }
        session.put(AGENT, &blocking(|| Ok(fs_err::read(OWN)?)).await?, 0o755).await?;
        Ok(AGENT)
    }

    /// Runs `node COMMAND` of the agent on a server that is a node. Returns what it printed.
    pub async fn ask(
        &self,
        login: &Login,
        node: &NodeStatus,
        command: &[&str],
        plan: &[u8],
    ) -> anyhow::Result<Vec<u8>> {
        let session = connect(login, node).await?;
        let agent = self.bring(&session).await?;
        let answer = session.output(&[&[agent, "node"], command].concat(), plan).await?;
        session.close().await;
        Ok(answer.stdout)
    }
}

impl Agent {
    /// Has a server leave that cluster (`namespace/name/uid` of its object), unless it is a node of another one by now.
    pub async fn reset(&self, login: &Login, node: &NodeStatus, cluster: &str) -> anyhow::Result<()> {
        let plan = serde_json::to_vec(&ResetPlan { cluster: cluster.to_owned() })?;
        self.ask(login, node, &["reset", "--planned"], &plan).await.map(drop)
    }
}

/// Connects to a server that is a node.
///
/// # Errors
/// It does not answer.
pub async fn connect(login: &Login, node: &NodeStatus) -> anyhow::Result<Session> {
    let address = node.ip.parse().with_context(|| format!("the address `{}`", node.ip))?;
    let target = login.target(address, node.host_key.clone());
    Ok(Session::connect(&target, &login.identity, ANSWERS).await?)
}
