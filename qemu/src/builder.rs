//! What machine is wanted, and switching it on.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent_api::net::MacAddress;
use serde_json::json;

use crate::accel::Accel;
use crate::argv::{BootSource, CdDrive, Kernel, Machine, Sockets, argv};
use crate::disk::{Disk, DiskError, utf8};
use crate::firmware::{Firmware, FirmwareFiles};
use crate::host::{Invocation, Process, Scratch, free_loopback_ports};
use crate::journal::{Journal, Mirror};
use crate::network::{Backend, Cable, Nic, Plug, WiredNic};
use crate::qmp::{Qmp, QmpError};
use crate::tools::{Tools, ToolsError};
use crate::vm::{Parts, Vm};

/// QEMU greets within a second; a host that is short of everything takes longer.
const GREETING_WITHIN: Duration = Duration::from_secs(60);
const COMMAND_WITHIN: Duration = Duration::from_secs(30);
/// A port that was free may be taken by the time QEMU binds it. Not again and again.
const PORT_ATTEMPTS: usize = 5;
/// What QEMU (net/slirp.c) says then.
const PORT_TAKEN: &str = "Could not set up host forwarding rule";

/// Why a machine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The toolbox lacks something.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A disk cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A value QEMU would not understand.
    #[error("{what} `{value}` {problem}")]
    Invalid {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The host refused a file, a socket or a process.
    #[error("preparing the machine")]
    Host(#[source] io::Error),
    /// QEMU ended at once.
    #[error("QEMU did not start: {0}")]
    Qemu(String),
    /// QEMU started, but not the machine.
    #[error("switching the machine on")]
    Qmp(#[source] QmpError),
}

/// The serial port, ttyS0.
#[derive(Clone, Default)]
pub enum Serial {
    /// Recorded: [`Vm::serial_text`].
    #[default]
    Recorded,
    /// Recorded, and handed on as it comes.
    Mirrored(Mirror),
    /// A port whose other end takes nothing: what is written to it never leaves.
    Stuck,
    /// No port at all.
    Absent,
}

/// A machine that is described but not running. Can be started several times.
#[derive(Clone)]
#[must_use]
pub struct VmBuilder {
    tools: Tools,
    name: String,
    memory_mib: u32,
    cpus: u32,
    firmware: Firmware,
    accel: Option<Accel>,
    nice: u8,
    boot: Option<Disk>,
    disks: Vec<Disk>,
    nics: Vec<Nic>,
    cd: Option<CdDrive<PathBuf>>,
    boot_first: Option<BootSource>,
    clock: Option<String>,
    serial: Serial,
    serial_log: Option<PathBuf>,
    kernel: Option<(PathBuf, PathBuf, String)>,
    scratch_in: PathBuf,
    keep_in: Option<PathBuf>,
}

impl VmBuilder {
    /// A machine with 2 processors, 4 GiB, BIOS, no disk and no network card. Two machines on one
    /// segment need different names.
    pub fn new(tools: &Tools, name: impl Into<String>) -> Self {
        Self {
            tools: tools.clone(),
            name: name.into(),
            memory_mib: 4096,
            cpus: 2,
            firmware: Firmware::Bios,
            accel: None,
            nice: 0,
            boot: None,
            disks: Vec::new(),
            nics: Vec::new(),
            cd: None,
            boot_first: None,
            clock: None,
            serial: Serial::Recorded,
            serial_log: None,
            kernel: None,
            scratch_in: std::env::temp_dir(),
            keep_in: None,
        }
    }

    /// Memory in MiB. The host gives it page by page, as the machine touches it.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Number of processors.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// How much later than everything else it gets the host's processors, as in nice(1): 0 to 19.
    pub fn nice(mut self, nice: u8) -> Self {
        self.nice = nice;
        self
    }

    /// Firmware; UEFI variables start from the template at each start.
    pub fn firmware(mut self, firmware: Firmware) -> Self {
        self.firmware = firmware;
        self
    }

    /// Instead of what [`Accel::detect`] finds.
    pub fn accel(mut self, accel: Accel) -> Self {
        self.accel = Some(accel);
        self
    }

    /// The disk to boot from.
    pub fn boot(mut self, disk: Disk) -> Self {
        self.boot = Some(disk);
        self
    }

    /// Another disk, behind the boot disk in boot order.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disks.push(disk);
        self
    }

    /// A network card. Without any there is none.
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.push(nic);
        self
    }

    /// A CD drive, with an image in it or empty, whose medium ([`Vm::insert`]) and place in the boot order
    /// ([`Vm::boot_next_from`]) can be changed while the machine runs. Behind disks and network cards in boot order.
    pub fn cd_drive(mut self, image: Option<PathBuf>) -> Self {
        self.cd = Some(CdDrive { image });
        self
    }

    /// Tried before everything else in boot order.
    pub fn boot_first(mut self, source: Option<BootSource>) -> Self {
        self.boot_first = source;
        self
    }

    /// What the hardware clock shows at power-on, UTC, such as `1970-01-01T00:00:00`. By default the
    /// host's time.
    pub fn clock(mut self, utc: impl Into<String>) -> Self {
        self.clock = Some(utc.into());
        self
    }

    /// The serial port.
    pub fn serial(mut self, serial: Serial) -> Self {
        self.serial = serial;
        self
    }

    pub(crate) const fn serial_port(&self) -> &Serial {
        &self.serial
    }

    /// Has QEMU itself write the serial output to this file, made anew: it is there even if we are killed.
    pub fn serial_log(mut self, path: impl Into<PathBuf>) -> Self {
        self.serial_log = Some(path.into());
        self
    }

    /// Starts a kernel and an initrd directly, without boot loader.
    pub fn kernel(
        mut self,
        image: impl Into<PathBuf>,
        initrd: impl Into<PathBuf>,
        command_line: impl Into<String>,
    ) -> Self {
        self.kernel = Some((image.into(), initrd.into(), command_line.into()));
        self
    }

    /// Folder for overlays that are thrown away, by default the system's temporary folder. They take as
    /// much as the machine writes.
    pub fn scratch_in(mut self, dir: impl Into<PathBuf>) -> Self {
        self.scratch_in = dir.into();
        self
    }

    /// When a panic takes the machine along (a test that fails), saves what [`Vm::keep`] saves in a folder
    /// of the machine's name in `dir`, and says so on stderr.
    pub fn keep_on_panic(mut self, dir: impl Into<PathBuf>) -> Self {
        self.keep_in = Some(dir.into());
        self
    }

    /// Switches the machine on.
    pub fn start(&self) -> Result<Vm, StartError> {
        self.check()?;
        let scratch = Scratch::new(&self.scratch_in).map_err(StartError::Host)?;
        let (prepared, unlink) = self.prepare(&scratch)?;
        let mut attempt = 1;
        loop {
            match self.launch(prepared.clone()) {
                Err(StartError::Qemu(said)) if said.contains(PORT_TAKEN) && attempt < PORT_ATTEMPTS => attempt += 1,
                Ok(vm) => {
                    // QEMU has them open: from now on they end with it.
                    for file in unlink {
                        fs_err::remove_file(file).map_err(StartError::Host)?;
                    }
                    return Ok(vm);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn check(&self) -> Result<(), StartError> {
        let invalid = |what, value: &str, problem| Err(StartError::Invalid { what, value: value.to_owned(), problem });
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return invalid("machine name", &self.name, "is not made of letters, digits, `-`, `_` and `.`");
        }
        if self.memory_mib < 64 {
            return invalid("memory in MiB", &self.memory_mib.to_string(), "is less than 64");
        }
        if self.cpus == 0 || self.cpus > 255 {
            return invalid("processor count", &self.cpus.to_string(), "is not 1 to 255");
        }
        if let Some(clock) = self.clock.as_deref().filter(|clock| !is_date_time(clock)) {
            return invalid("clock", clock, "is not like `1970-01-01T00:00:00`");
        }
        for mac in self.nics.iter().filter_map(|nic| nic.mac.as_deref()) {
            if mac.parse::<MacAddress>().is_err() {
                return invalid("hardware address", mac, "is not like `52:54:00:12:34:56`");
            }
        }
        Ok(())
    }

    /// All that stays the same from one attempt to the next, and the files to unlink after the start.
    fn prepare(&self, scratch: &Scratch) -> Result<(Machine, Vec<PathBuf>), StartError> {
        let mut unlink = Vec::new();
        let mut drives = Vec::new();
        for (index, disk) in self.boot.iter().chain(&self.disks).enumerate() {
            let overlay = scratch.join(&format!("disk{index}.qcow2"));
            drives.push(disk.prepare(&self.tools, &overlay)?);
            if overlay.exists() {
                unlink.push(overlay);
            }
        }
        let mut firmware = self.firmware.files(&self.tools)?;
        if let FirmwareFiles::Flash { vars, .. } = &mut firmware {
            let copy = scratch.join("vars.fd");
            // Not copied as a file: the template may be read-only.
            let template = fs_err::read(&*vars).map_err(StartError::Host)?;
            fs_err::write(&copy, template).map_err(StartError::Host)?;
            *vars = utf8(&copy)?;
            unlink.push(copy);
        }
        let kernel = match &self.kernel {
            None => None,
            Some((image, initrd, command_line)) => {
                Some(Kernel { image: utf8(image)?, initrd: utf8(initrd)?, command_line: command_line.clone() })
            }
        };
        let cd = match &self.cd {
            None => None,
            Some(drive) => Some(CdDrive { image: drive.image.as_deref().map(utf8).transpose()? }),
        };
        let machine = Machine {
            name: self.name.clone(),
            uuid: uuid(&self.name),
            accel: self.accel.unwrap_or_else(|| Accel::detect(&self.tools)),
            memory_mib: self.memory_mib,
            cpus: self.cpus,
            firmware,
            drives,
            nics: Vec::new(),
            cd,
            boot_first: self.boot_first,
            rtc_base: self.clock.clone(),
            kernel,
            serial_log: self.serial_log.as_deref().map(utf8).transpose()?,
            // Settled at launch.
            sockets: Sockets { qmp: -1, events: -1, serial: None },
        };
        Ok((machine, unlink))
    }

    fn launch(&self, mut machine: Machine) -> Result<Vm, StartError> {
        let mut inherit = Vec::new();
        let (qmp, qmp_end) = pair(&mut inherit)?;
        let (events, events_end) = pair(&mut inherit)?;
        machine.sockets = Sockets { qmp: qmp_end, events: events_end, serial: None };
        let mut serial = None;
        if !matches!(self.serial, Serial::Absent) {
            let (ours, theirs) = pair(&mut inherit)?;
            if let (Serial::Stuck, Some(end)) = (&self.serial, inherit.last()) {
                fill(end).map_err(StartError::Host)?;
            }
            machine.sockets.serial = Some(theirs);
            serial = Some(ours);
        }
        let wired = self.wire(&mut inherit).map_err(StartError::Host)?;
        machine.nics = wired.nics;

        let invocation = Invocation { nice: self.nice, ..self.tools.qemu(argv(&machine)) };
        let command_line = invocation.to_string();
        log::debug!("starting {command_line}");
        let (process, stderr) = Process::spawn(&invocation, inherit).map_err(StartError::Host)?;
        let mut journal = Journal::new();
        journal.follow_stderr(stderr);
        let mut qmp = Qmp::connect(qmp, GREETING_WITHIN).map_err(|error| explain(&journal, error))?;

        for index in wired.unplugged {
            let link = json!({ "name": format!("nic{index}"), "up": false });
            qmp.execute("set_link", Some(&link), COMMAND_WITHIN).map_err(StartError::Qmp)?;
        }
        journal.restart_clock();
        qmp.execute("cont", None, COMMAND_WITHIN).map_err(|error| explain(&journal, error))?;
        journal.follow_events(events);
        let serial_in = self.follow_serial(&journal, serial).map_err(StartError::Host)?;
        let parts = Parts {
            process,
            qmp,
            journal,
            forwards: wired.forwards,
            plugs: wired.plugs,
            drives: machine.drives.len(),
            boot_nics: self.nics.iter().map(|nic| nic.boot).collect(),
            serial_in,
            command_line,
            keep_in: self.keep_in.clone(),
        };
        Ok(Vm::new(self.name.clone(), parts))
    }

    /// Our end of the serial port, for typing; a stuck port's is only held open.
    fn follow_serial(&self, journal: &Journal, port: Option<UnixStream>) -> io::Result<Option<UnixStream>> {
        let Some(port) = port else { return Ok(None) };
        match &self.serial {
            Serial::Recorded => journal.follow_serial(port.try_clone()?, None),
            Serial::Mirrored(mirror) => journal.follow_serial(port.try_clone()?, Some(mirror.clone())),
            Serial::Stuck | Serial::Absent => {}
        }
        Ok(Some(port))
    }

    /// Chooses ports, addresses and sockets of the network cards.
    fn wire(&self, inherit: &mut Vec<OwnedFd>) -> io::Result<Wired> {
        let mut wired = Wired::default();
        for (index, nic) in self.nics.iter().enumerate() {
            let backend = match &nic.cable {
                Cable::Unplugged => {
                    wired.unplugged.push(index);
                    Backend::Nobody
                }
                Cable::Silent => Backend::Nobody,
                Cable::User { forwards } => {
                    let ports = free_loopback_ports(forwards.len())?;
                    let forwards: Vec<_> = ports.into_iter().zip(forwards.iter().copied()).collect();
                    wired.forwards.extend(forwards.iter().map(|&(host, guest)| (guest, ([127, 0, 0, 1], host).into())));
                    Backend::User { forwards }
                }
                Cable::Segment(segment) => {
                    let (fd, plug) = segment.plug()?;
                    wired.plugs.push(plug);
                    let number = fd.as_raw_fd();
                    inherit.push(fd);
                    Backend::Socket { fd: number }
                }
                Cable::Device(device) => {
                    let fd = device.end()?;
                    let number = fd.as_raw_fd();
                    inherit.push(fd);
                    Backend::Device { fd: number }
                }
            };
            let mac = nic.mac.clone().unwrap_or_else(|| mac(&self.name, index));
            wired.nics.push(WiredNic { model: nic.model, mac, boot: nic.boot, backend });
        }
        Ok(wired)
    }
}

/// The network cards of one attempt to start.
#[derive(Debug, Default)]
struct Wired {
    nics: Vec<WiredNic>,
    unplugged: Vec<usize>,
    forwards: Vec<(u16, SocketAddr)>,
    plugs: Vec<Plug>,
}

/// A socket pair: our end, and the number of the end that QEMU inherits.
fn pair(inherit: &mut Vec<OwnedFd>) -> Result<(UnixStream, i32), StartError> {
    let (ours, theirs) = UnixStream::pair().map_err(StartError::Host)?;
    let number = theirs.as_raw_fd();
    inherit.push(theirs.into());
    Ok((ours, number))
}

/// Writes into a socket that nobody reads until it takes no more.
fn fill(socket: &OwnedFd) -> io::Result<()> {
    let mut socket = UnixStream::from(socket.try_clone()?);
    socket.set_nonblocking(true)?;
    for block in [4096, 1] {
        loop {
            match socket.write(&vec![0; block]) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// A connection that ended early means that QEMU has said why.
fn explain(journal: &Journal, error: QmpError) -> StartError {
    if matches!(error, QmpError::Closed) && journal.wait_ended(Instant::now() + COMMAND_WITHIN) {
        let said = journal.stderr();
        let said = said.trim();
        return StartError::Qemu(if said.is_empty() { "it ended without a word".into() } else { said.to_owned() });
    }
    StartError::Qmp(error)
}

/// FNV-1a, 64 bit: the same name gives the same addresses on every run.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Under QEMU's prefix, like all of its addresses.
fn mac(name: &str, index: usize) -> String {
    let [.., a, b, c] = hash(&format!("{name}/{index}")).to_be_bytes();
    MacAddress([0x52, 0x54, 0, a, b, c]).to_string()
}

/// Version 8 (RFC 9562 5.8): made by a rule of our own.
fn uuid(name: &str) -> String {
    let high = hash(name);
    let low = hash(&format!("{name}/uuid"));
    format!(
        "{:08x}-{:04x}-8{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

/// `YYYY-MM-DDTHH:MM:SS`, as far as its shape goes.
fn is_date_time(text: &str) -> bool {
    let shape = b"0000-00-00T00:00:00";
    text.len() == shape.len()
        && text.bytes().zip(shape).all(|(c, &s)| if s == b'0' { c.is_ascii_digit() } else { c == s })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn addresses_follow_from_the_name() {
        assert_eq!(mac("box", 0), mac("box", 0));
        assert_ne!(mac("box", 0), mac("box", 1));
        assert_ne!(mac("box", 0), mac("server", 0));
        mac("box", 0).parse::<MacAddress>().expect("a MAC address");
        assert_ne!(uuid("box"), uuid("server"));
        let uuid = uuid("box");
        assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
    }

    #[rstest]
    #[case("1970-01-01T00:00:00", true)]
    #[case("2090-12-31T23:59:59", true)]
    #[case("1970-01-01", false)]
    #[case("utc,clock=vm", false)]
    fn clocks_have_a_date_and_a_time(#[case] clock: &str, #[case] valid: bool) {
        assert_eq!(is_date_time(clock), valid);
    }
}
