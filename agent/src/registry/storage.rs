//! The storage of the registry: the release below, read-only; above it uploads on DATA, up to the share that the
//! definition gives them.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use agent_api::rest::Share;
use rustix::fs::IFlags;
use rustix::mount::MountFlags;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::catalog::Catalog;
use super::collect::{self, Collected, Trees};
use super::{pod, tree};
use crate::content::space::Keeper;
use crate::host::block::space_of;
use crate::host::files;
use crate::host::mount::{self, MountOptions};

/// Uploads, and what overlayfs needs beside them.
const UPLOADS: &str = "/var/lib/foothold/registry";
/// Percent of DATA that uploads leave to everything else: with less than 15 % free the kubelet removes images.
const RESERVE_PERCENT: u64 = 16;
/// The used bytes are measured again after this time.
const MEASURE: Duration = Duration::from_secs(30);
/// Pause between two looks whether something was deleted, and between two collections when nothing was.
const COLLECT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// Two requests of one push follow each other sooner.
const QUIET: Duration = Duration::from_secs(120);

/// The storage.
#[derive(Debug)]
pub struct RegistryStorage {
    root: PathBuf,
    /// Most bytes of uploads; `None` makes the registry read-only.
    limit: Option<u64>,
    reserve_percent: u64,
    used: Mutex<Option<(Instant, u64)>>,
    /// Read-locked by every request that writes, write-locked by a collection.
    writing: RwLock<()>,
    /// When somebody wrote last, or looked whether a blob is there.
    touched: Mutex<Instant>,
    /// Whether something was deleted since the last collection.
    deleted: AtomicBool,
}

/// Why nothing more is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The share of the definition is used up.
    #[error("uploads have {used} of {limit} bytes, and this one needs {wanted} more (`services.registry.writable`)")]
    Limit {
        /// Bytes of uploads.
        used: u64,
        /// Most of them.
        limit: u64,
        /// Bytes of this one, as far as is known.
        wanted: u64,
    },
    /// The disk is nearly full.
    #[error("DATA has {free} bytes free, and {reserve} of them are kept for the cluster")]
    Disk {
        /// Free bytes.
        free: u64,
        /// Those that stay free.
        reserve: u64,
    },
}

impl RegistryStorage {
    /// The storage of the box below `root`, with so many bytes for uploads.
    pub fn new(root: &Path, limit: Option<u64>) -> Self {
        Self {
            root: root.to_owned(),
            limit,
            reserve_percent: RESERVE_PERCENT,
            used: Mutex::new(None),
            writing: RwLock::new(()),
            touched: Mutex::new(Instant::now()),
            deleted: AtomicBool::new(false),
        }
    }

    /// Without a reserve on the disk, for tests on any machine.
    #[cfg(test)]
    pub(super) fn greedy(self) -> Self {
        Self { reserve_percent: 0, ..self }
    }

    /// Most bytes of uploads; `None` makes the registry read-only.
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Lays the release's tree out and puts uploads above it. A second call in the same boot changes nothing.
    pub fn prepare(&self, catalog: &Catalog, store: &Path, secret: &str) -> anyhow::Result<()> {
        let whole = self.laid_out();
        if whole.exists() {
            return Ok(());
        }
        let (base, root, socket) = (self.base(), self.at(pod::ROOT), self.at(pod::SOCKET_DIR));
        for folder in [&root, &base] {
            // A mount from an attempt that failed half-way.
            let _ = mount::unmount(folder, true);
            match fs_err::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let tree = if self.limit.is_some() { &base } else { &root };
        tree::lay_out(tree, catalog, store)?;
        if self.limit.is_some() {
            // The pod makes folders in those of the release, too.
            give_folders(tree)?;
            self.mount_uploads(&base, &root)?;
        }
        fs_err::create_dir_all(&socket)?;
        fs_err::set_permissions(&socket, std::fs::Permissions::from_mode(0o700))?;
        give(&socket)?;
        files::write(&self.at(pod::CONFIG), pod::config(self.limit.is_some(), secret).as_bytes(), 0o640)?;
        give(&self.at(pod::CONFIG))?;
        Ok(fs_err::write(whole, "")?)
    }

    fn mount_uploads(&self, base: &Path, root: &Path) -> anyhow::Result<()> {
        let (upper, work) = (self.upper(), self.at(UPLOADS).join("work"));
        for folder in [&upper, &work] {
            fs_err::create_dir_all(folder)?;
            give(folder)?;
            // What the registry has acknowledged is there after a power cut: it syncs files, not the folders that it
            // renames them in. New folders inherit it. A DATA in memory does not know it, and needs it as little.
            let opened = fs_err::File::open(folder)?;
            let flags = rustix::fs::ioctl_getflags(opened.file()).unwrap_or(IFlags::empty());
            let _ = rustix::fs::ioctl_setflags(opened.file(), flags | IFlags::DIRSYNC);
        }
        let options = format!("lowerdir={},upperdir={},workdir={}", base.display(), upper.display(), work.display());
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        Ok(mount::mount("overlay", "foothold-registry", root, MountOptions::new(flags, &options))?)
    }

    fn upper(&self) -> PathBuf {
        self.at(UPLOADS).join("upper")
    }

    /// A file that exists once everything is laid out.
    fn laid_out(&self) -> PathBuf {
        self.at(pod::RUN).join("whole")
    }

    fn base(&self) -> PathBuf {
        self.at(pod::RUN).join("base")
    }

    /// Notes that a push may be on its way.
    pub(super) fn touch(&self) {
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Notes that something was deleted.
    pub(super) fn note_deleted(&self) {
        self.deleted.store(true, Ordering::Relaxed);
    }

    /// The lock to hold while something is written.
    pub(super) async fn writing(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.read().await
    }

    /// Removes uploads that nothing names any more, unless somebody is writing or the storage is not laid out. Reads
    /// folders.
    pub fn collect(&self, now: SystemTime) -> io::Result<Option<Collected>> {
        let Ok(_alone) = self.writing.try_write() else { return Ok(None) };
        if !self.laid_out().exists() {
            return Ok(None);
        }
        let trees = Trees { upper: self.upper(), lower: self.base(), whole: self.at(pod::ROOT) };
        self.deleted.store(false, Ordering::Relaxed);
        let collected = collect::collect(&trees, now)?;
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(Some(collected))
    }

    /// Collects each hour, and soon after a deletion, while nobody pushes. Never returns.
    pub async fn keep_tidy(self: Arc<Self>) {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(COLLECT.0).await;
            let quiet = self.touched.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= QUIET;
            if !quiet || !self.deleted.load(Ordering::Relaxed) && last.elapsed() < COLLECT.1 {
                continue;
            }
            let storage = Arc::clone(&self);
            let collected = tokio::task::spawn_blocking(move || storage.collect(SystemTime::now())).await;
            match collected.map_err(io::Error::other).and_then(|collected| collected) {
                Ok(None) => continue,
                Ok(Some(Collected { blobs: 0, .. })) => {}
                Ok(Some(Collected { blobs, bytes })) => {
                    log::info!("{blobs} blobs of the registry that nothing names, {bytes} bytes, are free again");
                }
                Err(error) => log::warn!("looking for blobs of the registry that nothing names: {error}"),
            }
            last = Instant::now();
        }
    }

    /// Bytes of uploads, measured within half a minute. Reads folders, which may block.
    pub fn used(&self) -> u64 {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match *used {
            Some((when, bytes)) if when.elapsed() < MEASURE => bytes,
            _ => {
                let bytes = disk_usage(&self.upper());
                *used = Some((Instant::now(), bytes));
                bytes
            }
        }
    }

    /// Counts bytes that arrived since the last measurement; fails when they are too many.
    pub fn count(&self, bytes: u64) -> Result<(), Full> {
        let limit = self.limit.unwrap_or(0);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, used)) = used.as_mut() else { return Ok(()) };
        *used = used.saturating_add(bytes);
        if *used > limit { Err(Full::Limit { used: *used, limit, wanted: 0 }) } else { Ok(()) }
    }

    /// Whether so many bytes more may come.
    pub fn admit(&self, wanted: u64) -> Result<(), Full> {
        let disk = space_of(&self.upper()).unwrap_or((0, u64::MAX));
        room((self.used(), self.limit.unwrap_or(0)), disk, self.reserve_percent, wanted)
    }
}

impl Keeper for RegistryStorage {
    /// Nothing is taken where the registry is read-only.
    fn shares(&self) -> Vec<(String, Share)> {
        let Some(limit_bytes) = self.limit else { return Vec::new() };
        let full = self.admit(1).err().map(|full| full.to_string());
        vec![("registry".to_owned(), Share { used_bytes: self.used(), limit_bytes, full })]
    }
}

/// Whether `wanted` bytes fit into the share (used, limit) and on the disk (total, free), `percent` of which stay free.
fn room((used, limit): (u64, u64), (total, free): (u64, u64), percent: u64, wanted: u64) -> Result<(), Full> {
    let reserve = total / 100 * percent;
    if used.saturating_add(wanted) > limit {
        Err(Full::Limit { used, limit, wanted })
    } else if free < wanted.saturating_add(reserve) {
        Err(Full::Disk { free, reserve })
    } else {
        Ok(())
    }
}

/// Bytes that a tree takes on its disk.
fn disk_usage(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs_err::read_dir(folder) else { return 0 };
    let mut sum = 0;
    for entry in entries.filter_map(Result::ok) {
        let Ok(found) = fs_err::symlink_metadata(entry.path()) else { continue };
        sum += found.blocks() * 512;
        if found.is_dir() {
            sum += disk_usage(&entry.path());
        }
    }
    sum
}

fn give_folders(folder: &Path) -> io::Result<()> {
    give(folder)?;
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_folders(&entry.path())?;
        }
    }
    Ok(())
}

fn give(path: &Path) -> io::Result<()> {
    fs_err::os::unix::fs::chown(path, Some(pod::USER), Some(pod::USER))
}

#[cfg(test)]
mod tests {
    use super::{Full, RegistryStorage, UPLOADS, room};

    #[test]
    fn uploads_end_at_their_share_and_leave_a_part_of_the_disk() {
        let disk = (10_000, 5_000);
        let table = [
            ((0, 1000), disk, 1000, Ok(())),
            ((1, 1000), disk, 1000, Err(Full::Limit { used: 1, limit: 1000, wanted: 1000 })),
            ((0, u64::MAX), disk, 3_400, Ok(())),
            ((0, u64::MAX), disk, 3_401, Err(Full::Disk { free: 5_000, reserve: 1_600 })),
            ((0, 0), disk, 0, Ok(())),
        ];
        for (share, disk, wanted, expected) in table {
            assert_eq!(room(share, disk, 16, wanted), expected, "{share:?} {disk:?} {wanted}");
        }
    }

    #[test]
    fn what_is_there_is_measured_and_what_arrives_is_counted() {
        let dir = tempfile::tempdir().expect("a folder");
        let upper = dir.path().join(UPLOADS.trim_start_matches('/')).join("upper");
        fs_err::create_dir_all(&upper).expect("a folder");
        fs_err::write(upper.join("blob"), vec![1; 100_000]).expect("a blob");
        let storage = RegistryStorage::new(dir.path(), Some(200_000));
        assert!((100_000..120_000).contains(&storage.used()), "{}", storage.used());
        assert_eq!(storage.count(50_000), Ok(()));
        assert!(matches!(storage.count(50_000), Err(Full::Limit { limit: 200_000, .. })));
    }
}
