//! `foothold.mode=check`: every blob of the store against its digest, told on the screen.

use std::collections::BTreeSet;
use std::path::Path;

use agent_api::events::Phase;
use agent_api::release::{Digest, MEDIUM_ROOT, Release};

use super::blobs::{self, Reader, WantedBlob};
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
    let store = root.join(MEDIUM_ROOT).join("store/sha256");
    let blobs = wanted(&medium.release, &store);
    let total: u64 = blobs.iter().map(|blob| blob.size).sum::<u64>().max(1);
    let (mut done, mut told) = (0, 0);
    let (mut damaged, mut reader) = (Vec::new(), Reader::default());
    for blob in &blobs {
        let mut progress = |bytes: u64| {
            done += bytes;
            let percent = (done * 100 / total).min(100);
            if percent >= told + PERCENT_STEP {
                told = percent / PERCENT_STEP * PERCENT_STEP;
                report.progress(step, "reading every file of the medium", told);
            }
        };
        if let Err(wrong) = blob.check(&store, &mut reader, &mut progress) {
            damaged.push(format!("{} is damaged: {} {}", blob.names(), blob.digest, wrong.found));
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

/// Every blob once: layers, images and content of the manifest, and whatever else lies in the store.
fn wanted(release: &Release, store: &Path) -> Vec<WantedBlob> {
    let layer = |name: &str| vec![format!("layer `{name}`")];
    let layers = release.layers.iter();
    let mut wanted: Vec<WantedBlob> = layers
        .map(|one| WantedBlob { digest: one.digest.clone(), size: one.size, needed_by: layer(&one.name) })
        .chain(blobs::of(release))
        .collect();
    let known: BTreeSet<Digest> = wanted.iter().map(|blob| blob.digest.clone()).collect();
    for entry in fs_err::read_dir(store).into_iter().flatten().filter_map(Result::ok) {
        let size = entry.metadata().map_or(0, |found| found.len());
        let digest = Digest::from_hex(&entry.file_name().to_string_lossy()).ok();
        if let Some(digest) = digest.filter(|digest| !known.contains(digest)) {
            wanted.push(WantedBlob { digest, size, needed_by: Vec::new() });
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use agent_api::release::{Digest, Layer, Release};

    use super::wanted;
    use crate::fixtures::release;

    #[test]
    fn layers_and_what_no_release_names_are_read_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let stray = Digest::from_hex(&"5".repeat(64)).expect("a digest");
        let layer = Layer {
            name: "os".to_owned(),
            digest: Digest::from_hex(&"6".repeat(64)).expect("a digest"),
            size: 3,
            data_bytes: 3,
            root_hash: String::new(),
            salt: String::new(),
        };
        let release = Release { layers: vec![layer.clone()], ..release() };
        for digest in [&stray, &layer.digest] {
            fs_err::write(folder.path().join(digest.hex()), b"abc").expect("written");
        }
        fs_err::write(folder.path().join("no digest"), b"").expect("written");
        let found = wanted(&release, folder.path());
        assert_eq!(found[0].names(), "layer `os`");
        assert_eq!(found.iter().filter(|one| one.digest == layer.digest).count(), 1);
        let last = found.last().expect("the stray one");
        assert_eq!((&last.digest, last.size, last.names().as_str()), (&stray, 3, "a file of no release"));
    }
}
