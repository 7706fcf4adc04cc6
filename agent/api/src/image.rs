//! Names of container images, read as container runtimes read them.
//!
//! ```text
//! nginx                     docker.io / library/nginx : latest
//! org/app:1.2               docker.io / org/app       : 1.2
//! box:5000/org/app:1.2      box:5000  / org/app       : 1.2
//! quay.io/org/app@sha256:.. quay.io   / org/app       @ sha256:..
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::release::{Digest, Image};

/// Host of names that begin with none.
pub const DEFAULT_HOST: &str = "docker.io";
/// Tag of names that have neither tag nor digest.
const DEFAULT_TAG: &str = "latest";

/// A name, every part of it given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    /// Registry: a host, with `:port` if it has one.
    pub host: String,
    /// Repository.
    pub path: String,
    /// Tag. There is a tag, a digest, or both; then the digest decides.
    pub tag: Option<String>,
    /// Digest of the index or manifest.
    pub digest: Option<Digest>,
}

/// A text that names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an image")]
pub struct InvalidImageName(String);

impl FromStr for ImageName {
    type Err = InvalidImageName;

    fn from_str(text: &str) -> Result<Self, InvalidImageName> {
        let invalid = || InvalidImageName(text.to_owned());
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let first = name.split_once('/');
        let (host, rest) = match first.filter(|(host, _)| host.contains(['.', ':']) || *host == "localhost") {
            Some(("index.docker.io", rest)) => (DEFAULT_HOST, rest),
            Some((host, rest)) => (host, rest),
            None => (DEFAULT_HOST, name),
        };
        let (path, tag) = rest.rsplit_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
        let good_tag = tag.is_none_or(|tag| is_word(tag, |b| b.is_ascii_alphanumeric()));
        if !is_host(host)
            || !path.split('/').all(|part| is_word(part, |b| b.is_ascii_lowercase() || b.is_ascii_digit()))
            || !good_tag
        {
            return Err(invalid());
        }
        let library = host == DEFAULT_HOST && !path.contains('/');
        let tag = tag.or(digest.is_none().then_some(DEFAULT_TAG)).map(str::to_owned);
        let path = if library { format!("library/{path}") } else { path.to_owned() };
        Ok(Self { host: host.to_owned(), path, tag, digest })
    }
}

/// A name or an address, IPv6 in brackets, with or without a port.
fn is_host(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']'))
}

/// Letters as `letter` has them, and `.`, `_`, `-` where no word begins.
fn is_word(text: &str, letter: impl Fn(u8) -> bool) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| letter(b) || b == b'_') && bytes.all(|b| letter(b) || matches!(b, b'.' | b'_' | b'-'))
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl Image {
    /// What a pull by tag gives: the index, where there is one, or the manifest.
    pub fn top(&self) -> &Digest {
        self.index.as_ref().unwrap_or(&self.manifest)
    }
}

/// The images by their plain names, `<path>:<tag>` without a host. `None`: images of several registries have that path
/// and tag and are not the same, so that the plain name stands for none of them. Names that cannot be read are left out.
pub fn plain_names(images: &[Image]) -> BTreeMap<String, Option<&Image>> {
    let mut names: BTreeMap<String, Option<&Image>> = BTreeMap::new();
    for image in images {
        let Ok(ImageName { path, tag: Some(tag), .. }) = image.reference.parse() else { continue };
        let other = names.entry(format!("{path}:{tag}")).or_insert(Some(image));
        if other.is_some_and(|other| other.top() != image.top()) {
            *other = None;
        }
    }
    names
}

/// Whether a text is as a pattern says, in which `*` stands for any characters: part of a registry's host in docker's
/// `auths`, an image in `content.notImages`.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{ImageName, plain_names};
    use crate::release::{Digest, Image};

    fn whole(text: &str) -> String {
        text.parse::<ImageName>().map_or_else(|error| error.to_string(), |name| name.to_string())
    }

    #[test]
    fn a_name_is_read_as_container_runtimes_read_it() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (text, expected) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("org/app:1.2", "docker.io/org/app:1.2"),
            ("docker.io/nginx:1", "docker.io/library/nginx:1"),
            ("index.docker.io/library/nginx:1", "docker.io/library/nginx:1"),
            ("box:5000/app", "box:5000/app:latest"),
            ("localhost/app:1", "localhost/app:1"),
            ("quay.io/org/app:1_A.b-c", "quay.io/org/app:1_A.b-c"),
        ] {
            assert_eq!(whole(text), expected);
            assert_eq!(whole(expected), expected, "the whole name stands for itself");
        }
        assert_eq!(whole(&format!("quay.io/a@{digest}")), format!("quay.io/a@{digest}"));
        assert_eq!(whole(&format!("a:1@{digest}")), format!("docker.io/library/a:1@{digest}"));
        for text in
            ["", "Quay.io/Org/App", "a//b", "a:b:c/", "a@sha256:12", "a:", "{{ image }}", "/a", "a b", "../a", "a.b /c"]
        {
            assert_eq!(whole(text), format!("`{text}` is not the name of an image"));
        }
    }

    #[test]
    fn a_plain_name_that_stands_for_two_images_stands_for_none() {
        let image = |reference: &str, digit: char| Image {
            reference: reference.into(),
            index: None,
            inner: Vec::new(),
            manifest: Digest::from_hex(&digit.to_string().repeat(64)).expect("a digest"),
            blobs: Vec::new(),
        };
        let images = [
            image("docker.io/org/app:1", '1'),
            image("quay.io/org/app:1", '2'),
            image("quay.io/org/app:2", '2'),
            image("a.example/org/same:1", '3'),
            image("b.example/org/same:1", '3'),
        ];
        let names = plain_names(&images);
        let stands_for = |name: &str| names[name].map(|image| image.reference.as_str());
        assert_eq!(stands_for("org/app:1"), None);
        assert_eq!(stands_for("org/app:2"), Some("quay.io/org/app:2"));
        assert_eq!(stands_for("org/same:1"), Some("a.example/org/same:1"));
    }
}
