//! Phase `runtime`: containerd with every image of the box already unpacked.
//!
//! Its state in DATA is two small databases, copied, and links: each snapshot's files to the
//! `containers` layer, each blob to the medium's store. Nothing is pulled, imported or unpacked.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_api::boot::{LAYERS, MEDIUM};
use agent_api::release::{Blob, MEDIUM_ROOT};
use anyhow::Context;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::{Machine, phase};
use crate::cluster::cni;
use crate::host::files;
use crate::steps::{Key, Outcome, Steps, blocking, done};

/// containerd's state.
const STATE: &str = "/var/lib/containerd";
/// containerd's socket.
pub const SOCKET: &str = "/run/containerd/containerd.sock";
/// Name of the layer.
const LAYER: &str = "containers";

/// How often the socket is tried, and for how long.
const ASK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(90);

const CONTENT: &str = "io.containerd.content.v1.content/blobs/sha256";
const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1.overlayfs";
const DATABASES: [&str; 2] =
    ["io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"];

/// Version of the way the state is laid out: a change makes it anew.
const LAYOUT: &str = "1";

/// Makes the state, unless it is there and of this release.
pub async fn containerd_state(machine: &Machine, steps: &Steps) {
    let act = || async {
        let layer = machine.release().layer(LAYER).map_or("", |layer| layer.root_hash.as_str());
        let key = Key::of([LAYOUT, layer]);
        let state = machine.at(STATE);
        if steps.is_current(&phase::CONTAINERD_STATE, &key) && state.join(DATABASES[0]).exists() {
            return Ok(Outcome::Current(()));
        }
        let machine = machine.clone();
        let made = blocking(move || make_state(&machine)).await?;
        steps.record(&phase::CONTAINERD_STATE, &key)?;
        Ok(Outcome::Done((), json!({"snapshots": made.snapshots, "blobs": made.blobs})))
    };
    steps.perform(&phase::CONTAINERD_STATE, act).await;
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Made {
    snapshots: usize,
    blobs: usize,
}

/// Builds the state beside the old one and swaps them: whenever the power goes, the next boot finds
/// no record in the ledger and does it again.
fn make_state(machine: &Machine) -> anyhow::Result<Made> {
    let state = machine.at(STATE);
    let fresh = state.with_extension("new");
    files::remove_tree(&fresh)?;
    let layer = machine.at(LAYERS).join(LAYER);
    let store = Path::new(MEDIUM).join(MEDIUM_ROOT).join("store/sha256");
    let made = lay_out(&layer, Path::new(LAYERS), &store, &fresh).context("laying out containerd's state")?;
    let old = state.with_extension("old");
    files::remove_tree(&old)?;
    match fs_err::rename(&state, &old) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    fs_err::rename(&fresh, &state)?;
    files::sync(state.parent().unwrap_or(Path::new("/")))?;
    files::remove_tree(&old)?;
    Ok(made)
}

/// `layer` is where the layer is now, `layers` where it is mounted on the box.
fn lay_out(layer: &Path, layers: &Path, store: &Path, fresh: &Path) -> anyhow::Result<Made> {
    let mut made = Made::default();
    for database in DATABASES {
        let target = fresh.join(database);
        fs_err::create_dir_all(target.parent().unwrap_or(fresh))?;
        fs_err::copy(layer.join("metadata").join(database), &target)?;
        make_writable(&target)?;
    }
    for entry in fs_err::read_dir(layer.join("snapshots"))? {
        let number = entry?.file_name();
        let snapshot = fresh.join(SNAPSHOTTER).join("snapshots").join(&number);
        fs_err::create_dir_all(snapshot.join("work"))?;
        let files: PathBuf = layers.join(LAYER).join("snapshots").join(&number).join("fs");
        fs_err::os::unix::fs::symlink(files, snapshot.join("fs"))?;
        made.snapshots += 1;
    }
    let blobs: Vec<Blob> = serde_json::from_slice(&fs_err::read(layer.join("blobs.json"))?)?;
    fs_err::create_dir_all(fresh.join(CONTENT))?;
    for blob in &blobs {
        let hex = blob.digest.hex();
        match fs_err::os::unix::fs::symlink(store.join(hex), fresh.join(CONTENT).join(hex)) {
            Ok(()) => made.blobs += 1,
            // Images share layers.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(made)
}

/// The copy of a read-only file is read-only; containerd writes to it.
fn make_writable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o644))
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
            let machine = machine.clone();
            blocking(move || make_state(&machine)).await?;
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{CONTENT, DATABASES, Made, SNAPSHOTTER, lay_out};

    #[test]
    fn databases_are_copied_and_all_else_is_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let layer = dir.path().join("layer");
        for database in DATABASES {
            let path = layer.join("metadata").join(database);
            fs_err::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs_err::write(&path, "bolt").expect("a database");
        }
        fs_err::create_dir_all(layer.join("snapshots/12/fs/bin")).expect("a snapshot");
        let blob = |digit: &str| serde_json::json!({"digest": format!("sha256:{}", digit.repeat(64)), "size": 1});
        let blobs = serde_json::json!([blob("a"), blob("b"), blob("a")]);
        fs_err::write(layer.join("blobs.json"), blobs.to_string()).expect("a list");
        let fresh = dir.path().join("fresh");
        let made = lay_out(&layer, Path::new("/run/layers"), Path::new("/store"), &fresh).expect("laid out");
        assert_eq!(made, Made { snapshots: 1, blobs: 2 });
        let link = |path: &str| fs_err::read_link(fresh.join(path)).expect("a link");
        let snapshot = format!("{SNAPSHOTTER}/snapshots/12");
        assert_eq!(link(&format!("{snapshot}/fs")), Path::new("/run/layers/containers/snapshots/12/fs"));
        assert!(fresh.join(snapshot).join("work").is_dir());
        let hex = "a".repeat(64);
        assert_eq!(link(&format!("{CONTENT}/{hex}")), Path::new("/store").join(&hex));
        fs_err::write(fresh.join(DATABASES[0]), "changed").expect("writable");
    }
}
