//! Releases that were sent to the box: taken piece by piece, verified, kept in DATA.
//!
//! ```text
//! POST /api/v1/bundles ─ tar ─▶ bundle.json (signed, from = the release that runs)
//!                                 └▶ each file, hashed ─▶ /var/lib/foothold/incoming/
//!                                     all there, B complete ─▶ store/sha256/<hex> ─▶ releases/<id>   the last rename counts
//! ```
//! A bundle that is cut off, damaged or not for this box leaves nothing behind. A blob lies under its digest, so it is
//! there whole or not at all.

use std::collections::BTreeSet;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};

use agent_api::bundle::{self, Bundle, File, MANIFEST, MOST_MANIFEST, SIGNATURE};
use agent_api::hash::Hashed;
use agent_api::release::{Blob, Digest, MEDIUM_ROOT, Release, SBOM};
use agent_api::rest::{HeldRelease, Taken};
use minisign_verify::{PublicKey, Signature};

use crate::host::files;
use crate::tarball::{Heads, Member, Stream, TarError};

/// Bytes read and hashed at a time.
const CHUNK: usize = 256 * 1024;
/// Most bytes of a signature.
const MOST_SIGNATURE: u64 = 16 * 1024;
/// DATA keeps this much free for the cluster.
const KEEP_FREE: u64 = 256 << 20;
/// Where files lie until all are there.
const INCOMING: &str = "incoming";
/// Files of a release that are signed on their own, beside their signatures.
const SIGNED: [&str; 3] = ["release.json", "boot-files.json", SBOM];

/// Why a bundle is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BundleRefused {
    /// It is not a tar, or its files are not in the order of the list.
    #[error("this is no bundle: {0}")]
    Shape(String),
    /// It was not signed with the key that this box trusts.
    #[error("the bundle is not signed with the key of this box's release: {0}")]
    Signature(String),
    /// It is for a box that runs something else.
    #[error("the bundle is for a box that runs release {from}, this one runs {running}")]
    Base {
        /// What it wants.
        from: String,
        /// What runs here.
        running: String,
    },
    /// A file is not what the list says.
    #[error("`{path}` is damaged: {found}, {expected} expected")]
    Damaged {
        /// Which.
        path: String,
        /// Its digest or size.
        found: String,
        /// What the list says.
        expected: String,
    },
    /// Something that the new release needs is neither here nor in the bundle.
    #[error("the release {to} would not be whole: {what} is neither on this box nor in the bundle")]
    Incomplete {
        /// The new release.
        to: String,
        /// The blob.
        what: String,
    },
    /// There is no room.
    #[error("DATA has {free} MiB to spare, the bundle needs {needed} MiB")]
    NoRoom {
        /// MiB that may be used.
        free: u64,
        /// MiB that would be.
        needed: u64,
    },
    /// The connection or file ended too early.
    #[error("the bundle ends too early: {0}")]
    Cut(io::Error),
    /// DATA cannot be written.
    #[error("DATA cannot be written: {0}")]
    Disk(io::Error),
    /// Another one is just being taken.
    #[error("another bundle is being taken")]
    Busy,
    /// The box does not know its own release.
    #[error("this box does not know its own release: {0}")]
    Unknown(String),
}

/// Where releases are kept, and what is known about the one that runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Releases {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Root of DATA's own store: `/var/lib/foothold`.
    data: PathBuf,
    /// Root of the medium's: `/run/foothold/medium/foothold`.
    medium: PathBuf,
    /// `/run/foothold`: release.json, release.pub.
    run: PathBuf,
    taking: Mutex<()>,
}

/// The release that runs.
struct Running {
    id: String,
    release: Release,
    key: PublicKey,
}

impl Releases {
    /// Of a real box.
    pub fn of_box() -> Self {
        Self::below(Path::new(bundle::DATA_ROOT), Path::new(agent_api::boot::MEDIUM), Path::new("/run/foothold"))
    }

    /// With DATA's store below `data`, a medium mounted at `medium`, and what the initrd left in `run`.
    pub fn below(data: &Path, medium: &Path, run: &Path) -> Self {
        let inner = Inner {
            data: data.to_owned(),
            medium: medium.join(MEDIUM_ROOT),
            run: run.to_owned(),
            taking: Mutex::new(()),
        };
        // Left by a power cut while a bundle was taken.
        let _ = fs_err::remove_dir_all(inner.data.join(INCOMING));
        Self { inner: Arc::new(inner) }
    }

    /// The release that runs, and those that were taken, by id.
    pub fn list(&self) -> Vec<HeldRelease> {
        let held = |id: String, release: Release, running| HeldRelease {
            id,
            name: release.name,
            version: release.version,
            running,
        };
        let running = self.running().ok();
        let own = running.as_ref().map(|running| running.id.clone());
        let mut all: Vec<HeldRelease> =
            running.into_iter().map(|running| held(running.id, running.release, true)).collect();
        let folders = fs_err::read_dir(self.inner.data.join("releases")).into_iter().flatten().flatten();
        let mut taken: Vec<HeldRelease> = folders
            .filter_map(|folder| {
                let id = folder.file_name().into_string().ok()?;
                let release = serde_json::from_slice(&fs_err::read(folder.path().join("release.json")).ok()?).ok()?;
                (own.as_ref() != Some(&id)).then(|| held(id, release, false))
            })
            .collect();
        taken.sort_by(|a, b| a.id.cmp(&b.id));
        all.extend(taken);
        all
    }

    /// Takes a bundle, whole or not at all. Blocks as long as it is sent.
    pub fn take(&self, from: impl Read) -> Result<Taken, BundleRefused> {
        let _one = match self.inner.taking.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(BundleRefused::Busy),
        };
        let running = self.running()?;
        let incoming = self.inner.data.join(INCOMING);
        let result = self.take_into(&incoming, from, &running);
        let _ = fs_err::remove_dir_all(&incoming);
        result
    }

    fn running(&self) -> Result<Running, BundleRefused> {
        let unknown = |error: &dyn std::fmt::Display| BundleRefused::Unknown(error.to_string());
        let read = |name: &str| fs_err::read(self.inner.run.join(name)).map_err(|error| unknown(&error));
        let manifest = read("release.json")?;
        let release = serde_json::from_slice(&manifest).map_err(|error| unknown(&error))?;
        let text = String::from_utf8_lossy(&read("release.pub")?).into_owned();
        let key = PublicKey::decode(&text).map_err(|error| unknown(&error))?;
        Ok(Running { id: Digest::of(&manifest).hex().to_owned(), release, key })
    }

    fn take_into(&self, incoming: &Path, from: impl Read, running: &Running) -> Result<Taken, BundleRefused> {
        let mut archive = Heads::new(Stream(from));
        let list = read_list(&mut archive, running)?;
        let taken =
            Taken { from: list.from.clone(), to: list.to.clone(), files: list.files.len(), bytes: list.bytes() };
        self.check_room(taken.bytes)?;
        let disk = BundleRefused::Disk;
        let _ = fs_err::remove_dir_all(incoming);
        fs_err::create_dir_all(incoming).map_err(disk)?;
        for (number, file) in list.files.iter().enumerate() {
            let Some(member) = archive.next_member()? else {
                let cause = format!("`{}` and what follows is missing", file.path);
                return Err(BundleRefused::Cut(io::Error::new(io::ErrorKind::UnexpectedEof, cause)));
            };
            keep(&member, &mut archive, file, &incoming.join(number.to_string()))?;
        }
        if archive.next_member()?.is_some() {
            return Err(BundleRefused::Shape("there is more in it than its list says".to_owned()));
        }
        self.check_whole(&list, incoming, running)?;
        self.put_in_place(&list, incoming).map_err(disk)?;
        Ok(taken)
    }

    fn check_room(&self, needed: u64) -> Result<(), BundleRefused> {
        fs_err::create_dir_all(&self.inner.data).map_err(BundleRefused::Disk)?;
        let disk = rustix::fs::statvfs(&self.inner.data).map_err(|error| BundleRefused::Disk(error.into()))?;
        let free = (disk.f_bavail * disk.f_frsize).saturating_sub(KEEP_FREE);
        if needed > free {
            return Err(BundleRefused::NoRoom { free: free >> 20, needed: needed >> 20 });
        }
        Ok(())
    }

    /// The new release is signed, and nothing of it is missing.
    fn check_whole(&self, list: &Bundle, incoming: &Path, running: &Running) -> Result<(), BundleRefused> {
        let sent = |name: &str| {
            let path = format!("releases/{}/{name}", list.to);
            let number = list.files.iter().position(|file| file.path == path)?;
            fs_err::read(incoming.join(number.to_string())).ok()
        };
        let manifest =
            sent("release.json").ok_or_else(|| BundleRefused::Shape("it holds no `release.json`".to_owned()))?;
        let id = Digest::of(&manifest).hex().to_owned();
        if id != list.to {
            let path = "release.json".to_owned();
            return Err(BundleRefused::Damaged { path, found: id, expected: list.to.clone() });
        }
        for name in SIGNED {
            let Some(bytes) = sent(name) else { continue };
            let signature = sent(&format!("{name}.minisig")).unwrap_or_default();
            verify(&running.key, &bytes, &signature)
                .map_err(|why| BundleRefused::Signature(format!("`{name}`: {why}")))?;
        }
        let release: Release = serde_json::from_slice(&manifest)
            .map_err(|error| BundleRefused::Shape(format!("`release.json` is of another shape: {error}")))?;
        let sent: BTreeSet<&Digest> = list.files.iter().map(|file| &file.digest).collect();
        // What starts the release that runs lies where firmware reads it, not in a store.
        let starts: BTreeSet<Digest> = bundle::boot_blobs(&running.release).map(|blob| blob.digest).collect();
        let here = |blob: &Blob| sent.contains(&blob.digest) || starts.contains(&blob.digest) || self.has(blob);
        match bundle::blobs_of(&release).into_iter().find(|blob| !here(blob)) {
            Some(blob) => Err(BundleRefused::Incomplete { to: list.to.clone(), what: blob.digest.to_string() }),
            None => Ok(()),
        }
    }

    /// Whether the blob lies in one of the two stores.
    fn has(&self, blob: &Blob) -> bool {
        let path = blob.digest.store_path();
        let is_it = |root: &Path| fs_err::metadata(root.join(&path)).is_ok_and(|found| found.len() == blob.size);
        is_it(&self.inner.data) || is_it(&self.inner.medium)
    }

    /// Blobs first, one by one; then the release's folder, all of it at once.
    fn put_in_place(&self, list: &Bundle, incoming: &Path) -> io::Result<()> {
        let data = &self.inner.data;
        let (store, releases) = (data.join("store/sha256"), data.join("releases"));
        let folder = incoming.join("release");
        for new in [&store, &releases, &folder] {
            fs_err::create_dir_all(new)?;
        }
        for (number, file) in list.files.iter().enumerate() {
            let from = incoming.join(number.to_string());
            let name = file.path.rsplit('/').next().unwrap_or_default();
            let is_blob = file.path.starts_with("store/");
            fs_err::rename(from, if is_blob { store.join(name) } else { folder.join(name) })?;
        }
        for changed in [&store, &folder] {
            files::sync_dir(changed)?;
        }
        let target = releases.join(&list.to);
        // The same release was sent again: both are equal, so the old folder can go.
        let _ = fs_err::remove_dir_all(&target);
        fs_err::rename(&folder, &target)?;
        files::sync_dir(&releases)
    }
}

/// The list and its signature, the first two members.
fn read_list(archive: &mut Heads<Stream<impl Read>>, running: &Running) -> Result<Bundle, BundleRefused> {
    let mut text = |name: &str, most: u64| {
        let member = archive.next_member()?.ok_or_else(|| BundleRefused::Shape(format!("it holds no `{name}`")))?;
        if member.name != name || member.size > most {
            return Err(BundleRefused::Shape(format!("`{}` is where `{name}` should be", member.name)));
        }
        let mut bytes = Vec::new();
        archive.read_to_end(&mut bytes).map_err(BundleRefused::Cut)?;
        Ok(bytes)
    };
    let json = text(MANIFEST, MOST_MANIFEST)?;
    let signature = text(SIGNATURE, MOST_SIGNATURE)?;
    verify(&running.key, &json, &signature).map_err(BundleRefused::Signature)?;
    let list: Bundle =
        serde_json::from_slice(&json).map_err(|error| BundleRefused::Shape(format!("`{MANIFEST}`: {error}")))?;
    if list.from != running.id {
        return Err(BundleRefused::Base { from: list.from, running: running.id.clone() });
    }
    if Digest::from_hex(&list.to).is_err() {
        return Err(BundleRefused::Shape(format!("`{}` is no release id", list.to)));
    }
    match list.foreign_path() {
        Some(path) => Err(BundleRefused::Shape(format!("`{path}` does not belong into a bundle"))),
        None => Ok(list),
    }
}

fn verify(key: &PublicKey, bytes: &[u8], signature: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(signature);
    let signature = Signature::decode(&text).map_err(|error| error.to_string())?;
    key.verify(bytes, &signature, false).map_err(|error| error.to_string())
}

impl From<TarError> for BundleRefused {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Cut => Self::Cut(io::ErrorKind::UnexpectedEof.into()),
            TarError::Io(error) => Self::Cut(error),
            TarError::Shape(told) => Self::Shape(told),
        }
    }
}

/// Writes one file, durably, and checks it on the way.
fn keep(member: &Member, bytes: &mut impl Read, file: &File, target: &Path) -> Result<(), BundleRefused> {
    let path = &member.name;
    if *path != file.path {
        return Err(BundleRefused::Shape(format!("`{path}` is where `{}` should be", file.path)));
    }
    if !member.kind.is_file() {
        return Err(BundleRefused::Shape(format!("`{path}` is no file")));
    }
    let damaged = |found: String, expected: String| BundleRefused::Damaged { path: file.path.clone(), found, expected };
    if member.size != file.size {
        return Err(damaged(format!("{} bytes", member.size), format!("{} bytes", file.size)));
    }
    let mut out = fs_err::File::create_new(target).map_err(BundleRefused::Disk)?;
    let mut content = Hashed::new(bytes);
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = content.read(&mut buffer).map_err(BundleRefused::Cut)?;
        if count == 0 {
            break;
        }
        out.write_all(&buffer[..count]).map_err(BundleRefused::Disk)?;
    }
    let found = content.finish();
    let left = file.size.saturating_sub(found.size);
    if left > 0 {
        let cause = format!("{left} bytes of `{path}` are missing");
        return Err(BundleRefused::Cut(io::Error::new(io::ErrorKind::UnexpectedEof, cause)));
    }
    if found.digest != file.digest {
        return Err(damaged(found.digest.to_string(), file.digest.to_string()));
    }
    out.sync_all().map_err(BundleRefused::Disk)
}
