//! What the release's images are called and what they are made of. Pure.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::image::{ImageName, plain_names};
use agent_api::release::{Digest, Image};

/// One repository: its tags, its manifests and its other blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repository {
    /// What each tag means: an index, or the manifest of the box's platform.
    pub tags: BTreeMap<String, Digest>,
    /// Indexes and manifests.
    pub manifests: BTreeSet<Digest>,
    /// Configurations and layers.
    pub layers: BTreeSet<Digest>,
}

/// Everything that the release carries, by name of the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Repositories.
    pub repositories: BTreeMap<String, Repository>,
    /// Size of every blob.
    pub sizes: BTreeMap<Digest, u64>,
}

impl Catalog {
    /// The catalog of these images. Each is listed under its whole name, and under its path alone where no other image
    /// has the same. By digest all are found under either.
    pub fn new(images: &[Image]) -> Self {
        let mut catalog = Self::default();
        let plain = plain_names(images);
        for image in images {
            let Ok(ImageName { host, path, tag, .. }) = image.reference.parse() else { continue };
            catalog.sizes.extend(image.blobs.iter().map(|blob| (blob.digest.clone(), blob.size)));
            let plain_tag = tag.clone().filter(|tag| plain.get(&format!("{path}:{tag}")).is_some_and(Option::is_some));
            for (repository, tag) in [(format!("{host}/{path}"), tag), (path, plain_tag)] {
                catalog.repositories.entry(repository).or_default().add(tag, image);
            }
        }
        catalog
    }

    /// Bytes of a blob, if that repository has it.
    pub fn blob(&self, repository: &str, digest: &Digest) -> Option<u64> {
        let repository = self.repositories.get(repository)?;
        let known = repository.layers.contains(digest) || repository.manifests.contains(digest);
        self.sizes.get(digest).copied().filter(|_| known)
    }

    /// Digest of the index or manifest with that tag or digest in that repository.
    pub fn manifest(&self, repository: &str, reference: &str) -> Option<&Digest> {
        let repository = self.repositories.get(repository)?;
        match reference.parse::<Digest>() {
            Ok(digest) => repository.manifests.get(&digest),
            Err(_) => repository.tags.get(reference),
        }
    }

    /// Whether that repository has a tag, a manifest or a blob of that name from the release.
    pub fn has(&self, repository: &str, reference: &str) -> bool {
        let Some(repository) = self.repositories.get(repository) else { return false };
        let digest = reference.parse::<Digest>().ok();
        let known = |digest| repository.manifests.contains(digest) || repository.layers.contains(digest);
        repository.tags.contains_key(reference) || digest.as_ref().is_some_and(known)
    }
}

impl Repository {
    fn add(&mut self, tag: Option<String>, image: &Image) {
        let carried = |digest: &Digest| image.blobs.iter().any(|blob| blob.digest == *digest);
        let index = image.index.as_ref().filter(|index| carried(index));
        let top = index.unwrap_or(&image.manifest).clone();
        let inner = image.inner.iter().filter(|index| carried(index));
        self.manifests.extend([&image.manifest].into_iter().chain(index).chain(inner).cloned());
        self.layers.extend(image.blobs.iter().map(|blob| blob.digest.clone()));
        self.layers.retain(|digest| !self.manifests.contains(digest));
        if let Some(tag) = tag {
            self.tags.insert(tag, top);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use agent_api::release::{Blob, Digest, Image};

    use super::Catalog;

    pub fn digest(letter: &str) -> Digest {
        Digest::from_hex(&letter.repeat(64)).expect("a digest")
    }

    /// An image whose blobs are named by letters: manifest, then the rest.
    pub fn image(reference: &str, index: Option<&str>, blobs: &[&str]) -> Image {
        Image {
            reference: reference.to_owned(),
            index: index.map(digest),
            inner: Vec::new(),
            manifest: digest(blobs[0]),
            blobs: blobs.iter().map(|letter| Blob { digest: digest(letter), size: 5 }).collect(),
        }
    }

    #[test]
    fn an_image_is_there_under_its_whole_name_and_its_path() {
        let catalog = Catalog::new(&[image("docker.io/library/nginx:1", Some("c"), &["a", "b", "c"])]);
        let names: Vec<_> = catalog.repositories.keys().map(String::as_str).collect();
        assert_eq!(names, ["docker.io/library/nginx", "library/nginx"]);
        let nginx = &catalog.repositories["library/nginx"];
        assert_eq!(nginx.tags["1"], digest("c"));
        assert_eq!(nginx.manifests.iter().collect::<Vec<_>>(), [&digest("a"), &digest("c")]);
        assert_eq!(nginx.layers.iter().collect::<Vec<_>>(), [&digest("b")]);
        assert_eq!(catalog.blob("library/nginx", &digest("b")), Some(5));
        assert_eq!(catalog.blob("library/nginx", &digest("d")), None);
        assert_eq!(catalog.blob("library/httpd", &digest("b")), None);
    }

    #[test]
    fn an_index_in_an_index_is_found_by_its_digest() {
        let nested = Image { inner: vec![digest("d")], ..image("quay.io/org/app:2", Some("c"), &["a", "b", "c", "d"]) };
        let catalog = Catalog::new(&[nested]);
        assert_eq!(catalog.manifest("org/app", "2"), Some(&digest("c")));
        assert_eq!(catalog.manifest("org/app", &digest("d").to_string()), Some(&digest("d")));
    }

    #[test]
    fn an_index_that_is_not_carried_is_not_promised() {
        let catalog = Catalog::new(&[image("quay.io/org/app:2", Some("f"), &["a", "b"])]);
        let app = &catalog.repositories["org/app"];
        assert_eq!(app.tags["2"], digest("a"));
        assert!(!app.manifests.contains(&digest("f")));
    }

    #[test]
    fn a_plain_name_of_two_images_is_found_by_digest_only() {
        let images = [image("quay.io/org/app:1", None, &["a"]), image("docker.io/org/app:1", None, &["b"])];
        let catalog = Catalog::new(&images);
        assert!(catalog.repositories["org/app"].tags.is_empty());
        assert_eq!(catalog.repositories["quay.io/org/app"].tags["1"], digest("a"));
        assert_eq!(catalog.repositories["docker.io/org/app"].tags["1"], digest("b"));
        assert_eq!(catalog.repositories["org/app"].manifests.len(), 2, "by digest both are there");
    }

    #[test]
    fn a_reference_that_names_no_image_is_left_out() {
        assert_eq!(
            Catalog::new(&[image("a.b/../c:1", None, &["a"]), image("../a:1", None, &["b"])]),
            Catalog::default()
        );
    }
}
