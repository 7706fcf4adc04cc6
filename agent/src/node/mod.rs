//! A server's part in an application cluster: `foothold-agent node`, which the operator of clusters calls over SSH.
//!
//! ```text
//! operator ─SSH─► node check    what the server is, and why it cannot become a node; changes nothing
//!                 node apply    programs ─► system ─► runtime ─► kubeadm init or join    (steps, ledger, events as lines)
//!                 node invite   a token with which others join, for a quarter of an hour
//!                 node software packages from the box's repositories
//!                 node reset    kubeadm reset, and what it leaves
//! ```
//! Plans come on standard input, answers go to standard output, both as JSON: nothing secret is on a command line. Every
//! step can be cut and repeated. kubeadm makes the cluster; this module brings what kubeadm needs, and calls it.

mod address;
pub mod check;
pub mod command;
mod kubernetes;
pub mod plan;
mod programs;
pub mod renewal;
mod reset;
mod run;
mod runtime;
mod software;
mod system;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::host::{InterfaceAddress, Runner};

/// Steps that are done, on the server.
const LEDGER: &str = "var/lib/foothold/node/ledger.json";
/// Held while a command changes the server: the next one waits.
const LOCK: &str = "run/foothold-node.lock";
/// Programs that may not have read their newest files.
const LAGGING: &str = "run/foothold-node/lagging";
/// Longest run of a program of the system.
const SHORT: Duration = Duration::from_secs(120);

/// The interface that has the server's address now.
fn interface_with(address: IpAddr) -> anyhow::Result<InterfaceAddress> {
    let own = crate::host::addresses()?.into_iter().find(|own| own.address == address);
    own.with_context(|| format!("no interface has the address {address}"))
}

/// The server, or a folder that stands for its root in tests.
#[derive(Clone, Debug)]
pub struct Server {
    root: PathBuf,
    runner: Arc<dyn Runner>,
}

impl Server {
    /// The machine itself.
    pub fn this(runner: Arc<dyn Runner>) -> Self {
        Self { root: PathBuf::from("/"), runner }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Writes a file and its folders; durable when it returns. Returns whether it changed.
    fn write(&self, path: &str, text: &str, mode: u32) -> anyhow::Result<bool> {
        let path = self.path(path);
        fs_err::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        Ok(crate::host::files::write_durably(&path, text.as_bytes(), mode)?)
    }

    /// Notes that this program may not have read its newest files, until [`Self::has_read`]. Returns whether that was noted
    /// before: whoever was to have it read them was cut off. The note is in memory: after a restart every program has.
    fn may_lag(&self, program: &str) -> anyhow::Result<bool> {
        Ok(!self.write(&format!("{LAGGING}/{program}"), "its files are newer\n", 0o600)?)
    }

    fn has_read(&self, program: &str) -> anyhow::Result<()> {
        Ok(crate::host::files::remove(&self.path(&format!("{LAGGING}/{program}")))?)
    }

    fn call(&self, argv: &[&str], deadline: Duration) -> anyhow::Result<String> {
        Ok(self.runner.run(argv, b"", deadline)?.text())
    }
}
