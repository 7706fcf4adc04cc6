//! FAT volumes: ESP and SITE.

use std::io;
use std::path::Path;

use fs_err::{File, OpenOptions};
pub use hadris_fat::FatKind;
use hadris_fat::{FatOptions, VolumeLabel};
use hadris_fs::{DateTime, Node, PathError, Tree};
use hadris_storage::BlockSize;
use hadris_storage::host::FileDevice;

use super::{Content, SourceFile};

/// Bytes of a sector in every image; a disk whose logical blocks are larger needs larger ones.
pub const SECTOR: u32 = 512;
/// Sectors in front of the first FAT, as every FAT32 formatter has them.
const RESERVED_SECTORS: u16 = 32;

/// What a volume is.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Volume label, at most 11 characters.
    pub label: &'static str,
    /// Serial number.
    pub serial: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes in front of it on the disk.
    pub offset: u64,
    /// FAT16 for the small image on a CD, FAT32 elsewhere.
    pub kind: FatKind,
    /// Sector size in bytes: at least the logical block size of the disk.
    pub sector: u32,
    /// Cluster size in bytes.
    pub cluster: u32,
    /// Time of every file, seconds since 1970.
    pub time: i64,
}

/// Why a volume could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FatError {
    /// Creating or opening the volume's file failed; the error names it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The content does not fit, a name cannot be stored, or a source could not be read.
    #[error("writing the FAT volume `{label}`: {reason}")]
    Write {
        /// Label of the volume.
        label: &'static str,
        /// What went wrong.
        reason: String,
    },
}

/// Writes a volume with `files` to a new file at `path`.
pub fn write(path: &Path, volume: &Volume, files: &[SourceFile]) -> Result<(), FatError> {
    write_to(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?, volume, files)
}

/// Writes a volume with `files` to the empty `file`.
pub fn write_to(file: File, volume: &Volume, files: &[SourceFile]) -> Result<(), FatError> {
    let fail = |reason: String| FatError::Write { label: volume.label, reason };
    let options = options(volume).map_err(&fail)?;
    let tree = tree(files).map_err(|error| fail(error.to_string()))?;
    file.set_len(volume.bytes)?;
    let block = BlockSize::new(volume.sector).ok_or_else(|| fail("no block size".to_owned()))?;
    let (file, _) = file.into_parts();
    let device = FileDevice::with_block_size(file, block)?.with_physical_block_size(block)?;
    hadris_fat::sync::write(device, &tree, &options).map_err(|error| fail(error.to_string()))?;
    Ok(())
}

fn options(volume: &Volume) -> Result<FatOptions, String> {
    let time = DateTime::from_unix_seconds(volume.time).map_err(|error| error.to_string())?;
    let label = VolumeLabel::new(volume.label).map_err(|error| error.to_string())?;
    let options = FatOptions::new()
        .with_kind(volume.kind)
        .with_size(volume.bytes)
        .with_label(label)
        .with_time(time)
        .with_serial(volume.serial)
        .with_sector_size(volume.sector)
        .with_cluster_size(volume.cluster)
        .with_partition_offset(volume.offset);
    Ok(if volume.kind == FatKind::Fat32 { options.with_reserved_sectors(RESERVED_SECTORS) } else { options })
}

fn tree(files: &[SourceFile]) -> Result<Tree, PathError> {
    let mut tree = Tree::new();
    for file in files {
        let content = match &file.content {
            Content::Bytes(bytes) | Content::Reserved(bytes) => hadris_fs::Content::bytes(bytes.clone()),
            Content::File { path, .. } => hadris_fs::host::file(path)?,
        };
        tree.insert(file.path.as_str(), Node::file(content))?;
    }
    Ok(tree)
}
