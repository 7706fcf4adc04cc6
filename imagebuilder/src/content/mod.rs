//! What an image carries for its site beside the cluster: each part is resolved into the lock, then made from it.
//!
//! ```text
//! definition --resolve--> Lock --make--> Carried: images and files, every byte of them in the cache by digest
//! ```
//! The box serves all of it from the store in place: images through its registry, files over HTTP under their paths.

pub mod closure;
pub mod clusters;
pub mod debian;
pub mod files;
pub mod images;
pub mod lint;
pub mod manifests;
pub mod os_images;
pub mod programs;
pub mod versions;

use std::collections::BTreeMap;

use agent_api::release::{ContentFile, Image};
use anyhow::{Context, Result, bail};

use crate::builder::Builder;
use crate::config::Appliance;
use crate::lock::Lock;
use crate::lock::apt::Apt;
use crate::ramdisk::Ramdisk;
use crate::store::Made;

/// What is carried. Every blob of it is in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Container images, beside those that the box itself runs.
    pub images: Vec<Image>,
    /// Files, sorted by path.
    pub files: Vec<ContentFile>,
}

/// What gathering content needs.
pub struct Input<'a> {
    /// The build.
    pub at: &'a Builder,
    /// The definition.
    pub appliance: &'a Appliance,
    /// Exactly what goes in.
    pub lock: &'a Lock,
    /// The images that the box itself runs.
    pub own: &'a [Image],
    /// Programs of the release, the agent's among them.
    pub programs: &'a Made,
    /// What stages made, by name.
    pub made: &'a BTreeMap<String, Made>,
    /// What of it is served as it is.
    pub served: Vec<ContentFile>,
}

impl Input<'_> {
    fn made(&self, stage: &str) -> Result<&Made> {
        self.made.get(stage).with_context(|| format!("the stage `{stage}` has not been made"))
    }
}

/// Resolves all content into `lock`.
pub fn resolve(at: &Builder, appliance: &Appliance, apt: &Apt, lock: &mut Lock) -> Result<()> {
    files::resolve(at, appliance, lock)?;
    debian::resolve(appliance, apt, lock)?;
    os_images::resolve(appliance, apt, lock)?;
    if let Some(ramdisk) = Ramdisk::declared(&at.images(), &appliance.services)? {
        ramdisk.resolve(apt, lock)?;
    }
    manifests::resolve(at, appliance, lock)?;
    images::resolve(at, appliance, apt, lock)
}

/// An error when the package sets of a lock are not those of this definition and of its recipes.
pub fn check(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<()> {
    debian::check(appliance, lock)?;
    os_images::check(appliance, lock)?;
    if let Some(ramdisk) = Ramdisk::declared(&at.images(), &appliance.services)? {
        ramdisk.packages(lock)?;
    }
    images::recipe::check(&appliance.content.images, lock)
}

/// All content of the lock: what stages made, and what is fetched as it is.
pub fn gather(mut input: Input<'_>) -> Result<Carried> {
    let mut files = std::mem::take(&mut input.served);
    files.extend(files::make(&input)?);
    files.extend(os_images::files(&input)?);
    let carried = finish(Carried { images: images::make(&input)?, files })?;
    closure::check(input.at, input.appliance, &carried, input.own)?;
    Ok(carried)
}

/// Sorts, and refuses two files of one path.
fn finish(mut carried: Carried) -> Result<Carried> {
    carried.files.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(pair) = carried.files.windows(2).find(|pair| pair[0].path == pair[1].path) {
        bail!("two files of the content want the path `{}`\nhint: rename one of them", pair[0].path);
    }
    Ok(carried)
}
