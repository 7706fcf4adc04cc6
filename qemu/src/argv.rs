//! A checked machine as QEMU's command line. Pure: no file is looked at.
//!
//! One machine type for all, q35, and nothing on it that is not asked for (`-nodefaults`). Values that
//! may hold commas travel as JSON.

use serde_json::json;

use crate::accel::Accel;
use crate::disk::{Bus, Drive, Flush};
use crate::firmware::FirmwareFiles;
use crate::network::{Backend, NicModel, WiredNic};

/// Name of the virtio-serial port on which the machine reports events.
pub(crate) const EVENT_PORT: &str = "org.foothold.events";

/// A machine with every file, port and descriptor settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub name: String,
    pub uuid: String,
    pub accel: Accel,
    pub memory_mib: u32,
    pub cpus: u32,
    pub firmware: FirmwareFiles,
    /// In boot order; none of them if a kernel is given.
    pub drives: Vec<Drive>,
    pub nics: Vec<WiredNic>,
    /// A CD drive whose medium can be changed.
    pub cd: Option<CdDrive<String>>,
    /// Tried before all others.
    pub boot_first: Option<BootSource>,
    pub rtc_base: Option<String>,
    pub kernel: Option<Kernel>,
    /// QEMU writes serial output there, too.
    pub serial_log: Option<String>,
    pub sockets: Sockets,
}

/// What a machine can boot from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BootSource {
    /// Its disks, in their order.
    Disk,
    /// Its network cards that boot.
    Network,
    /// Its CD drive ([`VmBuilder::cd_drive`](crate::VmBuilder::cd_drive)).
    Cd,
}

/// A CD drive, and the path of the image in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CdDrive<P> {
    pub image: Option<P>,
}

/// Boot index of the first device of each kind; the others of the kind follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub drives: usize,
    pub nics: usize,
    pub cd: usize,
}

impl Order {
    /// Disks, network cards, CD; but `first` before them.
    pub(crate) fn new(first: Option<BootSource>, drives: usize, nics: usize) -> Self {
        match first {
            None | Some(BootSource::Disk) => Self { drives: 0, nics: drives, cd: drives + nics },
            Some(BootSource::Network) => Self { drives: nics, nics: 0, cd: drives + nics },
            Some(BootSource::Cd) => Self { drives: 1, nics: 1 + drives, cd: 0 },
        }
    }
}

/// Name of the CD drive whose medium can be changed.
pub(crate) const CD_DRIVE: &str = "cd";

/// Name of a disk's device, where the boot order can be changed.
pub(crate) fn drive_device(index: usize) -> String {
    format!("disk{index}-device")
}

/// Name of a network card's device.
pub(crate) fn nic_device(index: usize) -> String {
    format!("nic{index}-card")
}

/// A kernel that QEMU hands to the firmware, without boot loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub image: String,
    pub initrd: String,
    pub command_line: String,
}

/// Numbers of the descriptors QEMU inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sockets {
    pub qmp: i32,
    pub events: i32,
    /// `None`: there is no serial port.
    pub serial: Option<i32>,
}

/// The arguments behind the program's name.
pub(crate) fn argv(machine: &Machine) -> Vec<String> {
    let mut argv = Argv::default();
    base(&mut argv, machine);
    firmware(&mut argv, &machine.firmware);
    channels(&mut argv, machine);
    controllers(&mut argv, &machine.drives);
    let order = Order::new(machine.boot_first, machine.drives.len(), machine.nics.len());
    for (index, drive) in machine.drives.iter().enumerate() {
        let id = machine.cd.is_some().then(|| drive_device(index));
        self::drive(&mut argv, index, order.drives + index, drive, id);
    }
    if let Some(drive) = &machine.cd {
        cd(&mut argv, drive.image.as_deref(), order.cd);
    }
    for (index, nic) in machine.nics.iter().enumerate() {
        let bootindex = nic.boot.then_some(order.nics + index);
        self::nic(&mut argv, index, nic, bootindex, &machine.firmware);
    }
    if let Some(kernel) = &machine.kernel {
        argv.put("-kernel", &kernel.image);
        argv.put("-initrd", &kernel.initrd);
        argv.put("-append", &kernel.command_line);
    }
    argv.0
}

#[derive(Default)]
struct Argv(Vec<String>);

impl Argv {
    fn put(&mut self, option: &str, value: impl Into<String>) {
        self.0.extend([option.to_owned(), value.into()]);
    }
}

fn base(argv: &mut Argv, machine: &Machine) {
    let secure = matches!(machine.firmware, FirmwareFiles::Flash { secure: true, .. });
    argv.0.extend(["-nodefaults", "-no-user-config"].map(String::from));
    argv.put("-name", format!("{},debug-threads=on", machine.name));
    argv.put("-uuid", &machine.uuid);
    // System management mode costs time in emulation; only Secure Boot needs it.
    let smm = if secure { "on" } else { "off" };
    argv.put("-machine", format!("q35,smm={smm},vmport=off,dump-guest-core=off"));
    argv.0.extend(machine.accel.argv().map(String::from));
    argv.put("-smp", machine.cpus.to_string());
    argv.put("-m", format!("{}M", machine.memory_mib));
    // Stopped until the cables are as they should be.
    argv.0.push("-S".into());
    argv.put("-display", "none");
    argv.put("-device", "VGA");
    argv.put("-device", "virtio-rng-pci");
    argv.put("-boot", "strict=on");
    if let Some(base) = &machine.rtc_base {
        argv.put("-rtc", format!("base={base}"));
    }
}

fn firmware(argv: &mut Argv, files: &FirmwareFiles) {
    let FirmwareFiles::Flash { code, vars, secure } = files else { return };
    if *secure {
        // OVMF's README, "SMM support": the flash is written in system management mode only, and S3
        // resume would bypass that.
        argv.put("-global", "driver=cfi.pflash01,property=secure,value=on");
        argv.put("-global", "ICH9-LPC.disable_s3=1");
    }
    for (unit, file, read_only) in [(0, code, "on"), (1, vars, "off")] {
        let file = escaped(file);
        argv.put("-drive", format!("if=pflash,unit={unit},format=raw,readonly={read_only},file={file}"));
    }
}

/// A value of an option that is a list: commas are doubled.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

fn channels(argv: &mut Argv, machine: &Machine) {
    let sockets = machine.sockets;
    argv.put("-chardev", format!("socket,id=qmp,fd={}", sockets.qmp));
    argv.put("-mon", "chardev=qmp,mode=control");
    argv.put("-device", "virtio-serial-pci");
    argv.put("-chardev", format!("socket,id=events,fd={}", sockets.events));
    argv.put("-device", format!("virtserialport,chardev=events,name={EVENT_PORT}"));
    if let Some(fd) = sockets.serial {
        let log = machine.serial_log.as_deref().map(|path| format!(",logfile={}", escaped(path))).unwrap_or_default();
        argv.put("-chardev", format!("socket,id=serial,fd={fd}{log}"));
        argv.put("-device", "isa-serial,chardev=serial");
    }
}

/// Controllers that q35 does not bring along, only where a disk needs them.
fn controllers(argv: &mut Argv, drives: &[Drive]) {
    let any = |bus| drives.iter().any(|drive| drive.bus == bus);
    if any(Bus::Usb) {
        argv.put("-device", "qemu-xhci,id=xhci");
    }
    if any(Bus::Scsi) {
        argv.put("-device", "virtio-scsi-pci,id=scsi");
    }
}

/// `id`: a name for the device, where one is needed.
fn drive(argv: &mut Argv, index: usize, bootindex: usize, drive: &Drive, id: Option<String>) {
    let node = format!("disk{index}");
    // The format layer writes its tables out at a flush, the file layer then waits for the host's disk.
    let cache = |flushes: bool| json!({ "direct": false, "no-flush": !flushes });
    let blockdev = json!({
        "driver": drive.format.driver(),
        "node-name": node,
        "read-only": drive.read_only,
        "discard": "unmap",
        "cache": cache(drive.flush != Flush::Never),
        "file": {
            // `file` opens block devices as well, but says that it should not.
            "driver": if drive.path.starts_with("/dev/") { "host_device" } else { "file" },
            "filename": drive.path,
            "aio": "threads",
            "cache": cache(drive.flush == Flush::HostDisk),
        },
    });
    argv.put("-blockdev", blockdev.to_string());
    let model = match drive.bus {
        Bus::Virtio => "virtio-blk-pci",
        Bus::Usb => "usb-storage,bus=xhci.0,removable=on",
        Bus::Cdrom => "ide-cd",
        Bus::Sata => "ide-hd",
        Bus::Scsi => "scsi-hd,bus=scsi.0",
        Bus::Nvme => "nvme",
    };
    let serial = match (&drive.serial, drive.bus) {
        (Some(serial), _) => format!(",serial={serial}"),
        // The drive must have one.
        (None, Bus::Nvme) => format!(",serial={node}"),
        (None, Bus::Virtio | Bus::Usb | Bus::Cdrom | Bus::Sata | Bus::Scsi) => String::new(),
    };
    let id = id.map(|id| format!(",id={id}")).unwrap_or_default();
    let blocks = drive.block_bytes.map(|bytes| format!(",logical_block_size={bytes},physical_block_size={bytes}"));
    let blocks = blocks.unwrap_or_default();
    argv.put("-device", format!("{model},drive={node},bootindex={bootindex}{serial}{blocks}{id}"));
}

fn cd(argv: &mut Argv, image: Option<&str>, bootindex: usize) {
    let mut device = format!("ide-cd,id={CD_DRIVE},bootindex={bootindex}");
    if let Some(image) = image {
        let file = json!({ "driver": "file", "filename": image });
        let node = json!({ "driver": "raw", "node-name": "medium", "read-only": true, "file": file });
        argv.put("-blockdev", node.to_string());
        device.push_str(",drive=medium");
    }
    argv.put("-device", device);
}

fn nic(argv: &mut Argv, index: usize, nic: &WiredNic, bootindex: Option<usize>, firmware: &FirmwareFiles) {
    let id = format!("nic{index}");
    let backend = match &nic.backend {
        // Hub 0 is the one that -net uses.
        Backend::Nobody => format!("hubport,id={id},hubid={}", index + 1),
        Backend::User { forwards } => {
            let rules = forwards.iter().map(|(host, guest)| format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
            // Each card has a network of its own: two in one network would be two ways to the same place.
            let net = format!("10.0.{}.0/24", index + 2);
            format!("user,id={id},restrict=on,ipv6=off,net={net}{}", rules.collect::<String>())
        }
        Backend::Socket { fd } => format!("dgram,id={id},local.type=fd,local.str={fd}"),
        Backend::Device { fd } => format!("tap,id={id},fd={fd}"),
    };
    argv.put("-netdev", backend);
    let bootindex = bootindex.map(|index| format!(",bootindex={index}")).unwrap_or_default();
    let (model, options, card) = (nic.model.device(), nic.model.options(), nic_device(index));
    // OVMF has a driver for virtio-net; the one in the ROM that QEMU puts on the card would take its place, and faults
    // now and then in a long download. It has none for the other card.
    let rom = match (firmware, nic.model) {
        (FirmwareFiles::Flash { .. }, NicModel::Virtio) => ",romfile=",
        (FirmwareFiles::Flash { .. }, NicModel::I82551) | (FirmwareFiles::Bios, _) => "",
    };
    argv.put("-device", format!("{model},id={card},netdev={id},mac={}{options}{bootindex}{rom}", nic.mac));
}

#[cfg(test)]
#[path = "argv_tests.rs"]
mod tests;
