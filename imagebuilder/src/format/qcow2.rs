//! qcow2 version 3 with zstd or zlib: the format of virtual machines.
//!
//! ```text
//! header │ clusters, compressed ones packed byte by byte │ L2 tables │ L1 table │ refcount blocks │ refcount table
//! ```
//!
//! Source: QEMU `docs/interop/qcow2.rst`. Clusters without data are not stored; a cluster that does not
//! get smaller is stored as it is, and so is one that will be replaced in place. It is written by hand because `qemu-img
//! convert` chooses by itself which clusters are compressed: the proof, which `foothold prove` replaces in place, would be
//! compressed, too.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use fs_err::File;
use rayon::prelude::*;

use crate::disk::extents::Extents;

pub(crate) const MAGIC: u32 = 0x5146_49FB;
const VERSION: u32 = 3;
const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
const CLUSTER_LEN: usize = 1 << CLUSTER_BITS;
/// Bytes of an entry of L1, L2 and refcount table.
pub(crate) const ENTRY: u64 = 8;
const ENTRIES_PER_TABLE: u64 = CLUSTER / ENTRY;
/// Refcounts have 16 bits (order 4).
const REFCOUNT_ORDER: u32 = 4;
const REFCOUNTS_PER_BLOCK: u64 = CLUSTER / 2;
const HEADER_LEN: u32 = 112;
/// Incompatible feature bit 3: the compression type is not zlib.
pub(crate) const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
pub(crate) const COMPRESSION_ZLIB: u8 = 0;
pub(crate) const COMPRESSION_ZSTD: u8 = 1;
/// Readers of zlib clusters go no further back than this: QEMU inflates with a window of 12 bits (`block/qcow2-threads.c`).
const WINDOW: usize = 1 << 12;
/// zlib's usual level.
const ZLIB_LEVEL: u32 = 6;
/// Bit 63: the cluster's refcount is exactly one.
pub(crate) const COPIED: u64 = 1 << 63;
/// Bit 62: the cluster is compressed.
pub(crate) const COMPRESSED: u64 = 1 << 62;
/// Lowest bit of a compressed descriptor's number of additional sectors: 62 - (`CLUSTER_BITS` - 8).
const SECTORS_SHIFT: u32 = 62 - (CLUSTER_BITS - 8);
pub(crate) const SECTOR: u64 = 512;
static ZEROS: [u8; CLUSTER_LEN] = [0; CLUSTER_LEN];
/// Clusters compressed side by side (16 MiB).
const BATCH: usize = 256;

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zstd of that level.
    Zstd(i32),
    /// Deflate (RFC 1951), without the frame that zlib puts around it.
    Zlib,
}

impl Compression {
    /// The value of the header's field, and the feature that readers must know for it.
    fn in_header(self) -> (u8, u64) {
        match self {
            Self::Zstd(_) => (COMPRESSION_ZSTD, INCOMPATIBLE_COMPRESSION),
            Self::Zlib => (COMPRESSION_ZLIB, 0),
        }
    }
}

/// A cluster ready to be stored.
enum Cluster {
    Compressed(Vec<u8>),
    Plain(Vec<u8>),
}

/// Writes `image` to the empty `file`.
pub fn write(
    image: &Extents,
    file: &mut File,
    compression: Compression,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let total = image.data_bytes();
    let mut writer = Writer::new(file, image.size(), compression)?;
    let mut reader = image.reader();
    let (mut at, mut done) = (0, 0);
    while let Some(next) = image.next_data(at) {
        let mut batch = Vec::with_capacity(BATCH);
        at = next / CLUSTER * CLUSTER;
        while let Some(next) = image.next_data(at).filter(|_| batch.len() < BATCH) {
            at = next / CLUSTER * CLUSTER;
            let mut bytes = vec![0; CLUSTER_LEN];
            reader.read_at(at, &mut bytes)?;
            batch.push((at / CLUSTER, bytes));
            at += CLUSTER;
        }
        done += batch.len() as u64 * CLUSTER;
        let packed: Vec<_> = batch
            .into_par_iter()
            .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
            .map_init(
                || Packer::new(compression),
                |packer, (number, bytes)| {
                    let reserved = image.is_reserved(number * CLUSTER, CLUSTER);
                    Ok((number, if reserved { Cluster::Plain(bytes) } else { pack(packer, bytes)? }))
                },
            )
            .collect::<io::Result<_>>()?;
        for (number, cluster) in packed {
            writer.put(number, &cluster)?;
        }
        progress(done.min(total), total);
    }
    writer.finish()
}

/// Compresses clusters, one after the other.
enum Packer {
    Zstd(io::Result<zstd::bulk::Compressor<'static>>),
    Zlib(flate2::Compress),
}

impl Packer {
    fn new(compression: Compression) -> Self {
        match compression {
            Compression::Zstd(level) => Self::Zstd(zstd::bulk::Compressor::new(level)),
            Compression::Zlib => Self::Zlib(flate2::Compress::new(flate2::Compression::new(ZLIB_LEVEL), false)),
        }
    }

    fn compress(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(Ok(zstd)) => zstd.compress(bytes),
            Self::Zstd(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            Self::Zlib(deflate) => {
                deflate.reset();
                deflated(deflate, bytes)
            }
        }
    }
}

/// Deflates `bytes` so that nothing in it refers further back than [`WINDOW`]: each piece of that length stands alone.
fn deflated(deflate: &mut flate2::Compress, bytes: &[u8]) -> io::Result<Vec<u8>> {
    // Stored as it is, a piece takes a few bytes more than it has.
    let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 64 + 1024);
    let mut pieces = bytes.chunks(WINDOW).peekable();
    while let Some(piece) = pieces.next() {
        let flush = if pieces.peek().is_some() { flate2::FlushCompress::Full } else { flate2::FlushCompress::Finish };
        let end = deflate.total_in() + piece.len() as u64;
        let status = deflate.compress_vec(piece, &mut packed, flush).map_err(io::Error::other)?;
        if deflate.total_in() != end || status == flate2::Status::BufError {
            return Err(io::Error::other("deflate left something over"));
        }
    }
    Ok(packed)
}

fn pack(packer: &mut Packer, bytes: Vec<u8>) -> io::Result<Cluster> {
    let compressed = packer.compress(&bytes)?;
    // A cluster that stays nearly as large costs the reader more than it saves.
    let worth = CLUSTER_LEN - CLUSTER_LEN / 32;
    Ok(if compressed.len() < worth { Cluster::Compressed(compressed) } else { Cluster::Plain(bytes) })
}

struct Writer<'a> {
    out: BufWriter<&'a mut File>,
    /// Next free byte of the file.
    free: u64,
    virtual_bytes: u64,
    compression: Compression,
    /// One entry for each cluster of the disk.
    l2: Vec<u64>,
    /// How often each cluster of the file is used: compressed clusters share them.
    refcounts: Vec<u16>,
}

impl<'a> Writer<'a> {
    fn new(file: &'a mut File, virtual_bytes: u64, compression: Compression) -> io::Result<Self> {
        let clusters = usize::try_from(virtual_bytes.div_ceil(CLUSTER)).map_err(io::Error::other)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&ZEROS)?;
        let (l2, refcounts) = (vec![0; clusters], Vec::new());
        let mut writer = Self { out, free: CLUSTER, virtual_bytes, compression, l2, refcounts };
        writer.count(0, CLUSTER);
        Ok(writer)
    }

    fn put(&mut self, number: u64, cluster: &Cluster) -> io::Result<()> {
        let entry = match cluster {
            Cluster::Plain(bytes) => {
                self.align()?;
                COPIED | self.append(bytes)?
            }
            Cluster::Compressed(bytes) => {
                let start = self.append(bytes)?;
                let additional = (start + bytes.len() as u64 - 1) / SECTOR - start / SECTOR;
                COMPRESSED | additional << SECTORS_SHIFT | start
            }
        };
        self.l2[usize::try_from(number).map_err(io::Error::other)?] = entry;
        Ok(())
    }

    /// Appends bytes, counts the clusters they lie in and returns where they start.
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let start = self.free;
        self.out.write_all(bytes)?;
        self.free += bytes.len() as u64;
        self.count(start, self.free);
        Ok(start)
    }

    fn count(&mut self, start: u64, end: u64) {
        let clusters = usize::try_from(end.div_ceil(CLUSTER)).expect("a 64-bit host");
        self.refcounts.resize(clusters.max(self.refcounts.len()), 0);
        for count in &mut self.refcounts[usize::try_from(start / CLUSTER).expect("a 64-bit host")..clusters] {
            *count += 1;
        }
    }

    fn align(&mut self) -> io::Result<()> {
        let padding = usize::try_from(self.free.next_multiple_of(CLUSTER) - self.free).expect("within a cluster");
        self.out.write_all(&ZEROS[..padding])?;
        self.free += padding as u64;
        Ok(())
    }

    /// Appends a table in clusters of its own.
    fn append_table(&mut self, entries: &[u8]) -> io::Result<u64> {
        self.align()?;
        let mut bytes = entries.to_vec();
        bytes.resize(bytes.len().next_multiple_of(CLUSTER_LEN), 0);
        self.append(&bytes)
    }

    /// Appends the tables and writes the header.
    fn finish(mut self) -> io::Result<()> {
        let mut l1 = Vec::new();
        for table in std::mem::take(&mut self.l2).chunks(usize::try_from(ENTRIES_PER_TABLE).expect("small")) {
            let used = table.iter().any(|entry| *entry != 0);
            l1.push(if used { COPIED | self.append_table(&big_endian(table))? } else { 0 });
        }
        let l1_at = self.append_table(&big_endian(&l1))?;
        let (refcount_table_at, refcount_table_clusters) = self.append_refcounts()?;
        let tables = Tables { l1_entries: l1.len() as u64, l1_at, refcount_table_at, refcount_table_clusters };
        let header = header(self.virtual_bytes, self.compression, &tables);
        self.out.flush()?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()
    }

    /// Refcount blocks and their table count themselves, too.
    fn append_refcounts(&mut self) -> io::Result<(u64, u64)> {
        self.align()?;
        let content = self.free / CLUSTER;
        let (mut blocks, mut table_clusters) = (0, 0);
        loop {
            let needed = (content + blocks + table_clusters).div_ceil(REFCOUNTS_PER_BLOCK);
            let needed_table = needed.div_ceil(ENTRIES_PER_TABLE);
            if (needed, needed_table) == (blocks, table_clusters) {
                break;
            }
            (blocks, table_clusters) = (needed, needed_table);
        }
        let start = self.free;
        self.count(start, start + (blocks + table_clusters) * CLUSTER);
        let mut bytes: Vec<u8> = self.refcounts.iter().flat_map(|count| count.to_be_bytes()).collect();
        bytes.resize(usize::try_from(blocks * CLUSTER).map_err(io::Error::other)?, 0);
        let mut table: Vec<u64> = (0..blocks).map(|block| start + block * CLUSTER).collect();
        table.resize(usize::try_from(table_clusters * ENTRIES_PER_TABLE).map_err(io::Error::other)?, 0);
        self.out.write_all(&bytes)?;
        self.out.write_all(&big_endian(&table))?;
        self.free += (blocks + table_clusters) * CLUSTER;
        Ok((start + blocks * CLUSTER, table_clusters))
    }
}

fn big_endian(entries: &[u64]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_be_bytes()).collect()
}

/// Where the tables are.
struct Tables {
    l1_entries: u64,
    l1_at: u64,
    refcount_table_at: u64,
    refcount_table_clusters: u64,
}

/// The header and the empty list of header extensions.
fn header(bytes: u64, compression: Compression, tables: &Tables) -> Vec<u8> {
    let number = |value: u64| u32::try_from(value).expect("tables are small").to_be_bytes();
    let (kind, incompatible) = compression.in_header();
    let mut header = Vec::with_capacity(HEADER_LEN as usize + 8);
    header.extend(MAGIC.to_be_bytes());
    header.extend(VERSION.to_be_bytes());
    header.extend([0; 12]); // no backing file
    header.extend(CLUSTER_BITS.to_be_bytes());
    header.extend(bytes.to_be_bytes());
    header.extend([0; 4]); // no encryption
    header.extend(number(tables.l1_entries));
    header.extend(tables.l1_at.to_be_bytes());
    header.extend(tables.refcount_table_at.to_be_bytes());
    header.extend(number(tables.refcount_table_clusters));
    header.extend([0; 12]); // no snapshots
    header.extend(incompatible.to_be_bytes());
    header.extend([0; 16]); // compatible and autoclear features
    header.extend(REFCOUNT_ORDER.to_be_bytes());
    header.extend(HEADER_LEN.to_be_bytes());
    header.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    header.extend([0; 8]); // end of header extensions
    header
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use fs_err::{File, OpenOptions};
    use proptest::prelude::{ProptestConfig, Strategy, prop, proptest};

    use super::{CLUSTER, CLUSTER_LEN, Compression, Packer, write};
    use crate::disk::extents::Extents;
    use crate::disk::testbench::Toolbox;
    use crate::disk::{Content, Tools as _};

    /// Pieces of noise (stored plainly), text (compressed) and zeros, at odd places with holes between.
    fn pieces() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
        let noise = prop::collection::vec(prop::num::u8::ANY, 1..150_000);
        let text = (1_usize..300_000).prop_map(|len| b"compressible ".iter().copied().cycle().take(len).collect());
        let zeros = (1_usize..200_000).prop_map(|len| vec![0; len]);
        let piece = (0_u64..200_000, proptest::prop_oneof![noise, text, zeros]);
        prop::collection::vec(piece, 0..8)
    }

    fn new_file(path: &std::path::Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("a file")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn qemu_img_reads_back_what_was_written(pieces in pieces(), tail in 0_u64..(1 << 30), level in 0_i32..6) {
            let toolbox = Toolbox::find();
            let dir = tempfile::tempdir().expect("a folder");
            let (qcow2, raw) = (dir.path().join("a.qcow2"), dir.path().join("a.raw"));
            let mut at = 0;
            let mut placed = Vec::new();
            for (gap, bytes) in pieces {
                at += gap;
                placed.push((at, bytes.clone()));
                at += bytes.len() as u64;
            }
            let size = (at + tail).next_multiple_of(512).max(512);
            let mut image = Extents::new(size);
            let expected = new_file(&raw);
            expected.set_len(size).expect("a size");
            for (at, bytes) in placed {
                expected.file().write_all_at(&bytes, at).expect("writes");
                image.push(at, &Content::Bytes(bytes)).expect("a piece");
            }
            let compression = if level == 0 { Compression::Zlib } else { Compression::Zstd(level) };
            write(&image, &mut new_file(&qcow2), compression, &mut |_, _| ()).expect("a qcow2");
            let paths = [&qcow2, &raw].map(|path| path.to_str().expect("UTF-8").to_owned());
            toolbox.check(&["qemu-img", "check", &paths[0]]);
            toolbox.check(&["qemu-img", "compare", "-F", "raw", &paths[0], &paths[1]]);
        }
    }

    /// The window that a stream needs, told by the distances in it: zlib of 12 bits refuses more.
    #[test]
    fn zlib_clusters_need_a_small_window_only() {
        let toolbox = Toolbox::find();
        let dir = tempfile::tempdir().expect("a folder");
        // The same page again and again: with a larger window each would refer to the one far before it.
        let page: Vec<u8> = (0..9000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let bytes: Vec<u8> = page.iter().copied().cycle().take(4 * CLUSTER_LEN).collect();
        let mut packer = Packer::new(Compression::Zlib);
        assert!(packer.compress(&vec![b'a'; CLUSTER_LEN]).expect("packed").len() < CLUSTER_LEN / 16);
        let (qcow2, raw) = (dir.path().join("a.qcow2"), dir.path().join("a.raw"));
        let text: Vec<u8> = bytes.iter().map(|byte| byte & 7).collect();
        let mut image = Extents::new(text.len() as u64);
        image.push(0, &Content::Bytes(text.clone())).expect("a piece");
        fs_err::write(&raw, &text).expect("written");
        write(&image, &mut new_file(&qcow2), Compression::Zlib, &mut |_, _| ()).expect("a qcow2");
        let [qcow2, raw] = [&qcow2, &raw].map(|path| path.to_str().expect("UTF-8").to_owned());
        toolbox.check(&["qemu-img", "compare", "-F", "raw", &qcow2, &raw]);
        let info = toolbox.run(&["qemu-img", "info", "--output=json", &qcow2], &[dir.path()]).expect("qemu-img");
        assert!(String::from_utf8_lossy(&info).contains("\"compression-type\": \"zlib\""));
    }

    #[test]
    fn an_empty_terabyte_takes_four_clusters() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("empty.qcow2");
        write(&Extents::new(1 << 40), &mut new_file(&path), Compression::Zstd(3), &mut |_, _| ()).expect("a qcow2");
        // Header, L1 table, refcount block and refcount table.
        assert_eq!(fs_err::metadata(&path).expect("metadata").len(), 4 * CLUSTER);
        Toolbox::find().check(&["qemu-img", "check", path.to_str().expect("UTF-8")]);
    }
}
