//! What an image carries for its site beside the cluster: each part is resolved into the lock, then made from it.
//!
//! ```text
//! definition --resolve--> Lock --make--> Carried: images and files, every byte of them in the cache by digest
//! ```
//! The box serves all of it from the store in place: images through its registry, files over HTTP under their paths.

pub mod closure;
pub mod debian;
pub mod files;
pub mod images;
pub mod manifests;
pub mod os_images;

use agent_api::release::{ContentFile, Image};
use anyhow::{Result, bail};

use crate::builder::Builder;
use crate::config::Appliance;
use crate::lock::Lock;
use crate::lock::apt::Apt;
use crate::ramdisk::{self, Ramdisk};
use crate::release::sign::Signer;
use crate::store::Made;
use crate::toolbox::Toolbox;

/// What is carried. Every blob of it is in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Container images, beside those that the box itself runs.
    pub images: Vec<Image>,
    /// Files, sorted by path.
    pub files: Vec<ContentFile>,
}

/// What making content needs.
pub struct Input<'a> {
    /// The build.
    pub at: &'a Builder,
    /// The definition.
    pub appliance: &'a Appliance,
    /// Exactly what goes in.
    pub lock: &'a Lock,
    /// Foreign tools.
    pub toolbox: &'a Toolbox,
    /// The images that the box itself runs.
    pub own: &'a [Image],
    /// Key of the toolbox, for stages that depend on its tools.
    pub toolbox_key: &'a str,
    /// Programs of the release, the agent's among them.
    pub programs: &'a Made,
    /// Signs what is not covered by the release's own signature.
    pub signer: &'a Signer,
}

impl Input<'_> {
    fn ramdisk(&self) -> ramdisk::Input<'_> {
        let Self { lock, toolbox, toolbox_key, programs, .. } = *self;
        ramdisk::Input { lock, toolbox, toolbox_key, programs, lists: self.at.packages() }
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
    manifests::resolve(&appliance.content, &appliance.directory, &at.workspace.join("packages"), lock)?;
    images::resolve(at, appliance, apt, lock)
}

/// Makes all content of the lock.
pub fn make(input: &Input<'_>) -> Result<Carried> {
    let mut carried = Carried::default();
    carried.files.extend(files::make(input)?);
    carried.files.extend(debian::make(input)?);
    carried.files.extend(os_images::make(input)?);
    if let Some(ramdisk) = Ramdisk::declared(&input.at.images(), &input.appliance.services)? {
        carried.files.extend(ramdisk::files(&ramdisk.make(input.at, &input.ramdisk())?)?);
    }
    carried.files.extend(manifests::make(input)?);
    carried.images = images::make(input)?;
    let carried = finish(carried)?;
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
