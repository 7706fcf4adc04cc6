//! The `kubernetes` layer: what runs beside the pods.

use std::path::Path;

use anyhow::Result;

use super::seal;
use super::squashfs::Packing;
use crate::store::{Cache, Made, StageKey};
use crate::toolbox::Toolbox;

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

/// Makes the layer of the programs, which lie in `programs` under their own names.
pub fn make(
    cache: &Cache,
    toolbox: &Toolbox,
    toolbox_key: &str,
    programs: &Made,
    built: u64,
    waiting: &(dyn Fn(&str) + Sync),
) -> Result<(Made, bool)> {
    let mut key = StageKey::new("kubernetes", 3).with("toolbox", toolbox_key).with("built", built);
    for (name, _) in PROGRAMS {
        key = key.with(name, &programs.file(name)?.digest);
    }
    cache.stage(&key, &mut || waiting("another build is making the same"), |work| {
        let tree = work.path().join("tree");
        for (name, path) in PROGRAMS {
            place(cache, programs, name, &tree.join(path))?;
        }
        let mut made = Made::default();
        let packing = Packing { level: 15, all_root: true, time: built, order: Vec::new() };
        seal::seal(cache, toolbox, work, "tree", "kubernetes", &packing, &mut made)?;
        Ok(made)
    })
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
