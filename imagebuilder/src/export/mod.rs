//! A release's services for a cluster that someone else set up: images, objects, a Helm chart, and what its node reads.
//!
//! ```text
//! release ─► agent `parts print` ─► Printed ─choose─► Parts ─┬─ chart ──► charts/foothold ─helm─► manifests/PART.yaml
//!                                                            ├─ images ─► images/NAME.tar, images.txt
//!                                                            └─ medium ─► medium/: release.json, foothold/store, services
//! ```
//! The objects come from the agent: the one that was compiled for the release is run and prints them. So they are written
//! in one place only, for boxes and for other clusters.

mod chart;
mod folder;
mod medium;
mod parts;
mod render;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use agent_api::release::{Image, Release};
use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::store::{Cache, Made};

pub use chart::{CHART, Chart};
pub use folder::{Folder, SUMS};
pub use parts::{Part, Parts, Printed, choose, printed};
pub use render::Helm;

/// Folder of the archives of images.
pub const IMAGES: &str = "images";
/// Folder of what the node reads.
pub const MEDIUM: &str = "medium";
/// The list of images: reference, digest, archive.
const IMAGES_LIST: &str = "images.txt";

/// What an export is made of.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The release.
    pub release: &'a Release,
    /// Its programs.
    pub programs: &'a Made,
    /// Files of its services.
    pub exports: &'a Made,
    /// What is exported of it.
    pub parts: &'a Parts,
    /// Renders the chart.
    pub helm: &'a Helm<'a>,
}

/// Writes the export. Returns the references of the images.
pub fn write(input: &Input<'_>, folder: &mut Folder, say: &dyn Fn(&str)) -> Result<Vec<String>> {
    let Input { cache, release, parts, .. } = input;
    let images = images(release, parts)?;
    let mut list = String::new();
    for image in &images {
        say(&image.reference);
        let path = folder.image(IMAGES, cache, image, release.built)?;
        let _ = writeln!(list, "{}  {}  {path}", image.reference, image.manifest);
    }
    folder.write(IMAGES_LIST, list.as_bytes())?;
    for definition in parts.definitions() {
        let name = definition["metadata"]["name"].as_str().context("a definition has a name")?;
        folder.write(&format!("crds/{name}.yaml"), pretty(definition)?.as_bytes())?;
    }
    let chart = Chart::of(release, parts)?;
    for (path, text) in chart.files() {
        folder.write(&format!("charts/{CHART}/{path}"), text.as_bytes())?;
    }
    folder.write("values.yaml", chart.values().as_bytes())?;
    say("helm template");
    for (part, text) in input.helm.render(&folder.at("charts"), parts)? {
        folder.write(&format!("manifests/{part}.yaml"), text.as_bytes())?;
    }
    if parts.on_node() {
        say(MEDIUM);
        medium::write(input, folder)?;
    }
    Ok(images.into_iter().map(|image| image.reference.clone()).collect())
}

/// The images of the parts, each once, by reference.
fn images<'a>(release: &'a Release, parts: &Parts) -> Result<Vec<&'a Image>> {
    let references: BTreeSet<&String> = parts.printed().flat_map(|part| &part.images).collect();
    let find = |reference: &&String| {
        let found = release.images.iter().find(|image| image.reference == **reference);
        found.with_context(|| format!("the release has no image `{reference}`"))
    };
    references.iter().map(find).collect()
}

/// JSON, which is YAML.
fn pretty(object: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(object)? + "\n")
}

#[cfg(test)]
mod tests;
