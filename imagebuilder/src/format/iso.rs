//! Hybrid CD images: El Torito for BIOS and UEFI, and bootable when copied to a stick.
//!
//! ```text
//! MBR (GRUB's hybrid boot code) │ GPT │ ISO 9660 + Rock Ridge: EFI/debian/grub.cfg, foothold/boot/…, foothold/store/… │ GPT
//! ```
//!
//! All that firmware and GRUB read lies in front of the store, so that a cut-off image still starts and can say so.
//! The ESP image holds shim, GRUB and the menu only; kernel and initrd are files of the CD, which the menu finds by the
//! release's id. On a stick the whole disk carries ISO 9660 (no partition does).
//! Source: El Torito 1.0; ECMA-119; RRIP 1.12.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use agent_api::menu;
use fs_err::File;
use hadris_fat::FatKind;
use hadris_fs::{DateTime, Node, Owner, Permissions, Report, SetAttr, Tree};
use hadris_iso::{BootEntry, BootInfo, ElTorito, Hybrid, IsoId, IsoLevel, IsoOptions, NameCase};
use hadris_storage::host::FileDevice;
use hadris_storage::sync::BlockDevice;
use hadris_storage::{BlockIndex, BlockSize};

use super::compose::scratch_volume;
use super::output::own_path;
use super::{FormatError, ImagePlan};
use crate::boot::{esp, grub};
use crate::disk::extents::ExtentsError;
use crate::disk::fat::{self, Volume};
use crate::disk::layout::MIB;
use crate::disk::{Content, SourceFile, Tools, gpt, ids};

/// Volume identifier, by which people and tools recognise the CD.
const VOLUME_ID: &str = "FOOTHOLD";
/// GRUB's boot image for BIOS within the tree.
const BOOT_IMAGE: &str = "foothold/boot/bios.img";
/// El Torito's boot catalog within the tree.
const BOOT_CATALOG: &str = "foothold/boot/boot.cat";
/// The ESP image that El Torito and the GPT point to, within the tree.
const ESP_IMAGE: &str = "foothold/boot/efi.img";
/// 512-byte sectors of [`BOOT_IMAGE`] that firmware loads: `cdboot.img`, which loads the rest.
const BOOT_IMAGE_SECTORS: u16 = 4;
/// Clusters of the small ESP image.
const ESP_CLUSTER: u32 = 2048;
/// Room in the ESP image beyond its files: FATs, folders.
const ESP_SPARE: u64 = MIB;
const FILE_MODE: u32 = 0o444;
const DIR_MODE: u32 = 0o755;

/// Writes the CD image of `plan` to the empty `file`.
pub fn write(
    plan: &ImagePlan,
    tools: &dyn Tools,
    file: &mut File,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), FormatError> {
    let loader = esp::loader_files(&plan.entries, tools)?;
    let mut files = plan.store.clone();
    files.extend(esp::kernel_files(&plan.entries)?);
    files.extend(loader.iter().filter(|file| file.path == esp::GRUB_CFG).cloned());
    let loopback = Content::Bytes(menu::LOOPBACK.as_bytes().to_vec());
    files.push(SourceFile { path: menu::LOOPBACK_CFG.to_owned(), content: loopback });
    let boot_image = grub::core_image(grub::Target::Cd, tools, &plan.cache)?;
    files.push(SourceFile { path: BOOT_IMAGE.to_owned(), content: Content::Bytes(boot_image) });
    let esp = esp_image(plan, &loader)?;
    let esp_content = Content::File { path: own_path(&esp), bytes: esp.metadata()?.len() };
    files.push(SourceFile { path: ESP_IMAGE.to_owned(), content: esp_content });
    let report = write_tree(plan, &files, file, progress)?;
    let boot_image_at = report.extents(BOOT_IMAGE).and_then(<[_]>::first).map(hadris_fs::Extent::offset);
    let boot_image_at = boot_image_at.ok_or_else(|| failed(format!("`{BOOT_IMAGE}` has no place")))?;
    file.file().write_all_at(&grub::hybrid_code(tools, boot_image_at)?, 0)?;
    file.file().write_all_at(&gpt::ACTIVE_RECORD, gpt::ACTIVE_RECORD_AT)?;
    Ok(())
}

/// The ESP that El Torito and the GPT point to.
fn esp_image(plan: &ImagePlan, files: &[SourceFile]) -> Result<Arc<File>, FormatError> {
    let content: u64 = files.iter().map(|file| file.content.len().next_multiple_of(u64::from(ESP_CLUSTER))).sum();
    // FAT16 needs 4085 clusters; below that firmware would take it for FAT12.
    let smallest = 4096 * u64::from(ESP_CLUSTER);
    let volume = Volume {
        label: "ESP",
        serial: ids::serial(&plan.release_id, "CD ESP"),
        bytes: (content + ESP_SPARE).next_multiple_of(MIB).max(smallest + ESP_SPARE),
        offset: 0,
        kind: FatKind::Fat16,
        sector: fat::SECTOR,
        cluster: ESP_CLUSTER,
        time: i64::from(plan.built),
    };
    scratch_volume(plan, &volume, files)
}

fn write_tree(
    plan: &ImagePlan,
    files: &[SourceFile],
    file: &mut File,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, FormatError> {
    let time = DateTime::from_unix_seconds(i64::from(plan.built)).map_err(failed)?;
    let tree = tree(files, time)?;
    let options = options(plan, time);
    let total = hadris_iso::plan(&tree, &options).map_err(failed)?.size();
    let block = BlockSize::new(512).ok_or_else(|| failed("no block size"))?;
    let device = FileDevice::with_block_size(file.file().try_clone()?, block)?;
    hadris_iso::sync::write(Counted { device, done: 0, total, progress }, &tree, &options).map_err(failed)
}

fn options(plan: &ImagePlan, time: DateTime) -> IsoOptions {
    let bios = BootEntry::bios(BOOT_IMAGE).with_load_size(BOOT_IMAGE_SECTORS).with_boot_info(BootInfo::Grub2);
    let boot = ElTorito::new().with_entry(bios).with_entry(BootEntry::uefi(ESP_IMAGE)).with_catalog_path(BOOT_CATALOG);
    IsoOptions::new()
        .with_level(IsoLevel::L3)
        .with_name_case(NameCase::Preserve)
        .with_rock_ridge()
        .with_id(IsoId::Volume, VOLUME_ID)
        .with_id(IsoId::Application, "")
        .with_time(time)
        .with_seed(ids::seed(&plan.release_id, "CD"))
        .with_el_torito(boot)
        .with_hybrid(Hybrid::gpt())
}

/// The CD's tree: folders first, so that they have a mode, then files; all of root's.
fn tree(files: &[SourceFile], time: DateTime) -> Result<Tree, FormatError> {
    let attributes = |mode| {
        SetAttr::new()
            .with_permissions(Permissions::new(mode))
            .with_owner(Owner::new(0, 0))
            .with_modified(time)
            .with_accessed(time)
            .with_created(time)
    };
    let mut tree = Tree::new();
    for file in files {
        for (end, _) in file.path.match_indices('/') {
            let folder = &file.path[..end];
            if tree.get(folder).is_none() {
                tree.insert(folder, Node::dir().with_attrs(attributes(DIR_MODE))).map_err(failed)?;
            }
        }
        let node = Node::file(to_content(&file.content)?).with_attrs(attributes(FILE_MODE));
        tree.insert(&file.path, node).map_err(failed)?;
    }
    Ok(tree)
}

fn to_content(content: &Content) -> Result<hadris_fs::Content, FormatError> {
    match content {
        Content::Bytes(bytes) | Content::Reserved(bytes) => Ok(hadris_fs::Content::bytes(bytes.clone())),
        Content::File { path, bytes } => {
            let content = hadris_fs::host::file(path).map_err(failed)?;
            if content.len() == *bytes {
                return Ok(content);
            }
            Err(ExtentsError::Size { path: path.clone(), expected: *bytes, found: content.len() }.into())
        }
    }
}

fn failed(error: impl std::fmt::Display) -> FormatError {
    FormatError::Iso(error.to_string())
}

/// A file that tells how much of it was written.
struct Counted<'a> {
    device: FileDevice,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl hadris_io::ErrorType for Counted<'_> {
    type Error = io::Error;
}

impl BlockDevice for Counted<'_> {
    fn block_size(&self) -> BlockSize {
        self.device.block_size()
    }

    fn block_count(&self) -> u64 {
        self.device.block_count()
    }

    fn max_block_count(&self) -> u64 {
        self.device.max_block_count()
    }

    fn writable(&self) -> bool {
        true
    }

    fn read_blocks(&mut self, first: BlockIndex, buffer: &mut [u8]) -> Result<(), hadris_io::Error<io::Error>> {
        self.device.read_blocks(first, buffer)
    }

    fn write_blocks(&mut self, first: BlockIndex, buffer: &[u8]) -> Result<(), hadris_io::Error<io::Error>> {
        self.device.write_blocks(first, buffer)?;
        self.done += buffer.len() as u64;
        (self.progress)(self.done.min(self.total), self.total);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), hadris_io::Error<io::Error>> {
        self.device.flush()
    }
}
