//! Hybrid CD images: El Torito for BIOS and UEFI, and bootable when copied to a stick.

use std::path::Path;

use super::{FormatError, ImagePlan};
use crate::disk::Tools;

/// Writes the CD image of `plan` to `path`.
pub fn write(
    _plan: &ImagePlan,
    _tools: &dyn Tools,
    _path: &Path,
    _progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FormatError> {
    Err(FormatError::Iso("not yet".to_owned()))
}
