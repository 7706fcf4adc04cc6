//! What the release's images are called and what they are made of. Pure.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Of these images. Where two registries have a path in common, their images share the repository of that path;
    /// of one tag there, docker.io's is meant, else that of the first registry by name.
    pub fn new(images: &[Image]) -> Self {
        let mut catalog = Self::default();
        let mut named: Vec<(Name, &Image)> =
            images.iter().filter_map(|image| Some((Name::parse(&image.reference)?, image))).collect();
        named.sort_by_key(|(name, _)| (name.registry != "docker.io", name.registry.clone()));
        for (name, image) in &named {
            catalog.sizes.extend(image.blobs.iter().map(|blob| (blob.digest.clone(), blob.size)));
            for repository in [format!("{}/{}", name.registry, name.path), name.path.clone()] {
                catalog.repositories.entry(repository).or_default().add(name, image);
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
}

impl Repository {
    fn add(&mut self, name: &Name, image: &Image) {
        let carried = |digest: &Digest| image.blobs.iter().any(|blob| blob.digest == *digest);
        let index = image.index.as_ref().filter(|index| carried(index));
        let top = index.unwrap_or(&image.manifest).clone();
        self.manifests.extend([&image.manifest].into_iter().chain(index).cloned());
        self.layers.extend(image.blobs.iter().map(|blob| blob.digest.clone()));
        self.layers.retain(|digest| !self.manifests.contains(digest));
        if let Some(tag) = &name.tag {
            self.tags.entry(tag.clone()).or_insert(top);
        }
    }
}

/// A reference in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `docker.io`, `registry.example:5001`.
    pub registry: String,
    /// `library/nginx`.
    pub path: String,
    /// Tag, if it has one.
    pub tag: Option<String>,
}

impl Name {
    /// Reads a whole reference: `registry/path:tag`, `registry/path@digest`, or both.
    pub fn parse(reference: &str) -> Option<Self> {
        let without_digest = reference.split_once('@').map_or(reference, |(name, _)| name);
        let (registry, rest) = without_digest.split_once('/')?;
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag.to_owned())),
            None => (rest, None),
        };
        let is_part = |part: &str| {
            !matches!(part, "" | "." | "..") && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        let is_host = |part: &str| part.split(':').all(is_part);
        let good = is_host(registry) && path.split('/').all(is_part) && tag.as_deref().is_none_or(is_part);
        good.then(|| Self { registry: registry.to_owned(), path: path.to_owned(), tag })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use agent_api::release::{Blob, Digest, Image};

    use super::{Catalog, Name};

    pub fn digest(letter: &str) -> Digest {
        Digest::from_hex(&letter.repeat(64)).expect("a digest")
    }

    /// An image whose blobs are named by letters: manifest, then the rest.
    pub fn image(reference: &str, index: Option<&str>, blobs: &[&str]) -> Image {
        Image {
            reference: reference.to_owned(),
            index: index.map(digest),
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
    fn an_index_that_is_not_carried_is_not_promised() {
        let catalog = Catalog::new(&[image("quay.io/org/app:2", Some("f"), &["a", "b"])]);
        let app = &catalog.repositories["org/app"];
        assert_eq!(app.tags["2"], digest("a"));
        assert!(!app.manifests.contains(&digest("f")));
    }

    #[test]
    fn two_registries_share_a_path_and_docker_hub_has_the_tag() {
        let images = [image("quay.io/org/app:1", None, &["a"]), image("docker.io/org/app:1", None, &["b"])];
        let catalog = Catalog::new(&images);
        assert_eq!(catalog.repositories["org/app"].tags["1"], digest("b"));
        assert_eq!(catalog.repositories["quay.io/org/app"].tags["1"], digest("a"));
        assert_eq!(catalog.repositories["org/app"].manifests.len(), 2, "by digest both are there");
    }

    #[test]
    fn references_are_read_whole() {
        let name = |registry: &str, path: &str, tag: Option<&str>| {
            Some(Name { registry: registry.to_owned(), path: path.to_owned(), tag: tag.map(str::to_owned) })
        };
        let by_digest = format!("a.b:5001/c/d:1@{}", digest("a"));
        let table = [
            ("docker.io/library/nginx:1.2", name("docker.io", "library/nginx", Some("1.2"))),
            (&by_digest, name("a.b:5001", "c/d", Some("1"))),
            ("a.b/c@sha256:00", name("a.b", "c", None)),
            ("nginx", None),
            ("a.b/../c:1", None),
            ("../a:1", None),
        ];
        for (reference, expected) in table {
            assert_eq!(Name::parse(reference), expected, "{reference}");
        }
    }
}
