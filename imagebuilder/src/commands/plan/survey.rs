//! What a build would do: every stage looked up under its key, nothing made.
//!
//! The stages are those of the build. One that needs results which are not there yet has no key: it comes after those.

use std::path::Path;

use agent_api::release::{ContentFile, Image};
use anyhow::Result;
use serde::Serialize;

use crate::builder::Builder;
use crate::config::Appliance;
use crate::content::images;
use crate::kubernetes::binaries::Source;
use crate::layer::{os, seal};
use crate::lock::images::LockedImage;
use crate::lock::{Deb, Lock};
use crate::pipeline::LAYERS;
use crate::problems::count;
use crate::release::sign;
use crate::stages::{self, KEY, LOCK, OS_IMAGE, Results, Site, Stage};
use crate::store::{Cache, NotMade};
use crate::toolbox::{Toolbox, bootstrap};

/// Whether a stage must be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "after")]
pub enum State {
    /// The cache has it, whole.
    Cached,
    /// It will be made.
    ToMake,
    /// It will be looked up, or made, when these are there.
    After(Vec<String>),
}

/// One stage of the build, as the plan shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name, as `build` reports it.
    pub name: String,
    /// Whether it must be made.
    #[serde(flatten)]
    pub state: State,
    /// Bytes it made, once known.
    pub bytes: Option<u64>,
    /// What it is about.
    pub note: String,
}

/// What would be fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetch {
    /// Debian packages that the stages to make need.
    pub packages: usize,
    /// Those that the cache does not have.
    pub missing: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Sets whose Go modules are fetched while they are compiled, as far as the cache does not have them.
    pub modules: Vec<String>,
    /// Published programs of Kubernetes that the cache does not have.
    pub programs: usize,
    /// Their bytes.
    pub program_bytes: u64,
    /// Blobs of container images that the cache does not have.
    pub image_blobs: usize,
    /// Their bytes.
    pub image_bytes: u64,
}

impl Fetch {
    fn add(&mut self, cache: &Cache, debs: &[Deb]) -> Result<()> {
        self.packages += debs.len();
        for deb in debs {
            if !cache.holds(&agent_api::release::Blob { digest: deb.sha256.clone(), size: deb.size })? {
                self.missing += 1;
                self.bytes += deb.size;
            }
        }
        Ok(())
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// The stages in their order.
    pub stages: Vec<Row>,
    /// What would be fetched.
    pub fetch: Fetch,
    /// Bytes of all files that every image will hold, once all are known.
    pub content_bytes: Option<u64>,
}

/// Looks everything up. `at` has a cache that is only looked at.
pub fn survey(at: &Builder, appliance: &Appliance, lock: Option<&Lock>) -> Result<Survey> {
    let debs = lock.map(|lock| lock.packages("toolbox")).transpose()?;
    let tree = debs.map(|debs| bootstrap::tree_path(&at.cache, debs)).transpose()?.unwrap_or_default();
    // Keys need the tree's name; nothing is run in it.
    let toolbox = Toolbox::at(&tree, Path::new(""));
    let key = tree.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let signer = sign::existing_signer(appliance.sign.as_ref())?;
    let site = Site::new(at, appliance, lock, (&toolbox, &key), signer.as_ref())?;
    let (system, carried) = (stages::system(&site)?, stages::carried(&site)?);
    let mut surveyor = Surveyor { site: &site, survey: Survey::default(), results: Results::default() };
    surveyor.toolbox(debs, bootstrap::is_complete(&tree))?;
    system.iter().try_for_each(|stage| surveyor.look(stage))?;
    surveyor.binaries()?;
    surveyor.images()?;
    carried.iter().try_for_each(|stage| surveyor.look(stage))?;
    surveyor.survey.content_bytes = surveyor.content_bytes(system.iter().chain(&carried))?;
    Ok(surveyor.survey)
}

struct Surveyor<'a> {
    site: &'a Site<'a>,
    survey: Survey,
    /// What the cache has.
    results: Results,
}

impl Surveyor<'_> {
    fn push(&mut self, name: &str, state: State, bytes: Option<u64>, note: &str) {
        self.survey.stages.push(Row { name: name.to_owned(), state, bytes, note: note.to_owned() });
    }

    fn cache(&self) -> &Cache {
        &self.site.at.cache
    }

    /// Which of these are not there yet.
    fn missing(&self, needs: &[String]) -> Vec<String> {
        let lock = self.site.lock.map(|_| LOCK);
        self.results.missing(needs, &lock.into_iter().chain(self.site.signer.map(|_| KEY)).collect())
    }

    fn look(&mut self, stage: &Stage<'_>) -> Result<()> {
        let missing = self.missing(&stage.needs);
        if !missing.is_empty() {
            self.push(&stage.name, State::After(missing), None, &stage.note);
            return Ok(());
        }
        match stage.make(&self.results, &|_| ()) {
            Ok((made, _)) => {
                let main = stage.main.and_then(|main| made.files.get(main));
                let bytes = main.map_or_else(|| made.bytes(), |blob| blob.size);
                self.push(&stage.name, State::Cached, Some(bytes), &stage.note);
                self.results.0.insert(stage.name.clone(), made);
                Ok(())
            }
            Err(error) if error.downcast_ref::<NotMade>().is_some() => {
                self.push(&stage.name, State::ToMake, None, &stage.note);
                if stage.go {
                    self.survey.fetch.modules.push(stage.name.clone());
                }
                self.survey.fetch.add(&self.site.at.cache, &stage.debs)
            }
            Err(error) => Err(error.context(format!("planning `{}`", stage.name))),
        }
    }

    fn toolbox(&mut self, debs: Option<&[Deb]>, complete: bool) -> Result<()> {
        let Some(debs) = debs else {
            self.push("toolbox", State::After(vec![LOCK.to_owned()]), None, "foreign tools");
            return Ok(());
        };
        let note = format!("foreign tools: {} packages", debs.len());
        self.push("toolbox", if complete { State::Cached } else { State::ToMake }, None, &note);
        if complete { Ok(()) } else { self.survey.fetch.add(&self.site.at.cache, debs) }
    }

    /// Kubernetes' own programs that are downloaded, of all releases.
    fn binaries(&mut self) -> Result<()> {
        let (appliance, lock) = (self.site.appliance, self.site.lock);
        let own = lock.map(|lock| (&appliance.kubernetes.source, &lock.binaries));
        let others = appliance.services.cluster_versions().iter();
        let others = others.filter_map(|other| Some((&other.source, lock?.binaries_of(&other.version.to_string()))));
        for (source, programs) in own.into_iter().chain(others) {
            let Some(Source::Upstream(_)) = Source::of(source) else { continue };
            for blob in programs.values() {
                if !self.cache().holds(blob)? {
                    self.survey.fetch.programs += 1;
                    self.survey.fetch.program_bytes += blob.size;
                }
            }
        }
        Ok(())
    }

    /// Container images that are fetched: each is verified as a stage of its own.
    fn images(&mut self) -> Result<()> {
        let Some(lock) = self.site.lock.filter(|lock| !lock.images.is_empty()) else { return Ok(()) };
        let missing = images::missing(self.cache(), self.site.appliance, lock)?;
        let all = lock.images.values().flat_map(LockedImage::pieces);
        let note = format!("{}, by digest", count(lock.images.len(), "container image"));
        for piece in missing.iter().flat_map(|(_, image)| image.pieces()) {
            if !self.cache().holds(&piece.blob())? {
                self.survey.fetch.image_blobs += 1;
                self.survey.fetch.image_bytes += piece.size;
            }
        }
        let state = if missing.is_empty() { State::Cached } else { State::ToMake };
        self.push("images", state, Some(all.map(|piece| piece.size).sum()), &note);
        Ok(())
    }

    /// Layers, blobs of images, kernel, initrd, and files that are served: what every format carries.
    fn content_bytes<'a>(&self, stages: impl Iterator<Item = &'a Stage<'a>>) -> Result<Option<u64>> {
        let names: Vec<String> = LAYERS.iter().chain(&["initrd"]).map(|name| (*name).to_owned()).collect();
        if !self.missing(&names).is_empty() {
            return Ok(None);
        }
        let results = &self.results;
        let mut blobs =
            vec![results.of("os")?.file(os::KERNEL)?.clone(), results.of("initrd")?.file("initrd")?.clone()];
        for name in LAYERS {
            blobs.push(seal::blob_of(&seal::layer_of(results.of(name)?)?));
        }
        let mut images: Vec<Image> = results.of("containers-layer")?.fact("images")?;
        images.extend(results.services(&self.site.services)?.carried);
        images.extend(stages::images_of_other_versions(self.site, results)?);
        blobs.extend(images.into_iter().flat_map(|image| image.blobs));
        for stage in stages {
            let Some(made) = results.0.get(&stage.name) else { continue };
            match stage.serves {
                Some(serves) => blobs.extend(serves(made)?.iter().filter_map(ContentFile::blob)),
                None if stage.name.starts_with(OS_IMAGE) => blobs.extend(made.files.values().cloned()),
                None => {}
            }
        }
        blobs.sort_by(|a, b| a.digest.cmp(&b.digest));
        blobs.dedup();
        Ok(Some(blobs.iter().map(|blob| blob.size).sum()))
    }
}
