//! Images of services that no appliance of the tests declares, made from a lock that the tests keep, and unpacked.

use std::path::{Path, PathBuf};

use agent_api::release::Image;
use anyhow::{Context as _, Result};
use foothold::commands::common;
use foothold::config::{Provisioning, Services};
use foothold::lock::Lock;
use foothold::lock::apt::{Apt, Mirror};
use foothold::oci::service::{self, Declared, Images, Input};
use foothold::pipeline::{self, Builder};
use foothold::store::Made;
use tempfile::TempDir;

use crate::appliance::builder;

/// The definition whose toolbox is used.
const APPLIANCE: &str = "images/appliance";

/// An image of the builder, unpacked.
pub struct ServiceImage {
    /// The image.
    pub image: Image,
    /// What it exports, by name: files of the cache.
    pub exports: Vec<(String, PathBuf)>,
    /// The tree; removed with this.
    pub tree: TempDir,
    /// The program that enters trees.
    pub helper: PathBuf,
}

impl ServiceImage {
    /// That of `services.provisioning`.
    pub fn ironic() -> Result<Self> {
        let at = builder()?;
        let made = make(&at)?;
        let mut images = Images::default();
        images.add(&made)?;
        let image = images.packed.pop().context("an image")?.image;
        let tree = tempfile::tempdir()?;
        let layer = image.blobs.last().context("a layer")?;
        let packed = fs_err::File::open(at.cache.blob_path(&layer.digest))?;
        let mut archive = tar::Archive::new(zstd::Decoder::new(packed)?);
        archive.set_preserve_permissions(true);
        archive.unpack(tree.path())?;
        let exports = images.exports.files.iter();
        let exports = exports.map(|(name, blob)| (name.clone(), at.cache.blob_path(&blob.digest))).collect();
        Ok(Self { image, exports, tree, helper: at.helper.clone() })
    }
}

/// Makes the image in the cache of that builder.
pub fn make(at: &Builder) -> Result<Made> {
    let job = common::Job::load(Path::new(APPLIANCE))?;
    let lock = common::locked(at, &job, false)?;
    let provisioning = Some(Provisioning::default());
    let services = Services { ntp_serve: true, registry_writable: None, provisioning };
    let declared = service::declared(&at.images(), &services)?;
    let image = declared.first().context("a recipe for provisioning")?;
    let lock = lock_for(at, lock, image)?;
    let (toolbox, key) = pipeline::toolbox(at, &lock)?;
    service::make(at, image, &Input { lock: &lock, toolbox: &toolbox, toolbox_key: &key })
}

/// The lock with the packages of the image: resolved once, then kept as long as the recipe asks for the same.
fn lock_for(at: &Builder, mut lock: Lock, image: &Declared) -> Result<Lock> {
    let path = at.cache.path(&format!("tests/{}.lock", image.set().replace('/', "-")));
    let kept = Lock::read(&path).ok().flatten();
    if let Some(kept) = kept.filter(|kept| kept.made == lock.made && image.packages(kept).is_ok()) {
        return Ok(kept);
    }
    let work = at.cache.work_dir()?;
    let apt = Apt::new(&work.path().join("apt"), &Mirror::of_host(None)?)?;
    apt.update()?;
    service::resolve(std::slice::from_ref(image), &apt, &mut lock)?;
    fs_err::create_dir_all(path.parent().context("a folder")?)?;
    lock.write(&path)?;
    Ok(lock)
}
