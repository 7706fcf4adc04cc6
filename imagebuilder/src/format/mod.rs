//! Output formats: one release, one store, three kinds of file.
//!
//! ```text
//! ImagePlan ──disk::compose──▶ Extents ──┬─▶ raw    (copied, sparse)
//!                                        └─▶ qcow2  (compressed, room for DATA)
//!           ──iso::compose──────────────────▶ iso
//! ```
//!
//! The store is never copied but into the output; GRUB's core images are kept in the plan's cache folder. An output gets
//! its name when it is whole, and is not written again as long as it is the one that would be written ([`recall`]).

mod compose;
pub mod iso;
mod output;
pub mod qcow2;
pub mod raw;
mod record;

use std::io::{self, Seek};
use std::path::PathBuf;

use fs_err as fs;
use fs_err::File;
use serde::{Deserialize, Serialize};

use self::compose::DiskSize;
use self::output::Output;
use self::qcow2::Compression;
pub use self::record::{follow, recall};
use crate::boot::BootEntries;
use crate::boot::esp::EspError;
use crate::boot::grub::GrubError;
use crate::disk::ext4::Ext4Error;
use crate::disk::extents::ExtentsError;
use crate::disk::fat::FatError;
use crate::disk::layout::LayoutError;
use crate::disk::{SourceFile, Tools};

/// Size of a qcow2's disk unless the plan says otherwise: room for DATA.
pub const DEFAULT_VIRTUAL_BYTES: u64 = 20 << 30;

/// A kind of output file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A disk image, for USB sticks and disks.
    Raw,
    /// A compressed disk image for virtual machines.
    Qcow2,
    /// A CD image that can be written to a stick, too.
    Iso,
}

impl Format {
    /// Name of the format, and extension of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Iso => "iso",
        }
    }
}

/// Everything that decides an image's bytes.
#[derive(Debug, Clone)]
pub struct ImagePlan {
    /// Hex sha256 of `release.json`.
    pub release_id: String,
    /// Build time of the release, seconds since 1970: the time of every file.
    pub built: u32,
    /// Name of the appliance; with `version` the name of the output files.
    pub name: String,
    /// Version of the appliance.
    pub version: String,
    /// `foothold/releases/...` and `foothold/store/...`.
    pub store: Vec<SourceFile>,
    /// Kernels, initrds and the menu.
    pub entries: BootEntries,
    /// Files of the SITE partition, beside those that explain it.
    pub site: Vec<SourceFile>,
    /// Size of the disk in bytes. None: a raw image as small as possible; a qcow2 of [`DEFAULT_VIRTUAL_BYTES`] or twice
    /// the content, whichever is larger.
    pub virtual_bytes: Option<u64>,
    /// Largest size of the output file in bytes.
    pub max_bytes: Option<u64>,
    /// How a qcow2 is compressed.
    pub compression: Compression,
    /// Folder for what formats and builds share.
    pub cache: PathBuf,
    /// Folder that the output goes to.
    pub out: PathBuf,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its format.
    pub format: Format,
    /// Its path.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Hex sha256 of its bytes.
    pub sha256: String,
}

/// Why an image could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Reading or writing failed; the error names the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The output could not be written, or a source not be read meanwhile.
    #[error("writing `{}`", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The sizes do not fit together.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// STORE could not be laid out.
    #[error(transparent)]
    Store(#[from] Ext4Error),
    /// ESP or SITE could not be written.
    #[error(transparent)]
    Fat(#[from] FatError),
    /// ESP's files could not be listed.
    #[error(transparent)]
    Esp(#[from] EspError),
    /// GRUB's images could not be made.
    #[error(transparent)]
    Grub(#[from] GrubError),
    /// The pieces do not fit together, or a source has changed.
    #[error(transparent)]
    Pieces(#[from] ExtentsError),
    /// The CD image could not be written.
    #[error("writing the CD image: {0}")]
    Iso(String),
    /// The file became larger than the user allows.
    #[error("the {} file has {found} bytes, `maxSize` allows {max}\nhint: raise `maxSize`, or remove content", format.name())]
    TooLarge {
        /// Its format.
        format: Format,
        /// Bytes it has.
        found: u64,
        /// Bytes allowed.
        max: u64,
    },
}

/// Writes `plan` as `format`. `progress` is told bytes done and bytes in all.
pub fn write(
    format: Format,
    plan: &ImagePlan,
    tools: &dyn Tools,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<OutputFile, FormatError> {
    fs::create_dir_all(&plan.out)?;
    fs::create_dir_all(&plan.cache)?;
    let path = output_path(format, plan);
    let writing = |source| FormatError::Write { path: path.clone(), source };
    let inputs = record::inputs(format, plan, tools)?;
    let mut output = Output::create(&path).map_err(writing)?;
    let file = output.file();
    let sha256 = match format {
        Format::Raw => {
            let size = plan.virtual_bytes.map_or(DiskSize::Smallest, DiskSize::Bytes);
            raw::write(&compose::disk(plan, tools, size, plan.max_bytes)?, file, progress).map_err(writing)?
        }
        Format::Qcow2 => {
            let size = plan.virtual_bytes.map_or(DiskSize::Roomy, DiskSize::Bytes);
            let image = compose::disk(plan, tools, size, None)?;
            qcow2::write(&image, file, plan.compression, progress).map_err(writing)?;
            hash(file)?
        }
        Format::Iso => {
            iso::write(plan, tools, file, progress)?;
            hash(file)?
        }
    };
    let bytes = file.metadata()?.len();
    if let Some(max) = plan.max_bytes.filter(|max| *max < bytes) {
        return Err(FormatError::TooLarge { format, found: bytes, max });
    }
    let stamp = output.publish().map_err(writing)?;
    let written = OutputFile { format, file: path, bytes, sha256 };
    record::keep(&written, stamp, inputs, plan)?;
    Ok(written)
}

/// Where the output goes.
fn output_path(format: Format, plan: &ImagePlan) -> PathBuf {
    plan.out.join(format!("{}-{}.{}", plan.name, plan.version, format.name()))
}

/// Hex sha256 of the whole file.
fn hash(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    Ok(agent_api::hash::blob(file)?.digest.hex().to_owned())
}

#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod tests;
