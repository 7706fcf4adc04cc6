//! Boxes that run on this machine: what `foothold kubectl` needs of each is in a folder of the cache while its machine runs.
//!
//! ```text
//! <cache>/run/NAME/  lock          held while the machine runs
//!                    kubeconfig    of the box's own cluster; 0600
//!                    running.json  the carried kubectl, and the namespace of a simulated site
//!                    clusters/     kubeconfigs of the clusters of its servers
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::command::Run;
use crate::host::files::write_whole;
use crate::host::flock::{self, Held};
use crate::store::Cache;

const LOCK: &str = "lock";
const RUNNING: &str = "running.json";
/// Names that are tried for a box whose name is taken.
const MOST: u32 = 100;

/// The folder of a box that this process runs.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    _held: Held,
}

impl Place {
    /// Takes the folder of a name; with a number behind it where another box of that name runs.
    pub fn claim(cache: &Cache, name: &str) -> Result<Self> {
        let names = (2..MOST).map(|number| format!("{name}-{number}"));
        for name in std::iter::once(name.to_owned()).chain(names) {
            let dir = cache.path("run").join(name);
            fs_err::create_dir_all(&dir)?;
            if let Some(held) = flock::try_lock(&dir.join(LOCK))? {
                let place = Self { dir, _held: held };
                place.forget();
                return Ok(place);
            }
        }
        bail!("{MOST} boxes named `{name}` run already")
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Tells others of the box.
    pub fn tell(&self, running: &Running) -> Result<()> {
        let path = self.dir.join(RUNNING);
        write_whole(&path, &serde_json::to_vec(running)?).with_context(|| format!("writing `{}`", path.display()))
    }

    fn forget(&self) {
        // What is not there needs no removal.
        let _ = fs_err::remove_file(self.dir.join(RUNNING));
        let _ = fs_err::remove_dir_all(self.dir.join("clusters"));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.forget();
    }
}

/// How a box that runs is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The kubectl that its image carries.
    pub kubectl: PathBuf,
    /// Of its own cluster; its address is on loopback.
    pub kubeconfig: PathBuf,
    /// The process that runs it.
    pub pid: u32,
    /// The network namespace of the site that it stands in, where the clusters of its servers are reached.
    pub namespace: Option<PathBuf>,
}

/// The boxes that run, by name.
pub fn list(cache: &Path) -> Result<BTreeMap<String, Running>> {
    let folder = cache.join("run");
    let mut found = BTreeMap::new();
    let entries = match fs_err::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let dir = entry?.path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(text) = fs_err::read(dir.join(RUNNING)) else { continue };
        // One whose lock is free was killed.
        if flock::try_lock(&dir.join(LOCK))?.is_none() {
            let running =
                serde_json::from_slice(&text).with_context(|| format!("reading `{}`", dir.join(RUNNING).display()))?;
            found.insert(name, running);
        }
    }
    Ok(found)
}

/// The box that is meant: the named one, or the only one.
pub fn choose(mut running: BTreeMap<String, Running>, name: Option<&str>) -> Result<Running> {
    let names = running.keys().cloned().collect::<Vec<_>>().join(", ");
    match name {
        _ if running.is_empty() => bail!(
            "no box runs on this machine, or none is ready\nhint: `foothold run IMAGE` and `foothold simulate SITE` run one"
        ),
        Some(name) => {
            running.remove(name).with_context(|| format!("no box named `{name}` runs\nhint: these run: {names}"))
        }
        None if running.len() > 1 => bail!("{} boxes run\nhint: `--box NAME` says which: {names}", running.len()),
        None => running.into_values().next().context("the only one"),
    }
}

/// kubectl, and the cluster that it speaks to.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// The namespace's file, and the process whose user namespace it belongs to.
    within: Option<(PathBuf, u32)>,
}

impl Kubectl {
    /// For the box's own cluster.
    pub fn of_box(running: &Running) -> Self {
        Self { program: running.kubectl.clone(), kubeconfig: running.kubeconfig.clone(), within: None }
    }

    /// For a cluster of its servers, `NAME` or `NAMESPACE/NAME`, whose kubeconfig the box has.
    pub fn of_cluster(running: &Running, cluster: &str) -> Result<Self> {
        let (namespace, name) = match cluster.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, cluster),
        };
        let of =
            namespace.map_or_else(|| "--all-namespaces".to_owned(), |namespace| format!("--namespace={namespace}"));
        let secret = format!("--field-selector=metadata.name={name}-kubeconfig");
        let listed = Self::of_box(running).run(&["get", "secrets", &of, &secret, "--output=json"]).output()?;
        let list: Value = serde_json::from_slice(&listed).context("reading the Secrets of the box")?;
        let found = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let [secret] = found else {
            let namespaces: Vec<&str> =
                found.iter().filter_map(|secret| secret["metadata"]["namespace"].as_str()).collect();
            if found.is_empty() {
                bail!(
                    "the box has no kubeconfig of a cluster `{cluster}`\n\
                     hint: `foothold kubectl get provisionings --all-namespaces` shows clusters, and how far they are"
                );
            }
            bail!("several clusters are named `{name}`\nhint: name it with its namespace: {}", namespaces.join(", "));
        };
        let text = secret["data"]["value"].as_str().context("the Secret has no `value`")?;
        let text = STANDARD.decode(text).context("reading the Secret of the kubeconfig")?;
        let folder = running.kubeconfig.parent().context("the kubeconfig is in no folder")?.join("clusters");
        fs_err::create_dir_all(&folder)?;
        let namespace = secret["metadata"]["namespace"].as_str().unwrap_or_default();
        let kubeconfig = folder.join(format!("{namespace}-{name}"));
        write_whole(&kubeconfig, &text).with_context(|| format!("writing `{}`", kubeconfig.display()))?;
        let within = running.namespace.clone().map(|file| (file, running.pid));
        Ok(Self { program: running.kubectl.clone(), kubeconfig, within })
    }

    /// The program with all of its arguments.
    pub fn argv<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Vec<std::ffi::OsString> {
        let mut words = Vec::new();
        if let Some((namespace, pid)) = &self.within {
            words.push("nsenter".into());
            let user = format!("/proc/{pid}/ns/user");
            // Whoever is in the same user namespace cannot enter it a second time.
            if fs_err::read_link(&user).ok() != fs_err::read_link("/proc/self/ns/user").ok() {
                words.push(format!("--user={user}").into());
                words.push("--preserve-credentials".into());
            }
            words.push(format!("--net={}", namespace.display()).into());
        }
        words.push(self.program.clone().into_os_string());
        words.push("--kubeconfig".into());
        words.push(self.kubeconfig.clone().into_os_string());
        words.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        words
    }

    /// A call of it, to be run.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Run {
        let words = self.argv(args);
        Run::new(&words[0]).args(&words[1..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(dir: &Path) -> Running {
        Running { kubectl: "/k".into(), kubeconfig: dir.join("kubeconfig"), pid: std::process::id(), namespace: None }
    }

    #[test]
    fn a_box_is_listed_while_it_runs_and_never_two_under_one_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let first = Place::claim(&cache, "box").expect("a place");
        let second = Place::claim(&cache, "box").expect("another");
        assert_ne!(first.dir(), second.dir());
        assert!(list(dir.path()).expect("a list").is_empty(), "none is ready");
        first.tell(&running(first.dir())).expect("told");
        second.tell(&running(second.dir())).expect("told");
        let names: Vec<String> = list(dir.path()).expect("a list").into_keys().collect();
        assert_eq!(names, ["box", "box-2"]);
        drop(first);
        let left = list(dir.path()).expect("a list");
        assert_eq!(choose(left, None).expect("the only one").kubeconfig, second.dir().join("kubeconfig"));
        // As if it had been killed.
        fs_err::write(dir.path().join("run/box/running.json"), "{}").expect("written");
        assert_eq!(list(dir.path()).expect("a list").len(), 1);
    }

    #[test]
    fn which_box_is_meant_is_told_or_asked() {
        let of = |names: &[&str]| -> BTreeMap<String, Running> {
            names.iter().map(|name| ((*name).to_owned(), running(Path::new(name)))).collect()
        };
        let wrong = |names: &[&str], name| choose(of(names), name).expect_err("refused").to_string();
        assert!(wrong(&[], None).contains("no box runs"), "{}", wrong(&[], None));
        assert!(wrong(&["a", "b"], None).contains("2 boxes run"));
        assert!(wrong(&["a"], Some("b")).contains("`b`"));
        assert_eq!(choose(of(&["a", "b"]), Some("b")).expect("chosen"), running(Path::new("b")));
    }

    #[test]
    fn the_cluster_of_a_site_is_reached_from_its_namespace() {
        let mut running = running(Path::new("/run"));
        running.namespace = Some("/proc/1/ns/net".into());
        let within = running.namespace.clone().map(|file| (file, running.pid));
        let kubectl = Kubectl { within, ..Kubectl::of_box(&running) };
        let argv = kubectl.argv(&["get", "nodes"]);
        assert_eq!(argv, ["nsenter", "--net=/proc/1/ns/net", "/k", "--kubeconfig", "/run/kubeconfig", "get", "nodes"]);
        assert_eq!(Kubectl::of_box(&running).argv(&["version"])[0], "/k");
    }
}
