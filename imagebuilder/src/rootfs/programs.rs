//! Programs of the release on their way into a tree. Several may be one file, which knows by its name which of them it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::release::Digest;
use anyhow::{Result, ensure};

use crate::store::{Cache, Made};

/// Copies programs out of the cache into a tree: name, path in it. What is one program under several names is one file,
/// with a link for each.
pub fn place_all<'p>(
    cache: &Cache,
    programs: &Made,
    tree: &Path,
    all: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> Result<()> {
    let mut placed: BTreeMap<&Digest, PathBuf> = BTreeMap::new();
    for (name, path) in all {
        ensure_called(programs, name, path)?;
        let (target, digest) = (tree.join(path), &programs.file(name)?.digest);
        if let Some(there) = placed.get(digest) {
            fs_err::create_dir_all(target.parent().unwrap_or(tree))?;
            fs_err::hard_link(there, &target)?;
        } else {
            place(cache, programs, name, &target)?;
            placed.insert(digest, target);
        }
    }
    Ok(())
}

/// All names of the program that this one is.
pub fn names_of<'m>(programs: &'m Made, name: &str) -> Result<Vec<&'m str>> {
    let digest = &programs.file(name)?.digest;
    Ok(programs.files.iter().filter(|(_, blob)| blob.digest == *digest).map(|(name, _)| name.as_str()).collect())
}

/// A program that is several is told by the name of its file which of them to be.
pub fn ensure_called(programs: &Made, name: &str, path: &str) -> Result<()> {
    let file = path.rsplit('/').next().unwrap_or(path);
    ensure!(
        file.starts_with(name) || names_of(programs, name)?.len() == 1,
        "`{path}` is to be the program `{name}`, which knows itself by its name\nhint: let the file be called `{name}`"
    );
    Ok(())
}

/// Copies a program out of the cache, executable.
pub fn place(cache: &Cache, programs: &Made, name: &str, target: &Path) -> Result<()> {
    if let Some(parent) = target.parent() {
        fs_err::create_dir_all(parent)?;
    }
    fs_err::copy(cache.blob_path(&programs.file(name)?.digest), target)?;
    fs_err::set_permissions(target, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(())
}
