//! Objects of the site: manifests, kustomizations and charts, rendered when the image is built.
//!
//! ```text
//! content.manifests, content.charts --inputs--> Source, each with the digest of its files
//!     --render (helm, kubectl kustomize; toolbox, no network)--> YAML --documents--> Object
//!     --sets (hooks, namespaces, order)--> manifests/<nn>-<name>.yaml
//! ```
//! Manifests come first, then charts, both in the order of the definition. A chart with hooks becomes up to three files:
//! what runs before it, the chart, what runs after it. The files are YAML whose documents are JSON, so that every reader
//! sees the same values.

pub mod documents;
pub mod inputs;
pub mod render;
pub mod sets;

use std::collections::BTreeMap;

use agent_api::release::{Blob, ContentFile, ContentKind, Digest};
use anyhow::{Context, Result, bail};

use self::inputs::Source;
use self::render::Renderer;
use crate::config::Content;
use crate::kubernetes::modules::HELM;
use crate::lock::Lock;
use crate::store::{Cache, Made, StageKey};
use crate::toolbox::Toolbox;

/// Changes when the same inputs give other files.
const REVISION: u32 = 1;

/// Records what the definition names: the digest of every input, and Helm when there are charts.
pub fn resolve(
    content: &Content,
    directory: &std::path::Path,
    packages: &std::path::Path,
    lock: &mut Lock,
) -> Result<()> {
    if !content.charts.is_empty() {
        lock.modules.insert(HELM.name.to_owned(), HELM.digest(packages)?);
    }
    lock.manifests = digests(&inputs::sources(content, directory)?);
    Ok(())
}

fn digests(sources: &[Source]) -> BTreeMap<String, Digest> {
    sources.iter().map(|source| (source.title.clone(), source.digest.clone())).collect()
}

/// The same lock gives the same bytes: inputs that changed since are refused.
pub fn check(content: &Content, directory: &std::path::Path, lock: &Lock) -> Result<()> {
    check_locked(&inputs::sources(content, directory)?, &lock.manifests)
}

/// The files that the stage made, for the release.
pub fn files(made: &Made) -> Vec<ContentFile> {
    let file = |(path, blob): (&String, &Blob)| ContentFile::stored(path, ContentKind::Manifest, blob);
    made.files.iter().map(file).collect()
}

fn check_locked(sources: &[Source], locked: &BTreeMap<String, Digest>) -> Result<()> {
    for source in sources {
        let Some(expected) = locked.get(&source.title) else {
            bail!("the lock does not name {}\nhint: `foothold lock --update`", source.title);
        };
        if *expected != source.digest {
            let found = &source.digest;
            bail!("{} is {found}, the lock expects {expected}\nhint: `foothold lock --update`", source.title);
        }
    }
    Ok(())
}

/// What rendering needs.
pub struct Stage<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// `kubectl`, and `helm` when there are charts.
    pub tools: &'a Made,
    /// Version of the cluster.
    pub version: &'a str,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

impl Stage<'_> {
    /// Renders all sources, or takes the result from the cache. Files by path: `manifests/01-web.yaml`.
    pub fn make(&self, sources: &[Source]) -> Result<(Made, bool)> {
        let mut key = StageKey::new("manifests", REVISION).with("kubernetes", self.version);
        for (name, blob) in &self.tools.files {
            key = key.with(name, &blob.digest);
        }
        for source in sources {
            key = key.with(&source.title, &source.digest);
        }
        self.cache.stage(&key, &mut || (self.waiting)("another build is rendering the same"), |work| {
            let renderer = Renderer::new(self, work.path())?;
            let mut made = sets::Sets::default();
            for source in sources {
                (self.waiting)(&source.title);
                let objects = renderer.objects(source, &made.api_versions())?;
                made.add(source, objects).with_context(|| format!("taking in {}", source.title))?;
            }
            let mut result = Made::default();
            for (path, text) in made.files()? {
                result.files.insert(path, self.cache.adopt_bytes(text.as_bytes())?);
            }
            Ok(result)
        })
    }
}

#[cfg(test)]
mod tests;
