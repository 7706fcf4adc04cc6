//! What a kustomization reads: every directory that it builds on, and the files that it names.
//!
//! Kustomize takes files only from below the directory that names them, and directories from anywhere. What it would
//! fetch over the network is refused: a build renders without one.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::content::closure::yaml::{self, Node, Value};

/// Names of a kustomization's file, as kustomize knows them.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Fields whose entries are directories or files.
const ROOTS: [&str; 6] = ["resources", "components", "bases", "generators", "transformers", "validators"];
/// Fields whose entries are files.
const FILES: [&str; 3] = ["configurations", "crds", "patchesStrategicMerge"];
/// Fields whose entries have a file in `path`.
const WITH_PATH: [&str; 3] = ["patches", "patchesJson6902", "replacements"];
/// Fields whose entries have files in `files`, `envs` and `env`.
const MAPS: [&str; 2] = ["configMapGenerator", "secretGenerator"];
/// Fields with charts that kustomize would run Helm for.
const HELM: [&str; 2] = ["helmCharts", "helmChartInflationGenerator"];

/// A directory with a kustomization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kustomization {
    /// The directory.
    pub directory: PathBuf,
    /// It, and every other directory that it builds on, directly or not.
    pub builds_on: Vec<PathBuf>,
}

/// The file of the kustomization in a directory.
pub fn file_in(directory: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| directory.join(name)).find(|file| file.is_file())
}

/// Whether a file is that of a kustomization.
pub fn is_file_of(file: &Path) -> bool {
    file.file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

impl Kustomization {
    /// The kustomization in a directory, with all that it names.
    pub fn read(directory: &Path) -> Result<Self> {
        let directory = fs_err::canonicalize(directory)?;
        let mut builds_on = vec![directory.clone()];
        let mut named = Vec::new();
        while let Some(at) = builds_on.get(named.len()).cloned() {
            let found = named_by(&at)?;
            for step in &found {
                if !builds_on.contains(&step.to) {
                    builds_on.push(step.to.clone());
                }
            }
            named.push(found);
        }
        check_circles(&builds_on, &named)?;
        Ok(Self { directory, builds_on })
    }

    /// The directories that hold all of it: what lies below another one is read with it.
    pub fn reads(&self) -> Vec<&Path> {
        let below_other = |path: &PathBuf| self.builds_on.iter().any(|other| other != path && path.starts_with(other));
        self.builds_on.iter().filter(|path| !below_other(path)).map(PathBuf::as_path).collect()
    }

    /// The files with objects that it and all that it builds on name.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for directory in &self.builds_on {
            let Some(file) = file_in(directory) else { continue };
            for document in documents(&file)? {
                let named = ROOTS.iter().flat_map(|field| entries(&document, field)).filter_map(Node::text);
                let paths = named.filter(|text| !is_inline(text)).map(|text| directory.join(text));
                files.extend(paths.filter(|path| path.is_file()));
            }
        }
        Ok(files)
    }

    /// Whether it is a component, which others use and which is nothing by itself.
    pub fn is_component(&self) -> Result<bool> {
        let Some(file) = file_in(&self.directory) else { return Ok(false) };
        let documents = documents(&file)?;
        Ok(documents.iter().any(|document| document.get("kind").and_then(Node::text) == Some("Component")))
    }
}

fn documents(file: &Path) -> Result<Vec<Node>> {
    yaml::documents(&fs_err::read_to_string(file)?).with_context(|| format!("reading `{}`", file.display()))
}

/// A directory that a kustomization names.
struct Step {
    to: PathBuf,
    /// ``` `site/kustomization.yaml:2` names `../base` ```.
    place: String,
}

/// An error when one of the directories builds on itself, or on one in which it lies: kustomize refuses both. `named` are
/// the steps that lead away from each of them.
fn check_circles(all: &[PathBuf], named: &[Vec<Step>]) -> Result<()> {
    let numbers: BTreeMap<&Path, usize> = all.iter().enumerate().map(|(i, path)| (path.as_path(), i)).collect();
    for (start, own) in all.iter().enumerate() {
        let mut came: BTreeMap<usize, (usize, &Step)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            for step in &named[at] {
                if own.starts_with(&step.to) {
                    let mut way = vec![step.place.as_str()];
                    let mut back = at;
                    while let Some((from, step)) = came.get(&back) {
                        way.insert(0, &step.place);
                        back = *from;
                    }
                    let told = if *own == step.to { "itself" } else { "a directory in which it lies" };
                    let hint = "remove one of these lines: what both need belongs into a directory that both name";
                    bail!("a kustomization cannot build on {told}, but {}\nhint: {hint}", way.join(", and "));
                }
                let next = numbers.get(step.to.as_path()).filter(|next| **next != start && !came.contains_key(next));
                if let Some(next) = next {
                    came.insert(*next, (at, step));
                    queue.push_back(*next);
                }
            }
        }
    }
    Ok(())
}

/// The directories that the kustomization in `directory` names. Its files are looked at.
fn named_by(directory: &Path) -> Result<Vec<Step>> {
    let Some(file) = file_in(directory) else {
        bail!(
            "`{}` has no kustomization\nhint: a directory that a kustomization names needs a `kustomization.yaml`",
            directory.display()
        );
    };
    let mut found = Vec::new();
    for document in documents(&file)? {
        let at = Named { file: &file, directory };
        for (field, helm) in HELM.iter().filter_map(|field| Some((field, document.get(field)?))) {
            if !is_empty(helm) {
                let hint = "name the chart in `content.charts` of the definition";
                bail!("{}: `{field}` of kustomizations is not rendered\nhint: {hint}", at.line(helm));
            }
        }
        for entry in ROOTS.iter().flat_map(|field| entries(&document, field)) {
            if let Some(to) = at.root(entry)? {
                let place = format!("{} names `{}`", at.line(entry), entry.text().unwrap_or_default());
                found.push(Step { to, place });
            }
        }
        for entry in files(&document) {
            at.file(entry)?;
        }
    }
    Ok(found)
}

/// Whether a field says nothing.
fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(text) => matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"),
        Value::List(items) => items.is_empty(),
        Value::Mapping(entries) => entries.is_empty(),
    }
}

/// The entries of a list.
fn entries<'a>(node: &'a Node, field: &str) -> &'a [Node] {
    match node.get(field).map(|list| &list.value) {
        Some(Value::List(entries)) => entries,
        Some(Value::Scalar(_) | Value::Mapping(_)) | None => &[],
    }
}

/// Nodes that name files.
fn files(document: &Node) -> Vec<&Node> {
    let mut all: Vec<&Node> = FILES.iter().flat_map(|field| entries(document, field)).collect();
    all.extend(WITH_PATH.iter().flat_map(|field| entries(document, field)).filter_map(|entry| entry.get("path")));
    for map in MAPS.iter().flat_map(|field| entries(document, field)) {
        all.extend(["files", "envs"].iter().flat_map(|field| entries(map, field)));
        all.extend(map.get("env"));
    }
    all.extend(document.get("openapi").and_then(|openapi| openapi.get("path")));
    all
}

/// Where names stand.
struct Named<'a> {
    file: &'a Path,
    directory: &'a Path,
}

impl Named<'_> {
    fn line(&self, node: &Node) -> String {
        format!("`{}:{}`", self.file.display(), node.line)
    }

    /// The directory that an entry names; none when it names a file of this directory, or holds its text itself.
    fn root(&self, entry: &Node) -> Result<Option<PathBuf>> {
        let Some(text) = entry.text().filter(|text| !is_inline(text)) else { return Ok(None) };
        let path = self.directory.join(text);
        if path.is_dir() {
            return Ok(Some(fs_err::canonicalize(&path)?));
        }
        self.file(entry).map(|()| None)
    }

    /// A file that must lie below the directory.
    fn file(&self, entry: &Node) -> Result<()> {
        let Some(text) = entry.text().filter(|text| !is_inline(text)) else { return Ok(()) };
        // `KEY=FILE` in generators; a `?` begins the query of a URL.
        let is_pair = !self.directory.join(text).exists() && !text.contains('?');
        let name = text.split_once('=').filter(|_| is_pair).map_or(text, |(_, file)| file);
        let path = self.directory.join(name);
        let at = self.line(entry);
        if !path.exists() {
            if is_remote(name) {
                let hint = "a build renders without network: copy it beside the kustomization and name that";
                bail!("{at}: `{text}` is not on this machine\nhint: {hint}");
            }
            bail!("{at}: there is no `{name}`\nhint: paths are relative to the kustomization that names them");
        }
        if !fs_err::canonicalize(&path)?.starts_with(self.directory) {
            let hint = "kustomize reads files only from below the directory that names them: copy it there, or give its \
                        directory a kustomization and name that";
            bail!("{at}: `{text}` lies outside of `{}`\nhint: {hint}", self.directory.display());
        }
        Ok(())
    }
}

/// Whether an entry is not a path but what would stand in the file.
fn is_inline(text: &str) -> bool {
    text.contains('\n') || text.trim_start().starts_with(['{', '['])
}

/// Whether kustomize would take it for a repository or a URL, which it fetches with `git` or over HTTP.
fn is_remote(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    let is_host = text.contains('/') && !host.starts_with('.') && host.contains('.');
    let marks = ["://", "git::", "?ref=", "?version=", ".git//"];
    is_host || host.contains('@') || host.contains(':') || marks.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::{Kustomization, is_remote};

    #[test]
    fn what_would_be_fetched_is_known() {
        for (text, remote) in [
            ("https://github.com/org/repo//deploy?ref=v1", true),
            ("github.com/org/repo", true),
            ("git@github.com:org/repo.git", true),
            ("git::https://host/x", true),
            ("gitlab.example.org/a/b//c", true),
            ("file:///srv/x", true),
            ("../base", false),
            ("./a.yaml", false),
            ("base", false),
            ("base/v1.2/a.yaml", false),
        ] {
            assert_eq!(is_remote(text), remote, "{text}");
        }
    }

    #[test]
    fn every_field_with_paths_is_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = fs_err::canonicalize(dir.path()).expect("a path");
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, text).expect("written");
        };
        let empty = "apiVersion: kustomize.config.k8s.io/v1beta1\n";
        let folders = ["base", "component", "old", "generator", "transformer", "validator"];
        for folder in folders {
            write(&format!("{folder}/kustomization.yaml"), empty);
        }
        write("site/a.env", "");
        write(
            "site/kustomization.yaml",
            "resources: [../base]\ncomponents: [../component]\nbases: [../old]\ngenerators: [../generator]\n\
             transformers:\n- ../transformer\n- |\n  apiVersion: builtin\n  kind: PrefixTransformer\n\
             validators: [../validator]\nconfigMapGenerator: [{name: a, envs: [a.env], files: [k=a.env, a.env]}]\n",
        );
        let read = || Kustomization::read(&root.join("site"));
        let found = read().expect("read").builds_on;
        assert_eq!(found.len(), 7);
        assert!(folders.iter().all(|folder| found.contains(&root.join(folder))), "{found:?}");
        write("outside.yaml", "a: b\n");
        write("kustomization.yaml", empty);
        for (line, words) in [
            ("resources: [\"https://example.org/x.yaml\"]", "is not on this machine"),
            ("components: [\"github.com/org/repo//c?ref=v1\"]", "is not on this machine"),
            ("resources: [gone.yaml]", "there is no `gone.yaml`"),
            ("patches: [{path: ../outside.yaml}]", "lies outside of"),
            ("configurations: [../outside.yaml]", "lies outside of"),
            ("openapi: {path: ../outside.yaml}", "lies outside of"),
            ("secretGenerator: [{name: s, files: [k=../outside.yaml]}]", "lies outside of"),
            ("helmCharts: [{name: x}]", "`helmCharts` of kustomizations is not rendered"),
            ("helmChartInflationGenerator: [{chartName: x}]", "content.charts"),
            ("helmCharts: []\nhelmChartInflationGenerator: [{chartName: x}]", "content.charts"),
            ("resources: [.]", "a kustomization cannot build on itself"),
            ("resources: [..]", "a kustomization cannot build on a directory in which it lies"),
        ] {
            write("site/kustomization.yaml", &format!("{empty}{line}\n"));
            let error = format!("{:#}", read().expect_err("refused"));
            let line = 1 + line.lines().count();
            assert!(error.contains(words) && error.contains(&format!("kustomization.yaml:{line}`")), "{error}");
        }
        for line in ["helmCharts: []", "helmChartInflationGenerator:", "helmCharts: null\nhelmGlobals: {}"] {
            write("site/kustomization.yaml", &format!("{empty}{line}\nresources: [../base]\n"));
            assert_eq!(read().expect(line).builds_on.len(), 2);
        }
    }

    #[test]
    fn kustomizations_that_build_on_each_other_are_named_with_their_lines() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = fs_err::canonicalize(dir.path()).expect("a path");
        let write = |name: &str, text: &str| {
            fs_err::create_dir_all(root.join(name)).expect("made");
            fs_err::write(root.join(name).join("kustomization.yaml"), text).expect("written");
        };
        write("a", "resources:\n- ../b\n");
        write("b", "components: [../c, ../d]\n");
        write("c", "resources: [../d]\n");
        write("d", "namePrefix: x\n");
        // One that two others need is no circle.
        assert_eq!(Kustomization::read(&root.join("a")).expect("read").builds_on.len(), 4);
        write("d", "\nresources: [../b]\n");
        for from in ["a", "b", "c", "d"] {
            let error = format!("{:#}", Kustomization::read(&root.join(from)).expect_err("a circle"));
            for words in
                ["on itself, but `", "d/kustomization.yaml:2` names `../b`", "b/kustomization.yaml:1` names `../"]
            {
                assert!(error.contains(words), "{error}");
            }
        }
    }
}
