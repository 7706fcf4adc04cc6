//! What `services.provisioning` adds: images of services, and the deploy ramdisk.

use anyhow::{Context, Result};

use super::{LOCK, Surveyor, needed};
use crate::oci::service;
use crate::ramdisk::{self, Ramdisk};
use crate::store::{Made, NotMade};

impl Surveyor<'_> {
    pub(super) fn service_images(&mut self) -> Result<()> {
        for image in self.services.clone() {
            let (name, note) = (image.set(), format!("the image `{}`", image.recipe.reference));
            let has_programs = image.programs().next().is_some();
            let parts = if has_programs { needed(&[LOCK, "agent"]) } else { vec![LOCK] };
            if !self.ready(&name, &parts, &note) {
                continue;
            }
            let lock = self.lock.context("a lock")?;
            let programs = self.with_agent(has_programs)?;
            let input = service::Input { lock, toolbox: &self.toolbox, toolbox_key: &self.key, programs: &programs };
            let key = input.key(&image)?;
            let made = self.at.cache.recall(&key)?;
            if made.is_none() {
                self.survey.fetch.add(&self.at.cache, image.packages(lock)?)?;
            }
            self.found(&name, made.map(|made| (made, true)).ok_or_else(|| NotMade.into()), None, note)?;
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
        let (name, note) = (ramdisk::SET, "what servers run while they are installed");
        let has_programs = !ramdisk.recipe.programs.is_empty();
        let parts = if has_programs { needed(&[LOCK, "agent"]) } else { vec![LOCK] };
        if !self.ready(name, &parts, note) {
            return Ok(());
        }
        let lock = self.lock.context("a lock")?;
        let programs = self.with_agent(has_programs)?;
        let input = ramdisk::Input {
            lock,
            toolbox: &self.toolbox,
            toolbox_key: &self.key,
            programs: &programs,
            lists: self.packages.clone(),
        };
        let made = self.at.cache.recall(&ramdisk.key(&input)?)?;
        if made.is_none() {
            self.survey.fetch.add(&self.at.cache, &ramdisk.packages(lock)?.concat())?;
        }
        self.found(name, made.map(|made| (made, true)).ok_or_else(|| NotMade.into()), None, note.to_owned())
    }

    /// All programs of the release and the agent's, where some are wanted.
    pub(super) fn with_agent(&self, wanted: bool) -> Result<Made> {
        let mut all = Made::default();
        if wanted {
            all.files.extend(self.programs()?.files);
            all.files.extend(self.made.get("agent").map(|agent| agent.files.clone()).unwrap_or_default());
        }
        Ok(all)
    }
}
