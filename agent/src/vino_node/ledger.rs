//! Which of libvirt's objects were made here. An object is noted before it is made, so that it is known even if a power cut
//! leaves it half made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::host::files;

/// The ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ledger {
    /// Pools, by name.
    pub pools: BTreeMap<String, PoolEntry>,
    /// Networks, by name.
    pub networks: BTreeMap<String, NetworkEntry>,
    /// Domains, by name.
    pub domains: BTreeMap<String, DomainEntry>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolEntry {
    /// Its folder, if it is one.
    pub folder: Option<PathBuf>,
    /// Its document. libvirt's own definitions go with the pod, and the volumes do not.
    pub xml: String,
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkEntry {
    /// Hash of the document that it was made from; `None` until it is made.
    pub hash: Option<String>,
    /// Its bridge, if the builder made that and not libvirt.
    pub bridge: Option<String>,
    /// Its bridge, if libvirt made that. It stays when the pod ends.
    pub of_libvirt: Option<String>,
    /// The interface that is plugged into its bridge.
    pub plugged: Option<String>,
}

/// A domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DomainEntry {
    /// Hash of what it was made of; none before it was.
    pub hash: Option<String>,
    /// Its volumes: pool and name.
    pub volumes: Vec<(String, String)>,
    /// The cores that it is pinned to.
    pub cores: Vec<u32>,
    /// It was changed while it ran: the number of that run. The change takes effect in the next run.
    pub pending: Option<String>,
}

impl Ledger {
    /// Reads the ledger; an empty one if there is no file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match fs_err::read(path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("reading `{}`", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the ledger, or removes the file when the ledger is empty.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        if *self == Self::default() {
            return Ok(files::remove(path)?);
        }
        Ok(files::replace(path, &serde_json::to_vec_pretty(self)?)?)
    }
}
