//! Carries a plan for DATA out: tables, file system, mount.

use std::io::{self, Seek, SeekFrom, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use agent_api::boot::DataFound;
use fs_err::{File, OpenOptions};
use rustix::mount::MountFlags;
use serde_json::json;
use uuid::Uuid;

use super::decide::{DATA_LABEL, DataPartition, DataPlan, DataState, OtherDisk};
use super::facts::{BootFound, OWNER_FILE, disk_id};
use super::probe::{self, Content};
use super::table::{Extent, FoundTable, Table, TableWrite};
use crate::host::block::{self, Disk};
use crate::host::mount::{self, MountOptions};
use crate::host::{RunError, Runner, files, label};

/// Bytes that are zeroed at both ends of new space, so that no signature of earlier contents stays.
const WIPE: u64 = 1 << 20;
/// Bytes that are zeroed where a copy of a superblock may be.
const COPY: usize = 4096;
/// Making and checking a file system end by themselves, but a stick may be slow.
const MKFS_DEADLINE: Duration = Duration::from_secs(300);
const FSCK_DEADLINE: Duration = Duration::from_secs(3600);
/// Exit codes of e2fsck up to here mean that the file system is good now.
const FSCK_REPAIRED: i32 = 3;

/// Why a plan could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Reading or writing a disk.
    #[error("{what} {disk}: {source}")]
    Disk {
        /// What was being done.
        what: &'static str,
        /// Disk or partition.
        disk: String,
        /// Why it failed.
        source: io::Error,
    },
    /// mke2fs or e2fsck.
    #[error("{0}")]
    Tool(#[from] RunError),
    /// The kernel sees another partition under the number.
    #[error("{disk}: the kernel knows another partition {number}; start the box again")]
    OtherPartition {
        /// Disk.
        disk: String,
        /// Number.
        number: u32,
    },
    /// What was written is not what is read.
    #[error("{disk}: byte {offset} is not as it was written")]
    Differs {
        /// Disk.
        disk: String,
        /// Byte of the disk.
        offset: u64,
    },
    /// The start of a file system that was finished is lost.
    #[error("{partition}: the start of its file system is damaged; a copy of its superblock, at byte {copy}, is whole")]
    Damaged {
        /// Partition.
        partition: String,
        /// Byte of the partition.
        copy: u64,
    },
    /// No room in the table, or no free space.
    #[error("{disk}: no room for a partition")]
    NoRoom {
        /// Disk.
        disk: String,
    },
}

pub(super) fn on_disk(what: &'static str, disk: &str) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError::Disk { what, disk: disk.to_owned(), source }
}

/// The disks that a plan may name, and whose DATA it is.
#[derive(Clone, Copy, Debug)]
pub struct PlanDisks<'a> {
    /// The disk that holds the medium.
    pub boot: &'a Disk,
    /// What was found on it.
    pub found: &'a BootFound,
    /// Bytes of a file system that covers all of it, else 0.
    pub covered: u64,
    /// The other disks, as far as they were looked at.
    pub others: &'a [OtherDisk],
    /// Name of the appliance.
    pub appliance: &'a str,
}

/// Carries out a plan that names a disk, with tools that `runner` finds, and mounts DATA at `target`; the partition that
/// is mounted then, and whether it is new.
pub fn carry_out(
    plan: &DataPlan,
    disks: &PlanDisks<'_>,
    runner: &dyn Runner,
    target: &Path,
    say: &dyn Fn(&str),
) -> Result<(String, bool), DiskError> {
    let find = |name: &str| -> &Disk {
        disks.others.iter().find(|other| other.disk.name == name).map_or(disks.boot, |other| &other.disk)
    };
    let (disk, partition, format) = match plan {
        DataPlan::Use { disk, partition, format } => {
            let disk = find(disk);
            if let Some(found) = disks.found.table.as_ref().filter(|_| disk.name == disks.boot.name) {
                mend_table(disk, found)?;
            }
            (disk, partition.clone(), *format)
        }
        DataPlan::CreateOnBootDisk { .. } => {
            let partition = create_on_boot_disk(disks.boot, disks.found, disks.covered)?;
            (disks.boot, partition, true)
        }
        DataPlan::TakeDisk { disk } => {
            let disk = find(disk);
            (disk, take_disk(disk, disks.appliance)?, true)
        }
        DataPlan::LookAtOthers | DataPlan::Ram { .. } | DataPlan::Impossible { .. } => {
            return Err(DiskError::NoRoom { disk: String::new() });
        }
    };
    let name = known_to_kernel(disk, &partition)?;
    if format {
        self::format(runner, &name)?;
    } else {
        repair_if_marked(runner, &name, say)?;
    }
    mount_or_repair(runner, &name, target, say)?;
    if format {
        mark(target, disks.appliance).map_err(on_disk("writing", &name))?;
        finish(&name, target)?;
    }
    Ok((name, format))
}

/// Says whose DATA this is.
pub fn mark(root: &Path, appliance: &str) -> io::Result<()> {
    let file = root.join(OWNER_FILE);
    file.parent().map_or(Ok(()), fs_err::create_dir_all)?;
    files::replace(&file, &serde_json::to_vec(&json!({ "appliance": appliance }))?)
}

/// Makes both copies of the boot disk's table whole, the second one at the disk's true end.
fn mend_table(disk: &Disk, found: &FoundTable) -> Result<(), DiskError> {
    if disk.read_only || (found.primary_good && found.backup_good) {
        return Ok(());
    }
    let mut table = found.table.clone();
    table.fit_to(disk.bytes);
    write_all(disk, &table.writes(found.primary_good))
}

/// Makes DATA in the free space of the boot disk; formats and mounts it.
fn create_on_boot_disk(disk: &Disk, boot: &BootFound, covered: u64) -> Result<DataPartition, DiskError> {
    let no_room = || DiskError::NoRoom { disk: disk.name.clone() };
    let found = boot.table.as_ref().ok_or_else(no_room)?;
    let mut table = found.table.clone();
    table.fit_to(disk.bytes);
    let extent = table.largest_free(covered).ok_or_else(no_room)?;
    wipe(disk, extent)?;
    let number = table.add_data(extent, random_id()).ok_or_else(no_room)?;
    write_all(disk, &table.writes(found.primary_good))?;
    Ok(unfinished(number, extent))
}

/// Puts a table with DATA alone on an empty disk.
fn take_disk(disk: &Disk, appliance: &str) -> Result<DataPartition, DiskError> {
    let no_room = || DiskError::NoRoom { disk: disk.name.clone() };
    let mut table = Table::new(disk_id(appliance), disk.bytes, disk.block_bytes);
    let extent = table.largest_free(0).ok_or_else(no_room)?;
    let number = table.add_data(extent, random_id()).ok_or_else(no_room)?;
    let writes = table.first_writes(disk.bytes);
    // The header goes first and says that the disk is ours; only then is anything else touched.
    write_all(disk, &writes[..1])?;
    wipe(disk, extent)?;
    write_all(disk, &writes[1..])?;
    Ok(unfinished(number, extent))
}

fn unfinished(number: u32, extent: Extent) -> DataPartition {
    DataPartition { number, start: extent.start, bytes: extent.bytes, state: DataState::Unfinished }
}

fn random_id() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

pub(super) fn open_for_writing(disk: &Disk) -> Result<File, DiskError> {
    let opened = OpenOptions::new().read(true).write(true).open(block::node(&disk.name));
    opened.map_err(on_disk("opening", &disk.name))
}

/// Writes one after the other, each on the disk before the next.
pub(super) fn write_all(disk: &Disk, writes: &[TableWrite]) -> Result<(), DiskError> {
    let mut device = open_for_writing(disk)?;
    for write in writes {
        let done = device
            .seek(SeekFrom::Start(write.offset))
            .and_then(|_| device.write_all(&write.bytes))
            .and_then(|()| device.sync_all());
        done.map_err(on_disk("writing the partition table of", &disk.name))?;
    }
    Ok(())
}

fn wipe(disk: &Disk, extent: Extent) -> Result<(), DiskError> {
    let mut device = open_for_writing(disk)?;
    let length = WIPE.min(extent.bytes);
    let zeros = vec![0; usize::try_from(length).unwrap_or_default()];
    let ends = [(extent.start, &zeros[..]), (extent.start + extent.bytes - length, &zeros[..])];
    // A copy of an earlier file system's superblock would tell that the new one was finished.
    let copies = probe::EXT_COPIES.into_iter().filter(|copy| copy + COPY as u64 <= extent.bytes);
    let copies = copies.map(|copy| (extent.start + copy, &[0; COPY][..]));
    for (offset, zeros) in ends.into_iter().chain(copies) {
        let done = device.seek(SeekFrom::Start(offset)).and_then(|_| device.write_all(zeros));
        done.map_err(on_disk("clearing", &disk.name))?;
    }
    device.sync_all().map_err(on_disk("clearing", &disk.name))
}

/// The kernel's name for the partition; tells the kernel about it first if need be.
fn known_to_kernel(disk: &Disk, partition: &DataPartition) -> Result<String, DiskError> {
    let DataPartition { number, start, bytes, .. } = *partition;
    block::add_partition(&block::node(&disk.name), number, start, bytes)
        .map_err(on_disk("announcing the new partition of", &disk.name))?;
    let now = block::list(Path::new(block::SYS_BLOCK)).map_err(on_disk("listing", &disk.name))?;
    let partitions = now.into_iter().find(|found| found.name == disk.name).map(|found| found.partitions);
    let known = partitions.unwrap_or_default().into_iter().find(|known| known.number == number);
    match known {
        Some(known) if (known.start, known.bytes) == (start, bytes) => Ok(known.name),
        _ => Err(DiskError::OtherPartition { disk: disk.name.clone(), number }),
    }
}

/// Makes the file system, without its label: that comes when everything is in it.
fn format(runner: &dyn Runner, partition: &str) -> Result<(), DiskError> {
    let device = block::node(partition).to_string_lossy().into_owned();
    let options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let argv = ["/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-m", "1", "-L", "", "-E", options, &device];
    runner.run(&argv, b"", MKFS_DEADLINE)?;
    Ok(())
}

/// Repairs the file system if the kernel noted errors in it. The kernel replays the journal by itself.
fn repair_if_marked(runner: &dyn Runner, partition: &str, say: &dyn Fn(&str)) -> Result<(), DiskError> {
    let reading = || on_disk("reading", partition);
    let mut device = File::open(block::node(partition)).map_err(reading())?;
    let contents = probe::identify(&probe::read_head(&mut device).map_err(reading())?);
    match contents.iter().find(|content| matches!(content, Content::Ext4 { .. })) {
        Some(Content::Ext4 { errors: true, .. }) => repair(runner, partition, say),
        Some(_) => Ok(()),
        // e2fsck would make a new root, and leave what was in the old one without names: that is for a person to decide.
        None => match probe::ext4_copy(&mut device, 0, u64::MAX).map_err(reading())? {
            Some((copy, _)) => Err(DiskError::Damaged { partition: partition.to_owned(), copy }),
            None => Ok(()),
        },
    }
}

/// Runs e2fsck: first with the repairs that lose nothing, then with all.
fn repair(runner: &dyn Runner, partition: &str, say: &dyn Fn(&str)) -> Result<(), DiskError> {
    let device = block::node(partition).to_string_lossy().into_owned();
    for mode in ["-p", "-y"] {
        say(&format!("the file system of DATA on {partition} has errors, e2fsck {mode} repairs it"));
        match runner.run(&["/usr/sbin/e2fsck", "-f", mode, &device], b"", FSCK_DEADLINE) {
            Err(RunError::Failed { code: Some(code), .. }) if code <= FSCK_REPAIRED => return Ok(()),
            Ok(_) => return Ok(()),
            Err(error) if mode == "-y" => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Mounts DATA; one that the kernel finds inconsistent is repaired first. A disk that cannot be read
/// is left alone: repairs would only make it worse.
fn mount_or_repair(runner: &dyn Runner, partition: &str, target: &Path, say: &dyn Fn(&str)) -> Result<(), DiskError> {
    match mount_data(partition, target) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EUCLEAN | libc::EBADMSG)) => {
            repair(runner, partition, say)?;
            mount_data(partition, target)
        }
        result => result,
    }
    .map_err(on_disk("mounting", partition))
}

fn mount_data(partition: &str, target: &Path) -> io::Result<()> {
    let source = block::node(partition).to_string_lossy().into_owned();
    let options = MountOptions::new(MountFlags::NOATIME, "errors=remount-ro");
    mount::mount("ext4", &source, target, options).map_err(|error| error.source)
}

/// Says that everything is in DATA: from now on it is never formatted again.
fn finish(partition: &str, target: &Path) -> Result<(), DiskError> {
    sync(target).map_err(on_disk("writing", partition))?;
    label::set(target, DATA_LABEL).map_err(on_disk("naming", partition))?;
    sync(target).map_err(on_disk("writing", partition))
}

fn sync(root: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(root)?.as_fd())?)
}

/// What the agent learns of it.
pub fn found(partition: String, created: bool) -> DataFound {
    DataFound::Partition { device: partition, created }
}

#[cfg(test)]
mod tests {
    use super::{Extent, format, repair, repair_if_marked, wipe};
    use crate::host::block::Disk;
    use crate::host::runner::FakeRunner;

    #[test]
    fn the_file_system_is_made_quickly_and_without_its_label() {
        let runner = FakeRunner::default();
        format(&runner, "vda4").expect("the fake agrees");
        let call = &runner.calls()[0];
        assert!(call.ends_with("-L  -E lazy_itable_init=1,lazy_journal_init=1,nodiscard /dev/vda4"), "{call}");
    }

    #[test]
    fn gentle_repairs_come_before_all_repairs() {
        let fsck = |mode: &str| format!("/usr/sbin/e2fsck -f {mode} /dev/vda4");
        let gentle = FakeRunner::default().fail(&fsck("-p"), 1, "");
        repair(&gentle, "vda4", &|_| ()).expect("1 means repaired");
        assert_eq!(gentle.calls(), [fsck("-p")]);
        let hard = FakeRunner::default().fail(&fsck("-p"), 4, "").fail(&fsck("-y"), 1, "");
        repair(&hard, "vda4", &|_| ()).expect("1 means repaired");
        assert_eq!(hard.calls(), [fsck("-p"), fsck("-y")]);
        let lost = FakeRunner::default().fail(&fsck("-p"), 8, "").fail(&fsck("-y"), 8, "short read");
        assert!(repair(&lost, "vda4", &|_| ()).is_err());
    }

    /// A partition of 16 MiB with nothing but a copy of a superblock.
    fn with_a_copy_alone() -> (tempfile::TempDir, Disk) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vda4");
        let mut bytes = vec![0; 16 << 20];
        bytes[(8193 << 10) + 56..][..2].copy_from_slice(&[0x53, 0xEF]);
        bytes[(8193 << 10) + 90] = 1;
        fs_err::write(&path, bytes).expect("written");
        (folder, Disk { name: path.to_string_lossy().into_owned(), bytes: 16 << 20, ..Disk::default() })
    }

    #[test]
    fn a_file_system_whose_start_is_lost_is_left_to_a_person() {
        let (_folder, disk) = with_a_copy_alone();
        let runner = FakeRunner::default();
        let error = repair_if_marked(&runner, &disk.name, &|_| ()).expect_err("it is damaged");
        assert!(error.to_string().ends_with("a copy of its superblock, at byte 8389632, is whole"), "{error}");
        assert!(runner.calls().is_empty());
    }

    #[test]
    fn new_space_has_no_copies_of_an_earlier_superblock() {
        let (_folder, disk) = with_a_copy_alone();
        wipe(&disk, Extent { start: 0, bytes: disk.bytes }).expect("cleared");
        assert!(fs_err::read(&disk.name).expect("read").iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_end_of_mke2fs_s_complaint_is_in_the_error() {
        let runner = FakeRunner::default().fail("/usr/sbin/mke2fs", 1, "Device size reported to be zero");
        let error = format(&runner, "vda4").expect_err("the fake refuses");
        assert!(error.to_string().ends_with("Device size reported to be zero"), "{error}");
    }
}
