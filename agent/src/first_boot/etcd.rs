//! etcd's data before there is a cluster in it.
//!
//! etcd makes its write-ahead log first, and writes into it later that it is the cluster's only member. When the power goes
//! between the two, it starts again with an empty log: no member, so nobody to elect, and it waits for a leader for ever. So
//! what a boot left that never saw its etcd take the cluster's state, or its API server answer, is thrown away: nobody
//! can have put anything there.
//!
//! A file tells such data, with the boot that made it. It is there before etcd's first start, and it goes, for good, before
//! anything else relies on what etcd has. Data without that file is never touched.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;

use super::Machine;
use crate::host::files;

/// Where etcd keeps its data, and who may look into it.
const DATA: &str = "/var/lib/etcd";
const MODE: u32 = 0o700;
/// What etcd makes there.
const MEMBER: &str = "/var/lib/etcd/member";
/// Holds the boot that started etcd first, until there is a cluster.
const BEGUN: &str = "/var/lib/foothold/etcd-begun";
/// Names this boot (`random(4)`).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Makes the folder for root alone, as kubeadm has it: the kubelet would make one that everybody reads. Throws away what
/// another boot began and did not end. Returns whether it did.
///
/// # Errors
/// When the disk refuses.
pub fn prepare(machine: &Machine) -> io::Result<bool> {
    let (data, member, begun) = (machine.at(DATA), machine.at(MEMBER), machine.at(BEGUN));
    fs_err::create_dir_all(&data)?;
    if fs_err::metadata(&data)?.permissions().mode() & 0o777 != MODE {
        fs_err::set_permissions(&data, Permissions::from_mode(MODE))?;
    }
    let boot = fs_err::read(machine.at(BOOT))?;
    let before = match fs_err::read(&begun) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // A disk that does not tell is no reason to throw anything away.
    let was_there = member.try_exists()?;
    // In the boot that began it, etcd may run.
    if before.as_ref() == Some(&boot) || (before.is_none() && was_there) {
        return Ok(false);
    }
    files::remove_tree(&member)?;
    files::sync_dir(&data)?;
    files::replace_below(&machine.at("/"), &begun, &boot)?;
    Ok(was_there)
}

/// There is a cluster in it: from now on it is kept. On the disk when it returns.
///
/// # Errors
/// When the disk refuses.
pub fn keep(machine: &Machine) -> io::Result<()> {
    let begun = machine.at(BEGUN);
    if begun.try_exists()? {
        files::remove(&begun)?;
        files::sync_dir(begun.parent().unwrap_or(&begun))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{BEGUN, BOOT, DATA, MEMBER, keep, prepare};
    use crate::host::files;
    use crate::host::runner::FakeRunner;
    use crate::machine::Machine;
    use crate::machine::tests::machine;

    fn boot(box_: &Machine, id: &str) {
        files::write(&box_.at(BOOT), id.as_bytes(), files::PUBLIC).expect("written");
    }

    /// What etcd writes.
    fn member(box_: &Machine) -> impl Fn() -> bool {
        let log = box_.at(MEMBER).join("wal/0.wal");
        files::write(&log, b"a log", files::PUBLIC).expect("written");
        move || log.exists()
    }

    fn a_box(dir: &Path) -> Machine {
        let box_ = machine(dir, FakeRunner::default());
        boot(&box_, "first");
        box_
    }

    #[test]
    fn only_root_looks_into_what_etcd_keeps() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = a_box(dir.path());
        let mode = || fs_err::metadata(box_.at(DATA)).expect("there").permissions().mode() & 0o777;
        for before in [None, Some(0o755), Some(0o700)] {
            if let Some(before) = before {
                fs_err::set_permissions(box_.at(DATA), std::fs::Permissions::from_mode(before)).expect("changed");
            }
            prepare(&box_).expect("made");
            assert_eq!(mode(), 0o700);
        }
    }

    #[test]
    fn what_a_power_cut_left_of_a_beginning_is_thrown_away_until_there_is_a_cluster() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = a_box(dir.path());
        assert!(!prepare(&box_).expect("made"));
        let is_there = member(&box_);
        assert!(!prepare(&box_).expect("an agent that starts again leaves it alone"));
        assert!(is_there());
        for id in ["second", "third"] {
            boot(&box_, id);
            assert!(prepare(&box_).expect("thrown away"));
            assert!(!is_there());
            let _ = member(&box_);
        }
        keep(&box_).expect("kept");
        keep(&box_).expect("kept already");
        assert!(!box_.at(BEGUN).exists());
        for id in ["third", "fourth"] {
            boot(&box_, id);
            assert!(!prepare(&box_).expect("kept"));
            assert!(is_there());
        }
    }

    /// A link to itself is to a look what a failing disk is: an error.
    #[test]
    fn a_disk_that_does_not_tell_throws_nothing_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = a_box(dir.path());
        fs_err::create_dir_all(box_.at(DATA)).expect("made");
        let link = |path: &str| fs_err::os::unix::fs::symlink(box_.at(path), box_.at(path)).expect("a link");
        link(MEMBER);
        prepare(&box_).expect_err("told");
        assert!(fs_err::symlink_metadata(box_.at(MEMBER)).is_ok() && !box_.at(BEGUN).exists());
        fs_err::create_dir_all(box_.at(BEGUN).parent().expect("a folder")).expect("made");
        link(BEGUN);
        keep(&box_).expect_err("what is not gone for sure would throw the cluster away at the next boot");
    }

    #[test]
    fn data_that_nobody_marked_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = a_box(dir.path());
        let is_there = member(&box_);
        assert!(!prepare(&box_).expect("kept"));
        assert!(is_there() && !box_.at(BEGUN).exists());
    }
}
