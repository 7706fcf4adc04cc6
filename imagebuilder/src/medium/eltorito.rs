//! Where firmware finds what to start on a CD: the boot catalog (El Torito 1.0), read as firmware reads it.

use std::io;

use super::bytes::{self, Bytes};

/// Bytes of a CD's sector.
pub const SECTOR: u64 = 2048;
/// The boot record is the volume descriptor of this sector (section 2.0).
const BOOT_RECORD: u64 = 17;
const BOOT_RECORD_ID: &[u8] = b"\0CD001\x01EL TORITO SPECIFICATION";
/// Where it has the catalog's sector.
const CATALOG_AT: usize = 0x47;
/// Bytes of an entry of the catalog (section 2.1).
const ENTRY: usize = 32;
/// Key of the validation entry.
const KEY: &[u8] = &[0x55, 0xAA];
const BOOTABLE: u8 = 0x88;
/// Where an entry has the first sector of its image.
const IMAGE_AT: usize = 8;
/// Platform of a section: UEFI (UEFI specification, "ISO-9660 and El Torito").
const UEFI: u8 = 0xEF;

/// Bytes of the medium at which boot images begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootImages {
    /// GRUB for BIOS.
    pub bios: u64,
    /// The ESP image.
    pub uefi: u64,
}

/// Reads the catalog: a validation entry, the default entry, and one section with one entry.
pub fn boot_images(disk: &dyn Bytes) -> io::Result<BootImages> {
    let record = bytes::read(disk, BOOT_RECORD * SECTOR, CATALOG_AT + 4)?;
    if !record.starts_with(BOOT_RECORD_ID) {
        return Err(io::Error::other("the boot record is not of El Torito"));
    }
    let catalog = bytes::read(disk, u64::from(number(&record, CATALOG_AT)) * SECTOR, 4 * ENTRY)?;
    let entries: Vec<&[u8]> = catalog.chunks(ENTRY).collect();
    let [validation, default, section, second] = entries[..] else {
        return Err(io::Error::other("the boot catalog is cut off"));
    };
    let words = validation.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    if words.fold(0, u16::wrapping_add) != 0 || validation[0] != 1 || &validation[ENTRY - 2..] != KEY {
        return Err(io::Error::other("the boot catalog's validation entry is damaged"));
    }
    if default[0] != BOOTABLE || section[1] != UEFI || second[0] != BOOTABLE {
        return Err(io::Error::other("the boot catalog does not have an entry for BIOS and one for UEFI"));
    }
    let byte = |entry| u64::from(number(entry, IMAGE_AT)) * SECTOR;
    Ok(BootImages { bios: byte(default), uefi: byte(second) })
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
