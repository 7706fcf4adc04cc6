//! What was uploaded to the box, on DATA: each blob once, by its digest, under the names of its owners.
//!
//! ```text
//! create ─► index/<kind>/<owner>/<cluster>/<name>.json   (Record)
//! begin  ─► Writer ─► partial/<id>      bytes, made durable before the record says so
//!              └─ the last byte ─► sha256/<hex>  ─► Source (HTTP), apt repository, registry
//! remove ─► record goes, then the blob when no other record names it; who has it open reads on
//! ```
//! Records change by renaming; a record never says more than what is on the disk for good. [`Uploads::open`] ends what
//! a power cut interrupted. Nothing here knows of HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use agent_api::bpa::{Description, Kind, Published, Storage};
use agent_api::release::ContentKind;
use tokio::sync::watch;

use crate::content::Held;
use crate::host::files;

mod collect;
mod hashes;
mod limits;
pub mod publish;
mod qcow2;
mod record;
mod source;
#[cfg(test)]
mod tests;
mod writer;

pub use collect::Collected;
pub use limits::{NoRoom, UploadLimits};
pub use record::{Record, UploadKey};
pub use writer::Writer;

/// File of the store with the names that the registry is still to forget.
const FORGOTTEN: &str = "forgotten.json";

/// Where the store is on a box.
pub const PLACE: &str = "/var/lib/foothold/uploads";

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// There is already an image of that name.
    #[error("Image already exists")]
    Exists,
    /// There is no image of that name.
    #[error("Image doesn't exist")]
    Missing,
    /// All its bytes are there.
    #[error("Upload already completed")]
    Complete,
    /// Its bytes are coming in by another request.
    #[error("Another upload of this image is in progress")]
    Busy,
    /// The bytes do not begin where those that are there end.
    #[error("Expected Offset {expected}, actual offset {found}")]
    Offset {
        /// Where the next byte belongs.
        expected: u64,
        /// Where the client is.
        found: u64,
    },
    /// Not all remaining bytes are sent.
    #[error("Content length doesn't match upload length. Expected content length {expected} got {found}")]
    Length {
        /// Remaining bytes.
        expected: u64,
        /// Announced bytes.
        found: u64,
    },
    /// The request has no Content-Length.
    #[error("unknown content length")]
    NoLength,
    /// More bytes than announced.
    #[error("more bytes than announced")]
    TooMuch,
    /// The bytes do not have the announced digest.
    #[error(
        "the bytes hash to sha256 {found}, expected {expected}; all of them are forgotten; hint: send them again from offset 0"
    )]
    Mismatch {
        /// The announced digest.
        expected: String,
        /// The digest of the bytes.
        found: String,
    },
    /// Bytes are there, whose length or digest is another one.
    #[error("{0} are there already and have another {1}")]
    Fixed(&'static str, &'static str),
    /// It is in use.
    #[error("in use by {}", .0.join(", "))]
    InUse(Vec<String>),
    /// No room.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The disk.
    #[error("keeping uploads")]
    Io(#[from] io::Error),
}

/// What a client announces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Its word for the type.
    pub word: String,
    /// What is in it.
    pub description: Description,
    /// Bytes; 0 in an update leaves them as they are.
    pub length: u64,
    /// SHA-256, hex.
    pub expected: Option<String>,
}

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Uploads {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    state: Mutex<State>,
    /// Grows with each change, for those who publish.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    limits: UploadLimits,
    images: BTreeMap<UploadKey, Entry>,
    /// A record could not be read, so it is not known which bytes it names: no bytes are removed as unnamed.
    damaged: bool,
    /// Files that are made from what was uploaded, by path: the apt repository.
    made: Arc<BTreeMap<String, Held>>,
    /// Names that the registry is still to forget: of images that were removed, or are called otherwise now.
    forgotten: BTreeSet<String>,
    next_hold: u64,
}

struct Entry {
    record: Record,
    /// A [`Writer`] has it: nobody else changes its record.
    busy: bool,
    users: BTreeMap<u64, String>,
    /// The files with its checksums, beside it.
    sums: Vec<Held>,
}

impl Entry {
    fn new(record: Record) -> Self {
        Self { record, busy: false, users: BTreeMap::new(), sums: Vec::new() }
    }
}

/// As long as it is held, the image cannot be removed.
pub struct Hold {
    uploads: Uploads,
    key: UploadKey,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(entry) = self.uploads.lock().images.get_mut(&self.key) {
            entry.users.remove(&self.number);
        }
    }
}

impl Uploads {
    /// Opens the store below `root`, and ends what a power cut interrupted.
    pub fn open(root: &Path, limits: UploadLimits) -> io::Result<Self> {
        for dir in ["index", "partial", "sha256", "sums"] {
            fs_err::create_dir_all(root.join(dir))?;
        }
        let (records, damaged) = read_index(&root.join("index"))?;
        let images = records.into_iter().map(|record| (record.key.clone(), Entry::new(record)));
        let forgotten = fs_err::read(root.join(FORGOTTEN)).unwrap_or_default();
        let forgotten = serde_json::from_slice(&forgotten).unwrap_or_default();
        let state = State { limits, images: images.collect(), damaged, forgotten, ..State::default() };
        let inner = Inner { root: root.to_owned(), state: Mutex::new(state), changes: watch::Sender::new(0) };
        let uploads = Self { inner: Arc::new(inner) };
        uploads.end_interrupted()?;
        uploads.collect(SystemTime::now())?;
        Ok(uploads)
    }

    /// A number that grows whenever an image was completed, changed or removed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Announces an image. Its bytes come by [`Uploads::begin`].
    pub fn create(&self, key: UploadKey, announced: Announced) -> Result<Record, UploadError> {
        let mut state = self.lock();
        if state.images.contains_key(&key) {
            return Err(UploadError::Exists);
        }
        self.admit(&state, key.kind, announced.length, true)?;
        let record = Record {
            word: announced.word,
            description: announced.description,
            length: announced.length,
            expected: announced.expected,
            partial: hex::encode(rand::random::<[u8; 12]>()),
            checkpoint: record::Checkpoint::default(),
            digest: None,
            md5: None,
            touched: secs(SystemTime::now()),
            published: Published::Incomplete,
            references: Vec::new(),
            problem: None,
            attempts: 0,
            control: None,
            key: key.clone(),
        };
        self.keep(&record)?;
        state.images.insert(key, Entry::new(record.clone()));
        Ok(record)
    }

    /// The image of that name.
    pub fn get(&self, key: &UploadKey) -> Option<Record> {
        self.lock().images.get(key).map(|entry| entry.record.clone())
    }

    /// At most `most` images of a kind, an owner and a cluster, those after the name `after`, by name.
    pub fn page(&self, kind: Kind, owner: &str, cluster: &str, after: &str, most: usize) -> Vec<Record> {
        let from = UploadKey { kind, owner: owner.to_owned(), cluster: cluster.to_owned(), name: after.to_owned() };
        let state = self.lock();
        let of_cluster = |key: &UploadKey| key.kind == kind && key.owner == owner && key.cluster == cluster;
        let range = state.images.range(from..).take_while(|(key, _)| of_cluster(key));
        range.filter(|(key, _)| key.name != after).map(|(_, entry)| entry.record.clone()).take(most).collect()
    }

    /// All images of all owners.
    pub fn all(&self) -> Vec<Record> {
        self.lock().images.values().map(|entry| entry.record.clone()).collect()
    }

    /// Changes the description of an image. Length and digest cannot change once bytes are there.
    pub fn update(&self, key: &UploadKey, announced: Announced) -> Result<Record, UploadError> {
        let mut state = self.lock();
        let entry = state.images.get(key).ok_or(UploadError::Missing)?;
        if entry.busy {
            return Err(UploadError::Busy);
        }
        let mut record = entry.record.clone();
        if announced.length != 0 && announced.length != record.length {
            if record.offset() != 0 {
                return Err(UploadError::Fixed("bytes", "length"));
            }
            self.admit(&state, key.kind, announced.length.saturating_sub(record.length), false)?;
            record.length = announced.length;
        }
        if let Some(expected) = announced.expected {
            if record.digest.as_ref().is_some_and(|digest| digest.hex() != expected) {
                return Err(UploadError::Fixed("all bytes", "sha256"));
            }
            record.expected = Some(expected);
        }
        record.word = announced.word;
        // What the registry calls it follows from the description; what it refused it may take now.
        let changes = record.description != announced.description || record.published == Published::Failed;
        if changes && key.kind == Kind::ContainerImages && record.digest.is_some() {
            record.published = Published::Pending;
            record.attempts = 0;
        }
        record.description = announced.description;
        self.keep(&record)?;
        if let Some(entry) = state.images.get_mut(key) {
            entry.record = record.clone();
        }
        drop(state);
        self.tell();
        Ok(record)
    }

    /// Forgets an image. Its bytes go when no other image has the same; open readers read on.
    pub fn remove(&self, key: &UploadKey) -> Result<Record, UploadError> {
        let mut state = self.lock();
        let entry = state.images.get(key).ok_or(UploadError::Missing)?;
        if entry.busy {
            return Err(UploadError::Busy);
        }
        if !entry.users.is_empty() {
            return Err(UploadError::InUse(entry.users.values().cloned().collect()));
        }
        let references = entry.record.references.clone();
        if key.kind == Kind::ContainerImages {
            // Before the record goes: whatever ends the box, the registry will forget them.
            self.forget_later(&mut state, &references)?;
        }
        let path = self.inner.root.join(key.index_path());
        files::remove(&path)?;
        path.parent().map_or(Ok(()), files::sync_dir)?;
        let Some(entry) = state.images.remove(key) else { return Err(UploadError::Missing) };
        self.drop_bytes(&state, &entry)?;
        drop(state);
        self.tell();
        Ok(entry.record)
    }

    /// Keeps the image at `path` of the content server (`images/<owner>/<cluster>/<name>`, or short where that is
    /// unambiguous) from being removed as long as the hold lives; `user` is told to whoever tries.
    pub fn hold(&self, path: &str, user: &str) -> Option<Hold> {
        let mut state = self.lock();
        let key = source::key_of(&state.images, path)?;
        self.hold_in(&mut state, &key, user)
    }

    /// [`Uploads::hold`] by key.
    pub fn hold_key(&self, key: &UploadKey, user: &str) -> Option<Hold> {
        self.hold_in(&mut self.lock(), key, user)
    }

    fn hold_in(&self, state: &mut State, key: &UploadKey, user: &str) -> Option<Hold> {
        let number = state.next_hold;
        state.next_hold += 1;
        state.images.get_mut(key)?.users.insert(number, user.to_owned());
        Some(Hold { uploads: self.clone(), key: key.clone(), number })
    }

    /// Sets other shares of DATA. Images that are there stay.
    pub fn set_limits(&self, limits: UploadLimits) {
        self.lock().limits = limits;
    }

    /// What uploads take of the disk.
    pub fn storage(&self) -> io::Result<Storage> {
        self.storage_of(&self.lock())
    }

    /// The file of an image's bytes, once they are all there.
    pub fn blob(&self, record: &Record) -> Option<PathBuf> {
        record.digest.as_ref().map(|digest| self.inner.root.join("sha256").join(digest.hex()))
    }

    /// Records how publishing went, unless the image changed or went in the meantime.
    pub fn set_published(
        &self,
        of: &Record,
        published: Published,
        references: Vec<String>,
        problem: Option<String>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        let Some(known) = state.images.get(&of.key).map(|entry| entry.record.clone()) else { return Ok(()) };
        if known.digest != of.digest {
            return Ok(());
        }
        let record = if known.description == of.description {
            Record { published, references, problem, ..known.clone() }
        } else {
            // It is published again under other names, and these are forgotten then.
            Record { references: all_of(&known.references, references), ..known.clone() }
        };
        if record == known {
            return Ok(());
        }
        if record.key.kind == Kind::ContainerImages {
            let gone: Vec<String> =
                known.references.into_iter().filter(|name| !record.references.contains(name)).collect();
            self.forget_later(&mut state, &gone)?;
        }
        self.keep(&record)?;
        if let Some(entry) = state.images.get_mut(&of.key) {
            entry.record = record;
        }
        Ok(())
    }

    /// Which other image of other bytes has that name in the registry.
    fn holder(&self, reference: &str, of: &Record) -> Option<UploadKey> {
        let state = self.lock();
        let other = |record: &&Record| record.key.kind == Kind::ContainerImages && record.digest != of.digest;
        let mut others = state.images.values().map(|entry| &entry.record).filter(other);
        others
            .find(|record| record.key != of.key && record.references.iter().any(|it| it == reference))
            .map(|it| it.key.clone())
    }

    /// Notes that its bytes are being read; tells how often that was begun before and did not end.
    fn begin_reading(&self, of: &Record) -> io::Result<u32> {
        let mut before = 0;
        self.change(of, |record| {
            before = record.attempts;
            record.attempts += 1;
        })?;
        Ok(before)
    }

    /// Notes that its reading came to an end.
    fn end_reading(&self, of: &Record) -> io::Result<()> {
        self.change(of, |record| record.attempts = 0)
    }

    /// Keeps what a package says about itself.
    fn set_control(&self, of: &Record, control: &str) -> io::Result<()> {
        self.change(of, |record| record.control = Some(control.to_owned()))
    }

    /// Changes a record for good, unless its bytes went in the meantime.
    fn change(&self, of: &Record, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        let mut state = self.lock();
        let Some(entry) = state.images.get_mut(&of.key).filter(|entry| entry.record.digest == of.digest) else {
            return Ok(());
        };
        let mut record = entry.record.clone();
        change(&mut record);
        self.keep(&record)?;
        entry.record = record;
        Ok(())
    }

    /// Serves files that were made from uploads, path and bytes, in place of those made before.
    pub fn set_made(&self, files: &[(String, ContentKind, Vec<u8>)], blobs: Vec<Held>) -> io::Result<()> {
        let mut state = self.lock();
        let mut made: BTreeMap<String, Held> = blobs.into_iter().map(|held| (held.path.clone(), held)).collect();
        for (path, kind, bytes) in files {
            let (file, digest) = self.keep_made(bytes)?;
            let held = Held { path: path.clone(), kind: *kind, file, digest, size: bytes.len() as u64 };
            made.insert(path.clone(), held);
        }
        state.made = Arc::new(made);
        Ok(())
    }

    /// Names that the registry is to forget, for no image has them any more.
    fn to_forget(&self) -> Vec<String> {
        let state = self.lock();
        let named = |name: &String| state.images.values().any(|entry| entry.record.references.contains(name));
        state.forgotten.iter().filter(|name| !named(name)).cloned().collect()
    }

    /// Notes that the registry has forgotten a name.
    fn forgot(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        let mut left = state.forgotten.clone();
        if left.remove(name) { self.keep_forgotten(&mut state, left) } else { Ok(()) }
    }

    fn forget_later(&self, state: &mut State, names: &[String]) -> io::Result<()> {
        let mut all = state.forgotten.clone();
        all.extend(names.iter().cloned());
        if all == state.forgotten { Ok(()) } else { self.keep_forgotten(state, all) }
    }

    fn keep_forgotten(&self, state: &mut State, names: BTreeSet<String>) -> io::Result<()> {
        let (root, bytes) = (&self.inner.root, serde_json::to_vec(&names)?);
        files::replace_below(root, &root.join(FORGOTTEN), &bytes)?;
        state.forgotten = names;
        Ok(())
    }

    /// Root of the store.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    fn storage_of(&self, state: &State) -> io::Result<Storage> {
        let disk = rustix::fs::statvfs(&self.inner.root)?;
        let records = state.images.values().map(|entry| &entry.record);
        let (total, free) = (disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize);
        Ok(limits::storage(&state.limits, total, free, records))
    }

    fn admit(&self, state: &State, kind: Kind, wanted: u64, new_image: bool) -> Result<(), UploadError> {
        let promised = state.images.values().filter(|entry| entry.record.digest.is_none());
        let promised = promised.fold(0_u64, |sum, entry| sum.saturating_add(entry.record.remaining()));
        let storage = self.storage_of(state)?;
        Ok(limits::admit(&state.limits, &storage, kind, promised, wanted, new_image)?)
    }

    /// Makes a record durable.
    fn keep(&self, record: &Record) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        files::replace_below(&self.inner.root, &self.inner.root.join(record.key.index_path()), &bytes)
    }

    /// Removes the bytes of an entry that is not in the index any more.
    fn drop_bytes(&self, state: &State, gone: &Entry) -> io::Result<()> {
        files::remove(&self.partial_path(&gone.record))?;
        let Some(blob) = self.blob(&gone.record) else { return Ok(()) };
        let shared = state.images.values().any(|entry| entry.record.digest == gone.record.digest);
        if shared { Ok(()) } else { files::remove(&blob) }
    }

    fn partial_path(&self, record: &Record) -> PathBuf {
        self.inner.root.join("partial").join(&record.partial)
    }

    fn tell(&self) {
        self.inner.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The disk is changed before the state, so the state is valid even after a panic.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both lists, each name once.
fn all_of(names: &[String], more: Vec<String>) -> Vec<String> {
    let fresh = more.into_iter().filter(|name| !names.contains(name));
    names.iter().cloned().chain(fresh.collect::<Vec<_>>()).collect()
}

/// All records below `dir`, and whether one could not be read: that one is logged and left as it is.
fn read_index(dir: &Path) -> io::Result<(Vec<Record>, bool)> {
    let (mut records, mut damaged) = (Vec::new(), false);
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                // An incomplete record, left by a power cut.
                files::remove(&path)?;
            } else {
                match read_record(&path) {
                    Ok(record) => records.push(record),
                    Err(error) => {
                        log::error!("the record `{}` is passed over: {error}", path.display());
                        damaged = true;
                    }
                }
            }
        }
    }
    Ok((records, damaged))
}

fn read_record(path: &Path) -> io::Result<Record> {
    let record: Record = serde_json::from_slice(&fs_err::read(path)?)?;
    if path.ends_with(record.key.index_path()) { Ok(record) } else { Err(io::Error::other("it is of another image")) }
}

fn secs(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
