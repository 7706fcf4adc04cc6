//! From a plan to the pieces of a disk.

use std::sync::Arc;

use fs_err::File;
use hadris_fat::FatKind;

use super::{DEFAULT_VIRTUAL_BYTES, FormatError, ImagePlan};
use crate::boot::{esp, grub};
use crate::disk::extents::Extents;
use crate::disk::fat::{self, Volume};
use crate::disk::layout::{self, DiskLayout, MIB, Sizes};
use crate::disk::{Content, SourceFile, Tools, ext4, gpt, ids, site};

/// Smallest ESP: FAT32 beyond doubt with [`ESP_CLUSTER`], and room for two more releases' kernels.
const ESP_MIN_BYTES: u64 = 128 * MIB;
/// Clusters of the ESP. Larger ones would make a smaller image impossible (FAT32 has at least 65525) and do not make
/// GRUB faster.
const ESP_CLUSTER: u32 = 1024;
const SITE_CLUSTER: u32 = 512;

/// How large a disk is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskSize {
    /// As small as the content allows.
    Smallest,
    /// With room for DATA: [`DEFAULT_VIRTUAL_BYTES`], or twice the smallest size when that is more.
    Roomy,
    /// So many bytes.
    Bytes(u64),
}

/// The pieces of a disk. A limit in bytes is for a disk whose file is as large as itself.
pub(super) fn disk(
    plan: &ImagePlan,
    tools: &dyn Tools,
    size: DiskSize,
    limit: Option<u64>,
) -> Result<Extents, FormatError> {
    let store = store(plan)?;
    let mut esp_files = esp::loader_files(&plan.entries, tools)?;
    esp_files.extend(esp::kernel_files(&plan.entries)?);
    let mut sizes = Sizes { esp: esp_bytes(&esp_files), store: store.size(), disk: None, max: None };
    let smallest = layout::plan(&plan.release_id, &sizes)?.bytes;
    sizes.disk = match size {
        DiskSize::Smallest => None,
        DiskSize::Roomy => Some(DEFAULT_VIRTUAL_BYTES.max(2 * smallest)),
        DiskSize::Bytes(bytes) => Some(bytes),
    };
    sizes.max = limit;
    let layout = layout::plan(&plan.release_id, &sizes)?;
    let esp = volume(plan, "ESP", ESP_CLUSTER, &layout.esp, &esp_files)?;
    let site_volume = volume(plan, "SITE", SITE_CLUSTER, &layout.site, &site::files(&plan.site))?;
    let mut core = grub::core_image(grub::Target::Disk, tools, &plan.cache)?;
    grub::place_core(&mut core, layout.bios_boot.start);
    let table = table(&layout, &grub::mbr_code(tools, layout.bios_boot.start)?);

    let mut image = Extents::new(layout.bytes);
    image.push(0, &Content::Bytes(table.primary))?;
    image.push(layout.bios_boot.start, &Content::Bytes(core))?;
    image.push_open(layout.esp.start, &esp)?;
    image.push_image(layout.store.start, &store);
    image.push_open(layout.site.start, &site_volume)?;
    image.push(layout.bytes - table.backup.len() as u64, &Content::Bytes(table.backup))?;
    Ok(image)
}

fn store(plan: &ImagePlan) -> Result<Extents, FormatError> {
    let uuid = ids::uuid(&plan.release_id, "STORE filesystem");
    Ok(ext4::build(&plan.store, &ext4::Identity { label: "STORE", uuid, time: plan.built })?)
}

/// The partition table with `boot_code` in its master boot record.
fn table(layout: &DiskLayout, boot_code: &[u8]) -> gpt::Encoded {
    let mut table = gpt::encode(layout.bytes, gpt::SECTOR, layout.guid, &layout.partitions().map(Clone::clone));
    table.primary[..boot_code.len()].copy_from_slice(boot_code);
    table
}

/// Room for the files three times over: updates add a release before they remove one.
fn esp_bytes(files: &[SourceFile]) -> u64 {
    let content: u64 = files.iter().map(|file| file.content.len().next_multiple_of(u64::from(ESP_CLUSTER))).sum();
    (content * 3).next_multiple_of(MIB).max(ESP_MIN_BYTES)
}

/// A FAT32 volume for `partition`.
fn volume(
    plan: &ImagePlan,
    label: &'static str,
    cluster: u32,
    partition: &gpt::Partition,
    files: &[SourceFile],
) -> Result<Arc<File>, FormatError> {
    let serial = ids::serial(&plan.release_id, label);
    let (kind, time) = (FatKind::Fat32, i64::from(plan.built));
    let (bytes, offset, sector) = (partition.bytes, partition.start, fat::SECTOR);
    let volume = Volume { label, serial, bytes, offset, kind, sector, cluster, time };
    scratch_volume(plan, &volume, files)
}

/// Writes a FAT volume to a file without a name, which goes when the last user does.
pub(super) fn scratch_volume(
    plan: &ImagePlan,
    volume: &Volume,
    files: &[SourceFile],
) -> Result<Arc<File>, FormatError> {
    let file = tempfile::tempfile_in(&plan.cache)?;
    let file = File::from_parts(file, plan.cache.join(format!("{} (scratch)", volume.label)));
    fat::write_to(file.try_clone()?, volume, files)?;
    Ok(Arc::new(file))
}
