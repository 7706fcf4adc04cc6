//! GUID partition tables (UEFI Specification 2.11, section 5.3), encoded from a plan.
//!
//! Images have 512-byte logical blocks, some disks 4096-byte ones. [`encode`] gives the two runs of blocks that a table
//! occupies: protective MBR, header and entries at the start; entries and header at the end.
//!
//! It is written by hand because the crate `gpt` writes to a device that can be sought; here a table is two runs of bytes
//! that are copied into an image as it is made, from a plan, without a file. Tests read them with the crate.

use uuid::Uuid;

/// Logical block size of images in bytes.
pub const SECTOR: u64 = 512;
/// Blocks of an image at its start: protective MBR, header, 32 blocks of entries.
#[cfg(test)]
pub const PRIMARY_SECTORS: u64 = 34;
/// Blocks of an image at its end: 32 blocks of entries, header.
#[cfg(test)]
pub const BACKUP_SECTORS: u64 = 33;

const ENTRY_COUNT: u32 = 128;
const ENTRY_SIZE: u32 = 128;
const HEADER_SIZE: u32 = 92;
const REVISION: u32 = 0x0001_0000;
/// OS type of the protective record (table 5.3).
const PROTECTIVE_OS_TYPE: u8 = 0xEE;

/// An MBR record without a type, but marked active: some BIOSes boot only from disks that have such a one, and firmware
/// that reads the GPT passes over it (as `xorriso -boot_image any mbr_force_bootable=on` does).
pub const ACTIVE_RECORD: [u8; 16] = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
/// Where [`ACTIVE_RECORD`] goes: the second record of the MBR.
pub const ACTIVE_RECORD_AT: u64 = 462;

/// Partition type: holds GRUB's core image on BIOS machines.
pub const TYPE_BIOS_BOOT: Uuid = Uuid::from_u128(0x2168_6148_6449_6E6F_744E_6565_6445_4649);
/// Partition type: EFI system partition.
pub const TYPE_ESP: Uuid = Uuid::from_u128(0xC12A_7328_F81F_11D2_BA4B_00A0_C93E_C93B);
/// Partition type: Linux filesystem.
pub const TYPE_LINUX: Uuid = Uuid::from_u128(0x0FC6_3DAF_8483_4772_8E79_3D69_D847_7DE4);
/// Partition type: data that Windows and macOS show too.
pub const TYPE_BASIC_DATA: Uuid = Uuid::from_u128(0xEBD0_A0A2_B9E5_4433_87C0_68B6_B726_99C7);
/// Attribute: read-only, as Linux and Windows define it for their types (bit 60).
pub const ATTRIBUTE_READ_ONLY: u64 = 1 << 60;

/// One partition of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Its name, at most 36 UTF-16 units.
    pub name: String,
    /// Its type.
    pub type_guid: Uuid,
    /// Its identity.
    pub guid: Uuid,
    /// First byte, a multiple of the logical block size.
    pub start: u64,
    /// Bytes, a multiple of the logical block size.
    pub bytes: u64,
    /// Attribute bits.
    pub attributes: u64,
}

/// A table as it lies on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Blocks from block 0 on: MBR, header, entries. The MBR's boot code is left zero.
    pub primary: Vec<u8>,
    /// The last blocks of the disk: entries, header.
    pub backup: Vec<u8>,
}

/// The table of a disk of `disk_bytes` with logical blocks of `block` bytes (512 or 4096; `disk_bytes` is a multiple of
/// it) and the identity `disk_guid`.
pub fn encode(disk_bytes: u64, block: u64, disk_guid: Uuid, partitions: &[Partition]) -> Encoded {
    let last = disk_bytes / block - 1;
    let entries = encode_entries(block, partitions);
    let entry_blocks = entries.len() as u64 / block;
    let whole_block = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(usize::try_from(block).unwrap_or(bytes.len())), 0);
        bytes
    };
    let at = |own: u64, other: u64, entries_at: u64| {
        let entries_crc = crc32fast::hash(&entries);
        let usable = (2 + entry_blocks, last - entry_blocks - 1);
        whole_block(encode_header(&Header { own, other, entries_at, usable, disk_guid, entries_crc }).to_vec())
    };
    let mut primary = whole_block(protective_mbr(last).to_vec());
    primary.extend(at(1, last, 2));
    primary.extend(&entries);
    let mut backup = entries.clone();
    backup.extend(at(last, 1, last - entry_blocks));
    Encoded { primary, backup }
}

struct Header {
    own: u64,
    other: u64,
    entries_at: u64,
    /// First and last block that a partition may use.
    usable: (u64, u64),
    disk_guid: Uuid,
    entries_crc: u32,
}

/// Table 5.5 of the specification; the checksum covers the header with its own field zero.
fn encode_header(header: &Header) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"EFI PART");
    put(8, &REVISION.to_le_bytes());
    put(12, &HEADER_SIZE.to_le_bytes());
    put(24, &header.own.to_le_bytes());
    put(32, &header.other.to_le_bytes());
    put(40, &header.usable.0.to_le_bytes());
    put(48, &header.usable.1.to_le_bytes());
    put(56, &header.disk_guid.to_bytes_le());
    put(72, &header.entries_at.to_le_bytes());
    put(80, &ENTRY_COUNT.to_le_bytes());
    put(84, &ENTRY_SIZE.to_le_bytes());
    put(88, &header.entries_crc.to_le_bytes());
    let crc = crc32fast::hash(&block[..HEADER_SIZE as usize]);
    block[16..20].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Table 5.6 of the specification, 128 entries.
fn encode_entries(block: u64, partitions: &[Partition]) -> Vec<u8> {
    let mut entries = vec![0; (ENTRY_COUNT * ENTRY_SIZE) as usize];
    for partition in partitions {
        let start = (partition.number as usize - 1) * ENTRY_SIZE as usize;
        let entry = &mut entries[start..start + ENTRY_SIZE as usize];
        entry[..16].copy_from_slice(&partition.type_guid.to_bytes_le());
        entry[16..32].copy_from_slice(&partition.guid.to_bytes_le());
        entry[32..40].copy_from_slice(&(partition.start / block).to_le_bytes());
        entry[40..48].copy_from_slice(&((partition.start + partition.bytes) / block - 1).to_le_bytes());
        entry[48..56].copy_from_slice(&partition.attributes.to_le_bytes());
        for (place, unit) in entry[56..].chunks_exact_mut(2).zip(partition.name.encode_utf16()) {
            place.copy_from_slice(&unit.to_le_bytes());
        }
    }
    entries
}

/// A master boot record whose one partition covers the disk (table 5.4).
fn protective_mbr(last: u64) -> [u8; 512] {
    let mut block = [0; 512];
    let record = &mut block[446..462];
    record[1..4].copy_from_slice(&[0, 2, 0]);
    record[4] = PROTECTIVE_OS_TYPE;
    record[5..8].copy_from_slice(&[0xFF; 3]);
    record[8..12].copy_from_slice(&1_u32.to_le_bytes());
    record[12..16].copy_from_slice(&u32::try_from(last).unwrap_or(u32::MAX).to_le_bytes());
    block[462..478].copy_from_slice(&ACTIVE_RECORD);
    block[510] = 0x55;
    block[511] = 0xAA;
    block
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use gpt::GptConfig;
    use gpt::disk::LogicalBlockSize;
    use gpt::mbr::ProtectiveMBR;
    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};
    use uuid::Uuid;

    use super::{ACTIVE_RECORD, ACTIVE_RECORD_AT, Partition, SECTOR, TYPE_ESP, TYPE_LINUX, encode};

    const DISK: u64 = 64 << 20;

    fn partitions(block: u64) -> impl Strategy<Value = Vec<Partition>> {
        let one = (1_u64..30, 1_u64..30, "[A-Za-z0-9 ü-]{0,36}", prop::bool::ANY, prop::bits::u64::ANY);
        prop::collection::vec(one, 0..20).prop_map(move |list| {
            let mut free = 40 * block;
            let place = move |(number, (gap, sectors, name, esp, attributes)): (u32, (u64, u64, String, bool, u64))| {
                let start = free + gap * block;
                free = start + sectors * block;
                let type_guid = if esp { TYPE_ESP } else { TYPE_LINUX };
                let guid = Uuid::from_u128(u128::from(number));
                Partition { number, name, type_guid, guid, start, bytes: sectors * block, attributes }
            };
            (1..).zip(list).map(place).collect()
        })
    }

    fn disk(block: u64, partitions: &[Partition]) -> Vec<u8> {
        let table = encode(DISK, block, Uuid::from_u128(7), partitions);
        let mut disk = vec![0; usize::try_from(DISK).expect("small")];
        disk[..table.primary.len()].copy_from_slice(&table.primary);
        let backup_at = disk.len() - table.backup.len();
        disk[backup_at..].copy_from_slice(&table.backup);
        disk
    }

    fn size(block: u64) -> LogicalBlockSize {
        if block == SECTOR { LogicalBlockSize::Lb512 } else { LogicalBlockSize::Lb4096 }
    }

    proptest! {
        #[test]
        fn another_reader_finds_what_was_encoded_in_both_copies(
            (block, partitions) in prop::sample::select(vec![SECTOR, 4096])
                .prop_flat_map(|block| (prop::strategy::Just(block), partitions(block)))
        ) {
            let device = Cursor::new(disk(block, &partitions));
            let table = GptConfig::new()
                .writable(false)
                .only_valid_headers(true)
                .logical_block_size(size(block))
                .open_from_device(device)
                .expect("a table");
            prop_assert_eq!(table.guid().as_u128(), 7);
            prop_assert_eq!(table.backup_header().expect("the backup").current_lba, DISK / block - 1);
            let (first, last) = (table.primary_header().expect("a header").first_usable, DISK / block - 1);
            prop_assert_eq!(first * block, 2 * block + 16384);
            prop_assert_eq!(table.primary_header().expect("a header").last_usable, last - 16384 / block - 1);
            let used: Vec<_> = table.partitions().iter().filter(|(_, entry)| entry.is_used()).collect();
            prop_assert_eq!(used.len(), partitions.len());
            for ((number, entry), expected) in used.into_iter().zip(&partitions) {
                prop_assert_eq!(*number, expected.number);
                prop_assert_eq!(&entry.name, &expected.name);
                prop_assert_eq!(entry.part_guid, expected.guid);
                prop_assert_eq!(entry.flags, expected.attributes);
                prop_assert_eq!(entry.first_lba * block, expected.start);
                prop_assert_eq!((entry.last_lba + 1) * block, expected.start + expected.bytes);
            }
        }
    }

    #[test]
    fn the_protective_record_covers_the_disk_and_the_second_one_is_active() {
        let disk = disk(SECTOR, &[]);
        let mbr = ProtectiveMBR::from_bytes(&disk[..512], LogicalBlockSize::Lb512).expect("a protective MBR");
        let record = mbr.partition(0).expect("a record");
        assert_eq!((record.os_type, record.lb_start, u64::from(record.lb_size)), (0xEE, 1, DISK / SECTOR - 1));
        let at = usize::try_from(ACTIVE_RECORD_AT).expect("small");
        assert_eq!(disk[at..at + 16], ACTIVE_RECORD);
    }
}
