//! The file system of volumes, really made and mounted, on a DATA of its own: as root, with loop devices.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_api::boot::{BootFacts, DataFound, Mode};
use agent_api::release::{Release, Storage};
use foothold_agent::content::space::Keeper as _;
use foothold_agent::host::{Runner as _, System};
use foothold_agent::machine::Machine;
use foothold_agent::services::Volumes;

const MIB: u64 = 1 << 20;
const FOLDER: &str = "var/lib/foothold/volumes";

fn call(argv: &[&str]) {
    System::new().run(argv, b"", Duration::from_secs(60)).unwrap_or_else(|error| panic!("{argv:?}: {error}"));
}

/// What is mounted there is unmounted with it.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // What failed is told by the test; a folder that is still in use goes with its last user.
        let _ = System::new().run(&["umount", "--lazy", &self.0.to_string_lossy()], b"", Duration::from_secs(60));
    }
}

fn machine(root: &Path) -> Machine {
    let facts = BootFacts {
        release: "ab".repeat(32),
        mode: Mode::Run,
        medium: "vda3".to_owned(),
        data: DataFound::Partition { device: "vda4".to_owned(), created: true },
        machine_id: "4f2a10c3".repeat(4),
        first_boot: true,
        clock_was_wrong: false,
    };
    let release = Release { storage: Some(Storage { share_percent: 50 }), ..Release::default() };
    Machine::new(root, Arc::new(System::new()), release, facts, String::new())
}

#[test]
#[ignore = "needs root and loop devices: `cargo test -p foothold-agent --test volumes -- --ignored`"]
fn volumes_have_their_share_of_data_and_no_more_and_are_there_again_after_a_reboot() {
    let dir = tempfile::tempdir().expect("a folder");
    let (disk, var, folder) = (dir.path().join("disk"), dir.path().join("var"), dir.path().join(FOLDER));
    fs_err::File::create(&disk).and_then(|file| file.set_len(128 * MIB)).expect("a disk");
    call(&["mke2fs", "-q", "-F", "-t", "ext4", &disk.to_string_lossy()]);
    fs_err::create_dir(&var).expect("a folder");
    call(&["mount", "-o", "loop", &disk.to_string_lossy(), &var.to_string_lossy()]);
    let data = Mounted(&var);
    fs_err::create_dir_all(folder.parent().expect("a parent")).expect("made");
    let free = || rustix::fs::statvfs(&var).map(|found| found.f_bavail * found.f_frsize).expect("DATA");

    let (machine, before) = (machine(dir.path()), free());
    let volumes = Volumes::of(&machine).expect("declared");
    volumes.mount_known().expect("there is nothing yet");
    assert!(volumes.mounted().is_err() && volumes.shares().is_empty());
    let bytes = volumes.bring_up().expect("made").expect("it is new");
    let first = Mounted(&folder);
    assert!((40 * MIB..64 * MIB).contains(&bytes), "{bytes}");
    assert!(before - free() >= bytes, "its whole size is set aside");
    assert_eq!(volumes.bring_up().expect("asked again"), None);

    // A volume takes what is there, and DATA has as much as before.
    let left = free();
    fs_err::create_dir(folder.join("pvc-1")).expect("a volume");
    let mut file = fs_err::File::create(folder.join("pvc-1/data")).expect("a file");
    let (block, mut written) = (vec![7; 1 << 16], 0);
    let full = loop {
        match file.write_all(&block) {
            Ok(()) => written += 1 << 16,
            Err(error) => break error,
        }
        assert!(written <= bytes, "more than its share");
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    drop(file);
    rustix::fs::sync();
    assert!(left - free() < MIB, "{left} {}", free());
    let (kind, share) = volumes.shares().remove(0);
    assert!(kind == "volumes" && share.full.is_some() && share.limit_bytes <= bytes, "{share:?}");
    fs_err::write(folder.join("pvc-1/data"), "kept").expect("there is room again");

    // A reboot: what was there is there before anything else runs, and nothing is made where it is missing.
    drop(first);
    assert!(volumes.mounted().is_err());
    fs_err::create_dir(folder.join("pvc-2")).expect_err("DATA itself takes no volumes");
    volumes.mount_known().expect("mounted");
    let second = Mounted(&folder);
    assert_eq!(fs_err::read_to_string(folder.join("pvc-1/data")).expect("it is kept"), "kept");
    drop(second);
    drop(data);
}
