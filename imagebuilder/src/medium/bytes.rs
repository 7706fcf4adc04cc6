//! Bytes that can be read anywhere: a file, a device, a part of one, and the shapes that other crates' readers want.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::rc::Rc;

use hadris_storage::sync::BlockDevice;
use hadris_storage::{BlockIndex, BlockSize};

use crate::host::block::logical_block;

/// Logical block size under which file-system readers see a disk.
const BLOCK: u32 = 512;

/// Bytes with a known size.
pub trait Bytes {
    /// How many there are.
    fn size(&self) -> u64;
    /// Fills `buffer` from byte `at` on; an error when it is not all there.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Where byte `at` lies in the file beneath, when it lies there as it is.
    fn place(&self, at: u64) -> io::Result<Option<u64>> {
        let _ = at;
        Ok(None)
    }
}

/// A disk that several readers share.
pub type Disk = Rc<dyn Bytes>;

/// `length` bytes from byte `at` on.
pub fn read(bytes: &dyn Bytes, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    bytes.read_at(at, &mut buffer)?;
    Ok(buffer)
}

/// An error when `length` bytes from `at` on are not all within `size`.
fn within(what: &str, size: u64, at: u64, length: usize) -> io::Result<()> {
    let end = at.saturating_add(length as u64);
    if end <= size {
        return Ok(());
    }
    let message = format!("{what} ends at byte {size}, bytes up to {end} are wanted");
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
}

/// A file or a block device, opened read-only.
#[derive(Debug)]
pub struct Image {
    file: fs_err::File,
    size: u64,
    /// Bytes of a device's logical block; a file has none.
    pub block: Option<u64>,
}

impl Image {
    /// Opens it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = fs_err::File::open(path)?;
        let size = file.seek(SeekFrom::End(0))?;
        let block = logical_block(path)?;
        Ok(Self { file, size, block })
    }
}

impl Bytes for Image {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        within("the image", self.size, at, buffer.len())?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("reading byte {at} of the image: {error}"));
        self.file.file().read_exact_at(buffer, at).map_err(named)
    }

    fn place(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(Some(at))
    }
}

impl Bytes for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        within("the text", self.size(), at, buffer.len())?;
        let start = usize::try_from(at).map_err(io::Error::other)?;
        buffer.copy_from_slice(&self[start..start + buffer.len()]);
        Ok(())
    }
}

/// A part of a disk.
pub struct Window {
    /// The disk.
    pub disk: Disk,
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub size: u64,
}

impl Bytes for Window {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        within("the partition", self.size, at, buffer.len())?;
        self.disk.read_at(self.start + at, buffer)
    }
}

impl ext4_view::Ext4Read for Window {
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.read_at(at, buffer)?)
    }
}

/// Bytes as a stream that can be repositioned. Writing is refused.
pub struct Cursor<B> {
    bytes: B,
    at: u64,
}

impl<B: std::ops::Deref<Target: Bytes>> Cursor<B> {
    /// A stream at its first byte.
    pub fn new(bytes: B) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<B> fmt::Debug for Cursor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<B: std::ops::Deref<Target: Bytes>> Read for Cursor<B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.size().saturating_sub(self.at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.bytes.read_at(self.at, &mut buffer[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl<B: std::ops::Deref<Target: Bytes>> Seek for Cursor<B> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.bytes.size().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl<B> Write for Cursor<B> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk in blocks, for the FAT and ISO 9660 readers.
pub struct Blocks(pub Disk);

impl hadris_io::ErrorType for Blocks {
    type Error = io::Error;
}

impl BlockDevice for Blocks {
    fn block_size(&self) -> BlockSize {
        const { BlockSize::new(BLOCK).expect("a power of two") }
    }

    fn block_count(&self) -> u64 {
        self.0.size() / u64::from(BLOCK)
    }

    fn read_blocks(&mut self, first: BlockIndex, buffer: &mut [u8]) -> Result<(), hadris_io::Error<io::Error>> {
        let read = self.0.read_at(first.get() * u64::from(BLOCK), buffer);
        read.map_err(|error| hadris_io::Error::device(error, "reading the image"))
    }
}
