//! Helm and kustomize, run in the toolbox without any network.
//!
//! Helm gets the API versions that the box will serve, those of the definitions in the chart's own folder `crds` among
//! them. A chart is rendered twice, the second time at another second and in a time zone that is more than a year away. What
//! differs would differ from build to build: it is refused and named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Stage;
use super::documents::{self, Object};
use super::inputs::{ChartFiles, ChartInput, Origin, Part, Source};
use super::sets::api_versions;
use crate::host::command::pause;
use crate::rootfs::programs::place;
use crate::toolbox::Tool;

/// Until the second rendering the clock moves on to another second.
const ANOTHER_SECOND: Duration = Duration::from_millis(1100);
/// Seconds east: every part of a date differs from UTC's, from the year to the second.
const FAR_AWAY: i32 = 400 * 86_400 + 3_661;

/// Renders sources.
pub struct Renderer<'a> {
    stage: &'a Stage<'a>,
    /// Programs, homes of Helm, and the zone file.
    work: PathBuf,
}

impl<'a> Renderer<'a> {
    /// Lays the programs out in `work`.
    pub fn new(stage: &'a Stage<'a>, work: &Path) -> Result<Self> {
        for folder in ["bin", "home"] {
            fs_err::create_dir_all(work.join(folder))?;
        }
        for program in stage.tools.files.keys() {
            place(stage.cache, stage.tools, program, &work.join("bin").join(program))?;
        }
        fs_err::write(work.join("far-away"), zone(FAR_AWAY))?;
        Ok(Self { stage, work: work.to_owned() })
    }

    /// The objects of an entry of `content.manifests`.
    pub fn manifests(&self, source: &Source, parts: &[Part]) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for part in parts {
            let (name, text) = match part {
                Part::File(name, file) => (name, text_in(file)?),
                Part::Kustomization(name, kustomization) => {
                    let tool = self.tool("kubectl").arg("kustomize").arg(&kustomization.directory);
                    let tool = kustomization.reads().into_iter().fold(tool, Tool::reads);
                    (name, text_of(tool).with_context(|| format!("rendering {}: `{name}`", source.title))?)
                }
            };
            objects.extend(documents::read(&text, name).map_err(|error| hinted(&error))?);
        }
        Ok(objects)
    }

    /// A chart as a cluster with these API versions would install it.
    pub fn chart(&self, source: &Source, versions: &BTreeSet<String>) -> Result<(Rendering, Vec<Object>)> {
        let Origin::Chart(chart) = &source.origin else { bail!("{} is no chart", source.title) };
        let folder = self.lay_out(source, chart)?;
        // Helm installs the folders `crds` first. Those of all parts of the chart: some may be switched off.
        let all = text_of(self.helm(&folder, &["show", "crds", "./chart"]))
            .with_context(|| format!("looking for definitions in {}", source.title))?;
        let crds = documents::read(&all, &source.title).map_err(|error| hinted(&error))?;
        let all = api_versions(&crds);
        let mut rendering = Rendering { folder, sees: versions.union(&all).cloned().collect(), text: String::new() };
        let mut objects = match self.template(source, &mut rendering, &crds) {
            // A chart may refuse a cluster that has what it brings itself, if that part of it is switched off.
            Err(error) if !all.is_empty() => {
                rendering.sees.clone_from(versions);
                self.template(source, &mut rendering, &crds).map_err(|_| error)?
            }
            made => made?,
        };
        let own = api_versions(objects.iter().filter(|object| object.is_of_crds()));
        let exactly: BTreeSet<String> = versions.union(&own).cloned().collect();
        if rendering.sees != exactly {
            rendering.sees = exactly;
            objects = self.template(source, &mut rendering, &crds)?;
        }
        Ok((rendering, objects))
    }

    fn template(&self, source: &Source, rendering: &mut Rendering, crds: &[Object]) -> Result<Vec<Object>> {
        rendering.text = self.text(source, rendering, None)?;
        documents::read_chart(&rendering.text, &source.title, crds).map_err(|error| hinted(&error))
    }

    /// Renders these once more, later and elsewhere: what differs would differ from build to build.
    pub fn check_again<'b>(&self, all: impl Iterator<Item = (&'b Source, &'b Rendering)>) -> Result<()> {
        for (number, (source, here)) in all.enumerate() {
            if number == 0 {
                pause(ANOTHER_SECOND);
            }
            let there = self.text(source, here, Some(&self.work.join("far-away")))?;
            if here.text == there {
                continue;
            }
            let read = |text: &str| documents::read(text, &source.title).map_err(|error| hinted(&error));
            let differ = differing(&read(&here.text)?, &read(&there)?);
            bail!(
                "{} gives something else each time it is rendered: {}\nhint: it uses a function such as `genCA`, \
                 `randAlphaNum` or `now`: set the value in `values`, or let the cluster make it",
                source.title,
                if differ.is_empty() { "its comments or order".to_owned() } else { differ.join(", ") }
            );
        }
        Ok(())
    }

    /// Lays a chart out in a folder of its own, with the files that its links lead to. There its path has no characters
    /// that mean something to Helm.
    fn lay_out(&self, source: &Source, chart: &ChartInput) -> Result<PathBuf> {
        let folder = self.work.join("charts").join(&source.name);
        if folder.exists() {
            return Ok(folder);
        }
        let root = folder.join("chart");
        fs_err::create_dir_all(&folder)?;
        match &chart.from {
            ChartFiles::Archive(archive) => drop(fs_err::copy(archive, &root)?),
            ChartFiles::Directory(files) => {
                for (name, file) in files {
                    let to = root.join(name);
                    fs_err::create_dir_all(to.parent().unwrap_or(&root))?;
                    fs_err::copy(file, to)?;
                }
            }
        }
        // There may be none: then the chart's own count alone.
        let values = chart.values.as_ref().map(fs_err::read).transpose()?.unwrap_or_default();
        fs_err::write(folder.join("values.yaml"), values)?;
        Ok(folder)
    }

    fn text(&self, source: &Source, rendering: &Rendering, zone: Option<&Path>) -> Result<String> {
        let versions = rendering.folder.join("api-versions");
        let lines: Vec<&str> = rendering.sees.iter().map(String::as_str).collect();
        fs_err::write(&versions, lines.join("\n"))?;
        let words = ["template", &source.name, "./chart", "--namespace", &source.namespace, "--values", "values.yaml"];
        let tool = self.helm(&rendering.folder, &words).args(["--kube-version", self.stage.version]);
        let mut tool =
            tool.args(["--include-crds", "--skip-tests"]).env("HELM_API_VERSIONS", versions.to_string_lossy());
        if let Some(zone) = zone {
            tool = tool.env("TZ", format!(":{}", zone.display()));
        }
        text_of(tool).with_context(|| format!("rendering {}", source.title))
    }

    /// Helm, in the folder of a chart.
    fn helm(&self, folder: &Path, words: &[&str]) -> Tool<'_> {
        let home = self.work.join("home");
        let mut tool = self.tool("helm").args(words).cwd(folder).writes(&home);
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            tool = tool.env(variable, home.to_string_lossy());
        }
        tool
    }

    /// A program of ours in the toolbox, in a network namespace with nothing in it.
    fn tool(&self, program: &str) -> Tool<'_> {
        let tool = self.stage.toolbox.tool("unshare").args(["--net", "--"]).arg(self.work.join("bin").join(program));
        tool.reads(&self.work)
    }
}

/// What Helm was given, and what it made of it.
#[derive(Debug)]
pub struct Rendering {
    folder: PathBuf,
    sees: BTreeSet<String>,
    text: String,
}

/// The text of a file of the user, without a byte order mark.
pub fn text_in(file: &Path) -> Result<String> {
    let bytes = fs_err::read(file)?;
    let text = String::from_utf8(bytes).ok().with_context(|| {
        format!("`{}` is no text in UTF-8\nhint: save it as UTF-8, or take it out of the folder", file.display())
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn text_of(tool: Tool<'_>) -> Result<String> {
    String::from_utf8(tool.run()?).context("its output is no UTF-8")
}

fn hinted(error: &documents::DocumentError) -> anyhow::Error {
    anyhow::anyhow!(
        "{error}\nhint: `foothold build` takes what `kubectl apply` takes: correct the file, then `foothold lock --update`"
    )
}

/// Titles of objects that are only in one of two renderings, or differ.
fn differing(here: &[Object], there: &[Object]) -> Vec<String> {
    let by_title = |objects: &[Object]| -> BTreeMap<String, Value> {
        objects.iter().map(|object| (object.title(), object.value.clone())).collect()
    };
    let (here, there) = (by_title(here), by_title(there));
    let titles = here.keys().chain(there.keys().filter(|title| !here.contains_key(*title)));
    titles.filter(|title| here.get(*title) != there.get(*title)).map(|title| format!("`{title}`")).collect()
}

/// A time zone without rules, `east` seconds before UTC (RFC 8536, version 1: one local time type, nothing else).
fn zone(east: i32) -> Vec<u8> {
    let mut file = b"TZif\0".to_vec();
    file.resize(20, 0);
    // Counts: UT/local and standard/wall indicators, leap seconds, transitions, types, letters of names.
    for count in [0_u32, 0, 0, 0, 1, 4] {
        file.extend(count.to_be_bytes());
    }
    file.extend(east.to_be_bytes());
    file.extend([0, 0]);
    file.extend(b"FAR\0");
    file
}

#[cfg(test)]
mod tests {
    use super::super::documents;
    use super::{differing, zone};

    #[test]
    fn objects_that_differ_are_named() {
        let read = |text: &str| documents::read(text, "x").expect("objects");
        let object = |name: &str, data: &str| {
            format!(
                "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: web}}\ndata: {{a: {data}}}\n"
            )
        };
        let one = read(&[object("same", "x"), object("other", "x"), object("gone", "x")].concat());
        let two = read(&[object("same", "x"), object("other", "z"), object("new", "x")].concat());
        assert_eq!(differing(&one, &two), ["`Secret web/gone`", "`Secret web/other`", "`Secret web/new`"]);
        assert_eq!(zone(1).len(), 54);
    }
}
