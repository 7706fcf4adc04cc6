//! The `kubernetes` layer: what runs beside the pods.
//!
//! Kubernetes' own programs may be one under several names. The images have it then, and what is it on the box itself lies in
//! the `containers` layer, too, as a name of the same file: it is on the medium, and in memory, once.

use agent_api::boot::{CONTAINERS, HOST};
use anyhow::Result;

use super::seal;
use super::squashfs::Packing;
use crate::rootfs::programs::{names_of, place_all};
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
