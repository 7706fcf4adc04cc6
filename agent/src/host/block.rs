//! Block devices: what is there (sysfs), and telling the kernel about new partitions.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use fs_err::File;
use serde::Serialize;

use super::ioctl;

/// Where the kernel lists whole block devices.
pub const SYS_BLOCK: &str = "/sys/block";
/// sysfs counts in sectors of this size, whatever the device's own is.
const SECTOR: u64 = 512;
/// `_IO(0x12, 105)`, linux/blkpg.h.
const BLKPG: u64 = 0x1269;
const BLKPG_ADD_PARTITION: i32 = 1;
/// `_IO(0x12, 95)` and `_IO(0x12, 97)`, linux/fs.h.
const BLKRRPART: u64 = 0x125F;
const BLKFLSBUF: u64 = 0x1261;
/// Devices that hold nothing of their own; `fd` because looking at a floppy takes seconds.
const NOT_DISKS: [&str; 7] = ["loop", "ram", "dm-", "zram", "fd", "md", "nbd"];

/// A whole disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Kernel name, such as `vda`.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a logical block.
    pub block_bytes: u64,
    /// `nvme`, `sata`, `scsi`, `virtio`, `usb`, `mmc` or `other`.
    pub bus: String,
    /// Serial number, empty if it tells none.
    pub serial: String,
    /// Model, empty if it tells none.
    pub model: String,
    /// Whether the medium or the device may be taken out.
    pub removable: bool,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Partitions that the kernel knows.
    pub partitions: Vec<Partition>,
}

/// A partition that the kernel knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// Kernel name, such as `vda3`.
    pub name: String,
    /// Number in the table.
    pub number: u32,
    /// First byte on the disk.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Disk {
    /// Kernel name of partition `number`: `vda4`, `nvme0n1p4`.
    pub fn partition_name(&self, number: u32) -> String {
        let digit_ends = self.name.ends_with(|last: char| last.is_ascii_digit());
        if digit_ends { format!("{}p{number}", self.name) } else { format!("{}{number}", self.name) }
    }
}

/// Path of a device node.
pub fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

/// All disks below `sys_block`, in the order of their names.
pub fn list(sys_block: &Path) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for entry in fs_err::read_dir(sys_block)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // One path to a disk of several paths (NVMe) is hidden: it has no node of its own.
        let hidden = number(&sys_block.join(&name).join("hidden")) == 1;
        if !hidden && !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix)) {
            disks.push(look_at(sys_block, &name));
        }
    }
    disks.retain(|disk| disk.bytes > 0);
    disks.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    Ok(disks)
}

fn look_at(sys_block: &Path, name: &str) -> Disk {
    let folder = sys_block.join(name);
    let device = fs_err::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
    Disk {
        name: name.to_owned(),
        bytes: number(&folder.join("size")) * SECTOR,
        block_bytes: number(&folder.join("queue/logical_block_size")).max(SECTOR),
        bus: bus_of(name, &device.to_string_lossy()).to_owned(),
        serial: serial_of(&folder, &device),
        model: text(&folder.join("device/model")),
        removable: number(&folder.join("removable")) == 1,
        read_only: number(&folder.join("ro")) == 1,
        partitions: partitions_of(&folder),
    }
}

fn partitions_of(folder: &Path) -> Vec<Partition> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<Partition> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("partition").exists())
        .map(|entry| Partition {
            name: entry.file_name().to_string_lossy().into_owned(),
            number: u32::try_from(number(&entry.path().join("partition"))).unwrap_or(0),
            start: number(&entry.path().join("start")) * SECTOR,
            bytes: number(&entry.path().join("size")) * SECTOR,
        })
        .collect();
    found.sort_by_key(|partition| partition.number);
    found
}

/// The bus by the device's place in sysfs; USB first, since its disks are SCSI disks too.
fn bus_of(name: &str, path: &str) -> &'static str {
    let on = |part: &str| path.contains(part);
    match () {
        () if on("/usb") => "usb",
        () if name.starts_with("nvme") => "nvme",
        () if name.starts_with("mmcblk") => "mmc",
        () if on("/ata") => "sata",
        () if on("/host") => "scsi",
        () if on("/virtio") => "virtio",
        () => "other",
    }
}

fn serial_of(folder: &Path, device: &Path) -> String {
    for file in ["serial", "device/serial"] {
        let found = text(&folder.join(file));
        if !found.is_empty() {
            return found;
        }
    }
    // SCSI: vital product data page 0x80, a header of 4 bytes, then text.
    let page = fs_err::read(folder.join("device/vpd_pg80")).unwrap_or_default();
    let serial = String::from_utf8_lossy(page.get(4..).unwrap_or_default()).trim().to_owned();
    if !serial.is_empty() {
        return serial;
    }
    // USB: the serial number of the device several folders up.
    let usb = device.ancestors().find(|folder| folder.join("idVendor").exists());
    usb.map(|folder| text(&folder.join("serial"))).unwrap_or_default()
}

fn text(path: &Path) -> String {
    let bytes = fs_err::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
}

fn number(path: &Path) -> u64 {
    text(path).parse().unwrap_or(0)
}

/// `struct blkpg_partition`.
#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct BlkpgArgument {
    operation: i32,
    flags: i32,
    length: i32,
    data: *mut BlkpgPartition,
}

/// Tells the kernel about a partition of a disk that is in use, where re-reading the table is
/// refused. One that it knows already is fine.
#[expect(unsafe_code, reason = "BLKPG has no safe form")]
pub fn add_partition(disk: &Path, number: u32, start: u64, bytes: u64) -> io::Result<()> {
    let device = File::open(disk)?;
    let signed = |value: u64| i64::try_from(value).map_err(io::Error::other);
    let mut partition = BlkpgPartition {
        start: signed(start)?,
        length: signed(bytes)?,
        number: i32::try_from(number).map_err(io::Error::other)?,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let length = i32::try_from(size_of::<BlkpgPartition>()).map_err(io::Error::other)?;
    let mut argument = BlkpgArgument { operation: BLKPG_ADD_PARTITION, flags: 0, length, data: &raw mut partition };
    // SAFETY: the request reads `argument` and the `length` bytes behind `data`, both of which live here.
    match unsafe { ioctl::with(device.as_fd(), BLKPG, &raw mut argument) } {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Has the kernel read the partition table of a disk anew; refused while a partition is in use.
pub fn read_table_again(disk: &Path) -> io::Result<()> {
    ioctl::with_number(File::open(disk)?.as_fd(), BLKRRPART, 0).map(drop)
}

/// Drops what the kernel remembers of a disk's content: what is read next comes from the disk itself.
pub fn forget_content(disk: &Path) -> io::Result<()> {
    ioctl::with_number(File::open(disk)?.as_fd(), BLKFLSBUF, 0).map(drop)
}

/// All bytes, and free ones, of the file system on which `path` lies.
pub fn space_of(path: &std::path::Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some((found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::{Disk, bus_of, list};

    #[test]
    fn the_bus_follows_from_the_place_in_sysfs() {
        let table = [
            ("sda", "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host2/target2:0:0/2:0:0:0/block/sda", "usb"),
            ("sdb", "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sdb", "sata"),
            ("sdc", "/sys/devices/pci0000:00/0000:00:05.0/virtio2/host3/target3:0:0/3:0:0:0/block/sdc", "scsi"),
            ("vda", "/sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda", "virtio"),
            ("nvme0n1", "/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1", "nvme"),
            ("mmcblk0", "/sys/devices/platform/sdhci/mmc_host/mmc0/mmc0:0001/block/mmcblk0", "mmc"),
        ];
        for (name, path, bus) in table {
            assert_eq!(bus_of(name, path), bus, "{name}");
        }
    }

    #[test]
    fn disks_are_listed_with_their_partitions_and_without_loop_devices() {
        let sys = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| {
            let file = sys.path().join(path);
            fs_err::create_dir_all(file.parent().expect("a parent")).expect("folders");
            fs_err::write(file, text).expect("a file");
        };
        put("vda/size", "8192\n");
        put("vda/serial", "abc\n");
        put("vda/ro", "0\n");
        put("vda/vda3/partition", "3\n");
        put("vda/vda3/start", "2048\n");
        put("vda/vda3/size", "1024\n");
        put("loop0/size", "8192\n");
        put("sr0/size", "0\n");
        put("nvme0c0n1/size", "8192\n");
        put("nvme0c0n1/hidden", "1\n");
        let disks = list(sys.path()).expect("a list");
        assert_eq!(disks.len(), 1);
        assert_eq!((disks[0].bytes, disks[0].serial.as_str()), (4 << 20, "abc"));
        assert_eq!((disks[0].partitions[0].start, disks[0].partitions[0].bytes), (1 << 20, 512 << 10));
    }

    #[test]
    fn partitions_of_numbered_disks_have_a_p() {
        let named = |name: &str| Disk { name: name.to_owned(), ..Disk::default() }.partition_name(4);
        assert_eq!((named("vda"), named("nvme0n1")), ("vda4".to_owned(), "nvme0n1p4".to_owned()));
    }
}
