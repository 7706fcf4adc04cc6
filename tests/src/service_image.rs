//! What `services.provisioning` is made of, which no appliance of the tests declares, made from a lock that the tests
//! keep: the image of Ironic, unpacked, and the deploy ramdisk.

use std::path::{Path, PathBuf};

use agent_api::release::{ContentFile, Image};
use anyhow::{Context as _, Result};
use foothold::builder::Builder;
use foothold::commands::common;
use foothold::config::{Provisioning, Services};
use foothold::layer::agent;
use foothold::lock::Lock;
use foothold::oci::service::{self, Declared, Images, Input};
use foothold::pipeline;
use foothold::ramdisk::{self, Ramdisk};
use foothold::rootfs::trim;
use foothold::store::Made;
use tempfile::TempDir;

use crate::appliance::builder;
use crate::kept;

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
        let kit = Kit::open(&at)?;
        Self::unpacked(&at, &kit.image, &kit.make(&at)?)
    }

    /// That of any service, by the name of its recipe, without the programs of the release that it holds: tests run their
    /// own. Its packages are resolved once, then kept as long as the recipe asks for the same.
    pub fn of_packages(services: &Services, name: &str) -> Result<Self> {
        let at = builder()?;
        let job = common::Job::load(Path::new(APPLIANCE))?;
        let mut lock = common::locked(&at, &job, false)?;
        let set = format!("service-image/{name}");
        let found = service::declared(&at.images(), services)?.into_iter().find(|image| image.set() == set);
        let mut image = found.with_context(|| format!("there is no recipe `{name}`"))?;
        image.recipe.files.retain(|_, source| source.starts_with("file:"));
        kept::add_packages(
            &at,
            name,
            &mut lock,
            |lock| image.packages(lock).is_ok(),
            |apt, lock| service::resolve(std::slice::from_ref(&image), apt, lock),
        )?;
        let (toolbox, key) = pipeline::toolbox(&at, &lock)?;
        let input = Input { lock: &lock, toolbox: &toolbox, toolbox_key: &key, programs: &Made::default() };
        let made = at.stage(&set, |say| service::make(&at, &image, &input, say))?;
        Self::unpacked(&at, &image, &made)
    }

    /// Runs a program of it, which may write to `/etc`, `/usr`, `/var` and scratch folders. Fails with what it says.
    pub fn run(&self, argv: &[&str]) -> Result<(), String> {
        let argv: Vec<String> = argv.iter().map(|argument| (*argument).to_owned()).collect();
        let empty = tempfile::tempdir().map_err(|error| error.to_string())?;
        trim::run(self.tree.path(), &self.helper, &argv, empty.path(), 1).map_err(|error| format!("{error:#}"))
    }

    /// Whether its `HAProxy` takes this configuration.
    pub fn check_haproxy(&self, config: &str) -> Result<(), String> {
        let written = fs_err::write(self.tree.path().join("etc/haproxy.cfg"), config);
        written.map_err(|error| error.to_string())?;
        self.run(&["/usr/sbin/haproxy", "-c", "-f", "/etc/haproxy.cfg"])
    }

    fn unpacked(at: &Builder, declared: &Declared, made: &Made) -> Result<Self> {
        let mut images = Images::default();
        images.add(declared, made)?;
        let image = images.packed.pop().map(|packed| packed.image).or_else(|| images.carried.pop());
        let image = image.context("an image")?;
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

/// Makes the image of Ironic in the cache of that builder.
pub fn make(at: &Builder) -> Result<Made> {
    Kit::open(at)?.make(at)
}

/// Makes the deploy ramdisk: what is served of it, and where that lies in the cache.
pub fn deploy_ramdisk() -> Result<Vec<(ContentFile, PathBuf)>> {
    let at = builder()?;
    let kit = Kit::open(&at)?;
    let (toolbox, toolbox_key) = pipeline::toolbox(&at, &kit.lock)?;
    let programs = if kit.ramdisk.recipe.programs.is_empty() {
        Made::default()
    } else {
        at.stage("agent", |say| agent::make(&at.cache, &at.workspace, at.agent, at.network.offline, say))?
    };
    let (lock, lists) = (&kit.lock, at.packages());
    let input = ramdisk::Input { lock, toolbox: &toolbox, toolbox_key: &toolbox_key, programs: &programs, lists };
    let files = ramdisk::files(&at.stage(ramdisk::SET, |say| kit.ramdisk.make(&at, &input, say))?)?;
    Ok(files.into_iter().map(|file| (file.clone(), at.cache.blob_path(&file.digest))).collect())
}

/// What `services.provisioning` is made of.
struct Kit {
    image: Declared,
    ramdisk: Ramdisk,
    lock: Lock,
}

impl Kit {
    fn open(at: &Builder) -> Result<Self> {
        let job = common::Job::load(Path::new(APPLIANCE))?;
        let lock = common::locked(at, &job, false)?;
        let provisioning = Some(Provisioning::default());
        let services = Services { provisioning, ..Services::default() };
        let mut declared = service::declared(&at.images(), &services)?.into_iter();
        let image = declared.find(|image| image.set() == "service-image/ironic").context("the recipe of Ironic")?;
        let ramdisk = Ramdisk::declared(&at.images(), &services)?.context("a deploy ramdisk")?;
        let mut kit = Self { image, ramdisk, lock };
        kit.resolve(at)?;
        Ok(kit)
    }

    /// Makes the image of Ironic.
    fn make(&self, at: &Builder) -> Result<Made> {
        let (toolbox, key) = pipeline::toolbox(at, &self.lock)?;
        let input = Input { lock: &self.lock, toolbox: &toolbox, toolbox_key: &key, programs: &Made::default() };
        at.stage(&self.image.set(), |say| service::make(at, &self.image, &input, say))
    }

    /// The lock with the packages: resolved once, then kept as long as the recipes ask for the same.
    fn resolve(&mut self, at: &Builder) -> Result<()> {
        let (image, ramdisk) = (&self.image, &self.ramdisk);
        kept::add_packages(
            at,
            "provisioning",
            &mut self.lock,
            |lock| image.packages(lock).is_ok() && ramdisk.packages(lock).is_ok(),
            |apt, lock| {
                service::resolve(std::slice::from_ref(image), apt, lock)?;
                ramdisk.resolve(apt, lock)
            },
        )
    }
}
