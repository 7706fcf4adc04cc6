//! What the agent does on a server, in the deploy ramdisk and in an OS image: its network, as Ironic handed it over, and its
//! clock.
//!
//! ```text
//! ramdisk   virtual medium (VMEDIA_BOOT_ISO, config-2) ─┬► openstack/latest/network_data.json ─network_data─► units of networkd
//! OS image  config drive (config-2) ────────────────────┘
//! ```
//! In an OS image cloud-init does the rest; of bonds and VLANs its renderer for networkd makes nothing.
//!
//! Without such a file on the medium every card asks DHCP, as the ramdisk's own settings have it. The medium may show up
//! some seconds after the disks: the agent waits until one of its names is there, or the time is over.

pub mod clock;
pub mod image;
pub mod network_data;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use self::network_data::NetworkData;
use crate::host::files;
use crate::host::mount::{self, MountOptions};

/// Labels that the medium may have: that of a disc of Ironic's, and that of one which brings network data.
const LABELS: [&str; 2] = ["VMEDIA_BOOT_ISO", "config-2"];
/// Where udev names volumes by their labels.
const BY_LABEL: &str = "/dev/disk/by-label";
/// The file on the medium (`OpenStack`'s metadata service).
const FILE: &str = "openstack/latest/network_data.json";
/// Where the medium is mounted while it is read.
const MOUNT: &str = "/run/foothold/network-medium";
/// How often it is looked whether the medium is there.
const LOOK: Duration = Duration::from_millis(100);
/// Where networkd looks first but for the administrator's own.
const UNITS: &str = "/run/systemd/network";

/// What `ramdisk-network` takes.
#[derive(Debug, Args)]
pub struct RamdiskNetwork {
    /// Where the units of systemd-networkd go.
    #[arg(long, value_name = "DIR", default_value = UNITS)]
    units: PathBuf,
    /// Read this file, not a medium.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How long the medium is waited for, in seconds.
    #[arg(long, value_name = "SECS", default_value = "60")]
    wait: u64,
}

impl RamdiskNetwork {
    /// Writes the units; returns what was done, as text for people.
    pub fn run(&self) -> anyhow::Result<String> {
        let text = if let Some(path) = &self.file {
            Some(fs_err::read_to_string(path)?)
        } else {
            let Some(node) = medium(Path::new(BY_LABEL), Duration::from_secs(self.wait))? else {
                return Ok(format!("no medium named `{}` within {} s: DHCP\n", LABELS.join("` or `"), self.wait));
            };
            read(&node)?
        };
        let Some(text) = text else { return Ok("the medium says nothing about the network: DHCP\n".to_owned()) };
        let units = units_of(&text, "10-ironic-")?;
        let mut told = String::new();
        for (name, text) in &units {
            files::write(&self.units.join(name), text.as_bytes(), files::PUBLIC)?;
            let _ = writeln!(told, "{}", self.units.join(name).display());
        }
        Ok(told)
    }
}

/// The units that the text of a file comes to.
fn units_of(text: &str, stem: &str) -> anyhow::Result<Vec<(String, String)>> {
    let value: Value = serde_json::from_str(text).with_context(|| format!("`{FILE}`"))?;
    NetworkData::read(&value).and_then(|data| data.units(stem)).with_context(|| format!("`{FILE}`"))
}

/// The medium's device, as soon as it is there; `None` if it is not within that time.
fn medium(by_label: &Path, within: Duration) -> anyhow::Result<Option<PathBuf>> {
    let begun = Instant::now();
    loop {
        let found = LABELS.iter().map(|label| by_label.join(label)).find(|link| link.exists());
        if found.is_some() || begun.elapsed() >= within {
            return Ok(found.map(fs_err::canonicalize).transpose()?);
        }
        crate::host::clock::pause(LOOK);
    }
}

/// The file on that medium; `None` if it has none.
fn read(node: &Path) -> anyhow::Result<Option<String>> {
    let (target, source) = (Path::new(MOUNT), node.to_string_lossy());
    let options = || MountOptions::read_only("");
    mount::mount("iso9660", &source, target, options())
        .or_else(|_| mount::mount("vfat", &source, target, options()))?;
    let text = fs_err::read_to_string(target.join(FILE));
    mount::unmount(target, true)?;
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LABELS, medium};

    #[test]
    fn the_medium_is_found_by_any_of_its_names_once_it_shows_up() {
        for label in LABELS {
            let dir = tempfile::tempdir().expect("a folder");
            let (device, link) = (dir.path().join("sr0"), dir.path().join(label));
            fs_err::write(&device, "").expect("a device");
            let found = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| medium(dir.path(), Duration::from_secs(60)));
                fs_err::os::unix::fs::symlink(&device, &link).expect("a link");
                waiting.join().expect("no panic").expect("it can be read")
            });
            assert_eq!(found, Some(fs_err::canonicalize(&device).expect("a device")), "{label}");
        }
    }

    #[test]
    fn a_medium_that_never_comes_is_not_waited_for_longer_than_told() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(medium(dir.path(), Duration::ZERO).expect("nothing there"), None);
    }
}
