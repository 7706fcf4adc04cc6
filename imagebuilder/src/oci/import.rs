//! containerd's state in which the box's images are already unpacked.
//!
//! Real containerd imports the images once, one after the other. What it wrote is then made the same for
//! every build: times become the build time, what only matters during an import goes, and the snapshots'
//! trees are the ones the recipes laid out.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::bolt::{self, Bucket, Entry};
use super::layout;
use super::recipe::Packed;
use crate::host::cancel;
use crate::host::command::{Running, pause};
use crate::rootfs::INSIDE;
use crate::store::{Cache, WorkDir};
use crate::toolbox::{Tool, Toolbox};

/// Metadata database below containerd's root.
pub const METADATA: &str = "io.containerd.metadata.v1.bolt/meta.db";
/// Database of the overlayfs snapshotter below containerd's root.
pub const SNAPSHOTS: &str = "io.containerd.snapshotter.v1.overlayfs/metadata.db";

const CONFIGURATION: &str = r#"version = 3
disabled_plugins = [
  "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
]
"#;

/// containerd's socket, as the programs in the toolbox see it.
const SOCKET: &str = "/mnt/build/state/containerd.sock";

/// What an import needs.
pub struct Import<'a> {
    /// Where the images' blobs lie.
    pub cache: &'a Cache,
    /// Where containerd runs.
    pub toolbox: &'a Toolbox,
    /// Where it works.
    pub work: &'a WorkDir,
    /// Folder with `containerd` and `ctr`.
    pub programs: &'a Path,
    /// Build time.
    pub built: u64,
}

impl Import<'_> {
    /// Imports the images, in their order, and leaves containerd's root at `<work>/containerd`: normalized databases,
    /// and `snapshots/<N>/fs` as containerd unpacked them.
    pub fn import(&self, images: &[Packed]) -> Result<()> {
        let root = self.work.path().join("containerd");
        fs_err::create_dir_all(&root)?;
        fs_err::create_dir_all(self.work.path().join("state"))?;
        fs_err::write(self.work.path().join("config.toml"), CONFIGURATION)?;
        let mut daemon = self
            .program("containerd")
            .args([
                "--config",
                "/mnt/build/config.toml",
                "--root",
                "/mnt/build/containerd",
                "--state",
                "/mnt/build/state",
            ])
            .args(["--address", SOCKET])
            .start()?;
        wait_for_socket(self.work, &mut daemon)?;
        for packed in images {
            self.import_one(packed).with_context(|| format!("importing `{}`", packed.image.reference))?;
        }
        daemon.stop(Duration::from_secs(20));
        let keep: BTreeSet<String> =
            images.iter().flat_map(|packed| &packed.image.blobs).map(|blob| blob.digest.to_string()).collect();
        for database in [METADATA, SNAPSHOTS] {
            normalize_file(&root.join(database), self.built, &keep)?;
        }
        Ok(())
    }

    fn program(&self, name: &str) -> Tool<'_> {
        self.toolbox.tool(&format!("/mnt/programs/{name}")).bind(self.programs, Path::new("/mnt/programs"), false).bind(
            self.work.path(),
            Path::new(INSIDE),
            true,
        )
    }

    fn ctr(&self) -> Tool<'_> {
        self.program("ctr").args(["--address", SOCKET, "--namespace", "k8s.io", "images"])
    }

    fn import_one(&self, packed: &Packed) -> Result<()> {
        let archive = self.work.path().join("image.tar");
        layout::write_file(self.cache, &packed.image, self.built, &archive)?;
        self.ctr().args(["import", "--local", "--snapshotter", "overlayfs", "/mnt/build/image.tar"]).run()?;
        let labels = ["io.cri-containerd.image=managed", "io.cri-containerd.pinned=pinned"];
        self.ctr().args(["label", &packed.image.reference]).args(labels).run()?;
        fs_err::remove_file(&archive)?;
        Ok(())
    }
}

fn wait_for_socket(work: &WorkDir, daemon: &mut Running) -> Result<()> {
    let socket = work.path().join("state/containerd.sock");
    while !socket.exists() {
        if let Some(stderr) = daemon.ended() {
            bail!("containerd ended before it answered:\n{stderr}");
        }
        cancel::check()?;
        pause(Duration::from_millis(20));
    }
    Ok(())
}

fn normalize_file(path: &Path, built: u64, keep: &BTreeSet<String>) -> Result<()> {
    let mut root = bolt::decode(&fs_err::read(path)?).with_context(|| format!("reading `{}`", path.display()))?;
    normalize(&mut root, built, keep);
    fs_err::write(path, bolt::encode(&root))?;
    Ok(())
}

/// Buckets that only matter while something is being imported.
const PASSING: &[&[u8]] = &[b"leases", b"ingests", b"sandboxes"];

fn normalize(bucket: &mut Bucket, built: u64, keep: &BTreeSet<String>) {
    bucket.entries.retain(|key, _| !PASSING.contains(&key.as_slice()));
    // The index of an import is content too, but of no image.
    if let Some(Entry::Bucket(blobs)) = bucket.entries.get_mut(b"blob".as_slice()) {
        blobs.entries.retain(|digest, _| std::str::from_utf8(digest).is_ok_and(|digest| keep.contains(digest)));
    }
    // What a snapshot takes on disk depends on the builder's file system; containerd only reports it.
    let is_usage = bucket.entries.contains_key(b"inodes".as_slice());
    for (key, entry) in &mut bucket.entries {
        match entry {
            Entry::Bucket(inner) => normalize(inner, built, keep),
            Entry::Value(value) => match key.as_slice() {
                b"createdat" | b"updatedat" => *value = go_time(built),
                b"inodes" | b"size" if is_usage => *value = vec![0],
                _ => {}
            },
        }
    }
}

/// Go's `time.Time.MarshalBinary`, version 1: seconds since year 1, nanoseconds, offset -1 for UTC.
fn go_time(unix: u64) -> Vec<u8> {
    /// Seconds from 0001-01-01 to 1970-01-01.
    const YEAR_ONE: u64 = 62_135_596_800;
    let mut bytes = vec![1];
    bytes.extend((unix + YEAR_ONE).to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend((-1_i16).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Bucket, Entry, go_time, normalize};

    fn value(bytes: &[u8]) -> Entry {
        Entry::Value(bytes.to_vec())
    }

    #[test]
    fn times_are_gos_binary_form() {
        // time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC).MarshalBinary()
        assert_eq!(hex::encode(go_time(1_700_000_000)), "010000000edce5e80000000000ffff");
    }

    #[test]
    fn only_what_lasts_stays() {
        let mut blobs = Bucket::default();
        blobs.entries.insert(b"sha256:aa".to_vec(), value(b"1"));
        blobs.entries.insert(b"sha256:bb".to_vec(), value(b"1"));
        let mut root = Bucket::default();
        root.entries.insert(b"blob".to_vec(), Entry::Bucket(blobs));
        root.entries.insert(b"leases".to_vec(), Entry::Bucket(Bucket::default()));
        root.entries.insert(b"size".to_vec(), value(b"9"));
        normalize(&mut root, 0, &BTreeSet::from(["sha256:aa".to_owned()]));
        assert!(!root.entries.contains_key(b"leases".as_slice()));
        assert_eq!(root.entries[b"size".as_slice()], value(b"9"), "a blob's size is not a usage");
        let Entry::Bucket(blobs) = &root.entries[b"blob".as_slice()] else { panic!("a bucket") };
        assert_eq!(blobs.entries.len(), 1);
    }
}
