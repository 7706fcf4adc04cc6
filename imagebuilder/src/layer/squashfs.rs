//! squashfs by `mksquashfs` of the toolbox: the same tree gives the same bytes.

use std::path::Path;

use anyhow::{Context, Result};

use crate::rootfs::INSIDE;
use crate::store::WorkDir;
use crate::toolbox::Toolbox;

/// How the tree is packed.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// zstd level.
    pub level: u32,
    /// All files belong to root, whoever owns them here.
    pub all_root: bool,
    /// Time of every file, seconds since 1970.
    pub time: u64,
}

/// Packs `<work>/<tree>` into `<work>/<file>`.
pub fn make(toolbox: &Toolbox, work: &WorkDir, tree: &str, file: &str, packing: Packing) -> Result<()> {
    let time = packing.time.to_string();
    let mut tool = toolbox
        .tool("mksquashfs")
        .args([format!("{INSIDE}/{tree}"), format!("{INSIDE}/{file}")])
        .args(["-noappend", "-no-progress", "-quiet", "-no-exports", "-comp", "zstd", "-b", "1M"])
        .args(["-Xcompression-level", &packing.level.to_string()])
        .args(["-mkfs-time", &time, "-all-time", &time, "-root-mode", "0755"])
        .bind(work.path(), Path::new(INSIDE), true);
    if packing.all_root {
        tool = tool.arg("-all-root");
    }
    tool.run().with_context(|| format!("packing the tree `{tree}`"))?;
    Ok(())
}
