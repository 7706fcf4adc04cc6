//! Phase `content`: every blob that the release promises is on the medium.

use std::collections::BTreeMap;
use std::path::Path;

use agent_api::boot::MEDIUM;
use agent_api::release::{Blob, MEDIUM_ROOT, Release};
use serde_json::json;

use super::{Machine, phase};
use crate::steps::{Outcome, Steps, blocking};

/// Looks for every blob; only sizes are read, verity guards the bytes of layers.
pub async fn blobs(machine: &Machine, steps: &Steps) {
    let act = || async {
        let machine = machine.clone();
        blocking(move || {
            let wanted = wanted(machine.release());
            let wrong = wrong(&machine.at(MEDIUM).join(MEDIUM_ROOT), &wanted);
            if let Some(first) = wrong.first() {
                anyhow::bail!(
                    "{} of {} blobs of the release are damaged on the medium: {first}",
                    wrong.len(),
                    wanted.len()
                );
            }
            let bytes: u64 = wanted.iter().map(|(_, blob)| blob.size).sum();
            Ok(Outcome::Done((), json!({"blobs": wanted.len(), "bytes": bytes})))
        })
        .await
    };
    steps.perform(&phase::BLOBS, act).await;
}

/// What each blob belongs to, each blob once.
fn wanted(release: &Release) -> Vec<(String, Blob)> {
    let layers = release
        .layers
        .iter()
        .map(|layer| (format!("layer `{}`", layer.name), Blob { digest: layer.digest.clone(), size: layer.size }));
    let images = release
        .images
        .iter()
        .flat_map(|image| image.blobs.iter().map(|blob| (format!("image `{}`", image.reference), blob.clone())));
    let files = release.content.iter();
    let files = files.filter_map(|file| Some((format!("file `{}`", file.path), file.blob()?)));
    let once: BTreeMap<_, _> =
        layers.chain(images).chain(files).map(|(owner, blob)| (blob.digest.clone(), (owner, blob))).collect();
    once.into_values().collect()
}

fn wrong(root: &Path, wanted: &[(String, Blob)]) -> Vec<String> {
    let look = |(owner, blob): &(String, Blob)| match fs_err::metadata(root.join(blob.digest.store_path())) {
        Ok(found) if found.len() == blob.size => None,
        Ok(found) => Some(format!("{owner}: {} has {} bytes instead of {}", blob.digest, found.len(), blob.size)),
        Err(error) => Some(format!("{owner}: {error}")),
    };
    wanted.iter().filter_map(look).collect()
}

#[cfg(test)]
mod tests {
    use agent_api::release::{Blob, ContentFile, ContentKind, Digest, InLayer};

    use super::{wanted, wrong};
    use crate::host::runner::FakeRunner;
    use crate::machine::tests::machine;

    #[test]
    fn files_of_the_content_are_wanted_but_for_those_in_layers() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut release = machine(dir.path(), FakeRunner::default()).release().clone();
        let blob = |byte: &str| Blob { digest: Digest::from_hex(&byte.repeat(64)).expect("a digest"), size: 4 };
        let file = |path: &str, byte: &str| ContentFile::stored(path, ContentKind::File, &blob(byte));
        let within = InLayer { layer: "os".to_owned(), path: "usr/a".to_owned() };
        release.content = vec![file("files/a", "a"), ContentFile { within: Some(within), ..file("files/b", "b") }];
        let files: Vec<_> = wanted(&release).into_iter().filter(|(owner, _)| owner.starts_with("file ")).collect();
        assert_eq!(files, [("file `files/a`".to_owned(), blob("a"))]);
    }

    #[test]
    fn missing_and_cut_off_blobs_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let blob = |byte: &str, size| {
            ("image `a`".to_owned(), Blob { digest: Digest::from_hex(&byte.repeat(64)).expect("a digest"), size })
        };
        fs_err::create_dir_all(dir.path().join("store/sha256")).expect("a directory");
        fs_err::write(dir.path().join("store/sha256").join("a".repeat(64)), b"1234").expect("a blob");
        assert_eq!(wrong(dir.path(), &[blob("a", 4)]), Vec::<String>::new());
        let found = wrong(dir.path(), &[blob("a", 5), blob("b", 1)]);
        assert!(found[0].ends_with("has 4 bytes instead of 5"), "{found:?}");
        assert!(found[1].starts_with("image `a`: "), "{found:?}");
    }
}
