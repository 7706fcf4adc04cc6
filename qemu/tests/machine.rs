//! Real machines: a boot sector that counts its boots on the disk, tells the serial port, and switches
//! off when a byte arrives there.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use foothold_qemu::{
    Accel, Bus, Disk, Firmware, Nic, Patience, Segment, Serial, StartError, TapDevice, Tools, Vm, VmBuilder, Writes,
};

use foothold_qemu::site::{Lan, Namespace};

mod boot_sector;

use boot_sector::{image, iso};

const PATIENCE: Patience = Patience::total(Duration::from_secs(30));

fn tools() -> Tools {
    Tools::locate_or_make().unwrap_or_else(|error| panic!("{error}"))
}

fn small(name: &str) -> VmBuilder {
    VmBuilder::new(&tools(), name).memory_mib(128).cpus(1)
}

fn disk(path: &Path) -> Disk {
    Disk::open(path).unwrap_or_else(|error| panic!("{error}"))
}

fn start(builder: &VmBuilder) -> Vm {
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

fn wait_serial(vm: &Vm, text: &str) {
    vm.wait_serial(PATIENCE, text).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn an_iso_is_a_cd() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let vm = start(&small("box").boot(disk(&iso(&dir))));
    wait_serial(&vm, "boot number");
}

#[test]
fn software_emulation_always_runs_and_the_verdict_is_kept() {
    let tools = tools();
    assert!(Accel::Tcg.boots(&tools, PATIENCE.total).expect("QEMU starts").is_some());
    let dir = tempfile::tempdir().expect("temporary folder");
    let cache = dir.path().join("qemu/accel.json");
    let accel = Accel::detect_cached(&tools, &cache);
    let verdict = fs_err::read_to_string(&cache).expect("written");
    assert!(verdict.contains(if accel == Accel::Kvm { "\"kvm\"" } else { "\"tcg\"" }), "{verdict}");
    assert_eq!(Accel::detect_cached(&tools, &cache), accel);
}

#[test]
fn the_image_boots_from_every_bus_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let image = image(&dir);
    let before = fs_err::read(&image).expect("reading");
    for bus in [Bus::Virtio, Bus::Usb, Bus::Sata, Bus::Scsi, Bus::Nvme] {
        let grown = disk(&image).bus(bus).grow_to(64 << 20);
        let vm = start(&small("box").boot(grown).scratch_in(dir.path()));
        wait_serial(&vm, "boot number 1\r\n");
        assert_eq!(vm.exited(), None);
        vm.serial_write(b"x").expect("typing");
        assert!(vm.wait_exit(PATIENCE.total).expect("switches itself off").success());
    }
    assert!(before == fs_err::read(&image).expect("reading"), "the image changed");
    let left: Vec<_> =
        fs_err::read_dir(dir.path()).expect("listing").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["boot.img"]);
}

#[test]
fn an_overlay_survives_a_power_cut_and_a_reset() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let overlay = Writes::Overlay(dir.path().join("disk.qcow2"));
    let builder = small("box").boot(disk(&image(&dir)).writes(overlay)).nic(Nic::no_cable());
    let vm = start(&builder);
    wait_serial(&vm, "boot number 1");
    vm.kill().expect("cutting the power");
    let vm = start(&builder);
    wait_serial(&vm, "boot number 2");
    vm.reset().expect("resetting");
    wait_serial(&vm, "boot number 3");
    vm.quit().expect("ending");
}

#[test]
fn firmware_shows_itself_and_failures_leave_something_to_look_at() {
    let dir = tempfile::tempdir().expect("temporary folder");
    for firmware in [Firmware::Uefi, Firmware::UefiSecureBoot] {
        let vm = start(&small("box").memory_mib(256).firmware(firmware));
        wait_serial(&vm, "BdsDxe: ");
        let kept = dir.path().join(format!("{firmware:?}"));
        vm.keep(&kept).expect("saving");
        let mut header = [0; 8];
        fs_err::File::open(kept.join("screen.png")).expect("saved").read_exact(&mut header).expect("has a header");
        assert_eq!(&header, b"\x89PNG\r\n\x1a\n");
        assert!(fs_err::read_to_string(kept.join("serial.txt")).expect("saved").contains("BdsDxe: "));
        assert!(fs_err::read_to_string(kept.join("qemu.log")).expect("saved").contains("-machine q35"));
        let processors = fs_err::read_to_string(kept.join("processors.txt")).expect("saved");
        assert_eq!(processors.matches("RIP=").count(), 2, "{processors}");
        // A long instruction has several lines.
        assert!(processors.lines().filter(|line| line.starts_with("0x")).count() >= 2 * 24, "{processors}");
        let error = vm.wait_serial(Patience::total(Duration::from_millis(100)), "login:").expect_err("never comes");
        assert!(error.to_string().contains("BdsDxe: "), "{error}");
    }
}

#[test]
fn a_failing_test_keeps_what_its_machine_said() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let image = image(&dir);
    let failed = std::panic::catch_unwind(|| {
        let log = dir.path().join("live.log");
        let vm = start(&small("box").boot(disk(&image)).keep_on_panic(dir.path()).serial_log(log));
        wait_serial(&vm, "boot number 1\r\n");
        panic!("on purpose");
    });
    assert!(failed.is_err());
    let serial = fs_err::read_to_string(dir.path().join("box/serial.log")).expect("kept");
    assert!(serial.ends_with("boot number 1\r\n"));
    assert!(dir.path().join("box/screen.png").exists());
    assert_eq!(fs_err::read_to_string(dir.path().join("live.log")).expect("written"), serial);
}

#[test]
fn a_stuck_serial_port_takes_nothing() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let log = dir.path().join("serial.log");
    let vm = start(&small("box").boot(disk(&image(&dir))).serial(Serial::Stuck).serial_log(&log));
    let error = vm.wait_serial(Patience::total(Duration::from_secs(2)), "boot number").expect_err("never comes");
    assert!(error.to_string().contains("not there after"), "{error}");
    assert_eq!(vm.serial_text(), "");
    // QEMU logs what the other end took; the byte under way counts.
    assert!(fs_err::read_to_string(&log).expect("made").len() <= 1);
}

#[test]
fn dropping_the_handle_ends_the_process() {
    let vm = start(&small("box").serial(Serial::Absent).clock("1970-01-01T00:00:00"));
    let pid = vm.pid();
    let running = || Path::new(&format!("/proc/{pid}")).exists();
    assert!(running());
    drop(vm);
    assert!(!running());
}

#[test]
fn forwarded_ports_are_on_loopback_and_differ() {
    let vm = start(&small("box").nic(Nic::user(&[8443, 6443])).nic(Nic::silent()));
    let [web, api] = [8443, 6443].map(|port| vm.forwarded(port).expect("forwarded"));
    assert_ne!(web, api);
    assert!(web.ip().is_loopback() && api.ip().is_loopback());
    std::net::TcpStream::connect(web).expect("QEMU listens");
    assert_eq!(vm.forwarded(22), None);
    vm.set_cable(1, false).expect("pulling the cable");
}

#[test]
fn machines_on_a_segment_are_heard() {
    let segment = Segment::new();
    let tap = segment.tap().expect("plugged in");
    // Nothing to boot from but the network: the firmware asks for an address.
    let _vm = start(&small("server").nic(Nic::segment(&segment).mac("52:54:00:00:00:07").boot()));
    let mut frame = [0; 2048];
    let length = tap.receive(&mut frame, PATIENCE.total).expect("a frame comes");
    assert_eq!(frame[6..12], [0x52, 0x54, 0, 0, 0, 7], "frame of {length} bytes from the machine's address");
}

#[test]
fn what_qemu_refuses_is_in_the_error() {
    let error = small("box").memory_mib(u32::MAX).start().expect_err("more memory than there is address space");
    assert!(matches!(error, StartError::Qemu(_)), "{error}");
    assert!(error.to_string().starts_with("QEMU did not start: qemu-system-x86_64: "), "{error}");
}

/// In a network namespace of the test's own.
#[test]
fn a_cable_leads_to_a_bridge_of_the_users_own_and_to_nothing_else() {
    let tools = tools();
    let space = Namespace::make().expect("a namespace");
    let told = space.run(move || {
        let lan = Lan::make(&tools).expect("a bridge");
        // As many as one likes, from one process.
        let _cables = [(); 2].map(|()| lan.cable_to_users("br0").expect("a cable to the bridge"));
        let held = TapDevice::new("held").expect("a device");
        let error = lan.cable_to_users(held.name()).expect_err("it is held").to_string();
        assert!(error.starts_with("another program holds the TAP device `held`"), "{error}");
        ["lo", "absent", "", "../br0"].map(|name| lan.cable_to_users(name).expect_err("refused").to_string())
    });
    for text in told {
        assert!(text.contains("is neither a bridge nor a TAP device"), "{text}");
    }
}
