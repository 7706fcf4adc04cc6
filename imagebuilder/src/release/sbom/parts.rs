//! What our own programs are made of: Go modules, and crates. A stage of the build.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::go;
use crate::layer::agent;
use crate::store::{Cache, Made, StageKey, hash};

/// Name of the file that the stage makes.
const PARTS: &str = "parts.json";

/// A crate that is linked into the agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Crate {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// SHA-256 of its package in hex; none of our own crates.
    pub sha256: Option<String>,
    /// Its licence, as it says itself.
    pub licence: String,
}

/// What the programs are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Go programs by the names of their files.
    pub programs: BTreeMap<String, go::Program>,
    /// Crates of the agent.
    pub crates: Vec<Crate>,
}

/// Reads them, or takes them from the cache.
pub fn make(
    cache: &Cache,
    workspace: &Path,
    programs: &Made,
    offline: bool,
    waiting: &(dyn Fn(&str) + Sync),
) -> Result<(Made, bool)> {
    let lock = workspace.join("Cargo.lock");
    let mut key = StageKey::new("sbom", 1).with("crates", hash::tree(&lock)?);
    for manifest in ["Cargo.toml", "agent/Cargo.toml", "agent/api/Cargo.toml"] {
        key = key.with(manifest, hash::tree(&workspace.join(manifest))?);
    }
    for (name, blob) in &programs.files {
        key = key.with(name, &blob.digest);
    }
    cache.stage(&key, &mut || waiting("another build is making the same"), |_| {
        let mut parts = Parts::default();
        for (name, blob) in &programs.files {
            if let Some(program) = go::read(&cache.blob_path(&blob.digest))? {
                parts.programs.insert(name.clone(), program);
            }
        }
        parts.crates = crates(workspace, &fs_err::read_to_string(&lock)?, offline)?;
        let mut made = Made::default();
        made.files.insert(PARTS.to_owned(), cache.adopt_bytes(&serde_json::to_vec(&parts)?)?);
        Ok(made)
    })
}

impl Parts {
    /// What the stage made.
    pub fn read(cache: &Cache, made: &Made) -> Result<Self> {
        let bytes = fs_err::read(cache.blob_path(&made.file(PARTS)?.digest))?;
        serde_json::from_slice(&bytes).context("reading what the programs are made of")
    }
}

/// Exactly what is linked into the agent, by cargo's own resolution.
fn crates(workspace: &Path, lock: &str, offline: bool) -> Result<Vec<Crate>> {
    let mut run = agent::cargo("tree", workspace)
        .args(["--package", "foothold-agent", "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}|{l}"]);
    if offline {
        run = run.arg("--offline");
    }
    let tree = String::from_utf8(run.output().context("listing the agent's crates")?)?;
    Ok(crates_of(&tree, lock))
}

/// From the lines of `cargo tree` and the text of `Cargo.lock`.
fn crates_of(tree: &str, lock: &str) -> Vec<Crate> {
    let sums = checksums(lock);
    let mut crates: Vec<Crate> = tree.lines().filter_map(|line| crate_of(line, &sums)).collect();
    crates.sort();
    crates.dedup();
    crates
}

fn crate_of(line: &str, sums: &BTreeMap<(&str, &str), &str>) -> Option<Crate> {
    let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let (name, rest) = package.split_once(' ')?;
    let version = rest.split(' ').next()?.trim_start_matches('v');
    Some(Crate {
        name: name.to_owned(),
        version: version.to_owned(),
        sha256: sums.get(&(name, version)).map(|sum| (*sum).to_owned()),
        // As crates wrote it before there was SPDX.
        licence: licence.replace('/', " OR "),
    })
}

/// `checksum` of each package of a `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"'))
        };
        if let (Some(name), Some(version), Some(sum)) = (value("name"), value("version"), value("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::{Crate, crates_of};

    #[test]
    fn crates_are_what_cargo_says_with_the_locks_checksums() {
        let tree = "foothold-agent v0.1.0 (/somewhere/agent)|Apache-2.0\nanyhow v1.0.104|MIT OR Apache-2.0\n\
                    log v0.4.29|MIT/Apache-2.0\nanyhow v1.0.104|MIT OR Apache-2.0 (*)\n";
        let lock = "version = 4\n\n[[package]]\nname = \"anyhow\"\nversion = \"1.0.104\"\nsource = \"registry\"\n\
                    checksum = \"330a\"\n\n[[package]]\nname = \"foothold-agent\"\nversion = \"0.1.0\"\n";
        let of = |name: &str, version: &str, sha256: Option<&str>, licence: &str| Crate {
            name: name.to_owned(),
            version: version.to_owned(),
            sha256: sha256.map(str::to_owned),
            licence: licence.to_owned(),
        };
        let expected = [
            of("anyhow", "1.0.104", Some("330a"), "MIT OR Apache-2.0"),
            of("foothold-agent", "0.1.0", None, "Apache-2.0"),
            of("log", "0.4.29", None, "MIT OR Apache-2.0"),
        ];
        assert_eq!(crates_of(tree, lock), expected);
    }
}
