//! Making the toolbox tree, once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Toolbox;
use crate::host::command::Run;
use crate::host::flock;
use crate::lock::apt::SUITE;
use crate::lock::{Deb, index};
use crate::store::{Cache, hash};

/// Written last: a tree without it is half-made.
const COMPLETE: &str = "etc/foothold-toolbox";

/// Options that keep documentation out and write no logs.
const LEAN: &[&str] = &[
    "--aptopt=APT::Install-Recommends \"false\"",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/lintian/*",
    "--dpkgopt=force-unsafe-io",
];

/// Folder of the tree that these packages make.
pub fn tree_path(cache: &Cache, debs: &[Deb]) -> Result<PathBuf> {
    let key = hash::bytes(&serde_json::to_vec(debs)?);
    Ok(cache.path("toolbox").join(&key.hex()[..16]))
}

/// Whether the tree is whole.
pub fn is_complete(tree: &Path) -> bool {
    tree.join(COMPLETE).exists()
}

/// The toolbox made of these packages, which must be in the cache already.
pub fn ensure(cache: &Cache, debs: &[Deb], helper: &Path, say: &mut dyn FnMut(&str)) -> Result<Toolbox> {
    let tree = tree_path(cache, debs)?;
    let toolbox = Toolbox::at(&tree, helper);
    if is_complete(&tree) {
        return point_current(cache, &tree).map(|()| toolbox);
    }
    fs_err::create_dir_all(cache.path("toolbox"))?;
    let _held = flock::lock(&tree.with_extension("lock"), &mut || say("another build is making the toolbox"))?;
    if is_complete(&tree) {
        return point_current(cache, &tree).map(|()| toolbox);
    }
    say(&format!("unpacking {} packages", debs.len()));
    let work = cache.work_dir()?;
    let repository = work.path().join("repository");
    fs_err::create_dir(&repository)?;
    index::write(cache, debs, &repository)?;
    let fresh = work.path().join("tree");
    let include: Vec<_> = debs.iter().map(|deb| deb.name.as_str()).collect();
    Run::new("mmdebstrap")
        .args(["--variant=apt", "--skip=output/dev", "--mode=root"])
        .args(LEAN)
        .arg(format!("--include={}", include.join(",")))
        .arg(SUITE)
        .arg(&fresh)
        .arg(format!("deb [trusted=yes] copy://{} ./", quoted(&repository)))
        .reproducible()
        .env("TMPDIR", "/tmp")
        .output()
        .context("making the toolbox")?;
    prepare(&fresh)?;
    if tree.exists() {
        fs_err::remove_dir_all(&tree)?;
    }
    fs_err::rename(&fresh, &tree)?;
    point_current(cache, &tree)?;
    Ok(toolbox)
}

/// A path in a URI (RFC 3986, section 2.1).
fn quoted(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// Files onto which the host's are bound, and the mark of completeness.
fn prepare(tree: &Path) -> Result<()> {
    for file in ["etc/resolv.conf", "etc/hosts"] {
        let path = tree.join(file);
        if path.is_symlink() || !path.exists() {
            let _ = fs_err::remove_file(&path);
            fs_err::write(path, "")?;
        }
    }
    fs_err::write(tree.join(COMPLETE), "complete\n")?;
    Ok(())
}

/// `toolbox/current` names the newest tree: the tests of the VM runner look there.
fn point_current(cache: &Cache, tree: &Path) -> Result<()> {
    let link = cache.path("toolbox/current");
    if fs_err::read_link(&link).is_ok_and(|target| target == tree) {
        return Ok(());
    }
    let partial = cache.path(&format!("toolbox/current.{}", std::process::id()));
    let _ = fs_err::remove_file(&partial);
    fs_err::os::unix::fs::symlink(tree, &partial)?;
    fs_err::rename(partial, link)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_repository_may_lie_anywhere() {
        assert_eq!(super::quoted("/srv/my cache/a%é-1.0".as_ref()), "/srv/my%20cache/a%25%C3%A9-1.0");
    }
}
