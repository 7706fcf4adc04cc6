//! qcow2 read back: the disk that a file of [`format::qcow2`](crate::format::qcow2) holds.
//!
//! Source: QEMU `docs/interop/qcow2.rst`. Versions 2 and 3; clusters plain, zero, absent or compressed with zstd or zlib. What
//! needs another file (a backing file, external data) or another codec is refused by name.

use std::cell::RefCell;
use std::io::{self, Read as _};

use super::bytes::{Bytes, Disk, read};
use crate::format::qcow2::{
    COMPRESSED, COMPRESSION_ZLIB, COMPRESSION_ZSTD, COPIED, ENTRY, INCOMPATIBLE_COMPRESSION, MAGIC, SECTOR,
};

/// Incompatible feature bit 0: refcounts may be stale, which matters to writers only.
const INCOMPATIBLE_DIRTY: u64 = 1;
/// Lowest bit of an L2 entry: the cluster reads as zeros (version 3).
const ZERO: u64 = 1;
/// Bits 9 to 55 of an L1 or L2 entry: where the table or cluster lies.
const OFFSET: u64 = 0x00FF_FFFF_FFFF_FE00;
/// Bytes of the header up to the compression type.
const HEADER: usize = 105;

/// Why a qcow2 cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// The file could not be read, or ends before its tables do.
    #[error("reading the qcow2's tables: {0}")]
    Io(#[from] io::Error),
    /// It needs something that is not read here.
    #[error("the qcow2 {0}\nhint: `qemu-img convert -O raw` makes an image that can be read")]
    Unsupported(&'static str),
    /// The header says impossible things.
    #[error("the qcow2's header is damaged: {0}")]
    Header(String),
}

/// The disk in a qcow2.
pub struct Qcow2 {
    file: Disk,
    size: u64,
    cluster_bits: u32,
    codec: Codec,
    l1: Vec<u64>,
    last: RefCell<Last>,
}

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Zlib,
    Zstd,
}

impl Codec {
    /// Unpacks what fills `into`; behind it may be bytes of others.
    fn unpack(self, packed: &[u8], into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Zlib => flate2::read::DeflateDecoder::new(packed).read_exact(into),
            Self::Zstd => zstd::Decoder::new(packed)?.single_frame().read_exact(into),
        }
    }
}

/// What was read last: neighbouring reads hit the same table and the same cluster.
#[derive(Default)]
struct Last {
    table: Option<(u64, Vec<u64>)>,
    cluster: Option<(u64, Vec<u8>)>,
}

/// Where a cluster's bytes are.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Zeros,
    Plain(u64),
    Compressed { at: u64, most: u64 },
}

impl Qcow2 {
    /// Reads the header and the L1 table.
    pub fn open(file: Disk) -> Result<Self, Qcow2Error> {
        let header = read(&*file, 0, HEADER)?;
        let u32_at = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (version, cluster_bits, size) = (u32_at(4), u32_at(20), u64_at(24));
        if u32_at(0) != MAGIC || !(2..=3).contains(&version) {
            return Err(Qcow2Error::Header(format!("version {version}")));
        }
        if !(9..=21).contains(&cluster_bits) {
            return Err(Qcow2Error::Header(format!("clusters of 2^{cluster_bits} bytes")));
        }
        if u64_at(8) != 0 {
            return Err(Qcow2Error::Unsupported("has a backing file"));
        }
        if u32_at(32) != 0 {
            return Err(Qcow2Error::Unsupported("is encrypted"));
        }
        let incompatible = if version == 3 { u64_at(72) } else { 0 };
        if incompatible & !(INCOMPATIBLE_DIRTY | INCOMPATIBLE_COMPRESSION) != 0 {
            return Err(Qcow2Error::Unsupported("uses features that are not known here"));
        }
        let codec = match (incompatible & INCOMPATIBLE_COMPRESSION != 0).then_some(header[104]) {
            None | Some(COMPRESSION_ZLIB) => Codec::Zlib,
            Some(COMPRESSION_ZSTD) => Codec::Zstd,
            Some(_) => return Err(Qcow2Error::Unsupported("is compressed in a way that is not known here")),
        };
        let per_l1_entry = ((1_u64 << cluster_bits) / ENTRY) << cluster_bits;
        let entries = u64::from(u32_at(36)).min(size.div_ceil(per_l1_entry));
        let l1 = table(&*file, u64_at(40), entries)?;
        Ok(Self { file, size, cluster_bits, codec, l1, last: RefCell::default() })
    }

    fn place_in(&self, cluster: u64, last: &mut Last) -> io::Result<Place> {
        let per_table = (1_u64 << self.cluster_bits) / ENTRY;
        let l1 = usize::try_from(cluster / per_table).ok().and_then(|index| self.l1.get(index)).copied();
        let at = l1.unwrap_or(0) & OFFSET;
        if at == 0 {
            return Ok(Place::Zeros);
        }
        if last.table.as_ref().is_none_or(|(known, _)| *known != at) {
            last.table = Some((at, table(&*self.file, at, per_table)?));
        }
        let entries = last.table.as_ref().map(|(_, entries)| entries.as_slice()).unwrap_or_default();
        let index = usize::try_from(cluster % per_table).map_err(io::Error::other)?;
        Ok(place_of(entries[index], self.cluster_bits))
    }

    fn load(&self, cluster: u64, last: &mut Last) -> io::Result<Vec<u8>> {
        let length = 1_usize << self.cluster_bits;
        match self.place_in(cluster, last)? {
            Place::Zeros => Ok(vec![0; length]),
            Place::Plain(at) => {
                let left = usize::try_from(self.file.size().saturating_sub(at)).unwrap_or(usize::MAX);
                // The last cluster of a file need not be stored whole.
                let mut bytes = read(&*self.file, at, length.min(left.max(1)))?;
                bytes.resize(length, 0);
                Ok(bytes)
            }
            Place::Compressed { at, most } => {
                let most = most.min(self.file.size().saturating_sub(at)).max(1);
                let packed = read(&*self.file, at, usize::try_from(most).map_err(io::Error::other)?)?;
                let mut bytes = vec![0; length];
                self.codec.unpack(&packed, &mut bytes).map_err(|error| {
                    io::Error::new(error.kind(), format!("unpacking the cluster at byte {at} of the qcow2: {error}"))
                })?;
                Ok(bytes)
            }
        }
    }
}

fn table(file: &dyn Bytes, at: u64, entries: u64) -> io::Result<Vec<u64>> {
    let bytes = read(file, at, usize::try_from(entries * ENTRY).map_err(io::Error::other)?)?;
    Ok(bytes.chunks_exact(8).map(|entry| u64::from_be_bytes(entry.try_into().expect("eight bytes"))).collect())
}

fn place_of(entry: u64, cluster_bits: u32) -> Place {
    if entry & COMPRESSED != 0 {
        let shift = 62 - (cluster_bits - 8);
        let at = entry & ((1 << shift) - 1);
        let additional = (entry & !(COMPRESSED | COPIED)) >> shift;
        return Place::Compressed { at, most: (additional + 1) * SECTOR - at % SECTOR };
    }
    match entry & OFFSET {
        _ if entry & ZERO != 0 => Place::Zeros,
        0 => Place::Zeros,
        at => Place::Plain(at),
    }
}

impl Bytes for Qcow2 {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let cluster_size = 1_u64 << self.cluster_bits;
        if at.checked_add(buffer.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the disk ends at byte {}", self.size)));
        }
        let mut last = self.last.borrow_mut();
        let mut done = 0;
        while done < buffer.len() {
            let now = at + done as u64;
            let number = now / cluster_size;
            if last.cluster.as_ref().is_none_or(|(known, _)| *known != number) {
                last.cluster = None;
                let bytes = self.load(number, &mut last)?;
                last.cluster = Some((number, bytes));
            }
            let bytes = last.cluster.as_ref().map(|(_, bytes)| bytes.as_slice()).unwrap_or_default();
            let from = usize::try_from(now % cluster_size).map_err(io::Error::other)?;
            let count = (bytes.len() - from).min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&bytes[from..from + count]);
            done += count;
        }
        Ok(())
    }

    fn place(&self, at: u64) -> io::Result<Option<u64>> {
        let cluster = at >> self.cluster_bits;
        Ok(match self.place_in(cluster, &mut self.last.borrow_mut())? {
            Place::Plain(start) => Some(start + at - (cluster << self.cluster_bits)),
            Place::Zeros | Place::Compressed { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPRESSED, COPIED, Place, place_of};

    #[test]
    fn entries_say_where_a_cluster_lies() {
        assert_eq!(place_of(0, 16), Place::Zeros);
        assert_eq!(place_of(COPIED | 0x50000, 16), Place::Plain(0x50000));
        assert_eq!(place_of(COPIED | 0x50001, 16), Place::Zeros);
        // Two additional sectors, from byte 700 on: up to the end of the fourth sector.
        let entry = COMPRESSED | 2 << (62 - 8) | 0x2BC;
        assert_eq!(place_of(entry, 16), Place::Compressed { at: 700, most: 3 * 512 - 188 });
    }
}
