//! A raw image for a disk whose logical blocks have 4096 bytes ("4Kn").
//!
//! Two things of an image count in logical blocks, and no kernel or firmware finds them when those have another size: the
//! partition table, and the FAT volumes, whose sectors must not be smaller than the disk's. Both are made anew from what
//! the image holds; all other bytes stay as they are.

use std::io;
use std::path::Path;

use gpt::{GptConfig, partition::Partition as Found};
use hadris_fat::FatKind;

use super::bytes::{self, Bytes, Cursor, Disk, Image, Window};
use super::tree::{self, Tree};
use crate::disk::fat::{self, FatError, Volume};
use crate::disk::gpt::{Partition, SECTOR, encode};
use crate::disk::{Content, SourceFile};

/// Logical blocks of a 4Kn disk in bytes.
pub const LARGE: u64 = 4096;
/// Bytes of boot code in the master boot record, before the disk's signature and its records.
const BOOT_CODE: usize = 440;
/// A volume below it is FAT16: FAT32 has at least 65525 clusters, and a cluster is at least a sector.
const FAT32_FROM: u64 = 65_525 * LARGE + (8 << 20);
/// From here on FAT16 with clusters of one sector has too many of them.
const FAT16_LARGE_FROM: u64 = 65_000 * LARGE;
/// Time of every file of the volumes that are made anew: the first that FAT knows, 1980-01-01.
const TIME: i64 = 315_532_800;

/// Bytes that take the place of an image's.
pub struct Patch {
    /// Where on the disk.
    pub at: u64,
    /// They.
    pub bytes: Box<dyn Bytes>,
}

/// Why an image cannot be made to fit.
#[derive(Debug, thiserror::Error)]
pub enum SectorsError {
    /// It cannot be read.
    #[error("reading the image: {0}")]
    Io(#[from] io::Error),
    /// Its table is damaged.
    #[error("the image's partition table cannot be read: {0}")]
    Table(gpt::GptError),
    /// A partition begins or ends within a block.
    #[error("its partition `{0}` begins or ends within a block of 4096 bytes")]
    Between(String),
    /// A volume cannot be made anew.
    #[error(transparent)]
    Fat(#[from] FatError),
}

/// What of the raw image differs on a disk with 4096-byte blocks, in the order of the places. Makes files in `scratch`
/// that go with what is returned.
pub fn patches(image: &Path, scratch: &Path) -> Result<Vec<Patch>, SectorsError> {
    let disk: Disk = std::rc::Rc::new(Image::open(image)?);
    let table = GptConfig::new().writable(false).open_from_device(Cursor::new(disk.clone()));
    let table = table.map_err(SectorsError::Table)?;
    let used = table.partitions().iter().filter(|(_, found)| found.is_used());
    let partitions = used.map(|(number, found)| partition(*number, found)).collect::<Result<Vec<_>, _>>()?;
    let end = (table.primary_header().map_err(|error| SectorsError::Table(error.into()))?.backup_lba + 1) * SECTOR
        / LARGE
        * LARGE;
    let mut encoded = encode(end, LARGE, *table.guid(), &partitions);
    let code = bytes::read(&*disk, 0, BOOT_CODE)?;
    encoded.primary[..BOOT_CODE].copy_from_slice(&code);
    let backup_at = end - encoded.backup.len() as u64;
    let mut patches = vec![Patch { at: 0, bytes: Box::new(encoded.primary) }];
    for partition in &partitions {
        let window = Window { disk: disk.clone(), start: partition.start, size: partition.bytes };
        if let Some(serial) = fat_serial(&window)? {
            let bytes = Box::new(volume(window, partition, serial, scratch)?);
            patches.push(Patch { at: partition.start, bytes });
        }
    }
    patches.sort_by_key(|patch| patch.at);
    patches.push(Patch { at: backup_at, bytes: Box::new(encoded.backup) });
    Ok(patches)
}

fn partition(number: u32, found: &Found) -> Result<Partition, SectorsError> {
    let (start, end) = (found.first_lba * SECTOR, (found.last_lba + 1) * SECTOR);
    if !start.is_multiple_of(LARGE) || !end.is_multiple_of(LARGE) {
        return Err(SectorsError::Between(found.name.clone()));
    }
    Ok(Partition {
        number,
        name: found.name.clone(),
        type_guid: uuid::Uuid::from_bytes(*found.part_type_guid.guid.as_bytes()),
        guid: found.part_guid,
        start,
        bytes: end - start,
        attributes: found.flags,
    })
}

/// The serial number of a FAT volume whose sectors are too small; `None` for everything else.
fn fat_serial(volume: &Window) -> io::Result<Option<u32>> {
    if volume.size() < SECTOR {
        return Ok(None);
    }
    let boot = bytes::read(volume, 0, 512)?;
    let sector = u64::from(u16::from_le_bytes([boot[11], boot[12]]));
    // Where the extended boot record has the serial number: behind the longer parameters of FAT32.
    let at = match (&boot[54..59], &boot[82..87]) {
        (_, b"FAT32") => 67,
        (b"FAT12" | b"FAT16", _) => 39,
        _ => return Ok(None),
    };
    let serial = u32::from_le_bytes([boot[at], boot[at + 1], boot[at + 2], boot[at + 3]]);
    Ok((sector < LARGE).then_some(serial))
}

/// The files of a volume in one whose sectors have 4096 bytes.
fn volume(window: Window, partition: &Partition, serial: u32, scratch: &Path) -> Result<Image, SectorsError> {
    let tree = tree::fat(std::rc::Rc::new(window))?;
    let mut files = Vec::new();
    gather(&*tree, "", &mut files)?;
    let large = u32::try_from(LARGE).unwrap_or(u32::MAX);
    let (kind, cluster) = match partition.bytes {
        FAT32_FROM.. => (FatKind::Fat32, large),
        FAT16_LARGE_FROM.. => (FatKind::Fat16, 2 * large),
        _ => (FatKind::Fat16, large),
    };
    let label = if partition.name == "SITE" { "SITE" } else { "ESP" };
    let (bytes, offset) = (partition.bytes, partition.start);
    let volume = Volume { label, serial, bytes, offset, kind, sector: large, cluster, time: TIME };
    let file = tempfile::NamedTempFile::new_in(scratch)?;
    fat::write(file.path(), &volume, &files)?;
    // Its name goes, its bytes stay as long as they are read.
    Ok(Image::open(file.path())?)
}

fn gather(tree: &dyn Tree, folder: &str, files: &mut Vec<SourceFile>) -> io::Result<()> {
    for name in tree.list(folder)? {
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if tree.is_folder(&path)? {
            gather(tree, &path, files)?;
        } else if let Some(file) = tree.open(&path)? {
            let length = usize::try_from(file.size()).map_err(io::Error::other)?;
            files.push(SourceFile { path, content: Content::Bytes(bytes::read(&*file, 0, length)?) });
        }
    }
    Ok(())
}
