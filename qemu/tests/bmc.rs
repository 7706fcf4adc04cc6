//! The power of a real machine, as a BMC switches it.

use std::path::PathBuf;
use std::time::Duration;

use foothold_qemu::bmc::{Act, Boot, BootFrom, Mode, Power, VmPower};
use foothold_qemu::{Disk, Patience, Tools, Vm, VmBuilder, Writes};
use serde_json::{Value, json};
use tempfile::TempDir;

mod boot_sector;

const PATIENCE: Patience = Patience::total(Duration::from_secs(60));

fn wait_serial(power: &VmPower, text: &str) {
    let waited = power.with_vm(|vm| vm.wait_serial(PATIENCE, text).unwrap_or_else(|error| panic!("{error}")));
    waited.expect("the machine is on");
}

fn ask(power: &VmPower, command: &str, arguments: Option<&Value>) -> Value {
    let asked = power.with_vm(|vm: &Vm| vm.qmp(command, arguments).unwrap_or_else(|error| panic!("{error}")));
    asked.expect("the machine is on")
}

fn boot_index(power: &VmPower, device: &str) -> Value {
    let property = json!({ "path": format!("/machine/peripheral/{device}"), "property": "bootindex" });
    ask(power, "qom-get", Some(&property))
}

/// What lies in the CD drive.
fn medium(power: &VmPower) -> Option<String> {
    let drives = ask(power, "query-block", None);
    let drive = drives.as_array()?.iter().find(|drive| drive["qdev"] == "cd")?;
    Some(drive["inserted"]["file"].as_str()?.to_owned())
}

fn machine(dir: &TempDir) -> (VmPower, PathBuf) {
    let tools = Tools::locate_or_make().unwrap_or_else(|error| panic!("{error}"));
    let disk = Disk::open(boot_sector::image(dir)).unwrap_or_else(|error| panic!("{error}"));
    let disk = disk.writes(Writes::Overlay(dir.path().join("disk.qcow2")));
    let iso = boot_sector::iso(dir);
    let builder = VmBuilder::new(&tools, "server").memory_mib(128).cpus(1).boot(disk);
    (VmPower::new(builder, Duration::from_secs(2)), iso)
}

#[test]
fn a_machine_is_switched_reset_booted_otherwise_for_once_and_gets_a_medium() {
    let dir = tempfile::tempdir().expect("a folder");
    let (power, iso) = machine(&dir);
    let legacy = Boot { mode: Mode::Legacy, ..Boot::default() };
    let act = |act, boot| power.act(act, boot).unwrap_or_else(|error| panic!("{error}: {}", error.source));
    assert!(!power.is_on());
    act(Act::On, legacy);
    wait_serial(&power, "boot number 1");
    assert_eq!((boot_index(&power, "disk0-device"), boot_index(&power, "cd")), (json!(0), json!(1)));

    power.insert(Some(&iso)).unwrap_or_else(|error| panic!("{error}: {}", error.source));
    assert_eq!(medium(&power).as_deref(), iso.to_str());
    act(Act::Reset, Boot { from: BootFrom::Cd, once: true, ..legacy });
    // A disc counts nothing.
    wait_serial(&power, "boot number 1");
    let line = power.with_vm(|vm| vm.command_line().to_owned()).expect("the machine is on");
    assert!(line.contains("ide-cd,id=cd,bootindex=0,drive=medium"), "{line}");
    power.with_vm(|vm| vm.reset().unwrap_or_else(|error| panic!("{error}")));
    wait_serial(&power, "boot number 2");
    assert_eq!((boot_index(&power, "disk0-device"), boot_index(&power, "cd")), (json!(0), json!(1)), "only once");
    power.insert(None).unwrap_or_else(|error| panic!("{error}: {}", error.source));
    assert_eq!(medium(&power), None);

    power.with_vm(|vm| vm.serial_write(b"x").unwrap_or_else(|error| panic!("{error}")));
    power.with_vm(|vm| vm.wait_exit(Duration::from_secs(30)).map_or_else(|error| panic!("{error}"), drop));
    assert!(!power.is_on(), "it switched itself off");
    act(Act::On, legacy);
    wait_serial(&power, "boot number 3");
    act(Act::Off, legacy);
    assert!(!power.is_on());
}
