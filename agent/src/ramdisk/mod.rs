//! What the agent does on a server that runs the deploy ramdisk: its network, as Ironic handed it over.
//!
//! ```text
//! virtual medium (VMEDIA_BOOT_ISO, config-2) ─► openstack/latest/network_data.json ─network_data─► units of networkd
//! ```
//! Without such a file on the medium every card asks DHCP, as the ramdisk's own settings have it.

pub mod network_data;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use self::network_data::NetworkData;
use crate::cluster::files;
use crate::host::mount::{self, Options};

/// Labels that the medium may have: the one that Ironic boots a server with, and that of a config drive.
const LABELS: [&str; 2] = ["VMEDIA_BOOT_ISO", "config-2"];
/// Where udev names volumes by their labels.
const BY_LABEL: &str = "/dev/disk/by-label";
/// The file on the medium (`OpenStack`'s metadata service).
const FILE: &str = "openstack/latest/network_data.json";
/// Where the medium is mounted while it is read.
const MOUNT: &str = "/run/foothold/network-medium";
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
}

impl RamdiskNetwork {
    /// Writes the units; returns what was done, for people.
    pub fn run(&self) -> anyhow::Result<String> {
        let text = match &self.file {
            Some(path) => Some(fs_err::read_to_string(path)?),
            None => medium()?.map(|node| read(&node)).transpose()?.flatten(),
        };
        let Some(text) = text else { return Ok("the medium says nothing about the network: DHCP\n".to_owned()) };
        let data: NetworkData = serde_json::from_str(&text).with_context(|| format!("`{FILE}`"))?;
        let units = data.units().with_context(|| format!("`{FILE}`"))?;
        let mut told = String::new();
        for (name, text) in &units {
            files::write(&self.units.join(name), text.as_bytes(), files::PUBLIC)?;
            let _ = writeln!(told, "{}", self.units.join(name).display());
        }
        Ok(told)
    }
}

/// The medium's device, if there is one. systemd waits for it before this is started.
fn medium() -> anyhow::Result<Option<PathBuf>> {
    let found = LABELS.iter().map(|label| Path::new(BY_LABEL).join(label)).find(|link| link.exists());
    Ok(found.map(fs_err::canonicalize).transpose()?)
}

/// The file on that medium; none where it has none.
fn read(node: &Path) -> anyhow::Result<Option<String>> {
    let (target, source) = (Path::new(MOUNT), node.to_string_lossy());
    let options = || Options::read_only("");
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
