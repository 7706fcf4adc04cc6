//! `node software`: packages from the box's repositories only: a site may be unable to reach others.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::plan::{Repository, SoftwareFacts, SoftwarePlan};
use super::{SHORT, Server};

/// Our files for apt. They lie beside apt's own files, which are not changed.
const SOURCES: &str = "/etc/apt/foothold/sources.list";
const KEYS: &str = "/etc/apt/foothold/keys";
/// Set by packages whose new version runs only after a restart (Debian's update-notifier, needrestart).
const REBOOT: &str = "/run/reboot-required";
/// Packages are fetched and set up.
const LONG: Duration = Duration::from_secs(30 * 60);
const ANSWER: Duration = Duration::from_secs(60);

/// Installs missing packages, and upgrades those for which there is a newer version.
pub async fn install(server: &Server, plan: &SoftwarePlan) -> anyhow::Result<SoftwareFacts> {
    let mut lines = String::new();
    for repository in &plan.repositories {
        lines += &source(server, repository).await?;
    }
    ensure!(!lines.is_empty(), "the box has no packages; hint: name some in `content.packages`, or upload some");
    server.write(SOURCES, &lines, 0o644)?;
    apt(server, &["update"])?;
    let before = versions(server, &plan.packages);
    let mut install = vec!["install", "--yes", "--no-install-recommends", "--allow-downgrades", "--"];
    install.extend(plan.packages.iter().map(String::as_str));
    apt(server, &install)?;
    let after = versions(server, &plan.packages);
    let changed = after.iter().filter(|version| !before.contains(version)).count();
    Ok(SoftwareFacts { installed: after, changed, reboot_required: server.has(REBOOT) })
}

/// The line of a repository for apt; `None` if the repository is still empty.
async fn source(server: &Server, repository: &Repository) -> anyhow::Result<String> {
    let client = crate::http::client::plain().timeout(ANSWER).build()?;
    let asked = || format!("asking for `{}`", repository.key_url);
    let answer = client.get(&repository.key_url).send().await.with_context(asked)?;
    if answer.status() == reqwest::StatusCode::NOT_FOUND {
        return Ok(String::new());
    }
    let key = answer.error_for_status().with_context(asked)?.text().await.with_context(asked)?;
    let path = format!("{KEYS}/{}.asc", repository.name);
    server.write(&path, &key, 0o644)?;
    Ok(format!("deb [signed-by={path}] {} {}\n", repository.url, repository.suite))
}

fn apt(server: &Server, arguments: &[&str]) -> anyhow::Result<()> {
    let sources = format!("Dir::Etc::SourceList={SOURCES}");
    let mut argv = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "--quiet=2",
        "-o",
        &sources,
        "-o",
        "Dir::Etc::SourceParts=-",
        "-o",
        "DPkg::Lock::Timeout=600",
        "-o",
        "Dpkg::Options::=--force-confold",
    ];
    argv.extend(arguments);
    server.call(&argv, LONG).map(drop)
}

/// What is installed of these packages, as `name=version`.
fn versions(server: &Server, packages: &[String]) -> Vec<String> {
    let names: Vec<&str> = packages.iter().map(|package| package.split('=').next().unwrap_or(package)).collect();
    let mut all = Vec::new();
    for name in names {
        // A package that nobody ever installed is no error here.
        let asked = server.call(&["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", name], SHORT);
        if let Ok(said) = asked
            && let Some(version) = said.strip_prefix("installed ")
        {
            all.push(format!("{name}={version}"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{SoftwarePlan, install, versions};
    use crate::host::runner::FakeRunner;
    use crate::node::Server;
    use crate::node::plan::Repository;

    #[test]
    fn versions_are_those_that_are_installed() {
        let fake = FakeRunner::default()
            .answer("dpkg-query --show --showformat=${db:Status-Status} ${Version} curl", "installed 8.5")
            .answer("dpkg-query --show --showformat=${db:Status-Status} ${Version} jq", "config-files 1.7")
            .fail("dpkg-query", 1, "no packages found");
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server { root: dir.path().to_owned(), runner: Arc::new(fake) };
        let asked = ["curl=8.5", "jq", "never"].map(str::to_owned);
        assert_eq!(versions(&server, &asked), ["curl=8.5"]);
    }

    #[tokio::test]
    async fn a_box_without_packages_is_told() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server { root: dir.path().to_owned(), runner: Arc::new(FakeRunner::default()) };
        let none = SoftwarePlan { repositories: Vec::new(), packages: vec!["curl".to_owned()] };
        let error = install(&server, &none).await.expect_err("refused");
        assert!(error.to_string().contains("the box has no packages"), "{error}");
        let away = Repository {
            name: "box".to_owned(),
            url: "http://127.0.0.1:1/debian".to_owned(),
            suite: "trixie main".to_owned(),
            key_url: "http://127.0.0.1:1/key.asc".to_owned(),
        };
        let plan = SoftwarePlan { repositories: vec![away], packages: Vec::new() };
        let error = install(&server, &plan).await.expect_err("nobody answers");
        assert!(error.to_string().contains("http://127.0.0.1:1/key.asc"), "{error}");
    }
}
