//! Device mapper: one read-only `verity` target per layer (linux/dm-ioctl.h,
//! Documentation/admin-guide/device-mapper/verity.rst).

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};

use super::ioctl;

const HEADER: usize = 312;
const TARGET: usize = 40;
const READONLY_FLAG: u32 = 1;
const DEV_CREATE: u64 = 3;
const DEV_REMOVE: u64 = 4;
const DEV_SUSPEND: u64 = 6;
const TABLE_LOAD: u64 = 9;
const SECTOR: u64 = 512;
/// Data and hash blocks of a layer.
const BLOCK: u64 = 4096;

/// What a verity device is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verity<'a> {
    /// Block device that holds data and tree.
    pub device: &'a Path,
    /// Bytes before the tree.
    pub data_bytes: u64,
    /// Root hash in hex.
    pub root_hash: &'a str,
    /// Salt in hex.
    pub salt: &'a str,
}

impl Verity<'_> {
    /// The target's parameters: version, data and hash device, block sizes, number of data blocks,
    /// first hash block, algorithm, root, salt.
    fn parameters(&self) -> String {
        let (device, blocks) = (self.device.display(), self.data_bytes / BLOCK);
        let salt = if self.salt.is_empty() { "-" } else { self.salt };
        format!("1 {device} {device} {BLOCK} {BLOCK} {blocks} {blocks} sha256 {} {salt}", self.root_hash)
    }
}

/// Makes the device `name`; its node is `/dev/dm-N`.
pub fn open_verity(name: &str, verity: &Verity<'_>) -> io::Result<PathBuf> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/mapper/control")?;
    let minor = minor_of(&call(&control, DEV_CREATE, message(name, 0, &[]))?);
    let table = target("verity", verity.data_bytes / SECTOR, &verity.parameters());
    let loaded = call(&control, TABLE_LOAD, message(name, READONLY_FLAG, &table))
        .and_then(|_| call(&control, DEV_SUSPEND, message(name, 0, &[])));
    if let Err(error) = loaded {
        let _ = call(&control, DEV_REMOVE, message(name, 0, &[]));
        return Err(error);
    }
    Ok(PathBuf::from(format!("/dev/dm-{minor}")))
}

/// `struct dm_ioctl`, then one target.
fn message(name: &str, flags: u32, table: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    let size = u32::try_from(HEADER + table.len()).unwrap_or(u32::MAX);
    let header_end = u32::try_from(HEADER).unwrap_or(u32::MAX);
    for (at, value) in
        [(0, 4), (4, 0), (8, 0), (12, size), (16, header_end), (20, u32::from(!table.is_empty())), (28, flags)]
    {
        bytes[at..at + 4].copy_from_slice(&u32::to_ne_bytes(value));
    }
    let name = &name.as_bytes()[..name.len().min(127)];
    bytes[48..48 + name.len()].copy_from_slice(name);
    bytes.extend_from_slice(table);
    bytes
}

/// `struct dm_target_spec` and its parameters, padded to 8 bytes.
fn target(kind: &str, sectors: u64, parameters: &str) -> Vec<u8> {
    let mut bytes = vec![0; TARGET];
    bytes[8..16].copy_from_slice(&sectors.to_ne_bytes());
    bytes[24..24 + kind.len()].copy_from_slice(kind.as_bytes());
    bytes.extend_from_slice(parameters.as_bytes());
    bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
    let next = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[20..24].copy_from_slice(&next.to_ne_bytes());
    bytes
}

/// `dev` of the answer: the minor number is spread over it as in `new_encode_dev`.
fn minor_of(answer: &[u8]) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&answer[40..48]);
    let dev = u64::from_ne_bytes(raw);
    (dev & 0xff) | ((dev >> 12) & 0xfff_ff00)
}

#[expect(unsafe_code, reason = "device mapper has no safe form")]
fn call(control: &File, number: u64, mut message: Vec<u8>) -> io::Result<Vec<u8>> {
    // _IOWR(0xfd, number, struct dm_ioctl)
    let request = (3 << 30) | ((HEADER as u64) << 16) | (0xfd << 8) | number;
    // SAFETY: the kernel reads and writes at most `data_size` bytes, which is the buffer's length.
    unsafe { ioctl::with(control.as_fd(), request, message.as_mut_ptr()) }?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Verity, message, minor_of, target};

    #[test]
    fn parameters_are_those_of_veritysetup_without_superblock() {
        let verity = Verity { device: Path::new("/dev/loop0"), data_bytes: 8192, root_hash: "ab", salt: "cd" };
        assert_eq!(verity.parameters(), "1 /dev/loop0 /dev/loop0 4096 4096 2 2 sha256 ab cd");
    }

    #[test]
    fn a_message_has_its_length_and_the_target_its_end() {
        let table = target("verity", 16, "1 x");
        assert_eq!(table.len(), 48);
        assert_eq!(table[20], 48);
        let bytes = message("layer", 1, &table);
        assert_eq!(bytes.len(), 360);
        assert_eq!(u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]), 360);
        assert_eq!(&bytes[48..54], b"layer\0");
    }

    #[test]
    fn the_minor_number_is_read_across_the_major() {
        let mut answer = vec![0; 312];
        answer[40..48].copy_from_slice(&0x1000_fe05_u64.to_ne_bytes());
        assert_eq!(minor_of(&answer), 0x1_0005 & 0xff | 0x1_0000);
    }
}
