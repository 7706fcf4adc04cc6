//! What is wrong with the files that a definition names, as far as it shows before a build: fast, and without network,
//! toolbox and cache.
//!
//! ```text
//! Appliance ─> manifests, charts, values, recipes, each as its stage reads it ─> Flaw ─(place of its key)─> Problem
//! ```
//! Nothing is rendered: a build may find more.

mod chart;
mod kube_version;

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::closure::yaml::{self, Node, Value};
use super::images::recipe;
use super::manifests::inputs::{self, Part};
use super::manifests::{documents, render};
use crate::config::{Appliance, Chart, ChartOrigin, OsImageSource};
use crate::osimage;
use crate::problems::{Problem, Severity, line_and_column};

/// What is wrong with what one key names.
struct Flaw {
    /// List in `content`.
    list: &'static str,
    /// Which of its items.
    index: usize,
    /// Key of the item; none when the item is the path itself.
    key: Option<&'static str>,
    expected: &'static str,
    error: anyhow::Error,
}

/// Everything that is wrong with the files that a definition without errors names. `text` is that of the definition.
pub fn problems(appliance: &Appliance, text: &str) -> Vec<Problem> {
    let documents = yaml::documents(text).unwrap_or_default();
    let ours = |document: &&Node| document.get("kind").is_none_or(|kind| kind.text() == Some("Appliance"));
    let document = documents.iter().find(ours);
    let problem = |flaw: Flaw| {
        let span = document.and_then(|document| place(document, &flaw)).map_or(0..0, |node| node.bytes.clone());
        let (line, column) = line_and_column(text, span.start);
        let (found, hint) = told(&flaw.error, &appliance.directory);
        let (severity, key, expected) = (Severity::Error, flaw.path(), flaw.expected.to_owned());
        Problem { severity, key, line, column, span, secret: false, found, expected, hint }
    };
    flaws(appliance).into_iter().map(problem).collect()
}

fn flaws(appliance: &Appliance) -> Vec<Flaw> {
    let content = &appliance.content;
    let mut flaws = Vec::new();
    let mut note = |list, index, key, expected, looked: Result<()>| {
        flaws.extend(looked.err().map(|error| Flaw { list, index, key, expected, error }));
    };
    for (i, image) in content.images.iter().enumerate() {
        if let Some(folder) = recipe::folder(image) {
            note("images", i, Some("from"), "a recipe of an image", recipe::read(folder, image).map(drop));
        }
    }
    for (i, image) in content.os_images.iter().enumerate() {
        if let OsImageSource::Recipe { directory, .. } = &image.source {
            let read = osimage::recipe::Recipe::read(directory);
            note("osImages", i, Some("from"), "a recipe of an OS image", read.map(drop));
        }
    }
    for (i, path) in content.manifests.iter().enumerate() {
        note("manifests", i, None, "objects as `kubectl apply` takes them", manifests(path, &appliance.directory));
    }
    for (i, chart) in content.charts.iter().enumerate() {
        let Chart { chart, values, .. } = chart;
        if let ChartOrigin::Path(path) = chart {
            let looked = chart::check(path, &appliance.kubernetes.version.to_string());
            note("charts", i, Some("chart"), "a chart that Helm can install", looked);
        }
        if let Some(file) = values {
            let looked = render::text_in(file).and_then(|text| check_values(&text, &file.display().to_string()));
            note("charts", i, Some("values"), "a file with values for Helm", looked);
        }
    }
    flaws
}

impl Flaw {
    /// `content.charts[0].values`.
    fn path(&self) -> String {
        let key = self.key.map_or_else(String::new, |key| format!(".{key}"));
        format!("content.{}[{}]{key}", self.list, self.index)
    }
}

/// The node of a flaw's key.
fn place<'a>(document: &'a Node, flaw: &Flaw) -> Option<&'a Node> {
    let list = document.get("content")?.get(flaw.list)?;
    let item = match &list.value {
        Value::List(items) => items.get(flaw.index)?,
        Value::Scalar(_) | Value::Mapping(_) => return Some(list),
    };
    Some(flaw.key.and_then(|key| item.get(key)).unwrap_or(item))
}

/// What was found and what to do. Files below the definition are named as seen from there, as it names them itself.
fn told(error: &anyhow::Error, directory: &Path) -> (String, String) {
    let mut text = format!("{error:#}");
    let whole = fs_err::canonicalize(directory).unwrap_or_default();
    for directory in [whole.as_path(), directory].iter().filter(|path| !path.as_os_str().is_empty()) {
        text = text.replace(&format!("`{}/", directory.display()), "`");
    }
    let (found, hint) = text.split_once("\nhint: ").unwrap_or((&text, "correct it, or take it out of the definition"));
    // Readers that show lines of the file begin with a line that says it all, and that it is an error.
    let found = found.lines().next().unwrap_or_default().replacen("`: error: ", "`: ", 1);
    (found, hint.replace('\n', " "))
}

/// Files are read as they will be. What kustomizations name is only looked at: they may change it.
fn manifests(path: &Path, directory: &Path) -> Result<()> {
    for part in inputs::parts(path, directory)? {
        match part {
            Part::File(name, file) => drop(documents::read(&render::text_in(&file)?, &name)?),
            Part::Kustomization(_, kustomization) => {
                for file in kustomization.files()? {
                    yaml::documents(&render::text_in(&file)?)
                        .with_context(|| format!("reading `{}`", file.display()))?;
                }
            }
        }
    }
    Ok(())
}

/// Values are a mapping, or nothing. `file` is how messages name them.
fn check_values(text: &str, file: &str) -> Result<()> {
    let text = text.trim_start_matches('\u{feff}');
    for document in yaml::documents(text).with_context(|| format!("reading `{file}`"))? {
        let is_values = match &document.value {
            Value::Mapping(_) => true,
            Value::Scalar(text) => matches!(text.as_str(), "" | "~" | "null"),
            Value::List(_) => false,
        };
        let hint = "write `KEY: VALUE`, as the chart's own values are";
        ensure!(is_values, "`{file}:{}`: found no keys, expected some\nhint: {hint}", document.line);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
