//! What the disks hold, read without changing a byte.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::decide::{BootDisk, DATA_LABEL, DataPartition, DataState, Holds, OtherDisk};
use super::probe::{self, Content};
use super::table::{self, Entry, FoundTable};
use crate::host::block::{self, Disk};
use crate::host::mount::{self, MountOptions};

/// File in a DATA that names the appliance that it belongs to.
pub const OWNER_FILE: &str = "lib/foothold/data.json";
/// Where a file system of another disk is looked into.
const PEEK: &str = "/run/foothold/peek";
/// Bytes looked at in one place of a disk.
const SAMPLE: u64 = 1 << 20;
/// Places looked at between the first and the last.
const SAMPLES: u64 = 16;

/// The boot disk, and its table as found.
#[derive(Clone, Debug)]
pub struct BootFound {
    /// For the decision.
    pub facts: BootDisk,
    /// For the executor.
    pub table: Option<FoundTable>,
}

/// The id of a table that this appliance makes on a whole disk: by it the appliance recognises its own disks.
pub fn disk_id(appliance: &str) -> Uuid {
    id_of("data", appliance)
}

/// The id of a table that this appliance makes on the disk that it installs itself on.
pub fn install_id(appliance: &str) -> Uuid {
    id_of("installed", appliance)
}

fn id_of(purpose: &str, appliance: &str) -> Uuid {
    let digest = Sha256::digest(format!("foothold {purpose} disk\0{appliance}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The table of a disk, if it has a good copy of one.
pub fn table_of(disk: &Disk) -> io::Result<Option<FoundTable>> {
    table::read(&mut fs_err::File::open(block::node(&disk.name))?, disk.bytes, disk.block_bytes)
}

/// Looks at the boot disk. `covered`: bytes of a file system that lies on the whole disk.
pub fn boot_disk(disk: &Disk, covered: u64) -> BootFound {
    let (table, why) = match table_of(disk) {
        Ok(Some(found)) => (Some(found), String::new()),
        Ok(None) if disk.name.starts_with("sr") => (None, "a disc".to_owned()),
        Ok(None) => (None, "no GUID partition table".to_owned()),
        Err(error) => (None, format!("cannot be read: {error}")),
    };
    let data = table.as_ref().and_then(|found| found.table.data()).map(|entry| data_partition(disk, &entry, false));
    let free = match &table {
        _ if disk.read_only => Err("read-only".to_owned()),
        None => Err(why),
        Some(found) => {
            let mut fitted = found.table.clone();
            fitted.fit_to(disk.bytes);
            Ok(fitted.largest_free(covered).map_or(0, |extent| extent.bytes))
        }
    };
    BootFound { facts: BootDisk { name: disk.name.clone(), data, free }, table }
}

/// Looks at every disk but the boot disk.
pub fn other_disks(boot: &str, appliance: &str) -> Vec<OtherDisk> {
    let disks = block::list(Path::new(block::SYS_BLOCK)).unwrap_or_default();
    let others = disks.into_iter().filter(|disk| disk.name != boot && !disk.name.starts_with("sr"));
    others.map(|disk| OtherDisk { holds: look(&disk, disk_id(appliance)), disk }).collect()
}

/// What a disk holds; `ours` is the id of a table that counts as our own.
pub fn look(disk: &Disk, ours: Uuid) -> Holds {
    let opened = fs_err::File::open(block::node(&disk.name));
    match opened.and_then(|mut device| holds(&mut device, disk, ours)) {
        Ok(Looked::Is(holds)) => holds,
        Ok(Looked::Data { entry, ours }) => Holds::OnlyData { data: data_partition(disk, &entry, true), ours },
        Err(error) => Holds::Foreign(format!("what cannot be read ({error})")),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Is(Holds),
    Data { entry: Entry, ours: bool },
}

fn holds(device: &mut (impl Read + Seek), disk: &Disk, ours: Uuid) -> io::Result<Looked> {
    let head = probe::read_head(device)?;
    let found = table::read(device, disk.bytes, disk.block_bytes)?;
    let contents = probe::identify(&head);
    if let Some(found) = &found
        && is_in_force(found, &head)
        && let ([_], Some(entry)) = (&found.table.used()[..], found.table.data())
    {
        return Ok(Looked::Data { entry, ours: found.table.disk_id == ours });
    }
    let no_partitions = disk.partitions.is_empty() && found.is_none_or(|found| found.table.used().is_empty());
    if no_partitions && !probe::is_more_than_a_table(&contents) && table::is_begun(&head, disk.block_bytes, ours) {
        return Ok(Looked::Is(Holds::Begun));
    }
    let contents: Vec<String> = contents.iter().map(Content::describe).collect();
    if !contents.is_empty() || !disk.partitions.is_empty() {
        let words = if contents.is_empty() { "partitions".to_owned() } else { contents.join(", ") };
        return Ok(Looked::Is(Holds::Foreign(words)));
    }
    Ok(Looked::Is(match first_data(device, disk.bytes)? {
        Some(offset) => Holds::Foreign(format!("data of an unknown kind at byte {offset}")),
        None => Holds::Nothing,
    }))
}

/// Whether a table counts. Who makes a file system, a RAID or an encryption of a whole disk overwrites the copy at the start,
/// and often leaves the one at the end: that one alone counts only on a disk which is nothing else.
pub(super) fn is_in_force(found: &FoundTable, head: &[u8]) -> bool {
    let nothing_else = || table::has_protective_mbr(head) && !probe::is_more_than_a_table(&probe::identify(head));
    found.primary_good || nothing_else()
}

/// Looks at the first and the last MiB and several in between for anything but zeros.
fn first_data(device: &mut (impl Read + Seek), bytes: u64) -> io::Result<Option<u64>> {
    let last = bytes.saturating_sub(SAMPLE);
    for index in 0..=SAMPLES + 1 {
        let offset = if index > SAMPLES { last } else { last / (SAMPLES + 1) * index / 4096 * 4096 };
        device.seek(SeekFrom::Start(offset))?;
        let mut sample = Vec::new();
        device.by_ref().take(SAMPLE).read_to_end(&mut sample)?;
        if let Some(at) = sample.iter().position(|byte| *byte != 0) {
            return Ok(Some(offset + at as u64));
        }
    }
    Ok(None)
}

/// What is in a partition of DATA's type and name. The kernel may not know the partition, so it is
/// read through the disk.
fn data_partition(disk: &Disk, entry: &Entry, peek: bool) -> DataPartition {
    let opened = fs_err::File::open(block::node(&disk.name));
    let state = match opened.and_then(|mut device| state_in(&mut device, entry)) {
        Err(error) => DataState::Foreign(format!("what cannot be read ({error})")),
        Ok(DataState::Made(_)) if peek => DataState::Made(owner(&disk.partition_name(entry.number))),
        Ok(state) => state,
    };
    DataPartition { number: entry.number, start: entry.start, bytes: entry.bytes, state }
}

/// A DATA whose superblock is damaged looks as if it had never been finished. Its copies tell that it was.
fn state_in(device: &mut (impl Read + Seek), entry: &Entry) -> io::Result<DataState> {
    device.seek(SeekFrom::Start(entry.start))?;
    let mut head = Vec::new();
    device.by_ref().take(entry.bytes.min(probe::HEAD as u64)).read_to_end(&mut head)?;
    let state = state_of(&probe::identify(&head));
    if state != DataState::Unfinished {
        return Ok(state);
    }
    let copy = probe::ext4_copy(device, entry.start, entry.bytes)?;
    Ok(if copy.is_some_and(|(_, label)| label == DATA_LABEL) { DataState::Made(None) } else { state })
}

fn state_of(contents: &[Content]) -> DataState {
    match contents {
        [] => DataState::Unfinished,
        [Content::Ext4 { label, .. }] if label == DATA_LABEL => DataState::Made(None),
        [Content::Ext4 { label, .. }] if label.is_empty() => DataState::Unfinished,
        others => DataState::Foreign(others.iter().map(Content::describe).collect::<Vec<_>>().join(", ")),
    }
}

/// The appliance that a DATA names as its own.
fn owner(partition: &str) -> Option<String> {
    let text = mounted_for_a_look(partition, |root| fs_err::read_to_string(root.join(OWNER_FILE)))?;
    let value: serde_json::Value = serde_json::from_str(&text.ok()?).ok()?;
    value.get("appliance")?.as_str().map(str::to_owned)
}

/// Looks into an ext4, mounted so that not even its journal is replayed; nothing where it cannot be mounted.
pub fn mounted_for_a_look<T>(partition: &str, see: impl FnOnce(&Path) -> T) -> Option<T> {
    let peek = Path::new(PEEK);
    let source = block::node(partition).to_string_lossy().into_owned();
    mount::mount("ext4", &source, peek, MountOptions::read_only("noload")).ok()?;
    let seen = see(peek);
    let _ = mount::unmount(peek, false);
    Some(seen)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use rstest::rstest;
    use uuid::Uuid;

    use super::{DataState, Holds, Looked, disk_id, holds, state_in, state_of};
    use crate::disk::probe::Content;
    use crate::disk::table::{Entry, Extent, Table};
    use crate::host::block::Disk;

    const MIB: u64 = 1 << 20;

    fn disk(bytes: &[u8]) -> Disk {
        Disk { name: "vdb".to_owned(), bytes: bytes.len() as u64, block_bytes: 512, ..Disk::default() }
    }

    fn looked(bytes: &[u8]) -> Looked {
        holds(&mut Cursor::new(bytes), &disk(bytes), disk_id("edge")).expect("readable")
    }

    fn blank() -> Vec<u8> {
        vec![0; 40 << 20]
    }

    #[test]
    fn only_zeros_count_as_nothing() {
        assert_eq!(looked(&blank()), Looked::Is(Holds::Nothing));
        for at in [0, 4096, (1 << 20) - 1, (40 << 20) - 1, 39 << 20, (39 << 20) / 17 * 8 + 5000] {
            let mut bytes = blank();
            bytes[at] = 1;
            assert!(matches!(looked(&bytes), Looked::Is(Holds::Foreign(_))), "{at}");
        }
    }

    #[test]
    fn a_signature_names_what_is_there() {
        let mut bytes = blank();
        bytes[512..520].copy_from_slice(b"LABELONE");
        assert_eq!(looked(&bytes), Looked::Is(Holds::Foreign("LVM2 physical volume".to_owned())));
    }

    #[test]
    fn a_table_that_we_began_is_ours_and_one_of_another_is_not() {
        for (id, expected) in [
            (disk_id("edge"), Looked::Is(Holds::Begun)),
            (Uuid::from_u128(1), Looked::Is(Holds::Foreign("GUID partition table".to_owned()))),
        ] {
            let mut bytes = blank();
            let first = &Table::new(id, 40 * MIB, 512).first_writes(40 * MIB)[0];
            bytes[512..1024].copy_from_slice(&first.bytes);
            assert_eq!(looked(&bytes), expected);
        }
    }

    #[test]
    fn a_disk_with_data_alone_is_told_from_one_with_more() {
        let mut table = Table::new(disk_id("edge"), 40 * MIB, 512);
        for more in [false, true] {
            table.add_data(Extent { start: MIB * (1 + 9 * u64::from(more)), bytes: MIB }, Uuid::from_u128(2));
            let mut bytes = blank();
            for write in table.first_writes(40 * MIB) {
                let at = usize::try_from(write.offset).expect("small");
                bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            }
            assert_eq!(matches!(looked(&bytes), Looked::Data { ours: true, .. }), !more);
        }
    }

    /// A disk that is DATA of ours.
    fn data_disk() -> Vec<u8> {
        let mut table = Table::new(disk_id("edge"), 40 * MIB, 512);
        table.add_data(Extent { start: MIB, bytes: 8 * MIB }, Uuid::from_u128(2));
        let mut bytes = blank();
        for write in table.first_writes(40 * MIB) {
            let at = usize::try_from(write.offset).expect("small");
            bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        bytes
    }

    #[rstest]
    #[case::nothing(0, &[], None)]
    #[case::a_flipped_bit(540, &[0xFF], None)]
    #[case::pvcreate(512, b"LABELONE", Some("MBR partition table, LVM2 physical volume"))]
    #[case::mdadm(4096, b"\xfc\x4e\x2b\xa9", Some("GUID partition table, RAID member"))]
    #[case::bcache(4120, b"\xf6\x85\x73\xc6\x1a\x4e\xca\x45", Some("GUID partition table, bcache"))]
    #[case::encrypted_without_a_header(0, &[0xA5; 16384], Some("data of an unknown kind at byte 0"))]
    fn a_disk_of_ours_that_became_something_else_is_not_ours(
        #[case] at: usize,
        #[case] over: &[u8],
        #[case] foreign: Option<&str>,
    ) {
        let mut bytes = data_disk();
        bytes[at..at + over.len()].copy_from_slice(over);
        match (looked(&bytes), foreign) {
            (Looked::Data { ours: true, .. }, None) => {}
            (found, foreign) => {
                assert_eq!(found, Looked::Is(Holds::Foreign(foreign.unwrap_or("still ours").to_owned())));
            }
        }
        // Not even without the copy at the end is it one that we began.
        bytes[30 << 20..].fill(0);
        assert_ne!(looked(&bytes), Looked::Is(Holds::Begun));
    }

    #[test]
    fn a_finished_data_whose_start_is_lost_is_not_formatted() {
        let entry =
            Entry { number: 4, kind: Uuid::from_u128(1), name: "DATA".to_owned(), start: 3 * MIB, bytes: 40 * MIB };
        let superblock = |label: &str, group: u8| {
            let mut block = vec![0; 1024];
            block[56..58].copy_from_slice(&[0x53, 0xEF]);
            block[90] = group;
            block[120..120 + label.len()].copy_from_slice(label.as_bytes());
            block
        };
        let state = |first: Option<&str>, copy: Option<(&str, u8)>| {
            let mut bytes = vec![0; 43 << 20];
            let mut put = |at: usize, block: Vec<u8>| bytes[at..at + 1024].copy_from_slice(&block);
            if let Some(label) = first {
                put((3 << 20) + 1024, superblock(label, 0));
            }
            if let Some((label, group)) = copy {
                put((3 << 20) + (8193 << 10), superblock(label, group));
            }
            state_in(&mut Cursor::new(bytes), &entry).expect("readable")
        };
        assert_eq!(state(None, None), DataState::Unfinished);
        assert_eq!(state(Some(""), Some(("", 1))), DataState::Unfinished, "its label comes last");
        assert_eq!(state(None, Some(("", 1))), DataState::Unfinished);
        assert_eq!(state(None, Some(("FOOTHOLD-DATA", 0))), DataState::Unfinished, "a file that looks like one");
        assert_eq!(state(None, Some(("FOOTHOLD-DATA", 1))), DataState::Made(None));
        assert_eq!(state(Some("FOOTHOLD-DATA"), None), DataState::Made(None));
        assert_eq!(state(Some("home"), Some(("FOOTHOLD-DATA", 1))), DataState::Foreign("ext4 `home`".to_owned()));
    }

    #[test]
    fn only_the_label_makes_data_finished() {
        let ext4 = |label: &str| Content::Ext4 { label: label.to_owned(), bytes: 1, errors: false };
        assert_eq!(state_of(&[ext4("FOOTHOLD-DATA")]), DataState::Made(None));
        assert_eq!(state_of(&[ext4("")]), DataState::Unfinished);
        assert_eq!(state_of(&[]), DataState::Unfinished);
        assert_eq!(state_of(&[ext4("home")]), DataState::Foreign("ext4 `home`".to_owned()));
    }
}
