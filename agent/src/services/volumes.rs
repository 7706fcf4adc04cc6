//! The file system of volumes: a file on DATA whose whole size is set aside when it is made. Volumes take no more of DATA
//! than this share, and nothing else takes what belongs to it.
//!
//! ```text
//! first boot, behind ready: fallocate volumes.img.new ─► mke2fs ─► rename ─┐
//! later boots, before the kubelet: volumes.img ───────────────────────────┴─► loop device ─► mount on FOLDER
//! DATA in memory: tmpfs of that size; volumes end with the box's power, as all of its state does
//! ```
//! The folder below the mount is immutable: without the file system no volume is made on DATA itself.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agent_api::boot::DataFound;
use agent_api::rest::Share;
use anyhow::Context as _;
use rustix::fs::{FallocateFlags, IFlags};
use rustix::mount::MountFlags;

use crate::cluster::local_path::FOLDER;
use crate::content::space::Keeper;
use crate::host::block::space_of;
use crate::host::loopdev::{self, Access};
use crate::host::mount::{self, MountOptions};
use crate::machine::Machine;
use crate::steps::Missing;

/// The file system.
const FILE: &str = "/var/lib/foothold/volumes.img";
/// The same while it is made.
const NEW: &str = "/var/lib/foothold/volumes.img.new";
/// Where DATA is.
const DATA: &str = "/var";
/// Percent of DATA that stay free when the share is set aside: with less than 15 % the kubelet removes images.
const RESERVE_PERCENT: u64 = 16;
/// Sizes are whole MiB.
const MIB: u64 = 1 << 20;
/// Bytes of a block, of the file system and of the loop device.
const BLOCK: u32 = 4096;
/// Nothing here is a program with rights of its own, or a device.
const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOATIME);

/// Volumes of the box below a root.
#[derive(Clone, Debug)]
pub struct Volumes {
    machine: Machine,
    percent: u8,
}

/// The share does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the share of volumes is {percent} % of DATA, {bytes} bytes; {free} of {total} bytes are free, and {RESERVE_PERCENT} % of \
     DATA stay free for the cluster\nhint: make DATA larger, or `services.storage.share` smaller"
)]
pub struct NoRoom {
    percent: u8,
    bytes: u64,
    free: u64,
    total: u64,
}

impl Volumes {
    /// `None` if the release declares no storage.
    pub fn of(machine: &Machine) -> Option<Self> {
        let percent = machine.release().storage.as_ref()?.share_percent;
        Some(Self { machine: machine.clone(), percent })
    }

    fn folder(&self) -> PathBuf {
        self.machine.at(FOLDER)
    }

    /// Mounts what an earlier boot has made, if it has.
    pub fn mount_known(&self) -> anyhow::Result<()> {
        if self.mounted().is_ok() || !self.machine.at(FILE).try_exists()? {
            return Ok(());
        }
        self.mount()
    }

    /// Makes and mounts the file system unless it is there. Returns its size in bytes if it was made.
    pub fn bring_up(&self) -> anyhow::Result<Option<u64>> {
        if self.mounted().is_ok() {
            return Ok(None);
        }
        if matches!(self.machine.facts().data, DataFound::Ram { .. }) {
            let bytes = self.share()?;
            self.guard()?;
            let options = format!("size={bytes},mode=0755");
            mount::mount("tmpfs", "foothold-volumes", &self.folder(), MountOptions::new(FLAGS, &options))?;
            return Ok(Some(bytes));
        }
        // A disk that does not tell must not have the volumes made anew.
        let made = if self.machine.at(FILE).try_exists()? { None } else { Some(self.make()?) };
        self.mount()?;
        Ok(made)
    }

    fn share(&self) -> anyhow::Result<u64> {
        let data = space_of(&self.machine.at(DATA)).context("asking DATA for its size")?;
        Ok(share(self.percent, data)?)
    }

    /// A file that a power cut left half-made is begun anew.
    fn make(&self) -> anyhow::Result<u64> {
        let (new, file) = (self.machine.at(NEW), self.machine.at(FILE));
        if new.exists() {
            fs_err::remove_file(&new)?;
        }
        let bytes = self.share()?;
        let opened = fs_err::File::create(&new)?;
        rustix::fs::fallocate(opened.file(), FallocateFlags::empty(), 0, bytes)
            .with_context(|| format!("setting {bytes} bytes aside for `{}`", new.display()))?;
        // What is discarded would be given back to DATA.
        let options = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
        let (block, path) = (BLOCK.to_string(), new.to_string_lossy());
        let argv = [
            "/usr/sbin/mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            &block,
            "-m",
            "0",
            "-L",
            "volumes",
            "-E",
            options,
            &path,
        ];
        self.machine.program(&argv, b"").context("making the file system of volumes")?;
        opened.sync_all()?;
        fs_err::rename(&new, &file)?;
        Ok(bytes)
    }

    fn mount(&self) -> anyhow::Result<()> {
        self.guard()?;
        let device = loopdev::attach(&self.machine.at(FILE), BLOCK, Access::Write { direct: true })
            .with_context(|| format!("no loop device for `{FILE}`"))?;
        let options = MountOptions::new(FLAGS, "errors=remount-ro");
        Ok(mount::mount("ext4", &device.path.to_string_lossy(), &self.folder(), options)?)
    }

    /// Makes the folder below the mount immutable, so that nothing can be created in it.
    fn guard(&self) -> anyhow::Result<()> {
        fs_err::create_dir_all(self.folder())?;
        let folder = fs_err::File::open(self.folder())?;
        // A DATA in memory does not know it, and has no mount that could be missing.
        let flags = rustix::fs::ioctl_getflags(folder.file()).unwrap_or(IFlags::empty());
        let _ = rustix::fs::ioctl_setflags(folder.file(), flags | IFlags::IMMUTABLE);
        Ok(())
    }

    /// Whether it is mounted.
    pub fn mounted(&self) -> Result<(), Missing> {
        let missing = |why: String| Missing::new("the file system of volumes", why);
        match is_mount(&self.folder()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(missing(format!("`{FILE}` is not mounted on `{FOLDER}`"))),
            Err(error) => Err(missing(error.to_string())),
        }
    }
}

impl Keeper for Volumes {
    /// How much of the volumes' space is used; nothing while it is not mounted, because that would be DATA's.
    fn shares(&self) -> Vec<(String, Share)> {
        if self.mounted().is_err() {
            return Vec::new();
        }
        let told = |(limit_bytes, free): (u64, u64)| {
            // A few blocks are left over even when nothing more can be written.
            let full = (free < MIB).then(|| "volumes have used up their share (`services.storage.share`)".to_owned());
            ("volumes".to_owned(), Share { used_bytes: limit_bytes.saturating_sub(free), limit_bytes, full })
        };
        space_of(&self.folder()).map(told).into_iter().collect()
    }
}

/// Whether something is mounted there: its file system differs from that of the folder above.
fn is_mount(folder: &Path) -> io::Result<bool> {
    let above = folder.parent().unwrap_or(folder);
    match fs_err::metadata(folder) {
        Ok(found) => Ok(found.dev() != fs_err::metadata(above)?.dev()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes of a share of DATA, which has `total` bytes, `free` of them free.
fn share(percent: u8, (total, free): (u64, u64)) -> Result<u64, NoRoom> {
    let bytes = total / 100 * u64::from(percent) / MIB * MIB;
    let reserve = total / 100 * RESERVE_PERCENT;
    if bytes.saturating_add(reserve) > free { Err(NoRoom { percent, bytes, free, total }) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use agent_api::boot::{BootFacts, DataFound};

    use super::{FILE, MIB, Machine, NoRoom, Volumes, is_mount, share};
    use crate::host::runner::FakeRunner;
    use crate::machine::tests::machine;

    #[test]
    fn a_share_is_whole_and_leaves_a_part_of_data() {
        let gib = 1024 * MIB;
        let table = [
            (50, (28 * gib, 27 * gib), Ok(14_335 * MIB)),
            (80, (100 * MIB, 97 * MIB), Ok(80 * MIB)),
            (80, (100 * MIB, 95 * MIB), Err((80 * MIB, 95 * MIB))),
            (50, (28 * gib, 18 * gib), Err((14_335 * MIB, 18 * gib))),
        ];
        for (percent, data, expected) in table {
            let expected = expected.map_err(|(bytes, free)| NoRoom { percent, bytes, free, total: data.0 });
            assert_eq!(share(percent, data), expected, "{percent} {data:?}");
        }
        let said = share(80, (100 * MIB, MIB)).expect_err("no room").to_string();
        assert!(said.contains("80 % of DATA") && said.contains("`services.storage.share`"), "{said}");
    }

    /// A link to itself is to a look what a failing disk is: an error.
    #[test]
    fn volumes_that_a_disk_does_not_tell_of_are_not_made_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let box_ = machine(dir.path(), FakeRunner::default());
        let data = DataFound::Partition { device: "vda4".to_owned(), created: false };
        let facts = BootFacts { data, ..box_.facts().clone() };
        let runner = Arc::new(FakeRunner::default());
        let machine = Machine::new(dir.path(), runner.clone(), box_.release().clone(), facts, String::new());
        let volumes = Volumes { machine, percent: 50 };
        let file = volumes.machine.at(FILE);
        fs_err::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs_err::os::unix::fs::symlink(&file, &file).expect("a link");
        volumes.mount_known().expect_err("told");
        let error = format!("{:#}", volumes.bring_up().expect_err("told"));
        assert!(error.contains("symbolic links") && runner.calls().is_empty(), "{error}");
    }

    #[test]
    fn a_folder_is_no_mount_and_proc_is_one() {
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::create_dir(dir.path().join("volumes")).expect("made");
        assert!(!is_mount(&dir.path().join("volumes")).expect("looked"));
        assert!(!is_mount(&dir.path().join("none")).expect("not there"));
        assert!(is_mount(Path::new("/proc")).expect("looked"));
    }
}
