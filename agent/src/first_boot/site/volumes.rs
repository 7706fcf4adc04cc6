//! Volumes that may hold a Site: those labelled `SITE` or `CIDATA`, whatever made them.
//!
//! Nothing on them is trusted: they are mounted read-only, a file is taken only if it is one and small, and what is wrong
//! with a volume is told and stops nothing.

use std::io::Read;
use std::path::Path;

use agent_api::site::MOST_BYTES;
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;

use super::FILE;
use crate::host::label::Kind;
use crate::host::{block, label, mount};
use crate::machine::Machine;

/// Labels of volumes that may hold it.
const LABELS: [&str; 2] = ["SITE", "CIDATA"];
/// Its signature, as `minisign -S` names it.
const SIGNATURE: &str = "site.yaml.minisig";
/// Most bytes of a signature, and most names of a volume's root that are looked at.
const MOST_SIGNATURE: u64 = 4 * 1024;
const MOST_NAMES: usize = 1000;
/// Where a volume is looked into.
const MOUNT: &str = "/run/foothold/site";
/// Name of the partition of an image.
const PARTITION: &str = "SITE";

/// A volume with one of the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// Kernel name of the device.
    pub device: String,
    pub label: String,
    /// What it is mounted as, or the name of a file system that is not read here.
    kind: Result<Kind, &'static str>,
    /// It is the partition `SITE` of the medium that the box runs from.
    pub own: bool,
}

/// What lies on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub text: String,
    pub signature: Option<String>,
}

/// Why a volume is not taken, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// There is no Site on it, as on every new medium.
    Empty(String),
    /// Something is wrong with it.
    Bad(String),
}

/// Volumes with one of the labels: the box's own first, then `SITE` before `CIDATA`.
pub(super) fn find(root: &Path, medium: &str) -> Vec<Volume> {
    let sys_block = root.join("sys/block");
    let disks = block::list(&sys_block).unwrap_or_default();
    let mut found: Vec<Volume> = Vec::new();
    for disk in &disks {
        let is_medium = disk.name == medium || disk.partitions.iter().any(|partition| partition.name == medium);
        let partitions = disk.partitions.iter().map(|partition| &partition.name);
        for name in std::iter::once(&disk.name).chain(partitions) {
            let own = is_medium && *name != disk.name && is_named(&sys_block.join(&disk.name).join(name));
            let node = root.join("dev").join(name.replace('!', "/"));
            let read: Vec<_> = label::of_device(&node).into_iter().map(|(kind, label)| (Ok(kind), label)).collect();
            // Many a disc is of UDF, too.
            let other = read.is_empty().then(|| label::of_other(&node)).flatten();
            for (kind, label) in read.into_iter().chain(other.map(|(kind, label)| (Err(kind), label))) {
                if LABELS.contains(&label.as_str()) && !found.iter().any(|one| one.device == *name && one.kind == kind)
                {
                    found.push(Volume { device: name.clone(), label, kind, own });
                }
            }
        }
    }
    found.sort_by_key(|one| (!one.own, LABELS.iter().position(|known| *known == one.label)));
    found
}

fn is_named(folder: &Path) -> bool {
    let uevent = fs_err::read_to_string(folder.join("uevent")).unwrap_or_default();
    uevent.lines().any(|line| line.strip_prefix("PARTNAME=") == Some(PARTITION))
}

/// What is on the volume, or why it is not taken.
pub(super) fn read(machine: &Machine, volume: &Volume) -> Result<Contents, NotTaken> {
    let kind = volume.kind.map_err(|kind| {
        NotTaken::Bad(format!("its file system is {kind}, which is not read; hint: make it FAT, exFAT or ISO 9660"))
    })?;
    let target = machine.at(MOUNT);
    let node = block::node(&volume.device);
    // A mount that a killed agent has left.
    while mount::unmount(&target, true).is_ok() {}
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = mount::MountOptions::new(flags, "");
    mount::mount(kind.name(), &node.to_string_lossy(), &target, options).map_err(|error| {
        NotTaken::Bad(format!("its {} file system cannot be mounted: {}", kind.name(), mount::cause(&error)))
    })?;
    let contents = contents(&target);
    let _ = mount::unmount(&target, true);
    contents
}

/// The files of a folder.
fn contents(folder: &Path) -> Result<Contents, NotTaken> {
    let unlisted = |error| NotTaken::Bad(format!("its files cannot be listed: {error}"));
    let entries = fs_err::read_dir(folder).map_err(unlisted)?;
    let mut names: Vec<String> = entries
        .take(MOST_NAMES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let called = |wanted: &str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
    let Some(name) = called(FILE) else {
        let seen = if names.is_empty() { "it is empty".to_owned() } else { format!("it has {}", first_of(&names)) };
        return Err(NotTaken::Empty(format!("there is no `{FILE}` on it: {seen}")));
    };
    let read = |name: &String, most: u64| file(&folder.join(name), most).map_err(NotTaken::Bad);
    let text = read(name, MOST_BYTES as u64)?;
    let signature = called(SIGNATURE).map(|name| read(name, MOST_SIGNATURE)).transpose()?;
    Ok(Contents { text, signature })
}

fn first_of(names: &[String]) -> String {
    const SOME: usize = 5;
    let shown: Vec<String> = names.iter().take(SOME).map(|name| format!("`{}`", name.escape_default())).collect();
    let more = if names.len() > SOME { ", ..." } else { "" };
    shown.join(", ") + more
}

/// The text of a file that is one: no link, no pipe, no longer than `most`.
fn file(path: &Path, most: u64) -> Result<String, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let told = |error: &dyn std::fmt::Display| format!("`{name}` cannot be read: {error}");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| told(&error))?;
    let opened = std::fs::File::from(opened);
    if !opened.metadata().map_err(|error| told(&error))?.is_file() {
        return Err(format!("`{name}` is no file"));
    }
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes).map_err(|error| told(&error))?;
    if bytes.len() as u64 > most {
        return Err(format!("`{name}` has more than {} KiB", most / 1024));
    }
    // Editors of Windows put a mark before UTF-8.
    let text = String::from_utf8(bytes).map_err(|_| format!("`{name}` is no UTF-8: save it as UTF-8"))?;
    Ok(text.strip_prefix('\u{FEFF}').unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Contents, NotTaken, Volume, contents, find};
    use crate::host::label::Kind;

    fn write(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, bytes).expect("written");
    }

    fn device(root: &Path, disk: &str, partition: Option<(&str, &str)>, label: &str) {
        write(root, &format!("sys/block/{disk}/size"), b"1000");
        let name = partition.map_or(disk, |(name, _)| name);
        if let Some((name, of_table)) = partition {
            write(root, &format!("sys/block/{disk}/{name}/partition"), b"1");
            write(root, &format!("sys/block/{disk}/{name}/uevent"), format!("PARTNAME={of_table}\n").as_bytes());
        }
        let mut sector = [0; 512];
        sector[71..82].copy_from_slice(format!("{label:<11}").as_bytes());
        sector[82..85].copy_from_slice(b"FAT");
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        write(root, &format!("dev/{name}"), &sector);
    }

    #[test]
    fn the_own_partition_comes_first_and_others_by_their_label() {
        let dir = tempfile::tempdir().expect("a folder");
        device(dir.path(), "sda", None, "CIDATA");
        device(dir.path(), "sdb", None, "SITE");
        device(dir.path(), "vda", Some(("vda5", "SITE")), "SITE");
        device(dir.path(), "vdb", Some(("vdb1", "SITE")), "PHOTOS");
        let found = find(dir.path(), "vda");
        let told: Vec<_> = found.iter().map(|one| (one.device.as_str(), one.own)).collect();
        assert_eq!(told, [("vda5", true), ("sdb", false), ("sda", false)]);
        assert_eq!(
            found[1],
            Volume { device: "sdb".to_owned(), label: "SITE".to_owned(), kind: Ok(Kind::Fat), own: false }
        );
    }

    #[test]
    fn a_volume_that_is_not_read_is_told_all_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), "sys/block/sdc/size", b"1000");
        let mut start = vec![0; 4096];
        start[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        start[1144..1150].copy_from_slice(b"cidata");
        write(dir.path(), "dev/sdc", &start);
        let found = find(dir.path(), "vda");
        assert_eq!((found[0].label.as_str(), found[0].kind), ("CIDATA", Err("ext4")));
        let machine = crate::machine::tests::machine(dir.path(), crate::host::runner::FakeRunner::default());
        let Err(NotTaken::Bad(why)) = super::read(&machine, &found[0]) else { panic!("nothing is wrong with it") };
        assert_eq!(why, "its file system is ext4, which is not read; hint: make it FAT, exFAT or ISO 9660");
    }

    #[test]
    fn a_file_is_found_in_any_case_and_what_is_there_instead_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        let told = |root: &Path| match contents(root).expect_err("none") {
            NotTaken::Empty(why) | NotTaken::Bad(why) => why,
        };
        assert_eq!(told(root), "there is no `site.yaml` on it: it is empty");
        write(root, "user-data", b"x");
        write(root, "meta-data", b"x");
        assert_eq!(told(root), "there is no `site.yaml` on it: it has `meta-data`, `user-data`");
        write(root, "SITE.YAML", "\u{FEFF}kind: Site\n".as_bytes());
        write(root, "Site.yaml.minisig", b"signature");
        let expected = Contents { text: "kind: Site\n".to_owned(), signature: Some("signature".to_owned()) };
        assert_eq!(contents(root), Ok(expected));
        write(root, "SITE.YAML", &vec![b'#'; 70_000]);
        assert_eq!(told(root), "`SITE.YAML` has more than 64 KiB");
        write(root, "SITE.YAML", b"\xff\xfek\0");
        assert!(told(root).contains("no UTF-8"));
        fs_err::remove_file(root.join("SITE.YAML")).expect("gone");
        fs_err::os::unix::fs::symlink("/etc/passwd", root.join("site.yaml")).expect("a link");
        assert!(told(root).starts_with("`site.yaml` cannot be read"), "{}", told(root));
        fs_err::remove_file(root.join("site.yaml")).expect("gone");
        fs_err::create_dir(root.join("site.yaml")).expect("a folder");
        assert_eq!(told(root), "`site.yaml` is no file");
    }
}
