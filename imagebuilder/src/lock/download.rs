//! Files that are known by their digest before they are here: downloaded into the cache, in several goes if need be.

use agent_api::release::{Blob, Digest};
use anyhow::{Result, bail};

use super::http::Http;
use crate::host::flock;
use crate::store::{Cache, hash};

/// A file on a server.
pub struct Wanted<'a> {
    /// How messages call it.
    pub name: &'a str,
    /// Where it is.
    pub url: &'a str,
    /// What it must hash to.
    pub digest: &'a Digest,
    /// What to do when it is another.
    pub hint: &'a str,
}

impl Wanted<'_> {
    /// Brings it into the cache, from where an earlier download of the same was stopped.
    pub fn fetch(&self, cache: &Cache, http: &Http, waiting: &(dyn Fn(&str) + Sync)) -> Result<Blob> {
        let downloads = cache.path("downloads");
        fs_err::create_dir_all(&downloads)?;
        let partial = downloads.join(self.digest.hex());
        let lock = cache.path("locks").join(format!("download-{}", self.digest.hex()));
        let _held = flock::lock(&lock, &mut || waiting("another build is fetching the same"))?;
        let download = || {
            let mib = |bytes: u64| bytes >> 20;
            http.download(self.url, &partial, &mut |done, all| {
                let all = all.map(|all| format!(" of {}", mib(all))).unwrap_or_default();
                waiting(&format!("{}: {}{all} MiB", self.name, mib(done)));
            })?;
            hash::file(&partial)
        };
        let resumed = partial.exists();
        let mut found = download()?;
        if resumed && found.digest != *self.digest {
            // The earlier part may have been of another file.
            fs_err::remove_file(&partial)?;
            found = download()?;
        }
        if found.digest != *self.digest {
            fs_err::remove_file(&partial)?;
            let (url, digest, hint) = (self.url, self.digest, self.hint);
            bail!("`{url}` is {} ({} bytes), {digest} expected\nhint: {hint}", found.digest, found.size);
        }
        cache.adopt(&partial)
    }
}
