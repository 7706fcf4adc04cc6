//! `content` and `services`: what the image carries and what the box offers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Exists, Validate};
use crate::config::appliance::{Content, FileToCopy, Provisioning, Services};
use crate::config::input;
use crate::config::path::Path;
use crate::config::site::is_mac;
use crate::config::types::{ByteSize, Invalid, Name};

impl Validate<'_, '_, '_> {
    pub(super) fn services(&mut self, input: &input::Services) -> Services {
        let path = Path::of("services");
        let registry = input.registry.as_ref().and_then(|registry| registry.writable.as_deref());
        let registry_writable = self.parse(&path.key("registry").key("writable"), registry, ByteSize::from_str);
        let provisioning = input.provisioning.as_ref().map(|input| self.provisioning(input, &path.key("provisioning")));
        let ntp_serve = input.ntp.as_ref().and_then(|ntp| ntp.serve).unwrap_or(true);
        Services { ntp_serve, registry_writable, provisioning }
    }

    pub(super) fn provisioning(&mut self, input: &input::Provisioning, path: &Path) -> Provisioning {
        let interface = input.interface.as_ref();
        let mac_address = interface.and_then(|interface| interface.mac_address.clone());
        if let Some(mac) = mac_address.as_deref().filter(|mac| !is_mac(mac)) {
            let found = format!("`{mac}` is not a MAC address");
            let expected = "six pairs of hex digits such as \"52:54:00:12:34:56\"";
            self.findings.at(
                &path.key("interface").key("macAddress"),
                &found,
                expected,
                "it stands on the label of the machine",
            );
        }
        let range = input.range.as_deref().and_then(|text| {
            let range = text
                .split_once('-')
                .and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
            let range = range.filter(|(first, last): &(Ipv4Addr, Ipv4Addr)| first <= last);
            if range.is_none() {
                let found = format!("`{text}` is not a range of addresses");
                self.findings.at(
                    &path.key("range"),
                    &found,
                    "first and last address",
                    "for example `172.22.0.10-172.22.0.100`",
                );
            }
            range
        });
        Provisioning { mac_address, interface: interface.and_then(|interface| interface.name.clone()), range }
    }

    pub(super) fn content(&mut self, input: &input::Content) -> Content {
        let path = Path::of("content");
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
        let mut content = Content { images, registries, closure, debian_packages, manifests, ..Content::default() };
        for (i, image) in input.os_images.iter().flatten().enumerate() {
            let path = path.key("osImages").index(i);
            let name = self.parse(&path.key("name"), image.name.as_deref(), Name::from_str);
            let from = image.from.as_deref().and_then(|from| self.existing(&path.key("from"), from, Exists::Any));
            content.os_images.extend(name.zip(from));
        }
        for (i, file) in input.files.iter().flatten().enumerate() {
            content.files.extend(self.file(file, &path.key("files").index(i)));
        }
        content
    }

    pub(super) fn file(&mut self, input: &input::File, path: &Path) -> Option<FileToCopy> {
        let target = PathBuf::from(input.path.as_deref()?);
        if !target.is_absolute() || target.components().any(|part| part == std::path::Component::ParentDir) {
            let found = format!("`{}` is not an absolute path", target.display());
            self.findings.at(
                &path.key("path"),
                &found,
                "a path on the box, beginning with `/`, without `..`",
                "for example `/etc/motd`",
            );
        }
        let text = input.mode.as_deref().unwrap_or("0644");
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
        if mode.is_none() {
            let found = format!("`{text}` are not permissions");
            self.findings.at(&path.key("mode"), &found, "three or four octal digits, quoted", "for example \"0644\"");
        }
        let from = self.existing(&path.key("from"), input.from.as_deref()?, Exists::File)?;
        Some(FileToCopy { path: target, from, mode: mode? })
    }
}

fn debian_package(text: &str) -> Result<String, Invalid> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    let good = text.len() >= 2 && text.bytes().all(inner) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if good {
        return Ok(text.to_owned());
    }
    Err(Invalid {
        expected: "the name of a Debian package".to_owned(),
        hint: "names have lower-case letters, digits, `+`, `-` and `.`; versions are kept in the lock".to_owned(),
    })
}
