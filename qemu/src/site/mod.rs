//! A site: machines on a network of their own, each behind a BMC, in a network namespace of their own.
//!
//! ```text
//!  Namespace: a thread, and what is started from it
//!  ┌──────────────────────────────────────────────────────────┐
//!  │  Redfish, ipmi_sim ── addresses ── br0 ── tap0 ── server │ QEMU, a process of the host's namespace:
//!  │                                     └──── tap1 ── box ───┼── with a forwarded port where it has one
//!  └──────────────────────────────────────────────────────────┘
//! ```
//! Nothing leads out of the namespace, and it ends with the thread and its machines. It takes the rights of root, which
//! may be those in a user namespace.
//!
//! | module | what |
//! |---|---|
//! | `namespace` | [`Namespace`]: the thread |
//! | `lan` | [`Lan`]: the bridge, addresses, cables |
//! | `server` | [`Server`]: a machine, its disk, its cable, its BMC |

mod lan;
mod namespace;
mod server;

use std::io;

use crate::bmc::{BmcError, IpmiError};
use crate::disk::DiskError;
use crate::host::RunError;
use crate::tools::ToolsError;

pub use lan::{BRIDGE, Lan};
pub use namespace::Namespace;
pub use server::{Controller, Server, ServerOptions};

/// Why a part of a site could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The toolbox lacks something.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// No network namespace.
    #[error("making a network namespace\nhint: it takes root, or a user namespace")]
    Namespace(#[source] io::Error),
    /// `ip` refused.
    #[error("configuring the network of the site")]
    Ip(#[from] RunError),
    /// No TAP device.
    #[error("making the TAP device `{name}`\nhint: is there a /dev/net/tun?")]
    Tap {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A TAP device whose other end somebody has.
    #[error("another program holds the TAP device `{name}`\nhint: end it, or name a bridge, which many can share")]
    Held {
        /// Its name.
        name: String,
    },
    /// An interface that no cable leads to.
    #[error("`{name}` is neither a bridge nor a TAP device\nhint: {known}; `ip link add NAME type bridge` makes one")]
    NoBridge {
        /// Its name.
        name: String,
        /// The bridges that there are, in words.
        known: String,
    },
    /// A server's files cannot be made.
    #[error("making the files of `{name}`")]
    Files {
        /// The server.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A server's disk cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A Redfish BMC did not start.
    #[error(transparent)]
    Redfish(#[from] BmcError),
    /// An IPMI BMC did not start.
    #[error(transparent)]
    Ipmi(#[from] IpmiError),
}
