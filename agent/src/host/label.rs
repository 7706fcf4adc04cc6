//! Labels of file systems: set where one is mounted (`FS_IOC_SETFSLABEL`, linux/fs.h), read from FAT without mounting it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use fs_err::File;

use super::ioctl;

/// `_IOW(0x94, 50, char[256])`.
const FS_IOC_SETFSLABEL: u64 = (1 << 30) | (256 << 16) | (0x94 << 8) | 0x32;

/// Sets the label of the file system mounted at `root`.
#[expect(unsafe_code, reason = "FS_IOC_SETFSLABEL has no safe form")]
pub fn set(root: &Path, label: &str) -> io::Result<()> {
    let directory = File::open(root)?;
    let mut buffer = [0_u8; 256];
    let length = label.len().min(255);
    buffer[..length].copy_from_slice(&label.as_bytes()[..length]);
    // SAFETY: the request reads 256 bytes.
    unsafe { ioctl::with(directory.as_fd(), FS_IOC_SETFSLABEL, buffer.as_mut_ptr()) }.map(drop)
}

/// Label of the FAT file system on `device`, in capitals. A drive without a medium and the like has none.
pub fn of_fat(device: &Path) -> Option<String> {
    let mut sector = [0; 512];
    fs_err::File::open(device).ok()?.read_exact(&mut sector).ok()?;
    in_sector(&sector)
}

/// Volume label in the first sector of a FAT file system (fatgen103, "boot sector and BPB structure").
fn in_sector(sector: &[u8; 512]) -> Option<String> {
    let signed = sector[510] == 0x55 && sector[511] == 0xaa;
    let at =
        |kind: usize, label: usize, name: &[u8]| (&sector[kind..kind + 3] == name).then(|| &sector[label..label + 11]);
    let label = at(82, 71, b"FAT").or_else(|| at(54, 43, b"FAT")).filter(|_| signed)?;
    Some(String::from_utf8_lossy(label).trim_end().to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::in_sector;

    #[test]
    fn labels_of_both_kinds_of_fat_are_read() {
        let mut sector = [0; 512];
        assert_eq!(in_sector(&sector), None);
        sector[71..87].copy_from_slice(b"SITE       FAT32");
        assert_eq!(in_sector(&sector), None, "no signature");
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(in_sector(&sector).as_deref(), Some("SITE"));
        let mut sector = [0; 512];
        sector[43..59].copy_from_slice(b"cidata     FAT16");
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(in_sector(&sector).as_deref(), Some("CIDATA"));
    }
}
