//! The servers of a simulation, on threads of their own namespace.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use foothold_qemu::bmc::Mode;
use foothold_qemu::site::{Controller, Lan, Namespace, Server, ServerOptions};
use foothold_qemu::{Accel, TapDevice, Tools};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::simulation::{Driver, Firmware, SimulatedServer, Simulation};

/// How long what is being answered has.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// The box's cable.
const BOX_CABLE: &str = "tapbox";

/// Where a simulation's files go, and what runs its machines.
#[derive(Clone)]
pub struct Ground {
    /// QEMU, `ip` and the IPMI simulator.
    pub tools: Tools,
    /// KVM or not.
    pub accel: Accel,
    /// Disks and media; removed by whoever made it.
    pub dir: PathBuf,
    /// What the servers say.
    pub consoles: PathBuf,
}

impl Ground {
    /// The file of what a server says.
    pub fn console(&self, name: &str) -> PathBuf {
        self.consoles.join(format!("{name}.log"))
    }
}

/// The running servers. All of it ends with the handle.
pub struct Site {
    /// In the order of the file.
    pub servers: Vec<Server>,
    /// The box's cable, when there is a box.
    pub cable: Option<TapDevice>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    runtime: Option<Runtime>,
    // Last: the others are in it.
    namespace: Option<Namespace>,
}

impl Site {
    /// Makes the network, and starts the BMCs. The machines are off.
    pub fn start(simulation: &Simulation, ground: &Ground) -> Result<Self> {
        let namespace = Namespace::make()?;
        let (plan, ground) = (simulation.clone(), ground.clone());
        let mut site = namespace.run(move || Self::make(&plan, &ground))?;
        site.namespace = Some(namespace);
        Ok(site)
    }

    /// On the namespace's thread.
    fn make(simulation: &Simulation, ground: &Ground) -> Result<Self> {
        // Its threads are in the namespace of the one that makes them.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let lan = Lan::make(&ground.tools)?;
        lan.address(&format!("{}/{}", simulation.address, simulation.prefix))?;
        let cable = simulation.appliance.as_ref().map(|_| lan.cable(BOX_CABLE)).transpose()?;
        let (servers, tasks, stop) = (Vec::new(), JoinSet::new(), CancellationToken::new());
        let mut site = Self { servers, cable, tasks, stop, runtime: Some(runtime), namespace: None };
        for server in &simulation.servers {
            lan.address(&format!("{}/{}", server.listen.ip(), simulation.prefix))?;
            let inside = site.runtime.as_ref().map(Runtime::enter);
            let options = options(server, ground);
            let started = Server::start(&lan, &ground.dir, options, &mut site.tasks, &site.stop);
            drop(inside);
            site.servers.push(started.with_context(|| format!("starting the BMC of `{}`", server.name.as_str()))?);
        }
        Ok(site)
    }

    /// The namespace's file, for `nsenter --net=`.
    pub fn namespace(&self) -> Option<&Path> {
        self.namespace.as_ref().map(Namespace::path)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
        self.servers.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(ENDS_WITHIN);
        }
    }
}

fn options(server: &SimulatedServer, ground: &Ground) -> ServerOptions {
    let name = server.name.as_str();
    ServerOptions {
        name: name.to_owned(),
        mac: server.mac.clone(),
        firmware: match server.firmware {
            Firmware::Bios => Mode::Legacy,
            Firmware::Uefi => Mode::Uefi,
        },
        memory_mib: server.memory_mib,
        cpus: server.cpus,
        disks: vec![server.disk.bytes()],
        clock: None,
        controller: match server.driver {
            Driver::Redfish | Driver::RedfishVirtualmedia => Controller::Redfish(Box::new(server.profile.clone())),
            Driver::Ipmi => Controller::Ipmi,
        },
        listen: server.listen,
        user: server.user.clone(),
        password: server.password.clone(),
        faults: server.faults.clone(),
        accel: Some(ground.accel),
        console: Some(ground.console(name)),
        keep_in: None,
    }
}
