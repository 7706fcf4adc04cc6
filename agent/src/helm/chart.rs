//! The chart of a release: fetched from the box, or made of its manifests, which Helm then treats like any other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::run::Ground;
use super::{ReleasePlan, Source};

/// How long a file of the box may take.
const FETCHED: Duration = Duration::from_secs(300);
/// Most bytes of a file of the box: Helm takes charts of 5 MiB, and what it records of one fits a Secret.
const MOST: u64 = 16 << 20;
/// Every file of the chart's `files`, as it is.
const TEMPLATE: &str =
    "{{- range $path, $bytes := .Files.Glob \"files/*\" }}\n---\n{{ $.Files.Get $path }}\n{{- end }}\n";

/// Fetches or makes the chart. Returns where it is.
pub async fn bring(ground: &Ground, plan: &ReleasePlan) -> anyhow::Result<PathBuf> {
    match &plan.source {
        Source::File(path) => {
            let file = ground.work.join("chart.tgz");
            fs_err::write(&file, fetch(&plan.content, path).await?)?;
            Ok(file)
        }
        Source::Image { name, version } => {
            let reference = format!("oci://{}/{name}", plan.registry);
            let into = ground.work.join("pulled");
            fs_err::create_dir_all(&into)?;
            let pull = ["pull", &reference, "--version", version, "--plain-http", "--destination"];
            ground.helm(&[&pull[..], &[&into.to_string_lossy()]].concat(), FETCHED)?;
            let mut files = fs_err::read_dir(&into)?;
            Ok(files.next().context("Helm pulled nothing")??.path())
        }
        Source::Manifests(paths) => {
            let mut files = Vec::new();
            for path in paths {
                files.push(fetch(&plan.content, path).await?);
            }
            let folder = ground.work.join("chart");
            wrap(&folder, &plan.name, &files)?;
            Ok(folder)
        }
    }
}

async fn fetch(content: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    let url = format!("{content}/{path}");
    let client = crate::http::client::plain().timeout(FETCHED).build()?;
    let answer = client.get(&url).send().await.with_context(|| format!("fetching `{url}`"))?;
    ensure!(
        answer.status() != reqwest::StatusCode::NOT_FOUND,
        "the box has no `{path}`\nhint: carry it in `content.files`, or upload it"
    );
    let answer = answer.error_for_status()?;
    let size = answer.content_length().unwrap_or_default();
    ensure!(size <= MOST, "`{url}` has {size} bytes, at most {MOST} are taken");
    Ok(answer.bytes().await?.to_vec())
}

/// Makes a chart whose templates give these files unchanged.
fn wrap(folder: &Path, name: &str, files: &[Vec<u8>]) -> anyhow::Result<()> {
    for part in ["files", "templates"] {
        fs_err::create_dir_all(folder.join(part))?;
    }
    let chart = serde_json::json!({"apiVersion": "v2", "name": name, "version": "0.0.0", "type": "application"});
    // JSON is YAML.
    fs_err::write(folder.join("Chart.yaml"), chart.to_string())?;
    fs_err::write(folder.join("templates/all.yaml"), TEMPLATE)?;
    for (at, bytes) in files.iter().enumerate() {
        fs_err::write(folder.join(format!("files/{at:03}.yaml")), bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn manifests_become_a_chart_that_takes_them_word_by_word() {
        let dir = tempfile::tempdir().expect("a folder");
        wrap(dir.path(), "web", &[b"kind: A\ntext: \"{{ not a template }}\"\n".to_vec(), b"kind: B\n".to_vec()])
            .expect("a chart");
        let chart: serde_json::Value =
            serde_json::from_slice(&fs_err::read(dir.path().join("Chart.yaml")).expect("read")).expect("JSON");
        assert_eq!((&chart["name"], &chart["apiVersion"]), (&"web".into(), &"v2".into()));
        let names: Vec<_> = fs_err::read_dir(dir.path().join("files"))
            .expect("files")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names.len(), 2);
        assert!(fs_err::read_to_string(dir.path().join("files/000.yaml")).expect("read").contains("{{ not"));
    }
}
