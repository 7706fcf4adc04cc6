//! Images that are made here: a folder of the user with an `image.yaml`, in the form of the box's own recipes.

use std::collections::BTreeSet;
use std::path::Path;

use agent_api::release::Image;
use anyhow::{Context, Result, bail, ensure};

use crate::config::CarriedImage;
use crate::content::Input;
use crate::lock::apt::Apt;
use crate::lock::{Deb, Lock, fetch};
use crate::oci::recipe::{Kitchen, Packed, Recipe};
use crate::store::{Made, StageKey, hash};

/// File of the recipe in its folder.
const FILE: &str = "image.yaml";

/// The folder of the recipe that makes an image, if one does.
pub fn folder(image: &CarriedImage) -> Option<&Path> {
    image.from.as_deref().filter(|from| from.join(FILE).is_file() && !from.join("oci-layout").exists())
}

/// Programs of the release that the recipe of an image names, if one makes it.
pub fn programs(image: &CarriedImage) -> Result<Vec<String>> {
    let Some(folder) = folder(image) else { return Ok(Vec::new()) };
    Ok(read(folder, image)?.programs().map(str::to_owned).collect())
}

/// The recipe in a folder, for an image of that name.
pub fn read(folder: &Path, image: &CarriedImage) -> Result<Recipe> {
    let path = folder.join(FILE);
    let recipe = Recipe::read(&path)?;
    ensure!(recipe.service.is_none(), "`{}`: `service` is for recipes of the builder's own", path.display());
    Ok(Recipe { reference: image.reference.to_string(), ..recipe })
}

/// Package set of the lock that an image is made of.
fn set(image: &CarriedImage) -> String {
    format!("image/{}", image.reference)
}

/// Resolves the packages of the recipes.
pub fn resolve(images: &[CarriedImage], apt: &Apt, lock: &mut Lock) -> Result<()> {
    for image in images {
        let Some(folder) = folder(image) else { continue };
        let recipe = read(folder, image)?;
        if recipe.debian.is_empty() {
            continue;
        }
        let told = || format!("resolving the packages of the image `{}`", image.reference);
        let mut debs = apt.resolve(&recipe.debian, false).with_context(told)?;
        if !recipe.dependencies {
            debs = only_asked(debs, &recipe.debian).with_context(told)?;
        }
        lock.asked.insert(set(image), asked(&recipe));
        lock.debian.insert(set(image), debs);
    }
    Ok(())
}

/// The packages that were asked for (`NAME` or `NAME=VERSION`), without those that they depend on. All must be there: apt
/// takes another package for a name that is none of its own.
fn only_asked(mut debs: Vec<Deb>, asked: &[String]) -> Result<Vec<Deb>> {
    let names: BTreeSet<&str> =
        asked.iter().map(|asked| asked.split_once('=').map_or(asked.as_str(), |(name, _)| name)).collect();
    debs.retain(|deb| names.contains(deb.name.as_str()));
    if let Some(name) = names.iter().find(|name| debs.iter().all(|deb| deb.name != **name)) {
        bail!("`{name}` is not a package of its own\nhint: other packages provide it: name the one that you mean");
    }
    Ok(debs)
}

/// What the packages of a recipe are resolved from.
fn asked(recipe: &Recipe) -> Vec<String> {
    let with = recipe.dependencies.then(|| "and what they need".to_owned());
    recipe.debian.iter().cloned().chain(with).collect()
}

/// The packages of an image.
fn packages<'a>(lock: &'a Lock, image: &CarriedImage, recipe: &Recipe) -> Result<&'a [Deb]> {
    if recipe.debian.is_empty() {
        return Ok(&[]);
    }
    lock.packages_for(&set(image), &asked(recipe))
}

/// An error when the lock's packages are not those of the recipes.
pub fn check(images: &[CarriedImage], lock: &Lock) -> Result<()> {
    for image in images {
        let Some(folder) = folder(image) else { continue };
        packages(lock, image, &read(folder, image)?)?;
    }
    Ok(())
}

/// Makes an image, or takes it from the cache.
pub fn make(input: &Input<'_>, image: &CarriedImage, folder: &Path) -> Result<Image> {
    let (at, lock) = (input.at, input.lock);
    let recipe = read(folder, image)?;
    let debs = packages(lock, image, &recipe)?;
    let version = input.appliance.kubernetes.version.to_string();
    let mut key = StageKey::new("recipe", 3)
        .with("recipe", serde_json::to_string(&recipe)?)
        .with("folder", hash::tree(folder)?)
        .with("version", &version)
        .with("built", lock.made);
    for deb in debs {
        key = key.with(&deb.name, &deb.sha256);
    }
    for program in recipe.programs() {
        key = key.with(program, &input.programs.file(program)?.digest);
    }
    let made = at.stage(&set(image), |say| {
        at.cache.stage(&key, &mut || say("another build is making the same"), |work| {
            fetch::debs(&at.cache, &at.network, debs, &mut |line| say(line))?;
            let (cache, programs, built) = (&at.cache, input.programs, lock.made);
            let kitchen = Kitchen { cache, programs, built, version: &version };
            let debs: Vec<&Deb> = debs.iter().collect();
            let Packed { image, .. } = kitchen.make(work, &recipe, Some(folder), &debs)?;
            let files = image.blobs.iter().map(|blob| (format!("blob {}", blob.digest.hex()), blob.clone()));
            let mut made = Made { files: files.collect(), ..Made::default() };
            made.set_fact("image", &image)?;
            Ok(made)
        })
    })?;
    made.fact("image")
}

#[cfg(test)]
mod tests {
    use super::only_asked;
    use crate::lock::Deb;
    use crate::store::hash;

    fn deb(name: &str) -> Deb {
        let (version, architecture) = ("2026f-0+deb13u1".to_owned(), "all".to_owned());
        Deb { name: name.to_owned(), version, architecture, sha256: hash::bytes(b""), size: 0 }
    }

    #[test]
    fn a_package_is_asked_for_with_or_without_its_version_and_none_is_dropped() {
        let only = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|asked| (*asked).to_owned()).collect();
            let debs = ["debconf", "mawk", "tzdata"].map(deb).to_vec();
            only_asked(debs, &asked).map(|debs| debs.into_iter().map(|deb| deb.name).collect::<Vec<_>>())
        };
        assert_eq!(only(&["tzdata=2026f-0+deb13u1"]).expect("packages"), ["tzdata"]);
        assert_eq!(only(&["tzdata", "mawk=2026f-0+deb13u1"]).expect("packages"), ["mawk", "tzdata"]);
        let error = only(&["tzdata", "awk"]).expect_err("`mawk` provides it").to_string();
        assert!(error.starts_with("`awk` is not a package of its own\nhint: "), "{error}");
    }
}
