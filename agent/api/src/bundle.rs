//! A bundle: the file that turns one release into another, taken by a box that runs the first.
//!
//! ```text
//! tar  bundle.json · bundle.json.minisig · then each of `files`, in that order, nothing else
//! ```
//! `bundle.json` is signed by the key of the releases and says what every other byte must be.

use serde::{Deserialize, Serialize};

use crate::release::{Blob, Digest, Release};

/// Name of the list in the tar.
pub const MANIFEST: &str = "bundle.json";
/// Name of its signature.
pub const SIGNATURE: &str = "bundle.json.minisig";
/// Most bytes of the list.
pub const MOST_MANIFEST: u64 = 16 << 20;
/// Where the box keeps blobs that are not on its medium, and the releases they are of: as on a medium.
pub const DATA_ROOT: &str = "/var/lib/foothold";

/// `bundle.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bundle {
    /// `foothold.dev/v1`.
    pub api_version: String,
    /// `Bundle`.
    pub kind: String,
    /// Id of the release that must be there.
    pub from: String,
    /// Id of the release that is there afterwards.
    pub to: String,
    /// Name of the appliance.
    pub name: String,
    /// Version of the release that is there afterwards.
    pub version: String,
    /// Everything else in the tar, in its order.
    pub files: Vec<File>,
}

/// A file of the tar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// Where it goes, below the root of medium or DATA: `releases/<id>/release.json`, `store/sha256/<hex>`.
    pub path: String,
    /// What it must hash to.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

impl Bundle {
    /// A path that does not belong into a bundle: no blob under its own digest, and no file of the new release.
    pub fn foreign_path(&self) -> Option<&str> {
        let own = |file: &File| {
            let name = file.path.strip_prefix(&format!("releases/{}/", self.to));
            let plain = |name: &str| {
                !name.starts_with('.')
                    && !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
            };
            file.path == file.digest.store_path() || name.is_some_and(plain)
        };
        self.files.iter().find(|file| !own(file)).map(|file| file.path.as_str())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// Every blob that a release needs, those that start it included; each once, sorted.
pub fn blobs_of(release: &Release) -> Vec<Blob> {
    let layers = release.layers.iter().map(|layer| Blob { digest: layer.digest.clone(), size: layer.size });
    let images = release.images.iter().flat_map(|image| image.blobs.iter().cloned());
    let files = release.content.iter().filter_map(crate::release::ContentFile::blob);
    let mut blobs: Vec<Blob> = layers.chain(images).chain(files).chain(boot_blobs(release)).collect();
    blobs.sort_by(|a, b| a.digest.cmp(&b.digest));
    blobs.dedup();
    blobs
}

/// Kernels and initrds: on a medium they lie where firmware and GRUB read them, not in the store.
pub fn boot_blobs(release: &Release) -> impl Iterator<Item = Blob> + '_ {
    release.boot.iter().flat_map(|entry| [entry.kernel.clone(), entry.initrd.clone()])
}

#[cfg(test)]
mod tests {
    use super::{Bundle, File};
    use crate::release::Digest;

    #[test]
    fn only_blobs_and_files_of_the_new_release_belong_into_a_bundle() {
        let digest = Digest::from_hex(&"ab".repeat(32)).expect("a digest");
        let foreign = |path: &str| {
            let file = File { path: path.to_owned(), digest: digest.clone(), size: 1 };
            let bundle = Bundle {
                api_version: String::new(),
                kind: String::new(),
                from: "00".repeat(32),
                to: "11".repeat(32),
                name: String::new(),
                version: String::new(),
                files: vec![file],
            };
            bundle.foreign_path().is_some()
        };
        let release = format!("releases/{}", "11".repeat(32));
        assert!(!foreign(&digest.store_path()));
        assert!(!foreign(&format!("{release}/release.json")));
        for path in [
            format!("store/sha256/{}", "cd".repeat(32)),
            format!("releases/{}/release.json", "00".repeat(32)),
            format!("{release}/../../ledger.json"),
            format!("{release}/a/b"),
            format!("{release}/.hidden"),
            format!("{release}/"),
            "/etc/passwd".to_owned(),
            String::new(),
        ] {
            assert!(foreign(&path), "{path}");
        }
    }
}
