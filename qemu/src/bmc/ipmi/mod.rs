//! A BMC that speaks IPMI over LAN: OpenIPMI's `ipmi_sim` before a machine of this crate.
//!
//! ```text
//!  client ── RMCP+, UDP ──► ipmi_sim ── chassis_control: a script ──┐ stderr      ┌──► Power ──► QEMU
//!                              │                                    ├──► chassis ─┤
//!                              └── console, `debug msg` ────────────┘ one pipe    └──► answer ──► script's stdin
//! ```
//! The simulator does sessions, users, and everything that is not the chassis; `ipmi_lan(5)` and `ipmi_sim_cmd(5)` describe
//! its files. Its program for the chassis is told the boot device alone. Whether it counts once or always stands in
//! the message, which the simulator shows on its console just before it calls the program; as both write into one
//! pipe, that order is certain.
//!
//! What the simulator cannot do: when it is asked for the boot flags it names the device, but never that they are
//! valid. The bit for EFI is not looked at: the machine boots by the firmware that it has.
//!
//! | module | what |
//! |---|---|
//! | `chassis` | messages and requests to acts and answers (pure) |
//! | `files` | what the simulator is given to read (pure) |

mod chassis;
mod files;

use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::net::{SocketAddrV4, UdpSocket};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::faults::Faults;
use super::power::{Act, Boot, Mode, Power};
use crate::host::{Process, Scratch};
use crate::tools::{Tools, ToolsError};
use chassis::{Chassis, Heard, Step};

/// The simulator, in the toolbox.
const SIMULATOR: &str = "usr/bin/ipmi_sim";
/// It opens its port within a second; a host that is short of everything takes longer.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Longest name and password that the simulator keeps, in bytes (IPMI 2.0, 22.28 and 22.30).
const LONGEST_NAME: usize = 16;

/// Whether the simulator can have it as a name or a password.
pub fn is_ipmi_name(text: &str) -> bool {
    files::can_be_written(text)
}

/// Why it did not start.
#[derive(Debug, thiserror::Error)]
pub enum IpmiError {
    /// The toolbox lacks it.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// A name or a password that the simulator cannot have.
    #[error("the {0} of an IPMI account has 1 to 16 characters of ASCII without blanks, quotes and backslashes")]
    Account(&'static str),
    /// A fault that only Redfish has.
    #[error("answers of IPMI do not come and go: `flaps` is a fault of Redfish")]
    Flaps,
    /// The host refused a file, a socket or a process.
    #[error("preparing IPMI at {address}")]
    Host {
        /// Where it was to listen.
        address: SocketAddrV4,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended, or did not open its port.
    #[error("`ipmi_sim` does not answer at {address}: {said}")]
    Simulator {
        /// Where it was to listen.
        address: SocketAddrV4,
        /// What it said.
        said: String,
    },
}

/// What an IPMI BMC is made of.
#[derive(Clone, Debug)]
pub struct IpmiOptions {
    /// Where it listens, in the network namespace of the thread that starts it. Port 0 takes a free one.
    pub listen: SocketAddrV4,
    /// The only account's name. It is an administrator.
    pub user: String,
    /// The account's password.
    pub password: String,
    /// The firmware that the machine has.
    pub firmware: Mode,
    /// The machine.
    pub power: Arc<dyn Power>,
    /// What is wrong with the BMC. Being late concerns the chassis only.
    pub faults: Faults,
}

/// A running IPMI BMC. It ends with the handle.
#[derive(Debug)]
pub struct IpmiBmc {
    address: SocketAddrV4,
    process: Option<Process>,
    thread: Option<JoinHandle<()>>,
    /// Ends being late, when it is dropped.
    late: Option<Sender<()>>,
    _silent: Option<UdpSocket>,
    _files: Option<Scratch>,
}

impl IpmiBmc {
    /// Starts one, and waits until its port is open.
    ///
    /// # Errors
    /// See [`IpmiError`].
    pub fn start(tools: &Tools, options: IpmiOptions) -> Result<Self, IpmiError> {
        let IpmiOptions { listen, user, password, firmware, power, faults } = options;
        if !is_ipmi_name(&user) {
            return Err(IpmiError::Account("name"));
        }
        if !is_ipmi_name(&password) {
            return Err(IpmiError::Account("password"));
        }
        if faults.flaps.is_some() {
            return Err(IpmiError::Flaps);
        }
        let refused = |source| IpmiError::Host { address: listen, source };
        if faults.silent {
            return Self::silent(listen).map_err(refused);
        }
        let password = if faults.refuse_credentials { files::another(&password) } else { password };
        let scratch = Scratch::new(&std::env::temp_dir()).map_err(refused)?;
        let script = scratch.join("chassis");
        let (lan, commands) = (scratch.join("lan.conf"), scratch.join("commands"));
        fs_err::write(&script, files::SCRIPT).map_err(refused)?;
        fs_err::write(&lan, files::configuration(listen, &user, &password, &script)).map_err(refused)?;
        fs_err::write(&commands, files::COMMANDS).map_err(refused)?;
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let arguments = ["-c".to_owned(), path(&lan), "-f".to_owned(), path(&commands), "-s".to_owned()];
        let state = scratch.join("state");
        fs_err::create_dir(&state).map_err(refused)?;
        let run = tools.program(SIMULATOR, arguments.into_iter().chain([path(&state)]))?;
        let (process, stdin, says) = Process::spawn_here(&run).map_err(refused)?;
        let (opened, open) = mpsc::channel();
        let (late, end) = mpsc::channel();
        let chassis = Chassis::new(firmware, faults);
        let session = Session { chassis, power, stdin, end };
        let thread = std::thread::spawn(move || session.serve(says, &opened));
        let (process, thread, late) = (Some(process), Some(thread), Some(late));
        let mut bmc = Self { address: listen, process, thread, late, _silent: None, _files: Some(scratch) };
        match open.recv_timeout(STARTS_WITHIN) {
            Ok(Ok(port)) => bmc.address.set_port(port),
            Ok(Err(said)) => return Err(IpmiError::Simulator { address: listen, said }),
            Err(_) => return Err(IpmiError::Simulator { address: listen, said: "it opened no port".to_owned() }),
        }
        Ok(bmc)
    }

    /// A port that nothing ever comes back from.
    fn silent(listen: SocketAddrV4) -> io::Result<Self> {
        let socket = UdpSocket::bind(listen)?;
        let mut address = listen;
        address.set_port(socket.local_addr()?.port());
        Ok(Self { address, process: None, thread: None, late: None, _silent: Some(socket), _files: None })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }
}

impl Drop for IpmiBmc {
    fn drop(&mut self) {
        self.late.take();
        // The pipe ends with it, and the thread with the pipe.
        self.process.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread beside the simulator has.
struct Session {
    chassis: Chassis,
    power: Arc<dyn Power>,
    stdin: ChildStdin,
    end: Receiver<()>,
}

impl Session {
    /// Follows what the simulator and its program say until the pipe ends.
    fn serve(mut self, says: PipeReader, opened: &Sender<Result<u16, String>>) {
        let mut said = String::new();
        for line in BufReader::new(says).lines().map_while(Result::ok) {
            match self.chassis.hear(&line) {
                Heard::Opened(port) => {
                    // Nobody waits a second time.
                    let _ = opened.send(Ok(port));
                }
                Heard::Asked(request) => {
                    if self.answer(&request).is_err() {
                        break;
                    }
                }
                Heard::Nothing => {
                    log::trace!("ipmi_sim: {line}");
                    said = line;
                }
            }
        }
        let _ = opened.send(Err(said));
    }

    fn answer(&mut self, request: &str) -> io::Result<()> {
        let delay = self.chassis.delay();
        if self.end.recv_timeout(delay) == Err(RecvTimeoutError::Disconnected) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let answer = match self.chassis.decide(request, self.power.is_on()) {
            Step::Say(answer) => answer,
            Step::Do(acts, answer) => self.act(acts).map_or_else(|()| files::NO.to_owned(), |()| answer),
            Step::Later(act, answer) => {
                self.act_later(act);
                answer
            }
        };
        writeln!(self.stdin, "{answer}")?;
        self.stdin.flush()
    }

    fn act(&mut self, acts: &[Act]) -> Result<(), ()> {
        for &act in acts {
            let done = self.power.act(act, self.chassis.boot());
            done.map_err(|error| log::warn!("IPMI: {error}: {}", error.source))?;
            if matches!(act, Act::On | Act::Reset) {
                self.chassis.booted();
            }
        }
        Ok(())
    }

    /// What takes a system's own time. The simulator does nothing else while its program runs.
    fn act_later(&self, act: Act) {
        let power = Arc::clone(&self.power);
        std::thread::spawn(move || {
            if let Err(error) = power.act(act, Boot::default()) {
                log::warn!("IPMI: {error}: {}", error.source);
            }
        });
    }
}
