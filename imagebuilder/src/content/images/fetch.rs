//! Blobs into the cache, several at once; each goes on where an earlier download of it was stopped.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use agent_api::image::ImageName;
use anyhow::{Context, Result, bail};

use super::registry::Registries;
use crate::host::cancel::Together;
use crate::host::flock;
use crate::lock::images::Piece;
use crate::store::{Cache, hash};

/// Blobs that are on their way at the same time.
const AT_ONCE: usize = 4;

/// A blob, and the image it is fetched for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The image.
    pub name: &'a ImageName,
    /// The blob.
    pub piece: &'a Piece,
}

/// Fetches what is not in the cache. `on_bytes` is told bytes done and bytes in all. Returns the bytes of the blobs that
/// came.
pub fn bring(
    cache: &Cache,
    registries: &Registries<'_>,
    wanted: &[Wanted<'_>],
    on_bytes: &(dyn Fn(u64, u64) + Sync),
) -> Result<u64> {
    let mut queue: Vec<Wanted<'_>> = Vec::new();
    for want in wanted {
        if !queue.iter().any(|other| other.piece.digest == want.piece.digest) && !cache.holds(&want.piece.blob())? {
            queue.push(*want);
        }
    }
    let total = queue.iter().map(|want| want.piece.size).sum();
    // The largest first: the last to end is then a small one.
    queue.sort_by_key(|want| want.piece.size);
    let threads = AT_ONCE.min(queue.len());
    let progress = Progress { total, done: Mutex::default(), on_bytes };
    let (queue, together) = (Mutex::new(queue), Together::default());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                together.run(|| {
                    while let Some(want) = next() {
                        one(cache, registries, want, &progress)?;
                    }
                    Ok(())
                })
            });
        }
    });
    together.outcome()?;
    Ok(total)
}

/// How much has come of each blob.
struct Progress<'a> {
    total: u64,
    done: Mutex<BTreeMap<String, u64>>,
    on_bytes: &'a (dyn Fn(u64, u64) + Sync),
}

impl Progress<'_> {
    fn at(&self, piece: &Piece, bytes: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.insert(piece.digest.hex().to_owned(), bytes);
        (self.on_bytes)(done.values().sum(), self.total);
    }
}

fn one(cache: &Cache, registries: &Registries<'_>, want: Wanted<'_>, progress: &Progress<'_>) -> Result<()> {
    let Wanted { name, piece } = want;
    let about = || format!("fetching {} of `{name}` from {}", piece.digest, registries.source(name));
    let downloads = cache.path("downloads");
    fs_err::create_dir_all(&downloads)?;
    let partial = downloads.join(piece.digest.hex());
    let lock = cache.path("locks").join(format!("download-{}", piece.digest.hex()));
    let _held = flock::lock(&lock, &mut || log::info!("another build is fetching {}", piece.digest))?;
    if cache.holds(&piece.blob())? {
        return Ok(());
    }
    let mut resumed = partial.exists();
    loop {
        registries.blob(name, piece, &partial, &|bytes| progress.at(piece, bytes)).with_context(about)?;
        let found = hash::file(&partial)?;
        if found == piece.blob() {
            cache.adopt(&partial)?;
            progress.at(piece, piece.size);
            return Ok(());
        }
        fs_err::remove_file(&partial)?;
        if !resumed {
            bail!(
                "`{name}`: {} sent {} ({} bytes), the lock expects {} ({} bytes)\nhint: the server damages it, or has \
                 replaced it: `foothold lock --update` takes what the server has now",
                registries.source(name),
                found.digest,
                found.size,
                piece.digest,
                piece.size
            );
        }
        // The earlier part may have been of another file.
        resumed = false;
    }
}
