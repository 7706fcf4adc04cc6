//! Kubernetes' own programs from elsewhere than the Go modules: exactly those that the lock names.
//!
//! ```text
//! directory   PATH/kubelet, ...                                              ─┐
//! upstream    URL/release/VERSION/bin/linux/amd64/kubelet{,.sha256}, ...     ─┴─► Lock ─► the stage's files
//! ```
//! Everything else that a cluster is made of (etcd, CoreDNS, containerd, CNI plugins) is built from the Go modules
//! whatever the source is.

use std::collections::BTreeMap;
use std::path::Path;

use agent_api::release::{Blob, Digest};
use anyhow::{Context, Result, ensure};
use rayon::prelude::*;

use super::modules::KUBERNETES;
use crate::config::KubernetesSource;
use crate::lock::download::Wanted;
use crate::lock::expect_locked;
use crate::lock::http::Http;
use crate::store::{Cache, Made, StageKey, WorkDir, hash};
use crate::toolbox::Toolbox;

/// The program that is asked for the version of all.
const KUBEADM: &str = "kubeadm";

/// A source of programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A folder that holds them.
    Directory(&'a Path),
    /// A server that publishes them.
    Upstream(&'a str),
}

impl<'a> Source<'a> {
    /// The source of the definition; `None`: they are built from the Go modules.
    pub fn of(source: &'a KubernetesSource) -> Option<Self> {
        match source {
            KubernetesSource::Modules => None,
            KubernetesSource::Directory { path } => Some(Self::Directory(path)),
            KubernetesSource::Upstream { url } => Some(Self::Upstream(url)),
        }
    }
}

impl std::fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "the directory `{}`", path.display()),
            Self::Upstream(url) => write!(f, "the release files at `{url}`"),
        }
    }
}

/// Programs from elsewhere.
pub struct Binaries<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// Where they come from.
    pub source: Source<'a>,
    /// The version that they must be.
    pub version: &'a str,
    /// Never use the network.
    pub offline: bool,
    /// Told what goes on.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// Asks `kubeadm` at that path for its version.
pub type AskVersion<'a> = &'a dyn Fn(&Path) -> Result<String>;

impl Binaries<'_> {
    /// What the source has now, for the lock. Published files come into the cache on the way.
    pub fn resolve(&self) -> Result<BTreeMap<String, Blob>> {
        match &self.source {
            Source::Directory(path) => look(path),
            Source::Upstream(url) => {
                let server = self.server(url)?;
                KUBERNETES.programs.iter().map(|name| Ok(((*name).to_owned(), server.published(name)?))).collect()
            }
        }
    }

    /// The programs of the lock, as files of their names. `ask_version` is asked when they are new to the cache.
    pub fn make(&self, locked: &BTreeMap<String, Blob>, ask_version: AskVersion<'_>) -> Result<(Made, bool)> {
        let mut made = Made::default();
        for name in KUBERNETES.programs {
            let blob = locked.get(*name).with_context(|| {
                format!(
                    "the lock does not name the program `{name}` of {}\nhint: `foothold lock --update`",
                    self.source
                )
            })?;
            made.files.insert((*name).to_owned(), blob.clone());
        }
        if let Source::Directory(path) = self.source {
            compare(path, &made.files)?;
        }
        let mut key = StageKey::new("binaries", 1).with("version", self.version);
        for (name, blob) in &made.files {
            key = key.with(name, &blob.digest);
        }
        self.cache.stage(&key, &mut || (self.waiting)("another build is fetching the same"), |work| {
            self.bring(&made.files, work)?;
            self.check_version(&made.files[KUBEADM], work, ask_version)?;
            made.set_fact("version", &self.version)?;
            Ok(made)
        })
    }

    /// Brings programs into the cache that are not there.
    fn bring(&self, wanted: &BTreeMap<String, Blob>, work: &WorkDir) -> Result<()> {
        let mut missing = Vec::new();
        for (name, blob) in wanted {
            if !self.cache.holds(blob)? {
                missing.push((name, blob));
            }
        }
        match &self.source {
            Source::Directory(path) => {
                for (name, blob) in missing {
                    let copy = work.path().join(name);
                    fs_err::copy(path.join(name), &copy)?;
                    let found = self.cache.adopt(&copy)?;
                    expect_locked(&path.join(name).display(), &found, blob)?;
                }
            }
            Source::Upstream(url) if !missing.is_empty() => {
                let server = self.server(url)?;
                for (name, blob) in missing {
                    let found = server.fetch(name, &blob.digest)?;
                    expect_locked(&server.url(name), &found, blob)?;
                }
            }
            Source::Upstream(_) => {}
        }
        Ok(())
    }

    fn server<'a>(&'a self, url: &'a str) -> Result<Server<'a>> {
        ensure!(
            !self.offline,
            "programs of Kubernetes are not in the cache and `--offline` was given\nhint: build once without `--offline`, \
             with `{url}` in reach"
        );
        Ok(Server { cache: self.cache, waiting: self.waiting, http: Http::new()?, url, version: self.version })
    }

    fn check_version(&self, kubeadm: &Blob, work: &WorkDir, ask_version: AskVersion<'_>) -> Result<()> {
        let program = work.path().join(KUBEADM);
        fs_err::copy(self.cache.blob_path(&kubeadm.digest), &program)?;
        fs_err::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let said =
            ask_version(&program).with_context(|| format!("asking `{KUBEADM}` of {} for its version", self.source))?;
        let said = said.trim();
        ensure!(
            said == self.version,
            "`{KUBEADM}` of {} is {said}, `kubernetes.version` is {}\nhint: write `version: {said}`, or bring the programs \
             of {} and run `foothold lock --update`",
            self.source,
            self.version,
            self.version
        );
        Ok(())
    }
}

/// A server with the layout of the Kubernetes project's release server.
struct Server<'a> {
    cache: &'a Cache,
    waiting: &'a (dyn Fn(&str) + Sync),
    http: Http,
    url: &'a str,
    version: &'a str,
}

impl Server<'_> {
    /// Where a program is.
    fn url(&self, name: &str) -> String {
        format!("{}/release/{}/bin/linux/amd64/{name}", self.url, self.version)
    }

    /// The program that the server's own digest names, once it is in the cache.
    fn published(&self, name: &str) -> Result<Blob> {
        let work = self.cache.work_dir()?;
        let (url, path) = (format!("{}.sha256", self.url(name)), work.path().join("sha256"));
        self.http.download(&url, &path, &mut |_, _| ())?;
        let text = fs_err::read(&path)?;
        let hex = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let digest = Digest::from_hex(&String::from_utf8_lossy(hex)).with_context(|| format!("reading `{url}`"))?;
        if let Ok(there) = fs_err::metadata(self.cache.blob_path(&digest)) {
            let blob = Blob { digest: digest.clone(), size: there.len() };
            if self.cache.holds(&blob)? {
                return Ok(blob);
            }
        }
        self.fetch(name, &digest)
    }

    fn fetch(&self, name: &str, digest: &Digest) -> Result<Blob> {
        let hint = "the server damages it, or has replaced it; `foothold lock --update` takes what the server's own digest \
                    names";
        Wanted { name, url: &self.url(name), digest, hint }.fetch(self.cache, &self.http, self.waiting)
    }
}

/// Asks `kubeadm` in the toolbox.
pub fn ask_version(toolbox: &Toolbox, program: &Path) -> Result<String> {
    let tool = toolbox.tool(&program.to_string_lossy()).args(["version", "-o", "short"]).reads(program);
    Ok(String::from_utf8_lossy(&tool.run()?).into_owned())
}

/// The programs in a folder.
fn look(path: &Path) -> Result<BTreeMap<String, Blob>> {
    let of = |name: &&str| Ok(((*name).to_owned(), hash::file(&path.join(name))?));
    let found = KUBERNETES.programs.par_iter().map(of).collect::<Result<_>>();
    found.with_context(|| {
        let names = KUBERNETES.programs.join(", ");
        format!("reading the programs of `kubernetes.from: directory`\nhint: `{}` must hold {names}", path.display())
    })
}

/// An error when the folder does not hold what the lock names.
fn compare(path: &Path, locked: &BTreeMap<String, Blob>) -> Result<()> {
    for (name, found) in look(path)? {
        expect_locked(&path.join(&name).display(), &found, &locked[&name])?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "binaries_tests.rs"]
mod tests;
