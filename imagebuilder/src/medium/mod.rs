//! Reading an image back: what the builder wrote, or what a device holds.
//!
//! ```text
//! raw, device ─┐                ┌─ STORE (ext4) ─▶ Tree ─┐
//! qcow2 ───────┴─ GPT ──────────┴─ ESP (FAT) ────▶ Tree ─┼─▶ Medium ─▶ Found (a release) ─▶ check: Problems
//! iso ──────────── ISO 9660 ─────────────────────▶ Tree ─┘
//! ```
//! Nothing is mounted and nothing is written. What cannot be read is a flaw of the medium, not the end of the reading:
//! [`check`] wants to name everything that is wrong at once.

pub mod bytes;
pub mod check;
mod eltorito;
mod initrd;
pub mod keys;
pub mod proof;
mod qcow2;
pub mod sectors;
pub mod tree;

use std::io;
use std::path::Path;
use std::rc::Rc;

use agent_api::proof::PROOF;
use agent_api::release::{Digest, MEDIUM_ROOT, Release, SBOM};
use ext4_view::Ext4;
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use hadris_fs::MountOptions;
use hadris_fs::sync::Volume;
use hadris_iso::sync::IsoFs;

use self::bytes::{Blocks, Bytes, Cursor, Disk, Image, Window};
use self::eltorito::BootImages;
use self::qcow2::{Qcow2, Qcow2Error};
use self::sectors::LARGE;
use self::tree::Tree;
use crate::boot::files::BOOT_FILES;
use crate::boot::{esp, grub};
use crate::disk::gpt::SECTOR;
use crate::disk::layout::{BIOS_BOOT_AT, BIOS_BOOT_BYTES};
use crate::format::Format;
use crate::store::hash;

/// Where ECMA-119 (8.4) has the identifier of the primary volume descriptor.
const ISO_MAGIC: (u64, &[u8]) = (16 * 2048 + 1, b"CD001");
/// Where the primary volume descriptor says how many sectors the volume has, little-endian (ECMA-119, 8.4.8).
const ISO_SECTORS_AT: u64 = 16 * 2048 + 80;
const GPT_MAGIC: &[u8] = b"EFI PART";
const QCOW2_MAGIC: &[u8] = b"QFI\xfb";
/// No `release.json` or signature is larger.
const SMALL: u64 = 64 << 20;

/// Why a file is no medium of ours at all.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// It cannot be opened or read; the error names it.
    #[error("the image cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("`{0}` is neither a disk image, an ISO nor a qcow2\nhint: `foothold build` makes images")]
    Foreign(String),
    /// Its tables cannot be read.
    #[error(transparent)]
    Qcow2(#[from] Qcow2Error),
}

/// An image or device that was opened.
pub struct Medium {
    /// Its format; a device has that of what was written to it.
    pub format: Format,
    /// Bytes of the file or device.
    pub bytes: u64,
    /// What is wrong with its outer shape.
    pub flaws: Vec<String>,
    /// Bytes that it says it has, where it has fewer, and what says so.
    pub cut_off: Option<(u64, &'static str)>,
    /// What is wrong with its partition table at the start.
    pub table_flaw: Option<String>,
    /// Bytes of the logical blocks that its partition table counts in.
    block: u64,
    /// The disk itself.
    disk: Disk,
    store: Option<Box<dyn Tree>>,
    /// Kernel and initrd.
    boot: Option<Box<dyn Tree>>,
    /// What UEFI starts.
    esp: Option<Box<dyn Tree>>,
    /// Where a CD's boot images are.
    images: Option<BootImages>,
}

/// A release on a medium.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of its folder: what its id should be.
    pub folder: String,
    /// `release.json`.
    pub json: Vec<u8>,
    /// `release.json.minisig`, when it is there.
    pub signature: Option<String>,
    /// `boot-files.json` and its signature, when they are there.
    pub boot_files: Option<(Vec<u8>, String)>,
    /// What lies in the place of the proof, when there is one.
    pub proof: Option<Vec<u8>>,
    /// `sbom.spdx.json` and its signature, when they are there.
    pub sbom: Option<(Vec<u8>, String)>,
}

impl Found {
    /// The id that the bytes have.
    pub fn id(&self) -> Digest {
        hash::bytes(&self.json)
    }

    /// What it says.
    pub fn release(&self) -> serde_json::Result<Release> {
        serde_json::from_slice(&self.json)
    }
}

impl Medium {
    /// Opens an image file or a block device, read-only.
    pub fn open(path: &Path) -> Result<Self, MediumError> {
        let image = Image::open(path)?;
        let device_block = image.block;
        let mut medium = Self::of(Rc::new(image), &path.display().to_string())?;
        medium.expect_block(device_block);
        Ok(medium)
    }

    /// Bytes of the logical blocks that its partition table counts in: 512, or 4096 for a disk that is called 4Kn.
    pub const fn block_bytes(&self) -> u64 {
        self.block
    }

    fn of(file: Disk, name: &str) -> Result<Self, MediumError> {
        let bytes = file.size();
        let has = |disk: &dyn Bytes, at: u64, magic: &[u8]| {
            bytes::read(disk, at, magic.len()).is_ok_and(|found| found == magic)
        };
        let has_table = |disk: &dyn Bytes, block: u64| {
            has(disk, block, GPT_MAGIC) || disk.size() > block && has(disk, disk.size() - block, GPT_MAGIC)
        };
        let mut medium = Self {
            format: Format::Raw,
            bytes,
            flaws: Vec::new(),
            cut_off: None,
            table_flaw: None,
            block: SECTOR,
            disk: Rc::clone(&file),
            store: None,
            boot: None,
            esp: None,
            images: None,
        };
        if has(&*file, 0, QCOW2_MAGIC) {
            medium.format = Format::Qcow2;
            let disk: Disk = Rc::new(Qcow2::open(file)?);
            medium.disk = Rc::clone(&disk);
            medium.open_partitions(&disk);
        } else if has(&*file, ISO_MAGIC.0, ISO_MAGIC.1) {
            medium.format = Format::Iso;
            medium.open_iso(&file);
        } else if let Some(block) = [SECTOR, LARGE].into_iter().find(|block| has_table(&*file, *block)) {
            medium.block = block;
            medium.open_partitions(&file);
        } else {
            return Err(MediumError::Foreign(name.to_owned()));
        }
        Ok(medium)
    }

    fn open_iso(&mut self, disk: &Disk) {
        let sectors =
            bytes::read(&**disk, ISO_SECTORS_AT, 4).map(|le| u32::from_le_bytes([le[0], le[1], le[2], le[3]]));
        let whole = u64::from(sectors.unwrap_or(0)) * 2048;
        self.expect_size("its volume descriptor", whole);
        // A stick boots by the table, whose second copy ends the file.
        if let Ok(header) = bytes::read(&**disk, SECTOR, 40)
            && header.starts_with(GPT_MAGIC)
            && let Some(last) = header.get(32..40).and_then(|last| <[u8; 8]>::try_from(last).ok())
        {
            self.expect_size("its partition table", u64::from_le_bytes(last).saturating_add(1).saturating_mul(SECTOR));
        }
        // Both partitions of a disk are one tree here.
        for tree in [&mut self.store, &mut self.boot] {
            // As large as it should be, so that what is cut off is found where it is read, and named.
            let volume = Window { disk: Rc::clone(disk), start: 0, size: whole.max(self.bytes) };
            match IsoFs::mount(Blocks(Rc::new(volume)), MountOptions::new().read_only()) {
                Ok(iso) => *tree = Some(Box::new(Volume::new(iso))),
                Err(error) => {
                    self.flaws
                        .push(format!("the CD's file system cannot be read: {}", tree::plain(error.into_error())));
                    return;
                }
            }
        }
        match eltorito::boot_images(&**disk) {
            Ok(images) => {
                self.images = Some(images);
                let size = whole.max(self.bytes).saturating_sub(images.uefi);
                self.open_esp(Window { disk: Rc::clone(disk), start: images.uefi, size }, "the CD's ESP image");
            }
            Err(error) => self.flaws.push(format!("the CD's boot catalog cannot be read: {error}")),
        }
    }

    fn open_esp(&mut self, window: Window, name: &str) {
        match tree::fat(Rc::new(window)) {
            Ok(fat) => self.esp = Some(fat),
            Err(error) => self.flaws.push(format!("the file system of {name} cannot be read: {error}")),
        }
    }

    fn open_partitions(&mut self, disk: &Disk) {
        let size = if self.block == LARGE { LogicalBlockSize::Lb4096 } else { LogicalBlockSize::Lb512 };
        let config = GptConfig::new().writable(false).logical_block_size(size);
        let table = match config.open_from_device(Cursor::new(Rc::clone(disk))) {
            Ok(table) => table,
            Err(error) => return self.flaw_of_table(format!("the partition table cannot be read: {error}")),
        };
        match table.primary_header() {
            // A file ends with the backup; a device may be larger than what was written to it.
            Ok(header) if self.format == Format::Raw => {
                self.expect_size("its partition table", (header.backup_lba + 1) * self.block);
            }
            Ok(_) => {}
            Err(error) => self.flaw_of_table(format!("the partition table at the start is damaged: {error}")),
        }
        let window = |name: &str| {
            let partition = table.partitions().values().find(|partition| partition.name == name)?;
            let start = partition.first_lba * self.block;
            let size = (partition.last_lba + 1).saturating_sub(partition.first_lba) * self.block;
            Some(Window { disk: Rc::clone(disk), start, size })
        };
        match window("STORE").map(|window| Ext4::load(Box::new(window))) {
            Some(Ok(ext4)) => self.store = Some(Box::new(ext4)),
            Some(Err(error)) => {
                self.flaws.push(format!("the file system of the partition `STORE` cannot be read: {error}"));
            }
            None => self.flaws.push("there is no partition `STORE`: this is no image of ours".to_owned()),
        }
        match window("ESP") {
            Some(esp) => self.open_esp(esp, "the partition `ESP`"),
            None => self.flaws.push("there is no partition `ESP`".to_owned()),
        }
    }

    fn flaw_of_table(&mut self, flaw: String) {
        self.table_flaw = Some(flaw.clone());
        self.flaws.push(flaw);
    }

    /// A table that counts in other blocks than the device has: neither firmware nor kernel sees a partition.
    fn expect_block(&mut self, device: Option<u64>) {
        if let Some(device) = device.filter(|device| *device != self.block) {
            let table = self.block;
            self.flaws.push(format!(
                "its partition table counts in blocks of {table} bytes, the device's have {device}: no machine sees its \
                 partitions; write it with `foothold write`"
            ));
        }
    }

    fn expect_size(&mut self, who: &'static str, expected: u64) {
        if self.bytes < expected {
            self.cut_off = Some((expected, who));
            self.flaws.push(format!("it is cut off: it has {} bytes, {who} says {expected}", self.bytes));
        }
    }

    /// The releases on it, by id.
    pub fn releases(&self) -> io::Result<Vec<Found>> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for folder in store.list(&format!("{MEDIUM_ROOT}/releases"))? {
            let path = format!("{MEDIUM_ROOT}/releases/{folder}/release.json");
            let Some(json) = small_file(&**store, &path)? else { continue };
            let signature = small_file(&**store, &format!("{path}.minisig"))?;
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let signed = |name: &str| -> io::Result<Option<(Vec<u8>, String)>> {
                let path = format!("{MEDIUM_ROOT}/releases/{folder}/{name}");
                let both = small_file(&**store, &path)?.zip(small_file(&**store, &format!("{path}.minisig"))?);
                Ok(both.map(|(json, signature)| (json, text(signature))))
            };
            let (boot_files, sbom) = (signed(BOOT_FILES)?, signed(SBOM)?);
            let proof = small_file(&**store, &format!("{MEDIUM_ROOT}/releases/{folder}/{PROOF}"))?;
            found.push(Found { folder, json, signature: signature.map(text), boot_files, proof, sbom });
        }
        Ok(found)
    }

    /// A small file of the tree that the store lies in.
    pub fn stored(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.store.as_ref().map_or(Ok(None), |store| small_file(&**store, path))
    }

    /// Names in the store: the hex digests of its blobs.
    fn blob_names(&self) -> io::Result<Vec<String>> {
        self.store.as_ref().map_or(Ok(Vec::new()), |store| store.list(&format!("{MEDIUM_ROOT}/store/sha256")))
    }

    /// A blob of the store.
    pub fn blob(&self, digest: &Digest) -> io::Result<Option<Box<dyn Bytes>>> {
        self.store.as_ref().map_or(Ok(None), |store| store.open(&format!("{MEDIUM_ROOT}/{}", digest.store_path())))
    }

    /// `vmlinuz` or `initrd` of the release in that folder.
    pub fn boot_file(&self, folder: &str, name: &str) -> io::Result<Option<Box<dyn Bytes>>> {
        let id16 = folder.get(..16).unwrap_or(folder);
        // On disks kernel and initrd lie in the ESP.
        let tree = self.boot.as_ref().or(self.esp.as_ref());
        tree.map_or(Ok(None), |tree| tree.open(&format!("{MEDIUM_ROOT}/boot/{id16}/{name}")))
    }

    /// A file that UEFI or what it starts reads.
    fn esp_file(&self, path: &str) -> io::Result<Option<Box<dyn Bytes>>> {
        self.esp.as_ref().map_or(Ok(None), |esp| esp.open(path))
    }

    /// The menu that a CD's GRUB for BIOS reads.
    fn cd_menu(&self) -> io::Result<Option<Box<dyn Bytes>>> {
        self.boot.as_ref().map_or(Ok(None), |cd| cd.open(esp::GRUB_CFG))
    }

    /// The code of the master boot record, without addresses that are right for this medium.
    fn bios_code(&self, size: u64) -> io::Result<Option<Box<dyn Bytes>>> {
        let mut code = self.start_of(0, size)?;
        if self.images.is_some_and(|images| grub::hybrid_code_fits(&code, images.bios)) {
            grub::blank_hybrid_code(&mut code);
        }
        Ok(Some(Box::new(code)))
    }

    /// GRUB's core image for BIOS, without addresses that are right for this medium.
    fn bios_core(&self, size: u64) -> io::Result<Option<Box<dyn Bytes>>> {
        let at = match (self.format, self.images) {
            (Format::Iso, None) => return Ok(None),
            (Format::Iso, Some(images)) => images.bios,
            (Format::Raw | Format::Qcow2, _) => BIOS_BOOT_AT,
        };
        let mut core = self.start_of(at, size)?;
        if self.images.is_some() && grub::boot_image_fits(&core, at) {
            grub::blank_boot_image(&mut core);
        }
        Ok(Some(Box::new(core)))
    }

    /// `size` bytes of the disk from byte `at` on.
    fn start_of(&self, at: u64, size: u64) -> io::Result<Vec<u8>> {
        let size = size.min(BIOS_BOOT_BYTES);
        bytes::read(&*self.disk, at, usize::try_from(size).map_err(io::Error::other)?)
    }

    /// The public key in the release's initrd: what the box itself will check with.
    pub fn carried_key(&self, folder: &str) -> io::Result<Option<String>> {
        let Some(file) = self.boot_file(folder, "initrd")? else { return Ok(None) };
        let text = initrd::file_in(Cursor::new(file), initrd::PUBLIC_KEY)?;
        Ok(text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

fn small_file(tree: &dyn Tree, path: &str) -> io::Result<Option<Vec<u8>>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("reading `{path}`: {error}"));
    let Some(file) = tree.open(path).map_err(named)? else { return Ok(None) };
    if file.size() > SMALL {
        return Err(io::Error::other(format!("`{path}` has {} bytes, at most {SMALL} expected", file.size())));
    }
    let length = usize::try_from(file.size()).map_err(io::Error::other)?;
    bytes::read(&*file, 0, length).map(Some).map_err(named)
}

#[cfg(test)]
pub(crate) mod proof_tests;
#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod tests;
