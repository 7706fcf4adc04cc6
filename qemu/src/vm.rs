//! A running machine. Dropping the handle ends it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde_json::{Value, json};

use crate::argv::{BootSource, CD_DRIVE, Order, drive_device, nic_device};
use crate::host::Process;
use crate::journal::{EventLine, Journal, Patience, WaitError, printable};
use crate::network::Plug;
use crate::qmp::{Qmp, QmpError};

/// QEMU answers at once unless the host is stuck.
const COMMAND_WITHIN: Duration = Duration::from_secs(30);

/// What can go wrong with a running machine.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// QEMU did not do it.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// A file could not be written, or the process not be ended.
    #[error("machine `{name}`: {doing}")]
    Host {
        /// The machine.
        name: String,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// It was asked to switch itself off.
    #[error("machine `{name}` is still on after {secs} s")]
    StillOn {
        /// The machine.
        name: String,
        /// How long was waited.
        secs: u64,
    },
}

/// A machine that runs, or has ended by itself.
#[derive(Debug)]
pub struct Vm {
    name: String,
    process: Mutex<Process>,
    qmp: Mutex<Qmp>,
    journal: Journal,
    events: Events,
    forwards: Vec<(u16, SocketAddr)>,
    serial_in: Option<UnixStream>,
    command_line: String,
    keep_in: Option<PathBuf>,
    drives: usize,
    /// Which of its network cards boot.
    boot_nics: Vec<bool>,
    /// Behind `process`: the machine ends first, then its cables are pulled.
    _plugs: Vec<Plug>,
}

/// What the builder hands over.
#[derive(Debug)]
pub(crate) struct Parts {
    pub process: Process,
    pub qmp: Qmp,
    pub journal: Journal,
    pub forwards: Vec<(u16, SocketAddr)>,
    pub plugs: Vec<Plug>,
    pub drives: usize,
    pub boot_nics: Vec<bool>,
    pub serial_in: Option<UnixStream>,
    pub command_line: String,
    pub keep_in: Option<PathBuf>,
}

/// A reader of the machine's events, from the first on. Independent of other readers and of the handle.
#[derive(Debug, Clone)]
pub struct Events {
    journal: Journal,
    position: usize,
}

impl Events {
    /// The next event, waiting up to `within` for it. `None`: none came, or the machine is off and all
    /// events have been read.
    pub fn next(&mut self, within: Duration) -> Option<EventLine> {
        let event = self.journal.event(self.position, Instant::now() + within)?;
        self.position += 1;
        Some(event)
    }

    /// Reads on until an event that `found` accepts; `wanted` says in the error what that was.
    pub fn wait_until(
        &mut self,
        patience: Patience,
        wanted: &str,
        found: impl FnMut(&Value) -> bool,
    ) -> Result<Value, WaitError> {
        self.journal.wait_event(&mut self.position, patience, wanted, found)
    }
}

impl Vm {
    pub(crate) fn new(name: String, parts: Parts) -> Self {
        let events = Events { journal: parts.journal.clone(), position: 0 };
        Self {
            name,
            process: Mutex::new(parts.process),
            qmp: Mutex::new(parts.qmp),
            journal: parts.journal,
            events,
            forwards: parts.forwards,
            serial_in: parts.serial_in,
            command_line: parts.command_line,
            keep_in: parts.keep_in,
            drives: parts.drives,
            boot_nics: parts.boot_nics,
            _plugs: parts.plugs,
        }
    }

    /// The name given to the builder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// What QEMU was started with, as it would be typed.
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Time since it was switched on.
    pub fn since_power_on(&self) -> Duration {
        self.journal.since()
    }

    /// Where a forwarded port of the machine is reached on the host.
    pub fn forwarded(&self, guest_port: u16) -> Option<SocketAddr> {
        self.forwards.iter().find(|(guest, _)| *guest == guest_port).map(|&(_, host)| host)
    }

    /// A reader of all events, from the first on.
    pub fn events(&self) -> Events {
        Events { journal: self.journal.clone(), position: 0 }
    }

    /// Waits for an event behind the last one waited for. Malformed lines are passed over (they are in
    /// the error, and in [`Vm::events`]).
    pub fn wait_until(
        &mut self,
        patience: Patience,
        wanted: &str,
        found: impl FnMut(&Value) -> bool,
    ) -> Result<Value, WaitError> {
        self.events.wait_until(patience, wanted, found)
    }

    /// Waits until the serial output since power-on contains `text`.
    pub fn wait_serial(&self, patience: Patience, text: &str) -> Result<(), WaitError> {
        self.journal.wait_serial(patience, text)
    }

    /// The serial output so far, with its escape sequences.
    pub fn serial_text(&self) -> String {
        self.journal.serial()
    }

    /// Types into the serial port as much as it takes now; the rest is lost.
    pub(crate) fn serial_type(&self, bytes: &[u8]) {
        if let Some(port) = &self.serial_in {
            // A machine that has ended hears nothing.
            let _ = type_into(port, bytes);
        }
    }

    /// Types into the serial port.
    pub fn serial_write(&self, bytes: &[u8]) -> Result<(), VmError> {
        let Some(mut port) = self.serial_in.as_ref() else { return Ok(()) };
        port.write_all(bytes).map_err(|source| self.failed("writing to the serial port", source))
    }

    /// What QEMU itself complained about.
    pub fn qemu_messages(&self) -> String {
        self.journal.stderr()
    }

    /// Runs any command of the machine protocol.
    pub fn qmp(&self, command: &str, arguments: Option<&Value>) -> Result<Value, VmError> {
        let mut qmp = self.qmp.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(qmp.execute(command, arguments, COMMAND_WITHIN)?)
    }

    /// Writes what the screen shows to a PNG file.
    pub fn screenshot(&self, png: &Path) -> Result<(), VmError> {
        // QEMU does not share our working directory for ever.
        let absolute = std::path::absolute(png).map_err(|source| self.failed("taking a screenshot", source))?;
        let arguments = json!({ "filename": absolute.to_string_lossy(), "format": "png" });
        self.qmp("screendump", Some(&arguments)).map(drop)
    }

    /// Presses keys together, such as `ret`, `down` or `ctrl-alt-delete` (QEMU's key codes).
    pub fn send_key(&self, combination: &str) -> Result<(), VmError> {
        let keys: Vec<Value> = combination.split('-').map(|key| json!({ "type": "qcode", "data": key })).collect();
        self.qmp("send-key", Some(&json!({ "keys": keys }))).map(drop)
    }

    /// Puts the cable of the card (counted from 0) in or out.
    pub fn set_cable(&self, nic: usize, plugged_in: bool) -> Result<(), VmError> {
        self.qmp("set_link", Some(&json!({ "name": format!("nic{nic}"), "up": plugged_in }))).map(drop)
    }

    /// Puts an image into the CD drive of a machine that has one ([`crate::VmBuilder::cd_drive`]), or takes it out.
    pub fn insert(&self, image: Option<&Path>) -> Result<(), VmError> {
        let Some(image) = image else {
            return self.qmp("eject", Some(&json!({ "id": CD_DRIVE, "force": true }))).map(drop);
        };
        let absolute = std::path::absolute(image).map_err(|source| self.failed("inserting a medium", source))?;
        let medium = json!({
            "id": CD_DRIVE,
            "filename": absolute.to_string_lossy(),
            "format": "raw",
            "read-only-mode": "read-only",
        });
        self.qmp("blockdev-change-medium", Some(&medium)).map(drop)
    }

    /// What is tried first from the next reset on, in a machine with a CD drive; `None`: the order that it was made
    /// with, disks, network, CD.
    pub fn boot_next_from(&self, first: Option<BootSource>) -> Result<(), VmError> {
        let order = Order::new(first, self.drives, self.boot_nics.len());
        let drives = (0..self.drives).map(|index| (drive_device(index), order.drives + index));
        let nics = self.boot_nics.iter().enumerate().filter(|(_, boots)| **boots);
        let nics = nics.map(|(index, _)| (nic_device(index), order.nics + index));
        let devices: Vec<_> = drives.chain(nics).chain([(CD_DRIVE.to_owned(), order.cd)]).collect();
        let set = |device: &str, index: i64| {
            let path = format!("/machine/peripheral/{device}");
            self.qmp("qom-set", Some(&json!({ "path": path, "property": "bootindex", "value": index })))
        };
        // No two devices may have one index, not even for a moment.
        for (device, _) in &devices {
            set(device, -1)?;
        }
        for (device, index) in &devices {
            set(device, i64::try_from(*index).unwrap_or(i64::MAX))?;
        }
        Ok(())
    }

    /// Presses the reset button.
    pub fn reset(&self) -> Result<(), VmError> {
        self.qmp("system_reset", None).map(drop)
    }

    /// Presses the power button (ACPI) and waits until the system has shut down.
    pub fn power_off(&self, within: Duration) -> Result<(), VmError> {
        self.qmp("system_powerdown", None)?;
        self.wait_exit(within).map(drop)
    }

    /// Ends QEMU in good order: the machine stops where it is, but what it has written is kept.
    pub fn quit(&self) -> Result<(), VmError> {
        match self.qmp("quit", None) {
            Ok(_) | Err(VmError::Qmp(QmpError::Closed)) => self.wait_exit(COMMAND_WITHIN).map(drop),
            Err(error) => Err(error),
        }
    }

    /// Cuts the power: nothing is flushed.
    pub fn kill(&self) -> Result<(), VmError> {
        self.process().kill().map_err(|source| self.failed("ending the process", source)).map(drop)
    }

    /// How QEMU ended, if it has.
    pub fn exited(&self) -> Option<ExitStatus> {
        self.process().try_wait()
    }

    /// Waits until the machine is off.
    pub fn wait_exit(&self, within: Duration) -> Result<ExitStatus, VmError> {
        if !self.journal.wait_ended(Instant::now() + within) {
            return Err(VmError::StillOn { name: self.name.clone(), secs: within.as_secs() });
        }
        self.process().wait().map_err(|source| self.failed("waiting for the process", source))
    }

    /// Saves all there is to look at after a failure into `dir`: `serial.log`, `serial.txt` (without
    /// escape sequences), `events.jsonl`, `qemu.log`, and, if the machine is still on, `screen.png` and
    /// `processors.txt` (where each of them is, twice).
    pub fn keep(&self, dir: &Path) -> Result<(), VmError> {
        let failed = |source| self.failed("saving its logs", source);
        self.write_files(dir).map_err(failed)?;
        if self.exited().is_none() {
            self.screenshot(&dir.join("screen.png"))?;
            fs_err::write(dir.join("processors.txt"), self.processors()?).map_err(failed)?;
        }
        Ok(())
    }

    /// Registers of all processors, and the instructions at which each is, twice: what hangs without a word says at least
    /// where.
    fn processors(&self) -> Result<String, VmError> {
        let mut told = String::new();
        for _ in 0..2 {
            told += &self.monitor("info status", None)?;
            told += &self.monitor("info registers -a", None)?;
            for (number, _) in self.qmp("query-cpus-fast", None)?.as_array().into_iter().flatten().enumerate() {
                told += "\n";
                told += &self.monitor("x /24i $pc", Some(number))?;
            }
        }
        Ok(told)
    }

    /// Runs a command of QEMU's monitor for people, on one of its processors. Returns what it prints.
    fn monitor(&self, line: &str, processor: Option<usize>) -> Result<String, VmError> {
        let mut arguments = json!({ "command-line": line });
        if let Some(number) = processor {
            arguments["cpu-index"] = number.into();
        }
        let told = self.qmp("human-monitor-command", Some(&arguments))?;
        Ok(told.as_str().unwrap_or_default().to_owned())
    }

    fn write_files(&self, dir: &Path) -> io::Result<()> {
        fs_err::create_dir_all(dir)?;
        let serial = self.serial_text();
        let plain: String = serial.lines().map(|line| printable(line) + "\n").collect();
        let events: String = self.journal.events().into_iter().map(|event| event.text + "\n").collect();
        let qemu = format!("{}\n{}", self.command_line, self.qemu_messages());
        let files = [("serial.log", serial), ("serial.txt", plain), ("events.jsonl", events), ("qemu.log", qemu)];
        files.into_iter().try_for_each(|(name, text)| fs_err::write(PathBuf::from(dir).join(name), text))
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> VmError {
        VmError::Host { name: self.name.clone(), doing, source }
    }
}

impl Drop for Vm {
    /// Its fields end the process; before that, a test that fails gets what there is to look at.
    fn drop(&mut self) {
        if let Some(dir) = self.keep_in.as_ref().filter(|_| std::thread::panicking()) {
            let dir = dir.join(&self.name);
            let kept = match self.keep(&dir) {
                Ok(()) => {
                    format!("machine `{}`: screen, serial output and events are in `{}`", self.name, dir.display())
                }
                Err(error) => format!("machine `{}`: not everything could be kept: {error}", self.name),
            };
            // Past the test harness, which shows the output of a test only in part.
            let _ = writeln!(io::stderr(), "{kept}");
        }
    }
}

/// Writes as much as fits now. An error when nobody is at the other end.
pub(crate) fn type_into(port: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    match send(port, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
