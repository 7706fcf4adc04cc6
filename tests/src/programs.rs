//! Programs that the builder makes of Go modules, as files that can be run; and what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use agent_api::release::{Blob, Digest};
use anyhow::Context as _;
use foothold::builder::Builder;
use foothold::commands::common;
use foothold::kubernetes::modules::{Build, ModuleSet, ON_DEMAND, SETS};
use foothold::lock::Lock;
use foothold::pipeline;
use foothold::store::Made;
use foothold::toolbox::Toolbox;

use crate::appliance::builder;

static BUILT: Mutex<BTreeMap<(&'static str, &'static str), PathBuf>> = Mutex::new(BTreeMap::new());

/// The program of a module set (`kubernetes`, `etcd`, ...), built by the first that asks.
///
/// # Panics
/// When it cannot be built.
pub fn program(set: &'static str, name: &'static str) -> PathBuf {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || build(set, name).unwrap_or_else(|error| panic!("building `{name}`: {error:#}"));
    built.entry((set, name)).or_insert_with(make).clone()
}

fn build(set: &str, name: &str) -> anyhow::Result<PathBuf> {
    let (at, _, made) = of_set(set)?;
    place(&at, name, made.file(name)?)
}

/// The programs of a module set, as the builder has them, with the builder and its tools.
///
/// # Errors
/// An error of the compiling.
pub fn of_set(set: &str) -> anyhow::Result<(Builder, Toolbox, Made)> {
    let set = SETS.iter().chain(ON_DEMAND).find(|known| known.name == set).context("no such module set")?;
    // The lock of a definition that does not ask for it does not name it.
    let named = |lock: &Lock| lock.modules.get(set.name).cloned();
    built(set, "packages", |packages, lock| named(lock).map_or_else(|| set.digest(packages), Ok))
}

/// The programs of a module set of the tests' own, below `tests/fixtures`, by name.
///
/// # Errors
/// An error of the compiling.
pub fn of_fixture(set: &ModuleSet) -> anyhow::Result<BTreeMap<&'static str, PathBuf>> {
    let (at, _, made) = built(set, "tests/fixtures", |packages, _| set.digest(packages))?;
    set.programs.iter().map(|name| Ok((*name, place(&at, name, made.file(name)?)?))).collect()
}

/// Builds a module set that lies in this folder of the sources, and is what the digest says.
fn built(
    set: &ModuleSet,
    folder: &str,
    locked: impl FnOnce(&Path, &Lock) -> anyhow::Result<Digest>,
) -> anyhow::Result<(Builder, Toolbox, Made)> {
    let at = builder()?;
    let lock = common::locked(&at, &common::Job::load("images/appliance".as_ref())?, false)?;
    let (toolbox, _) = pipeline::toolbox(&at, &lock)?;
    let packages = at.workspace.join(folder);
    let (made, _) = set.build(&Build {
        cache: &at.cache,
        toolbox: &toolbox,
        packages: &packages,
        locked: &locked(&packages, &lock)?,
        offline: false,
        waiting: &|_| (),
    })?;
    Ok((at, toolbox, made))
}

/// The program as a file that can be run. It lies in the cache: a folder of this process would outlive it.
pub(crate) fn place(at: &Builder, name: &str, blob: &Blob) -> anyhow::Result<PathBuf> {
    let dir = at.cache.path("tests");
    fs_err::create_dir_all(&dir)?;
    let target = dir.join(format!("{name}-{}", &blob.digest.hex()[..16]));
    if !target.exists() {
        let copy = tempfile::NamedTempFile::new_in(&dir)?.into_temp_path();
        fs_err::copy(at.cache.blob_path(&blob.digest), &copy)?;
        fs_err::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        copy.persist(&target)?;
    }
    Ok(target)
}

/// Command lines of the processes that name one of these folders.
///
/// # Panics
/// Without `/proc`.
pub fn processes_of(folders: &[&Path]) -> BTreeSet<String> {
    let marks: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let processes = fs_err::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let lines = processes.filter_map(|entry| fs_err::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| marks.iter().any(|mark| line.contains(mark))).collect()
}
