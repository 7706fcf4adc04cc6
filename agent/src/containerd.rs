//! containerd's state with every image of the box already unpacked.
//!
//! On DATA it is two small databases, copied, and links: each snapshot's files to the `containers` layer, each blob to the
//! medium's store. Nothing is pulled, imported or unpacked. The initrd makes it, so that systemd can start containerd beside
//! everything else.

use std::io;
use std::path::{Path, PathBuf};

use agent_api::boot::{CONTAINERS, LAYERS, MEDIUM};
use agent_api::release::{Blob, MEDIUM_ROOT};
use anyhow::Context as _;

use crate::host::files;

/// The state, below `/var`.
const STATE: &str = "lib/containerd";
/// File in it that says of what it was made: written last.
const MADE_OF: &str = "made-of";
/// Version of the way the state is laid out: a change makes it anew.
const LAYOUT: &str = "1";

const CONTENT: &str = "io.containerd.content.v1.content/blobs/sha256";
const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1.overlayfs";
const DATABASES: [&str; 2] =
    ["io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"];

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Snapshots.
    pub snapshots: usize,
    /// Blobs.
    pub blobs: usize,
}

/// Whether the state below `var` is there, whole, and of the layer with that root hash.
pub fn is_current(var: &Path, root_hash: &str) -> bool {
    let state = var.join(STATE);
    let of_this = fs_err::read_to_string(state.join(MADE_OF)).is_ok_and(|text| text == made_of(root_hash));
    of_this && DATABASES.iter().all(|database| state.join(database).exists())
}

fn made_of(root_hash: &str) -> String {
    format!("{LAYOUT} {root_hash}\n")
}

/// Makes the state below `var`, out of the layers that are mounted below `layers` now. It is built beside the old one, and
/// they are swapped: whenever the power goes, what is there does not count as current, and is made again.
pub fn make(var: &Path, layers: &Path, root_hash: &str) -> anyhow::Result<Made> {
    let state = var.join(STATE);
    let fresh = state.with_extension("new");
    files::remove_tree(&fresh)?;
    let store = Path::new(MEDIUM).join(MEDIUM_ROOT).join("store/sha256");
    let layer = layers.join(CONTAINERS);
    let made = lay_out(&layer, Path::new(LAYERS), &store, &fresh).context("laying out containerd's state")?;
    fs_err::write(fresh.join(MADE_OF), made_of(root_hash))?;
    files::sync(&fresh)?;
    let old = state.with_extension("old");
    files::remove_tree(&old)?;
    match fs_err::rename(&state, &old) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    fs_err::rename(&fresh, &state)?;
    files::sync_dir(state.parent().unwrap_or(var))?;
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
        let files: PathBuf = layers.join(CONTAINERS).join("snapshots").join(&number).join("fs");
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{CONTENT, DATABASES, Made, SNAPSHOTTER, is_current, lay_out, make};

    fn layer_in(dir: &Path) -> PathBuf {
        let layer = dir.join("containers");
        for database in DATABASES {
            let path = layer.join("metadata").join(database);
            fs_err::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs_err::write(&path, "bolt").expect("a database");
        }
        fs_err::create_dir_all(layer.join("snapshots/12/fs/bin")).expect("a snapshot");
        let blob = |digit: &str| serde_json::json!({"digest": format!("sha256:{}", digit.repeat(64)), "size": 1});
        let blobs = serde_json::json!([blob("a"), blob("b"), blob("a")]);
        fs_err::write(layer.join("blobs.json"), blobs.to_string()).expect("a list");
        layer
    }

    #[test]
    fn a_state_is_current_only_when_it_is_whole_and_of_the_layer() {
        let dir = tempfile::tempdir().expect("a directory");
        let (var, layers) = (dir.path().join("var"), dir.path().join("layers"));
        layer_in(&layers);
        assert!(!is_current(&var, "ab"));
        assert_eq!(make(&var, &layers, "ab").expect("made"), Made { snapshots: 1, blobs: 2 });
        assert!(is_current(&var, "ab") && !is_current(&var, "cd"));
        // What a power cut left half made, and what containerd wrote into the old one.
        fs_err::create_dir_all(var.join("lib/containerd.new/half")).expect("a folder");
        fs_err::write(var.join("lib/containerd/of-a-container"), "x").expect("written");
        make(&var, &layers, "cd").expect("made");
        assert!(is_current(&var, "cd") && !var.join("lib/containerd/of-a-container").exists());
        fs_err::remove_file(var.join("lib/containerd").join(DATABASES[0])).expect("removed");
        assert!(!is_current(&var, "cd"), "a database is lost");
        let left = fs_err::read_dir(var.join("lib")).expect("a folder").count();
        assert_eq!(left, 1, "nothing is left beside it");
    }

    #[test]
    fn databases_are_copied_and_all_else_is_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let layer = layer_in(dir.path());
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
