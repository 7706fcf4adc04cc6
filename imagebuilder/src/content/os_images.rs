//! `content.osImages`: disks for servers, served as `images/NAME.qcow2` or `.raw` with checksums beside them.
//!
//! ```text
//! recipe ─► osimage ────────────────────┐
//! path or URL ─ by the lock's digest ───┴─► images/NAME.{qcow2,raw} + .sha256 + .md5sum
//! ```
//! The checksum files are those of `sha256sum` and `md5sum`: Metal3's `image.checksum` may name either.

use std::path::Path;

use agent_api::release::{Blob, ContentFile, ContentKind};
use anyhow::{Context, Result};

use super::Input;
use super::files::{bring, os_image_path};
use crate::config::{Appliance, DiskFormat, Origin, OsImage, OsImageSource};
use crate::lock::apt::Apt;
use crate::lock::{Deb, Lock, fetch};
use crate::osimage::recipe::Recipe;
use crate::osimage::{self, kind};
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

/// Resolves the packages of one recipe.
pub fn resolve_recipe(name: &str, recipe: &Recipe, apt: &Apt, lock: &mut Lock) -> Result<()> {
    let debs = apt
        .resolve(&recipe.packages, true)
        .with_context(|| format!("resolving the packages of the OS image `{name}`"))?;
    lock.asked.insert(set(name), recipe.packages.clone());
    lock.debian.insert(set(name), debs);
    Ok(())
}

/// The images' files.
pub fn make(input: &Input<'_>) -> Result<Vec<ContentFile>> {
    let mut files = Vec::new();
    for image in &input.appliance.content.os_images {
        let name = image.name.as_str();
        let made = input.at.stage(&format!("os-image {name}"), |say| match &image.source {
            OsImageSource::Recipe { directory, formats } => make_one(input, image, directory, formats, say),
            OsImageSource::File { origin } => ready_made(input, name, origin, say),
        })?;
        for (format, blob) in &made.files {
            files.extend(with_checksums(&input.at.cache, &format!("{}.{format}", os_image_path(name)), blob)?);
        }
    }
    Ok(files)
}

fn make_one(
    input: &Input<'_>,
    image: &OsImage,
    directory: &Path,
    formats: &[DiskFormat],
    say: &(dyn Fn(&str) + Sync),
) -> Result<(Made, bool)> {
    let recipe = Recipe::read(directory)?;
    let at = input.at;
    let debs: &[Deb] = input.lock.packages_for(&set(image.name.as_str()), &recipe.packages)?;
    let input = osimage::Input {
        cache: &at.cache,
        toolbox: input.toolbox,
        toolbox_key: input.toolbox_key,
        recipe: &recipe,
        directory,
        debs,
        programs: input.programs,
        formats,
        built: input.lock.made,
        waiting: say,
    };
    if osimage::recall(&input)?.is_none() {
        fetch::debs(&at.cache, &at.network, debs, &mut |line| say(line))?;
    }
    osimage::make(&input)
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
    let file = |path: String, blob: Blob| ContentFile {
        path,
        kind: ContentKind::OsImage,
        digest: blob.digest,
        size: blob.size,
    };
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
