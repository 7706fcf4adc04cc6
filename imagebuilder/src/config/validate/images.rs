//! `content.images` and `content.registries`: which container images, and how their registries are reached.

use std::collections::BTreeMap;
use std::str::FromStr;

use agent_api::image::ImageName;

use super::kubernetes::is_url;
use super::{Exists, Validate};
use crate::config::appliance::{CarriedImage, RegistryAccess};
use crate::config::input;
use crate::config::path::KeyPath;
use crate::config::types::ImageReference;

/// What a folder with an image must hold.
const IN_A_FOLDER: [&str; 2] = ["oci-layout", "image.yaml"];

impl Validate<'_, '_, '_> {
    pub(super) fn images(&mut self, input: &[input::CarriedImage], path: &KeyPath) -> Vec<CarriedImage> {
        let mut images: Vec<CarriedImage> = Vec::new();
        for (i, input) in input.iter().enumerate() {
            let path = path.index(i);
            let (name, from) = match input {
                input::CarriedImage::Reference(text) => (path.clone(), Some((Some(text.as_str()), None))),
                input::CarriedImage::Here(here) => {
                    let from = here.from.as_deref().and_then(|from| self.image_file(from, &path.key("from")));
                    (path.key("name"), from.map(|from| (here.name.as_deref(), Some(from))))
                }
            };
            let Some((text, from)) = from else { continue };
            let Some(reference) = self.parse(&name, text, ImageReference::from_str) else { continue };
            if images.iter().any(|other| other.reference == reference) {
                let found = format!("`{reference}` stands here a second time");
                self.findings.at(&name, &found, "each image once", "keep one of the two");
            } else {
                self.plain_name(&name, &reference, &images);
                images.push(CarriedImage { reference, from });
            }
        }
        images
    }

    fn image_file(&mut self, text: &str, path: &KeyPath) -> Option<std::path::PathBuf> {
        let from = self.existing(path, text, Exists::Any)?;
        if from.is_dir() && !IN_A_FOLDER.iter().any(|file| from.join(file).is_file()) {
            let found = format!("`{text}` holds neither `oci-layout` nor `image.yaml`");
            self.findings.at(
                path,
                &found,
                "an OCI layout, an archive of an image, or a folder with a recipe",
                "`skopeo copy docker://REF oci:FOLDER` or `docker save -o FILE REF` makes one",
            );
            return None;
        }
        Some(from)
    }

    /// Without the host two images may have one name.
    fn plain_name(&mut self, path: &KeyPath, reference: &ImageReference, others: &[CarriedImage]) {
        let (name, same) = (reference.name(), |other: &ImageName| {
            let name = reference.name();
            other.path == name.path && other.tag == name.tag && name.tag.is_some()
        });
        if let Some(other) = others.iter().find(|other| same(other.reference.name())) {
            let plain = format!("{}:{}", name.path, name.tag.as_deref().unwrap_or_default());
            self.findings.warn(
                path,
                &format!("`{plain}` is also the name of `{}` without its registry", other.reference),
                "images that have different names without their registries",
                &format!("unless they are the same, the box serves both by their whole names, and none as `{plain}`"),
            );
        }
    }

    pub(super) fn registries(
        &mut self,
        input: &BTreeMap<String, input::RegistryAccess>,
        path: &KeyPath,
    ) -> BTreeMap<String, RegistryAccess> {
        let mut registries = BTreeMap::new();
        for (host, input) in input {
            let path = path.key(host);
            // Whatever is wrong with a host is wrong with a reference that begins with it.
            if format!("{host}/a:1").parse::<ImageName>().map(|name| name.host) != Ok(host.clone()) {
                let found = format!("`{host}` is not the registry of any reference");
                let hint = "for example `quay.io`, `docker.io` or `registry.example:5000`, without a scheme or a path";
                self.findings.at(&path, &found, "what references begin with, up to the first `/`", hint);
                continue;
            }
            let insecure = input.insecure.unwrap_or(false);
            let mirror = input.mirror.as_deref().and_then(|url| self.mirror(url, insecure, &path.key("mirror")));
            let ca = input.ca.as_deref().and_then(|file| self.existing(&path.key("ca"), file, Exists::File));
            registries.insert(host.clone(), RegistryAccess { mirror, ca, insecure });
        }
        registries
    }

    fn mirror(&mut self, url: &str, insecure: bool, path: &KeyPath) -> Option<String> {
        let url = url.trim_end_matches('/');
        if !is_url(url) {
            let found = format!("`{url}` is not a URL");
            self.findings.at(
                path,
                &found,
                "a URL with `http://` or `https://`",
                "for example `https://mirror.example`",
            );
            return None;
        }
        let plain = url.strip_prefix("http://");
        if plain.is_some_and(|rest| !insecure && !is_loopback(rest)) {
            let found = format!("`{url}` is plain HTTP: anybody on the way can change what comes");
            let hint = "write `https://...`, or `insecure: true` beside it";
            self.findings.at(path, &found, "HTTPS, or a server on this host", hint);
            return None;
        }
        Some(url.to_owned())
    }
}

/// Whether a host, with or without port and path, is this one.
pub fn is_loopback(host: &str) -> bool {
    let host = host.split('/').next().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.split(']').next())
        .unwrap_or_else(|| host.split(':').next().unwrap_or_default());
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
