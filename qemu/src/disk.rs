//! Disks, sticks and CDs of a machine.
//!
//! An image is normally only the backing file of a qcow2 overlay that is thrown away, so that many
//! machines can boot the same image and none changes it.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::RunError;
use crate::tools::Tools;

/// `qemu-img create` only writes a header.
const CREATE_WITHIN: Duration = Duration::from_secs(60);
/// virtio-blk's `VIRTIO_BLK_ID_BYTES`, the smallest limit of the buses.
const SERIAL_MAX: usize = 20;
/// qcow2 specification, "Header": magic, and the offset of the virtual size.
const QCOW2_MAGIC: &[u8; 4] = b"QFI\xfb";
const QCOW2_SIZE_OFFSET: u64 = 24;
/// ECMA-119 8.1: the standard identifier in the first volume descriptor (sector 16, byte 1).
const ISO_MAGIC: &[u8; 5] = b"CD001";
const ISO_MAGIC_OFFSET: u64 = 16 * 2048 + 1;

/// How the bytes of an image are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The disk itself, byte by byte; also any block device.
    Raw,
    /// QEMU's copy-on-write format, version 2 or 3.
    Qcow2,
    /// An ISO 9660 volume: raw for the machine, but a CD unless said otherwise.
    Iso,
}

/// Where the disk is plugged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bus {
    /// virtio-blk: an internal disk, `/dev/vdX`.
    Virtio,
    /// A removable stick on USB 3.
    Usb,
    /// A CD drive on the AHCI controller. Read-only.
    Cdrom,
    /// A disk on the AHCI controller.
    Sata,
    /// A disk on a virtio SCSI controller.
    Scsi,
    /// An `NVMe` drive.
    Nvme,
}

/// Where what the machine writes goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writes {
    /// To an overlay that is gone with the machine. Flushes are ignored: fast.
    Discard,
    /// To the qcow2 overlay at this path, made when it does not exist. A second machine with the same
    /// overlay sees the disk as the first left it. After [`Vm::kill`](crate::Vm::kill) that is what a power
    /// cut leaves: all that the machine had flushed, and some of the rest. Flushes do not wait for the
    /// host's disk: nearly as fast as `Discard`, but nothing for data that must survive the host.
    Overlay(PathBuf),
    /// To the image; flushes reach the host's disk.
    InPlace,
}

/// A disk to plug in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) bus: Bus,
    pub(crate) writes: Writes,
    pub(crate) grow_to: Option<u64>,
    pub(crate) serial: Option<String>,
    pub(crate) block_bytes: Option<u32>,
}

/// What is wrong with a disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The image cannot be read; the inner error names it.
    #[error("opening a disk image")]
    Io(#[from] io::Error),
    /// Paths are handed to QEMU as JSON.
    #[error("the path `{0}` is not UTF-8")]
    NotUtf8(PathBuf),
    /// Growing needs an overlay.
    #[error(
        "`{0}` cannot grow: only a disk with an overlay can\nhint: use `Writes::Discard` or `Writes::Overlay`, and not a CD"
    )]
    CannotGrow(PathBuf),
    /// The wanted size is less than the image.
    #[error("`{path}` cannot become {wanted} bytes: it has {has}")]
    WouldShrink {
        /// The image.
        path: PathBuf,
        /// Wanted size in bytes.
        wanted: u64,
        /// Size in bytes.
        has: u64,
    },
    /// Serial numbers are short.
    #[error("serial number `{0}` is not 1 to {SERIAL_MAX} letters, digits, `-` or `_`")]
    Serial(String),
    /// qemu-img failed.
    #[error("making the overlay `{path}`")]
    Overlay {
        /// The overlay.
        path: PathBuf,
        /// Why.
        #[source]
        source: RunError,
    },
}

/// How far the machine's flushes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Nowhere: what QEMU keeps in memory is lost with it.
    Never,
    /// Out of QEMU: what was flushed survives QEMU's end, but not the host's.
    HostCache,
    /// To the host's disk.
    HostDisk,
}

/// A disk as QEMU gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drive {
    pub path: String,
    pub format: Format,
    pub bus: Bus,
    pub read_only: bool,
    pub flush: Flush,
    pub serial: Option<String>,
    pub block_bytes: Option<u32>,
}

impl Disk {
    /// The image at `path`: format by its first bytes, an ISO as a CD and anything else as an internal
    /// disk, writes discarded.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DiskError> {
        // Overlays name their backing file by its absolute path.
        let path = fs_err::canonicalize(path.as_ref())?;
        let format = Format::of(&path)?;
        let bus = if format == Format::Iso { Bus::Cdrom } else { Bus::Virtio };
        Ok(Self { path, format, bus, writes: Writes::Discard, grow_to: None, serial: None, block_bytes: None })
    }

    /// Overrides the format.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Overrides the bus.
    #[must_use]
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }

    /// Overrides where writes go.
    #[must_use]
    pub fn writes(mut self, writes: Writes) -> Self {
        self.writes = writes;
        self
    }

    /// Makes the disk larger than the image: as if the image were written to a disk of `bytes`. An
    /// overlay that exists already keeps its size.
    #[must_use]
    pub fn grow_to(mut self, bytes: u64) -> Self {
        self.grow_to = Some(bytes);
        self
    }

    /// Sets the serial number the machine sees.
    #[must_use]
    pub fn serial(mut self, serial: impl Into<String>) -> Self {
        self.serial = Some(serial.into());
        self
    }

    /// Sets the bytes of its logical blocks, 512 by default; 4096 makes it a disk that is called 4Kn, which BIOS cannot
    /// start from. Not for disks on the AHCI controller and CDs.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Checks the disk and makes its overlay if it needs one; one that is to be thrown away at `scratch`.
    pub(crate) fn prepare(&self, tools: &Tools, scratch: &Path) -> Result<Drive, DiskError> {
        self.check()?;
        let (path, format, flush) = match (self.bus, &self.writes) {
            (Bus::Cdrom, _) | (_, Writes::InPlace) => (self.path.as_path(), self.format, Flush::HostDisk),
            (_, Writes::Discard) => {
                self.create_overlay(tools, scratch)?;
                (scratch, Format::Qcow2, Flush::Never)
            }
            (_, Writes::Overlay(overlay)) => {
                if !overlay.exists() {
                    // Appears whole or not at all.
                    let mut unfinished = overlay.clone().into_os_string();
                    unfinished.push(".unfinished");
                    let unfinished = PathBuf::from(unfinished);
                    self.create_overlay(tools, &unfinished)?;
                    fs_err::rename(unfinished, overlay)?;
                }
                (overlay.as_path(), Format::Qcow2, Flush::HostCache)
            }
        };
        let read_only = self.bus == Bus::Cdrom;
        Ok(Drive {
            path: utf8(path)?,
            format,
            bus: self.bus,
            read_only,
            flush,
            serial: self.serial.clone(),
            block_bytes: self.block_bytes,
        })
    }

    fn check(&self) -> Result<(), DiskError> {
        if let Some(serial) = &self.serial {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if serial.is_empty() || serial.len() > SERIAL_MAX || !serial.chars().all(plain) {
                return Err(DiskError::Serial(serial.clone()));
            }
        }
        let Some(wanted) = self.grow_to else { return Ok(()) };
        if self.bus == Bus::Cdrom || self.writes == Writes::InPlace {
            return Err(DiskError::CannotGrow(self.path.clone()));
        }
        let has = self.format.virtual_size(&self.path)?;
        if wanted < has {
            return Err(DiskError::WouldShrink { path: self.path.clone(), wanted, has });
        }
        Ok(())
    }

    fn create_overlay(&self, tools: &Tools, overlay: &Path) -> Result<(), DiskError> {
        let mut arguments: Vec<String> =
            ["create", "-q", "-f", "qcow2", "-F", self.format.driver(), "-b"].map(String::from).into();
        arguments.push(utf8(&self.path)?);
        arguments.push(utf8(overlay)?);
        arguments.extend(self.grow_to.map(|bytes| bytes.to_string()));
        tools
            .qemu_img(arguments)
            .run("qemu-img create", CREATE_WITHIN)
            .map_err(|source| DiskError::Overlay { path: overlay.to_owned(), source })
    }
}

impl Format {
    /// Recognises the image by its first bytes.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut file = fs_err::File::open(path)?;
        let mut has = |offset, magic: &[u8]| -> io::Result<bool> {
            let mut found = Vec::new();
            file.seek(SeekFrom::Start(offset))?;
            file.by_ref().take(magic.len() as u64).read_to_end(&mut found)?;
            Ok(found == magic)
        };
        if has(0, QCOW2_MAGIC)? {
            Ok(Self::Qcow2)
        } else if has(ISO_MAGIC_OFFSET, ISO_MAGIC)? {
            Ok(Self::Iso)
        } else {
            Ok(Self::Raw)
        }
    }

    /// QEMU's name for it.
    pub(crate) fn driver(self) -> &'static str {
        match self {
            Self::Raw | Self::Iso => "raw",
            Self::Qcow2 => "qcow2",
        }
    }

    /// Size of the disk in bytes, as the machine sees it.
    fn virtual_size(self, path: &Path) -> io::Result<u64> {
        let mut file = fs_err::File::open(path)?;
        match self {
            // Seeking works on block devices too, where the file length is 0.
            Self::Raw | Self::Iso => file.seek(SeekFrom::End(0)),
            Self::Qcow2 => {
                let mut size = [0; 8];
                file.seek(SeekFrom::Start(QCOW2_SIZE_OFFSET))?;
                file.read_exact(&mut size)?;
                Ok(u64::from_be_bytes(size))
            }
        }
    }
}

pub(crate) fn utf8(path: &Path) -> Result<String, DiskError> {
    path.to_str().map(str::to_owned).ok_or_else(|| DiskError::NotUtf8(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn image(dir: &tempfile::TempDir, at: usize, magic: &[u8], length: usize) -> Disk {
        let mut bytes = vec![0; length];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        let path = dir.path().join("image");
        fs_err::write(&path, bytes).expect("writing");
        Disk::open(path).expect("readable")
    }

    #[rstest]
    #[case::qcow2(0, QCOW2_MAGIC, Format::Qcow2, Bus::Virtio)]
    #[case::iso(32769, ISO_MAGIC, Format::Iso, Bus::Cdrom)]
    #[case::other(0, b"", Format::Raw, Bus::Virtio)]
    fn format_and_bus_follow_from_the_first_bytes(
        #[case] at: usize,
        #[case] magic: &[u8],
        #[case] format: Format,
        #[case] bus: Bus,
    ) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let disk = image(&dir, at, magic, 1 << 16);
        assert_eq!((disk.format, disk.bus), (format, bus));
    }

    #[test]
    fn an_image_shorter_than_the_magics_is_raw() {
        let dir = tempfile::tempdir().expect("temporary folder");
        assert_eq!(image(&dir, 0, b"", 3).format, Format::Raw);
    }

    #[test]
    fn what_cannot_be_is_refused_with_numbers() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let disk = image(&dir, 0, b"", 1 << 16);
        let problem = |disk: Disk| disk.check().expect_err("is refused").to_string();
        assert!(problem(disk.clone().grow_to(4096)).ends_with("cannot become 4096 bytes: it has 65536"));
        let in_place = disk.clone().writes(Writes::InPlace).grow_to(1 << 20);
        assert!(problem(in_place).contains("cannot grow"));
        assert!(problem(disk.clone().bus(Bus::Cdrom).grow_to(1 << 20)).contains("cannot grow"));
        assert_eq!(problem(disk.serial("a,b")), "serial number `a,b` is not 1 to 20 letters, digits, `-` or `_`");
    }

    #[test]
    fn qcow2_size_is_the_virtual_one() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut header = [0; 32];
        header[..4].copy_from_slice(QCOW2_MAGIC);
        header[24..].copy_from_slice(&(5_u64 << 30).to_be_bytes());
        let disk = image(&dir, 0, &header, 1 << 16);
        assert_eq!(disk.format.virtual_size(&disk.path).expect("readable"), 5 << 30);
    }

    #[test]
    fn missing_image_is_named() {
        let error = Disk::open("/nonexistent/box.raw").expect_err("is missing");
        let DiskError::Io(source) = error else { panic!("another error: {error}") };
        assert!(source.to_string().contains("/nonexistent/box.raw"), "{source}");
    }
}
