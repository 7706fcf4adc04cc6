//! What Ironic had made for servers when the box lost its power.
//!
//! Ironic does not sync what it writes: after a power cut a file can have its name and lack its end. A ramdisk without its
//! end still boots and then lacks programs, on every server that gets it from Ironic's cache. So each file that is not
//! proved whole is removed before the first server asks; Ironic makes it again when it is needed.
//!
//! | file | whole when |
//! |---|---|
//! | kernel and ramdisk of the release | size and SHA-256 are the release's |
//! | disc | it is as long as its volume descriptor says (ECMA-119, 8.4.8) |
//! | script, configuration | it is not empty: they are written at once |
//! | anything else, and what cannot be read | never |

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agent_api::release::{ContentFile, ContentKind};
use walkdir::WalkDir;

use super::served::SERVED;
use super::{RUN, STATE};
use crate::host::files;

/// Logs that are kept, bytes.
const LOGS: u64 = 64 << 20;
/// A temporary file older than this is not in use any more: Ironic needs less time for everything that it makes.
const MAKING: Duration = Duration::from_secs(24 * 3600);
/// Longest script or configuration; shortest kernel or disc.
const TEXT: u64 = 64 << 10;
/// The primary volume descriptor of a disc: where it lies, how it begins, and where its number of blocks stands in it, lower
/// byte first (ECMA-119, 8.4).
const DESCRIPTOR: u64 = 16 * BLOCK;
const BEGINNING: &[u8] = b"\x01CD001";
const BLOCKS: usize = 80;
/// Logical block of a disc.
const BLOCK: u64 = 2048;
/// File below [`RUN`] that says that this was done since power-on: from then on Ironic may be writing files.
const DONE: &str = "looked-through";

/// The file that says that this was done on the box at `root`. Nothing of Ironic's is served before it is there.
pub fn mark(root: &Path) -> PathBuf {
    root.join(RUN.trim_start_matches('/')).join(DONE)
}

/// Removes what is not whole from the folders of the box at `root`, once after power-on. `content`: of the release. Returns
/// what went.
///
/// # Errors
/// Where a folder cannot be read, or a file cannot be removed. Nothing is served then.
pub fn look_through(root: &Path, content: &[ContentFile]) -> io::Result<Vec<PathBuf>> {
    let (state, done) = (root.join(STATE.trim_start_matches('/')), mark(root));
    if done.exists() {
        return Ok(Vec::new());
    }
    let known: Vec<&ContentFile> = content.iter().filter(|file| file.kind == ContentKind::Netboot).collect();
    let (mut gone, mut links, mut seen) = (Vec::new(), Vec::new(), BTreeMap::new());
    let folders = SERVED.map(|folder| state.join(folder)).into_iter().filter(|folder| folder.exists());
    for entry in folders.flat_map(WalkDir::new) {
        let entry = entry?;
        if entry.path_is_symlink() {
            links.push(entry.into_path());
        } else if entry.file_type().is_file() {
            let found = entry.metadata()?;
            // A server's ramdisk is another name of the one in the cache.
            let whole = match seen.get(&found.ino()) {
                Some(whole) => *whole,
                None => is_whole(entry.path(), found.len(), &known).unwrap_or_else(|error| {
                    log::warn!("`{}` cannot be read: {error}", entry.path().display());
                    false
                }),
            };
            seen.insert(found.ino(), whole);
            if !whole {
                gone.push(entry.into_path());
            }
        }
    }
    for path in &gone {
        files::remove(path)?;
    }
    for link in links.into_iter().filter(|link| !link.exists()) {
        files::remove(&link)?;
        gone.push(link);
    }
    files::write(&done, b"", files::PUBLIC)?;
    Ok(gone)
}

/// Removes what Ironic leaves behind in the folders of the box at `root`: old logs of failed ramdisks, and temporary files
/// of an Ironic that was killed.
///
/// # Errors
/// Where a folder cannot be read, or a file cannot be removed.
pub fn tidy(root: &Path, now: SystemTime) -> io::Result<()> {
    let state = root.join(STATE.trim_start_matches('/'));
    let files = |folder: &str| {
        let found = WalkDir::new(state.join(folder)).into_iter().filter_map(Result::ok);
        found.filter_map(|entry| {
            let found = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((found.modified().ok()?, found.len(), entry.into_path()))
        })
    };
    let mut logs: Vec<_> = files("logs").collect();
    logs.sort_by_key(|(written, ..)| std::cmp::Reverse(*written));
    let mut kept = 0;
    for (_, length, path) in logs {
        kept += length;
        if kept > LOGS {
            files::remove(&path)?;
        }
    }
    for (written, _, path) in files("tmp") {
        if now.duration_since(written).is_ok_and(|age| age > MAKING) {
            files::remove(&path)?;
        }
    }
    Ok(())
}

fn is_whole(path: &Path, length: u64, known: &[&ContentFile]) -> io::Result<bool> {
    if length <= TEXT {
        return Ok(length > 0);
    }
    let mut file = fs_err::File::open(path)?;
    let mut descriptor = [0; BLOCKS + 4];
    file.seek(SeekFrom::Start(DESCRIPTOR))?;
    file.read_exact(&mut descriptor)?;
    if descriptor.starts_with(BEGINNING) {
        let blocks = u32::from_le_bytes([
            descriptor[BLOCKS],
            descriptor[BLOCKS + 1],
            descriptor[BLOCKS + 2],
            descriptor[BLOCKS + 3],
        ]);
        return Ok(length >= u64::from(blocks) * BLOCK);
    }
    let candidates: Vec<_> = known.iter().filter(|known| known.size == length).collect();
    if candidates.is_empty() {
        return Ok(false);
    }
    file.rewind()?;
    let found = agent_api::hash::blob(file)?;
    Ok(candidates.iter().any(|known| known.digest == found.digest))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use agent_api::release::{Blob, ContentFile, ContentKind, Digest};

    use super::{BLOCK, BLOCKS, DESCRIPTOR, Duration, LOGS, STATE, SystemTime, look_through, tidy};

    /// The release's ramdisk.
    fn ramdisk() -> Vec<u8> {
        (0..200_000_u32).map(|number| (number % 251) as u8).collect()
    }

    fn release() -> Vec<ContentFile> {
        let digest = Digest::of(ramdisk());
        let blob = Blob { digest, size: 200_000 };
        vec![ContentFile::stored("netboot/ironic-python-agent.initramfs", ContentKind::Netboot, &blob)]
    }

    /// A disc that says that it has so many blocks, and has so many bytes.
    fn disc(blocks: u32, bytes: usize) -> Vec<u8> {
        let mut disc = vec![0; bytes];
        let at = usize::try_from(DESCRIPTOR).expect("small");
        disc[at..at + 6].copy_from_slice(b"\x01CD001");
        disc[at + BLOCKS..at + BLOCKS + 4].copy_from_slice(&blocks.to_le_bytes());
        disc
    }

    fn write(state: &Path, path: &str, bytes: &[u8]) -> PathBuf {
        let path = state.join(path);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(&path, bytes).expect("written");
        path
    }

    #[test]
    fn what_a_power_cut_left_unfinished_goes_and_nothing_else() {
        let root = tempfile::tempdir().expect("a folder");
        let state = root.path().join(STATE.trim_start_matches('/'));
        let blocks = 40_u32;
        let length = usize::try_from(u64::from(blocks) * BLOCK).expect("small");
        let mut other = ramdisk();
        other[100_000] ^= 1;
        let whole = [
            write(&state, "http/boot.ipxe", b"#!ipxe\n"),
            write(&state, "master-images/whole", &ramdisk()),
            write(&state, "http/redfish/boot-a.iso", &disc(blocks, length)),
            write(&state, "db/ironic.sqlite", b""),
        ];
        let not = [
            write(&state, "http/pxelinux.cfg/52-54-00-00-00-01", b""),
            write(&state, "master-images/cut", &ramdisk()[..150_000]),
            write(&state, "master-images/changed", &other),
            write(&state, "http/redfish/boot-b.iso", &disc(blocks, length - 1)),
            write(&state, "master-images/tmp1/part", &vec![7; 100_000]),
        ];
        fs_err::create_dir_all(state.join("http/node")).expect("made");
        let [good, bad] = ["whole", "cut"].map(|name| {
            let link = state.join("http/node").join(name);
            fs_err::hard_link(state.join("master-images").join(name), &link).expect("linked");
            link
        });
        let (leads, lost) = (state.join("http/leads"), state.join("http/lost"));
        symlink(state.join("master-images/whole"), &leads).expect("linked");
        symlink(state.join("master-images/cut"), &lost).expect("linked");

        let mut gone = look_through(root.path(), &release()).expect("looked through");
        gone.sort();
        let mut expected: Vec<PathBuf> = not.iter().chain([&bad, &lost]).cloned().collect();
        expected.sort();
        assert_eq!(gone, expected);
        assert!(whole.iter().chain([&good, &leads]).all(|path| path.exists()));
        assert!(not.iter().chain([&bad]).all(|path| !path.exists()));
        assert!(!lost.is_symlink(), "it led to what has gone");

        let written_now = write(&state, "master-images/tmp2/part", &vec![7; 100_000]);
        assert_eq!(look_through(root.path(), &release()).expect("done"), Vec::<PathBuf>::new());
        assert!(written_now.exists(), "Ironic runs by now");
    }

    #[test]
    fn logs_of_failures_and_what_was_never_finished_do_not_fill_the_disk() {
        let root = tempfile::tempdir().expect("a folder");
        let state = root.path().join(STATE.trim_start_matches('/'));
        let now = SystemTime::now();
        let aged = |path: &str, length: u64, hours: u64| {
            let path = write(&state, path, b"");
            let file = fs_err::OpenOptions::new().write(true).open(&path).expect("opened");
            file.file().set_len(length).expect("sparse");
            file.file().set_modified(now - Duration::from_secs(hours * 3600)).expect("aged");
            path
        };
        let kept = [aged("logs/new.tar", LOGS / 2, 1), aged("logs/older.tar", LOGS / 2, 2), aged("tmp/making", 1, 23)];
        let gone = [aged("logs/old.tar", 1, 3), aged("tmp/left/part", 1, 25)];
        tidy(root.path(), now).expect("tidied");
        assert!(kept.iter().all(|path| path.exists()));
        assert!(!gone.iter().any(|path| path.exists()));
    }

    #[test]
    fn a_box_that_has_provisioned_nobody_has_nothing_to_look_through() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(look_through(root.path(), &release()).expect("looked through"), Vec::<PathBuf>::new());
    }
}
