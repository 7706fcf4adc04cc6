//! Labels of file systems: set where one is mounted (`FS_IOC_SETFSLABEL`, linux/fs.h), read from devices without mounting
//! them.
//!
//! A volume may have several: of FAT that in the root directory, which other systems change, and that in the first sector;
//! of a disc that of ISO 9660 and that of Joliet.

use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;

use fs_err::File;

use super::ioctl;

/// `_IOW(0x94, 50, char[256])`.
const FS_IOC_SETFSLABEL: u64 = (1 << 30) | (256 << 16) | (0x94 << 8) | 0x32;
/// Most bytes of a root directory that are looked through: a label is its first entry, or nearly.
const ROOT_BYTES: u64 = 256 * 1024;
/// Bytes of an entry of a directory, FAT's and exFAT's.
const ENTRY: usize = 32;
/// Sector 16 of 2048 bytes, where the descriptors of a disc begin (ECMA-119, 6.3).
const DESCRIPTORS: u64 = 16 * 2048;
/// Descriptors that are looked at.
const MOST_DESCRIPTORS: u64 = 16;

/// A kind of file system that people put files on for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// FAT12, FAT16, FAT32.
    Fat,
    /// ISO 9660, with or without Joliet.
    Iso9660,
    /// exFAT.
    Exfat,
}

impl Kind {
    /// As `mount(2)` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fat => "vfat",
            Self::Iso9660 => "iso9660",
            Self::Exfat => "exfat",
        }
    }
}

/// Sets the label of the file system mounted at `root`.
#[expect(unsafe_code, reason = "FS_IOC_SETFSLABEL has no safe form")]
pub fn set(root: &Path, label: &str) -> io::Result<()> {
    let directory = File::open(root)?;
    let mut buffer = [0_u8; 256];
    let length = label.len().min(255);
    buffer[..length].copy_from_slice(&label.as_bytes()[..length]);
    // SAFETY: the request reads 256 bytes.
    unsafe { ioctl::with(directory.as_fd(), FS_IOC_SETFSLABEL, buffer.as_mut_ptr()) }.map(drop)
}

/// Label of the FAT file system on `device`, in capitals. A drive without a medium and the like has none.
pub fn of_fat(device: &Path) -> Option<String> {
    let found = of_device(device).into_iter().find(|(kind, _)| *kind == Kind::Fat)?;
    Some(found.1)
}

/// The file systems on `device` and their labels, in capitals. A drive without a medium and the like has none.
pub fn of_device(device: &Path) -> Vec<(Kind, String)> {
    let Ok(mut file) = File::open(device) else { return Vec::new() };
    let mut found: Vec<(Kind, String)> = of_disc(&mut file).into_iter().map(|label| (Kind::Iso9660, label)).collect();
    let mut sector = [0; 512];
    if read_at(&mut file, 0, &mut sector).is_ok() {
        found.extend(in_fat(&mut file, &sector).map(|label| (Kind::Fat, label)));
        found.extend(in_exfat(&mut file, &sector).map(|label| (Kind::Exfat, label)));
    }
    for (_, label) in &mut found {
        *label = label.trim_end_matches(['\0', ' ']).to_uppercase();
    }
    found
}

/// What the file system on `device` is and its label, in capitals, where it is one that is only known, not read here: what
/// people make who do not know that. One that is read has [`of_device`].
pub fn of_other(device: &Path) -> Option<(&'static str, String)> {
    let mut file = File::open(device).ok()?;
    let mut start = vec![0; 4096];
    read_at(&mut file, 0, &mut start).ok()?;
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let found = if start[1024 + 56..1024 + 58] == [0x53, 0xEF] {
        // The superblock of ext2, ext3 and ext4 (linux, fs/ext4/ext4.h).
        Some(("ext4", text(&start[1024 + 120..1024 + 136])))
    } else if start.starts_with(b"XFSB") {
        Some(("XFS", text(&start[108..120])))
    } else if &start[3..11] == b"NTFS    " {
        in_ntfs(&mut file, &start).map(|label| ("NTFS", label))
    } else {
        in_udf(&mut file)
            .map(|label| ("UDF", label))
            .or_else(|| in_btrfs(&mut file).map(|label| ("btrfs", text(&label))))
    };
    found.map(|(kind, label)| (kind, label.trim_end().to_uppercase()))
}

/// Label of NTFS: the name in record 3 of the master file table (linux, fs/ntfs3/ntfs.h).
fn in_ntfs(file: &mut File, start: &[u8]) -> Option<String> {
    const NAME: u32 = 0x60;
    let cluster = u64::from(u16_at(start, 11)) * u64::from(start[13]);
    let table = u64::from_le_bytes(start[48..56].try_into().ok()?).checked_mul(cluster)?;
    let record = match i8::from_le_bytes([start[64]]) {
        power @ -31..=-1 => 1 << power.unsigned_abs(),
        clusters => u64::try_from(clusters).ok()? * cluster,
    };
    let mut volume = vec![0; usize::try_from(record.min(4096)).ok()?];
    read_at(file, table.checked_add(record.checked_mul(3)?)?, &mut volume).ok()?;
    let mut at = usize::from(u16_at(volume.get(..24)?, 20));
    loop {
        let attribute = volume.get(at..).filter(|rest| rest.len() >= 24)?;
        let (kind, length) = (u32_at(attribute, 0), usize::try_from(u32_at(attribute, 4)).ok()?);
        if kind == NAME && attribute[8] == 0 {
            let (length, from) = (usize::try_from(u32_at(attribute, 16)).ok()?, usize::from(u16_at(attribute, 20)));
            let letters = attribute.get(from..from.checked_add(length)?)?.chunks_exact(2);
            return Some(String::from_utf16_lossy(&letters.map(|two| u16_at(two, 0)).collect::<Vec<_>>()));
        }
        at = at.checked_add(length).filter(|_| kind < NAME && length > 0)?;
    }
}

/// Label of a disc or stick with UDF alone: the name of its logical volume (ECMA-167, 3/10.2 and 3/10.6).
fn in_udf(file: &mut File) -> Option<String> {
    const ANCHOR: u16 = 2;
    const LOGICAL_VOLUME: u16 = 6;
    let blocks = [512_u64, 2048, 4096];
    blocks.into_iter().find_map(|block| {
        let mut anchor = [0; 32];
        read_at(file, 256 * block, &mut anchor).ok().filter(|()| u16_at(&anchor, 0) == ANCHOR)?;
        let (bytes, first) = (u64::from(u32_at(&anchor, 16)), u64::from(u32_at(&anchor, 20)));
        (0..(bytes / block).min(MOST_DESCRIPTORS)).find_map(|number| {
            let mut descriptor = [0; 212];
            read_at(file, (first + number) * block, &mut descriptor).ok()?;
            (u16_at(&descriptor, 0) == LOGICAL_VOLUME).then(|| in_dstring(&descriptor[84..]))
        })
    })
}

/// A text whose first byte says how wide its letters are, and whose last one how long it is (ECMA-167, 1/7.2.12).
fn in_dstring(text: &[u8]) -> String {
    let length = usize::from(text[text.len() - 1]).clamp(1, text.len() - 1);
    let letters = &text[1..length];
    if text[0] == 16 {
        let wide = letters.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect::<Vec<_>>();
        return String::from_utf16_lossy(&wide);
    }
    letters.iter().map(|byte| char::from(*byte)).collect()
}

/// The superblock of btrfs (linux, fs/btrfs).
fn in_btrfs(file: &mut File) -> Option<Vec<u8>> {
    const SUPERBLOCK: u64 = 64 * 1024;
    let mut block = vec![0; 1024];
    read_at(file, SUPERBLOCK, &mut block).ok()?;
    (&block[64..72] == b"_BHRfS_M").then(|| block[299..555].to_vec())
}

fn read_at(file: &mut File, at: u64, into: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(into)
}

/// Volume label of FAT: that of the root directory, else that of the first sector (fatgen103, "boot sector and BPB
/// structure" and "FAT directory structure").
fn in_fat(file: &mut File, sector: &[u8; 512]) -> Option<String> {
    let of_sector = in_sector(sector)?;
    let in_root = fat_root(sector).and_then(|(at, bytes)| {
        let mut root = vec![0; usize::try_from(bytes.min(ROOT_BYTES)).ok()?];
        read_at(file, at, &mut root).ok()?;
        root_label(&root)
    });
    Some(in_root.unwrap_or(of_sector))
}

fn in_sector(sector: &[u8; 512]) -> Option<String> {
    let signed = sector[510] == 0x55 && sector[511] == 0xaa;
    let at =
        |kind: usize, label: usize, name: &[u8]| (&sector[kind..kind + 3] == name).then(|| &sector[label..label + 11]);
    let label = at(82, 71, b"FAT").or_else(|| at(54, 43, b"FAT")).filter(|_| signed)?;
    Some(String::from_utf8_lossy(label).into_owned())
}

/// Where the root directory lies, and how many bytes of it lie together.
fn fat_root(sector: &[u8; 512]) -> Option<(u64, u64)> {
    let bytes = u64::from(u16_at(sector, 11));
    let (cluster, reserved) = (u64::from(sector[13]), u64::from(u16_at(sector, 14)));
    let (fats, entries) = (u64::from(sector[16]), u64::from(u16_at(sector, 17)));
    if !(512..=4096).contains(&bytes) || cluster == 0 {
        return None;
    }
    let of_fat = match u16_at(sector, 22) {
        0 => u64::from(u32_at(sector, 36)),
        sectors => u64::from(sectors),
    };
    let behind = reserved + fats * of_fat;
    if entries > 0 {
        return Some((behind * bytes, entries * ENTRY as u64));
    }
    let first = u64::from(u32_at(sector, 44)).checked_sub(2)?;
    Some(((behind + first * cluster) * bytes, cluster * bytes))
}

/// The entry of a root directory that is the volume's label.
fn root_label(root: &[u8]) -> Option<String> {
    /// Attributes: a label, and what all parts of a long name have.
    const LABEL: u8 = 0x08;
    const LONG_NAME: u8 = 0x0F;
    let entries = root.chunks_exact(ENTRY).take_while(|entry| entry[0] != 0);
    let mut labels = entries.filter(|entry| entry[0] != 0xE5 && entry[11] & LONG_NAME != LONG_NAME);
    let label = labels.find(|entry| entry[11] & LABEL != 0)?;
    Some(String::from_utf8_lossy(&label[..11]).into_owned())
}

/// Volume label of exFAT (exFAT file system specification, 3.1 and 7.3).
fn in_exfat(file: &mut File, sector: &[u8; 512]) -> Option<String> {
    const LABEL: u8 = 0x83;
    if &sector[3..11] != b"EXFAT   " {
        return None;
    }
    let (heap, root) = (u64::from(u32_at(sector, 88)), u64::from(u32_at(sector, 96)).checked_sub(2)?);
    let (sector_shift, cluster_shift) = (u32::from(sector[108]), u32::from(sector[109]));
    if !(9..=12).contains(&sector_shift) || sector_shift + cluster_shift > 25 {
        return None;
    }
    let at = (heap + (root << cluster_shift)) << sector_shift;
    let bytes = (1_u64 << (sector_shift + cluster_shift)).min(ROOT_BYTES);
    let mut entries = vec![0; usize::try_from(bytes).ok()?];
    read_at(file, at, &mut entries).ok()?;
    let mut used = entries.chunks_exact(ENTRY).take_while(|entry| entry[0] != 0);
    let label = used.find(|entry| entry[0] == LABEL)?;
    let letters: Vec<u16> = (0..usize::from(label[1]).min(11)).map(|n| u16_at(label, 2 + 2 * n)).collect();
    Some(String::from_utf16_lossy(&letters))
}

/// Volume identifiers of a disc: those of its primary descriptor, and of Joliet's (ECMA-119, 8.4 and 8.5).
fn of_disc(file: &mut File) -> Vec<String> {
    let mut found = Vec::new();
    for number in 0..MOST_DESCRIPTORS {
        let mut head = [0; 128];
        if read_at(file, DESCRIPTORS + number * 2048, &mut head).is_err() || &head[1..6] != b"CD001" {
            break;
        }
        let label = &head[40..72];
        match head[0] {
            1 => found.push(String::from_utf8_lossy(label).into_owned()),
            // Joliet says so in its escape sequences.
            2 if head[88..90] == *b"%/" => {
                let letters: Vec<u16> = label.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
                found.push(String::from_utf16_lossy(&letters));
            }
            255 => break,
            _ => {}
        }
    }
    found
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::{Kind, in_sector, of_device, of_fat, of_other};

    #[test]
    fn labels_of_both_kinds_of_fat_are_read() {
        let mut sector = [0; 512];
        assert_eq!(in_sector(&sector), None);
        sector[71..87].copy_from_slice(b"SITE       FAT32");
        assert_eq!(in_sector(&sector), None, "no signature");
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(in_sector(&sector).as_deref(), Some("SITE       "));
        let mut sector = [0; 512];
        sector[43..59].copy_from_slice(b"cidata     FAT16");
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(in_sector(&sector).as_deref(), Some("cidata     "));
    }

    /// A volume of FAT16 or FAT32 with these labels in its first sector and in its root directory, behind a long name and a
    /// file that was deleted.
    fn fat(large: bool, of_sector: &[u8; 11], of_root: Option<&[u8; 11]>) -> Vec<u8> {
        let mut volume = vec![0; 64 * 512];
        let mut put = |at: usize, bytes: &[u8]| volume[at..at + bytes.len()].copy_from_slice(bytes);
        put(11, &512_u16.to_le_bytes());
        // Two sectors a cluster, four reserved, two tables of eight.
        put(13, &[2, 4, 0, 2]);
        put(510, &[0x55, 0xAA]);
        let root = if large {
            put(36, &8_u32.to_le_bytes());
            put(44, &5_u32.to_le_bytes());
            put(71, of_sector);
            put(82, b"FAT32   ");
            (4 + 16 + 3 * 2) * 512
        } else {
            put(17, &64_u16.to_le_bytes());
            put(22, &8_u16.to_le_bytes());
            put(43, of_sector);
            put(54, b"FAT16   ");
            (4 + 16) * 512
        };
        put(root, b"\xE5ELETED BIN\x08");
        put(root + 32, b"Along name \x0F");
        put(root + 64, b"A FILE  TXT\x20");
        if let Some(label) = of_root {
            put(root + 96, &[&label[..], b"\x08"].concat());
        }
        volume
    }

    #[test]
    fn a_label_of_the_root_directory_comes_before_that_of_the_first_sector() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("volume");
        for large in [false, true] {
            for (of_sector, of_root, expected) in [
                (b"NO NAME    ", Some(b"cidata     "), "CIDATA"),
                (b"SITE       ", Some(b"PHOTOS     "), "PHOTOS"),
                (b"SITE       ", None, "SITE"),
            ] {
                fs_err::write(&path, fat(large, of_sector, of_root)).expect("written");
                assert_eq!(of_device(&path), [(Kind::Fat, expected.to_owned())], "large: {large}");
            }
        }
        fs_err::write(&path, &fat(true, b"SITE       ", Some(b"PHOTOS     "))[..512]).expect("written");
        assert_eq!(of_fat(&path).as_deref(), Some("SITE"), "a root directory that is not there");
    }

    #[test]
    fn discs_have_the_labels_of_iso_9660_and_joliet() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut disc = vec![0; 20 * 2048];
        let mut descriptor = |sector: usize, kind: u8, label: &[u8]| {
            let at = sector * 2048;
            disc[at] = kind;
            disc[at + 1..at + 6].copy_from_slice(b"CD001");
            disc[at + 40..at + 40 + label.len()].copy_from_slice(label);
            if kind == 2 {
                disc[at + 88..at + 91].copy_from_slice(b"%/E");
            }
        };
        descriptor(16, 1, b"cidata                          ");
        let joliet: Vec<u8> = "Site".encode_utf16().flat_map(u16::to_be_bytes).collect();
        descriptor(17, 2, &joliet);
        descriptor(18, 255, b"");
        let path = dir.path().join("disc.iso");
        fs_err::write(&path, &disc).expect("written");
        let told = of_device(&path);
        assert_eq!(told, [(Kind::Iso9660, "CIDATA".to_owned()), (Kind::Iso9660, "SITE".to_owned())]);
        fs_err::write(&path, &disc[..17 * 2048 + 10]).expect("written");
        assert_eq!(of_device(&path).len(), 1, "a cut disc");
    }

    #[test]
    fn labels_of_what_is_not_read_are_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("volume");
        let wide = |text: &str, order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let mut dstring = [0; 128];
        dstring[..7].copy_from_slice(b"\x08cidata");
        dstring[127] = 7;
        let udf = |block: usize| -> Vec<(usize, Vec<u8>)> {
            // An anchor, and two descriptors from block 100 on.
            let anchor = [
                &[2, 0][..],
                &[0; 14],
                &(2 * u32::try_from(block).expect("small")).to_le_bytes(),
                &100_u32.to_le_bytes(),
            ];
            let volume = [&[6, 0][..], &[0; 82], &dstring].concat();
            vec![(256 * block, anchor.concat()), (100 * block, vec![1, 0]), (101 * block, volume)]
        };
        let mut record = vec![0; 1024];
        record[20] = 56;
        // An attribute of 16 bytes before the one with the name.
        record[56..64].copy_from_slice(&[0x10, 0, 0, 0, 16, 0, 0, 0]);
        record[72..80].copy_from_slice(&[0x60, 0, 0, 0, 40, 0, 0, 0]);
        (record[72 + 16], record[72 + 20]) = (12, 24);
        record[72 + 24..72 + 36].copy_from_slice(&wide("cidata", u16::to_le_bytes));
        let ntfs = vec![
            (3, b"NTFS    ".to_vec()),
            (11, vec![0, 2, 8]),
            (48, vec![4]),
            (64, vec![0xF6]),
            (4 * 4096 + 3 * 1024, record),
        ];
        for (parts, expected) in [
            (vec![(1024 + 56, vec![0x53, 0xEF]), (1024 + 120, b"cidata".to_vec())], Some(("ext4", "CIDATA"))),
            (vec![(0, b"XFSB".to_vec()), (108, b"SITE".to_vec())], Some(("XFS", "SITE"))),
            (vec![(65_536 + 64, b"_BHRfS_M".to_vec()), (65_536 + 299, b"site".to_vec())], Some(("btrfs", "SITE"))),
            (ntfs, Some(("NTFS", "CIDATA"))),
            (udf(512), Some(("UDF", "CIDATA"))),
            (udf(2048), Some(("UDF", "CIDATA"))),
            (vec![(3, b"NTFS    ".to_vec())], None),
            (vec![(510, vec![0x55, 0xAA])], None),
        ] {
            let mut volume = vec![0; 1 << 20];
            for (at, bytes) in &parts {
                volume[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
            fs_err::write(&path, &volume).expect("written");
            let told = of_other(&path);
            assert_eq!(told.as_ref().map(|(kind, label)| (*kind, label.as_str())), expected);
            assert!(of_device(&path).is_empty());
        }
    }

    #[test]
    fn exfat_has_its_label_in_the_root_directory() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut volume = vec![0; 64 * 1024];
        volume[3..11].copy_from_slice(b"EXFAT   ");
        volume[88..92].copy_from_slice(&16_u32.to_le_bytes());
        volume[96..100].copy_from_slice(&4_u32.to_le_bytes());
        (volume[108], volume[109]) = (9, 3);
        let root = (16 + 2 * 8) * 512;
        volume[root] = 0x81;
        volume[root + 32..root + 34].copy_from_slice(&[0x83, 6]);
        let letters: Vec<u8> = "cidata".encode_utf16().flat_map(u16::to_le_bytes).collect();
        volume[root + 34..root + 46].copy_from_slice(&letters);
        let path = dir.path().join("volume");
        fs_err::write(&path, &volume).expect("written");
        assert_eq!(of_device(&path), [(Kind::Exfat, "CIDATA".to_owned())]);
    }
}
