//! What is on a block device, by the signatures in its first and last bytes.

use std::io::{self, Read, Seek, SeekFrom};

use serde::Serialize;

/// Bytes of the head that [`identify`] wants.
pub const HEAD: usize = 68 * 1024;
/// Where the ext4 superblock lies, its magic in it, and its parts (Documentation/filesystems/ext4).
const EXT_SUPER: usize = 1024;
const EXT_MAGIC: [u8; 2] = [0x53, 0xEF];
/// `s_state`: the file system has errors.
const EXT_ERROR_FS: u16 = 2;
/// Where copies of the superblock begin, in a file system with blocks of 1, 2 and 4 KiB: with its second group.
pub const EXT_COPIES: [u64; 3] = [8193 << 10, 16384 << 11, 32768 << 12];
/// Bytes of a superblock.
const EXT_SUPER_BYTES: usize = 1024;
/// ISO 9660 primary volume descriptor (ECMA-119, 8.4).
const ISO_DESCRIPTOR: usize = 0x8000;

/// A recognised content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Content {
    /// ext2, ext3 or ext4.
    Ext4 {
        /// Volume name.
        label: String,
        /// Bytes of the file system.
        bytes: u64,
        /// Whether the kernel noted errors in it.
        errors: bool,
    },
    /// ISO 9660.
    Iso9660 {
        /// Volume identifier.
        label: String,
        /// Bytes of the volume.
        bytes: u64,
    },
    /// FAT.
    Fat {
        /// Volume label.
        label: String,
    },
    /// A GUID partition table.
    Gpt,
    /// An MBR with at least one partition.
    Mbr,
    /// Something else by its name.
    Other {
        /// Such as `LVM2 physical volume`.
        name: String,
    },
}

impl Content {
    /// In words for the screen.
    pub fn describe(&self) -> String {
        match self {
            Self::Ext4 { label, .. } => named("ext4", label),
            Self::Iso9660 { label, .. } => named("iso9660", label),
            Self::Fat { label } => named("FAT", label),
            Self::Gpt => "GUID partition table".to_owned(),
            Self::Mbr => "MBR partition table".to_owned(),
            Self::Other { name } => name.clone(),
        }
    }

    /// Bytes that the device must have for all of it to be there.
    pub const fn needs(&self) -> Option<u64> {
        match self {
            Self::Ext4 { bytes, .. } | Self::Iso9660 { bytes, .. } => Some(*bytes),
            Self::Fat { .. } | Self::Gpt | Self::Mbr | Self::Other { .. } => None,
        }
    }
}

fn named(kind: &str, label: &str) -> String {
    if label.is_empty() { kind.to_owned() } else { format!("{kind} `{label}`") }
}

/// Reads the head of a device, shorter if the device is.
pub fn read_head(device: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    device.seek(SeekFrom::Start(0))?;
    let mut head = Vec::with_capacity(HEAD);
    device.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Everything that the head shows; several on a hybrid disk.
pub fn identify(head: &[u8]) -> Vec<Content> {
    let mut found = Vec::new();
    found.extend(ext4(head));
    found.extend(iso9660(head));
    found.extend(fat(head));
    found.extend(partition_table(head));
    for (offset, magic, name) in OTHERS {
        if head.get(offset..offset + magic.len()) == Some(magic) {
            found.push(Content::Other { name: name.to_owned() });
        }
    }
    found
}

/// Signatures of what may be on a disk that is not ours: offset, bytes, name.
const OTHERS: [(usize, &[u8], &str); 22] = [
    (0x000, b"LABELONE", "LVM2 physical volume"),
    (0x200, b"LABELONE", "LVM2 physical volume"),
    (0x400, b"LABELONE", "LVM2 physical volume"),
    (0x600, b"LABELONE", "LVM2 physical volume"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0, b"\xfc\x4e\x2b\xa9", "RAID member"),
    (4096, b"\xfc\x4e\x2b\xa9", "RAID member"),
    (0, b"XFSB", "XFS"),
    (0x10040, b"_BHRfS_M", "btrfs"),
    (3, b"NTFS    ", "NTFS"),
    (3, b"EXFAT   ", "exFAT"),
    (3, b"-FVE-FS-", "BitLocker"),
    (4086, b"SWAPSPACE2", "swap"),
    (4086, b"SWAP-SPACE", "swap"),
    (0, b"hsqs", "squashfs"),
    (1024, b"\x10\x20\xf5\xf2", "F2FS"),
    (1024, b"\xe2\xe1\xf5\xe0", "EROFS"),
    (24, b"\xf6\x85\x73\xc6\x1a\x4e\xca\x45", "bcache"),
    (4120, b"\xf6\x85\x73\xc6\x1a\x4e\xca\x45", "bcache"),
    (0, b"bluestore block device", "Ceph OSD"),
    (32, b"NXSB", "APFS"),
    (1024, b"H+", "HFS+"),
];

/// Whether it is something else than a disk with partitions.
pub fn is_more_than_a_table(contents: &[Content]) -> bool {
    contents.iter().any(|content| !matches!(content, Content::Gpt | Content::Mbr))
}

/// A copy of the superblock of the ext4 that begins at byte `start` and has at most `bytes`: where it is in the file
/// system, and the label that it tells.
pub fn ext4_copy(device: &mut (impl Read + Seek), start: u64, bytes: u64) -> io::Result<Option<(u64, String)>> {
    let within = |at: &u64| at + EXT_SUPER_BYTES as u64 <= bytes;
    for at in EXT_COPIES.into_iter().filter(within) {
        device.seek(SeekFrom::Start(start + at))?;
        let mut block = Vec::new();
        device.take(EXT_SUPER_BYTES as u64).read_to_end(&mut block)?;
        // Number of the group that it was written for.
        let of_second_group = block.get(90..92) == Some(&[1, 0]);
        if let Some(Content::Ext4 { label, .. }) = ext4_super(&block).filter(|_| of_second_group) {
            return Ok(Some((at, label)));
        }
    }
    Ok(None)
}

fn ext4(head: &[u8]) -> Option<Content> {
    ext4_super(head.get(EXT_SUPER..EXT_SUPER + EXT_SUPER_BYTES)?)
}

fn ext4_super(block: &[u8]) -> Option<Content> {
    if block.len() < EXT_SUPER_BYTES || block[56..58] != EXT_MAGIC {
        return None;
    }
    let shift = u32_at(block, 24).min(16);
    let count = u64::from(u32_at(block, 4)) | (u64::from(u32_at(block, 0x150)) << 32);
    let state = u16::from_le_bytes([block[58], block[59]]);
    Some(Content::Ext4 {
        label: label_of(&block[120..136]),
        bytes: count.saturating_mul(1024 << shift),
        errors: state & EXT_ERROR_FS != 0,
    })
}

fn iso9660(head: &[u8]) -> Option<Content> {
    let block = head.get(ISO_DESCRIPTOR..ISO_DESCRIPTOR + 2048)?;
    if block[..6] != *b"\x01CD001" {
        return None;
    }
    let blocks = u64::from(u32_at(block, 80));
    let block_bytes = u64::from(u16::from_le_bytes([block[128], block[129]]));
    Some(Content::Iso9660 { label: label_of(&block[40..72]), bytes: blocks * block_bytes })
}

/// Where FAT12/16 and FAT32 keep their type and their label.
fn fat(head: &[u8]) -> Option<Content> {
    let label = [(54, 43), (82, 71)].into_iter().find_map(|(kind, label)| {
        let is_fat = head.get(kind..kind + 3)? == b"FAT";
        is_fat.then(|| head.get(label..label + 11))?
    })?;
    let label = label_of(label);
    Some(Content::Fat { label: if label == "NO NAME" { String::new() } else { label } })
}

fn partition_table(head: &[u8]) -> Option<Content> {
    let gpt = [512, 4096].into_iter().any(|at| head.get(at..at + 8) == Some(b"EFI PART"));
    if gpt {
        return Some(Content::Gpt);
    }
    let signed = head.get(510..512) == Some(&[0x55, 0xAA]);
    let used = head.get(446..510)?.chunks(16).any(|entry| entry[4] != 0 && u32_at(entry, 12) != 0);
    // The boot sectors of FAT and NTFS carry the same two bytes, and code where the table would be.
    let is_table = head.get(446..510)?.chunks(16).all(|entry| matches!(entry[0], 0 | 0x80));
    (signed && used && is_table).then_some(Content::Mbr)
}

fn label_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::{Content, EXT_SUPER, HEAD, ISO_DESCRIPTOR, identify};

    fn blank() -> Vec<u8> {
        vec![0; HEAD]
    }

    #[test]
    fn nothing_is_found_on_a_blank_device() {
        assert!(identify(&blank()).is_empty());
        assert!(identify(&[]).is_empty());
    }

    #[test]
    fn an_ext4_tells_its_label_size_and_errors() {
        let mut head = blank();
        head[EXT_SUPER + 4..EXT_SUPER + 8].copy_from_slice(&1000_u32.to_le_bytes());
        head[EXT_SUPER + 24] = 2;
        head[EXT_SUPER + 56..EXT_SUPER + 60].copy_from_slice(&[0x53, 0xEF, 3, 0]);
        head[EXT_SUPER + 120..EXT_SUPER + 125].copy_from_slice(b"STORE");
        let expected = Content::Ext4 { label: "STORE".to_owned(), bytes: 4_096_000, errors: true };
        assert_eq!(identify(&head), [expected]);
    }

    #[test]
    fn a_hybrid_iso_shows_both_its_faces() {
        let mut head = blank();
        head[512..520].copy_from_slice(b"EFI PART");
        head[ISO_DESCRIPTOR..ISO_DESCRIPTOR + 6].copy_from_slice(b"\x01CD001");
        head[ISO_DESCRIPTOR + 40..ISO_DESCRIPTOR + 72].copy_from_slice(b"FOOTHOLD                        ");
        head[ISO_DESCRIPTOR + 80..ISO_DESCRIPTOR + 84].copy_from_slice(&100_u32.to_le_bytes());
        head[ISO_DESCRIPTOR + 128..ISO_DESCRIPTOR + 130].copy_from_slice(&2048_u16.to_le_bytes());
        let iso = Content::Iso9660 { label: "FOOTHOLD".to_owned(), bytes: 204_800 };
        assert_eq!(identify(&head), [iso, Content::Gpt]);
    }

    #[test]
    fn foreign_disks_are_named() {
        for (offset, bytes, name) in super::OTHERS {
            let mut head = blank();
            head[offset..offset + bytes.len()].copy_from_slice(bytes);
            assert_eq!(identify(&head), [Content::Other { name: name.to_owned() }], "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_content_does_harm(noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000)) {
            let mut head = blank();
            for at in [0, EXT_SUPER, ISO_DESCRIPTOR] {
                head[at..at + noise.len()].copy_from_slice(&noise);
            }
            head[EXT_SUPER + 56..EXT_SUPER + 58].copy_from_slice(&[0x53, 0xEF]);
            head[ISO_DESCRIPTOR..ISO_DESCRIPTOR + 6].copy_from_slice(b"\x01CD001");
            for content in identify(&head).iter().chain(&identify(&noise)) {
                let _ = (content.describe(), content.needs());
            }
        }
    }

    #[test]
    fn a_boot_sector_of_fat_is_no_partition_table() {
        let mut head = blank();
        head[82..90].copy_from_slice(b"FAT32   ");
        head[71..82].copy_from_slice(b"SITE       ");
        head[510..512].copy_from_slice(&[0x55, 0xAA]);
        head[450..470].fill(0xF4);
        head[446] = 0x31;
        assert_eq!(identify(&head), [Content::Fat { label: "SITE".to_owned() }]);
    }
}
