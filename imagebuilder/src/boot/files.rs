//! What firmware starts before anything of ours looks at a signature: a signed list of it, beside `release.json`.
//!
//! It is not part of `release.json`, because the menu in it names the release by its digest. Secure Boot machines check
//! shim and GRUB themselves; the menu and all that a BIOS starts are checked by this list only.

use std::collections::BTreeMap;
use std::path::Path;

use agent_api::release::Blob;
use serde::{Deserialize, Serialize};

use super::grub::{self, GrubError, Target};
use super::{BootEntries, esp};
use crate::disk::layout::BIOS_BOOT_AT;
use crate::disk::{Content, Tools};
use crate::store::hash;

/// Its name in the folder of the release.
pub const BOOT_FILES: &str = "boot-files.json";

/// The list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BootFiles {
    /// Id of the release that they start.
    pub release: String,
    /// Files of the partition `ESP`, and of the ESP image of a CD, by path.
    pub esp: BTreeMap<String, Blob>,
    /// What a BIOS starts from a disk.
    pub disk: BiosFiles,
    /// What a BIOS starts from a CD, or from its image on a stick; without the addresses that depend on the medium
    /// ([`grub::blank_hybrid_code`], [`grub::blank_boot_image`]).
    pub cd: BiosFiles,
}

/// What a BIOS starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BiosFiles {
    /// The code of the master boot record.
    pub code: Blob,
    /// GRUB's core image.
    pub core: Blob,
}

/// Why the list cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BootFilesError {
    /// A file is missing; the error names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file of the ESP is missing.
    #[error(transparent)]
    Esp(#[from] esp::EspError),
    /// GRUB's images could not be made.
    #[error(transparent)]
    Grub(#[from] GrubError),
}

/// The list of what formats will write for `entries`. `cache`: the folder of GRUB's core images.
pub fn list(entries: &BootEntries, tools: &dyn Tools, cache: &Path) -> Result<BootFiles, BootFilesError> {
    let mut files = BTreeMap::new();
    for file in esp::loader_files(entries, tools)? {
        let blob = match &file.content {
            Content::Bytes(bytes) | Content::Reserved(bytes) => blob(bytes),
            Content::File { path, .. } => blob(&fs_err::read(path)?),
        };
        files.insert(file.path, blob);
    }
    let mut disk_core = grub::core_image(Target::Disk, tools, cache)?;
    grub::place_core(&mut disk_core, BIOS_BOOT_AT);
    let mut cd_core = grub::core_image(Target::Cd, tools, cache)?;
    grub::blank_boot_image(&mut cd_core);
    let mut hybrid = grub::hybrid_code(tools, 0)?;
    grub::blank_hybrid_code(&mut hybrid);
    Ok(BootFiles {
        release: entries.current.entry.release_id.clone(),
        esp: files,
        disk: BiosFiles { code: blob(&grub::mbr_code(tools, BIOS_BOOT_AT)?), core: blob(&disk_core) },
        cd: BiosFiles { code: blob(&hybrid), core: blob(&cd_core) },
    })
}

fn blob(bytes: &[u8]) -> Blob {
    Blob { digest: hash::bytes(bytes), size: bytes.len() as u64 }
}
