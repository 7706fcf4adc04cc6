//! Tests of the command line.

use rstest::rstest;

use super::*;
use crate::disk::Format;

fn machine() -> Machine {
    Machine {
        name: "box".into(),
        uuid: "00000000-0000-4000-8000-000000000001".into(),
        accel: Accel::Tcg,
        memory_mib: 4096,
        cpus: 2,
        firmware: FirmwareFiles::Bios,
        drives: Vec::new(),
        nics: Vec::new(),
        cd: None,
        boot_first: None,
        rtc_base: None,
        kernel: None,
        serial_log: None,
        sockets: Sockets { qmp: 10, events: 11, serial: Some(12) },
    }
}

fn disk(bus: Bus) -> Drive {
    Drive {
        path: "/run/a,b.qcow2".into(),
        format: Format::Qcow2,
        bus,
        read_only: false,
        flush: Flush::Never,
        serial: None,
        block_bytes: None,
    }
}

#[test]
fn plain_machine() {
    let expected = "-nodefaults -no-user-config -name box,debug-threads=on -uuid 00000000-0000-4000-8000-000000000001 \
        -machine q35,smm=off,vmport=off,dump-guest-core=off -accel tcg,thread=multi \
        -cpu max,la57=off,mpx=off,pku=off,smap=off,smep=off,umip=off,erms=off,fsrm=off -smp 2 -m 4096M -S \
        -display none -device VGA -device virtio-rng-pci -boot strict=on \
        -chardev socket,id=qmp,fd=10 -mon chardev=qmp,mode=control -device virtio-serial-pci \
        -chardev socket,id=events,fd=11 -device virtserialport,chardev=events,name=org.foothold.events \
        -chardev socket,id=serial,fd=12 -device isa-serial,chardev=serial";
    assert_eq!(argv(&machine()).join(" "), expected);
}

#[rstest]
#[case::virtio(Bus::Virtio, None, "virtio-blk-pci,drive=disk0,bootindex=0")]
#[case::serial(Bus::Virtio, Some("S1"), "virtio-blk-pci,drive=disk0,bootindex=0,serial=S1")]
#[case::usb(Bus::Usb, None, "usb-storage,bus=xhci.0,removable=on,drive=disk0,bootindex=0")]
#[case::cdrom(Bus::Cdrom, None, "ide-cd,drive=disk0,bootindex=0")]
#[case::sata(Bus::Sata, None, "ide-hd,drive=disk0,bootindex=0")]
#[case::scsi(Bus::Scsi, None, "scsi-hd,bus=scsi.0,drive=disk0,bootindex=0")]
#[case::nvme(Bus::Nvme, None, "nvme,drive=disk0,bootindex=0,serial=disk0")]
fn disks_are_plugged_into_their_bus(#[case] bus: Bus, #[case] serial: Option<&str>, #[case] expected: &str) {
    let drive = Drive { serial: serial.map(str::to_owned), ..disk(bus) };
    let line = argv(&Machine { drives: vec![drive], ..machine() });
    assert_eq!(line.last().map(String::as_str), Some(expected));
    let has = |device: &str| line.iter().any(|argument| argument == device);
    assert_eq!(has("qemu-xhci,id=xhci"), bus == Bus::Usb);
    assert_eq!(has("virtio-scsi-pci,id=scsi"), bus == Bus::Scsi);
}

#[test]
fn a_disk_may_have_large_logical_blocks() {
    let drive = Drive { block_bytes: Some(4096), ..disk(Bus::Nvme) };
    let line = argv(&Machine { drives: vec![drive], ..machine() });
    let expected = "nvme,drive=disk0,bootindex=0,serial=disk0,logical_block_size=4096,physical_block_size=4096";
    assert_eq!(line.last().map(String::as_str), Some(expected));
}

#[rstest]
#[case::throw_away(Flush::Never, true, true)]
#[case::kept(Flush::HostCache, false, true)]
#[case::in_place(Flush::HostDisk, false, false)]
fn flushes_go_as_far_as_they_should(#[case] flush: Flush, #[case] format: bool, #[case] file: bool) {
    let blockdev = blockdev(Drive { flush, ..disk(Bus::Virtio) });
    assert_eq!(blockdev["cache"]["no-flush"], format);
    assert_eq!(blockdev["file"]["cache"]["no-flush"], file);
}

#[rstest]
#[case::overlay(disk(Bus::Virtio), "qcow2", "file", false)]
#[case::device(Drive { path: "/dev/loop7".into(), format: Format::Raw, ..disk(Bus::Sata) }, "raw", "host_device", false)]
#[case::cd(Drive { format: Format::Iso, read_only: true, ..disk(Bus::Cdrom) }, "raw", "file", true)]
fn images_are_opened_as_what_they_are(
    #[case] drive: Drive,
    #[case] format: &str,
    #[case] file: &str,
    #[case] read_only: bool,
) {
    let path = drive.path.clone();
    let blockdev = blockdev(drive);
    assert_eq!(blockdev["driver"], format);
    assert_eq!(blockdev["file"]["driver"], file);
    assert_eq!(blockdev["file"]["filename"], path);
    assert_eq!(blockdev["read-only"], read_only);
}

fn blockdev(drive: Drive) -> serde_json::Value {
    let line = argv(&Machine { drives: vec![drive], ..machine() });
    let at = line.iter().position(|argument| argument == "-blockdev").expect("has one");
    serde_json::from_str(&line[at + 1]).expect("is JSON")
}

#[rstest]
#[case::nobody(Backend::Nobody, "hubport,id=nic0,hubid=1")]
#[case::user(Backend::User { forwards: vec![] }, "user,id=nic0,restrict=on,ipv6=off,net=10.0.2.0/24")]
#[case::forwards(Backend::User { forwards: vec![(40001, 8443), (40002, 6443)] },
    "user,id=nic0,restrict=on,ipv6=off,net=10.0.2.0/24,hostfwd=tcp:127.0.0.1:40001-:8443,hostfwd=tcp:127.0.0.1:40002-:6443")]
#[case::device(Backend::Device { fd: 9 }, "tap,id=nic0,fd=9")]
#[case::segment(Backend::Socket { fd: 9 }, "dgram,id=nic0,local.type=fd,local.str=9")]
fn network_cards(#[case] backend: Backend, #[case] expected: &str) {
    let nic =
        |boot| WiredNic { model: NicModel::Virtio, mac: "52:54:00:00:00:01".into(), boot, backend: backend.clone() };
    let expected = format!(
        "-netdev {expected} -device virtio-net-pci,id=nic0-card,netdev=nic0,mac=52:54:00:00:00:01,speed=10000,duplex=full"
    );
    assert!(argv(&Machine { nics: vec![nic(false)], ..machine() }).join(" ").ends_with(&expected));
    let after_disk = Machine { nics: vec![nic(true)], drives: vec![disk(Bus::Virtio)], ..machine() };
    assert!(argv(&after_disk).join(" ").ends_with(&format!("{expected},bootindex=1")));
    let real = WiredNic { model: NicModel::I82551, ..nic(false) };
    let expected = expected.replace("virtio-net-pci", "i82551").replace(",speed=10000,duplex=full", "");
    assert!(argv(&Machine { nics: vec![real], ..machine() }).join(" ").ends_with(&expected));
}

#[rstest]
#[case::ovmf_has_a_driver(NicModel::Virtio, true)]
#[case::ovmf_has_none(NicModel::I82551, false)]
fn with_uefi_a_virtio_card_has_no_rom(#[case] model: NicModel, #[case] without: bool) {
    let nic = WiredNic { model, mac: "52:54:00:00:00:01".into(), boot: true, backend: Backend::Nobody };
    let firmware = FirmwareFiles::Flash { code: "/c".into(), vars: "/v".into(), secure: false };
    let line = argv(&Machine { nics: vec![nic], firmware, ..machine() }).join(" ");
    assert_eq!(line.ends_with(",bootindex=0,romfile="), without, "{line}");
}

#[test]
fn firmware_with_secure_boot_guards_its_variables() {
    let flash = |secure| FirmwareFiles::Flash { code: "/ovmf/CODE.fd".into(), vars: "/run/a,b.fd".into(), secure };
    let plain = argv(&Machine { firmware: flash(false), ..machine() }).join(" ");
    assert!(plain.contains(
        "-drive if=pflash,unit=0,format=raw,readonly=on,file=/ovmf/CODE.fd -drive if=pflash,unit=1,format=raw,readonly=off,file=/run/a,,b.fd"
    ));
    assert!(plain.contains("q35,smm=off") && !plain.contains("secure"));
    let secure = argv(&Machine { firmware: flash(true), ..machine() }).join(" ");
    assert!(secure.contains("q35,smm=on"));
    assert!(secure.contains("-global driver=cfi.pflash01,property=secure,value=on -global ICH9-LPC.disable_s3=1"));
}

#[test]
fn the_rest_is_only_there_when_asked_for() {
    let sockets = Sockets { serial: None, ..machine().sockets };
    assert!(!argv(&Machine { sockets, ..machine() }).join(" ").contains("isa-serial"));
    let log = argv(&Machine { serial_log: Some("/a,b".into()), ..machine() }).join(" ");
    assert!(log.contains("-chardev socket,id=serial,fd=12,logfile=/a,,b "));
    let kvm = argv(&Machine { accel: Accel::Kvm, ..machine() }).join(" ");
    assert!(kvm.contains("-accel kvm -cpu host"));
    let clock = argv(&Machine { rtc_base: Some("1970-01-01T00:00:00".into()), ..machine() }).join(" ");
    assert!(clock.contains("-rtc base=1970-01-01T00:00:00"));
    let kernel = Kernel { image: "/k".into(), initrd: "/i".into(), command_line: "console=ttyS0 a=b,c".into() };
    assert!(
        argv(&Machine { kernel: Some(kernel), ..machine() })
            .join(" ")
            .ends_with("-kernel /k -initrd /i -append console=ttyS0 a=b,c")
    );
}

#[rstest]
#[case::normal(None, [0, 1, 2])]
#[case::disk(Some(BootSource::Disk), [0, 1, 2])]
#[case::network(Some(BootSource::Network), [1, 0, 2])]
#[case::cd(Some(BootSource::Cd), [1, 2, 0])]
fn a_cd_drive_comes_last_unless_something_is_tried_first(
    #[case] boot_first: Option<BootSource>,
    #[case] order: [usize; 3],
) {
    let mac = "52:54:00:00:00:01".into();
    let nic = WiredNic { model: NicModel::Virtio, mac, boot: true, backend: Backend::Nobody };
    let cd = Some(CdDrive { image: Some("/run/a,b.iso".into()) });
    let drives = vec![disk(Bus::Virtio)];
    let line = argv(&Machine { drives, nics: vec![nic], cd, boot_first, ..machine() }).join(" ");
    let [disk, nic, cd] = order;
    for expected in [
        format!("virtio-blk-pci,drive=disk0,bootindex={disk},id=disk0-device"),
        format!(
            "virtio-net-pci,id=nic0-card,netdev=nic0,mac=52:54:00:00:00:01,speed=10000,duplex=full,bootindex={nic}"
        ),
        format!("ide-cd,id=cd,bootindex={cd},drive=medium"),
    ] {
        assert!(line.contains(&expected), "{expected} in {line}");
    }
    assert!(line.contains(r#""filename":"/run/a,b.iso""#), "{line}");
}
