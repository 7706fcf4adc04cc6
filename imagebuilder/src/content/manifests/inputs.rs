//! What the definition names, with the digest of every file that can change what is rendered.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use agent_api::release::Digest;
use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::documents;
use crate::config::{Chart, Content};
use crate::store::hash;

/// Names of a kustomization's file, as kustomize knows them.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Endings of files with objects.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
/// Fields of a kustomization that may name other directories.
const DIRECTORIES: [&str; 3] = ["resources", "components", "bases"];

/// What is rendered, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Files with objects, in this order: the name that messages use, and the path.
    Files(Vec<(String, PathBuf)>),
    /// A directory with a kustomization.
    Kustomization {
        /// The directory.
        directory: PathBuf,
        /// It, and every other directory that it builds on.
        reads: Vec<PathBuf>,
    },
    /// A chart.
    Chart(Chart),
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

/// All sources in the order in which they are applied: manifests, then charts. Paths in them are absolute.
pub fn sources(content: &Content, directory: &Path) -> Result<Vec<Source>> {
    let manifests = content.manifests.iter().map(|path| manifests(path, directory));
    manifests.chain(content.charts.iter().map(chart)).collect()
}

fn manifests(path: &Path, directory: &Path) -> Result<Source> {
    let shown = path.strip_prefix(directory).unwrap_or(path).display().to_string();
    let title = format!("manifests `{shown}`");
    let path = fs_err::canonicalize(path)?;
    let (origin, files) = if path.is_dir() && kustomization_of(&path).is_some() {
        let reads = reachable(&path).with_context(|| format!("looking at {title}"))?;
        let mut files = Vec::new();
        for (i, read) in reads.iter().enumerate() {
            files.extend(files_below(read)?.into_iter().map(|(name, file)| (format!("{i}/{name}"), file)));
        }
        (Origin::Kustomization { directory: path.clone(), reads }, files)
    } else if path.is_dir() {
        let mut files = files_below(&path)?;
        files.retain(|(_, file)| has_objects(file));
        if files.is_empty() {
            bail!(
                "{title} holds no file that ends with `.yaml`, `.yml` or `.json`\nhint: remove it, or put objects there"
            );
        }
        let shown = shown.trim_end_matches('/');
        let named = files.iter().map(|(name, file)| (format!("{shown}/{name}"), file.clone())).collect();
        (Origin::Files(named), files)
    } else {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (Origin::Files(vec![(shown, path.clone())]), vec![(name, path.clone())])
    };
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let name = label(&stem.unwrap_or_default().to_string_lossy());
    Ok(Source { title, name, namespace: "default".to_owned(), origin, digest: digest(&files, &[])? })
}

fn chart(chart: &Chart) -> Result<Source> {
    let title = format!("chart `{}`", chart.name);
    let absolute = |path: &Path| fs_err::canonicalize(path);
    let (from, values) = (absolute(&chart.chart)?, chart.values.as_deref().map(absolute).transpose()?);
    let mut files = if from.is_dir() { files_below(&from)? } else { vec![("chart.tgz".to_owned(), from.clone())] };
    files.extend(values.iter().map(|file| (" values".to_owned(), file.clone())));
    let (name, namespace): (String, String) = (chart.name.to_string(), chart.namespace.to_string());
    let digest = digest(&files, &[name.as_str(), namespace.as_str()])?;
    let chart = Chart { chart: from, values, ..chart.clone() };
    Ok(Source { title, name, namespace, origin: Origin::Chart(chart), digest })
}

/// All files below `directory`, by relative name, sorted.
fn files_below(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(directory).follow_links(true).sort_by_file_name() {
        let entry = entry.with_context(|| format!("reading `{}`", directory.display()))?;
        if entry.file_type().is_file() {
            let name = entry.path().strip_prefix(directory)?.to_string_lossy().into_owned();
            files.push((name, entry.path().to_owned()));
        }
    }
    files.sort();
    Ok(files)
}

fn digest(files: &[(String, PathBuf)], words: &[&str]) -> Result<Digest> {
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

fn kustomization_of(directory: &Path) -> Option<PathBuf> {
    KUSTOMIZATIONS.iter().map(|name| directory.join(name)).find(|file| file.is_file())
}

/// The directory and all directories of kustomizations that it names, directly or not.
fn reachable(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut seen = BTreeSet::new();
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        next += 1;
        if !seen.insert(directory.clone()) {
            continue;
        }
        let Some(file) = kustomization_of(&directory) else { continue };
        let text = fs_err::read_to_string(&file)?;
        let value: Value = documents::value(&text)
            .map_err(|error| anyhow::anyhow!("{error}"))
            .with_context(|| format!("reading `{}`", file.display()))?;
        for entry in DIRECTORIES.iter().filter_map(|field| value[*field].as_array()).flatten() {
            let Some(entry) = entry.as_str() else { continue };
            found.extend(directory_of(&directory, entry).with_context(|| format!("`{}`", file.display()))?);
        }
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for directory in found {
        // What lies below another one is read with it.
        if !unique.iter().any(|other| directory.starts_with(other)) {
            unique.push(directory);
        }
    }
    Ok(unique)
}

/// The directory that an entry of a kustomization names; none when it names a file.
fn directory_of(base: &Path, entry: &str) -> Result<Option<PathBuf>> {
    let path = base.join(entry);
    if entry.contains("://") || (!path.exists() && entry.contains("github.com")) {
        bail!(
            "`{entry}` is not on this machine\nhint: a build renders without network: copy it beside the kustomization"
        );
    }
    let climbs = Path::new(entry).components().any(|part| part == Component::ParentDir);
    if path.is_dir() {
        return Ok(Some(fs_err::canonicalize(&path)?));
    }
    if climbs && path.is_file() {
        bail!(
            "`{entry}` lies outside of the kustomization\nhint: kustomize reads files only from below its own directory"
        );
    }
    Ok(None)
}

/// The nearest DNS label to a file's name.
fn label(text: &str) -> String {
    let clean: String =
        text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect();
    let clean = clean.trim_matches('-');
    if clean.is_empty() { "objects".to_owned() } else { clean.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{label, sources};
    use crate::config::Content;

    #[test]
    fn names_become_labels() {
        for (text, expected) in [("10_Base App", "10-base-app"), ("web", "web"), ("__", "objects"), ("é-a", "a")] {
            assert_eq!(label(text), expected);
        }
    }

    #[test]
    fn the_digest_follows_every_file_that_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, text).expect("written");
        };
        file("base/kustomization.yaml", "resources: [a.yaml]\n");
        file("base/a.yaml", "a: 1\n");
        file("site/kustomization.yaml", "resources:\n- ../base\n");
        file("site/unused.txt", "x");
        let content = Content { manifests: vec![dir.path().join("site")], ..Content::default() };
        let digest = || sources(&content, dir.path()).expect("sources").remove(0).digest;
        let before = digest();
        assert_eq!(digest(), before);
        file("base/a.yaml", "a: 2\n");
        assert_ne!(digest(), before, "the base is read, too");
        file("site/kustomization.yaml", "resources:\n- https://example.org/x.yaml\n");
        let error = format!("{:#}", sources(&content, dir.path()).expect_err("refused"));
        assert!(error.contains("is not on this machine"), "{error}");
    }

    #[test]
    fn a_folder_is_taken_in_the_order_of_its_names() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["b.yml", "a.json", "sub/c.yaml", "README.md"] {
            let path = dir.path().join("m").join(name);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, "").expect("written");
        }
        let content = Content { manifests: vec![dir.path().join("m")], ..Content::default() };
        let source = sources(&content, dir.path()).expect("sources").remove(0);
        let super::Origin::Files(files) = source.origin else { panic!("files") };
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["m/a.json", "m/b.yml", "m/sub/c.yaml"]);
        assert_eq!((source.title.as_str(), source.name.as_str()), ("manifests `m`", "m"));
    }
}
