//! Bringing what the lock names into the cache, verified.

use std::path::{Path, PathBuf};

use agent_api::release::Blob;
use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use super::Deb;
use super::apt::{Apt, Mirror};
use crate::store::{Cache, hash};

/// How the network may be used.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Never: the cache alone must do.
    pub offline: bool,
    /// Debian mirror given by the user.
    pub mirror: Option<String>,
    /// File with credentials for registries given by the user.
    pub authfile: Option<PathBuf>,
}

fn blob(deb: &Deb) -> Blob {
    Blob { digest: deb.sha256.clone(), size: deb.size }
}

/// Makes sure that every package lies in the cache. Returns how many bytes were fetched.
pub fn debs(cache: &Cache, network: &Network, debs: &[Deb], on_line: &mut (dyn FnMut(&str) + Send)) -> Result<u64> {
    let held = debs.par_iter().map(|deb| cache.holds(&blob(deb))).collect::<Result<Vec<_>>>()?;
    let missing: Vec<_> = debs.iter().zip(held).filter(|(_, held)| !held).map(|(deb, _)| deb).collect();
    if missing.is_empty() {
        return Ok(0);
    }
    if network.offline {
        let names: Vec<_> = missing.iter().take(5).map(|deb| format!("{} {}", deb.name, deb.version)).collect();
        bail!(
            "{} Debian packages are not in the cache and `--offline` was given: {}{}\nhint: build once without `--offline`",
            missing.len(),
            names.join(", "),
            if missing.len() > 5 { ", ..." } else { "" }
        );
    }
    let work = cache.work_dir()?;
    let apt = Apt::new(&work.path().join("apt"), &Mirror::of_host(network.mirror.as_deref())?)?;
    apt.update()?;
    let into = work.path().join("debs");
    fs_err::create_dir(&into)?;
    apt.download(&missing, &into, on_line)?;
    for deb in &missing {
        take(cache, &into, deb)?;
    }
    Ok(missing.iter().map(|deb| deb.size).sum())
}

fn take(cache: &Cache, from: &Path, deb: &Deb) -> Result<()> {
    let file = from.join(deb.file_name());
    let found = hash::file(&file).with_context(|| format!("downloading {} {}", deb.name, deb.version))?;
    if found != blob(deb) {
        bail!(
            "the mirror's {} {} is {} ({} bytes), the lock expects {} ({} bytes)\nhint: `foothold lock --update`",
            deb.name,
            deb.version,
            found.digest,
            found.size,
            deb.sha256,
            deb.size
        );
    }
    cache.adopt(&file)?;
    Ok(())
}
