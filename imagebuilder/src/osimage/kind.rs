//! What a ready-made image file is, by its content.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::config::DiskFormat;
use crate::format::qcow2;

/// Bytes that tell.
const HEAD: usize = 512;
/// End of a master boot record.
const BOOT_SIGNATURE: &[u8] = &[0x55, 0xAA];
/// Where a qcow2 names the file it is based on (QEMU, `docs/interop/qcow2.rst`).
const BACKING_FILE: std::ops::Range<usize> = 8..16;
/// What else images come as, to name it.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"PK", "a zip archive"),
    (b"KDMV", "a VMDK disk"),
    (b"vhdxfile", "a VHDX disk"),
];

/// The format of an image file. Only what can be written to a disk as it is is taken.
pub fn of(path: &Path) -> Result<DiskFormat> {
    let mut head = Vec::new();
    fs_err::File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
    let (file, hint) = (path.display(), "`qemu-img convert -O qcow2 FILE image.qcow2` makes one of most formats");
    if head.starts_with(&qcow2::MAGIC.to_be_bytes()) {
        let based = head.get(BACKING_FILE).is_none_or(|offset| offset.iter().any(|byte| *byte != 0));
        ensure!(!based, "`{file}` is a qcow2 that is based on another file\nhint: {hint}, whole");
        return Ok(DiskFormat::Qcow2);
    }
    if head.len() == HEAD && head.ends_with(BOOT_SIGNATURE) {
        return Ok(DiskFormat::Raw);
    }
    let known = FOREIGN.iter().find(|(magic, _)| head.starts_with(magic));
    let found = known.map_or("neither a qcow2 nor a disk with a boot record", |(_, name)| name);
    bail!("`{file}` is {found}, a qcow2 or a raw disk is expected\nhint: unpack it; {hint}")
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::config::DiskFormat;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs_err::write(file.path(), bytes).expect("written");
        file
    }

    #[test]
    fn images_are_known_by_their_content() {
        let mut disk = vec![0; 1024];
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(of(file(&disk).path()).expect("a disk"), DiskFormat::Raw);
        let mut qcow2 = b"QFI\xfb\0\0\0\x03".to_vec();
        qcow2.resize(512, 0);
        assert_eq!(of(file(&qcow2).path()).expect("a qcow2"), DiskFormat::Qcow2);
    }

    #[test]
    fn what_cannot_be_written_to_a_disk_as_it_is_is_refused_by_name() {
        for (bytes, said) in [
            (b"\x1f\x8b\x08rest".as_slice(), "gzip"),
            (b"QFI\xfb\0\0\0\x03\0\0\0\0\0\0\x01\0rest", "based on another file"),
            (b"text", "neither"),
            (b"", "neither"),
        ] {
            let error = of(file(bytes).path()).expect_err(said).to_string();
            assert!(error.contains(said) && error.contains("hint: "), "{error}");
        }
    }
}
