//! What lies where in an image that does not exist yet.
//!
//! [`Extents`] lists the pieces that hold data, in order, with holes between them; nothing is copied until a format
//! reads it. Holes of sparse source files stay holes.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use fs_err::File;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::Content;

/// One run of bytes in the image.
#[derive(Debug, Clone)]
struct Extent {
    at: u64,
    len: u64,
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    Bytes { bytes: Arc<[u8]>, from: usize, reserved: bool },
    File { path: Arc<PathBuf>, from: u64 },
    Open { file: Arc<File>, from: u64 },
}

/// Why pieces cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum ExtentsError {
    /// Reading a source failed; the error names the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A source is not as large as it was said to be.
    #[error("`{}` has {found} bytes, {expected} expected", path.display())]
    Size {
        /// The source.
        path: PathBuf,
        /// Bytes it should have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
}

/// An image as a list of its pieces.
#[derive(Debug, Clone, Default)]
pub struct Extents {
    size: u64,
    list: Vec<Extent>,
}

impl Extents {
    /// An image of `size` zero bytes.
    pub fn new(size: u64) -> Self {
        Self { size, list: Vec::new() }
    }

    /// Size of the image in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are not holes.
    pub fn data_bytes(&self) -> u64 {
        self.list.iter().map(|extent| extent.len).sum()
    }

    /// Places `content` at byte `at`, which must be behind everything placed before.
    ///
    /// # Panics
    /// When pieces overlap or pass the image's end: a layout was not followed.
    pub fn push(&mut self, at: u64, content: &Content) -> Result<(), ExtentsError> {
        match content {
            Content::Bytes(bytes) | Content::Reserved(bytes) => {
                let reserved = matches!(content, Content::Reserved(_));
                self.add(at, bytes.len() as u64, Source::Bytes { bytes: bytes.as_slice().into(), from: 0, reserved });
                Ok(())
            }
            Content::File { path, bytes } => self.push_file(at, path, *bytes),
        }
    }

    /// Places the whole of `file` at byte `at`; it stays open as long as the image.
    pub fn push_open(&mut self, at: u64, file: &Arc<File>) -> Result<(), ExtentsError> {
        let (len, mut from) = (file.metadata()?.len(), 0);
        while let Some((start, end)) = next_data(file, from, len)? {
            self.add(at + start, end - start, Source::Open { file: Arc::clone(file), from: start });
            from = end;
        }
        Ok(())
    }

    /// Places another image's pieces at byte `at`.
    pub fn push_image(&mut self, at: u64, image: &Extents) {
        for extent in &image.list {
            self.add(at + extent.at, extent.len, extent.source.clone());
        }
    }

    fn push_file(&mut self, at: u64, path: &PathBuf, expected: u64) -> Result<(), ExtentsError> {
        let file = File::open(path)?;
        let found = file.metadata()?.len();
        if found != expected {
            return Err(ExtentsError::Size { path: path.clone(), expected, found });
        }
        let path = Arc::new(path.clone());
        let mut from = 0;
        while let Some((start, end)) = next_data(&file, from, found)? {
            self.add(at + start, end - start, Source::File { path: Arc::clone(&path), from: start });
            from = end;
        }
        Ok(())
    }

    fn add(&mut self, at: u64, len: u64, source: Source) {
        let free_from = self.list.last().map_or(0, |last| last.at + last.len);
        assert!(at >= free_from && at + len <= self.size, "piece at {at}+{len}, free {free_from}..{}", self.size);
        if len > 0 {
            self.list.push(Extent { at, len, source });
        }
    }

    /// A reader of the whole image.
    pub fn reader(&self) -> Reader<'_> {
        Reader { extents: self, index: 0, open: None }
    }

    /// Whether any of the `len` bytes from `at` on will be replaced in the finished image.
    pub fn is_reserved(&self, at: u64, len: u64) -> bool {
        let first = self.list.partition_point(|extent| extent.at + extent.len <= at);
        let here = self.list[first..].iter().take_while(|extent| extent.at < at + len);
        here.into_iter().any(|extent| matches!(extent.source, Source::Bytes { reserved: true, .. }))
    }

    /// The first byte at or behind `at` that is not in a hole.
    pub fn next_data(&self, at: u64) -> Option<u64> {
        let index = self.list.partition_point(|extent| extent.at + extent.len <= at);
        self.list.get(index).map(|extent| extent.at.max(at))
    }
}

/// The next run of data in `file` at or behind `from`, or none when only a hole follows.
fn next_data(file: &File, from: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    if from >= len {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The filesystem does not know about holes: all is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((from, len))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end.min(len))))
}

/// Reads an image front to back; holes read as zeros.
#[derive(Debug)]
pub struct Reader<'a> {
    extents: &'a Extents,
    index: usize,
    open: Option<(Arc<PathBuf>, File)>,
}

impl Reader<'_> {
    /// Fills `buffer` with the bytes from `at` on; what lies behind the image's end reads as zeros.
    /// Says whether any of it came from a piece. Calls must come in ascending order.
    pub fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let end = at + buffer.len() as u64;
        let mut filled = at;
        let mut any = false;
        while let Some(extent) = self.extents.list.get(self.index).filter(|extent| extent.at < end) {
            let start = extent.at.max(filled);
            let stop = (extent.at + extent.len).min(end);
            if start < stop {
                let (from, to) = (offset(start - at), offset(stop - at));
                buffer[offset(filled - at)..from].fill(0);
                read_source(&mut self.open, extent, start - extent.at, &mut buffer[from..to])?;
                filled = stop;
                any = true;
            }
            if extent.at + extent.len > end {
                break;
            }
            self.index += 1;
        }
        buffer[offset(filled - at)..].fill(0);
        Ok(any)
    }
}

fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).expect("offset within a buffer")
}

fn read_source(
    open: &mut Option<(Arc<PathBuf>, File)>,
    extent: &Extent,
    skip: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    match &extent.source {
        Source::Bytes { bytes, from, .. } => {
            let start = from + offset(skip);
            buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
            Ok(())
        }
        Source::File { path, from } => {
            let file = match open {
                Some((opened, file)) if Arc::ptr_eq(opened, path) => file,
                _ => &mut open.insert((Arc::clone(path), File::open(path.as_path())?)).1,
            };
            read_file(file, from + skip, buffer)
        }
        Source::Open { file, from } => read_file(file, from + skip, buffer),
    }
}

fn read_file(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    let read = file.file().read_exact_at(buffer, at);
    read.map_err(|error| io::Error::new(error.kind(), format!("reading `{}`: {error}", file.path().display())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_assert_eq, proptest};

    use super::{Content, Extents};

    fn pieces() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
        let piece = (0_u64..300, prop::collection::vec(1_u8..=255, 0..200));
        prop::collection::vec(piece, 0..12)
    }

    proptest! {
        #[test]
        fn reading_in_any_portion_gives_the_pieces_and_zeros_between(pieces in pieces(), portion in 1_usize..300) {
            let mut expected = Vec::new();
            let mut placed = Vec::new();
            for (gap, bytes) in pieces {
                expected.resize(expected.len() + usize::try_from(gap).expect("small"), 0);
                placed.push((expected.len() as u64, bytes.clone()));
                expected.extend(bytes);
            }
            expected.resize(expected.len() + 50, 0);
            let mut extents = Extents::new(expected.len() as u64);
            for (at, bytes) in placed {
                extents.push(at, &Content::Bytes(bytes)).expect("bytes");
            }
            let mut reader = extents.reader();
            let mut found = Vec::new();
            while found.len() < expected.len() {
                let mut buffer = vec![7; portion.min(expected.len() - found.len())];
                reader.read_at(found.len() as u64, &mut buffer).expect("reads");
                found.extend(buffer);
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn holes_of_a_source_file_stay_holes() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("sparse");
        let file = fs_err::File::create(&path).expect("a file");
        file.set_len(1 << 20).expect("a size");
        std::os::unix::fs::FileExt::write_all_at(file.file(), b"end", (1 << 20) - 3).expect("data");
        let mut extents = Extents::new(2 << 20);
        extents.push(4096, &Content::File { path, bytes: 1 << 20 }).expect("a piece");
        assert!(extents.data_bytes() < 1 << 20);
        assert!(extents.next_data(0).expect("data") > 4096);
        let mut buffer = [9; 4];
        extents.reader().read_at(4096 + (1 << 20) - 3, &mut buffer).expect("reads");
        assert_eq!(&buffer, b"end\0");
    }

    #[test]
    fn a_source_of_another_size_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("short");
        fs_err::write(&path, b"abc").expect("a file");
        let error = Extents::new(100).push(0, &Content::File { path, bytes: 5 }).expect_err("too short");
        assert!(error.to_string().ends_with("has 3 bytes, 5 expected"), "{error}");
    }
}
