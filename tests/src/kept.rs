//! Package sets that tests resolve once and keep in the cache. Everything else in a lock is always made from the sources of
//! today.

use anyhow::{Context as _, Result};
use foothold::builder::Builder;
use foothold::lock::Lock;
use foothold::lock::apt::{Apt, Mirror};

/// Adds the package sets of `tests/NAME.lock` in the cache to `lock`, if it `fits` with them. Otherwise it resolves them,
/// and keeps them.
///
/// # Errors
/// An error of the resolving.
pub fn add_packages(
    at: &Builder,
    name: &str,
    lock: &mut Lock,
    fits: impl Fn(&Lock) -> bool,
    resolve: impl FnOnce(&Apt, &mut Lock) -> Result<()>,
) -> Result<()> {
    let path = at.cache.path(&format!("tests/{name}.lock"));
    if let Some(kept) = Lock::read(&path).ok().flatten().filter(|kept| kept.made == lock.made) {
        let mut with = lock.clone();
        for (set, packages) in kept.debian {
            with.debian.entry(set).or_insert(packages);
        }
        for (set, asked) in kept.asked {
            with.asked.entry(set).or_insert(asked);
        }
        if fits(&with) {
            *lock = with;
            return Ok(());
        }
    }
    let work = at.cache.work_dir()?;
    let apt = Apt::new(&work.path().join("apt"), &Mirror::of_host(None)?)?;
    apt.update()?;
    resolve(&apt, lock)?;
    fs_err::create_dir_all(path.parent().context("a folder")?)?;
    lock.write(&path)
}
