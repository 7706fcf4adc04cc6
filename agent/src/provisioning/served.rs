//! What Ironic makes for servers, over the box's HTTP: boot scripts, kernels, images that it has unpacked, media.
//!
//! ```text
//! GET /provisioning/boot.ipxe ─► STATE/http/boot.ipxe ─ links followed, within SERVED ─► Held
//! ```
//! After power-on nothing is there until [`kept`] has looked through what a power cut may have left unfinished.
//! Nothing of it is listed: the names of a server's files are as good as a password.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use agent_api::release::{ContentKind, Digest};

use super::config::HTTP_PATH;
use super::wire::Wire;
use super::{STATE, kept};
use crate::content::{Held, Source};

/// Folders of [`STATE`] that a served file may lie in: Ironic links from the first one into its caches.
pub(super) const SERVED: [&str; 4] = ["http", "images", "master-images", "master-iso"];

/// Ironic's files of the box.
#[derive(Clone, Debug)]
pub struct Served {
    state: PathBuf,
    looked_through: PathBuf,
    wire: Wire,
}

impl Served {
    /// Those of the box at `root`.
    pub fn of(root: &Path) -> Self {
        Self { state: root.join(STATE.trim_start_matches('/')), looked_through: kept::mark(root), wire: Wire::of(root) }
    }

    fn file(&self, path: &str) -> Option<PathBuf> {
        if !self.looked_through.exists() {
            return None;
        }
        let rest = Path::new(path.strip_prefix(HTTP_PATH)?.strip_prefix('/')?);
        if !rest.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        let state = fs_err::canonicalize(&self.state).ok()?;
        let file = fs_err::canonicalize(state.join(SERVED[0]).join(rest)).ok()?;
        let within = SERVED.iter().any(|folder| file.starts_with(state.join(folder)));
        (within && file.is_file()).then_some(file)
    }
}

impl Source for Served {
    fn find(&self, path: &str) -> Option<Held> {
        let file = self.file(path)?;
        let found = fs_err::metadata(&file).ok()?;
        // When the content changes, either the inode or its time of change does.
        let told = format!("{}:{}:{}:{}", found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
        let digest = Digest::of(told);
        Some(Held { path: path.to_owned(), kind: ContentKind::Netboot, file, digest, size: found.len() })
    }

    fn is_for(&self, path: &str, peer: IpAddr) -> bool {
        let Some(rest) = path.strip_prefix(HTTP_PATH) else { return true };
        let may = self.wire.known(peer).may_fetch(rest);
        if !may {
            log::warn!("{peer} was refused `{path}`: it is for servers, or for one server and its BMC");
        }
        may
    }

    fn list(&self) -> Vec<Held> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{STATE, Served, Source, kept};
    use std::os::unix::fs::symlink;

    #[test]
    fn what_ironic_puts_into_its_folder_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join(STATE.trim_start_matches('/'));
        for folder in ["http/pxelinux.cfg", "http/uuid", "master-images", "db"] {
            fs_err::create_dir_all(state.join(folder)).expect("made");
        }
        for file in ["http/boot.ipxe", "http/uuid/config", "master-images/disk", "db/ironic.sqlite"] {
            fs_err::write(state.join(file), file).expect("written");
        }
        symlink("../uuid/config", state.join("http/pxelinux.cfg/52-54-00-00-00-01")).expect("linked");
        symlink(state.join("master-images/disk"), state.join("http/disk")).expect("linked");
        symlink(state.join("db/ironic.sqlite"), state.join("http/secret")).expect("linked");
        let served = Served::of(dir.path());
        assert_eq!(served.find("provisioning/boot.ipxe"), None, "a power cut may have left it unfinished");
        kept::look_through(dir.path(), &[]).expect("looked through");
        for (path, text) in [
            ("provisioning/boot.ipxe", "http/boot.ipxe"),
            ("provisioning/pxelinux.cfg/52-54-00-00-00-01", "http/uuid/config"),
            ("provisioning/disk", "master-images/disk"),
        ] {
            let held = served.find(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!((held.path.as_str(), held.size), (path, text.len() as u64));
            assert_eq!(fs_err::read_to_string(held.file).expect("read"), text);
        }
        for path in [
            "provisioning/secret",
            "provisioning/../db/ironic.sqlite",
            "provisioning//etc/passwd",
            "provisioning/uuid",
            "provisioning/none",
            "provisioning",
            "provisioningx/boot.ipxe",
            "boot.ipxe",
        ] {
            assert_eq!(served.find(path), None, "{path}");
        }
        let tag = || served.find("provisioning/boot.ipxe").expect("there").digest;
        let before = tag();
        fs_err::write(state.join("http/new"), "http/boot.ipxf").expect("written");
        fs_err::rename(state.join("http/new"), state.join("http/boot.ipxe")).expect("renamed");
        assert_ne!(tag(), before, "another content of the same length is another file to a client");
        assert!(served.list().is_empty());
    }
}
