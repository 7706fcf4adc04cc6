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
    if let Some(found) = &found
        && let ([_], Some(entry)) = (&found.table.used()[..], found.table.data())
    {
        return Ok(Looked::Data { entry, ours: found.table.disk_id == ours });
    }
    let no_partitions = disk.partitions.is_empty() && found.is_none_or(|found| found.table.used().is_empty());
    if no_partitions && table::is_begun(&head, disk.block_bytes, ours) {
        return Ok(Looked::Is(Holds::Begun));
    }
    let contents: Vec<String> = probe::identify(&head).iter().map(Content::describe).collect();
    if !contents.is_empty() || !disk.partitions.is_empty() {
        let words = if contents.is_empty() { "partitions".to_owned() } else { contents.join(", ") };
        return Ok(Looked::Is(Holds::Foreign(words)));
    }
    Ok(Looked::Is(match first_data(device, disk.bytes)? {
        Some(offset) => Holds::Foreign(format!("data of an unknown kind at byte {offset}")),
        None => Holds::Nothing,
    }))
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
    let state = match partition_contents(disk, entry) {
        Err(error) => DataState::Foreign(format!("what cannot be read ({error})")),
        Ok(contents) => match state_of(&contents) {
            DataState::Made(_) if peek => DataState::Made(owner(&disk.partition_name(entry.number))),
            state => state,
        },
    };
    DataPartition { number: entry.number, start: entry.start, bytes: entry.bytes, state }
}

fn partition_contents(disk: &Disk, entry: &Entry) -> io::Result<Vec<Content>> {
    let mut device = fs_err::File::open(block::node(&disk.name))?;
    device.seek(SeekFrom::Start(entry.start))?;
    let mut head = Vec::new();
    device.take(entry.bytes.min(probe::HEAD as u64)).read_to_end(&mut head)?;
    Ok(probe::identify(&head))
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

    use uuid::Uuid;

    use super::{DataState, Holds, Looked, disk_id, holds, state_of};
    use crate::disk::probe::Content;
    use crate::disk::table::{Extent, Table};
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

    #[test]
    fn only_the_label_makes_data_finished() {
        let ext4 = |label: &str| Content::Ext4 { label: label.to_owned(), bytes: 1, errors: false };
        assert_eq!(state_of(&[ext4("FOOTHOLD-DATA")]), DataState::Made(None));
        assert_eq!(state_of(&[ext4("")]), DataState::Unfinished);
        assert_eq!(state_of(&[]), DataState::Unfinished);
        assert_eq!(state_of(&[ext4("home")]), DataState::Foreign("ext4 `home`".to_owned()));
    }
}
