//! Removes bytes that no record names, and abandoned uploads.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::time::{Duration, SystemTime};

use super::{UploadKey, Uploads, secs};
use crate::host::files;

/// An upload that got no byte for so long is given up.
const ABANDONED: Duration = Duration::from_secs(14 * 86_400);

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Files of bytes that no record names.
    pub files: usize,
    /// Their bytes, and those of abandoned uploads.
    pub bytes: u64,
    /// Uploads that were given up.
    pub abandoned: Vec<UploadKey>,
}

impl Uploads {
    /// Removes what nobody needs. A blob that a record names, and an upload in progress, never go.
    pub fn collect(&self, now: SystemTime) -> io::Result<Collected> {
        let mut collected = Collected { abandoned: self.abandoned(now), ..Collected::default() };
        for key in collected.abandoned.clone() {
            match self.remove(&key) {
                Ok(record) => collected.bytes += record.offset(),
                Err(error) => log::warn!("the abandoned upload `{}` stays: {error}", key.name),
            }
        }
        // The lock keeps records from changing while files are compared with them.
        let state = self.lock();
        if state.damaged {
            return Ok(collected);
        }
        let records = || state.images.values().map(|entry| &entry.record);
        let blobs = records().filter_map(|record| record.digest.as_ref()).map(|digest| digest.hex().into());
        let partials = records().filter(|record| record.digest.is_none()).map(|record| record.partial.as_str().into());
        let sums = state.images.values().flat_map(|entry| &entry.sums).chain(state.made.values());
        let sums = sums.map(|held| held.digest.hex().into());
        for (dir, named) in [
            ("partial", partials.collect::<HashSet<OsString>>()),
            ("sha256", blobs.collect()),
            ("sums", sums.collect()),
        ] {
            self.sweep(dir, &named, &mut collected)?;
        }
        Ok(collected)
    }

    fn abandoned(&self, now: SystemTime) -> Vec<UploadKey> {
        let state = self.lock();
        let old = |touched: u64| touched.saturating_add(ABANDONED.as_secs()) < secs(now);
        let unfinished = state.images.values().filter(|entry| entry.record.digest.is_none() && !entry.busy);
        unfinished.filter(|entry| old(entry.record.touched)).map(|entry| entry.record.key.clone()).collect()
    }

    fn sweep(&self, dir: &str, named: &HashSet<OsString>, collected: &mut Collected) -> io::Result<()> {
        for file in fs_err::read_dir(self.root().join(dir))? {
            let file = file?;
            if !named.contains(&file.file_name()) {
                collected.files += 1;
                collected.bytes += file.metadata().map_or(0, |metadata| metadata.len());
                files::remove(&file.path())?;
            }
        }
        Ok(())
    }
}
