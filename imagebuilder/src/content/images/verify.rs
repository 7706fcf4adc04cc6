//! The closure of an image, over the real bytes: reference -> index -> manifest -> configuration and layers.
//!
//! Each blob is there and hashes to its name; each document names the next; each layer is packed as its media type says,
//! and hashes, unpacked, to what the configuration says of it.

use std::io::Read;

use agent_api::release::Digest;
use anyhow::{Context, Result, ensure};
use rayon::prelude::*;

use super::manifest::{self, Config, Packing};
use crate::lock::images::{LockedImage, Piece};
use crate::store::{Cache, hash};

/// Checks all of an image in the cache.
pub fn verify(cache: &Cache, locked: &LockedImage) -> Result<()> {
    let read = |piece: &Piece| -> Result<Vec<u8>> {
        let path = cache.blob_path(&piece.digest);
        ensure!(path.exists(), "{} is missing", piece.digest);
        Ok(fs_err::read(path)?)
    };
    let top = read(locked.top())?;
    ensure!(hash::bytes(&top) == locked.top().digest, "{} has other bytes than its name says", locked.top().digest);
    let found = manifest::resolve(&top, &mut |piece| read(piece))?;
    ensure!(found == *locked, "its index, manifest and configuration name other blobs than the lock");
    let config = Config::read(&read(&locked.config)?)?;
    locked.layers.par_iter().zip(config.diff_ids()).try_for_each(|(layer, id)| {
        let blob = layer.blob();
        ensure!(cache.is_whole(&blob)?, "the layer {} is missing or has other bytes than its name says", blob.digest);
        let unpacked = unpacked(cache, layer).with_context(|| format!("unpacking the layer {}", blob.digest))?;
        ensure!(unpacked == *id, "the layer {} is {unpacked} when unpacked, the configuration says {id}", blob.digest);
        Ok(())
    })
}

/// What a layer hashes to when it is unpacked.
fn unpacked(cache: &Cache, layer: &Piece) -> Result<Digest> {
    let packing = Packing::of(&layer.media_type).with_context(|| format!("`{}` is no layer", layer.media_type))?;
    let file = reader(packing, fs_err::File::open(cache.blob_path(&layer.digest))?)?;
    Ok(agent_api::hash::blob(file)?.digest)
}

/// Unpacks what `file` holds.
pub fn reader(packing: Packing, file: fs_err::File) -> Result<Box<dyn Read>> {
    Ok(match packing {
        Packing::Tar => Box::new(file),
        // A gzip file may have several members (RFC 1952, section 2.2); parallel compressors write those.
        Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(std::io::BufReader::with_capacity(1 << 18, file))),
        Packing::Zstd => Box::new(zstd::Decoder::new(file)?),
    })
}
