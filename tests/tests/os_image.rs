//! OS images for servers: the same bytes each time, and a machine that boots one does what its config drive says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use foothold::config::DiskFormat;
use foothold::store::Cache;
use foothold_qemu::{Disk, Firmware, Patience, Tools, VmBuilder, Writes};
use foothold_tests::os_image::{self, Workshop};
use foothold_tests::waits;
use rstest::rstest;

/// A boot with cloud-init, emulated on a busy host.
const PATIENCE: Patience = Patience { stall: Duration::from_secs(300), total: Duration::from_secs(850) };

fn workshop() -> Workshop {
    Workshop::open().unwrap_or_else(|error| panic!("opening the workshop: {error:#}"))
}

/// A volume as cloud-init's `NoCloud` reads it: a name, a key, and an answer made of both, which the kernel says:
/// systemd hangs the serial line up when it offers a login there, and what a program writes at that moment is lost.
fn seed(dir: &Path, home: &str) -> PathBuf {
    let user_data = format!(
        "#cloud-config\nssh_authorized_keys: [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey given-by-a-test\"]\nruncmd:\n\
         - [sh, -c, 'echo \"answer: $(hostname) $(cut -d\" \" -f3 {home}/.ssh/authorized_keys | tail -n1) \
         size=$(df -BM --output=size / | tail -n1) failed=$(systemctl --failed --no-legend | wc -l)\" > /dev/kmsg']\n"
    );
    let meta_data = "instance-id: test-1\nlocal-hostname: server-7\n";
    os_image::seed(dir, &[("meta-data", meta_data), ("user-data", &user_data)])
}

fn boots(name: &str, format: DiskFormat, firmware: Firmware, home: &str) {
    let workshop = workshop();
    let made = workshop.make(name, &[format], &workshop.builder.cache).unwrap_or_else(|error| panic!("{error:#}"));
    let image = workshop.path(made.file(format.name()).expect("the file"));
    let dir = tempfile::tempdir().expect("a folder");
    let tools = Tools::locate().expect("a toolbox");
    let kept = std::env::temp_dir().join(format!("foothold-os-image-{}", std::process::id()));
    let disk = Disk::open(&image).expect("an image").writes(Writes::Discard).grow_to(6 << 30);
    let seed = Disk::open(seed(dir.path(), home)).expect("a seed");
    let vm = VmBuilder::new(&tools, "server-7")
        .memory_mib(2048)
        .firmware(firmware)
        .boot(disk)
        .disk(seed)
        .keep_on_panic(&kept)
        .start()
        .unwrap_or_else(|error| panic!("{error}"));
    if let Err(error) = vm.wait_serial(PATIENCE, "answer: server-7 given-by-a-test size=") {
        panic!("{error}\nkept in {}", kept.display());
    }
    vm.wait_serial(Patience::total(Duration::from_secs(5)), "M failed=0").expect("no unit failed");
    let text = vm.serial_text();
    assert_eq!(waits::sat_out(&text), [""; 0], "its boot sat out a wait");
    let answer = text.lines().find(|line| line.contains("answer: ")).unwrap_or_default();
    workshop.builder.report.info(&format!("{answer} after {:?}", vm.since_power_on()));
    let size = answer.split("size=").nth(1).and_then(|rest| rest.split('M').next()?.trim().parse::<u64>().ok());
    assert!(size.is_some_and(|mib| mib > 5000), "the root did not grow: {size:?} MiB");
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test os_image -- --ignored`"]
fn the_rescue_image_takes_name_and_key_from_its_seed() {
    boots("rescue", DiskFormat::Qcow2, Firmware::Bios, "/root");
}

#[rstest]
#[case::rescue_uefi("rescue", DiskFormat::Raw, Firmware::Uefi, "/root")]
#[case::rescue_secure_boot("rescue", DiskFormat::Qcow2, Firmware::UefiSecureBoot, "/root")]
#[case::node_bios("debian-node", DiskFormat::Qcow2, Firmware::Bios, "/home/debian")]
#[case::node_uefi("debian-node", DiskFormat::Qcow2, Firmware::Uefi, "/home/debian")]
#[ignore = "slow: `cargo test -p foothold-tests --test os_image -- --ignored`"]
fn the_rest_of_the_matrix_boots(
    #[case] name: &str,
    #[case] format: DiskFormat,
    #[case] firmware: Firmware,
    #[case] home: &str,
) {
    boots(name, format, firmware, home);
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test os_image -- --ignored`"]
fn the_same_lock_gives_the_same_bytes_in_an_empty_cache() {
    let workshop = workshop();
    let formats = [DiskFormat::Qcow2];
    let first = workshop.make("rescue", &formats, &workshop.builder.cache).expect("an image");
    let dir = tempfile::tempdir_in(workshop.builder.cache.path("tests")).expect("a folder");
    let empty = Cache::open(dir.path()).expect("a cache");
    let again = workshop.make("rescue", &formats, &empty).expect("an image");
    assert_eq!(first, again);
}
