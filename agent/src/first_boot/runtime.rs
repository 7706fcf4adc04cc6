//! Phase `runtime`: containerd, which systemd has started, and the pods' network.

use std::time::Duration;

use agent_api::boot::{CONTAINERS, LAYERS};
use anyhow::Context;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::{Machine, phase};
use crate::cluster::cni;
use crate::containerd;
use crate::host::files;
use crate::steps::{Outcome, Steps, blocking, done};

const VAR: &str = "/var";
/// containerd's socket.
pub const SOCKET: &str = "/run/containerd/containerd.sock";
/// How often the socket is tried, and for how long.
const ASK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(90);

/// Sees that the state is there and of this release. The initrd has made it, or could not.
pub async fn containerd_state(machine: &Machine, steps: &Steps) {
    let act = || async {
        if containerd::is_current(&machine.at(VAR), root_hash(machine)) {
            return Ok(Outcome::Current(()));
        }
        systemctl(machine, "stop").await?;
        let made = make_state(machine).await?;
        Ok(Outcome::Done((), json!({"snapshots": made.snapshots, "blobs": made.blobs})))
    };
    steps.perform(&phase::CONTAINERD_STATE, act).await;
}

fn root_hash(machine: &Machine) -> &str {
    machine.release().layer(CONTAINERS).map_or("", |layer| layer.root_hash.as_str())
}

async fn make_state(machine: &Machine) -> anyhow::Result<containerd::Made> {
    let machine = machine.clone();
    blocking(move || containerd::make(&machine.at(VAR), &machine.at(LAYERS), root_hash(&machine))).await
}

/// Writes the configuration of the pods' network.
pub async fn cni(machine: &Machine, steps: &Steps) {
    let act = || async {
        let text = cni::config(&machine.release().kubernetes.pod_cidr).context("the range of pods is no range")?;
        let changed = files::write(&machine.at(cni::PATH), text.as_bytes(), files::PUBLIC)?;
        Ok(if changed { Outcome::Done((), serde_json::Value::Null) } else { Outcome::Current(()) })
    };
    steps.perform(&phase::CNI, act).await;
}

/// Starts containerd and waits until its socket takes connections. A state that it cannot open is
/// made anew: what is lost are stopped containers.
pub async fn containerd(machine: &Machine, steps: &Steps) {
    let act = || async {
        systemctl(machine, "start").await?;
        let socket = machine.at(SOCKET);
        let connected = async {
            while UnixStream::connect(&socket).await.is_err() {
                sleep(ASK).await;
            }
        };
        if timeout(PATIENCE, connected).await.is_err() {
            systemctl(machine, "stop").await?;
            make_state(machine).await?;
            anyhow::bail!("it did not open its socket within {} s; its state was made anew", PATIENCE.as_secs());
        }
        done(())
    };
    steps.perform(&phase::CONTAINERD, act).await;
}

async fn systemctl(machine: &Machine, verb: &'static str) -> anyhow::Result<()> {
    let machine = machine.clone();
    // Starting is not waited for: the socket is; stopping is, since files are moved then.
    let flags: &[&str] = if verb == "start" { &["--no-block"] } else { &[] };
    let argv = [&["systemctl"], flags, &[verb, "containerd.service"]].concat();
    blocking(move || Ok(machine.program(&argv, b"").map(drop)?)).await
}
