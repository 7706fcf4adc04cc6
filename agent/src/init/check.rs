//! `foothold.mode=check`: every blob of the store against its digest, told on the screen.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use agent_api::events::Phase;
use agent_api::release::{Blob, Digest, MEDIUM_ROOT, Release};
use sha2::Digest as _;

use super::fatal::{Fatal, framed};
use super::medium::Medium;
use super::release::WRITE_AGAIN;
use super::report::Report;

/// A step of this many percent is worth a line.
const PERCENT_STEP: u64 = 5;
/// How many damaged blobs are named.
const MOST_NAMED: usize = 8;

/// Verifies everything; the message with the result, or what is damaged.
pub fn run(report: &Report, medium: &Medium, root: &Path) -> Result<String, Fatal> {
    let step = report.started(Phase::Medium, "check");
    let blobs = blobs_of(&medium.release, &store(root));
    let total: u64 = blobs.values().map(|blob| blob.size).sum::<u64>().max(1);
    let (mut done, mut told) = (0, 0);
    let mut damaged = Vec::new();
    for (name, blob) in &blobs {
        let mut progress = |bytes: u64| {
            done += bytes;
            let percent = (done * 100 / total).min(100);
            if percent >= told + PERCENT_STEP {
                told = percent / PERCENT_STEP * PERCENT_STEP;
                report.progress(step, "reading every file of the medium", told);
            }
        };
        if let Err(why) = verify(&store(root).join(blob.digest.hex()), blob, &mut progress) {
            damaged.push(format!("{name}: {why}"));
        }
    }
    let files = blobs.len();
    if damaged.is_empty() {
        let message = format!("all {files} files of the medium ({} MiB) are as they were signed", total >> 20);
        report.done(step, &message);
        let lines = [
            "The medium is good".to_owned(),
            String::new(),
            message,
            "Switch the box off, or start it from the boot menu.".to_owned(),
        ];
        return Ok(framed(&lines));
    }
    let mut found = format!("{} of {files} files on {} are damaged", damaged.len(), medium.device);
    for line in damaged.iter().take(MOST_NAMED) {
        found.push('\n');
        found.push_str(line);
    }
    Err(Fatal::medium("check", found, "the bytes that were signed", WRITE_AGAIN))
}

fn store(root: &Path) -> PathBuf {
    root.join(MEDIUM_ROOT).join("store/sha256")
}

/// Every blob by a name for the screen: those of the manifest, and whatever else lies in the store.
fn blobs_of(release: &Release, store: &Path) -> BTreeMap<String, Blob> {
    let mut blobs = BTreeMap::new();
    let mut known = std::collections::BTreeSet::new();
    let mut add = |name: String, digest: &Digest, size: u64| {
        if known.insert(digest.clone()) {
            blobs.insert(name, Blob { digest: digest.clone(), size });
        }
    };
    for layer in &release.layers {
        add(format!("layer `{}`", layer.name), &layer.digest, layer.size);
    }
    for image in &release.images {
        for blob in &image.blobs {
            add(format!("image {} {}", image.reference, &blob.digest.hex()[..12]), &blob.digest, blob.size);
        }
    }
    for file in &release.content {
        add(format!("file {}", file.path), &file.digest, file.size);
    }
    for entry in fs_err::read_dir(store).into_iter().flatten().filter_map(Result::ok) {
        let size = entry.metadata().map_or(0, |found| found.len());
        if let Ok(digest) = Digest::from_hex(&entry.file_name().to_string_lossy()) {
            add(format!("file {}", &digest.hex()[..12]), &digest, size);
        }
    }
    blobs
}

fn verify(path: &Path, blob: &Blob, progress: &mut dyn FnMut(u64)) -> Result<(), String> {
    let mut file = fs_err::File::open(path).map_err(|error| error.kind().to_string())?;
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("cannot be read at byte {length}: {}", error.kind())),
        };
        hash.update(&buffer[..read]);
        length += read as u64;
        progress(read as u64);
    }
    if length != blob.size {
        return Err(format!("{length} bytes instead of {}", blob.size));
    }
    let found = hex::encode(hash.finalize());
    if found == blob.digest.hex() { Ok(()) } else { Err(format!("its digest is {}...", &found[..16])) }
}

#[cfg(test)]
mod tests {
    use agent_api::release::{Blob, Digest};
    use sha2::Digest as _;

    use super::verify;

    #[test]
    fn a_blob_is_good_only_whole_and_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("blob");
        let digest = Digest::from_hex(&hex::encode(sha2::Sha256::digest(b"abc"))).expect("a digest");
        let blob = Blob { digest, size: 3 };
        for (bytes, good) in [(&b"abc"[..], true), (b"abd", false), (b"ab", false)] {
            fs_err::write(&path, bytes).expect("written");
            let mut seen = 0;
            assert_eq!(verify(&path, &blob, &mut |bytes| seen += bytes).is_ok(), good);
            assert_eq!(seen, bytes.len() as u64);
        }
        assert_eq!(verify(&folder.path().join("none"), &blob, &mut |_| ()), Err("entity not found".to_owned()));
    }
}
