//! Names of elements and package URLs.

use std::fmt::Write as _;

use agent_api::release::Image;

use crate::store::hash;

/// Letters of a name that go into an id.
const MOST_LETTERS: usize = 80;

/// The id of an element: readable, and another for everything that differs (SPDX 2.3, 7.2: letters, digits, `.`, `-`).
pub fn id(kind: &str, name: &str, version: &str, sha256: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    let readable: String = name.chars().map(letter).take(MOST_LETTERS).collect();
    let whole = hash::bytes(format!("{kind}\n{name}\n{version}\n{sha256}").as_bytes());
    format!("SPDXRef-{kind}-{readable}-{}", &whole.hex()[..12])
}

/// A path within a package URL: everything but letters, digits, `.`, `-`, `_`, `~` and `/` in percent.
pub fn path_purl(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b".-_~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// `pkg:oci/app@sha256%3A...?repository_url=quay.io/org/app&tag=1.2`.
pub fn oci_purl(image: &Image) -> String {
    let (whole, digest) = image.reference.split_once('@').unwrap_or((&image.reference, ""));
    let (repository, tag) = match whole.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (whole, ""),
    };
    let name = repository.rsplit('/').next().unwrap_or(repository).to_lowercase();
    let manifest = image.manifest.hex();
    let mut purl = format!("pkg:oci/{}@sha256%3A{manifest}?repository_url={}", path_purl(&name), path_purl(repository));
    if digest.is_empty() && !tag.is_empty() {
        let _ = write!(purl, "&tag={}", path_purl(tag));
    }
    purl
}

#[cfg(test)]
mod tests {
    use agent_api::release::{Digest, Image};

    use super::{id, oci_purl, path_purl};

    #[test]
    fn ids_have_the_letters_of_the_specification_and_differ() {
        let first = id("Go", "github.com/a/b_c~d", "v1", "");
        assert!(first.starts_with("SPDXRef-Go-github.com-a-b-c-d-"), "{first}");
        assert_ne!(first, id("Go", "github.com/a/b-c-d", "v1", ""));
        assert_ne!(first, id("Go", "github.com/a/b_c~d", "v2", ""));
    }

    #[test]
    fn package_urls_of_images_name_registry_tag_and_digest() {
        let digest = Digest::from_hex(&"ab".repeat(32)).expect("a digest");
        let purl = |reference: &str| {
            let image = Image {
                reference: reference.to_owned(),
                index: None,
                inner: Vec::new(),
                manifest: digest.clone(),
                blobs: Vec::new(),
            };
            oci_purl(&image).replace(&"ab".repeat(32), "AB")
        };
        assert_eq!(purl("quay.io/org/app:1.2"), "pkg:oci/app@sha256%3AAB?repository_url=quay.io/org/app&tag=1.2");
        assert_eq!(purl("box:5000/app"), "pkg:oci/app@sha256%3AAB?repository_url=box%3A5000/app");
        assert_eq!(purl("a.example/x@sha256:00"), "pkg:oci/x@sha256%3AAB?repository_url=a.example/x");
        assert_eq!(path_purl("a+b c"), "a%2Bb%20c");
    }
}
