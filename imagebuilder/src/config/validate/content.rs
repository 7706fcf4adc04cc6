//! `content`: what the image carries.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

use agent_api::release::Digest;

use super::{Exists, Validate};
use crate::config::appliance::{Chart, ChartOrigin, Content, Origin, OsImage, OsImageSource, ServedFile};
use crate::config::input::{self, DiskFormat};
use crate::config::path::KeyPath;
use crate::config::types::{ImageReference, Invalid, Name};

/// Name of a recipe in its directory.
const OS_RECIPE: &str = "os-image.yaml";

impl Validate<'_, '_, '_> {
    pub(super) fn content(&mut self, input: &input::Content) -> Content {
        let path = KeyPath::of("content");
        let images = self.images(input.images.as_deref().unwrap_or_default(), &path.key("images"));
        let none = BTreeMap::new();
        let registries = self.registries(input.registries.as_ref().unwrap_or(&none), &path.key("registries"));
        let closure = input.closure.unwrap_or_default();
        let debian = path.key("packages").key("debian");
        let debian_packages = self.each(&debian, input.packages.debian.as_deref(), debian_package);
        let manifests = input.manifests.iter().flatten().enumerate();
        let manifests: Vec<_> = manifests
            .filter_map(|(i, text)| self.existing(&path.key("manifests").index(i), text, Exists::Any))
            .collect();
        let not_images = self.each(&path.key("notImages"), input.not_images.as_deref(), not_an_image);
        let mut content =
            Content { images, registries, closure, not_images, debian_packages, manifests, ..Content::default() };
        for (i, image) in input.os_images.iter().flatten().enumerate() {
            content.os_images.extend(self.os_image(image, &path.key("osImages").index(i)));
        }
        content.charts = self.charts(input.charts.as_deref().unwrap_or_default(), &path.key("charts"));
        for (i, file) in input.files.iter().flatten().enumerate() {
            content.files.extend(self.file(file, &path.key("files").index(i)));
        }
        let names: Vec<&str> = content.os_images.iter().map(|image| image.name.as_str()).collect();
        self.each_once(&path.key("osImages"), &names);
        let names: Vec<&str> = content.files.iter().map(|file| file.name.as_str()).collect();
        self.each_once(&path.key("files"), &names);
        content
    }

    fn charts(&mut self, input: &[input::Chart], path: &KeyPath) -> Vec<Chart> {
        let mut charts: Vec<Chart> = Vec::new();
        for (i, chart) in input.iter().enumerate() {
            let path = path.index(i);
            let name = self.parse(&path.key("name"), chart.name.as_deref(), release_name);
            let namespace = self.parse(&path.key("namespace"), chart.namespace.as_deref(), Name::from_str);
            let from = chart.chart.as_deref().and_then(|from| self.chart(&path.key("chart"), from));
            let values = chart.values.as_deref().map(|file| self.existing(&path.key("values"), file, Exists::File));
            if let Some(name) = name.as_ref().filter(|name| charts.iter().any(|chart| chart.name == **name)) {
                let found = format!("two charts are named `{name}`");
                let hint = "the name is that of the Helm release: give each its own";
                self.findings.at(&path.key("name"), &found, "a name that no other chart has", hint);
            }
            if let (Some(name), Some(namespace), Some(chart)) = (name, namespace, from) {
                charts.push(Chart { name, namespace, chart, values: values.flatten() });
            }
        }
        charts
    }

    fn chart(&mut self, path: &KeyPath, text: &str) -> Option<ChartOrigin> {
        if text.starts_with("oci://") {
            return self.parse(path, Some(text), registry_chart).map(ChartOrigin::Registry);
        }
        let chart = self.existing(path, text, Exists::Any)?;
        if is_gzip(&chart) || chart.join("Chart.yaml").is_file() {
            return Some(ChartOrigin::Path(chart));
        }
        let found = format!("`{text}` is no chart");
        let expected = "a directory with a `Chart.yaml`, a `.tgz` that `helm package` or `helm pull` made, or \
                        `oci://REGISTRY/CHART:VERSION`";
        self.findings.at(path, &found, expected, "`helm pull --untar` fetches a chart of a repository");
        None
    }

    fn os_image(&mut self, input: &input::OsImage, path: &KeyPath) -> Option<OsImage> {
        let name = self.parse(&path.key("name"), input.name.as_deref(), Name::from_str);
        let origin =
            self.origin(path, input.from.as_deref(), input.url.as_deref(), input.sha256.as_deref(), Exists::Any)?;
        let source = match origin {
            Origin::Path { path: directory } if directory.is_dir() => {
                self.recipe(&path.key("from"), &directory);
                let mut formats = input.formats.clone().unwrap_or_else(|| vec![DiskFormat::Qcow2]);
                formats.sort_unstable();
                formats.dedup();
                if formats.is_empty() {
                    let found = "the image is made in no format";
                    self.findings.at(&path.key("formats"), found, "`qcow2`, `raw` or both", "leave it away for qcow2");
                }
                OsImageSource::Recipe { directory, formats }
            }
            origin => {
                if input.formats.is_some() {
                    let found = format!("{origin} is ready-made: its format is what it is");
                    let expected = "`formats` only with a recipe";
                    self.findings.at(&path.key("formats"), &found, expected, "remove `formats`");
                }
                OsImageSource::File { origin }
            }
        };
        Some(OsImage { name: name?, source })
    }

    fn recipe(&mut self, path: &KeyPath, directory: &Path) {
        if !directory.join(OS_RECIPE).is_file() {
            let found = format!("`{}` has no `{OS_RECIPE}`", directory.display());
            let expected = "an image file, or a directory with a recipe";
            self.findings.at(path, &found, expected, "`images/os/rescue` is a recipe to start from");
        }
    }

    fn file(&mut self, input: &input::File, path: &KeyPath) -> Option<ServedFile> {
        let name = self.parse(&path.key("name"), input.name.as_deref(), served_name);
        let origin =
            self.origin(path, input.from.as_deref(), input.url.as_deref(), input.sha256.as_deref(), Exists::File)?;
        Some(ServedFile { name: name?, origin })
    }

    /// Exactly one of `from` and `url`, and `sha256` with the latter.
    fn origin(
        &mut self,
        path: &KeyPath,
        from: Option<&str>,
        url: Option<&str>,
        sha256: Option<&str>,
        wanted: Exists,
    ) -> Option<Origin> {
        let digest = sha256.and_then(|text| self.parse(&path.key("sha256"), Some(text), sha256_hex));
        match (from, url) {
            (Some(from), None) => {
                if sha256.is_some() {
                    let found = "a digest beside a path";
                    let expected = "`sha256` only with `url`";
                    self.findings.at(
                        &path.key("sha256"),
                        found,
                        expected,
                        "remove it: the lock holds the file's digest",
                    );
                }
                self.existing(&path.key("from"), from, wanted).map(|path| Origin::Path { path })
            }
            (None, Some(url)) => {
                let url = self.parse(&path.key("url"), Some(url), file_url);
                if sha256.is_none() {
                    let hint = "`sha256sum` of the file as its maker publishes it";
                    self.findings.at(&path.key("url"), "a URL without `sha256`", "`url` and `sha256`", hint);
                }
                Some(Origin::Url { url: url?, sha256: digest? })
            }
            (Some(_), Some(_)) => {
                let found = "`from` and `url` at once";
                self.findings.at(&path.key("url"), found, "one of them", "remove the one that is not meant");
                None
            }
            (None, None) => {
                let hint = "`from: PATH`, or `url: https://...` with its `sha256`";
                self.findings.at(path, "it comes from nowhere", "`from`, or `url` and `sha256`", hint);
                None
            }
        }
    }

    fn each_once(&mut self, path: &KeyPath, names: &[&str]) {
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                let found = format!("`{name}` stands here twice");
                self.findings.at(path, &found, "each name once", "rename one of them");
            }
        }
    }
}

/// The name of a Helm release: a DNS label of 53 characters at most (Helm, `ValidateReleaseName`), so that charts can add to
/// it.
fn release_name(text: &str) -> Result<Name, Invalid> {
    const MOST: usize = 53;
    let expected = "a DNS label (a-z, 0-9 and `-` inside, at most 53)";
    let invalid = |hint: String| Invalid { expected: expected.to_owned(), hint };
    if text.len() > MOST {
        return Err(invalid(format!("shorten it by {} characters", text.len() - MOST)));
    }
    Name::from_str(text).map_err(|error| invalid(error.hint))
}

/// Whether a file is packed with gzip (RFC 1952, 2.3.1). Helm knows its archives by that and not by their names.
fn is_gzip(file: &Path) -> bool {
    let mut start = [0; 3];
    let read = fs_err::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == [0x1f, 0x8b, 0x08]
}

/// `oci://REGISTRY/CHART:VERSION`. A tag has no `+`: Helm writes `_` for that of a version.
fn registry_chart(text: &str) -> Result<ImageReference, Invalid> {
    let reference = text.strip_prefix("oci://").unwrap_or(text).replace('+', "_");
    reference.parse().map_err(|invalid: Invalid| {
        let expected = "a chart of a registry such as `oci://registry.example/charts/web:1.2.0`";
        Invalid { expected: expected.to_owned(), hint: invalid.hint }
    })
}

/// A path below `files/` that means the same in a URL and on every file system.
fn served_name(text: &str) -> Result<String, Invalid> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"._-+~/@=,:".contains(&b);
    let part = |part: &str| !matches!(part, "" | "." | "..");
    if text.len() <= 255 && text.bytes().all(inner) && text.split('/').all(part) {
        return Ok(text.to_owned());
    }
    Err(Invalid {
        expected: "a relative path of letters, digits and `._-+~@=,:`, without empty parts and `..`".to_owned(),
        hint: "for example `tools/probe.tar`".to_owned(),
    })
}

fn sha256_hex(text: &str) -> Result<Digest, Invalid> {
    Digest::from_hex(text).map_err(|_| Invalid {
        expected: "64 lower-case hex digits".to_owned(),
        hint: "the first word that `sha256sum` prints".to_owned(),
    })
}

fn file_url(text: &str) -> Result<String, Invalid> {
    let schemes = ["https://", "http://", "file:///"];
    let good = schemes.iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    if good && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(Invalid {
        expected: "a URL that begins with `https://`, `http://` or `file:///`".to_owned(),
        hint: "for a file beside the definition use `from: PATH`".to_owned(),
    })
}

/// A text, or a part of it with `*` for the rest.
fn not_an_image(text: &str) -> Result<String, Invalid> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(Invalid {
        expected: "a text as objects have it, in which `*` stands for anything".to_owned(),
        hint: "for example `example.org/policy:*`".to_owned(),
    })
}

/// `NAME` or `NAME=VERSION` (Debian Policy, 5.6.1 and 5.6.12).
fn debian_package(text: &str) -> Result<String, Invalid> {
    let (name, version) = text.split_once('=').map_or((text, None), |(name, version)| (name, Some(version)));
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    let in_version = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.' | b'~' | b':');
    let good_name = name.len() >= 2 && name.bytes().all(inner) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let good_version =
        version.is_none_or(|text| text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(in_version));
    if good_name && good_version {
        return Ok(text.to_owned());
    }
    Err(Invalid {
        expected: "the name of a Debian package, with or without `=VERSION`".to_owned(),
        hint:
            "names have lower-case letters, digits, `+`, `-` and `.`; versions are those that `apt-cache policy NAME` \
               shows: `lldpd`, or `lldpd=` and one of them"
                .to_owned(),
    })
}
