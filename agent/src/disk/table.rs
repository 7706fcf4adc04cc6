//! GUID partition tables (UEFI 2.10, 5.3), read and written so that a power cut at any instant leaves
//! one whole copy.
//!
//! The `gpt` crate numbers partitions anew when it writes, and touches both copies by turns; here
//! numbers stay and the order of the writes is part of the result. Tests compare with the crate.

use std::io::{self, Read, Seek, SeekFrom};

use uuid::Uuid;

/// Type of DATA: "variable data" (Discoverable Partitions Specification).
pub const DATA_TYPE: Uuid = Uuid::from_u128(0x4d21_b016_b534_45c2_a9fb_5c16_e091_fd2d);
/// Name of DATA.
pub const DATA_NAME: &str = "DATA";
/// DATA's number where it is free.
const DATA_NUMBER: u32 = 4;
const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_BYTES: usize = 92;
const ENTRY_BYTES: usize = 128;
const ENTRIES: usize = 128;
/// Partitions begin and end at multiples of this.
const ALIGN: u64 = 1 << 20;
/// A table with more entries than this is not one.
const MOST_ENTRY_BYTES: usize = 1 << 20;

/// A table, whichever of its copies it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Bytes of a logical block.
    pub block: u64,
    /// The disk's own id.
    pub disk_id: Uuid,
    /// First block that a partition may use.
    pub first_usable: u64,
    /// Last block that a partition may use.
    pub last_usable: u64,
    /// Where the header of the other copy is said to be.
    alternate: u64,
    entries_at: u64,
    entry_bytes: usize,
    entries: Vec<u8>,
}

/// A used entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number, from 1.
    pub number: u32,
    /// Type.
    pub kind: Uuid,
    /// Name.
    pub name: String,
    /// First byte on the disk.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Free space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A table as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTable {
    /// The good copy.
    pub table: Table,
    /// Whether the copy at the start is good.
    pub primary_good: bool,
    /// Whether the copy at the end is good, at the true end of the disk, and says the same.
    pub backup_good: bool,
}

/// Bytes to write at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableWrite {
    /// Where.
    pub offset: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// Reads the table of a disk; `None` when there is no good copy.
pub fn read(device: &mut (impl Read + Seek), disk_bytes: u64, block: u64) -> io::Result<Option<FoundTable>> {
    let last = (disk_bytes / block).saturating_sub(1);
    let primary = read_copy(device, block, 1)?;
    let backup = read_copy(device, block, last)?;
    let Some(table) = primary.clone().or_else(|| backup.clone()) else { return Ok(None) };
    let same = backup.as_ref().is_some_and(|backup| backup.says_the_same_as(&table));
    Ok(Some(FoundTable { table, primary_good: primary.is_some(), backup_good: same }))
}

/// Whether the first bytes of a disk carry the header of a table with this id, however damaged the
/// rest: the mark of a table that was being written when the power went.
pub fn is_begun(head: &[u8], block: u64, disk_id: Uuid) -> bool {
    let block = usize::try_from(block).unwrap_or(512);
    head.get(block..block + HEADER_BYTES).and_then(Header::parse).is_some_and(|header| header.disk_id == disk_id)
}

/// Bytes of the disk for which the table at the start was made, if it has a partition of that name.
pub fn claimed_bytes(device: &mut (impl Read + Seek), block: u64, name: &str) -> io::Result<Option<u64>> {
    let table = read_copy(device, block, 1)?;
    let ours = table.filter(|table| table.used().iter().any(|entry| entry.name == name));
    Ok(ours.map(|table| table.alternate.max(table.last_usable).saturating_add(1).saturating_mul(block)))
}

fn read_copy(device: &mut (impl Read + Seek), block: u64, at: u64) -> io::Result<Option<Table>> {
    let mut header = vec![0; HEADER_BYTES];
    if !read_at(device, at * block, &mut header)? {
        return Ok(None);
    }
    let Some(header) = Header::parse(&header).filter(|header| header.own == at) else { return Ok(None) };
    let Some(length) = header.entries_length() else { return Ok(None) };
    let mut entries = vec![0; length];
    let Some(entries_at) = header.entries_at.checked_mul(block) else { return Ok(None) };
    if !read_at(device, entries_at, &mut entries)? || crc32fast::hash(&entries) != header.entries_crc {
        return Ok(None);
    }
    Ok(Some(Table {
        block,
        disk_id: header.disk_id,
        first_usable: header.first_usable,
        last_usable: header.last_usable,
        alternate: header.alternate,
        entries_at: header.entries_at,
        entry_bytes: header.entry_bytes as usize,
        entries,
    }))
}

/// `false` at the end of the device.
fn read_at(device: &mut (impl Read + Seek), offset: u64, into: &mut [u8]) -> io::Result<bool> {
    device.seek(SeekFrom::Start(offset))?;
    match device.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

struct Header {
    own: u64,
    alternate: u64,
    first_usable: u64,
    last_usable: u64,
    disk_id: Uuid,
    entries_at: u64,
    count: u32,
    entry_bytes: u32,
    entries_crc: u32,
}

impl Header {
    /// A header whose own checksum is right.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if bytes.get(..8)? != SIGNATURE || u32_at(12)? != u32::try_from(HEADER_BYTES).ok()? {
            return None;
        }
        let mut plain = bytes[..HEADER_BYTES].to_vec();
        plain[16..20].fill(0);
        if crc32fast::hash(&plain) != u32_at(16)? {
            return None;
        }
        Some(Self {
            own: u64_at(24)?,
            alternate: u64_at(32)?,
            first_usable: u64_at(40)?,
            last_usable: u64_at(48)?,
            disk_id: Uuid::from_bytes_le(bytes[56..72].try_into().ok()?),
            entries_at: u64_at(72)?,
            count: u32_at(80)?,
            entry_bytes: u32_at(84)?,
            entries_crc: u32_at(88)?,
        })
    }

    fn entries_length(&self) -> Option<usize> {
        let length = (self.count as usize).checked_mul(self.entry_bytes as usize)?;
        (self.entry_bytes as usize >= ENTRY_BYTES && length <= MOST_ENTRY_BYTES).then_some(length)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..8].copy_from_slice(SIGNATURE);
        bytes[8..12].copy_from_slice(&REVISION.to_le_bytes());
        bytes[12] = 92;
        for (at, value) in [(24, self.own), (32, self.alternate), (40, self.first_usable), (48, self.last_usable)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes[56..72].copy_from_slice(&self.disk_id.to_bytes_le());
        bytes[72..80].copy_from_slice(&self.entries_at.to_le_bytes());
        for (at, value) in [(80, self.count), (84, self.entry_bytes), (88, self.entries_crc)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

impl Table {
    /// An empty table for a disk that holds nothing.
    pub fn new(disk_id: Uuid, disk_bytes: u64, block: u64) -> Self {
        let mut table = Self {
            block,
            disk_id,
            first_usable: 0,
            last_usable: 0,
            alternate: 0,
            entries_at: 2,
            entry_bytes: ENTRY_BYTES,
            entries: vec![0; ENTRIES * ENTRY_BYTES],
        };
        table.first_usable = 2 + table.entry_blocks();
        table.fit_to(disk_bytes);
        table
    }

    /// Used entries by their number.
    pub fn used(&self) -> Vec<Entry> {
        let slots = self.entries.chunks_exact(self.entry_bytes).zip(1..);
        slots.filter_map(|(slot, number)| self.entry(slot, number)).collect()
    }

    fn entry(&self, slot: &[u8], number: u32) -> Option<Entry> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(slot.get(at..at + 8)?.try_into().ok()?));
        let kind = Uuid::from_bytes_le(slot.get(..16)?.try_into().ok()?);
        if kind.is_nil() {
            return None;
        }
        let (first, last) = (u64_at(32)?, u64_at(40)?);
        let units: Vec<u16> =
            slot[56..128].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let name = String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned();
        let bytes = last.checked_add(1)?.checked_sub(first)?.checked_mul(self.block)?;
        Some(Entry { number, kind, name, start: first.checked_mul(self.block)?, bytes })
    }

    /// The DATA partition, if the table has one.
    pub fn data(&self) -> Option<Entry> {
        self.used().into_iter().find(|entry| entry.kind == DATA_TYPE && entry.name == DATA_NAME)
    }

    /// The largest free space that begins at or after `keep_below` bytes.
    pub fn largest_free(&self, keep_below: u64) -> Option<Extent> {
        let mut used: Vec<(u64, u64)> =
            self.used().iter().map(|entry| (entry.start, entry.start.saturating_add(entry.bytes))).collect();
        used.push((0, keep_below.max(self.first_usable.saturating_mul(self.block))));
        used.sort_unstable();
        let end = self.last_usable.saturating_add(1).saturating_mul(self.block);
        let mut free = Vec::new();
        let mut from: u64 = 0;
        for (start, stop) in used.into_iter().chain([(end, end)]) {
            let (start, from_aligned) =
                (start.min(end) / ALIGN * ALIGN, from.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX));
            if start > from_aligned {
                free.push(Extent { start: from_aligned, bytes: start - from_aligned });
            }
            from = from.max(stop);
        }
        free.into_iter().max_by_key(|extent| (extent.bytes, u64::MAX - extent.start))
    }

    /// Lets the table end where the disk does.
    pub fn fit_to(&mut self, disk_bytes: u64) {
        let last = (disk_bytes / self.block).saturating_sub(1);
        self.alternate = last;
        self.last_usable = last.saturating_sub(self.entry_blocks() + 1);
    }

    /// The same partitions on another disk, whose blocks have the same size. DATA stays where it is.
    #[must_use]
    pub fn on_another_disk(&self, disk_id: Uuid, disk_bytes: u64) -> Self {
        let mut table = Self { disk_id, ..self.clone() };
        if let Some(data) = self.data() {
            let at = (data.number as usize - 1) * self.entry_bytes;
            table.entries[at..at + self.entry_bytes].fill(0);
        }
        table.fit_to(disk_bytes);
        table
    }

    /// Where the last partition ends that is not DATA.
    pub fn end_of_image(&self) -> u64 {
        let data = self.data().map(|data| data.number);
        let image = self.used().into_iter().filter(|entry| Some(entry.number) != data);
        image.map(|entry| entry.start.saturating_add(entry.bytes)).max().unwrap_or_default()
    }

    /// Adds DATA; its number, or `None` when the table is full.
    pub fn add_data(&mut self, extent: Extent, id: Uuid) -> Option<u32> {
        let used: Vec<u32> = self.used().iter().map(|entry| entry.number).collect();
        let count = u32::try_from(self.entries.len() / self.entry_bytes).ok()?;
        let number = std::iter::once(DATA_NUMBER).chain(1..=count).find(|n| *n <= count && !used.contains(n))?;
        let at = (number as usize - 1) * self.entry_bytes;
        let slot = &mut self.entries[at..at + self.entry_bytes];
        slot.fill(0);
        slot[..16].copy_from_slice(&DATA_TYPE.to_bytes_le());
        slot[16..32].copy_from_slice(&id.to_bytes_le());
        slot[32..40].copy_from_slice(&(extent.start / self.block).to_le_bytes());
        slot[40..48].copy_from_slice(&((extent.start + extent.bytes) / self.block - 1).to_le_bytes());
        for (pair, unit) in slot[56..128].chunks_exact_mut(2).zip(DATA_NAME.encode_utf16()) {
            pair.copy_from_slice(&unit.to_le_bytes());
        }
        Some(number)
    }

    /// The writes that put this table on the disk. `primary_good`: whether the copy at the start is
    /// good now; the other copy is then written first, so that one is whole at any instant.
    pub fn writes(&self, primary_good: bool) -> Vec<TableWrite> {
        let (primary, backup) = (self.primary(), self.backup());
        let [first, second] = if primary_good { [backup, primary] } else { [primary, backup] };
        first.into_iter().chain(second).collect()
    }

    /// The writes that put this table on an empty disk: first the header at the start, which marks
    /// the disk as begun by us ([`is_begun`]), last the protective MBR, which makes the table count.
    pub fn first_writes(&self, disk_bytes: u64) -> Vec<TableWrite> {
        let [entries, header] = self.primary();
        let mbr = TableWrite { offset: 0, bytes: protective_mbr(disk_bytes / self.block) };
        [header, entries].into_iter().chain(self.backup()).chain([mbr]).collect()
    }

    /// The same with another type of a partition.
    #[cfg(test)]
    #[must_use]
    pub fn with_kind_of(mut self, number: usize, kind: Uuid) -> Self {
        self.entries[(number - 1) * ENTRY_BYTES..][..16].copy_from_slice(&kind.to_bytes_le());
        self
    }

    fn primary(&self) -> [TableWrite; 2] {
        self.copy(1, self.alternate, 2)
    }

    fn backup(&self) -> [TableWrite; 2] {
        self.copy(self.alternate, 1, self.alternate - self.entry_blocks())
    }

    /// Entries first: the header that vouches for them comes last.
    fn copy(&self, own: u64, alternate: u64, entries_at: u64) -> [TableWrite; 2] {
        let header = Header {
            own,
            alternate,
            first_usable: self.first_usable,
            last_usable: self.last_usable,
            disk_id: self.disk_id,
            entries_at,
            count: u32::try_from(self.entries.len() / self.entry_bytes).unwrap_or(0),
            entry_bytes: u32::try_from(self.entry_bytes).unwrap_or(0),
            entries_crc: crc32fast::hash(&self.entries),
        };
        let mut bytes = header.encode();
        bytes.resize(usize::try_from(self.block).unwrap_or(512), 0);
        let entries = TableWrite { offset: entries_at * self.block, bytes: self.entries.clone() };
        [entries, TableWrite { offset: own * self.block, bytes }]
    }

    fn entry_blocks(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(self.block)
    }

    fn says_the_same_as(&self, other: &Self) -> bool {
        (self.disk_id, self.first_usable, self.last_usable, &self.entries)
            == (other.disk_id, other.first_usable, other.last_usable, &other.entries)
    }
}

/// Whether the first bytes of a disk are an MBR that makes a table count, by its first partition's type.
pub fn has_protective_mbr(head: &[u8]) -> bool {
    head.get(450) == Some(&0xEE) && head.get(510..512) == Some(&[0x55, 0xAA])
}

/// One partition over the whole disk (UEFI 2.10, 5.2.3).
fn protective_mbr(blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let size = u32::try_from(blocks - 1).unwrap_or(u32::MAX);
    bytes[446..458].copy_from_slice(&[0, 0, 2, 0, 0xEE, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0]);
    bytes[458..462].copy_from_slice(&size.to_le_bytes());
    bytes[510..].copy_from_slice(&[0x55, 0xAA]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Cursor;

    use gpt::disk::LogicalBlockSize;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, proptest};
    use uuid::Uuid;

    use super::{DATA_NAME, Extent, Table, TableWrite, claimed_bytes, is_begun, read};

    const MIB: u64 = 1 << 20;
    const DISK: Uuid = Uuid::from_u128(7);

    fn apply(disk: &mut [u8], writes: &[TableWrite]) {
        for write in writes {
            let at = usize::try_from(write.offset).expect("a small disk");
            disk[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    fn blank(mib: u64) -> Vec<u8> {
        vec![0; usize::try_from(mib * MIB).expect("a small disk")]
    }

    /// A disk of 16 MiB with partitions 1, 2, 3 and 5, as the image has them.
    fn image() -> Vec<u8> {
        let mut disk = blank(16);
        let mut table = Table::new(DISK, 16 * MIB, 512);
        for (slot, start) in [(0, 1), (1, 2), (2, 4), (4, 10)] {
            let number = table.add_data(Extent { start: start * MIB, bytes: MIB }, Uuid::from_u128(9)).expect("room");
            let from = (number as usize - 1) * 128;
            let mut entry: Vec<u8> = table.entries[from..from + 128].to_vec();
            table.entries[from..from + 128].fill(0);
            entry[56..128].fill(0);
            table.entries[slot * 128..slot * 128 + 128].copy_from_slice(&entry);
        }
        apply(&mut disk, &table.first_writes(16 * MIB));
        disk
    }

    fn found(disk: &[u8]) -> super::FoundTable {
        read(&mut Cursor::new(disk), disk.len() as u64, 512).expect("readable").expect("a table")
    }

    #[test]
    fn the_gpt_crate_reads_what_we_write() {
        let mut disk = blank(8);
        let mut table = Table::new(DISK, 8 * MIB, 512);
        let number = table.add_data(Extent { start: MIB, bytes: 2 * MIB }, Uuid::from_u128(9)).expect("room");
        apply(&mut disk, &table.first_writes(8 * MIB));
        let config = gpt::GptConfig::new().logical_block_size(LogicalBlockSize::Lb512).only_valid_headers(true);
        let theirs = config.open_from_device(Cursor::new(disk.clone())).expect("the crate reads it");
        let names: BTreeMap<u32, String> =
            theirs.partitions().iter().map(|(number, partition)| (*number, partition.name.clone())).collect();
        assert_eq!(names, BTreeMap::from([(number, DATA_NAME.to_owned())]));
        assert_eq!(theirs.primary_header().expect("good").last_usable, table.last_usable);
        assert_eq!(found(&disk).table, table);
    }

    #[test]
    fn data_goes_into_the_free_space_behind_the_image_and_takes_number_four() {
        let mut disk = image();
        disk.resize(64 << 20, 0);
        let mut now = found(&disk);
        assert!(now.primary_good && !now.backup_good);
        now.table.fit_to(64 * MIB);
        let extent = now.table.largest_free(0).expect("space");
        assert_eq!(extent, Extent { start: 11 * MIB, bytes: 52 * MIB });
        assert_eq!(now.table.add_data(extent, Uuid::from_u128(3)), Some(4));
        apply(&mut disk, &now.table.writes(true));
        let after = found(&disk);
        assert!(after.primary_good && after.backup_good);
        let numbers: Vec<u32> = after.table.used().iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_table_survives_a_cut_after_every_write_and_inside_it() {
        let mut disk = image();
        disk.resize(64 << 20, 0);
        let before = found(&disk).table;
        let mut table = before.clone();
        table.fit_to(64 * MIB);
        let extent = table.largest_free(0).expect("space");
        table.add_data(extent, Uuid::from_u128(3)).expect("room");
        let writes = table.writes(true);
        for done in 0..=writes.len() {
            for torn in [0, 512, 4096] {
                let mut cut = disk.clone();
                apply(&mut cut, &writes[..done]);
                if let Some(next) = writes.get(done) {
                    let bytes = next.bytes[..torn.min(next.bytes.len())].to_vec();
                    apply(&mut cut, &[TableWrite { offset: next.offset, bytes }]);
                }
                let now = found(&cut);
                assert!(now.table.used() == before.used() || now.table.used() == table.used(), "{done} {torn}");
                let mut again = now.table.clone();
                again.fit_to(64 * MIB);
                apply(&mut cut, &again.writes(now.primary_good));
                assert!(found(&cut).primary_good && found(&cut).backup_good, "{done} {torn}");
            }
        }
    }

    #[test]
    fn a_disk_that_was_begun_is_recognised_after_every_cut() {
        let mut table = Table::new(DISK, 8 * MIB, 512);
        table.add_data(Extent { start: MIB, bytes: 6 * MIB }, Uuid::from_u128(9)).expect("room");
        let writes = table.first_writes(8 * MIB);
        for done in 1..=writes.len() {
            let mut disk = blank(8);
            apply(&mut disk, &writes[..done]);
            assert!(is_begun(&disk, 512, DISK), "{done}");
            assert!(!is_begun(&disk, 512, Uuid::from_u128(8)), "{done}");
        }
    }

    #[test]
    fn a_cut_off_disk_still_tells_how_long_it_was() {
        let mut disk = image();
        disk.truncate(5 << 20);
        let claimed = claimed_bytes(&mut Cursor::new(&disk), 512, DATA_NAME).expect("readable");
        assert_eq!(claimed, None);
        let mut table = Table::new(DISK, 16 * MIB, 512);
        table.add_data(Extent { start: MIB, bytes: MIB }, Uuid::from_u128(9)).expect("room");
        let mut disk = blank(16);
        apply(&mut disk, &table.first_writes(16 * MIB));
        disk.truncate(5 << 20);
        assert_eq!(claimed_bytes(&mut Cursor::new(&disk), 512, DATA_NAME).expect("readable"), Some(16 * MIB));
    }

    proptest! {
        /// A table on a disk that somebody else wrote may hold any bytes.
        #[test]
        fn no_table_whose_checksums_are_right_does_harm(
            numbers in vec(any::<u64>(), 5),
            slots in vec((0_usize..128, any::<u64>(), any::<u64>()), 0..6),
            keep_below: u64,
        ) {
            let mut table = Table::new(DISK, MIB, 512);
            for (slot, first, last) in slots {
                table.entries[slot * 128] = 1;
                table.entries[slot * 128 + 32..slot * 128 + 40].copy_from_slice(&first.to_le_bytes());
                table.entries[slot * 128 + 40..slot * 128 + 48].copy_from_slice(&last.to_le_bytes());
            }
            (table.first_usable, table.last_usable) = (numbers[0], numbers[1]);
            let mut disk = blank(1);
            apply(&mut disk, &table.copy(1, numbers[2], 2));
            let found = read(&mut Cursor::new(&disk), MIB, 512).expect("readable").expect("a table");
            if let Some(extent) = found.table.largest_free(keep_below) {
                prop_assert!(extent.bytes > 0 && extent.start >= keep_below);
            }
            let _ = claimed_bytes(&mut Cursor::new(&disk), 512, DATA_NAME);
        }

        #[test]
        fn no_header_of_arbitrary_bytes_does_harm(bytes in vec(any::<u8>(), 0..4096)) {
            let _ = is_begun(&bytes, 512, DISK);
            let _ = read(&mut Cursor::new(&bytes), bytes.len() as u64, 512);
        }
    }

    #[test]
    fn disks_with_blocks_of_4096_bytes_work_too() {
        let mut disk = blank(8);
        let table = Table::new(DISK, 8 * MIB, 4096);
        apply(&mut disk, &table.first_writes(8 * MIB));
        let again = read(&mut Cursor::new(&disk), 8 * MIB, 4096).expect("readable").expect("a table");
        assert_eq!(again.table, table);
        assert_eq!((table.first_usable, table.last_usable), (6, 2042));
    }

    #[test]
    fn space_below_a_file_system_on_the_whole_disk_is_not_free() {
        let table = Table::new(DISK, 16 * MIB, 512);
        assert_eq!(table.largest_free(5 * MIB + 1), Some(Extent { start: 6 * MIB, bytes: 9 * MIB }));
    }
}
