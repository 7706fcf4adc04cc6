//! What small machines of tests boot: a boot sector that counts its boots on the disk, tells the serial port, and
//! switches off when a byte arrives there.

use std::path::PathBuf;

use tempfile::TempDir;

const SECTOR: usize = 512;

/// 16-bit code for 0x7c00, entered with the BIOS number of the boot drive in dl.
#[rustfmt::skip]
const BOOT_SECTOR: [u8; 87] = [
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, // ds = es = ss = 0
    0xbc, 0x00, 0x7c,                               // mov sp, 0x7c00
    0xbb, 0x00, 0x80, 0xb9, 0x02, 0x00, 0xb6, 0x00, // buffer 0x8000, cylinder 0, head 0, sector 2
    0xb8, 0x01, 0x02, 0xcd, 0x13,                   // read one sector
    0xfe, 0x06, 0x00, 0x80,                         // inc byte [0x8000]
    0xb8, 0x01, 0x03, 0xcd, 0x13,                   // write it back
    0xa0, 0x00, 0x80, 0x04, 0x30, 0xa2, 0x53, 0x7c, // as a digit into the message
    0xbe, 0x47, 0x7c, 0xba, 0xf8, 0x03,             // message to the serial port:
    0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8, //   until its 0
    0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xfb, // wait for a byte
    0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xf4, // ACPI: switch off
    b'b', b'o', b'o', b't', b' ', b'n', b'u', b'm', b'b', b'e', b'r', b' ', b'0', b'\r', b'\n', 0,
];

/// A disk with it.
pub fn image(dir: &TempDir) -> PathBuf {
    let mut bytes = vec![0; 1 << 20];
    bytes[..BOOT_SECTOR.len()].copy_from_slice(&BOOT_SECTOR);
    bytes[SECTOR - 2..SECTOR].copy_from_slice(&[0x55, 0xaa]);
    let path = dir.path().join("boot.img");
    fs_err::write(&path, bytes).expect("writing the image");
    path
}

/// A volume that only El Torito knows: volume descriptors, boot catalog, boot image.
pub fn iso(dir: &TempDir) -> PathBuf {
    const BLOCK: usize = 2048;
    let mut bytes = vec![0; 64 * BLOCK];
    let mut put = |block: usize, at: usize, data: &[u8]| {
        bytes[block * BLOCK + at..][..data.len()].copy_from_slice(data);
    };
    put(16, 0, b"\x01CD001\x01");
    put(17, 0, b"\0CD001\x01EL TORITO SPECIFICATION");
    put(17, 0x47, &18_u32.to_le_bytes());
    // Validation entry: words sum up to 0; then a bootable image of one block, no emulation.
    put(18, 0, &[1]);
    put(18, 28, &[0xaa, 0x55, 0x55, 0xaa]);
    put(18, 32, &[0x88, 0, 0, 0, 0, 0, 4, 0, 20, 0, 0, 0]);
    put(20, 0, &BOOT_SECTOR);
    let path = dir.path().join("boot.iso");
    fs_err::write(&path, bytes).expect("writing the volume");
    path
}
