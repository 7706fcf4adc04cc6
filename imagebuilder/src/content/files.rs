//! `content.files`, and every other file that is carried as it is: from a path or a URL, by the digest of the lock.
//!
//! ```text
//! path ─ hashed ───────────────────► Lock.files ─ compared, copied ─┐
//! URL and its sha256 ─ downloaded ─► Lock.files ────────────────────┴─► cache ─► ContentFile
//! ```

use std::path::Path;

use agent_api::release::{Blob, ContentFile, ContentKind, Digest};
use anyhow::{Context, Result, bail, ensure};

use super::Input;
use crate::builder::Builder;
use crate::config::{Appliance, Origin, OsImageSource, ServedFile};
use crate::lock::download::Wanted;
use crate::lock::http::Http;
use crate::lock::{Lock, expect_locked};
use crate::store::{Cache, hash};

/// Scheme of files of this machine.
const FILE_SCHEME: &str = "file://";

/// What is carried as it is: the path it is served under (OS images: less their ending), and where it comes from.
pub fn origins(appliance: &Appliance) -> Vec<(String, &Origin)> {
    let files = appliance.content.files.iter().map(|file| (format!("files/{}", file.name), &file.origin));
    let images = appliance.content.os_images.iter().filter_map(|image| match &image.source {
        OsImageSource::File { origin } => Some((os_image_path(image.name.as_str()), origin)),
        OsImageSource::Recipe { .. } => None,
    });
    files.chain(images).collect()
}

/// The path of an OS image, less its ending.
pub fn os_image_path(name: &str) -> String {
    format!("images/{name}")
}

/// What each of them is now, into the lock. Downloads come into the cache on the way.
pub fn resolve(at: &Builder, appliance: &Appliance, lock: &mut Lock) -> Result<()> {
    for (path, origin) in origins(appliance) {
        let blob = look(&at.cache, origin, at.network.offline, &|_| ())
            .with_context(|| format!("looking at {origin} for `{path}`"))?;
        lock.files.insert(path, blob);
    }
    Ok(())
}

/// What the origin has now.
fn look(cache: &Cache, origin: &Origin, offline: bool, waiting: &(dyn Fn(&str) + Sync)) -> Result<Blob> {
    match origin {
        Origin::Path { path } => hash::file(path),
        Origin::Url { url, sha256 } => match in_cache(cache, sha256)? {
            Some(blob) => Ok(blob),
            None => download(cache, url, sha256, offline, waiting),
        },
    }
}

/// The file of that digest, when the cache has it.
fn in_cache(cache: &Cache, digest: &Digest) -> Result<Option<Blob>> {
    let Ok(there) = fs_err::metadata(cache.blob_path(digest)) else { return Ok(None) };
    let blob = Blob { digest: digest.clone(), size: there.len() };
    Ok(cache.holds(&blob)?.then_some(blob))
}

/// Brings the file of the lock into the cache.
pub fn bring(at: &Builder, locked: &Blob, origin: &Origin, waiting: &(dyn Fn(&str) + Sync)) -> Result<()> {
    let cache = &at.cache;
    match origin {
        Origin::Path { path } => {
            expect_locked(&path.display(), &hash::file(path)?, locked)?;
            if !cache.holds(locked)? {
                copy(cache, path, locked)?;
            }
        }
        Origin::Url { url, sha256 } => {
            ensure!(
                *sha256 == locked.digest,
                "the definition expects {sha256} at `{url}`, the lock {}\nhint: move the lock: `foothold lock --update`",
                locked.digest
            );
            if !cache.holds(locked)? {
                let found = download(cache, url, sha256, at.network.offline, waiting)?;
                expect_locked(&url, &found, locked)?;
            }
        }
    }
    Ok(())
}

fn download(cache: &Cache, url: &str, digest: &Digest, offline: bool, waiting: &(dyn Fn(&str) + Sync)) -> Result<Blob> {
    let hint = "the server damages it, or has replaced it; `sha256` in the definition says what it must be";
    if let Some(path) = url.strip_prefix(FILE_SCHEME) {
        let found = hash::file(Path::new(path))?;
        if found.digest != *digest {
            bail!("`{url}` is {} ({} bytes), {digest} expected\nhint: {hint}", found.digest, found.size);
        }
        copy(cache, Path::new(path), &found)?;
        return Ok(found);
    }
    ensure!(!offline, "`{url}` is not in the cache and `--offline` was given\nhint: build once without `--offline`");
    let name = url.rsplit('/').next().unwrap_or(url);
    Wanted { name, url, digest, hint }.fetch(cache, &Http::new()?, waiting)
}

/// Copies a file into the cache, holes left out.
fn copy(cache: &Cache, path: &Path, locked: &Blob) -> Result<()> {
    let work = cache.work_dir()?;
    let target = work.path().join("file");
    fs_err::copy(path, &target)?;
    let found = cache.adopt(&target)?;
    expect_locked(&path.display(), &found, locked)
}

/// Brings everything that is carried as it is into the cache.
pub fn fetch(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<()> {
    let origins = origins(appliance);
    if origins.is_empty() {
        return Ok(());
    }
    at.report.step("fetch", "files").run(|step| {
        origins.iter().try_for_each(|(path, origin)| bring(at, lock.file(path)?, origin, &|line| step.note(line)))
    })
}

/// The files of `content.files`.
pub fn make(input: &Input<'_>) -> Result<Vec<ContentFile>> {
    let files = &input.appliance.content.files;
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let make = |file: &ServedFile, say: &(dyn Fn(&str) + Sync)| {
        let path = format!("files/{}", file.name);
        let blob = input.lock.file(&path)?;
        bring(input.at, blob, &file.origin, say)?;
        Ok(ContentFile::stored(path, ContentKind::File, blob))
    };
    let step = input.at.report.step("build", "files");
    step.run(|step| files.iter().map(|file| make(file, &|line| step.note(line))).collect())
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
