//! The `kubernetes` layer: what runs beside the pods.
//!
//! Kubernetes' own programs may be one under several names. The images have it then, and what is it on the box itself lies in
//! the `containers` layer, too, as a name of the same file: it is on the medium, and in memory, once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::boot::{CONTAINERS, HOST};
use agent_api::release::Digest;
use anyhow::{Result, ensure};

use super::seal;
use super::squashfs::Packing;
use crate::store::{Cache, Made, StageKey};
use crate::toolbox::Toolbox;

/// Name of the layer.
pub const LAYER: &str = "kubernetes";

/// Program -> path on the box.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("kubelet", "usr/bin/kubelet"),
    ("kubeadm", "usr/bin/kubeadm"),
    ("kubectl", "usr/bin/kubectl"),
    ("containerd", "usr/bin/containerd"),
    ("containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2"),
    ("ctr", "usr/bin/ctr"),
    ("etcdctl", "usr/bin/etcdctl"),
    ("bridge", "opt/cni/bin/bridge"),
    ("host-local", "opt/cni/bin/host-local"),
    ("loopback", "opt/cni/bin/loopback"),
    ("portmap", "opt/cni/bin/portmap"),
];

/// Whether a program is one with a program of an image: then the `containers` layer has it.
fn is_shared(programs: &Made, name: &str) -> Result<bool> {
    Ok(names_of(programs, name)?.len() > 1)
}

/// Those that this layer has (`false`), or those that are one with a program of an image (`true`).
pub fn programs_that_are(shared: bool, programs: &Made) -> Result<Vec<(&'static str, &'static str)>> {
    let mut found = Vec::new();
    for (name, path) in PROGRAMS {
        if is_shared(programs, name)? == shared {
            found.push((*name, *path));
        }
    }
    Ok(found)
}

/// Where the box has a program: name of the layer, path in it.
pub fn place_of(programs: &Made, name: &str) -> Result<Option<(&'static str, String)>> {
    let Some((_, path)) = PROGRAMS.iter().find(|(known, _)| *known == name) else { return Ok(None) };
    let place =
        if is_shared(programs, name)? { (CONTAINERS, format!("{HOST}/{path}")) } else { (LAYER, (*path).to_owned()) };
    Ok(Some(place))
}

/// Makes the layer of the programs, which lie in `programs` under their own names.
pub fn make(
    cache: &Cache,
    toolbox: &Toolbox,
    toolbox_key: &str,
    programs: &Made,
    built: u64,
    waiting: &(dyn Fn(&str) + Sync),
) -> Result<(Made, bool)> {
    let apart = programs_that_are(false, programs)?;
    let mut key = StageKey::new("kubernetes", 4).with("toolbox", toolbox_key).with("built", built);
    for (name, _) in &apart {
        key = key.with(name, &programs.file(name)?.digest);
    }
    cache.stage(&key, &mut || waiting("another build is making the same"), |work| {
        let tree = work.path().join("tree");
        place_all(cache, programs, &tree, apart.iter().copied())?;
        let mut made = Made::default();
        let packing = Packing { level: 15, all_root: true, time: built, order: Vec::new() };
        seal::seal(cache, toolbox, work, "tree", LAYER, &packing, &mut made)?;
        Ok(made)
    })
}

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
