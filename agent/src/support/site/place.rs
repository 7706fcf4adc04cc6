//! The SITE partition of the box's own medium: found, checked, and mounted for a moment.

use std::path::Path;

use rustix::mount::MountFlags;

use crate::host::{block, label, mount};

/// Name of the partition, and label of its file system.
const NAME: &str = "SITE";
/// Where it is mounted.
const MOUNT: &str = "run/foothold/site-out";
/// The only folder on it that is ever touched.
pub const FOLDER: &str = "foothold";

/// Where a report can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Kernel name of the partition.
    pub device: String,
}

/// Why there is no place for reports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// The medium has no such partition, as a CD has none.
    #[error("the medium `{0}` has no partition SITE")]
    NoPartition(String),
    /// It cannot be written.
    #[error("the medium `{0}` is read-only")]
    ReadOnly(String),
    /// A partition of that name with something else in it.
    #[error("partition `{device}` is not ours: its file system is labelled `{label}`, not SITE")]
    NotOurs {
        /// Kernel name.
        device: String,
        /// Its label.
        label: String,
    },
}

/// The partition named SITE on the disk that the store is on, with a FAT file system of that label.
pub fn find(root: &Path, medium: &str) -> Result<Place, NoPlace> {
    let sys_block = root.join("sys/block");
    let disks = block::list(&sys_block).unwrap_or_default();
    let none = || NoPlace::NoPartition(medium.to_owned());
    let holds = |disk: &&block::Disk| disk.name == medium || disk.partitions.iter().any(|one| one.name == medium);
    let disk = disks.iter().find(holds).ok_or_else(none)?;
    let named = disk.partitions.iter().find(|one| {
        let uevent = fs_err::read_to_string(sys_block.join(&disk.name).join(&one.name).join("uevent"));
        uevent.unwrap_or_default().lines().any(|line| line.strip_prefix("PARTNAME=") == Some(NAME))
    });
    let device = named.ok_or_else(none)?.name.clone();
    if disk.read_only {
        return Err(NoPlace::ReadOnly(medium.to_owned()));
    }
    let label = label::of_fat(&root.join("dev").join(&device)).unwrap_or_default();
    if label == NAME { Ok(Place { device }) } else { Err(NoPlace::NotOurs { device, label }) }
}

impl Place {
    /// Mounts it, does the work in [`FOLDER`], and unmounts it even when the work failed.
    pub fn mounted<T>(&self, root: &Path, work: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let target = root.join(MOUNT);
        let source = root.join("dev").join(&self.device);
        // A mount that a killed agent has left.
        while mount::unmount(&target, true).is_ok() {}
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
        // `flush`: what is written goes to the medium soon, not in half a minute.
        let options = mount::MountOptions::new(flags, "flush,utf8=1,errors=remount-ro");
        mount::mount("vfat", &source.to_string_lossy(), &target, options)?;
        let done = fs_err::create_dir_all(target.join(FOLDER))
            .map_err(anyhow::Error::from)
            .and_then(|()| work(&target.join(FOLDER)));
        let unmounted = mount::unmount(&target, false).or_else(|_| mount::unmount(&target, true));
        let done = done?;
        unmounted?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{NoPlace, Place, find};

    /// A disk `sda` with a store `sda3` and a partition `sda5` of that name and label.
    fn machine(root: &Path, name: &str, label: &str, read_only: u8) {
        let write = |path: &str, bytes: &[u8]| {
            let path = root.join(path);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, bytes).expect("written");
        };
        write("sys/block/sda/size", b"1000");
        write("sys/block/sda/ro", read_only.to_string().as_bytes());
        for (number, name) in [(3, "STORE"), (5, name)] {
            let folder = format!("sys/block/sda/sda{number}");
            write(&format!("{folder}/partition"), number.to_string().as_bytes());
            write(&format!("{folder}/uevent"), format!("DEVTYPE=partition\nPARTNAME={name}\n").as_bytes());
        }
        let mut sector = [0; 512];
        sector[71..82].copy_from_slice(format!("{label:<11}").as_bytes());
        sector[82..85].copy_from_slice(b"FAT");
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        write("dev/sda5", &sector);
    }

    #[test]
    fn only_the_site_partition_of_the_own_medium_is_written() {
        let no = |medium: &str| Err(NoPlace::NoPartition(medium.to_owned()));
        let table = [
            ("SITE", "SITE", 0, "sda3", Ok(Place { device: "sda5".to_owned() })),
            ("SITE", "SITE", 0, "sda", Ok(Place { device: "sda5".to_owned() })),
            ("SITE", "SITE", 0, "sr0", no("sr0")),
            ("OTHER", "SITE", 0, "sda3", no("sda3")),
            ("SITE", "SITE", 1, "sda3", Err(NoPlace::ReadOnly("sda3".to_owned()))),
            (
                "SITE",
                "PHOTOS",
                0,
                "sda3",
                Err(NoPlace::NotOurs { device: "sda5".to_owned(), label: "PHOTOS".to_owned() }),
            ),
        ];
        for (name, label, read_only, medium, expected) in table {
            let dir = tempfile::tempdir().expect("a folder");
            machine(dir.path(), name, label, read_only);
            assert_eq!(find(dir.path(), medium), expected, "{name} {label} {read_only} {medium}");
        }
    }
}
