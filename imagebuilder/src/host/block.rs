//! What the kernel knows about a block device: whether it is a whole disk, its size, and who uses it.

use std::collections::BTreeMap;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

/// Facts about a path that an image may be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing is there.
    Absent,
    /// A regular file.
    File,
    /// A block device.
    Block(Block),
    /// Something else: a directory, a character device, ...
    Other,
}

/// Facts about a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Kernel name such as `sdb`.
    pub name: String,
    /// Kernel name of the disk, when this is only a partition of it.
    pub partition_of: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Bytes of a logical block: 512, or 4096 for disks that are called 4Kn.
    pub sector: u64,
    /// Whether it refuses to be written.
    pub read_only: bool,
    /// Who uses it or one of its partitions, in words.
    pub uses: Vec<Use>,
}

/// One use of a disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Mounted: device and mount point.
    Mount(String, PathBuf),
    /// Swap space: device.
    Swap(String),
    /// Part of another device (LVM, RAID, encryption): device and that other one.
    Holder(String, String),
}

/// Looks at a path.
pub fn probe(path: &Path) -> io::Result<Target> {
    let meta = match fs_err::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Target::Absent),
        meta => meta?,
    };
    if meta.is_file() {
        return Ok(Target::File);
    }
    if !meta.file_type().is_block_device() {
        return Ok(Target::Other);
    }
    let device = meta.rdev();
    let sys = sys_folder(device)?;
    let name = file_name(&sys);
    let partition_of = sys.join("partition").exists().then(|| sys.parent().map(file_name).unwrap_or_default());
    let read_only = fs_err::read_to_string(sys.join("ro")).is_ok_and(|text| text.trim() == "1");
    let size = fs_err::File::open(path)?.seek(SeekFrom::End(0))?;
    let sector = logical_block_of(&sys)?;
    let family = family(device, &sys)?;
    Ok(Target::Block(Block { name, partition_of, size, sector, read_only, uses: uses(&family)? }))
}

/// Bytes of a logical block of the device at `path`; `None` for what is no block device.
pub fn logical_block(path: &Path) -> io::Result<Option<u64>> {
    let meta = fs_err::metadata(path)?;
    if !meta.file_type().is_block_device() {
        return Ok(None);
    }
    logical_block_of(&sys_folder(meta.rdev())?).map(Some)
}

/// The same by its folder in sysfs (Documentation/ABI/stable/sysfs-block); a partition has that of its disk.
fn logical_block_of(sys: &Path) -> io::Result<u64> {
    let disk = if sys.join("partition").exists() { sys.parent().unwrap_or(sys) } else { sys };
    let file = disk.join("queue/logical_block_size");
    let text = fs_err::read_to_string(&file)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("`{}` holds no number: `{}`", file.display(), text.trim())))
}

/// The folder of a device in sysfs, without symbolic links.
fn sys_folder(device: u64) -> io::Result<PathBuf> {
    fs_err::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// A device with its partitions and everything built on them: number to name.
fn family(device: u64, sys: &Path) -> io::Result<BTreeMap<u64, (String, PathBuf)>> {
    let mut found = BTreeMap::new();
    let mut next = vec![(device, sys.to_owned())];
    while let Some((number, folder)) = next.pop() {
        if found.insert(number, (file_name(&folder), folder.clone())).is_some() {
            continue;
        }
        let below = children(&folder)?.into_iter().filter(|child| child.join("partition").exists());
        let above = children(&folder.join("holders"))?;
        for folder in below.chain(above) {
            let folder = fs_err::canonicalize(folder)?;
            next.extend(number_of(&folder).map(|number| (number, folder)));
        }
    }
    Ok(found)
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs_err::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| entry.map(|entry| entry.path())).collect(),
    }
}

/// The device number in a sysfs folder's `dev` file.
fn number_of(folder: &Path) -> Option<u64> {
    parse_number(fs_err::read_to_string(folder.join("dev")).ok()?.trim())
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn uses(family: &BTreeMap<u64, (String, PathBuf)>) -> io::Result<Vec<Use>> {
    let mut uses = Vec::new();
    for (name, folder) in family.values() {
        uses.extend(
            children(&folder.join("holders"))?.iter().map(|holder| Use::Holder(name.clone(), file_name(holder))),
        );
    }
    let number_at =
        |path: &str| fs_err::metadata(path).ok().filter(|meta| meta.file_type().is_block_device()).map(|m| m.rdev());
    let name_of = |number: Option<u64>| number.and_then(|number| family.get(&number)).map(|(name, _)| name.clone());
    for mount in fs_err::read_to_string("/proc/self/mountinfo")?.lines().filter_map(parse_mount) {
        // Btrfs and overlays have numbers of their own: their source names the device.
        let name = name_of(Some(mount.device)).or_else(|| name_of(number_at(&mount.source)));
        uses.extend(name.map(|name| Use::Mount(name, mount.point)));
    }
    let swaps = fs_err::read_to_string("/proc/swaps").unwrap_or_default();
    uses.extend(parse_swaps(&swaps).filter_map(|path| name_of(number_at(&path))).map(Use::Swap));
    uses.sort();
    uses.dedup();
    Ok(uses)
}

/// One line of mountinfo(5).
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: u64,
    point: PathBuf,
    source: String,
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(2);
    let device = parse_number(fields.next()?)?;
    let point = unescape(fields.nth(1)?).into();
    let source = unescape(after.split(' ').nth(1)?);
    Some(Mount { device, point, source })
}

/// The paths of /proc/swaps.
fn parse_swaps(text: &str) -> impl Iterator<Item = String> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescape)
}

/// Undoes the kernel's octal escapes of blanks (`\040`).
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = (first == b'\\' && tail.len() >= 3).then(|| std::str::from_utf8(&tail[..3]).ok()).flatten();
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Mount, Target, parse_mount, parse_swaps, probe};

    #[test]
    fn a_line_of_mountinfo_gives_number_point_and_source() {
        let line = r"36 35 98:1 /mnt1 /mnt/a\040b rw,noatime master:1 - ext3 /dev/sda1 rw,errors=continue";
        let device = nix::sys::stat::makedev(98, 1);
        assert_eq!(parse_mount(line), Some(Mount { device, point: "/mnt/a b".into(), source: "/dev/sda1".into() }));
        assert_eq!(parse_mount("nonsense"), None);
    }

    #[test]
    fn swaps_are_read_without_their_heading() {
        let text = "Filename\t\t\t\tType\t\tSize\n/dev/sda2    partition\t8388604\n/swap\\040file file 1\n";
        assert_eq!(parse_swaps(text).collect::<Vec<_>>(), ["/dev/sda2", "/swap file"]);
    }

    #[test]
    fn what_is_no_block_device_is_said_to_be_none() {
        let dir = tempfile::tempdir().expect("a directory");
        fs_err::write(dir.path().join("file"), "x").expect("a file");
        assert_eq!(probe(&dir.path().join("file")).expect("it can be probed"), Target::File);
        assert_eq!(probe(&dir.path().join("none")).expect("it can be probed"), Target::Absent);
        assert_eq!(probe(dir.path()).expect("it can be probed"), Target::Other);
        assert_eq!(probe("/dev/null".as_ref()).expect("it can be probed"), Target::Other);
    }
}
