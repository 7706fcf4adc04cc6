//! `content.osImages`: disks for servers, served as `images/NAME.qcow2` or `.raw` with checksums beside them.
//!
//! ```text
//! recipe ─► osimage ────────────────────┐
//! path or URL ─ by the lock's digest ───┴─► images/NAME.{qcow2,raw} + .sha256 + .md5sum
//! ```
//! The checksum files are those of `sha256sum` and `md5sum`: Metal3's `image.checksum` may name either.

use agent_api::release::{Blob, ContentFile, ContentKind};
use anyhow::{Context, Result};

use super::Input;
use super::files::{bring, os_image_path};
use crate::config::{Appliance, Origin, OsImageSource};
use crate::lock::Lock;
use crate::lock::apt::Apt;
use crate::osimage::kind;
use crate::osimage::recipe::Recipe;
use crate::store::{Cache, Made, StageKey, hash};

/// The package set of a recipe's image in the lock.
pub fn set(name: &str) -> String {
    format!("os-image/{name}")
}

/// Resolves the packages of recipes into the lock.
pub fn resolve(appliance: &Appliance, apt: &Apt, lock: &mut Lock) -> Result<()> {
    for image in &appliance.content.os_images {
        let OsImageSource::Recipe { directory, .. } = &image.source else { continue };
        resolve_recipe(image.name.as_str(), &Recipe::read(directory)?, apt, lock)?;
    }
    Ok(())
}

/// An error when the lock's packages are not those of the recipes.
pub fn check(appliance: &Appliance, lock: &Lock) -> Result<()> {
    for image in &appliance.content.os_images {
        let OsImageSource::Recipe { directory, .. } = &image.source else { continue };
        lock.packages_for(&set(image.name.as_str()), &Recipe::read(directory)?.packages)?;
    }
    Ok(())
}

/// Resolves the packages of one recipe.
pub fn resolve_recipe(name: &str, recipe: &Recipe, apt: &Apt, lock: &mut Lock) -> Result<()> {
    let debs = apt
        .resolve(&recipe.packages, true)
        .with_context(|| format!("resolving the packages of the OS image `{name}`"))?;
    lock.asked.insert(set(name), recipe.packages.clone());
    lock.debian.insert(set(name), debs);
    Ok(())
}

/// The images' files: those of recipes as their stages made them, the others as they come.
pub fn files(input: &Input<'_>) -> Result<Vec<ContentFile>> {
    let mut files = Vec::new();
    for image in &input.appliance.content.os_images {
        let name = image.name.as_str();
        let stage = format!("os-image {name}");
        let fetched = match &image.source {
            OsImageSource::Recipe { .. } => None,
            OsImageSource::File { origin } => Some(input.at.stage(&stage, |say| ready_made(input, name, origin, say))?),
        };
        let made = fetched.as_ref().map_or_else(|| input.made(&stage), Ok)?;
        for (format, blob) in &made.files {
            files.extend(with_checksums(&input.at.cache, &format!("{}.{format}", os_image_path(name)), blob)?);
        }
    }
    Ok(files)
}

/// A ready-made image, by the name of the format that it has.
fn ready_made(input: &Input<'_>, name: &str, origin: &Origin, say: &(dyn Fn(&str) + Sync)) -> Result<(Made, bool)> {
    let blob = input.lock.file(&os_image_path(name))?;
    let cached = input.at.cache.holds(blob)?;
    bring(input.at, blob, origin, say)?;
    let format = kind::of(&input.at.cache.blob_path(&blob.digest)).with_context(|| format!("looking at {origin}"))?;
    let mut made = Made::default();
    made.files.insert(format.name().to_owned(), blob.clone());
    Ok((made, cached))
}

/// The image and its checksum files.
fn with_checksums(cache: &Cache, path: &str, blob: &Blob) -> Result<Vec<ContentFile>> {
    let md5 = md5_of(cache, blob)?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let file = |path: String, blob: Blob| ContentFile::stored(path, ContentKind::OsImage, &blob);
    // Two spaces: the file was read as bytes (coreutils, "md5 output modes").
    let sum = |sum: &str| cache.adopt_bytes(format!("{sum}  {name}\n").as_bytes());
    Ok(vec![
        file(path.to_owned(), blob.clone()),
        file(format!("{path}.sha256"), sum(blob.digest.hex())?),
        file(format!("{path}.md5sum"), sum(&md5)?),
    ])
}

/// MD5 of a file in the cache, remembered: images have gigabytes.
fn md5_of(cache: &Cache, blob: &Blob) -> Result<String> {
    let key = StageKey::new("md5", 1).with("file", &blob.digest);
    let (made, _) = cache.stage(&key, &mut || (), |_| {
        let mut made = Made::default();
        made.set_fact("md5", &hash::md5_of_file(&cache.blob_path(&blob.digest))?)?;
        Ok(made)
    })?;
    made.fact("md5")
}
