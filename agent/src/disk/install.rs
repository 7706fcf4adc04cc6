//! `firstBoot.mode: install`: the medium's partitions are copied to a disk of the box, and that is what it runs from.
//!
//! ```text
//! header of the table: begun -> partitions, read back and compared -> entries, second copy -> MBR: installed
//! ```
//! A power cut at any instant leaves a disk that is begun, and is finished at the next start, or one that is installed.
//! Which of the two starts the machine then does not matter: both hold the same release, and its DATA is on the disk.

use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use agent_api::release::{DataPlace, InstallTarget, Release};
use fs_err::File;
use uuid::Uuid;

use super::decide::{Holds, fits, rank};
use super::execute::{DiskError, on_disk, open_for_writing, write_all};
use super::facts::{is_in_force, look};
use super::table::{self, FoundTable, Table};
use super::{announce_partitions, probe};
use crate::host::block::{self, Disk};

/// Bytes that are copied at once.
const PIECE: usize = 4 << 20;
/// Bytes between two flushes: the percentage counts what is on the disk, not what waits in memory.
const FLUSH: u64 = 64 << 20;
/// Room for the second copy of the table, at the end of the disk.
const TABLE: u64 = 1 << 20;
/// Where a BIOS finds its code, and where the size of the protective partition stands (UEFI 2.10, 5.2.3).
const MBR: usize = 512;
const MBR_BLOCKS: std::ops::Range<usize> = 458..462;

/// What a disk is to an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All is on it.
    Installed,
    /// An installation was begun on it.
    Begun,
    /// It holds no installation of this appliance.
    Other(Holds),
}

/// A disk that is not the medium's.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What it is.
    pub disk: Disk,
    /// What it is to the installation.
    pub standing: Standing,
}

/// What a disk must have.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a logical block.
    pub block: u64,
}

/// All partitions, the second copy of the table, and DATA where that is to be on the same disk.
pub fn needs(table: &Table, release: &Release) -> Needs {
    let data = release.data.iter().find_map(|place| match place {
        DataPlace::BootDisk { min_bytes } => Some(*min_bytes),
        DataPlace::Disk { .. } | DataPlace::Ram => None,
    });
    Needs { bytes: table.end_of_image() + data.unwrap_or_default() + TABLE, block: table.block }
}

/// All disks but the medium's.
pub fn survey(medium: &str, id: Uuid) -> Vec<Candidate> {
    let disks = block::list(Path::new(block::SYS_BLOCK)).unwrap_or_default();
    let others = disks.into_iter().filter(|disk| disk.name != medium && !disk.name.starts_with("sr"));
    others.map(|disk| Candidate { standing: standing(&disk, id), disk }).collect()
}

/// What a disk is to the installation of that id. Reads only.
pub fn standing(disk: &Disk, id: Uuid) -> Standing {
    let read = File::open(block::node(&disk.name)).and_then(|mut device| {
        let head = probe::read_head(&mut device)?;
        Ok((table::read(&mut device, disk.bytes, disk.block_bytes)?, head))
    });
    if let Ok((found, head)) = read {
        let ours = |found: &FoundTable| found.table.disk_id == id && !found.table.used().is_empty();
        if found.as_ref().is_some_and(|found| ours(found) && is_in_force(found, &head))
            && table::has_protective_mbr(&head)
        {
            return Standing::Installed;
        }
        // One that is being installed is nothing else, and has no DATA yet: that is made by the box that runs from it.
        let is_else = probe::is_more_than_a_table(&probe::identify(&head))
            || found.is_some_and(|found| found.table.data().is_some());
        if !is_else && table::is_begun(&head, disk.block_bytes, id) {
            return Standing::Begun;
        }
    }
    Standing::Other(look(disk, id))
}

/// The disk that is installed, or the one to install on, or why there is none.
pub fn choose<'a>(wish: &InstallTarget, needs: Needs, candidates: &'a [Candidate]) -> Result<&'a Candidate, String> {
    if let Some(installed) = candidates.iter().find(|it| it.standing == Standing::Installed) {
        return Ok(installed);
    }
    let (mut good, mut reasons) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match why_not(wish, needs, candidate) {
            Some(why) => reasons.push(format!("{}: {why}", candidate.disk.name)),
            None => good.push(candidate),
        }
    }
    // One that was begun is finished before another is taken; what holds something is the last to be taken.
    good.sort_by_key(|it| {
        let worth = match it.standing {
            Standing::Installed | Standing::Begun => 0,
            Standing::Other(Holds::Nothing | Holds::Begun) => 1,
            Standing::Other(Holds::OnlyData { .. } | Holds::Foreign(_)) => 2,
        };
        (worth, it.disk.removable, rank(&wish.selector, &it.disk))
    });
    good.first().copied().ok_or_else(|| {
        if reasons.is_empty() { "there is no other disk than the medium's".to_owned() } else { reasons.join("; ") }
    })
}

fn why_not(wish: &InstallTarget, needs: Needs, candidate: &Candidate) -> Option<String> {
    let Candidate { disk, standing } = candidate;
    match standing {
        Standing::Other(Holds::OnlyData { .. }) => return Some("holds DATA of an appliance".to_owned()),
        Standing::Other(Holds::Foreign(what)) if wish.require_empty => return Some(format!("holds {what}")),
        Standing::Other(_) | Standing::Begun | Standing::Installed => {}
    }
    if disk.read_only {
        return Some("read-only".to_owned());
    }
    if disk.block_bytes != needs.block {
        return Some(format!("its blocks have {} bytes, the medium's {}", disk.block_bytes, needs.block));
    }
    if disk.bytes < needs.bytes {
        return Some(format!("has {} MiB, {} are needed", disk.bytes >> 20, needs.bytes.div_ceil(1 << 20)));
    }
    (!fits(&wish.selector, disk)).then(|| "not what was asked for".to_owned())
}

/// Puts the partitions of `source`, whose table is `table`, on `target`; `say` hears what is done and the percentage.
pub fn put_on(
    source: &Disk,
    target: &Disk,
    table: &Table,
    id: Uuid,
    say: &mut dyn FnMut(&str, u64),
) -> Result<(), DiskError> {
    let on_target = table.on_another_disk(id, target.bytes);
    let what = format!("the medium is copied to {} ({}, {} MiB)", target.name, target.bus, target.bytes >> 20);
    copy(source, target, &on_target, &mut |percent| say(&what, percent))?;
    block::forget_content(&block::node(&target.name)).map_err(on_disk("reading back", &target.name))?;
    let what = format!("{} is read back and compared", target.name);
    compare(source, target, &on_target, &mut |percent| say(&what, percent))?;
    finish(source, target, &on_target)?;
    // Partitions that were there before are gone; some kernels know the new ones only one by one.
    if block::read_table_again(&block::node(&target.name)).is_err() {
        announce_partitions(target);
    }
    Ok(())
}

/// Marks the disk as begun, and copies all partitions.
fn copy(source: &Disk, target: &Disk, table: &Table, say: &mut dyn FnMut(u64)) -> Result<(), DiskError> {
    write_all(target, &table.first_writes(target.bytes)[..1])?;
    let mut from = File::open(block::node(&source.name)).map_err(on_disk("opening", &source.name))?;
    let mut to = open_for_writing(target)?;
    let mut unflushed = 0;
    pieces(table, say, |at, piece| {
        read_at(&mut from, at, piece).map_err(on_disk("reading", &source.name))?;
        unflushed += piece.len() as u64;
        let flush = unflushed >= FLUSH;
        let written = to.seek(SeekFrom::Start(at)).and_then(|_| to.write_all(piece));
        let written = written.and_then(|()| if flush { to.sync_data() } else { Ok(()) });
        written.map_err(on_disk("writing", &target.name))?;
        unflushed = if flush { 0 } else { unflushed };
        Ok(())
    })?;
    to.sync_all().map_err(on_disk("writing", &target.name))
}

/// Whether all partitions are as on the medium.
fn compare(source: &Disk, target: &Disk, table: &Table, say: &mut dyn FnMut(u64)) -> Result<(), DiskError> {
    let open = |disk: &Disk| File::open(block::node(&disk.name)).map_err(on_disk("opening", &disk.name));
    let (mut from, mut to) = (open(source)?, open(target)?);
    let mut copy = vec![0; PIECE];
    pieces(table, say, |at, piece| {
        let copy = &mut copy[..piece.len()];
        read_at(&mut from, at, piece).map_err(on_disk("reading", &source.name))?;
        read_at(&mut to, at, copy).map_err(on_disk("reading back", &target.name))?;
        match piece.iter().zip(copy.iter()).position(|(ours, theirs)| ours != theirs) {
            Some(byte) => Err(DiskError::Differs { disk: target.name.clone(), offset: at + byte as u64 }),
            None => Ok(()),
        }
    })
}

/// Makes the table whole; the MBR, without which it does not count, comes last, with the code for a BIOS.
fn finish(source: &Disk, target: &Disk, table: &Table) -> Result<(), DiskError> {
    let mut code = vec![0; MBR];
    let read = File::open(block::node(&source.name)).and_then(|mut device| read_at(&mut device, 0, &mut code));
    read.map_err(on_disk("reading", &source.name))?;
    let mut writes = table.first_writes(target.bytes);
    if let Some(mbr) = writes.last_mut() {
        code[MBR_BLOCKS].copy_from_slice(&mbr.bytes[MBR_BLOCKS]);
        mbr.bytes = code;
    }
    write_all(target, &writes[1..])
}

fn read_at(device: &mut File, at: u64, into: &mut [u8]) -> io::Result<()> {
    device.seek(SeekFrom::Start(at))?;
    device.read_exact(into)
}

/// Does something with every piece of every partition, and tells each tenth of it.
fn pieces(
    table: &Table,
    say: &mut dyn FnMut(u64),
    mut each: impl FnMut(u64, &mut [u8]) -> Result<(), DiskError>,
) -> Result<(), DiskError> {
    let entries = table.used();
    let all: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let mut buffer = vec![0; PIECE];
    let (mut done, mut told) = (0, 0);
    for entry in entries {
        let end = entry.start + entry.bytes;
        let mut at = entry.start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            each(at, &mut buffer[..length])?;
            at += length as u64;
            done += length as u64;
            let percent = done * 100 / all.max(1);
            if percent / 10 > told {
                told = percent / 10;
                say(told * 10);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent_api::release::{DiskSelector, InstallTarget};
    use rstest::rstest;
    use uuid::Uuid;

    use super::{Candidate, Holds, Needs, Standing, choose, compare, copy, finish, standing, table};
    use crate::disk::execute::{DiskError, write_all};
    use crate::disk::table::{Extent, Table};
    use crate::host::block::Disk;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const ID: Uuid = Uuid::from_u128(5);
    const NEEDS: Needs = Needs { bytes: 2 * GIB, block: 512 };

    fn candidate(name: &str, gib: u64, standing: Standing) -> Candidate {
        let disk = Disk {
            name: name.to_owned(),
            bytes: gib * GIB,
            block_bytes: 512,
            bus: "virtio".to_owned(),
            ..Disk::default()
        };
        Candidate { disk, standing }
    }

    fn foreign() -> Standing {
        Standing::Other(Holds::Foreign("ext4 `home`".to_owned()))
    }

    const EMPTY: Standing = Standing::Other(Holds::Nothing);

    #[rstest]
    #[case::installed_wins(&[("vdb", 9, EMPTY), ("vdc", 1, Standing::Installed)], true, Ok("vdc"))]
    #[case::begun_is_finished(&[("vdb", 9, EMPTY), ("vdc", 9, Standing::Begun)], true, Ok("vdc"))]
    #[case::foreign_is_left(&[("vdb", 9, foreign()), ("vdc", 9, EMPTY)], true, Ok("vdc"))]
    #[case::foreign_only_after_empty(&[("vdb", 9, foreign()), ("vdc", 9, EMPTY)], false, Ok("vdc"))]
    #[case::foreign_where_it_may(&[("vdb", 9, foreign())], false, Ok("vdb"))]
    #[case::reasons(&[("vdb", 9, foreign()), ("vdc", 1, EMPTY)], true,
        Err("vdb: holds ext4 `home`; vdc: has 1024 MiB, 2048 are needed"))]
    #[case::none(&[], true, Err("there is no other disk than the medium's"))]
    fn the_disk_is_chosen(
        #[case] disks: &[(&str, u64, Standing)],
        #[case] require_empty: bool,
        #[case] expected: Result<&str, &str>,
    ) {
        let wish = InstallTarget { selector: DiskSelector::default(), require_empty };
        let disks: Vec<_> = disks.iter().map(|(name, gib, standing)| candidate(name, *gib, standing.clone())).collect();
        let chosen = choose(&wish, NEEDS, &disks).map(|it| it.disk.name.as_str());
        assert_eq!(chosen, expected.map_err(str::to_owned).as_ref().map(|name| *name).map_err(Clone::clone));
    }

    #[test]
    fn the_selector_read_only_disks_and_other_blocks_count() {
        let selector = DiskSelector { bus: Some("nvme".to_owned()), ..DiskSelector::default() };
        let wish = InstallTarget { selector, require_empty: true };
        let mut disks = [candidate("vdb", 9, EMPTY), candidate("vdc", 9, EMPTY), candidate("vdd", 9, EMPTY)];
        disks[1].disk.read_only = true;
        disks[2].disk.block_bytes = 4096;
        let reasons = choose(&wish, NEEDS, &disks).expect_err("none fits");
        let expected = "vdb: not what was asked for; vdc: read-only; vdd: its blocks have 4096 bytes, the medium's 512";
        assert_eq!(reasons, expected);
    }

    /// A medium of 16 MiB whose partitions hold something, and an empty disk of 24 MiB.
    struct Pair {
        _folder: tempfile::TempDir,
        medium: Disk,
        target: Disk,
        table: Table,
    }

    impl Pair {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let disk = |name: &str, mib: u64| {
                let path = folder.path().join(name);
                fs_err::write(&path, vec![0; usize::try_from(mib * MIB).expect("small")]).expect("written");
                Disk {
                    name: path.to_string_lossy().into_owned(),
                    bytes: mib * MIB,
                    block_bytes: 512,
                    ..Disk::default()
                }
            };
            let (medium, target) = (disk("medium", 16), disk("target", 24));
            let mut table = Table::new(Uuid::from_u128(1), medium.bytes, 512);
            table.add_data(Extent { start: MIB, bytes: 2 * MIB }, Uuid::from_u128(2)).expect("room");
            // A partition that is not DATA by its type.
            table = table.with_kind_of(4, Uuid::from_u128(9));
            write_all(&medium, &table.first_writes(medium.bytes)).expect("a table");
            let mut bytes = fs_err::read(&medium.name).expect("read");
            bytes[..4].copy_from_slice(b"code");
            bytes[1 << 20..(1 << 20) + 5].copy_from_slice(b"STORE");
            fs_err::write(&medium.name, bytes).expect("written");
            let table = table.on_another_disk(ID, target.bytes);
            Self { _folder: folder, medium, target, table }
        }
    }

    #[test]
    fn a_disk_is_begun_until_everything_is_on_it_and_then_starts_as_the_medium_does() {
        let Pair { medium, target, table, .. } = &Pair::new();
        assert_eq!(standing(target, ID), EMPTY);
        let writes = table.first_writes(target.bytes);
        for written in 1..writes.len() {
            write_all(target, &writes[..written]).expect("written");
            assert_eq!(standing(target, ID), Standing::Begun, "after {written} writes");
        }
        let mut told = Vec::new();
        copy(medium, target, table, &mut |percent| told.push(percent)).expect("copied");
        assert_eq!(told, [100]);
        compare(medium, target, table, &mut |_| ()).expect("the same");
        finish(medium, target, table).expect("finished");
        assert_eq!(standing(target, ID), Standing::Installed);
        assert_eq!(standing(medium, ID), Standing::Other(Holds::Foreign("GUID partition table".to_owned())));
        let bytes = fs_err::read(&target.name).expect("read");
        assert_eq!((&bytes[..4], &bytes[1 << 20..(1 << 20) + 5]), (&b"code"[..], &b"STORE"[..]));
        let mut device = std::io::Cursor::new(bytes);
        let found = table::read(&mut device, target.bytes, 512).expect("read").expect("a table");
        assert!(found.primary_good && found.backup_good);
    }

    #[rstest]
    #[case::mbr_lost(510, &[0, 0], true, "GUID partition table")]
    #[case::mdadm(4096, b"\xfc\x4e\x2b\xa9", false, "GUID partition table, RAID member")]
    #[case::pvcreate(512, b"LABELONE", false, "MBR partition table, LVM2 physical volume")]
    fn an_installed_disk_that_became_something_else_is_not_installed_on_again(
        #[case] at: usize,
        #[case] bytes: &[u8],
        #[case] with_data: bool,
        #[case] holds: &str,
    ) {
        let Pair { medium, target, table, .. } = &Pair::new();
        copy(medium, target, table, &mut |_| ()).expect("copied");
        finish(medium, target, table).expect("finished");
        if with_data {
            let mut table = table.clone();
            table.add_data(Extent { start: 8 * MIB, bytes: MIB }, Uuid::from_u128(3)).expect("room");
            write_all(target, &table.writes(true)).expect("a table");
        }
        assert_eq!(standing(target, ID), Standing::Installed);
        let mut disk = fs_err::read(&target.name).expect("read");
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        fs_err::write(&target.name, disk).expect("written");
        assert_eq!(standing(target, ID), Standing::Other(Holds::Foreign(holds.to_owned())));
    }

    #[test]
    fn a_disk_that_does_not_keep_what_is_written_is_told() {
        let Pair { medium, target, table, .. } = &Pair::new();
        copy(medium, target, table, &mut |_| ()).expect("copied");
        let mut bytes = fs_err::read(&target.name).expect("read");
        bytes[(1 << 20) + 700] ^= 1;
        fs_err::write(&target.name, bytes).expect("written");
        let error = compare(medium, target, table, &mut |_| ()).expect_err("a byte differs");
        assert!(matches!(error, DiskError::Differs { offset, .. } if offset == MIB + 700), "{error}");
    }
}
