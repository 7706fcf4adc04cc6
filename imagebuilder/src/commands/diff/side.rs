//! One side of a comparison: what an image or a lock holds, by kind and name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_api::release::{Blob, Digest, Release};
use anyhow::{Context as _, Result};
use serde_json::Value;

use super::super::inspect;
use crate::error::WrongUsage;
use crate::lock::Lock;
use crate::medium::{Found, Medium, MediumError};
use crate::report::CommandError;

/// Packages from Debian.
pub const PACKAGES: &str = "packages";
/// Go modules in the programs.
pub const GO: &str = "goModules";
/// Digests of what Go programs are built from, as a lock has them.
pub const GO_SETS: &str = "goModuleSets";
/// Crates of the agent.
pub const CRATES: &str = "crates";
/// Programs by digest.
pub const PROGRAMS: &str = "programs";
/// Container images.
pub const IMAGES: &str = "images";
/// Layers.
pub const LAYERS: &str = "layers";
/// Kernel and initrd.
pub const BOOT: &str = "boot";
/// Files that the box serves.
pub const CONTENT: &str = "content";
/// Kernel parameters.
pub const PARAMETERS: &str = "parameters";
/// All blobs of the store.
pub const BLOBS: &str = "blobs";

/// Something that is there under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Version or digest.
    pub value: String,
    /// Bytes, where it has a size of its own.
    pub bytes: Option<u64>,
}

/// Things of one kind, by name.
pub type Section = BTreeMap<String, Entry>;

/// An image or a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// What the user called it.
    pub name: String,
    /// `image` or `lock`.
    pub kind: &'static str,
    /// Name and version of the appliance, of an image.
    pub title: String,
    /// Release id, of an image.
    pub release: Option<String>,
    /// Bytes of the file, of an image.
    pub bytes: Option<u64>,
    /// What it holds. A kind that is not here is not known: it is not compared.
    pub sections: BTreeMap<&'static str, Section>,
    /// What a lock holds beyond, by its own keys.
    pub more: BTreeMap<String, Section>,
}

/// What was opened.
pub enum Opened {
    /// An image with its release.
    Image(Box<Medium>, Box<Found>, Box<Release>),
    /// A lock.
    Lock(Box<Lock>),
}

/// Opens an image, a lock, or the lock of a definition.
pub fn open(path: &Path) -> Result<Opened, CommandError> {
    let medium = match Medium::open(path) {
        Ok(medium) => medium,
        Err(MediumError::Foreign(_)) => return lock(path),
        Err(_) if path.is_dir() || path.extension().is_some_and(|ending| ending == "lock" || ending == "yaml") => {
            return lock(path);
        }
        Err(_) => inspect::open(path)?,
    };
    let name = path.display();
    let mut releases = medium.releases()?;
    let found = releases.pop().with_context(|| format!("there is no release in `{name}`"))?;
    let release = found.release().with_context(|| format!("reading the release of `{name}`"))?;
    Ok(Opened::Image(Box::new(medium), Box::new(found), Box::new(release)))
}

fn lock(path: &Path) -> Result<Opened, CommandError> {
    let definition = if path.is_dir() { path.join("appliance.yaml") } else { path.to_owned() };
    let path = if definition.extension().is_some_and(|ending| ending == "yaml") {
        Lock::path_for(&definition)
    } else {
        definition
    };
    let wrong = |message: String| {
        let hint = "give images (raw, qcow2, ISO) or locks (`appliance.lock`)".to_owned();
        CommandError::from(WrongUsage { message, hint })
    };
    match Lock::read(&path) {
        Ok(Some(lock)) => Ok(Opened::Lock(Box::new(lock))),
        Ok(None) => Err(wrong(format!("`{}` is not there", path.display()))),
        Err(error) => Err(wrong(format!("`{}` is neither an image nor a lock: {error}", path.display()))),
    }
}

impl Side {
    /// What was opened, as something to compare.
    pub fn of(path: &Path, opened: &Opened) -> Result<Self> {
        let mut side = match opened {
            Opened::Image(medium, found, release) => of_image(medium, found, release)?,
            Opened::Lock(lock) => of_lock(lock)?,
        };
        side.name = path.display().to_string();
        Ok(side)
    }
}

fn entry(value: &dyn std::fmt::Display, bytes: Option<u64>) -> Entry {
    Entry { value: value.to_string(), bytes }
}

fn of_image(medium: &Medium, found: &Found, release: &Release) -> Result<Side> {
    let mut sections = BTreeMap::new();
    let packages = release.packages.iter().map(|package| (package.name.clone(), entry(&package.version, None)));
    sections.insert(PACKAGES, packages.collect());
    let images = release.images.iter().map(|image| {
        let bytes = image.blobs.iter().map(|blob| blob.size).sum();
        (image.reference.clone(), entry(&image.manifest, Some(bytes)))
    });
    sections.insert(IMAGES, images.collect());
    let layers = release.layers.iter().map(|layer| (layer.name.clone(), entry(&layer.digest, Some(layer.size))));
    sections.insert(LAYERS, layers.collect());
    let content = release.content.iter().map(|file| (file.path.clone(), entry(&file.digest, Some(file.size))));
    sections.insert(CONTENT, content.collect());
    let blobs = crate::pipeline::store_blobs(release).into_iter();
    sections.insert(BLOBS, blobs.map(|blob| (blob.digest.to_string(), entry(&"", Some(blob.size)))).collect());
    let (mut boot, mut parameters) = (Section::new(), Section::new());
    for one in &release.boot {
        let file = |blob: &Blob| entry(&blob.digest, Some(blob.size));
        boot.insert(format!("{}/vmlinuz", one.name), file(&one.kernel));
        boot.insert(format!("{}/initrd", one.name), file(&one.initrd));
        boot.insert(format!("{}/kernel", one.name), entry(&one.kernel_release, None));
        parameters.extend(one.command_line.split_whitespace().map(|word| (word.to_owned(), Entry::default())));
    }
    sections.insert(BOOT, boot);
    sections.insert(PARAMETERS, parameters);
    if let Some((list, _)) = &found.sbom {
        sections.extend(of_list(&serde_json::from_slice(list).context("reading the list of what is in it")?));
    }
    Ok(Side {
        name: String::new(),
        kind: "image",
        title: format!("{} {}", release.name, release.version),
        release: Some(found.folder.clone()),
        bytes: Some(medium.bytes),
        sections,
        more: BTreeMap::new(),
    })
}

/// Programs, modules and crates of an SPDX list. Several versions of one name are one entry.
fn of_list(list: &Value) -> BTreeMap<&'static str, Section> {
    let kinds = [("SPDXRef-Go-", GO), ("SPDXRef-Crate-", CRATES), ("SPDXRef-Program-", PROGRAMS)];
    let mut versions: BTreeMap<(&'static str, String), BTreeSet<String>> = BTreeMap::new();
    for package in list["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let Some((_, kind)) = kinds.iter().find(|(prefix, _)| text("SPDXID").starts_with(prefix)) else { continue };
        let checksum = package["checksums"][0]["checksumValue"].as_str().unwrap_or_default();
        let value = if *kind == PROGRAMS { format!("sha256:{checksum}") } else { text("versionInfo").to_owned() };
        versions.entry((*kind, text("name").to_owned())).or_default().insert(value);
    }
    let mut sections: BTreeMap<&'static str, Section> = kinds.map(|(_, kind)| (kind, Section::new())).into();
    for ((kind, name), values) in versions {
        let value = values.into_iter().collect::<Vec<_>>().join(", ");
        sections.entry(kind).or_default().insert(name, Entry { value, bytes: None });
    }
    sections
}

fn of_lock(lock: &Lock) -> Result<Side> {
    let mut sections = BTreeMap::new();
    let inside = ["os", "kernel"].iter().filter_map(|set| lock.debian.get(*set)).flatten();
    sections.insert(PACKAGES, inside.map(|deb| (deb.name.clone(), entry(&deb.version, None))).collect());
    let sets = lock.modules.iter().map(|(set, digest): (&String, &Digest)| (set.clone(), entry(digest, None)));
    sections.insert(GO_SETS, sets.collect());
    let own = lock.binaries.iter().map(|(name, blob)| (name.clone(), blob));
    let others = lock
        .cluster_binaries
        .iter()
        .flat_map(|(version, programs)| programs.iter().map(move |(name, blob)| (format!("{name} {version}"), blob)));
    let programs: Section =
        own.chain(others).map(|(name, blob)| (name, entry(&blob.digest, Some(blob.size)))).collect();
    if !programs.is_empty() {
        sections.insert(PROGRAMS, programs);
    }
    let mut more = BTreeMap::new();
    for (set, debs) in lock.debian.iter().filter(|(set, _)| !["os", "kernel"].contains(&set.as_str())) {
        let debs = debs.iter().map(|deb| (deb.name.clone(), entry(&deb.version, None)));
        more.insert(format!("packages of {set}"), debs.collect());
    }
    let known = ["lockVersion", "made", "debian", "modules", "binaries", "clusterBinaries"];
    if let Value::Object(whole) = serde_json::to_value(lock)? {
        more.extend(whole.iter().filter(|(key, _)| !known.contains(&key.as_str())).map(|(k, v)| (k.clone(), flat(v))));
    }
    Ok(Side { kind: "lock", sections, more, ..Side::default() })
}

/// Entries of any part of a lock: those of a map by key, those of a list by what names them.
fn flat(value: &Value) -> Section {
    let name_of = |index: usize, item: &Value| {
        let named = ["reference", "path", "name"].iter().find_map(|key| item.get(*key)?.as_str());
        named.map_or_else(|| format!("{index}"), str::to_owned)
    };
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), entry(value, None))).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, item)| (name_of(index, item), entry(item, None))).collect()
        }
        other => [(String::new(), entry(other, None))].into(),
    }
}
