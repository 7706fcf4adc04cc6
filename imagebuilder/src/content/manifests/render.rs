//! Helm and kustomize, run in the toolbox without any network.
//!
//! A chart is rendered twice, the second time at another second and in a time zone that is more than a year away. What
//! differs would differ from build to build: it is refused and named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Stage;
use super::documents::{self, Object};
use super::inputs::{Origin, Source};
use crate::config::Chart;
use crate::host::command::pause;
use crate::layer::kubernetes::place;
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

    /// The objects of a source. `api_versions`: what earlier sets add to those that every cluster has.
    pub fn objects(&self, source: &Source, api_versions: &[String]) -> Result<Vec<Object>> {
        match &source.origin {
            Origin::Files(files) => {
                let mut objects = Vec::new();
                for (name, file) in files {
                    objects
                        .extend(documents::read(&fs_err::read_to_string(file)?, name).map_err(|error| hinted(&error))?);
                }
                Ok(objects)
            }
            Origin::Kustomization { directory, reads } => {
                let tool = self.tool("kubectl").arg("kustomize").arg(directory);
                let tool = reads.iter().fold(tool, |tool, read| tool.reads(read));
                let text = text_of(tool).with_context(|| format!("rendering {}", source.title))?;
                documents::read(&text, &source.title).map_err(|error| hinted(&error))
            }
            Origin::Chart(chart) => self.chart(source, chart, api_versions),
        }
    }

    fn chart(&self, source: &Source, chart: &Chart, api_versions: &[String]) -> Result<Vec<Object>> {
        let here = self.template(source, chart, api_versions, None)?;
        pause(ANOTHER_SECOND);
        let there = self.template(source, chart, api_versions, Some(&self.work.join("far-away")))?;
        let objects = documents::read(&here, &source.title).map_err(|error| hinted(&error))?;
        if here == there {
            return Ok(objects);
        }
        let differ = differing(&objects, &documents::read(&there, &source.title).map_err(|error| hinted(&error))?);
        bail!(
            "{} gives something else each time it is rendered: {}\nhint: it uses a function such as `genCA`, \
             `randAlphaNum` or `now`: set the value in `values`, or let the cluster make it",
            source.title,
            if differ.is_empty() { "its comments or order".to_owned() } else { differ.join(", ") }
        );
    }

    fn template(&self, source: &Source, chart: &Chart, versions: &[String], zone: Option<&Path>) -> Result<String> {
        let home = self.work.join("home");
        let mut tool = self.tool("helm").args(["template", chart.name.as_str()]).arg(&chart.chart).reads(&chart.chart);
        tool = tool.args(["--namespace", chart.namespace.as_str(), "--kube-version", self.stage.version]);
        tool = tool.args(["--include-crds", "--skip-tests"]).writes(&home);
        for version in versions {
            tool = tool.args(["--api-versions", version]);
        }
        if let Some(values) = &chart.values {
            tool = tool.arg("--values").arg(values).reads(values);
        }
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            tool = tool.env(variable, home.to_string_lossy());
        }
        if let Some(zone) = zone {
            tool = tool.env("TZ", format!(":{}", zone.display()));
        }
        text_of(tool).with_context(|| format!("rendering {}", source.title))
    }

    /// A program of ours in the toolbox, in a network namespace with nothing in it.
    fn tool(&self, program: &str) -> Tool<'_> {
        let tool = self.stage.toolbox.tool("unshare").args(["--net", "--"]).arg(self.work.join("bin").join(program));
        tool.reads(&self.work)
    }
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
