//! `input` to [`Appliance`]: texts to newtypes, defaults, ranges, contradictions, files that must exist.
//!
//! Each section gives `None` when it cannot be used, after saying why; the other sections are checked all the same.

mod content;
mod first_boot;
mod image;
mod images;
mod kubernetes;

pub use self::images::is_loopback;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Findings;
use super::appliance::{Appliance, Budgets};
use super::input;
use super::path::KeyPath;
use super::services;
use super::types::{ByteSize, Invalid, Name, SecretReference, Version, parse_duration};

/// Nothing that boots is smaller: ESP and SITE alone take 128 MiB.
const LEAST_IMAGE: ByteSize = ByteSize::mib(192);
/// A control plane does not start in less.
const LEAST_MEMORY: ByteSize = ByteSize::mib(1024);
/// The appliance that `input` describes; paths in it are relative to `directory`.
pub(super) fn appliance(input: &input::Appliance, directory: &Path, findings: &mut Findings<'_>) -> Option<Appliance> {
    let mut check = Validate { directory, findings };
    let metadata = check.metadata(input.metadata.as_ref());
    let kubernetes = check.kubernetes(&input.kubernetes);
    let outputs = check.outputs(input.outputs.as_deref());
    let boot = check.boot(&input.boot);
    let first_boot = check.first_boot(&input.first_boot, &outputs);
    let content = check.content(&input.content);
    let mut services = services::check(&input.services, check.findings);
    if let (Some(clusters), Some(input), Some(own)) = (&mut services.clusters, &input.services.clusters, &kubernetes) {
        clusters.versions = check.cluster_versions(input, own);
    }
    let budgets = check.budgets(&input.budgets);
    let sign = input.sign.as_ref().and_then(|sign| check.sign(sign));
    let (name, version) = metadata?;
    Some(Appliance {
        directory: directory.to_owned(),
        name,
        version,
        kubernetes: kubernetes?,
        outputs,
        boot,
        first_boot,
        content,
        services,
        budgets,
        sign,
        site: None,
    })
}

struct Validate<'d, 'f, 't> {
    directory: &'d Path,
    findings: &'f mut Findings<'t>,
}

impl Validate<'_, '_, '_> {
    fn metadata(&mut self, input: Option<&input::Metadata>) -> Option<(Name, Version)> {
        let path = KeyPath::of("metadata");
        let input = input?;
        let name = self.parse(&path.key("name"), input.name.as_deref(), Name::from_str);
        let version = self.parse(&path.key("version"), input.version.as_deref(), Version::from_str);
        Some((name?, version?))
    }

    fn budgets(&mut self, input: &input::Budgets) -> Budgets {
        let path = KeyPath::of("budgets");
        let image = self.parse(&path.key("image"), input.image.as_deref(), ByteSize::from_str);
        let memory = self.parse(&path.key("memory"), input.memory.as_deref(), ByteSize::from_str);
        let ready_within = self.parse(&path.key("readyWithin"), input.ready_within.as_deref(), parse_duration);
        self.at_least(&path.key("image"), input.image.as_deref(), LEAST_IMAGE, "no image is that small");
        self.at_least(&path.key("memory"), input.memory.as_deref(), LEAST_MEMORY, "a cluster does not start in it");
        if let Some(time) = ready_within.filter(|time| !(10..=86_400).contains(&time.as_secs())) {
            let found = format!("{} s from power-on to ready", time.as_secs());
            self.findings.at(
                &path.key("readyWithin"),
                &found,
                "a time from `10s` to `24h`",
                "machines need about a minute",
            );
        }
        Budgets { image, memory, ready_within }
    }

    fn sign(&mut self, input: &input::Sign) -> Option<SecretReference> {
        let path = KeyPath::of("sign").key("key");
        let key = match SecretReference::from_str(input.key.as_deref()?) {
            Ok(key) => key,
            Err(invalid) => {
                self.findings.at_secret(&path, "this is not a reference to a key", invalid.expected, &invalid.hint);
                return None;
            }
        };
        match key {
            SecretReference::File(file) => {
                let text = file.to_string_lossy().into_owned();
                self.existing(&path, &text, Exists::File).map(SecretReference::File)
            }
            SecretReference::Env(_) => Some(key),
        }
    }

    fn each<T>(
        &mut self,
        path: &KeyPath,
        list: Option<&[String]>,
        read: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Vec<T> {
        let list = list.unwrap_or_default().iter().enumerate();
        list.filter_map(|(i, text)| {
            let path = path.index(i);
            self.parse(&path, Some(text), &read)
        })
        .collect()
    }

    fn parse<T>(
        &mut self,
        path: &KeyPath,
        text: Option<&str>,
        read: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        self.findings.parse(path, text?, read)
    }

    /// An error when a size, in the words of the definition, is less than that.
    fn at_least(&mut self, path: &KeyPath, text: Option<&str>, least: ByteSize, why: &str) {
        if let Some((text, size)) = text.and_then(|text| Some((text, ByteSize::from_str(text).ok()?)))
            && size < least
        {
            let found = format!("`{text}` is too small: {why}");
            self.findings.at(path, &found, format!("at least {least}"), "give a larger size");
        }
    }

    /// The path as seen from the working directory, if what must be there is there.
    fn existing(&mut self, path: &KeyPath, text: &str, wanted: Exists) -> Option<PathBuf> {
        let file = self.directory.join(text);
        let good = match wanted {
            Exists::File => file.is_file(),
            Exists::Directory => file.is_dir(),
            Exists::Any => file.exists(),
        };
        if good && !text.is_empty() {
            return Some(file);
        }
        let is_url = text.contains("://");
        let found = match (file.exists(), wanted) {
            _ if is_url => format!("`{text}` is a URL"),
            (true, Exists::File) => format!("`{text}` is not a file"),
            (true, Exists::Directory) => format!("`{text}` is not a directory"),
            (true | false, _) => format!("there is no `{text}`"),
        };
        let expected = match wanted {
            Exists::File => "a file",
            Exists::Directory => "a directory",
            Exists::Any => "a file or directory",
        };
        let hint = if is_url {
            "download it beside the definition, and name it there"
        } else {
            "correct the path, or put it there"
        };
        self.findings.at(path, &found, format!("{expected}, relative to this definition"), hint);
        None
    }
}

/// What must be at a path.
#[derive(Clone, Copy)]
enum Exists {
    File,
    Directory,
    Any,
}
