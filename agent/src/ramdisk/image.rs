//! The network of an installed server: units that stay, made of its config drive at each start.
//!
//! cloud-init would make other units from the same file. Where this agent makes them, it writes a setting that keeps
//! cloud-init from it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{read, units_of};
use crate::host::{block, files, label};

/// Label of a config drive, in capitals.
const LABEL: &str = "CONFIG-2";
/// How the names of the units begin: before those of cloud-init.
const STEM: &str = "05-config-drive-";
/// Tells cloud-init that the network is made.
const MADE: &str = "# Written at each start: the network is made of the config drive by foothold-agent.\nnetwork: { config: disabled }\n";

/// What `server-network` takes.
#[derive(Debug, Args)]
pub struct ServerNetwork {
    /// Where the units of systemd-networkd go.
    #[arg(long, value_name = "DIR", default_value = "/etc/systemd/network")]
    units: PathBuf,
    /// Where cloud-init is told that the network is made.
    #[arg(long, value_name = "FILE", default_value = "/etc/cloud/cloud.cfg.d/99-config-drive-network.cfg")]
    cloud_init: PathBuf,
    /// Read this file, not a config drive.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ServerNetwork {
    /// Writes the units; returns what was done, as text for people.
    pub fn run(&self) -> anyhow::Result<String> {
        let text = match (&self.file, drive(Path::new("/"))) {
            (Some(path), _) => Some(fs_err::read_to_string(path)?),
            (None, Some(node)) => read(&node)?,
            // Taken away after the first start: what was made stays.
            (None, None) => return Ok("no config drive: the network stays as it is\n".to_owned()),
        };
        let units = text.map(|text| units_of(&text, STEM)).transpose()?.unwrap_or_default();
        let mut told = String::new();
        for name in names_of(&self.units)? {
            if !units.iter().any(|(known, _)| *known == name) {
                files::remove(&self.units.join(&name))?;
            }
        }
        if units.is_empty() {
            files::remove(&self.cloud_init)?;
            return Ok("the config drive says nothing about the network: cloud-init decides\n".to_owned());
        }
        for (name, text) in &units {
            files::write(&self.units.join(name), text.as_bytes(), files::PUBLIC)?;
            let _ = writeln!(told, "{}", self.units.join(name).display());
        }
        files::write(&self.cloud_init, MADE.as_bytes(), files::PUBLIC)?;
        Ok(told)
    }
}

/// The units that an earlier start made.
fn names_of(folder: &Path) -> std::io::Result<Vec<String>> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(STEM) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The config drive of this server: a partition of its disk, or a disc.
fn drive(root: &Path) -> Option<PathBuf> {
    let disks = block::list(&root.join("sys/block")).unwrap_or_default();
    let names = disks
        .iter()
        .flat_map(|disk| disk.partitions.iter().map(|partition| &partition.name).chain(std::iter::once(&disk.name)));
    let nodes = names.map(|name| root.join("dev").join(name.replace('!', "/")));
    nodes.into_iter().find(|node| label::of_device(node).iter().any(|(_, label)| label == LABEL))
}

#[cfg(test)]
mod tests {
    use super::{ServerNetwork, drive};

    const DATA: &str = r#"{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"},
        {"id": "b", "type": "bond", "bond_links": ["a"]}], "networks": [{"id": "n", "link": "b", "type": "ipv4_dhcp"}]}"#;

    #[test]
    fn units_stay_and_cloud_init_is_told_as_long_as_there_is_something_to_say() {
        let dir = tempfile::tempdir().expect("a folder");
        let (units, file) = (dir.path().join("network"), dir.path().join("data.json"));
        let cloud_init = dir.path().join("cloud.cfg.d/99.cfg");
        fs_err::create_dir_all(&units).expect("made");
        fs_err::write(units.join("80-dhcp.network"), "").expect("written");
        let server = ServerNetwork { units: units.clone(), cloud_init: cloud_init.clone(), file: Some(file.clone()) };
        let names = || {
            let entries = fs_err::read_dir(&units).expect("listed");
            let mut names: Vec<_> =
                entries.map(|one| one.expect("one").file_name().into_string().expect("text")).collect();
            names.sort();
            names
        };
        fs_err::write(&file, DATA).expect("written");
        server.run().expect("made");
        let all = [
            "05-config-drive-00.network",
            "05-config-drive-01.netdev",
            "05-config-drive-01.network",
            "80-dhcp.network",
        ];
        assert_eq!(names(), all);
        assert!(fs_err::read_to_string(&cloud_init).expect("told").contains("config: disabled"));
        fs_err::write(&file, r#"{"network": {"version": 2}}"#).expect("written");
        assert!(format!("{:#}", server.run().expect_err("netplan")).contains("netplan"));
        assert_eq!(names(), all, "what was made stays");
        fs_err::write(&file, "{}").expect("written");
        server.run().expect("nothing");
        assert_eq!(names(), ["80-dhcp.network"]);
        assert!(!cloud_init.exists());
    }

    #[test]
    fn a_config_drive_is_found_by_its_label_in_any_case() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, bytes: &[u8]| {
            let path = dir.path().join(path);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, bytes).expect("written");
        };
        put("sys/block/sda/size", b"1000");
        put("sys/block/sda/sda4/partition", b"4");
        assert_eq!(drive(dir.path()), None);
        let mut disc = vec![0; 20 * 2048];
        disc[16 * 2048..16 * 2048 + 6].copy_from_slice(b"\x01CD001");
        disc[16 * 2048 + 40..16 * 2048 + 72].copy_from_slice(b"config-2                        ");
        put("dev/sda4", &disc);
        assert_eq!(drive(dir.path()), Some(dir.path().join("dev/sda4")));
    }
}
