//! A BMC that speaks Redfish over HTTPS, for machines that are none, or QEMU's; and one that speaks IPMI over LAN.
//!
//! ```text
//!  client ── TLS ──► server ── faults: late, dropped, silent
//!                      │
//!                      ▼                    GET ─► document ◄── profile (a vendor's data file)
//!                   service ── who, where ──┤         ▲
//!                      │                    └──────► change ──► state: override, media, BIOS, clock,
//!                      │                                │              sessions, subscriptions
//!                      ▼                                ▼
//!                   events ──► subscribers         Power ──► MemoryPower | VmPower ──► QEMU
//! ```
//!
//! By DMTF's DSP0266 ("Redfish Specification") and DSP2046 ("Redfish Resource and Schema Guide"). A BMC has one
//! computer system, one manager and one chassis. Nothing of it is written to a disk but fetched images.
//!
//! | module | what |
//! |---|---|
//! | `profile` | [`Profile`]: what a vendor does in its own way; `profiles/` holds those that come along |
//! | `place` | path -> resource or action |
//! | `document` | the resources' JSON (pure) |
//! | `change` | PATCH, POST, DELETE: decided (pure) |
//! | `state` | all that changes |
//! | `power` | [`Power`]: the machine behind; [`MemoryPower`] |
//! | `vm` | [`VmPower`]: a virtual machine of this crate |
//! | `images` | what becomes of an inserted image's URL |
//! | `events` | telling subscribers |
//! | `faults` | [`Faults`] on demand |
//! | `refusal` | errors in Redfish's form |
//! | `line`, `console` | a machine's [`SerialLine`]; consoles over SSH |
//! | `ipmi` | [`IpmiBmc`]: OpenIPMI's simulator before the same [`Power`] |
//! | `service`, `server` | one request; TLS and connections |
//! | `enclosure` | [`Enclosure`]: one service before many machines, over HTTP, by their names |

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use jiff::SignedDuration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod change;
mod clock;
mod console;
mod document;
mod enclosure;
mod events;
mod faults;
mod images;
mod ipmi;
mod line;
mod place;
mod power;
mod profile;
mod refusal;
mod server;
mod service;
mod state;
mod vm;

pub use change::Guard;
pub use enclosure::{Enclosure, EnclosureError, EnclosureOptions};
pub use faults::{Faults, Flaps, PowerFault};
pub use images::Images;
pub use ipmi::{IpmiBmc, IpmiError, IpmiOptions, is_ipmi_name};
pub use line::SerialLine;
pub use power::{Act, Boot, BootFrom, Kept, MemoryPower, Mode, Power, PowerError};
pub use profile::{Drive, Firmware, Ids, Insert, Media, Owner, Profile, ProfileError};
pub use state::Machine;
pub use vm::VmPower;

use change::Account;
use console::{Front, Offer};
use service::{Service, lock};
use state::State;

/// A server of images, or a subscriber, that says nothing for so long is gone.
const STALLED: Duration = Duration::from_secs(10);

/// Why a BMC did not start.
#[derive(Debug, thiserror::Error)]
pub enum BmcError {
    /// Its address cannot be had.
    #[error("a BMC cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its certificate cannot be made.
    #[error("making a BMC's certificate")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key of its consoles cannot be made.
    #[error("making a BMC's SSH key")]
    Key(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Its client for images and events cannot be made.
    #[error("making a BMC's HTTP client")]
    Client(#[source] reqwest::Error),
}

/// What a BMC is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Its vendor's way.
    pub profile: Profile,
    /// The only account's name.
    pub user: String,
    /// The account's password.
    pub password: String,
    /// The machine as it is described.
    pub machine: Machine,
    /// The machine itself.
    pub power: Arc<dyn Power>,
    /// What becomes of inserted images.
    pub images: Images,
    /// How far its clock is ahead of ours.
    pub skew: SignedDuration,
}

impl Options {
    /// A BMC on a free loopback port, with an account `admin`, before a machine in memory.
    pub fn on_loopback(profile: Profile, password: &str, power: Arc<dyn Power>) -> Self {
        Self {
            listen: ([127, 0, 0, 1], 0).into(),
            profile,
            user: "admin".to_owned(),
            password: password.to_owned(),
            machine: Machine::default(),
            power,
            images: Images::Named,
            skew: SignedDuration::ZERO,
        }
    }
}

/// A request that a BMC got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Method.
    pub method: String,
    /// Path.
    pub path: String,
}

/// A running BMC. It ends with the tasks, or when it is told to stop.
#[derive(Clone)]
pub struct Bmc {
    address: SocketAddr,
    certificate: String,
    service: Arc<Service>,
}

impl Bmc {
    /// Starts a BMC. Needs a tokio runtime.
    pub fn start(tasks: &mut JoinSet<()>, options: Options, stop: &CancellationToken) -> Result<Self, BmcError> {
        let Options { listen, profile, user, password, machine, power, images, skew } = options;
        let (tls, certificate) = server::tls(listen.ip()).map_err(BmcError::Certificate)?;
        let unheard = |source| BmcError::Listen { address: listen, source };
        let listener = server::bind(listen).map_err(unheard)?;
        let address = listener.local_addr().map_err(unheard)?;
        let client = client(address.ip()).map_err(BmcError::Client)?;
        let guard = Arc::new(Account { user, password });
        let console = if machine.serial_line {
            Some(start_console(tasks, address.ip(), guard.clone(), &machine.name, &power, stop)?)
        } else {
            None
        };
        let (letters, box_) = mpsc::unbounded_channel();
        let (later, put_off) = mpsc::unbounded_channel();
        let service = Arc::new(Service {
            state: Mutex::new(State::new(&profile, machine.firmware, skew)),
            guard,
            console,
            faults: Mutex::default(),
            asked: Mutex::default(),
            answers: AtomicU64::new(0),
            switch: tokio::sync::Mutex::default(),
            client: client.clone(),
            profile,
            machine,
            power,
            images,
            letters,
            later,
        });
        let router = Router::new().fallback(service::answer).with_state(Arc::clone(&service));
        tasks.spawn(server::serve(listener, tls, Arc::clone(&service), router, stop.clone()));
        let until = stop.clone();
        tasks.spawn(async move {
            until.run_until_cancelled(events::deliver(box_, client)).await;
        });
        let (until, switched) = (stop.clone(), Arc::clone(&service));
        tasks.spawn(async move {
            until.run_until_cancelled(switched.switch_later(put_off)).await;
        });
        Ok(Self { address, certificate, service })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://ADDRESS`, without a path.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Its certificate in PEM, which nobody but itself has signed.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// From now on these are its faults.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.service.faults) = faults;
    }

    /// All requests so far that were not dropped, the first one first.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.service.asked).clone()
    }
}

/// Serves the console of the only machine, on a free port.
fn start_console(
    tasks: &mut JoinSet<()>,
    ip: IpAddr,
    guard: Arc<dyn Guard>,
    name: &str,
    power: &Arc<dyn Power>,
    stop: &CancellationToken,
) -> Result<Offer, BmcError> {
    let address = SocketAddr::new(ip, 0);
    let unheard = |source| BmcError::Listen { address, source };
    let listener = server::bind(address).map_err(unheard)?;
    let port = listener.local_addr().map_err(unheard)?.port();
    let front = Front::of_one(guard, name, Arc::clone(power));
    let key = console::new_key().map_err(BmcError::Key)?;
    tasks.spawn(console::serve(listener, key, Arc::new(front), stop.clone()));
    Ok(Offer { port, name: None })
}

/// For images and events, from the BMC's own address: the other end's certificate is not checked, as with most BMCs.
fn client(own: IpAddr) -> Result<reqwest::Client, reqwest::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // Only the first server of a process installs it.
    let _ = rustls::crypto::CryptoProvider::install_default(Arc::unwrap_or_clone(provider));
    let builder = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
    let own = Some(own).filter(|own| !own.is_loopback() && !own.is_unspecified());
    builder.local_address(own).connect_timeout(STALLED).read_timeout(STALLED).build()
}

#[cfg(test)]
mod tests;
