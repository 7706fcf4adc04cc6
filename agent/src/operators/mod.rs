//! Controllers of the cluster's resources.
//!
//! ```text
//! metal3  servers of the site, by metal3's kinds, with Ironic
//! bpa     application clusters on them, by the kinds of Akraino ICN
//! kpa     charts and manifests on those clusters
//! sip     hosts and services for tenant clusters, by the kind of Airship's SIP
//! vino    virtual machines as hosts, by the kinds of Airship's ViNO
//! kit     what every controller shares; it knows no kind
//! ```
//!
//! How a new kind is made:
//!
//! 1. Its types go to `agent_api`; conditions are [`agent_api::meta::Condition`].
//! 2. A folder for the operator here, and in it one folder for each kind, with the files of the others:
//!    `controller` (queues, and a turn in a few calls), `look` (what is known), `decide` (pure: what is done), `act` (does it),
//!    `conclude` (what follows from what came of it), `tell` (status, conditions, events). A small kind leaves some out.
//! 3. `controller` implements [`kit::Turn`]; its queues are its own watch ([`kit::Base::changed`]) and those of the kinds
//!    that it depends on ([`kit::turns::related`], or [`kit::Changes`] where several controllers want the same).
//! 4. What it holds it has a finalizer on ([`kit::Objects::hold`], [`kit::Objects::let_go`]); what fails rests
//!    ([`kit::Failures`]); reasons of its events are an enum ([`kit::Reason`]); conditions go through
//!    [`kit::conditions::merge`].
//! 5. The operator's `command` takes its settings and calls [`kit::command::run`]; [`Operator`] below gets a line for it.

pub mod bpa;
pub mod kit;
pub mod kpa;
pub mod metal3;
pub mod sip;
pub mod vino;

use clap::Subcommand;

use bpa::command::Bpa;
use kpa::command::Kpa;
use metal3::command::BareMetalHosts;
use sip::command::Sip;
use vino::command::Vino;

/// What `foothold-agent operator` runs.
#[derive(Debug, Subcommand)]
pub enum Operator {
    /// Servers of the site, by metal3's `BareMetalHost`, with Ironic.
    #[command(name = "baremetalhost")]
    BareMetalHost(Box<BareMetalHosts>),
    /// Application clusters of the site, by Akraino ICN's `Provisioning`.
    #[command(name = "bpa")]
    Bpa(Box<Bpa>),
    /// Charts and manifests on those clusters.
    #[command(name = "kpa")]
    Kpa(Box<Kpa>),
    /// Hosts and services for tenant clusters, by Airship's `SIPCluster`.
    #[command(name = "sip")]
    Sip(Box<Sip>),
    /// Virtual machines as hosts, by Airship's `Vino`.
    #[command(name = "vino")]
    Vino(Box<Vino>),
}

impl Operator {
    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// What it cannot go on without.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::BareMetalHost(operator) => operator.run(),
            Self::Bpa(operator) => operator.run(),
            Self::Kpa(operator) => operator.run(),
            Self::Sip(operator) => operator.run(),
            Self::Vino(operator) => operator.run(),
        }
    }
}
