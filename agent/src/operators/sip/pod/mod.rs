//! What this program does in the pods of a cluster's services.
//!
//! ```text
//! bring    copies this program to a volume, for containers whose image lacks it
//! haproxy  runs HAProxy, and has it follow its configuration
//! console  the serial line of a host, in a terminal
//! host     what users of the jump host do with their hosts
//! ```

pub mod console;
pub mod haproxy;
pub mod host;

use std::path::PathBuf;

use clap::Subcommand;

use crate::host::files;

/// This program.
const OWN: &str = "/proc/self/exe";

/// What pods run.
#[derive(Debug, Subcommand)]
pub enum Pod {
    /// Copy this program to a path.
    #[command(hide = true)]
    Bring {
        /// The path to copy to.
        to: PathBuf,
    },
    /// Run `HAProxy`, and have it follow its configuration.
    #[command(hide = true)]
    Haproxy(haproxy::Haproxy),
    /// List the hosts of a cluster, reboot one, or open its serial console (called `host` on a jump host).
    #[command(hide = true)]
    Host(host::Host),
}

impl Pod {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Bring { to } => Ok(files::write(to, &fs_err::read(OWN)?, 0o755).map(drop)?),
            Self::Haproxy(haproxy) => haproxy.run(),
            Self::Host(host) => host.run(),
        }
    }
}
