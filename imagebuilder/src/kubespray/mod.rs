//! What kubespray needs from the internet, taken from a release and laid out as kubespray's `contrib/offline` does it.
//!
//! ```text
//! release, programs ─► plan (pure): files, images, versions, what is missing ─► write ─► TO/
//!   offline-files/<domain>/<path>     what `files_repo` serves
//!   container-images/<name>.tar, .txt for `manage-offline-container-images.sh register`
//!   temp/files.list, images.list      as `generate_list.sh` writes them
//!   group_vars/all/offline.yml        names all of it, with checksums; switches off what is not there
//!   missing.json                      what kubespray may ask for and is not there
//! ```
//! The programs are compiled by the builder, so their checksums differ from those in kubespray. `offline.yml` has the right
//! ones.

pub mod facts;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use agent_api::release::{Blob, Image, Release};
use anyhow::{Result, ensure};
use serde::Serialize;

use crate::export::Folder;
use crate::kubernetes::modules::{self, ModuleSet};
use crate::oci::layout;
use crate::store::{Cache, Made};

use facts::{ABSENT, DOWNLOADS, Download, FLANNEL, Holds, IMAGES};
pub use variables::{Addresses, variables};

/// Folder that a file server serves at its root.
pub const FILES: &str = "offline-files";
/// Folder of images.
const CONTAINERS: &str = "container-images";
/// The variables.
pub const VARIABLES: &str = "group_vars/all/offline.yml";
/// What is missing.
pub const MISSING: &str = "missing.json";

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// What it is.
    pub download: &'static str,
    /// Address without the scheme.
    pub address: String,
    /// Version without `v`.
    pub version: String,
    /// The one program, or the members of an archive.
    pub members: Vec<(String, Blob)>,
    /// Whether it is packed.
    pub packed: bool,
}

/// Something that kubespray may ask for and that the bundle lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// What kubespray calls it.
    pub name: String,
    /// `file`, `image`, or `part` of a file that is there.
    pub kind: &'static str,
    /// Where kubespray looks for it: an address below `files_repo`, or an image.
    pub address: String,
    /// Whether kubespray or the cluster fails without it.
    pub needed: bool,
    /// Variables by which `offline.yml` switches it off; empty if nothing does.
    pub switched_off_by: BTreeMap<String, String>,
    /// Why it is missing, or what needs it.
    pub why: String,
}

/// What is written.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files, by the order of the table.
    pub files: Vec<Carried>,
    /// Images, by reference.
    pub images: Vec<Image>,
    /// Variables with versions.
    pub versions: BTreeMap<&'static str, String>,
    /// What the bundle lacks.
    pub missing: Vec<Missing>,
    /// Whether the release carries the network.
    pub flannel: bool,
}

impl Plan {
    /// What is missing although nothing switches it off.
    pub fn needed(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|missing| missing.needed)
    }
}

/// Decides what goes in. `programs` are all of the release, `named` the images that the definition itself carries.
pub fn plan(release: &Release, programs: &Made, packages: &Path, named: &[String]) -> Result<Plan> {
    let (mut files, mut missing, mut versions) = (Vec::new(), Vec::new(), BTreeMap::new());
    for download in DOWNLOADS {
        let version = version(download, release, packages)?;
        let address = download.address.replace("{version}", &version);
        let lacking = |name: &str, kind, why: &str| Missing {
            name: name.to_owned(),
            kind,
            address: address.clone(),
            needed: switch_of(download).is_empty(),
            switched_off_by: switch_of(download),
            why: why.to_owned(),
        };
        match members(download, programs, &version) {
            Err(program) => {
                let why =
                    format!("the release has no `{program}`: `services.clusters: {{}}` in the definition brings it");
                missing.push(lacking(download.name, "file", &why));
            }
            Ok(members) => {
                for (name, why, needed) in download.lacks {
                    missing.push(Missing { needed: *needed, ..lacking(name, "part", why) });
                }
                versions.insert(download.version, version.clone());
                let packed = matches!(download.holds, Holds::Archive(_));
                files.push(Carried { download: download.name, address, version, members, packed });
            }
        }
    }
    let mut images: BTreeMap<&str, &Image> = BTreeMap::new();
    for wanted in IMAGES {
        let begins = format!("{}:", wanted.repository);
        let found = release.image(&begins);
        ensure!(found.is_some(), "the release has no image `{begins}*`");
        images.extend(found.map(|image| (image.reference.as_str(), image)));
        let tag = found.and_then(|image| image.reference.strip_prefix(&begins));
        if let (Some((variable, prefix)), Some(tag)) = (wanted.version, tag) {
            versions.insert(variable, tag.strip_prefix(prefix).unwrap_or(tag).to_owned());
        }
    }
    let flannel = release.image(&format!("{FLANNEL}:"));
    let of_definition = release.images.iter().filter(|image| named.contains(&image.reference));
    images.extend(flannel.into_iter().chain(of_definition).map(|image| (image.reference.as_str(), image)));
    missing.extend(ABSENT.iter().map(|absent| Missing {
        name: absent.name.to_owned(),
        kind: if absent.image { "image" } else { "file" },
        address: absent.address.to_owned(),
        needed: absent.switch.is_empty(),
        switched_off_by: owned(absent.switch),
        why: "no release carries it".to_owned(),
    }));
    if flannel.is_none() {
        missing.push(Missing {
            name: "the network between nodes".to_owned(),
            kind: "image",
            address: format!("{FLANNEL}:{}", modules::FLANNEL.version(packages)?),
            needed: true,
            switched_off_by: BTreeMap::new(),
            why: "the release has none: `services.clusters: {}` in the definition brings it".to_owned(),
        });
    }
    let images = images.into_values().cloned().collect();
    Ok(Plan { files, images, versions, missing, flannel: flannel.is_some() })
}

/// The variable that switches a download off: of those that a release may carry, only Helm has one.
fn switch_of(download: &Download) -> BTreeMap<String, String> {
    if download.name == "helm" { owned(&[("helm_enabled", "false")]) } else { BTreeMap::new() }
}

fn owned(switch: facts::Switch) -> BTreeMap<String, String> {
    switch.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A component's version without `v`.
fn version(download: &Download, release: &Release, packages: &Path) -> Result<String> {
    let set = |set: &&ModuleSet| set.name == download.set;
    let version = if download.set == modules::KUBERNETES.name {
        release.kubernetes.version.clone()
    } else {
        match modules::SETS.iter().chain(modules::ON_DEMAND).find(set) {
            Some(set) => set.version(packages)?,
            None => anyhow::bail!("no set of modules is named `{}`", download.set),
        }
    };
    Ok(version.trim_start_matches('v').to_owned())
}

/// The programs of the download, or the name of one that the release lacks.
fn members(download: &Download, programs: &Made, version: &str) -> Result<Vec<(String, Blob)>, &'static str> {
    let one = |path: &str, program: &'static str| -> Result<(String, Blob), &'static str> {
        let blob = programs.files.get(program).cloned().ok_or(program)?;
        Ok((path.replace("{version}", version), blob))
    };
    match download.holds {
        Holds::Program(program) => Ok(vec![one(program, program)?]),
        Holds::Archive(members) => members.iter().map(|(path, program)| one(path, program)).collect(),
    }
}

/// Writes all of it. `flannel` is the manifest of the network, for the cluster's pods.
pub fn write(
    folder: &mut Folder,
    cache: &Cache,
    release: &Release,
    plan: &Plan,
    addresses: &Addresses,
    flannel: &str,
) -> Result<()> {
    let mut checksums = BTreeMap::new();
    for file in &plan.files {
        let path = format!("{FILES}/{}", file.address);
        let written = match file.members.as_slice() {
            [(_, program)] if !file.packed => folder.program(&path, cache, program)?,
            members => {
                let members: Vec<_> = members.iter().map(|(path, blob)| (path.clone(), blob)).collect();
                folder.archive(&path, cache, &members)?
            }
        };
        checksums.insert(file.download, written);
    }
    let mut list = String::new();
    for image in &plan.images {
        folder.image(CONTAINERS, cache, image, release.built)?;
        let _ = writeln!(list, "{}  {}", layout::file_name(&image.reference), without_registry(&image.reference));
    }
    folder.write(&format!("{CONTAINERS}/{CONTAINERS}.txt"), list.as_bytes())?;
    let urls: BTreeSet<String> = plan.files.iter().map(|file| format!("https://{}\n", file.address)).collect();
    let references: BTreeSet<String> = plan.images.iter().map(|image| format!("{}\n", image.reference)).collect();
    for (name, lines) in [("files", urls), ("images", references)] {
        folder.write(&format!("temp/{name}.list"), lines.into_iter().collect::<String>().as_bytes())?;
    }
    folder.write(VARIABLES, variables(release, plan, &checksums, addresses).as_bytes())?;
    folder.write(MISSING, &[serde_json::to_vec_pretty(&plan.missing)?, b"\n".to_vec()].concat())?;
    if plan.flannel {
        folder.write("kube-flannel.yaml", flannel.as_bytes())?;
    }
    Ok(())
}

/// Registries whose name kubespray's script removes, because `*_image_repo` names another registry instead.
pub const REGISTRIES: [&str; 5] = ["docker.io", "gcr.io", "ghcr.io", "quay.io", "registry.k8s.io"];

/// The name of an image below the registry that kubespray pulls from.
fn without_registry(reference: &str) -> &str {
    let name = reference.split('@').next().unwrap_or(reference);
    let known = |(registry, path)| REGISTRIES.contains(&registry).then_some(path);
    name.split_once('/').and_then(known).unwrap_or(name)
}

#[cfg(test)]
mod tests;
