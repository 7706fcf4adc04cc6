//! Finding Site: on a volume labelled `SITE` or `CIDATA`, on the kernel command line, as stored by
//! REST, or as delivered with the appliance. The first found wins.

use std::fmt;
use std::path::Path;

use agent_api::site::{Site, SiteError};
use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Machine;
use crate::host::{block, label, mount};

/// Name of the file on a volume.
const FILE: &str = "site.yaml";
/// Labels of volumes that may hold it.
const LABELS: [&str; 2] = ["SITE", "CIDATA"];
/// Kernel parameter that holds it in base64url.
const PARAMETER: &str = "foothold.site";
/// What REST stored.
pub const STORED: &str = "/var/lib/foothold/site.yaml";
/// What came with the appliance.
const DELIVERED: &str = "/usr/share/foothold/site.yaml";
/// Where a volume is looked into.
const MOUNT: &str = "/run/foothold/site";

/// Where Site was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the volume with that label, on that device.
    Volume(String, String),
    /// On the kernel command line.
    CommandLine,
    /// Stored by REST.
    Stored,
    /// Delivered with the appliance.
    Delivered,
    /// Nowhere: everything is as by default.
    Nowhere,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(label, device) => write!(f, "volume `{label}` ({device})"),
            Self::CommandLine => f.write_str("kernel command line"),
            Self::Stored => f.write_str("sent by REST"),
            Self::Delivered => f.write_str("delivered with the appliance"),
            Self::Nowhere => f.write_str("none"),
        }
    }
}

/// Site, and where it is from.
pub fn find(machine: &Machine) -> anyhow::Result<(Site, Origin)> {
    let Some((text, origin)) = text(machine)? else { return Ok((Site::default(), Origin::Nowhere)) };
    let site = parse(&text).with_context(|| format!("reading `{FILE}` ({origin})"))?;
    Ok((site, origin))
}

fn parse(text: &str) -> Result<Site, SiteError> {
    Site::parse(text)
}

fn text(machine: &Machine) -> anyhow::Result<Option<(String, Origin)>> {
    for (device, label) in volumes(&machine.at("/sys/block"), &machine.at("/dev")) {
        if let Some(text) = on_volume(machine, &device)? {
            return Ok(Some((text, Origin::Volume(label, device))));
        }
    }
    if let Some(value) = machine.parameter(PARAMETER) {
        let bytes = URL_SAFE_NO_PAD.decode(value.trim_end_matches('='));
        let bytes = bytes.with_context(|| format!("`{PARAMETER}=` on the kernel command line is not base64url"))?;
        return Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), Origin::CommandLine)));
    }
    for (path, origin) in [(STORED, Origin::Stored), (DELIVERED, Origin::Delivered)] {
        match fs_err::read_to_string(machine.at(path)) {
            Ok(text) => return Ok(Some((text, origin))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Devices with one of the labels, `SITE` before `CIDATA`.
fn volumes(sys_block: &Path, dev: &Path) -> Vec<(String, String)> {
    let disks = block::list(sys_block).unwrap_or_default();
    let mut found = Vec::new();
    for disk in &disks {
        let partitions = disk.partitions.iter().map(|partition| &partition.name);
        for name in std::iter::once(&disk.name).chain(partitions) {
            if let Some(label) = label::of_fat(&dev.join(name)).filter(|label| LABELS.contains(&label.as_str())) {
                found.push((name.clone(), label));
            }
        }
    }
    found.sort_by_key(|(_, label)| LABELS.iter().position(|known| known == label));
    found
}

fn on_volume(machine: &Machine, device: &str) -> anyhow::Result<Option<String>> {
    let target = machine.at(MOUNT);
    let node = block::node(device);
    mount::mount("vfat", &node.to_string_lossy(), &target, mount::MountOptions::read_only(""))?;
    let text = fs_err::read_to_string(target.join(FILE));
    mount::unmount(&target, true)?;
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading from volume {device}")),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::{Origin, find};
    use crate::host::runner::FakeRunner;
    use crate::machine::tests::machine;

    #[test]
    fn the_first_found_wins_and_a_wrong_one_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let site = |name: &str| format!("apiVersion: foothold.dev/v1\nkind: Site\nhostname: {name}\n");
        let box_ = machine(dir.path(), FakeRunner::default());
        assert_eq!(find(&box_).expect("nothing").1, Origin::Nowhere);
        fs_err::create_dir_all(dir.path().join("var/lib/foothold")).expect("a directory");
        fs_err::write(dir.path().join("var/lib/foothold/site.yaml"), site("stored")).expect("a file");
        let (found, origin) = find(&box_).expect("stored");
        assert_eq!((found.hostname.as_deref(), origin), (Some("stored"), Origin::Stored));
        let line = format!("foothold.site={}", URL_SAFE_NO_PAD.encode(site("line")));
        let with_line = crate::first_boot::Machine::new(
            dir.path(),
            std::sync::Arc::new(FakeRunner::default()),
            box_.release().clone(),
            box_.facts().clone(),
            line,
        );
        assert_eq!(find(&with_line).expect("line").0.hostname.as_deref(), Some("line"));
        fs_err::write(dir.path().join("var/lib/foothold/site.yaml"), "hostname: [").expect("a file");
        let error = format!("{:#}", find(&box_).expect_err("wrong"));
        assert!(error.contains("sent by REST"), "{error}");
    }
}
