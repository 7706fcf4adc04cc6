//! What `services.provisioning` adds: images of services, and the deploy ramdisk.

use anyhow::{Context, Result};

use super::{LOCK, Surveyor, needed};
use crate::lock::Deb;
use crate::oci::service;
use crate::ramdisk::{self, Ramdisk};
use crate::store::{Made, NotMade, StageKey};

impl Surveyor<'_> {
    pub(super) fn service_images(&mut self) -> Result<()> {
        for image in self.services.clone() {
            let (name, note) = (image.set(), format!("the image `{}`", image.recipe.reference));
            let has_programs = image.programs().next().is_some();
            self.keyed(&name, note, has_programs, |at, programs| {
                let lock = at.lock.context("a lock")?;
                let input = service::Input { lock, toolbox: &at.toolbox, toolbox_key: &at.key, programs };
                Ok((input.key(&image)?, image.packages(lock)?.to_vec()))
            })?;
        }
        Ok(())
    }

    /// What the images of services are made of, as far as they are there.
    pub(super) fn services(&self) -> Result<service::Images> {
        let mut images = service::Images::default();
        for made in self.services.iter().filter_map(|image| self.made.get(&image.set())) {
            images.add(made)?;
        }
        Ok(images)
    }

    pub(super) fn ramdisk(&mut self) -> Result<()> {
        let images = self.at.workspace.join("images");
        let Some(ramdisk) = Ramdisk::declared(&images, &self.appliance.services)? else { return Ok(()) };
        let note = "what servers run while they are installed".to_owned();
        self.keyed(ramdisk::SET, note, !ramdisk.recipe.programs.is_empty(), |at, programs| {
            let (lock, lists) = (at.lock.context("a lock")?, at.packages.clone());
            let input = ramdisk::Input { lock, toolbox: &at.toolbox, toolbox_key: &at.key, programs, lists };
            Ok((ramdisk.key(&input)?, ramdisk.packages(lock)?.concat()))
        })
    }

    /// A stage that is known by its key: recalled, or the packages counted that it would be made of. It waits for the
    /// programs of the release when it has some of them.
    fn keyed(
        &mut self,
        name: &str,
        note: String,
        has_programs: bool,
        of: impl FnOnce(&Self, &Made) -> Result<(StageKey, Vec<Deb>)>,
    ) -> Result<()> {
        let needs = if has_programs { needed(&[LOCK, "agent"]) } else { vec![LOCK] };
        if !self.ready(name, &needs, &note) {
            return Ok(());
        }
        let programs = if has_programs { self.all_programs()? } else { Made::default() };
        let (key, debs) = of(self, &programs)?;
        let made = self.at.cache.recall(&key)?;
        if made.is_none() {
            self.survey.fetch.add(&self.at.cache, &debs)?;
        }
        self.found(name, made.map(|made| (made, true)).ok_or_else(|| NotMade.into()), None, note)
    }

    /// All programs of the release, and the agent's.
    pub(super) fn all_programs(&self) -> Result<Made> {
        let mut all = self.programs()?;
        all.files.extend(self.made.get("agent").map(|agent| agent.files.clone()).unwrap_or_default());
        Ok(all)
    }
}
