//! dm-verity hash trees, written behind the data they protect.
//!
//! Format 1, sha256, 4096-byte data and hash blocks, no superblock: byte for byte what
//! `veritysetup format --no-superblock --hash-offset=<data bytes>` writes. A digest is `sha256(salt || block)`;
//! a hash block holds 128 digests, zero-padded; levels lie on the disk from the root down.
//! Source: Linux `Documentation/admin-guide/device-mapper/verity.rst`, cryptsetup `lib/verity/verity_hash.c`.
//!
//! Data is read in batches, so memory stays flat apart from 32 bytes for each 4 KiB of data.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use fs_err::{File, OpenOptions};
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Size of a data block and of a hash block in bytes.
pub const BLOCK_SIZE: usize = 4096;
/// Size of a sha256 digest in bytes.
const DIGEST_SIZE: usize = 32;
/// Digests in one hash block.
const DIGESTS_PER_BLOCK: usize = BLOCK_SIZE / DIGEST_SIZE;
/// Blocks read and hashed at a time (16 MiB).
const BATCH_BLOCKS: usize = 4096;

type Hash = [u8; DIGEST_SIZE];

/// Fills a buffer from a byte on, or fails.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// What the kernel needs to open a protected file, and where its parts lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verity {
    /// Bytes of data, a multiple of 4096; the hash tree starts here.
    pub data_bytes: u64,
    /// Digest of the top of the tree, hex.
    pub root_hash: String,
    /// Salt of every digest, hex.
    pub salt: String,
    /// Bytes of the whole file: data and tree.
    pub total_bytes: u64,
}

/// Why a tree could not be made or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum VerityError {
    /// Reading or writing failed; the error names the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is nothing to protect.
    #[error("the file is empty")]
    Empty,
    /// The file is shorter or longer than its description.
    #[error("the file has {found} bytes, {expected} expected")]
    Size {
        /// Bytes it should have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// A data block does not match its digest.
    #[error("data block {block} (byte {}) does not match its digest", block * BLOCK_SIZE as u64)]
    Data {
        /// Number of the block, from 0.
        block: u64,
    },
    /// The hash tree or the root hash does not match the data.
    #[error("the hash tree does not match the root hash {root_hash}")]
    Tree {
        /// Root hash expected, hex.
        root_hash: String,
    },
}

/// The salt of a layer: sha256 of its name, so that equal input gives equal bytes.
pub fn salt_for(name: &str) -> [u8; 32] {
    Sha256::digest(name.as_bytes()).into()
}

/// Pads the file at `path` with zeros to a whole block and appends its hash tree.
///
/// The file must hold data only; a second call would protect the first tree too.
pub fn append(path: &Path, salt: &[u8]) -> Result<Verity, VerityError> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    if bytes == 0 {
        return Err(VerityError::Empty);
    }
    let data_bytes = bytes.next_multiple_of(BLOCK_SIZE as u64);
    let padding = usize::try_from(data_bytes - bytes).expect("padding is shorter than a block");
    file.write_all(&[0; BLOCK_SIZE][..padding])?;
    let leaves = hash_blocks(&mut |at, buffer| file.file().read_exact_at(buffer, at), data_bytes, salt)?;
    let (root, tree) = build_tree(leaves, salt);
    file.write_all(&tree)?;
    file.flush()?;
    Ok(Verity {
        data_bytes,
        root_hash: hex::encode(root),
        salt: hex::encode(salt),
        total_bytes: data_bytes + tree.len() as u64,
    })
}

/// Reads the whole file at `path` and compares it with `expected`: first the tree with the root hash, then every block.
pub fn check(path: &Path, expected: &Verity) -> Result<(), VerityError> {
    let file = File::open(path)?;
    let found = file.metadata()?.len();
    check_with(&mut |at, buffer| file.file().read_exact_at(buffer, at), found, expected)
}

/// Like [`check`], for `found` bytes that `read` fetches from anywhere.
pub fn check_with(read: &mut ReadAt<'_>, found: u64, expected: &Verity) -> Result<(), VerityError> {
    if found != expected.total_bytes || !expected.data_bytes.is_multiple_of(BLOCK_SIZE as u64) {
        return Err(VerityError::Size { expected: expected.total_bytes, found });
    }
    let bad_tree = || VerityError::Tree { root_hash: expected.root_hash.clone() };
    let salt = hex::decode(&expected.salt).map_err(|_| bad_tree())?;
    let blocks = usize::try_from(expected.data_bytes).expect("a 64-bit host") / BLOCK_SIZE;
    let leaf_blocks = if blocks > 1 { blocks.div_ceil(DIGESTS_PER_BLOCK) } else { 0 };
    let mut stored = vec![0; leaf_blocks * BLOCK_SIZE];
    if let Some(start) = expected.total_bytes.checked_sub(stored.len() as u64).filter(|at| *at >= expected.data_bytes) {
        read(start, &mut stored)?;
    }
    let leaves = hash_blocks(read, expected.data_bytes, &salt)?;
    let differs = leaves.iter().zip(stored.chunks_exact(DIGEST_SIZE)).position(|(leaf, stored)| leaf != stored);
    if let Some(block) = differs {
        return Err(VerityError::Data { block: block as u64 });
    }
    let (root, tree) = build_tree(leaves, &salt);
    let mut on_disk = vec![0; tree.len()];
    read(expected.data_bytes, &mut on_disk)?;
    if hex::encode(root) != expected.root_hash || on_disk != tree {
        return Err(bad_tree());
    }
    Ok(())
}

/// The digests of the first `data_bytes` of what `read` fetches, in order.
fn hash_blocks(read: &mut ReadAt<'_>, data_bytes: u64, salt: &[u8]) -> io::Result<Vec<Hash>> {
    let blocks = usize::try_from(data_bytes).map_err(io::Error::other)? / BLOCK_SIZE;
    let salted = Sha256::new_with_prefix(salt);
    let mut leaves = Vec::with_capacity(blocks);
    let mut batch = vec![0; BATCH_BLOCKS.min(blocks) * BLOCK_SIZE];
    while leaves.len() < blocks {
        let count = BATCH_BLOCKS.min(blocks - leaves.len());
        let data = &mut batch[..count * BLOCK_SIZE];
        read((leaves.len() * BLOCK_SIZE) as u64, data)?;
        leaves.par_extend(data.par_chunks_exact(BLOCK_SIZE).with_min_len(64).map(|block| digest(&salted, block)));
    }
    Ok(leaves)
}

fn digest(salted: &Sha256, block: &[u8]) -> Hash {
    salted.clone().chain_update(block).finalize().into()
}

/// The root hash over `leaves`, and the tree's bytes with the root's block first.
///
/// One data block has no tree: its digest is the root hash.
fn build_tree(leaves: Vec<Hash>, salt: &[u8]) -> (Hash, Vec<u8>) {
    let salted = Sha256::new_with_prefix(salt);
    let mut levels = Vec::new();
    let mut hashes = leaves;
    while hashes.len() > 1 {
        let mut level = hashes.concat();
        level.resize(level.len().next_multiple_of(BLOCK_SIZE), 0);
        hashes = level.par_chunks_exact(BLOCK_SIZE).map(|block| digest(&salted, block)).collect();
        levels.push(level);
    }
    levels.reverse();
    (hashes.first().copied().unwrap_or_default(), levels.concat())
}

#[cfg(test)]
#[path = "verity_tests.rs"]
mod tests;
