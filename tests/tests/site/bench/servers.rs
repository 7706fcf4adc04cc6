//! Servers of a site: BMCs with machines behind them.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;

use foothold_qemu::bmc::{self, Bmc, Faults, MemoryPower, Mode, Profile};
use foothold_qemu::site::{self, Controller, ServerOptions};

use super::{DISK, PASSWORD, Site, lan};
use crate::server::Server;

/// What the clock of a server shows that lay in a store until its battery was empty.
const LOST_TIME: &str = "2011-02-03T04:05:06";

impl Site {
    /// A UEFI server that is off, its Redfish BMC, and its cable.
    pub fn server(&mut self, name: &str, mac: &str) -> Server {
        self.server_of(name, mac, &[DISK])
    }

    /// The same with disks of these sizes in bytes.
    pub fn server_of(&mut self, name: &str, mac: &str, disks: &[u64]) -> Server {
        self.server_with(name, mac, Mode::Uefi, Controller::Redfish(Box::new(generic())), disks)
    }

    /// A server that is off, its BMC, and its cable.
    pub fn server_with(
        &mut self,
        name: &str,
        mac: &str,
        firmware: Mode,
        controller: Controller,
        disks: &[u64],
    ) -> Server {
        let options = ServerOptions {
            name: name.to_owned(),
            mac: mac.to_owned(),
            firmware,
            memory_mib: 2560,
            cpus: 2,
            disks: disks.to_vec(),
            clock: Some(LOST_TIME.to_owned()),
            controller,
            listen: SocketAddrV4::new(self.own, 0),
            user: "admin".to_owned(),
            password: PASSWORD.to_owned(),
            faults: Faults::default(),
            accel: None,
            console: None,
            keep_in: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("site")),
        };
        let started = site::Server::start(&lan(), self.dir.path(), options, &mut self.servers, &self.stop);
        Server(started.unwrap_or_else(|error| panic!("{error}")))
    }

    /// A BMC before a machine that is nothing but a state in memory, and how a host names it.
    pub fn bmc(&mut self, power: Arc<MemoryPower>) -> (Bmc, String) {
        let profile = generic();
        let system = profile.ids.system.clone();
        let listen = SocketAddrV4::new(self.own, 0).into();
        let options = bmc::Options { listen, ..bmc::Options::on_loopback(profile, PASSWORD, power) };
        let bmc = Bmc::start(&mut self.servers, options, &self.stop).unwrap_or_else(|error| panic!("{error}"));
        let address = format!("redfish+{}/redfish/v1/Systems/{system}", bmc.url());
        (bmc, address)
    }
}

fn generic() -> Profile {
    Profile::known("generic").expect("a profile")
}
