//! The `appliance` layer: what is ours. The only layer that changes when the agent does.

use std::path::Path;

use anyhow::{Context, Result};

use super::seal;
use super::squashfs::Packing;
use crate::rootfs::programs::place;
use crate::store::{Cache, Made, StageKey, hash};
use crate::toolbox::Toolbox;

/// What the layer is made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// Key of the toolbox.
    pub toolbox_key: &'a str,
    /// The agent.
    pub agent: &'a Made,
    /// Kubernetes templates: file name below `/usr/share/foothold/kubernetes` -> blob.
    pub templates: &'a Made,
    /// What images of services export: file name below `/usr/share/foothold/services` -> blob.
    pub services: &'a Made,
    /// The folder `overlay/`: the path there is the path on the box.
    pub overlay: &'a Path,
    /// Build time.
    pub built: u64,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// Where the agent lies on the box.
pub(crate) const AGENT: &str = "usr/bin/foothold-agent";
/// Where the templates lie on the box.
const TEMPLATES: &str = "usr/share/foothold/kubernetes";
/// Where files of services lie on the box.
const SERVICES: &str = "usr/share/foothold/services";

/// Makes the layer or takes it from the cache.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let mut key = StageKey::new("appliance", 4)
        .with("toolbox", input.toolbox_key)
        .with("agent", &input.agent.file("foothold-agent")?.digest)
        .with("overlay", hash::tree(input.overlay)?)
        .with("built", input.built);
    for (name, blob) in &input.templates.files {
        key = key.with(name, &blob.digest);
    }
    for (name, blob) in &input.services.files {
        key = key.with(&format!("services/{name}"), &blob.digest);
    }
    input.cache.stage(&key, &mut || (input.waiting)("another build is making the same"), |work| {
        let tree = work.path().join("tree");
        copy_tree(input.overlay, &tree)?;
        place(input.cache, input.agent, "foothold-agent", &tree.join(AGENT))?;
        let templates = input.templates.files.iter().map(|file| (TEMPLATES, file));
        for (folder, (name, blob)) in templates.chain(input.services.files.iter().map(|file| (SERVICES, file))) {
            let target = tree.join(folder).join(name);
            fs_err::create_dir_all(target.parent().context("a folder")?)?;
            fs_err::copy(input.cache.blob_path(&blob.digest), &target)?;
            fs_err::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        }
        let mut made = Made::default();
        let packing = Packing { level: 15, all_root: true, time: input.built, order: Vec::new() };
        seal::seal(input.cache, input.toolbox, work, "tree", "appliance", &packing, &mut made)?;
        Ok(made)
    })
}

/// Copies files, links and folders. Modes are normalized: 0755 for folders and programs, 0644 for the rest.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for entry in walkdir::WalkDir::new(from).sort_by_file_name() {
        let entry = entry?;
        let target = to.join(entry.path().strip_prefix(from)?);
        if entry.file_type().is_dir() {
            fs_err::create_dir_all(&target)?;
            fs_err::set_permissions(&target, PermissionsExt::from_mode(0o755))?;
        } else if entry.file_type().is_symlink() {
            fs_err::os::unix::fs::symlink(fs_err::read_link(entry.path())?, &target)?;
        } else {
            fs_err::copy(entry.path(), &target)?;
            let mode = if entry.metadata()?.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
            fs_err::set_permissions(&target, PermissionsExt::from_mode(mode))?;
        }
    }
    Ok(())
}
