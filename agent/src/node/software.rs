//! `node software`: packages from the box's repositories only: a site may be unable to reach others.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Url;

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
/// dpkg's notes of what it was about to do, in files with numbers as their names: they are there when it was cut off.
const JOURNAL: &str = "/var/lib/dpkg/updates";
/// What dpkg does about files of configuration that somebody changed: they stay.
const KEPT: &str = "--force-confold";

/// Installs missing packages, and brings the others to their versions; or says what the latter would change.
pub async fn run(server: &Server, plan: &SoftwarePlan) -> anyhow::Result<SoftwareFacts> {
    let mut lines = String::new();
    for repository in &plan.repositories {
        lines += &source(server, repository).await?;
    }
    ensure!(!lines.is_empty(), "the box has no packages; hint: name some in `content.packages`, or upload some");
    server.write(SOURCES, &lines, 0o644)?;
    apt(server, plan, &["apt-get", "--quiet=2"], &["update"])?;
    check_names(server, plan)?;
    mend(server)?;
    let all: Vec<&str> = plan.packages.iter().map(String::as_str).collect();
    let before = versions(server, &plan.packages);
    let due = if plan.only_missing { lacking(&all, &before) } else { all.clone() };
    if !due.is_empty() {
        install(server, plan, "--yes", &due)?;
    }
    let installed = versions(server, &plan.packages);
    let lacking = lacking(&all, &installed);
    ensure!(lacking.is_empty(), "apt ended well, and these packages are not installed: {}", lacking.join(", "));
    let lagging = if plan.only_missing { lagging(&install(server, plan, "--simulate", &all)?) } else { Vec::new() };
    Ok(SoftwareFacts { installed, lagging, reboot_required: server.has(REBOOT) })
}

/// The packages that are not among those that are installed.
fn lacking<'a>(packages: &[&'a str], installed: &[String]) -> Vec<&'a str> {
    let is_there = |package: &str| installed.iter().any(|found| name_of(found) == name_of(package));
    packages.iter().copied().filter(|package| !is_there(package)).collect()
}

fn install(server: &Server, plan: &SoftwarePlan, how: &str, packages: &[&str]) -> anyhow::Result<String> {
    let mut words = vec!["install", "--no-install-recommends", "--allow-downgrades", how, "--"];
    words.extend(packages);
    apt(server, plan, &["apt-get", "--quiet=2"], &words)
}

/// What is there and would change, of the lines of `apt-get --simulate`: `Inst NAME [OLD] (NEW ARCHIVE [ARCHITECTURE])` and
/// `Remv NAME [OLD]`.
fn lagging(simulated: &str) -> Vec<String> {
    let change = |line: &str| {
        let mut words = line.split_whitespace();
        let (what, name) = (words.next()?, words.next()?);
        let old = words.next()?.strip_prefix('[')?.strip_suffix(']')?;
        match what {
            "Inst" => Some(format!("{name} {old} -> {}", words.next()?.strip_prefix('(')?.trim_end_matches(')'))),
            "Remv" => Some(format!("{name} {old} -> removed")),
            _ => None,
        }
    };
    simulated.lines().filter_map(change).collect()
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

/// Calls a program of apt on the plan's repositories alone. Returns what it prints.
fn apt(server: &Server, plan: &SoftwarePlan, program: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
    let mut options = vec![
        format!("Dir::Etc::SourceList={SOURCES}"),
        "Dir::Etc::SourceParts=-".to_owned(),
        "DPkg::Lock::Timeout=600".to_owned(),
        format!("Dpkg::Options::={KEPT}"),
        // What apt knows of the server's own repositories stays.
        "APT::Get::List-Cleanup=false".to_owned(),
        // A list that cannot be fetched is an error: by default apt goes on with an old one.
        "APT::Update::Error-Mode=any".to_owned(),
    ];
    // The box is on the servers' network, where no proxy leads to.
    let hosts = plan.repositories.iter().filter_map(|repository| Url::parse(&repository.url).ok());
    let direct = |url: Url| {
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(format!("Acquire::http::Proxy::{host}=DIRECT"))
    };
    options.extend(hosts.filter_map(direct));
    options.dedup();
    let mut argv = vec!["env", "DEBIAN_FRONTEND=noninteractive"];
    argv.extend(program);
    argv.extend(options.iter().flat_map(|option| ["-o", option]));
    argv.extend(arguments);
    server.call(&argv, LONG)
}

/// Refuses what is no package by its very name: apt takes it for a pattern of names, for a package to be removed if a `-` is
/// behind it, or for any package that provides it.
fn check_names(server: &Server, plan: &SoftwarePlan) -> anyhow::Result<()> {
    let known = apt(server, plan, &["apt-cache"], &["pkgnames"])?;
    let known: Vec<&str> = known.lines().map(str::trim).collect();
    let mut wrong = Vec::new();
    for name in plan.packages.iter().map(|package| name_of(package)).filter(|name| !known.contains(name)) {
        // Where nothing provides it, there may be no answer at all.
        let shown = apt(server, plan, &["apt-cache"], &["showpkg", name]).unwrap_or_default();
        let behind = shown.lines().skip_while(|line| !line.starts_with("Reverse Provides:")).skip(1);
        let mut providers: Vec<&str> = behind.filter_map(|line| line.split_whitespace().next()).collect();
        providers.dedup();
        wrong.push(if providers.is_empty() {
            format!("the box has no package `{name}`; hint: name it in `content.packages`, or upload it")
        } else {
            format!("`{name}` is no package; hint: name one that provides it: {}", providers.join(", "))
        });
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Has dpkg end what it was cut off from: until then apt does nothing.
fn mend(server: &Server) -> anyhow::Result<()> {
    let journal = server.path(JOURNAL);
    if !journal.exists() {
        return Ok(());
    }
    for entry in fs_err::read_dir(journal)? {
        let name = entry?.file_name();
        if name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            let argv = ["env", "DEBIAN_FRONTEND=noninteractive", "dpkg", KEPT, "--configure", "--pending"];
            return server.call(&argv, LONG).map(drop);
        }
    }
    Ok(())
}

/// The name of a package, which may be given as `name=version`.
fn name_of(package: &str) -> &str {
    package.split('=').next().unwrap_or(package)
}

/// What is installed of these packages, as `name=version`.
fn versions(server: &Server, packages: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for name in packages.iter().map(|package| name_of(package)) {
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

    use super::{SoftwarePlan, check_names, lagging, mend, run, versions};
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
        let none = SoftwarePlan { repositories: Vec::new(), packages: vec!["curl".to_owned()], only_missing: false };
        let error = run(&server, &none).await.expect_err("refused");
        assert!(error.to_string().contains("the box has no packages"), "{error}");
        let away = Repository {
            name: "box".to_owned(),
            url: "http://127.0.0.1:1/debian".to_owned(),
            suite: "trixie main".to_owned(),
            key_url: "http://127.0.0.1:1/key.asc".to_owned(),
        };
        let plan = SoftwarePlan { repositories: vec![away], packages: Vec::new(), only_missing: true };
        let error = run(&server, &plan).await.expect_err("nobody answers");
        assert!(error.to_string().contains("http://127.0.0.1:1/key.asc"), "{error}");
    }

    fn bench(fake: FakeRunner) -> (tempfile::TempDir, Arc<FakeRunner>, Server) {
        let (dir, runner) = (tempfile::tempdir().expect("a folder"), Arc::new(fake));
        let server = Server { root: dir.path().to_owned(), runner: Arc::clone(&runner) as Arc<_> };
        (dir, runner, server)
    }

    /// ICN's and Debian's own names, and what apt makes of others: `g++-1.` is a pattern, `curl-` removes curl.
    #[test]
    fn only_packages_by_their_very_names_are_installed() {
        let cases = [
            ("curl", "", ""),
            ("curl=1:8.5-1", "", ""),
            ("g++", "", ""),
            ("g++-1.", "", "the box has no package `g++-1.`"),
            ("curl-", "", "the box has no package `curl-`"),
            (
                "mta",
                "Package: mta\nReverse Provides: \nexim4 4.96 (= )\nexim4 4.95 (= )\nssmtp 2.64 (= )\n",
                "`mta` is no package; hint: name one that provides it: exim4, ssmtp",
            ),
        ];
        let repository = Repository {
            name: "carried".to_owned(),
            url: "http://[fd00::1]:6180/debian".to_owned(),
            suite: "trixie main".to_owned(),
            key_url: String::new(),
        };
        for (package, shown, why) in cases {
            let packages = vec![package.to_owned()];
            let plan = SoftwarePlan { repositories: vec![repository.clone()], packages, only_missing: true };
            let asked = "env DEBIAN_FRONTEND=noninteractive apt-cache";
            let fake = FakeRunner::default().answer(asked, "curl\ng++\ng++-11\n").answer(asked, shown);
            let (_dir, runner, server) = bench(fake);
            let said = check_names(&server, &plan).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(said.starts_with(why) && said.is_empty() == why.is_empty(), "{package}: {said}");
            let call = &runner.calls()[0];
            assert!(call.contains(" -o Acquire::http::Proxy::fd00::1=DIRECT "), "{call}");
            assert!(call.contains(" -o APT::Get::List-Cleanup=false "), "{call}");
        }
    }

    /// As apt 2.6 and 3.0 print it.
    #[test]
    fn what_would_change_is_what_is_there_in_another_version() {
        let text = "NOTE: This is only a simulation!\n\
            Inst libcurl4 [7.88.1-10] (7.88.1-11 Debian:12/stable [amd64]) []\n\
            Inst curl [7.88.1-10] (7.88.1-11 Debian:12/stable [amd64])\n\
            Inst jq (1.6-2.1 Debian:12.1/stable [amd64])\nInst demo [2.0] (1.5)\nRemv rival [3.1]\n\
            Conf curl (7.88.1-11 Debian:12/stable [amd64])\n";
        let expected = [
            "libcurl4 7.88.1-10 -> 7.88.1-11",
            "curl 7.88.1-10 -> 7.88.1-11",
            "demo 2.0 -> 1.5",
            "rival 3.1 -> removed",
        ];
        assert_eq!(lagging(text), expected);
    }

    #[test]
    fn a_dpkg_that_was_cut_off_is_let_end_first() {
        let (dir, runner, server) = bench(FakeRunner::default());
        mend(&server).expect("nothing to do");
        let journal = dir.path().join("var/lib/dpkg/updates");
        fs_err::create_dir_all(&journal).expect("a folder");
        fs_err::write(journal.join("tmp.i"), "").expect("written");
        mend(&server).expect("nothing to do");
        assert_eq!(runner.calls(), [""; 0]);
        for name in ["0000", "0001"] {
            fs_err::write(journal.join(name), "").expect("written");
        }
        mend(&server).expect("mended");
        let call = "env DEBIAN_FRONTEND=noninteractive dpkg --force-confold --configure --pending";
        assert_eq!(runner.calls(), [call]);
    }
}
