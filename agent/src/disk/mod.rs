//! Disks of the box: what they hold, where DATA goes, how a medium gets on one. In the initrd, and after it.
//!
//! ```text
//! facts (reads only; probe, table) -> decide (pure) -> execute -> DATA is mounted
//! install: the partitions of a medium, copied to another disk
//! ```
//! A DATA belongs to the medium on whose disk it lies; on a disk of its own it belongs to the
//! appliance that its `lib/foothold/data.json` names, whatever release that runs.

use crate::host::block::{self, Disk};

pub mod decide;
pub mod execute;
pub mod facts;
pub mod install;
pub mod probe;
pub mod table;

/// Name of the partition that holds the release.
const STORE_NAME: &str = "STORE";

/// Tells the kernel about the partitions of a disk whose table it could not use: only the copy at
/// the end is whole after a power cut. Returns what is wrong when the disk is too short for its table.
pub fn announce_partitions(disk: &Disk) -> Option<String> {
    let mut device = fs_err::File::open(block::node(&disk.name)).ok()?;
    if let Ok(Some(found)) = table::read(&mut device, disk.bytes, disk.block_bytes)
        && found.table.last_usable < disk.bytes / disk.block_bytes
    {
        for entry in found.table.used() {
            let _ = block::add_partition(&block::node(&disk.name), entry.number, entry.start, entry.bytes);
        }
        return None;
    }
    let (has, needs) = (disk.bytes, table::claimed_bytes(&mut device, disk.block_bytes, STORE_NAME).ok()??);
    (needs > has).then(|| format!("{} has {has} bytes, the image on it {needs}: a cut-off image", disk.name))
}

/// Whether a partition is the one that holds the release.
pub fn is_medium_store(entry: &table::Entry) -> bool {
    entry.name == STORE_NAME
}
