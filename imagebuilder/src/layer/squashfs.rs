//! squashfs by `mksquashfs` of the toolbox: the same tree gives the same bytes.

use std::path::Path;

use anyhow::{Context, Result};

use crate::rootfs::INSIDE;
use crate::store::WorkDir;
use crate::toolbox::Toolbox;

/// Size of a block, and of what small files are packed together to. The kernel makes pages for as much of it whenever it
/// reads the smallest file, and unpacks all of it: of a megabyte, that takes longer than all else when thousands of small
/// files are read.
const BLOCK: &str = "128K";
/// The largest priority that `mksquashfs -sort` takes.
const FIRST: i32 = 32767;

/// How the tree is packed.
#[derive(Clone, Debug)]
pub struct Packing {
    /// zstd level.
    pub level: u32,
    /// All files belong to root, whoever owns them here.
    pub all_root: bool,
    /// Time of every file, seconds since 1970.
    pub time: u64,
    /// Files that are read one after the other, by their paths in the tree: they lie side by side, in that order.
    pub order: Vec<String>,
}

/// File of the work folder that says what is packed first.
const ORDER: &str = "order";

/// Packs `<work>/<tree>` into `<work>/<file>`.
pub fn make(toolbox: &Toolbox, work: &WorkDir, tree: &str, file: &str, packing: &Packing) -> Result<()> {
    let time = packing.time.to_string();
    let mut tool = toolbox
        .tool("mksquashfs")
        .args([format!("{INSIDE}/{tree}"), format!("{INSIDE}/{file}")])
        .args(["-noappend", "-no-progress", "-quiet", "-no-exports", "-comp", "zstd", "-b", BLOCK])
        .args(["-Xcompression-level", &packing.level.to_string()])
        .args(["-mkfs-time", &time, "-all-time", &time, "-root-mode", "0755"])
        .bind(work.path(), Path::new(INSIDE), true);
    if packing.all_root {
        tool = tool.arg("-all-root");
    }
    if !packing.order.is_empty() {
        // The tool takes no more priorities than this; what comes behind is packed in no order.
        let lines = packing.order.iter().zip((1..=FIRST).rev()).map(|(path, priority)| format!("{path} {priority}\n"));
        fs_err::write(work.path().join(ORDER), lines.collect::<String>())?;
        tool = tool.arg("-sort").arg(format!("{INSIDE}/{ORDER}"));
    }
    tool.run().with_context(|| format!("packing the tree `{tree}`"))?;
    Ok(())
}

/// The bytes of one file of a layer. `path` has no leading `/`.
pub fn file_of(toolbox: &Toolbox, layer: &Path, path: &str) -> Result<Vec<u8>> {
    let read = toolbox.tool("unsquashfs").args(["-no-progress", "-cat"]).reads(layer).arg(layer).arg(path).run();
    read.with_context(|| format!("reading `{path}` out of a layer"))
}
