//! GRUB for BIOS machines: its core image, and the boot sectors that find it.
//!
//! Offsets are those of GRUB 2's `boot.S`, `diskboot.S`, `cdboot.S` and `include/grub/i386/pc/boot.h`.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::disk::gpt::SECTOR;
use crate::disk::layout::BIOS_BOOT_BYTES;
use crate::disk::{ToolError, Tools};

const MODULES_DIR: &str = "usr/lib/grub/i386-pc";
/// What the core image holds: enough for every medium and the menu, nothing is loaded later.
const MODULES: [&str; 18] = [
    "biosdisk",
    "part_gpt",
    "part_msdos",
    "fat",
    "iso9660",
    "search",
    "search_fs_file",
    "normal",
    "configfile",
    "linux16",
    "echo",
    "test",
    "serial",
    "terminal",
    "reboot",
    "halt",
    "sleep",
    "minicmd",
];
/// What the core image of a server needs beside them: its menu and its kernel lie in its root.
const SERVER_MODULES: [&str; 3] = ["ext2", "search_fs_uuid", "linux"];
/// `GRUB_BOOT_MACHINE_KERNEL_SECTOR`: first sector of the core image, 8 bytes.
const KERNEL_SECTOR: usize = 0x5C;
/// `GRUB_BOOT_MACHINE_DRIVE_CHECK`: a jump that is made void on hard disks, so that a wrong drive number of the BIOS is mended.
const DRIVE_CHECK: usize = 0x66;
const NOP: u8 = 0x90;
/// End of the boot code in a master boot record.
const BOOT_CODE_END: usize = 440;
/// `grub_pc_bios_boot_blocklist` at the end of the core image's first sector: start (8 bytes), length (2), segment (2).
const BLOCK_LIST: usize = 512 - 12;
/// In `boot_hybrid.img`: 512-byte sector of the core image within the CD image, 8 bytes.
const HYBRID_KERNEL_SECTOR: usize = 0x1B0;
/// `cdboot.img` is one CD sector in front of the core image.
const CDBOOT_BYTES: usize = 2048;

/// In a CD's boot image: the table that tells it about itself (mkisofs' "boot information table").
const BOOT_INFO: Range<usize> = 8..64;
/// In a CD's boot image: the 512-byte sector of its own rest, 8 bytes.
const BOOT_INFO_GRUB2: Range<usize> = 2548..2556;
/// Sector of the primary volume descriptor (ECMA-119, 8.4).
const VOLUME_DESCRIPTOR: u32 = 16;

/// Bytes of a sha256.
const DIGEST_BYTES: usize = 32;

/// Where a core image is started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The BIOS boot partition of a disk whose second partition is the ESP.
    Disk,
    /// The El Torito boot image of a CD, or of its image on a stick.
    Cd,
    /// The same as [`Target::Disk`], on the disk of a server: the menu there only names another one, in an ext4.
    Server,
}

impl Target {
    fn format(self) -> &'static str {
        match self {
            Self::Disk | Self::Server => "i386-pc",
            Self::Cd => "i386-pc-eltorito",
        }
    }

    /// Where `grub.cfg` lies, relative to the drive that GRUB was started from.
    fn prefix(self) -> &'static str {
        match self {
            Self::Disk | Self::Server => "(,gpt2)/EFI/debian",
            Self::Cd => "/EFI/debian",
        }
    }

    fn modules(self) -> Vec<&'static str> {
        match self {
            Self::Disk | Self::Cd => MODULES.to_vec(),
            Self::Server => [MODULES.as_slice(), &SERVER_MODULES].concat(),
        }
    }
}

/// Why GRUB's images could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GrubError {
    /// A file is missing or cannot be written; the error names it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// `grub-mkimage` failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A file of GRUB's is not what this code knows how to patch.
    #[error("GRUB's `{name}` is {found}, {expected} expected")]
    Shape {
        /// The file.
        name: &'static str,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

/// Makes the core image for `target`, or takes it from `cache`, where files are named after what they were made of and
/// start with the sha256 of the image: a damaged one is made anew.
pub fn core_image(target: Target, tools: &dyn Tools, cache: &Path) -> Result<Vec<u8>, GrubError> {
    let path = cache.join(format!("grub-{}-{}.img", target.format(), key(target, tools)?));
    let cached = fs::read(&path).ok().and_then(|bytes| {
        let (digest, image) = bytes.split_at_checked(DIGEST_BYTES)?;
        (digest == Sha256::digest(image).as_slice()).then(|| image.to_vec())
    });
    let image = match cached {
        Some(image) => image,
        None => make_core_image(target, tools, cache, &path)?,
    };
    let room = usize::try_from(BIOS_BOOT_BYTES).expect("a small partition");
    if image.len() <= CDBOOT_BYTES || image.len() > room {
        let expected = format!("{CDBOOT_BYTES} to {room} bytes");
        return Err(GrubError::Shape { name: "core.img", expected, found: format!("{} bytes", image.len()) });
    }
    Ok(image)
}

fn make_core_image(target: Target, tools: &dyn Tools, cache: &Path, path: &Path) -> Result<Vec<u8>, GrubError> {
    fs::create_dir_all(cache)?;
    let scratch = tempfile::Builder::new().prefix(".grub-").tempdir_in(cache)?;
    let made = scratch.path().join("core.img");
    let modules_dir = format!("/{MODULES_DIR}");
    let output = made.to_str().ok_or_else(|| io::Error::other(format!("`{}` is not UTF-8", cache.display())))?;
    let mut argv = vec!["grub-mkimage", "--directory", &modules_dir, "--format", target.format()];
    argv.extend(["--prefix", target.prefix(), "--output", output]);
    argv.extend(target.modules());
    tools.run(&argv, &[scratch.path()])?;
    let image = fs::read(&made)?;
    let kept = scratch.path().join("kept");
    fs::write(&kept, [Sha256::digest(&image).as_slice(), &image].concat())?;
    fs::rename(&kept, path)?;
    Ok(image)
}

/// Files of GRUB's that decide what the functions here make.
pub fn inputs(tools: &dyn Tools) -> Vec<PathBuf> {
    let names = ["kernel.img", "moddep.lst", "boot.img", "boot_hybrid.img"];
    names.map(|name| tools.file(&format!("{MODULES_DIR}/{name}"))).to_vec()
}

/// Names everything that decides the core image's bytes: GRUB's kernel stands for its version.
fn key(target: Target, tools: &dyn Tools) -> io::Result<String> {
    let mut hash = Sha256::new();
    for name in ["kernel.img", "moddep.lst"] {
        hash.update(fs::read(tools.file(&format!("{MODULES_DIR}/{name}")))?);
    }
    hash.update(format!("{} {} {}", target.format(), target.prefix(), target.modules().join(" ")));
    Ok(hex::encode(&hash.finalize()[..8]))
}

/// Path of a boot sector of GRUB's in the toolbox.
fn boot_sector(tools: &dyn Tools, name: &'static str) -> Result<Vec<u8>, GrubError> {
    let path: PathBuf = tools.file(&format!("{MODULES_DIR}/{name}"));
    let bytes = fs::read(path)?;
    if bytes.len() == 512 {
        return Ok(bytes);
    }
    Err(GrubError::Shape { name, expected: "512 bytes".to_owned(), found: format!("{} bytes", bytes.len()) })
}

/// The boot code of a master boot record that loads the core image at byte `core_at` of the disk.
pub fn mbr_code(tools: &dyn Tools, core_at: u64) -> Result<Vec<u8>, GrubError> {
    let mut code = boot_sector(tools, "boot.img")?;
    put(&mut code, KERNEL_SECTOR, &(core_at / SECTOR).to_le_bytes());
    put(&mut code, DRIVE_CHECK, &[NOP; 2]);
    code.truncate(BOOT_CODE_END);
    Ok(code)
}

/// Tells a disk's core image where its own rest lies, when it starts at byte `core_at` of the disk.
pub fn place_core(core: &mut [u8], core_at: u64) {
    put(core, BLOCK_LIST, &(core_at / SECTOR + 1).to_le_bytes());
}

/// The boot code of a CD image on a stick, when its El Torito boot image starts at byte `boot_image_at`.
pub fn hybrid_code(tools: &dyn Tools, boot_image_at: u64) -> Result<Vec<u8>, GrubError> {
    let mut code = boot_sector(tools, "boot_hybrid.img")?;
    put(&mut code, HYBRID_KERNEL_SECTOR, &((boot_image_at + CDBOOT_BYTES as u64) / SECTOR).to_le_bytes());
    code.truncate(BOOT_CODE_END);
    Ok(code)
}

/// Whether the addresses in the boot code of a CD image are those of a boot image at byte `at`.
pub fn hybrid_code_fits(code: &[u8], at: u64) -> bool {
    let wanted = ((at + CDBOOT_BYTES as u64) / SECTOR).to_le_bytes();
    code.get(HYBRID_KERNEL_SECTOR..HYBRID_KERNEL_SECTOR + wanted.len()) == Some(&wanted)
}

/// Puts zeros in place of the addresses in the boot code of a CD image.
pub fn blank_hybrid_code(code: &mut [u8]) {
    put(code, HYBRID_KERNEL_SECTOR, &[0; 8]);
}

/// Whether what a CD's boot image says about itself is true of one at byte `at`.
pub fn boot_image_fits(image: &[u8], at: u64) -> bool {
    let (Some(table), Some(rest)) = (image.get(BOOT_INFO), image.get(BOOT_INFO_GRUB2)) else { return false };
    let (Ok(sector), Ok(length)) = (u32::try_from(at / CDBOOT_BYTES as u64), u32::try_from(image.len())) else {
        return false;
    };
    let mut sum = 0_u32;
    for chunk in image[BOOT_INFO.end..].chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = sum.wrapping_add(u32::from_le_bytes(word));
    }
    let numbers: Vec<u8> =
        [VOLUME_DESCRIPTOR, sector, length, sum].iter().flat_map(|word| word.to_le_bytes()).collect();
    let (found, reserved) = table.split_at(numbers.len());
    found == numbers && reserved.iter().all(|byte| *byte == 0) && rest == (u64::from(sector) * 4 + 5).to_le_bytes()
}

/// Puts zeros in place of what a CD's boot image says about itself.
pub fn blank_boot_image(image: &mut [u8]) {
    image[BOOT_INFO].fill(0);
    image[BOOT_INFO_GRUB2].fill(0);
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}
