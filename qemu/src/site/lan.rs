//! The network of a site: a bridge in the network namespace of the calling thread.

use std::io;

use super::{Namespace, SiteError};
use crate::tap::TapDevice;
use crate::tools::Tools;

/// Name of the bridge.
pub const BRIDGE: &str = "br0";

/// A bridge. All of its calls belong on threads of its namespace.
#[derive(Clone, Debug)]
pub struct Lan {
    tools: Tools,
}

impl Lan {
    /// Makes it, with nothing on it, and switches loopback on.
    ///
    /// # Errors
    /// Where the namespace has such a bridge already, or is not ours.
    pub fn make(tools: &Tools) -> Result<Self, SiteError> {
        let lan = Self::of_this_thread(tools);
        lan.ip(&["link", "set", "lo", "up"])?;
        lan.ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        lan.ip(&["link", "set", BRIDGE, "up"])?;
        Ok(lan)
    }

    /// The one that was made in this thread's namespace.
    pub fn of_this_thread(tools: &Tools) -> Self {
        Self { tools: tools.clone() }
    }

    /// Gives this machine an address there, with its prefix length: `172.22.0.1/24`. It may have it already.
    ///
    /// # Errors
    /// For what is no such address.
    pub fn address(&self, address: &str) -> Result<(), SiteError> {
        self.address_on(BRIDGE, address)
    }

    /// Gives one of its cards an address.
    ///
    /// # Errors
    /// As [`Self::address`], and where there is no such card.
    pub fn address_on(&self, card: &str, address: &str) -> Result<(), SiteError> {
        self.ip(&["address", "replace", address, "dev", card])
    }

    /// A cable to the bridge; its other end is a machine's card.
    ///
    /// # Errors
    /// Where the name is taken.
    pub fn cable(&self, name: &str) -> Result<TapDevice, SiteError> {
        self.cable_to(BRIDGE, name)
    }

    /// A cable to any bridge.
    ///
    /// # Errors
    /// Where the name is taken, or there is no such bridge.
    pub fn cable_to(&self, bridge: &str, name: &str) -> Result<TapDevice, SiteError> {
        let tap = TapDevice::new(name).map_err(|source| SiteError::Tap { name: name.to_owned(), source })?;
        self.ip(&["link", "set", tap.name(), "master", bridge, "up"])?;
        Ok(tap)
    }

    /// A cable to an interface of the user's own: a bridge, or a TAP device that nobody holds.
    ///
    /// # Errors
    /// Where there is no such interface, or it is of another kind; without the right to make interfaces.
    pub fn cable_to_users(&self, interface: &str) -> Result<TapDevice, SiteError> {
        let neither = || SiteError::NoBridge { name: interface.to_owned(), known: bridges() };
        if if_index(interface).is_none() {
            return Err(neither());
        }
        match self.cable_to(interface, "foothold%d") {
            // No bridge; a device that is not there is made here, and is the caller's to give up.
            Err(SiteError::Ip(_)) => TapDevice::new(interface).map_err(|source| match source.kind() {
                io::ErrorKind::ResourceBusy => SiteError::Held { name: interface.to_owned() },
                _ => neither(),
            }),
            other => other,
        }
    }

    /// A card of this machine's own, plugged into the bridge (a pair of veth; its other end is called `NAME-port`).
    ///
    /// # Errors
    /// Where the name is taken, or is longer than 10 characters.
    pub fn card(&self, name: &str, mac: &str) -> Result<(), SiteError> {
        let port = format!("{name}-port");
        self.ip(&["link", "add", &port, "type", "veth", "peer", "name", name, "address", mac])?;
        self.ip(&["link", "set", &port, "master", BRIDGE, "up"])?;
        self.ip(&["link", "set", name, "up"])
    }

    /// Gives a card away to another namespace, where it has no address and is off.
    ///
    /// # Errors
    /// Where there is no such card.
    pub fn give(&self, card: &str, to: &Namespace) -> Result<(), SiteError> {
        self.ip(&["link", "set", card, "netns", &to.path().display().to_string()])
    }

    /// Switches a card of this machine on, with this address.
    ///
    /// # Errors
    /// As [`Self::address_on`].
    pub fn switch_on(&self, card: &str, address: &str) -> Result<(), SiteError> {
        self.address_on(card, address)?;
        self.ip(&["link", "set", card, "up"])
    }

    pub(super) const fn tools(&self) -> &Tools {
        &self.tools
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), SiteError> {
        let run = self.tools.program("usr/bin/ip", arguments.iter().map(|&argument| argument.to_owned()))?;
        Ok(run.run_here(&format!("ip {}", arguments.join(" ")))?)
    }
}

/// Names of the bridges that there are, for an error.
fn bridges() -> String {
    let entries = fs_err::read_dir("/sys/class/net").into_iter().flatten().filter_map(Result::ok);
    let bridges = entries.filter(|entry| entry.path().join("bridge").exists());
    let mut names: Vec<String> = bridges.map(|entry| format!("`{}`", entry.file_name().to_string_lossy())).collect();
    names.sort();
    if names.is_empty() {
        "this machine has no bridge".to_owned()
    } else {
        format!("this machine has {}", names.join(", "))
    }
}

/// The kernel's number of an interface, in the network namespace of this thread.
fn if_index(name: &str) -> Option<u32> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::name_to_index(&socket, name).ok()
}
