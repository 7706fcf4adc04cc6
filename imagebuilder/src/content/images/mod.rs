//! Container images of the definition, by digest.
//!
//! ```text
//! reference ──registry──► index ─► manifest ─► configuration, layers ─┐
//! layout, archive ────────────────────────────────────────────────────┼─► Lock ─► cache ─► verified ─► Image
//! recipe ─► packages (Lock) ─► one layer ─────────────────────────────────────────┘
//! ```
//! `build` uses exactly the lock: what it names is fetched by digest and nothing is asked for by name again.

pub mod archive;
pub mod credentials;
pub mod fetch;
pub mod manifest;
pub mod recipe;
pub mod registry;
pub mod verify;

use std::path::Path;

use agent_api::image::{ImageName, plain_names};
use agent_api::release::Image;
use anyhow::{Context, Result, bail, ensure};

use self::archive::Imported;
use self::credentials::Credentials;
use self::fetch::Wanted;
use self::registry::Registries;
use super::Input;
use crate::builder::Builder;
use crate::config::{Appliance, CarriedImage, ImageReference};
use crate::lock::Lock;
use crate::lock::apt::Apt;
use crate::lock::images::LockedImage;
use crate::report::Step;
use crate::store::{Cache, Made, StageKey};

/// Resolves the images of the definition into the lock. Manifests and configurations come into the cache on the way.
pub fn resolve(at: &Builder, appliance: &Appliance, apt: &Apt, lock: &mut Lock) -> Result<()> {
    recipe::resolve(&appliance.content.images, apt, lock)?;
    resolve_fetched(at, appliance, lock)
}

/// The same without those that recipes make.
pub fn resolve_fetched(at: &Builder, appliance: &Appliance, lock: &mut Lock) -> Result<()> {
    let images: Vec<_> = fetched(&appliance.content.images).collect();
    if images.is_empty() {
        return Ok(());
    }
    let registries = registries(at, appliance)?;
    at.report.step("lock", "images").run(|step| {
        for (done, image) in images.iter().enumerate() {
            step.count(done as u64, images.len() as u64, "images");
            let locked = match &image.from {
                None => mirrored(&at.cache, &registries, image.reference.name()),
                Some(from) => archive::import(&at.cache, from, image.reference.name()).map(|imported| {
                    let Imported { image: locked, called } = imported;
                    if !called.is_empty() {
                        at.report.say(&contradicts(from, &image.reference, &called));
                    }
                    locked
                }),
            };
            let locked = locked.with_context(|| format!("resolving the image `{}`", image.reference))?;
            lock.images.insert(image.reference.to_string(), locked);
        }
        for warning in ambiguous(lock) {
            at.report.say(&warning);
        }
        Ok(())
    })
}

/// Images that are not made here.
fn fetched(images: &[CarriedImage]) -> impl Iterator<Item = &CarriedImage> {
    images.iter().filter(|image| recipe::folder(image).is_none())
}

/// The registries of a definition, with the user's credentials.
pub(super) fn registries<'a>(at: &Builder, appliance: &'a Appliance) -> Result<Registries<'a>> {
    let credentials = match &at.network.authfile {
        Some(file) => Credentials::read(file)?,
        None => Credentials::of_user(),
    };
    Registries::new(&appliance.content.registries, credentials)
}

/// Resolves a reference at its registry.
fn mirrored(cache: &Cache, registries: &Registries<'_>, name: &ImageName) -> Result<LockedImage> {
    let keep = |bytes: Vec<u8>| {
        cache.adopt_bytes(&bytes)?;
        Ok(bytes)
    };
    let top = keep(registries.manifest(name, None)?)?;
    manifest::resolve(&top, &mut |piece| {
        let path = cache.blob_path(&piece.digest);
        if cache.holds(&piece.blob())? {
            return Ok(fs_err::read(path)?);
        }
        if manifest::is_manifest(&piece.media_type) {
            return keep(registries.manifest(name, Some(&piece.digest))?);
        }
        fetch::bring(cache, registries, &[Wanted { name, piece }], &|_, _| ())?;
        Ok(fs_err::read(path)?)
    })
}

/// What to say of an archive that calls its image something else.
fn contradicts(from: &Path, reference: &ImageReference, called: &[String]) -> String {
    let called: Vec<String> = called.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "warning: `{}` calls its image {}, and the definition calls it `{reference}`: the box serves it under the \
         definition's name",
        from.display(),
        called.join(", ")
    )
}

/// What to say about images that are the same but for their registry.
fn ambiguous(lock: &Lock) -> Vec<String> {
    let images: Vec<Image> = lock.images.iter().map(|(name, locked)| locked.image(name.clone())).collect();
    let unclear = plain_names(&images).into_iter().filter(|(_, image)| image.is_none());
    unclear
        .map(|(name, _)| {
            format!(
                "warning: `{name}` is the name of different images in different registries: the box serves them by \
                 their whole names only"
            )
        })
        .collect()
}

/// The locked images of the definition. A lock of other images is an error that names them.
fn locked<'a>(images: &'a [CarriedImage], lock: &'a Lock) -> Result<Vec<(&'a CarriedImage, &'a LockedImage)>> {
    let known = |name: &str| fetched(images).any(|image| image.reference.to_string() == name);
    if let Some(name) = lock.images.keys().find(|name| !known(name)) {
        bail!("the lock names the image `{name}`, which the definition does not have\nhint: `foothold lock --update`");
    }
    let find = |image: &'a CarriedImage| {
        let found = lock.images.get(&image.reference.to_string()).with_context(|| {
            format!("the lock does not name the image `{}`\nhint: `foothold lock --update`", image.reference)
        })?;
        if let Some(digest) = &image.reference.name().digest {
            let top = found.top();
            ensure!(
                *digest == top.digest || *digest == found.manifest.digest,
                "the lock has {} for the image `{}`\nhint: `foothold lock --update`",
                top.digest,
                image.reference
            );
        }
        Ok((image, found))
    };
    fetched(images).map(find).collect()
}

/// Key of the stage that has verified an image.
fn key(locked: &LockedImage) -> Result<StageKey> {
    Ok(StageKey::new("image", 1).with("locked", serde_json::to_string(locked)?))
}

/// Which of the images the cache does not have, whole and verified.
pub fn missing<'a>(
    cache: &Cache,
    appliance: &'a Appliance,
    lock: &'a Lock,
) -> Result<Vec<(&'a CarriedImage, &'a LockedImage)>> {
    let mut missing = Vec::new();
    for (image, locked) in locked(&appliance.content.images, lock)? {
        if cache.recall(&key(locked)?)?.is_none() {
            missing.push((image, locked));
        }
    }
    Ok(missing)
}

/// Brings every image of the lock into the cache and verifies it. Returns the bytes that were fetched.
pub fn bring(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<u64> {
    let missing = missing(&at.cache, appliance, lock)?;
    if lock.images.is_empty() {
        return Ok(0);
    }
    let step = at.report.step("build", "images");
    if missing.is_empty() {
        step.skipped("cached");
        return Ok(0);
    }
    step.run(|step| {
        let bytes = fetch_missing(at, appliance, &missing, step)?;
        for (done, (image, locked)) in missing.iter().enumerate() {
            step.count(done as u64, missing.len() as u64, "images verified");
            at.cache.stage(&key(locked)?, &mut || step.note("another build verifies the same"), |_| {
                verify::verify(&at.cache, locked)
                    .with_context(|| format!("verifying the image `{}` ({})", image.reference, locked.top().digest))?;
                let files = locked.pieces().map(|piece| (format!("blob {}", piece.digest.hex()), piece.blob()));
                Ok(Made { files: files.collect(), ..Made::default() })
            })?;
        }
        Ok(bytes)
    })
}

fn fetch_missing(
    at: &Builder,
    appliance: &Appliance,
    missing: &[(&CarriedImage, &LockedImage)],
    step: &Step,
) -> Result<u64> {
    let mut wanted = Vec::new();
    for (image, locked) in missing {
        for piece in locked.pieces() {
            if !at.cache.holds(&piece.blob())? {
                wanted.push((*image, *locked, piece));
            }
        }
    }
    for (image, locked, _) in &wanted {
        if let Some(from) = &image.from {
            archive::again(&at.cache, from, image.reference.name(), locked)?;
        }
    }
    wanted.retain(|(image, ..)| image.from.is_none());
    if let (true, Some((image, _, piece))) = (at.network.offline, wanted.first()) {
        bail!(
            "{} of `{}` is not in the cache and `--offline` was given\nhint: build once without `--offline`",
            piece.digest,
            image.reference
        );
    }
    if wanted.is_empty() {
        return Ok(0);
    }
    let registries = registries(at, appliance)?;
    let (manifests, blobs): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(_, _, piece)| manifest::is_manifest(&piece.media_type));
    for (image, _, piece) in manifests {
        manifest_again(&at.cache, &registries, image.reference.name(), piece)?;
    }
    let blobs: Vec<_> = blobs.iter().map(|(image, _, piece)| Wanted { name: image.reference.name(), piece }).collect();
    fetch::bring(&at.cache, &registries, &blobs, &|done, total| step.bytes(done, Some(total)))
}

/// Manifests are no blobs to a registry: they are asked for by another path.
fn manifest_again(
    cache: &Cache,
    registries: &Registries<'_>,
    name: &ImageName,
    piece: &crate::lock::images::Piece,
) -> Result<()> {
    let bytes = registries.manifest(name, Some(&piece.digest))?;
    let found = cache.adopt_bytes(&bytes)?;
    ensure!(
        found == piece.blob(),
        "`{name}`: {} sent {} ({} bytes), the lock expects {} ({} bytes)",
        registries.source(name),
        found.digest,
        found.size,
        piece.digest,
        piece.size
    );
    Ok(())
}

/// The images of the lock, all of them in the cache and verified.
pub fn make_fetched(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<Vec<Image>> {
    let images = locked(&appliance.content.images, lock)?;
    bring(at, appliance, lock)?;
    Ok(images.into_iter().map(|(image, locked)| locked.image(image.reference.to_string())).collect())
}

/// All images of the definition, sorted by reference.
pub fn make(input: &Input<'_>) -> Result<Vec<Image>> {
    let mut images = make_fetched(input.at, input.appliance, input.lock)?;
    for image in &input.appliance.content.images {
        if let Some(folder) = recipe::folder(image) {
            images.push(recipe::make(input, image, folder)?);
        }
    }
    images.sort_by(|a, b| a.reference.cmp(&b.reference));
    not_twice(&images, input.own)?;
    Ok(images)
}

/// The box's own images are served under their names; another image of that name could not be.
fn not_twice(images: &[Image], own: &[Image]) -> Result<()> {
    match images.iter().find(|image| own.iter().any(|own| own.reference == image.reference)) {
        None => Ok(()),
        Some(image) => bail!(
            "`{}` is one of the images that the box itself runs, and is carried already\nhint: remove it from \
             `content.images`",
            image.reference
        ),
    }
}
