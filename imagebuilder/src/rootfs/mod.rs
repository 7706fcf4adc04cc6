//! Debian trees made of exactly the locked packages, without anything that differs from one machine or one day to the
//! next: for the `os` layer, the servers' OS images, the deploy ramdisk and the images of services.
//!
//! ```text
//! packages --> mmdebstrap in the toolbox, or only unpacked --> kernel unpacked, modules and their firmware chosen
//!     --> scrub
//!     --> programs of the tree run in it, what nothing reads removed
//! programs of the release --> placed in any tree
//! ```

pub mod firmware;
pub mod kernel;
pub mod programs;
pub mod scrub;
pub mod trim;

use std::path::{Component, Path};

use anyhow::{Context, Result};

use crate::host::command::Run;
use crate::host::enter::Bind;
use crate::lock::apt::SUITE;
use crate::lock::{Deb, index};
use crate::store::{Cache, WorkDir};
use crate::toolbox::Toolbox;

/// dpkg options that keep what a box never reads out of the tree.
const LEAN: &[&str] = &[
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/bash-completion/*",
    "path-exclude=/usr/share/zsh/*",
    "force-unsafe-io",
];

/// Where work lies for programs of the toolbox: the same path on every machine, so that none leaks into results.
pub const INSIDE: &str = "/mnt/build";

/// Makes the tree of the packages at `<work>/<name>` with mmdebstrap in the toolbox.
pub fn bootstrap(cache: &Cache, toolbox: &Toolbox, work: &WorkDir, name: &str, debs: &[Deb], built: u64) -> Result<()> {
    let repository = work.path().join("repository");
    fs_err::create_dir(&repository)?;
    index::write(cache, debs, &repository)?;
    let include: Vec<_> = debs.iter().map(|deb| deb.name.as_str()).collect();
    let tool = toolbox
        .tool("mmdebstrap")
        .args(["--variant=apt", "--mode=root", "--skip=output/dev", "--skip=check/qemu"])
        .args(["--aptopt=APT::Install-Recommends \"false\""])
        .args(LEAN.iter().map(|option| format!("--dpkgopt={option}")))
        .arg(format!("--include={}", include.join(",")))
        .args([SUITE, &format!("{INSIDE}/{name}"), &format!("deb [trusted=yes] copy://{INSIDE}/repository ./")])
        .env("SOURCE_DATE_EPOCH", built.to_string())
        .bind(work.path(), Path::new(INSIDE), true);
    tool.run().context("making a Debian tree")?;
    fs_err::remove_dir_all(&repository)?;
    Ok(())
}

/// Unpacks packages into a tree, without what they would do when they are installed.
pub fn unpack<'a>(cache: &Cache, debs: impl IntoIterator<Item = &'a Deb>, root: &Path) -> Result<()> {
    for deb in debs {
        let unpack = Run::new("dpkg-deb").reproducible().arg("--extract");
        unpack.arg(cache.blob_path(&deb.sha256)).arg(root).output()?;
    }
    Ok(())
}

/// Whether a path stays below the folder that it is joined to.
pub fn inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// A bind of the work folder for programs of the toolbox.
pub fn work_bind(work: &WorkDir) -> Bind {
    Bind { from: work.path().to_owned(), to: INSIDE.into(), writable: true }
}
