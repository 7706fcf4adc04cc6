//! What the definition names, with the digest of every file that can change what is rendered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::release::Digest;
use anyhow::{Context, Result, bail};

use super::kustomization::{self, Kustomization};
use crate::config::{Chart, ChartOrigin, Content};
use crate::lock::images::LockedChart;
use crate::store::{Cache, hash};

/// Endings of files with objects.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// What is rendered, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Files and kustomizations, in this order.
    Manifests(Vec<Part>),
    /// A chart.
    Chart(ChartInput),
}

/// One part of an entry of `content.manifests`, and the name that messages use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A file with objects.
    File(String, PathBuf),
    /// A directory with a kustomization.
    Kustomization(String, Kustomization),
}

/// What of a chart is on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartInput {
    /// The chart itself.
    pub from: ChartFiles,
    /// File with values.
    pub values: Option<PathBuf>,
}

/// The files of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChartFiles {
    /// Those of a directory: name in the chart, and where it is. Links are followed, as Helm follows them.
    Directory(Vec<(String, PathBuf)>),
    /// An archive.
    Archive(PathBuf),
}

/// One entry of the definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// As messages and the lock name it: ``manifests `base/` ``, ``chart `web` ``.
    pub title: String,
    /// A DNS label: the name of the set.
    pub name: String,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// What is rendered.
    pub origin: Origin,
    /// Digest of all its files, their names included.
    pub digest: Digest,
}

/// Where sources are looked for.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `content` of the definition.
    pub content: &'a Content,
    /// Directory of the definition.
    pub directory: &'a Path,
    /// The charts of registries, as far as they are locked; none: there is no lock, and nothing will be rendered.
    pub charts: Option<&'a BTreeMap<String, LockedChart>>,
    /// Holds what came from registries.
    pub cache: &'a Cache,
}

impl Inputs<'_> {
    /// All sources in the order in which they are applied: manifests, then charts. Paths in them are absolute.
    pub fn sources(&self) -> Result<Vec<Source>> {
        let manifests = self.content.manifests.iter().map(|path| manifests(path, self.directory));
        manifests.chain(self.content.charts.iter().map(|chart| self.chart(chart))).collect()
    }

    fn chart(&self, chart: &Chart) -> Result<Source> {
        let title = format!("chart `{}`", chart.name);
        let values = chart.values.as_deref().map(fs_err::canonicalize).transpose()?;
        let (name, namespace) = (chart.name.to_string(), chart.namespace.to_string());
        let mut words = vec![name.clone(), namespace.clone()];
        let (from, mut files) = match &chart.chart {
            ChartOrigin::Path(path) => {
                let path = fs_err::canonicalize(path)?;
                if path.is_dir() {
                    let files = files_below(&path, Links::Whole).with_context(|| format!("looking at {title}"))?;
                    (ChartFiles::Directory(files.clone()), files)
                } else {
                    (ChartFiles::Archive(path.clone()), vec![("chart.tgz".to_owned(), path)])
                }
            }
            ChartOrigin::Registry(reference) => {
                let reference = reference.to_string();
                let locked = self.charts.and_then(|charts| charts.get(&reference));
                if self.charts.is_some() && locked.is_none() {
                    bail!("the lock does not name the chart `oci://{reference}`\nhint: `foothold lock --update`");
                }
                let blob = locked.map(|locked| locked.content.digest.clone());
                words.push(blob.as_ref().map_or(reference, |digest| digest.hex().to_owned()));
                let path = blob.map(|digest| self.cache.blob_path(&digest)).unwrap_or_default();
                (ChartFiles::Archive(path), Vec::new())
            }
        };
        files.extend(values.iter().map(|file| (" values".to_owned(), file.clone())));
        let digest = digest(&files, &words)?;
        Ok(Source { title, name, namespace, origin: Origin::Chart(ChartInput { from, values }), digest })
    }
}

fn manifests(path: &Path, directory: &Path) -> Result<Source> {
    let title = format!("manifests `{}`", shown(path, directory));
    let parts = parts(path, directory).with_context(|| format!("looking at {title}"))?;
    let path = fs_err::canonicalize(path)?;
    let mut files = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        match part {
            Part::File(_, file) => {
                let name = file.strip_prefix(&path).ok().filter(|name| !name.as_os_str().is_empty());
                let name = name.or_else(|| file.file_name().map(Path::new)).unwrap_or(file);
                files.push((name.display().to_string(), file.clone()));
            }
            Part::Kustomization(_, kustomization) => {
                for (i, read) in kustomization.reads().into_iter().enumerate() {
                    let below = files_below(read, Links::Any)?.into_iter();
                    files.extend(below.map(|(name, file)| (format!("{number}/{i}/{name}"), file)));
                }
            }
        }
    }
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let name = label(&stem.unwrap_or_default().to_string_lossy());
    let digest = digest(&files, &[])?;
    Ok(Source { title, name, namespace: "default".to_owned(), origin: Origin::Manifests(parts), digest })
}

/// How messages name an entry of `content.manifests`.
fn shown(path: &Path, directory: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}

/// What an entry of `content.manifests` is made of, at least one part. Paths in it are absolute; `directory` is that of the
/// definition.
pub fn parts(path: &Path, directory: &Path) -> Result<Vec<Part>> {
    let shown = shown(path, directory);
    let shown = shown.trim_end_matches('/').to_owned();
    let path = fs_err::canonicalize(path)?;
    if path.is_file() && !kustomization::is_file_of(&path) {
        return Ok(vec![Part::File(shown, path)]);
    }
    let directory = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(&path) };
    if kustomization::file_in(directory).is_some() {
        return Ok(vec![Part::Kustomization(shown, Kustomization::read(directory)?)]);
    }
    let parts = parts_below(directory, &shown)?;
    if parts.is_empty() {
        bail!("it holds no file that ends with `.yaml`, `.yml` or `.json`\nhint: remove it, or put objects there");
    }
    let kept = without_bases(parts)?;
    if kept.is_empty() {
        let hint = "add a kustomization that uses them";
        bail!("it holds only components (`kind: Component`), which are nothing by themselves\nhint: {hint}");
    }
    Ok(kept)
}

/// Files and kustomizations below a directory that has no kustomization itself.
fn parts_below(directory: &Path, shown: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut walk = walkdir::WalkDir::new(directory).min_depth(1).follow_links(true).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.path().is_some_and(is_hidden) => continue,
            // What would not be read need not be there. A name without an ending may have been that of a folder.
            Err(error) if is_lost_link(&error) && error.path().is_some_and(is_of_others) => continue,
            Err(error) => return Err(not_there(error)),
        };
        let name = entry.path().strip_prefix(directory)?.display();
        if is_hidden(entry.path()) {
            // Of version control and editors.
            if entry.file_type().is_dir() {
                walk.skip_current_dir();
            }
        } else if entry.file_type().is_dir() && kustomization::file_in(entry.path()).is_some() {
            walk.skip_current_dir();
            parts.push(Part::Kustomization(format!("{shown}/{name}"), Kustomization::read(entry.path())?));
        } else if entry.file_type().is_file() && has_objects(entry.path()) {
            parts.push(Part::File(format!("{shown}/{name}"), entry.path().to_owned()));
        }
    }
    Ok(parts)
}

/// Leaves out components, and the kustomizations that others build on: their objects come with those others. What only
/// components build on stays: they are nothing by themselves.
fn without_bases(parts: Vec<Part>) -> Result<Vec<Part>> {
    let mut whole: Vec<Kustomization> = Vec::new();
    for part in &parts {
        if let Part::Kustomization(_, kustomization) = part
            && !kustomization.is_component()?
        {
            whole.push(kustomization.clone());
        }
    }
    let is_kept = |part: &Part| match part {
        Part::File(..) => true,
        Part::Kustomization(_, own) => {
            let used = |other: &Kustomization| other != own && other.builds_on.contains(&own.directory);
            whole.contains(own) && !whole.iter().any(used)
        }
    };
    Ok(parts.into_iter().filter(is_kept).collect())
}

/// What links in a folder must lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    /// Something: who reads the folder follows all of them.
    Whole,
    /// Anything: only what is named is read, and has been looked at.
    Any,
}

/// All files below `directory`, by relative name, sorted. What version control and locks of editors leave is none.
fn files_below(directory: &Path, links: Links) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    let walk = walkdir::WalkDir::new(directory).follow_links(true).sort_by_file_name().into_iter();
    for entry in walk.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git") {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.path().is_some_and(is_hidden) => continue,
            Err(error) if links == Links::Any && (is_lost_link(&error) || error.loop_ancestor().is_some()) => continue,
            Err(error) => return Err(not_there(error)),
        };
        if entry.file_type().is_file() {
            let name = entry.path().strip_prefix(directory)?.to_string_lossy().into_owned();
            files.push((name, entry.path().to_owned()));
        }
    }
    files.sort();
    Ok(files)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether what cannot be read is a link that leads nowhere.
fn is_lost_link(error: &walkdir::Error) -> bool {
    error.path().is_some_and(|path| path.is_symlink() && !path.exists())
}

/// Whether a name is that of a file with something else than objects: it ends with another word.
fn is_of_others(file: &Path) -> bool {
    let ending = file.extension().unwrap_or_default().as_encoded_bytes();
    ending.first().is_some_and(u8::is_ascii_alphabetic) && !has_objects(file)
}

/// What to say of a link that leads nowhere or in a circle, and of what cannot be read.
fn not_there(error: walkdir::Error) -> anyhow::Error {
    let path = error.path().unwrap_or(Path::new("")).to_owned();
    if let Some(ancestor) = error.loop_ancestor() {
        return anyhow::anyhow!(
            "`{}` is a link to `{}`, in which it lies itself\nhint: remove the link",
            path.display(),
            ancestor.display()
        );
    }
    match fs_err::read_link(&path) {
        Ok(target) => anyhow::anyhow!(
            "`{}` is a link to `{}`, which is not there\nhint: remove the link, or bring back what it leads to",
            path.display(),
            target.display()
        ),
        Err(_) => error.into(),
    }
}

fn digest(files: &[(String, PathBuf)], words: &[String]) -> Result<Digest> {
    let mut text = String::new();
    for word in words {
        text.extend([word, "\n"]);
    }
    for (name, file) in files {
        let blob = hash::file(file)?;
        text.extend([name.as_str(), "\0", blob.digest.hex(), "\n"]);
    }
    Ok(hash::bytes(text.as_bytes()))
}

fn has_objects(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

/// The nearest DNS label to a file's name.
fn label(text: &str) -> String {
    let clean: String =
        text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect();
    let clean = clean.trim_matches('-');
    if clean.is_empty() { "objects".to_owned() } else { clean.to_owned() }
}

#[cfg(test)]
#[path = "inputs_tests.rs"]
mod tests;
