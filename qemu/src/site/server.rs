//! A server: a machine with empty disks on the network of the site, behind its BMC.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Lan, SiteError};
use crate::accel::Accel;
use crate::bmc::{
    Act, Bmc, Boot, Faults, Images, IpmiBmc, IpmiOptions, Machine, Mode, Options, Power as _, Profile, VmPower,
};
use crate::builder::VmBuilder;
use crate::disk::{Disk, Writes};
use crate::network::Nic;
use crate::tap::TapDevice;

/// How long a system has for shutting down when it is asked to.
const SHUTS_DOWN_WITHIN: Duration = Duration::from_secs(60);

/// Servers run a little behind the box, which has to answer all of them: a real one has processors of its own. Not far
/// behind: with 10, a control plane on a server got a tenth of what the box took, and its API never stayed up.
const NICE: u8 = 3;

/// What switches a server.
#[derive(Clone, Debug)]
pub enum Controller {
    /// Redfish, as its vendor has it.
    Redfish(Box<Profile>),
    /// IPMI over LAN.
    Ipmi,
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name, also the serial number of its first disk; others have `NAME-2`, `NAME-3`.
    pub name: String,
    /// Hardware address of its only card, which it boots from when its disks are empty.
    pub mac: String,
    /// Firmware.
    pub firmware: Mode,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// Sizes of its disks in bytes, in the order in which it boots from them.
    pub disks: Vec<u64>,
    /// What its hardware clock shows at each power-on, UTC, such as `1970-01-01T00:00:00`; the host's time if `None`.
    pub clock: Option<String>,
    /// What switches it.
    pub controller: Controller,
    /// Where its BMC listens; port 0 takes a free one.
    pub listen: SocketAddrV4,
    /// The BMC's only account.
    pub user: String,
    /// The account's password.
    pub password: String,
    /// What is wrong with the BMC.
    pub faults: Faults,
    /// What executes its instructions, when that is known already.
    pub accel: Option<Accel>,
    /// Where what it says on its serial port is written, anew at each power-on.
    pub console: Option<PathBuf>,
    /// Where a test that fails keeps what it said.
    pub keep_in: Option<PathBuf>,
}

enum Running {
    Redfish { bmc: Box<Bmc>, system: String },
    Ipmi(IpmiBmc),
}

/// A server. It is off at first, and switched off with the handle.
pub struct Server {
    name: String,
    mac: String,
    running: Running,
    power: Arc<VmPower>,
    _tap: TapDevice,
}

impl Server {
    /// Starts its BMC, on a thread of the network's namespace and in a runtime. Its disks and its media are in `dir`,
    /// and are the caller's to remove.
    ///
    /// # Errors
    /// See [`SiteError`].
    pub fn start(
        lan: &Lan,
        dir: &Path,
        options: ServerOptions,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> Result<Self, SiteError> {
        // As long as the name of an interface may be.
        let tap = lan.cable(&format!("tap{}", options.mac.replace(':', "")))?;
        let builder = machine(lan, dir, &options, &tap)?;
        let power = Arc::new(VmPower::new(builder, SHUTS_DOWN_WITHIN));
        let ServerOptions { name, mac, firmware, memory_mib, cpus, controller, listen, .. } = options;
        let (user, password, faults) = (options.user, options.password, options.faults);
        let running = match controller {
            Controller::Ipmi => {
                let options = IpmiOptions { listen, user, password, firmware, power: power.clone(), faults };
                Running::Ipmi(IpmiBmc::start(lan.tools(), options)?)
            }
            Controller::Redfish(profile) => {
                let media = dir.join(format!("{name}-media"));
                fs_err::create_dir(&media).map_err(|source| SiteError::Files { name: name.clone(), source })?;
                let system = profile.ids.system.clone();
                let machine = Machine {
                    name: name.clone(),
                    macs: vec![mac.clone()],
                    serial: name.clone(),
                    cpus,
                    memory_mib,
                    firmware,
                    serial_line: true,
                    ..Machine::default()
                };
                let options = Options {
                    listen: listen.into(),
                    user,
                    machine,
                    images: Images::Fetched(media),
                    ..Options::on_loopback(*profile, &password, power.clone())
                };
                let bmc = Bmc::start(tasks, options, stop)?;
                bmc.set_faults(faults);
                Running::Redfish { bmc: Box::new(bmc), system }
            }
        };
        Ok(Self { name, mac, running, power, _tap: tap })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Of its only card.
    pub fn mac(&self) -> &str {
        &self.mac
    }

    /// How a `BareMetalHost` names its BMC. `scheme`: of Redfish, such as `redfish-virtualmedia+https`; IPMI has one.
    pub fn address(&self, scheme: &str) -> String {
        match &self.running {
            Running::Redfish { bmc, system } => format!("{scheme}://{}/redfish/v1/Systems/{system}", bmc.address()),
            Running::Ipmi(bmc) => format!("ipmi://{}", bmc.address()),
        }
    }

    /// The machine.
    pub fn power(&self) -> &VmPower {
        &self.power
    }

    /// What it said since it was last switched on; nothing when it is off.
    pub fn serial(&self) -> String {
        self.power.with_vm(crate::Vm::serial_text).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that fails keeps what the machine shows, which takes a machine.
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.power.act(Act::Off, Boot::default()) {
            log::warn!("`{}`: {error}: {}", self.name, error.source);
        }
    }
}

/// All of the machine but what its BMC decides.
fn machine(lan: &Lan, dir: &Path, options: &ServerOptions, tap: &TapDevice) -> Result<VmBuilder, SiteError> {
    let name = &options.name;
    let failed = |source| SiteError::Files { name: name.clone(), source };
    let mut builder = VmBuilder::new(lan.tools(), name.as_str())
        .memory_mib(options.memory_mib)
        .cpus(options.cpus)
        .nice(NICE)
        .nic(Nic::device(tap).mac(options.mac.as_str()).boot());
    for (number, bytes) in (1..).zip(&options.disks) {
        let disk = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        let empty = dir.join(format!("{disk}.raw"));
        fs_err::File::create(&empty).and_then(|file| file.file().set_len(*bytes)).map_err(failed)?;
        let writes = Writes::Overlay(dir.join(format!("{disk}.qcow2")));
        builder = builder.disk(Disk::open(&empty)?.writes(writes).serial(disk));
    }
    if let Some(clock) = &options.clock {
        builder = builder.clock(clock.as_str());
    }
    if let Some(accel) = options.accel {
        builder = builder.accel(accel);
    }
    if let Some(console) = &options.console {
        builder = builder.serial_log(console);
    }
    if let Some(keep) = &options.keep_in {
        builder = builder.keep_on_panic(keep);
    }
    Ok(builder)
}
