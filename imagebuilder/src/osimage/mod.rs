//! OS images for servers: whole disks, made from recipes.
//!
//! ```text
//! recipe ─apt─► lock's set `os-image/NAME` ─mmdebstrap─► tree ─┬─ programs, overlays, scrubbed ─mke2fs─► root ─┐
//!                                                              └─ GRUB's menu                    ESP, GPT ─────┴─► disk
//! disk ─► NAME.qcow2, NAME.raw
//! ```
//! The image starts on BIOS and UEFI machines, from whatever disk it was written to, and grows to its size. Nothing in it
//! is secret or particular: name, keys and network come from the server's config drive (cloud-init), and the same
//! lock gives the same bytes.

pub mod disk;
pub mod kind;
pub mod recipe;
pub mod tree;

use std::path::Path;

use agent_api::release::Digest;
use anyhow::{Context, Result};

use self::recipe::Recipe;
use crate::config::DiskFormat;
use crate::disk::extents::Extents;
use crate::format::qcow2::{self, Compression};
use crate::format::raw;
use crate::lock::Deb;
use crate::store::{Cache, Made, StageKey, hash};
use crate::toolbox::Toolbox;

/// zstd level of qcow2 files: they are written once and carried on every medium. Higher ones take minutes for 2 %.
const LEVEL: i32 = 12;

/// What an image is made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox.
    pub toolbox_key: &'a str,
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Its folder.
    pub directory: &'a Path,
    /// Its packages, with all they need.
    pub debs: &'a [Deb],
    /// Programs of the release, by name.
    pub programs: &'a Made,
    /// What to make.
    pub formats: &'a [DiskFormat],
    /// Time of every file.
    pub built: u64,
    /// Told what goes on.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

impl Input<'_> {
    /// Names everything that decides the disk's bytes; its identifiers are derived from it.
    fn identity(&self) -> Result<Digest> {
        let mut parts = vec![serde_json::to_string(&(self.toolbox_key, self.built, self.recipe, self.debs))?];
        for name in self.recipe.programs.values() {
            parts.push(self.programs.file(name)?.digest.to_string());
        }
        for overlay in &self.recipe.overlays {
            parts.push(hash::tree(&self.directory.join(overlay))?.to_string());
        }
        Ok(hash::bytes(parts.join("\n").as_bytes()))
    }

    fn key(&self) -> Result<StageKey> {
        let formats: Vec<&str> = self.formats.iter().map(|format| format.name()).collect();
        Ok(StageKey::new("os-image", 3).with("image", self.identity()?).with("formats", formats.join(" ")))
    }
}

/// The image, when it is in the cache.
pub fn recall(input: &Input<'_>) -> Result<Option<Made>> {
    input.cache.recall(&input.key()?)
}

/// Makes the image or takes it from the cache: a file for each format, by the format's name. Its packages must be in the
/// cache when it is made.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let identity = input.identity()?;
    input.cache.stage(&input.key()?, &mut || (input.waiting)("another build is making the same"), |work| {
        let ids = disk::Ids::of(identity.hex());
        tree::make(input, work, &ids)?;
        (input.waiting)("writing the disk");
        let image = disk::compose(input, work, &ids)?;
        let mut made = Made::default();
        for format in input.formats {
            (input.waiting)(&format!("writing {}", format.name()));
            let path = work.path().join(format.name());
            write(&image, *format, &path).with_context(|| format!("writing the {} file", format.name()))?;
            made.files.insert(format.name().to_owned(), input.cache.adopt(&path)?);
        }
        Ok(made)
    })
}

fn write(image: &Extents, format: DiskFormat, path: &Path) -> Result<()> {
    let mut file = fs_err::OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    match format {
        DiskFormat::Qcow2 => qcow2::write(image, &mut file, Compression::Zstd(LEVEL), &mut |_, _| ())?,
        DiskFormat::Raw => {
            raw::write(image, &mut file, &mut |_, _| ())?;
        }
    }
    Ok(())
}
