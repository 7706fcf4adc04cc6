//! bbolt databases (go.etcd.io/bbolt, file format version 2): read whole, write whole.
//!
//! containerd keeps its metadata in two of them. What it writes depends on the clock and on the order of its
//! transactions; read as a tree of buckets and written anew, the same content gives the same bytes.

use std::collections::BTreeMap;

/// Page size of what we write.
const PAGE: usize = 4096;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const FLAG_BRANCH: u16 = 0x01;
const FLAG_LEAF: u16 = 0x02;
const FLAG_META: u16 = 0x04;
const FLAG_FREELIST: u16 = 0x10;
/// Flag of a leaf element whose value is a bucket.
const BUCKET: u32 = 0x01;
/// A bucket nested deeper than this is not containerd's.
const DEPTH: usize = 16;

/// A bucket: keys in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The bucket's counter.
    pub sequence: u64,
    /// Entries.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// A value or a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Bytes.
    Value(Vec<u8>),
    /// A nested bucket.
    Bucket(Bucket),
}

/// Why bytes are not a database.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BoltError {
    /// Neither meta page is whole.
    #[error("no valid meta page")]
    Meta,
    /// A page or element lies outside the file.
    #[error("page {0} lies outside the file or is damaged")]
    Page(u64),
    /// Buckets in buckets without end.
    #[error("buckets are nested deeper than {DEPTH}")]
    Depth,
}

/// Reads a database.
pub fn decode(bytes: &[u8]) -> Result<Bucket, BoltError> {
    let meta =
        [0, 1].iter().filter_map(|n| Meta::read(bytes, *n)).max_by_key(|meta| meta.txid).ok_or(BoltError::Meta)?;
    let reader = Reader { bytes, page_size: meta.page_size };
    let mut root = Bucket { sequence: meta.sequence, entries: BTreeMap::new() };
    reader.page(meta.root, &mut root, 0)?;
    Ok(root)
}

struct Meta {
    page_size: usize,
    root: u64,
    sequence: u64,
    txid: u64,
}

impl Meta {
    fn read(bytes: &[u8], number: usize) -> Option<Self> {
        let size = u32_at(bytes, HEADER + 8).map(|size| size as usize).filter(|size| size.is_power_of_two())?;
        let body = bytes.get(number * size + HEADER..)?;
        let good = u32_at(body, 0)? == MAGIC && u32_at(body, 4)? == VERSION;
        let sum = u64_at(body, 56)?;
        (good && sum == fnv1a(body.get(..56)?)).then_some(())?;
        Some(Self { page_size: size, root: u64_at(body, 16)?, sequence: u64_at(body, 24)?, txid: u64_at(body, 48)? })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    page_size: usize,
}

impl Reader<'_> {
    fn page(&self, id: u64, bucket: &mut Bucket, depth: usize) -> Result<(), BoltError> {
        let broken = || BoltError::Page(id);
        let start = usize::try_from(id).ok().and_then(|id| id.checked_mul(self.page_size)).ok_or_else(broken)?;
        self.elements(self.bytes.get(start..).ok_or_else(broken)?, id, bucket, depth)
    }

    fn elements(&self, page: &[u8], id: u64, bucket: &mut Bucket, depth: usize) -> Result<(), BoltError> {
        let broken = || BoltError::Page(id);
        if depth > DEPTH {
            return Err(BoltError::Depth);
        }
        let flags = u16_at(page, 8).ok_or_else(broken)?;
        let count = u16_at(page, 10).ok_or_else(broken)?;
        for n in 0..usize::from(count) {
            let at = HEADER + n * ELEMENT;
            match flags {
                FLAG_BRANCH => {
                    let child = u64_at(page, at + 8).ok_or_else(broken)?;
                    self.page(child, bucket, depth + 1)?;
                }
                FLAG_LEAF => {
                    let field = |offset| u32_at(page, at + offset).map(|v| v as usize).ok_or_else(broken);
                    let (kind, pos, key_len, value_len) = (field(0)?, at + field(4)?, field(8)?, field(12)?);
                    let key = page.get(pos..pos + key_len).ok_or_else(broken)?.to_vec();
                    let value = page.get(pos + key_len..pos + key_len + value_len).ok_or_else(broken)?;
                    let entry = if kind & BUCKET as usize == 0 {
                        Entry::Value(value.to_vec())
                    } else {
                        Entry::Bucket(self.bucket(value, id, depth)?)
                    };
                    bucket.entries.insert(key, entry);
                }
                _ => return Err(broken()),
            }
        }
        Ok(())
    }

    fn bucket(&self, value: &[u8], id: u64, depth: usize) -> Result<Bucket, BoltError> {
        let broken = || BoltError::Page(id);
        let root = u64_at(value, 0).ok_or_else(broken)?;
        let mut bucket = Bucket { sequence: u64_at(value, 8).ok_or_else(broken)?, entries: BTreeMap::new() };
        if root == 0 {
            self.elements(value.get(16..).ok_or_else(broken)?, id, &mut bucket, depth + 1)?;
        } else {
            self.page(root, &mut bucket, depth + 1)?;
        }
        Ok(bucket)
    }
}

/// Writes a database: every bucket one leaf page, as long as it needs to be.
pub fn encode(root: &Bucket) -> Vec<u8> {
    // Pages 0 and 1 are the metas, page 2 the (empty) free list.
    let mut out = vec![0; 3 * PAGE];
    page_header(&mut out[2 * PAGE..], 2, FLAG_FREELIST, 0, 0);
    let root_page = write_bucket(&mut out, root);
    let pages = (out.len() / PAGE) as u64;
    for number in 0..2_u64 {
        let start = usize::try_from(number).unwrap_or_default() * PAGE;
        page_header(&mut out[start..], number, FLAG_META, 0, 0);
        let meta = &mut out[start + HEADER..start + PAGE];
        put(meta, 0, &MAGIC.to_le_bytes());
        put(meta, 4, &VERSION.to_le_bytes());
        put(meta, 8, &u32::try_from(PAGE).unwrap_or_default().to_le_bytes());
        put(meta, 16, &root_page.to_le_bytes());
        put(meta, 24, &root.sequence.to_le_bytes());
        put(meta, 32, &2_u64.to_le_bytes());
        put(meta, 40, &pages.to_le_bytes());
        put(meta, 48, &number.to_le_bytes());
        let sum = fnv1a(&meta[..56]);
        put(meta, 56, &sum.to_le_bytes());
    }
    out
}

fn write_bucket(out: &mut Vec<u8>, bucket: &Bucket) -> u64 {
    let values: Vec<(u32, &[u8], Vec<u8>)> = bucket
        .entries
        .iter()
        .map(|(key, entry)| match entry {
            Entry::Value(value) => (0, key.as_slice(), value.clone()),
            Entry::Bucket(inner) => {
                let page = write_bucket(out, inner);
                (BUCKET, key.as_slice(), [page.to_le_bytes(), inner.sequence.to_le_bytes()].concat())
            }
        })
        .collect();
    let id = (out.len() / PAGE) as u64;
    let mut page = vec![0; HEADER + values.len() * ELEMENT];
    for (n, (flags, key, value)) in values.iter().enumerate() {
        let at = HEADER + n * ELEMENT;
        let position = page.len() - at;
        put(&mut page, at, &flags.to_le_bytes());
        for (offset, number) in [(4, position), (8, key.len()), (12, value.len())] {
            put(&mut page, at + offset, &u32::try_from(number).expect("a database of a few MiB").to_le_bytes());
        }
        page.extend_from_slice(key);
        page.extend_from_slice(value);
    }
    page.resize(page.len().div_ceil(PAGE) * PAGE, 0);
    let count = u16::try_from(values.len()).expect("a bucket of fewer than 65536 entries");
    let overflow = u32::try_from(page.len() / PAGE - 1).expect("a database of a few MiB");
    page_header(&mut page, id, FLAG_LEAF, count, overflow);
    out.extend_from_slice(&page);
    id
}

fn page_header(page: &mut [u8], id: u64, flags: u16, count: u16, overflow: u32) {
    put(page, 0, &id.to_le_bytes());
    put(page, 8, &flags.to_le_bytes());
    put(page, 10, &count.to_le_bytes());
    put(page, 12, &overflow.to_le_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// FNV-1a, 64 bits: the checksum of a meta page.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop, proptest};

    use super::{BoltError, Bucket, Entry, decode, encode};

    fn bucket() -> impl Strategy<Value = Bucket> {
        let key = || prop::collection::vec(any::<u8>(), 1..20);
        let leaf = prop::collection::vec(any::<u8>(), 0..300).prop_map(Entry::Value);
        let entry = leaf.prop_recursive(4, 40, 8, move |inner| {
            (any::<u64>(), prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..20), inner, 0..8))
                .prop_map(|(sequence, entries)| Entry::Bucket(Bucket { sequence, entries }))
        });
        (any::<u64>(), prop::collection::btree_map(key(), entry, 0..40))
            .prop_map(|(sequence, entries)| Bucket { sequence, entries })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(root in bucket()) {
            assert_eq!(decode(&encode(&root)), Ok(root));
        }

        #[test]
        fn damaged_bytes_never_panic(root in bucket(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = encode(&root);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(decode(b"not a database"), Err(BoltError::Meta));
    }
}
