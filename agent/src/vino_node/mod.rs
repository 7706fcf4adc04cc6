//! A node's virtual machines that are hosts of a site: what the containers of `Vino`'s pod run.
//!
//! ```text
//!  annotation of the Node ─► builder ─► wanted (pure: templates, cores) ─┐
//!                                       there  (virsh, ip)              ─┴► plan (pure) ─► act ─► libvirt
//!                                          │                                                 │
//!  annotation of the pod  ◄── report ◄─────┴─────────────────────────────────────────────────┘
//!
//!  Ironic ── HTTP, basic authentication ─► redfish: foothold_qemu's enclosure ─► Power: virsh create, destroy, change-media
//!
//!  libvirt: finds out whether KVM runs guests, writes the settings, starts libvirtd and is its init
//! ```
//!
//! The state is what libvirt has, and a ledger beside its volumes: which objects the builder made, from which template.
//! Each step can be killed and repeated. Objects of others are never changed.
//!
//! `libvirtd` is started, and not the modular daemons: one process in one container, which is what a pod restarts. The three
//! that would be needed (`virtqemud`, `virtnetworkd`, `virtstoraged`) ask each other over sockets, and nothing but another
//! init would look after them.

pub mod act;
pub mod builder;
pub mod command;
pub mod cores;
pub mod ledger;
pub mod libvirt;
pub mod plan;
pub mod redfish;
pub mod report;
pub mod templates;
pub mod there;
pub mod virsh;
pub mod wanted;
pub mod xml;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

/// Folder on the node that all containers of the pod share. It stays when the pod ends.
pub const STATE: &str = "/var/lib/libvirt";
/// Folder in memory that all containers of the pod share.
pub const SHARED: &str = "/run/vino";

/// Group of the interfaces that are bridges of machines (`ip link set group`). By this group a node's firewall lets frames
/// between machines pass, and their DHCP. It has to, because nodes of Kubernetes pass what bridges forward through their
/// firewalls.
pub const BRIDGES: u32 = 7040;

/// Paths of the pod; below a root of its own in tests.
#[derive(Clone, Debug)]
pub struct Paths {
    /// What libvirt calls `/`.
    pub root: PathBuf,
    /// [`STATE`].
    pub state: PathBuf,
    /// [`SHARED`].
    pub shared: PathBuf,
}

impl Paths {
    /// Those below a root.
    pub fn below(root: &Path) -> Self {
        let at = |path: &str| root.join(path.trim_start_matches('/'));
        Self { root: root.to_owned(), state: at(STATE), shared: at(SHARED) }
    }

    /// A path as libvirt calls it.
    pub fn of_node(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// File with the ledger.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("vino-ledger.json")
    }

    /// File that says whether domains run with KVM: the container that starts libvirt finds that out.
    pub fn accelerator(&self) -> PathBuf {
        self.shared.join("accelerator")
    }

    /// File with Redfish's user and password, in the form of `sushy-tools`.
    pub fn htpasswd(&self) -> PathBuf {
        self.shared.join("htpasswd")
    }

    /// File that exists while everything is as the values say.
    pub fn ready(&self) -> PathBuf {
        self.shared.join("ready")
    }

    /// Key of the SSH server of the consoles. It goes with the last of the `Vino`'s networks and machines.
    pub fn console_key(&self) -> PathBuf {
        self.state.join("vino-console-key")
    }

    /// File in which Redfish keeps its settings of a domain.
    pub fn redfish(&self, domain: &str) -> PathBuf {
        self.state.join("vino-redfish").join(format!("{domain}.json"))
    }

    /// Images of virtual media.
    pub fn media(&self) -> PathBuf {
        self.state.join("vino-media")
    }
}
