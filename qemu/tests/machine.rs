//! Real machines: a boot sector that counts its boots on the disk, tells the serial port, and switches
//! off when a byte arrives there.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foothold_qemu::{
    Accel, Bus, Disk, Firmware, Nic, Patience, Segment, Serial, StartError, Tools, Vm, VmBuilder, Writes,
};
use tempfile::TempDir;

const PATIENCE: Patience = Patience::total(Duration::from_secs(30));
const SECTOR: usize = 512;

/// 16-bit code for 0x7c00, entered with the BIOS number of the boot drive in dl.
#[rustfmt::skip]
const BOOT_SECTOR: [u8; 87] = [
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, // ds = es = ss = 0
    0xbc, 0x00, 0x7c,                               // mov sp, 0x7c00
    0xbb, 0x00, 0x80, 0xb9, 0x02, 0x00, 0xb6, 0x00, // buffer 0x8000, cylinder 0, head 0, sector 2
    0xb8, 0x01, 0x02, 0xcd, 0x13,                   // read one sector
    0xfe, 0x06, 0x00, 0x80,                         // inc byte [0x8000]
    0xb8, 0x01, 0x03, 0xcd, 0x13,                   // write it back
    0xa0, 0x00, 0x80, 0x04, 0x30, 0xa2, 0x53, 0x7c, // as a digit into the message
    0xbe, 0x47, 0x7c, 0xba, 0xf8, 0x03,             // message to the serial port:
    0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8, //   until its 0
    0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xfb, // wait for a byte
    0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, 0xf4, // ACPI: switch off
    b'b', b'o', b'o', b't', b' ', b'n', b'u', b'm', b'b', b'e', b'r', b' ', b'0', b'\r', b'\n', 0,
];

fn tools() -> Tools {
    Tools::locate_or_make().unwrap_or_else(|error| panic!("{error}"))
}

fn image(dir: &TempDir) -> PathBuf {
    let mut bytes = vec![0; 1 << 20];
    bytes[..BOOT_SECTOR.len()].copy_from_slice(&BOOT_SECTOR);
    bytes[SECTOR - 2..SECTOR].copy_from_slice(&[0x55, 0xaa]);
    let path = dir.path().join("boot.img");
    fs_err::write(&path, bytes).expect("writing the image");
    path
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

/// A volume that only El Torito knows: volume descriptors, boot catalog, boot image.
fn iso(dir: &TempDir) -> PathBuf {
    const BLOCK: usize = 2048;
    let mut bytes = vec![0; 64 * BLOCK];
    let mut put = |block: usize, at: usize, data: &[u8]| {
        bytes[block * BLOCK + at..][..data.len()].copy_from_slice(data);
    };
    put(16, 0, b"\x01CD001\x01");
    put(17, 0, b"\0CD001\x01EL TORITO SPECIFICATION");
    put(17, 0x47, &18_u32.to_le_bytes());
    // Validation entry: words sum up to 0; then a bootable image of one block, no emulation.
    put(18, 0, &[1]);
    put(18, 28, &[0xaa, 0x55, 0x55, 0xaa]);
    put(18, 32, &[0x88, 0, 0, 0, 0, 0, 4, 0, 20, 0, 0, 0]);
    put(20, 0, &BOOT_SECTOR);
    let path = dir.path().join("boot.iso");
    fs_err::write(&path, bytes).expect("writing the volume");
    path
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
