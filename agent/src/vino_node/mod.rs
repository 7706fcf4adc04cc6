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
//! libvirt is the whole state, but for a ledger beside its volumes: which of its objects are ours, made of which template.
//! Each step can be killed and done again. What is not ours is never touched.
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

/// Folder of the node that all containers of the pod have, and that outlives it.
pub const STATE: &str = "/var/lib/libvirt";
/// Folder of the pod that all its containers have, in memory.
pub const SHARED: &str = "/run/vino";

/// Group of the interfaces that are bridges of machines (`ip link set group`): a node's firewall lets frames between machines,
/// and their DHCP, through by it. Nodes of Kubernetes show what bridges forward to their firewalls.
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

    /// What of libvirt's objects is ours.
    pub fn ledger(&self) -> PathBuf {
        self.state.join("vino-ledger.json")
    }

    /// How domains run, as the container that starts libvirt found out.
    pub fn accelerator(&self) -> PathBuf {
        self.shared.join("accelerator")
    }

    /// Who may use Redfish, as `sushy-tools` reads it, too.
    pub fn htpasswd(&self) -> PathBuf {
        self.shared.join("htpasswd")
    }

    /// There while all is as the values say.
    pub fn ready(&self) -> PathBuf {
        self.shared.join("ready")
    }

    /// What Redfish keeps of a domain.
    pub fn redfish(&self, domain: &str) -> PathBuf {
        self.state.join("vino-redfish").join(format!("{domain}.json"))
    }

    /// Images of virtual media.
    pub fn media(&self) -> PathBuf {
        self.state.join("vino-media")
    }
}
