//! A light look at a chart: what Helm would refuse about it whatever its templates say.
//!
//! These are the rules of Helm 4: `Metadata.Validate`, `CheckDependencies`, `checkIfInstallable`, `IsCompatibleRange`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{check_values, kube_version};
use crate::content::closure::yaml::{self, Node, Value};

/// The file that describes a chart.
const CHART: &str = "Chart.yaml";
/// Where charts for Helm 2 name what they need.
const REQUIREMENTS: &str = "requirements.yaml";
/// The chart's own values.
const VALUES: &str = "values.yaml";
/// Folder of the charts that a chart needs.
const CHARTS: &str = "charts";
/// Largest chart that Helm reads, unpacked (`MaxDecompressedChartSize`).
const MOST_BYTES: u64 = 100 << 20;

/// The files of a chart that are looked at, by name in it.
type Files = BTreeMap<String, Vec<u8>>;

/// A folder or an archive, and the files in it.
struct Look<'a> {
    path: &'a Path,
    files: Files,
}

/// An error when Helm would not install the chart in a folder or an archive on that version of Kubernetes.
pub fn check(path: &Path, kubernetes: &str) -> Result<()> {
    let files = if path.is_dir() {
        in_folder(path)?
    } else {
        in_archive(fs_err::File::open(path)?).with_context(|| format!("unpacking `{}`", path.display()))?
    };
    Look { path, files }.check(kubernetes)
}

/// Whether a file of a chart is looked at.
fn is_wanted(name: &str) -> bool {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [name] => [CHART, REQUIREMENTS, VALUES].contains(name),
        [CHARTS, name] => is_archive(name),
        [CHARTS, _, name] => *name == CHART,
        _ => false,
    }
}

/// Whether a file in the folder `charts` is unpacked. Helm wants this ending, in small letters.
fn is_archive(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "tgz")
}

fn in_folder(path: &Path) -> Result<Files> {
    let mut files = Files::new();
    let walk = walkdir::WalkDir::new(path).min_depth(1).max_depth(3).follow_links(true).into_iter();
    // What cannot be reached is told where the chart is read as a whole.
    let walk =
        walk.filter_entry(|entry| entry.depth() > 1 || !entry.file_type().is_dir() || entry.file_name() == CHARTS);
    for entry in walk.filter_map(Result::ok).filter(|entry| entry.file_type().is_file()) {
        let name = entry.path().strip_prefix(path)?.to_string_lossy().into_owned();
        if is_wanted(&name) {
            files.insert(name, fs_err::read(entry.path())?);
        }
    }
    Ok(files)
}

/// Those of an archive, all of which lie in one folder.
fn in_archive(archive: impl Read) -> Result<Files> {
    let mut files = Files::new();
    let archive = flate2::read::MultiGzDecoder::new(archive).take(MOST_BYTES);
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let Some((_, name)) = path.trim_start_matches("./").split_once('/') else { continue };
        if entry.header().entry_type().is_file() && is_wanted(name) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            files.insert(name.to_owned(), bytes);
        }
    }
    Ok(files)
}

impl Look<'_> {
    /// A line of a file: `web/Chart.yaml:3`.
    fn place(&self, name: &str, line: usize) -> String {
        format!("`{}/{name}:{line}`", self.path.display())
    }

    fn check(&self, kubernetes: &str) -> Result<()> {
        let hint = "a chart is a folder with a `Chart.yaml`; `helm create NAME` makes one";
        if !self.files.contains_key(CHART) {
            bail!("`{}` holds no folder with a `{CHART}`\nhint: {hint}", self.path.display());
        }
        let Some(chart) = self.read(CHART)? else {
            bail!("{}: found no keys, expected `name` and `version`\nhint: {hint}", self.place(CHART, 1));
        };
        for key in ["name", "version"] {
            if text(&chart, key).is_empty() {
                let at = self.place(CHART, chart.line);
                bail!("{at}: the chart has no `{key}`\nhint: add it: Helm refuses a chart without it");
            }
        }
        self.check_kind(&chart)?;
        if let Some(range) = chart.get("kubeVersion")
            && kube_version::allows(text(&chart, "kubeVersion"), kubernetes) == Some(false)
        {
            let (at, range) = (self.place(CHART, range.line), text(&chart, "kubeVersion"));
            let hint = "take a version of the chart that is for this Kubernetes";
            bail!("{at}: it is for Kubernetes `{range}`, and the definition has {kubernetes}\nhint: {hint}");
        }
        match self.read(REQUIREMENTS)?.filter(|file| file.get("dependencies").is_some()) {
            Some(older) => self.check_needs(&older, REQUIREMENTS)?,
            None => self.check_needs(&chart, CHART)?,
        }
        let values = self.files.get(VALUES).map_or("".into(), |bytes| String::from_utf8_lossy(bytes));
        check_values(&values, &format!("{}/{VALUES}", self.path.display()))
    }

    fn check_kind(&self, chart: &Node) -> Result<()> {
        let Some(kind) = chart.get("type") else { return Ok(()) };
        let at = self.place(CHART, kind.line);
        match kind.text() {
            Some("" | "application") => Ok(()),
            Some("library") => {
                bail!("{at}: it is a library, which cannot be installed\nhint: name the chart that uses it")
            }
            other => {
                let told = other.unwrap_or("a collection");
                bail!("{at}: found `{told}`, expected `application` or `library`\nhint: write `type: application`")
            }
        }
    }

    /// The first document of a file, if it holds keys.
    fn read(&self, name: &str) -> Result<Option<Node>> {
        let Some(bytes) = self.files.get(name) else { return Ok(None) };
        let documents =
            documents(bytes).with_context(|| format!("reading `{}/{name}`", self.path.display()))?.into_iter();
        let has_keys = |document: &Node| matches!(&document.value, Value::Mapping(keys) if !keys.is_empty());
        Ok(documents.take(1).find(has_keys))
    }

    /// Everything that `file` names in `dependencies` lies in the folder `charts`.
    fn check_needs(&self, node: &Node, file: &str) -> Result<()> {
        let Some(Value::List(needs)) = node.get("dependencies").map(|needs| &needs.value) else { return Ok(()) };
        let there: Vec<String> = self.files.iter().filter_map(|(name, bytes)| name_of(name, bytes)).collect();
        for need in needs {
            let name = text(need, "name");
            if !name.is_empty() && !there.iter().any(|there| there == name) {
                let at = self.place(file, need.line);
                let hint = "`helm dependency update FOLDER` brings all that a chart needs into its folder";
                bail!("{at}: it needs the chart `{name}`, which is not in `charts/`\nhint: {hint}");
            }
        }
        Ok(())
    }
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Node::text).unwrap_or_default().trim()
}

fn documents(bytes: &[u8]) -> Result<Vec<Node>> {
    yaml::documents(String::from_utf8_lossy(bytes).trim_start_matches('\u{feff}'))
}

/// The name of a chart that a chart brings along; none when the file is no such chart.
fn name_of(file: &str, bytes: &[u8]) -> Option<String> {
    let inner = file.strip_prefix("charts/")?;
    // Helm passes over these.
    if inner.starts_with(['_', '.']) {
        return None;
    }
    let unpacked;
    let chart = if is_archive(inner) {
        unpacked = in_archive(bytes).ok()?;
        unpacked.get(CHART)?
    } else {
        bytes
    };
    Some(text(documents(chart).ok()?.first()?, "name").to_owned())
}
