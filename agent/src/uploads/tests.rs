//! The store without its server: what is on the disk after whatever happens.

use std::path::Path;
use std::time::{Duration, SystemTime};

use agent_api::bpa::{Kind, Published};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::{Announced, NoRoom, Record, UploadError, UploadKey, UploadLimits, Uploads};
use crate::content::Source;

fn limits() -> UploadLimits {
    UploadLimits { percent: Kind::ALL.map(|kind| (kind, 100)).into(), reserve_percent: 0, images: 100 }
}

fn store() -> (TempDir, Uploads) {
    let dir = tempfile::tempdir().expect("a folder");
    let uploads = Uploads::open(dir.path(), limits()).expect("a store");
    (dir, uploads)
}

fn again(dir: &TempDir) -> Uploads {
    Uploads::open(dir.path(), limits()).expect("a store")
}

fn os(owner: &str, name: &str) -> UploadKey {
    UploadKey::new(Kind::OsImages, owner, "edge", name).expect("a name")
}

fn announced(length: usize) -> Announced {
    Announced { length: length as u64, ..Announced::default() }
}

/// Bytes with runs of zeros, not in step with any block.
fn bytes(length: usize) -> Vec<u8> {
    let byte = |at: usize| if at / 9001 % 3 == 1 { 0 } else { u8::try_from(at * 31 % 251).unwrap_or(0) };
    (0..length).map(byte).collect()
}

fn send(uploads: &Uploads, key: &UploadKey, from: usize, bytes: &[u8]) -> Result<Record, UploadError> {
    let mut writer = uploads.begin(key, from as u64, Some(bytes.len() as u64))?;
    for piece in bytes.chunks(16_000) {
        writer.write(piece)?;
    }
    writer.end()
}

fn put(uploads: &Uploads, key: &UploadKey, bytes: &[u8]) -> Record {
    uploads.create(key.clone(), announced(bytes.len())).expect("created");
    send(uploads, key, 0, bytes).expect("sent")
}

fn files(dir: &Path) -> usize {
    fs_err::read_dir(dir).expect("a folder").count()
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart_and_the_rest_is_not() {
    let (dir, uploads) = store();
    let (key, whole) = (os("alpha", "a"), bytes(700_001));
    uploads.create(key.clone(), announced(whole.len())).expect("created");
    let mut writer = uploads.begin(&key, 0, Some(whole.len() as u64)).expect("a writer");
    writer.write(&whole[..300_007]).expect("written");
    assert_eq!(writer.end().expect("durable").offset(), 300_007);
    let mut writer = uploads.begin(&key, 300_007, Some((whole.len() - 300_007) as u64)).expect("a writer");
    writer.write(&whole[300_007..]).expect("written");
    // No end: as if the power went.
    drop(writer);
    let uploads = again(&dir);
    let record = uploads.get(&key).expect("the image");
    assert_eq!((record.offset(), record.digest.is_none()), (300_007, true));
    let record = send(&uploads, &key, 300_007, &whole[300_007..]).expect("sent");
    let digest = record.digest.clone().expect("a digest");
    assert_eq!(digest.hex(), hex::encode(Sha256::digest(&whole)));
    assert!(fs_err::read(uploads.blob(&record).expect("a blob")).expect("read") == whole);
    assert_eq!(files(&dir.path().join("partial")), 0);
    assert_eq!(again(&dir).get(&key), Some(record));
}

#[test]
fn an_image_whose_last_byte_is_there_is_completed_at_the_next_start() {
    let (dir, uploads) = store();
    let (key, whole) = (os("alpha", "a"), bytes(50_000));
    put(&uploads, &key, &whole);
    // Back to before the record said that all is there: the blob in its place, or not yet.
    let path = dir.path().join(key.index_path());
    let mut record: Record = serde_json::from_slice(&fs_err::read(&path).expect("read")).expect("a record");
    let blob = uploads.blob(&record).expect("a blob");
    (record.digest, record.md5, record.published) = (None, None, Published::Incomplete);
    for moved in [true, false] {
        fs_err::write(&path, serde_json::to_vec(&record).expect("JSON")).expect("written");
        if !moved {
            fs_err::rename(&blob, dir.path().join("partial").join(&record.partial)).expect("moved back");
        }
        let uploads = again(&dir);
        assert_eq!(uploads.get(&key).expect("the image").published, Published::Published);
        assert!(fs_err::read(&blob).expect("the blob") == whole);
        assert!(uploads.find("images/a.md5sum").is_some());
    }
}

#[test]
fn an_os_image_that_needs_another_file_says_so() {
    let (_dir, uploads) = store();
    let mut head = vec![0; 512];
    head[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    (head[15], head[23]) = (104, 16);
    let record = put(&uploads, &os("alpha", "overlay.qcow2"), &head);
    let problem = record.problem.expect("a problem");
    assert!(record.published == Published::Failed && problem.contains("needs a backing file"), "{problem}");
}

#[test]
fn zeros_are_holes_and_the_bytes_are_right() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, uploads) = store();
    let mut whole = vec![0; 8 << 20];
    whole[5_000_000] = 7;
    let record = put(&uploads, &os("alpha", "sparse"), &whole);
    let blob = uploads.blob(&record).expect("a blob");
    assert!(fs_err::read(&blob).expect("read") == whole);
    assert!(fs_err::metadata(&blob).expect("metadata").blocks() * 512 < 1 << 20);
}

#[test]
fn two_owners_have_the_same_name_and_the_same_bytes_lie_there_once() {
    let (dir, uploads) = store();
    let (alpha, gamma) = (os("alpha", "node"), os("gamma", "node"));
    put(&uploads, &alpha, b"the same");
    assert_eq!(uploads.find("images/node").expect("unambiguous").digest.hex(), hex::encode(Sha256::digest("the same")));
    put(&uploads, &gamma, b"the same");
    assert_eq!(files(&dir.path().join("sha256")), 1);
    assert_eq!(uploads.find("images/node"), None);
    assert_eq!(uploads.find("images/node.sha256"), None);
    let held = uploads.find("images/gamma/edge/node").expect("full name");
    uploads.remove(&gamma).expect("removed");
    assert!(held.file.exists(), "alpha has it still");
    assert!(uploads.find("images/node").is_some() && uploads.find("images/gamma/edge/node").is_none());
    uploads.remove(&alpha).expect("removed");
    assert!(!held.file.exists());
    assert_eq!(uploads.page(Kind::OsImages, "alpha", "edge", "", 10), []);
}

#[test]
fn checksums_lie_beside_each_name() {
    let (_dir, uploads) = store();
    put(&uploads, &os("alpha", "node.qcow2"), b"bytes");
    let text = |path: &str| fs_err::read_to_string(uploads.find(path).expect("held").file).expect("read");
    let sha256 = format!("{}  node.qcow2\n", hex::encode(Sha256::digest("bytes")));
    assert_eq!(text("images/node.qcow2.sha256"), sha256);
    assert_eq!(text("images/alpha/edge/node.qcow2.sha256"), sha256);
    assert_eq!(text("images/node.qcow2.md5sum"), "4b3a6218bb3e3a7303e8a171a60fcf92  node.qcow2\n");
    let paths: Vec<String> = uploads.list().into_iter().map(|held| held.path).collect();
    assert_eq!(paths.len(), 6);
    for path in paths {
        assert_eq!(uploads.find(&path).expect("listed means found").path, path);
    }
    assert_eq!(uploads.find("files/node.qcow2"), None);
    assert_eq!(uploads.find("images/alpha/node.qcow2"), None);
}

#[test]
fn other_bytes_than_announced_are_forgotten_and_may_come_again() {
    let (dir, uploads) = store();
    let key = os("alpha", "a");
    let expected = Some(hex::encode(Sha256::digest("right")));
    uploads.create(key.clone(), Announced { expected, ..announced(5) }).expect("created");
    assert!(matches!(send(&uploads, &key, 0, b"wrong"), Err(UploadError::Mismatch { .. })));
    let record = uploads.get(&key).expect("the image");
    assert_eq!((record.offset(), record.published), (0, Published::Incomplete));
    assert_eq!((files(&dir.path().join("partial")), files(&dir.path().join("sha256"))), (0, 0));
    assert!(send(&uploads, &key, 0, b"right").expect("sent").digest.is_some());
}

#[test]
fn one_writer_at_a_time_and_nobody_removes_what_it_writes() {
    let (_dir, uploads) = store();
    let key = os("alpha", "a");
    uploads.create(key.clone(), announced(5)).expect("created");
    let writer = uploads.begin(&key, 0, Some(5)).expect("a writer");
    assert!(matches!(uploads.begin(&key, 0, Some(5)), Err(UploadError::Busy)));
    assert!(matches!(uploads.remove(&key), Err(UploadError::Busy)));
    assert!(matches!(uploads.update(&key, announced(6)), Err(UploadError::Busy)));
    drop(writer);
    let mut writer = uploads.begin(&key, 0, Some(5)).expect("another writer");
    assert!(matches!(writer.write(b"123456"), Err(UploadError::TooMuch)));
}

#[test]
fn what_is_held_stays_and_its_users_are_named() {
    let (_dir, uploads) = store();
    let key = os("alpha", "a");
    put(&uploads, &key, b"bytes");
    let hold = uploads.hold("images/a", "BareMetalHost default/n1").expect("a hold");
    let Err(UploadError::InUse(users)) = uploads.remove(&key) else { panic!("removed what is in use") };
    assert_eq!(users, ["BareMetalHost default/n1"]);
    assert!(uploads.hold("images/other", "nobody").is_none());
    drop(hold);
    uploads.remove(&key).expect("removed");
}

#[test]
fn who_reads_reads_on_after_it_was_removed() {
    use std::io::Read;
    let (_dir, uploads) = store();
    let (key, whole) = (os("alpha", "a"), bytes(300_000));
    put(&uploads, &key, &whole);
    let mut reader = fs_err::File::open(uploads.find("images/a").expect("held").file).expect("open");
    let mut read = vec![0; 1000];
    reader.read_exact(&mut read).expect("read");
    uploads.remove(&key).expect("removed");
    reader.read_to_end(&mut read).expect("read on");
    assert!(read == whole);
}

#[test]
fn garbage_goes_and_what_is_named_stays() {
    let (dir, uploads) = store();
    put(&uploads, &os("alpha", "a"), b"bytes");
    uploads.create(os("alpha", "half"), announced(10)).expect("created");
    let mut writer = uploads.begin(&os("alpha", "half"), 0, Some(10)).expect("a writer");
    writer.write(b"12345").expect("written");
    writer.end().expect("durable");
    for stray in ["partial/stray", "sha256/stray", "sums/stray"] {
        fs_err::write(dir.path().join(stray), "stray").expect("written");
    }
    let now = SystemTime::now();
    let collected = uploads.collect(now).expect("collected");
    assert_eq!((collected.files, collected.bytes, collected.abandoned.len()), (3, 15, 0));
    assert!(uploads.find("images/a").expect("held").file.exists());
    let later = uploads.collect(now + Duration::from_hours(24 * 15)).expect("collected");
    assert_eq!(later.abandoned, [os("alpha", "half")]);
    assert!(uploads.get(&os("alpha", "a")).is_some() && uploads.get(&os("alpha", "half")).is_none());
}

#[test]
fn a_damaged_record_takes_nothing_else_with_it() {
    let (dir, uploads) = store();
    put(&uploads, &os("alpha", "a"), b"bytes");
    fs_err::write(dir.path().join("index/os_images/alpha/edge/b.json"), "{").expect("written");
    fs_err::write(dir.path().join("index/os_images/alpha/edge/.c.json"), "half").expect("written");
    let uploads = again(&dir);
    assert_eq!(uploads.all().len(), 1);
    assert!(uploads.find("images/a").is_some());
}

#[test]
fn more_than_its_share_is_refused() {
    let (_dir, uploads) = store();
    uploads.set_limits(UploadLimits { percent: [(Kind::OsImages, 0)].into(), reserve_percent: 0, images: 1 });
    let refused = uploads.create(os("alpha", "a"), announced(1));
    assert!(matches!(refused, Err(UploadError::NoRoom(NoRoom::Quota { quota: 0, .. }))));
    uploads.set_limits(UploadLimits { reserve_percent: 100, ..limits() });
    assert!(matches!(uploads.create(os("alpha", "a"), announced(1)), Err(UploadError::NoRoom(NoRoom::Disk { .. }))));
    uploads.set_limits(UploadLimits { images: 1, ..limits() });
    uploads.create(os("alpha", "a"), announced(1)).expect("created");
    assert!(matches!(uploads.create(os("alpha", "b"), announced(1)), Err(UploadError::NoRoom(NoRoom::Images(1)))));
}
