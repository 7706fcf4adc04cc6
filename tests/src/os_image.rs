//! OS images of the recipes, built from a lock that the tests keep, and machines that boot them.

use std::path::{Path, PathBuf};

use agent_api::release::Blob;
use anyhow::Result;
use foothold::builder::Builder;
use foothold::commands::common;
use foothold::config::{DiskFormat, OsImage, OsImageSource};
use foothold::content::os_images;
use foothold::content::programs::on_demand;
use foothold::disk::fat::{self, FatKind, Volume};
use foothold::disk::{Content, SourceFile};
use foothold::layer::agent;
use foothold::lock::{Lock, fetch};
use foothold::osimage::recipe::Recipe;
use foothold::osimage::{self, Input};
use foothold::pipeline;
use foothold::store::Made;
use foothold::toolbox::Toolbox;

use crate::appliance::builder;
use crate::kept;

/// The definition whose toolbox and programs are used.
const APPLIANCE: &str = "images/appliance";

/// What makes OS images.
pub struct Workshop {
    /// The builder.
    pub builder: Builder,
    toolbox: Toolbox,
    toolbox_key: String,
    lock: Lock,
}

impl Workshop {
    /// The workshop of the user's cache, or of another one that has nothing yet but the packages.
    pub fn open() -> Result<Self> {
        let builder = builder()?;
        let job = common::Job::load(Path::new(APPLIANCE))?;
        let lock = common::locked(&builder, &job, false)?;
        let (toolbox, toolbox_key) = pipeline::toolbox(&builder, &lock)?;
        Ok(Self { builder, toolbox, toolbox_key, lock })
    }

    /// The folder of a recipe.
    fn directory(&self, name: &str) -> PathBuf {
        self.builder.workspace.join("images/os").join(name)
    }

    /// The lock with the packages of the recipe: resolved once, then kept as long as the recipe asks for the same.
    fn lock_for(&self, name: &str, recipe: &Recipe) -> Result<Lock> {
        let mut lock = self.lock.clone();
        kept::add_packages(
            &self.builder,
            &format!("os-image-{name}"),
            &mut lock,
            |lock| lock.packages_for(&os_images::set(name), &recipe.packages).is_ok(),
            |apt, lock| os_images::resolve_recipe(name, recipe, apt, lock),
        )?;
        Ok(lock)
    }

    /// The image of a recipe, in the cache of `builder`.
    pub fn make(&self, name: &str, formats: &[DiskFormat], cache: &foothold::store::Cache) -> Result<Made> {
        let directory = self.directory(name);
        let recipe = Recipe::read(&directory)?;
        let lock = self.lock_for(name, &recipe)?;
        let debs = lock.packages_for(&os_images::set(name), &recipe.packages)?;
        fetch::debs(cache, &self.builder.network, debs, &mut |_| ())?;
        let programs = self.programs(name, &recipe, &lock)?;
        let say = |line: &str| self.builder.report.info(line);
        let input = Input {
            cache,
            toolbox: &self.toolbox,
            toolbox_key: &self.toolbox_key,
            recipe: &recipe,
            directory: &directory,
            debs,
            programs: &programs,
            formats,
            built: lock.made,
            waiting: &say,
        };
        Ok(osimage::make(&input)?.0)
    }

    fn programs(&self, name: &str, recipe: &Recipe, lock: &Lock) -> Result<Made> {
        if recipe.programs.is_empty() {
            return Ok(Made::default());
        }
        let at = &self.builder;
        let mut appliance = common::Job::load(Path::new(APPLIANCE))?.appliance;
        let source = OsImageSource::Recipe { directory: self.directory(name), formats: vec![DiskFormat::Raw] };
        appliance.content.os_images = vec![OsImage { name: name.parse()?, source }];
        let mut lock = lock.clone();
        for set in on_demand(&at.images(), &appliance)? {
            lock.modules.insert(set.name.to_owned(), set.digest(&at.packages())?);
        }
        let mut programs = pipeline::programs(at, &appliance, &lock, &self.toolbox)?;
        programs.files.extend(agent::make(&at.cache, &at.workspace, at.agent, false, &|_| ())?.0.files);
        Ok(programs)
    }

    /// Where a file of the cache lies.
    pub fn path(&self, blob: &Blob) -> PathBuf {
        self.builder.cache.blob_path(&blob.digest)
    }
}

/// A volume as cloud-init's `NoCloud` reads it, with these files (name, text).
pub fn seed(dir: &Path, files: &[(&str, &str)]) -> PathBuf {
    let file = |(name, text): &(&str, &str)| SourceFile {
        path: (*name).into(),
        content: Content::Bytes(text.as_bytes().to_vec()),
    };
    let files: Vec<SourceFile> = files.iter().map(file).collect();
    let path = dir.join("seed.img");
    let volume = Volume {
        label: "CIDATA",
        serial: 7,
        bytes: 64 << 20,
        offset: 0,
        kind: FatKind::Fat32,
        sector: fat::SECTOR,
        cluster: 512,
        time: 1_700_000_000,
    };
    fat::write(&path, &volume, &files).expect("a volume");
    path
}
