//! A local repository of locked packages, in the shape apt reads (`Packages`, Debian repository format).

use std::path::Path;

use anyhow::{Context, Result};
use rayon::prelude::*;

use super::Deb;
use super::apt::SUITE;
use crate::host::command::Run;
use crate::store::{Cache, hash};

/// Fills `dir` with hard links (or copies) of the packages and a `Packages` index.
pub fn write(cache: &Cache, debs: &[Deb], dir: &Path) -> Result<()> {
    let stanzas = debs
        .par_iter()
        .map(|deb| {
            let (source, target) = (cache.path("blobs/sha256").join(deb.sha256.hex()), dir.join(deb.file_name()));
            if fs_err::hard_link(&source, &target).is_err() {
                fs_err::copy(&source, &target)?;
            }
            let control = control(cache, deb)?;
            let (name, sha256, size) = (deb.file_name(), deb.sha256.hex(), deb.size);
            Ok(format!("{control}\nFilename: ./{name}\nSize: {size}\nSHA256: {sha256}\n\n"))
        })
        .collect::<Result<Vec<_>>>()?;
    let packages = stanzas.concat();
    // mmdebstrap asks apt for the essential packages of the suite: the repository must say that it is that suite.
    let (size, sha256) = (packages.len(), hash::bytes(packages.as_bytes()));
    let release = format!(
        "Suite: {SUITE}\nCodename: {SUITE}\nDate: Thu, 01 Jan 1970 00:00:00 UTC\nArchitectures: amd64\nSHA256:\n {} {size} Packages\n",
        sha256.hex()
    );
    fs_err::write(dir.join("Packages"), packages)?;
    fs_err::write(dir.join("Release"), release)?;
    Ok(())
}

/// The control file of a package in the cache, without an empty line at its end.
pub fn control(cache: &Cache, deb: &Deb) -> Result<String> {
    let control = Run::new("dpkg-deb").reproducible().arg("--field").arg(cache.blob_path(&deb.sha256)).output()?;
    let control = String::from_utf8(control).with_context(|| format!("control file of {}", deb.name))?;
    Ok(control.trim_end().to_owned())
}
