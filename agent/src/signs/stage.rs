//! Where a server stands that Ironic is at work with, what comes next, and until when that is waited for.

use std::net::Ipv4Addr;

use agent_api::host_story::{DhcpClient, DhcpSign, HttpSign, RamdiskSign};
use jiff::{SignedDuration, Timestamp};

use super::node::{self, moment};
use crate::ironic::{CALLBACK_SECS, Node, ProvisionState};

/// Virtual media is put in, and may be fetched, so long before the server is powered on.
const MEDIA: SignedDuration = SignedDuration::from_mins(5);
/// A file that was asked for in vain is told of after so long: iPXE asks for one name after the other.
const IN_VAIN: SignedDuration = SignedDuration::from_secs(20);
/// The firmware of a big server needs some minutes before it asks anybody for anything.
const FIRMWARE: SignedDuration = SignedDuration::from_mins(10);

/// What is seen of a server.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its node.
    pub node: &'a Node,
    /// Whether the box's DHCP and HTTP are looked at at all: if not, that nothing was seen there means nothing.
    pub listened: bool,
    /// Its DHCP.
    pub dhcp: Option<&'a DhcpSign>,
    /// Its fetches.
    pub http: Option<&'a HttpSign>,
    /// When what is done with it now began.
    pub began: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// Where it stands; a network boot in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its BMC is tried.
    Tried,
    /// Its BMC is asked what is in it.
    Asked,
    /// Files and boot source are made ready.
    Readied,
    /// It is off.
    Off,
    /// It is on, and nothing was heard of it; what is next.
    On(Next),
    /// It has been on for longer than firmware takes, and nothing was heard of it.
    Silent(Next),
    /// A system that is not the ramdisk runs: the server did not start from where its BMC was told to.
    OwnDisk,
    /// It asked DHCP, and no address was seen to be given to it.
    NoAddress,
    /// It has an address.
    Address(Ipv4Addr),
    /// It asked for a file that the box does not give.
    InVain {
        /// Path.
        path: String,
        /// HTTP status.
        status: u16,
    },
    /// It, or its BMC, fetches the ramdisk.
    Fetching,
    /// It, or its BMC, has the ramdisk.
    Fetched,
    /// Its ramdisk has called.
    Ramdisk,
    /// Its image is written.
    Writing,
    /// Its image is on the disk.
    Written,
    /// Another step runs in its ramdisk or its BMC.
    Step(String),
    /// Its image is taken away.
    Removed,
    /// Its BMC is told to change its power, in Ironic's words.
    Power(String),
}

/// What comes next of a server that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It asks DHCP.
    Dhcp,
    /// Its BMC, or it, fetches the disc of virtual media.
    Disc,
    /// Its ramdisk calls: what comes before is not seen here.
    Call,
}

/// Where the server stands; none when Ironic is not at work with it.
pub fn stage(seen: &Seen<'_>) -> Option<Stage> {
    let node = seen.node;
    match &node.provision_state {
        ProvisionState::Verifying => Some(Stage::Tried),
        ProvisionState::Inspecting if node.inspect_interface.as_deref() != Some("agent") => Some(Stage::Asked),
        ProvisionState::Inspecting => Some(at_work(seen)),
        ProvisionState::InspectWait => Some(booting(seen)),
        ProvisionState::Deploying | ProvisionState::DeployWait => Some(deploying(seen)),
        ProvisionState::Deleting => Some(Stage::Removed),
        ProvisionState::Cleaning
        | ProvisionState::CleanWait
        | ProvisionState::Servicing
        | ProvisionState::ServiceWait => Some(cleaning(seen)),
        ProvisionState::Enroll
        | ProvisionState::Manageable
        | ProvisionState::Available
        | ProvisionState::DeployFail
        | ProvisionState::Active
        | ProvisionState::Error
        | ProvisionState::CleanFail
        | ProvisionState::InspectFail
        | ProvisionState::Adopting
        | ProvisionState::AdoptFail
        | ProvisionState::ServiceFail
        | ProvisionState::Other(_) => node.target_power_state.clone().map(Stage::Power),
    }
}

/// Steps of a deployment, by the names of Ironic's agent interfaces.
fn deploying(seen: &Seen<'_>) -> Stage {
    match node::step(&seen.node.deploy_step) {
        Some("write_image") => refused(seen).unwrap_or(Stage::Writing),
        Some("prepare_instance_boot" | "tear_down_agent" | "switch_to_tenant_network" | "boot_instance") => {
            Stage::Written
        }
        None | Some("deploy") if seen.node.provision_state == ProvisionState::DeployWait => booting(seen),
        None | Some("deploy") => at_work(seen),
        Some(other) => Stage::Step(other.to_owned()),
    }
}

/// An image, or its checksum, that is not there: the ramdisk asks again for a long time before it says so itself.
fn refused(seen: &Seen<'_>) -> Option<Stage> {
    seen.http.and_then(in_vain)
}

fn in_vain(fetch: &HttpSign) -> Option<Stage> {
    let status = fetch.status.filter(|status| *status >= 400)?;
    Some(Stage::InVain { path: fetch.path.clone(), status })
}

fn cleaning(seen: &Seen<'_>) -> Stage {
    let waits = matches!(seen.node.provision_state, ProvisionState::CleanWait | ProvisionState::ServiceWait);
    let servicing = matches!(seen.node.provision_state, ProvisionState::Servicing | ProvisionState::ServiceWait);
    let step = if servicing { &seen.node.service_step } else { &seen.node.clean_step };
    match node::step(step) {
        Some(step) => Stage::Step(step.to_owned()),
        None if waits => booting(seen),
        None => at_work(seen),
    }
}

/// Ironic is at work itself: before the boot, or after the ramdisk has called.
fn at_work(seen: &Seen<'_>) -> Stage {
    let stage = booting(seen);
    if matches!(stage, Stage::Ramdisk | Stage::Fetched | Stage::Fetching) { stage } else { Stage::Readied }
}

/// The ramdisk is waited for.
fn booting(seen: &Seen<'_>) -> Stage {
    let (node, on) = (seen.node, seen.node.powered_on());
    let commanded = node::bmc(node).commanded.map(|time| time.0);
    // What was heard before the server was powered on for this was another boot.
    let since = commanded.or(seen.began).unwrap_or(Timestamp::MIN);
    let ramdisk = node::ramdisk(node).filter(|ramdisk| has_called(ramdisk, since));
    let by_media = node.boot_interface.as_deref().is_some_and(|name| name.contains("virtual-media"));
    let fetched_since = if by_media { since.checked_sub(MEDIA).unwrap_or(since) } else { since };
    let http = seen.http.filter(|fetch| fetch.at.0 >= fetched_since);
    if ramdisk.is_some() && on != Some(false) {
        return Stage::Ramdisk;
    }
    if node.target_power_state.is_some() {
        return Stage::Readied;
    }
    if on == Some(false) {
        return Stage::Off;
    }
    if let Some(fetch) = http
        && let Some(stage) = fetching(fetch, seen.now)
    {
        return stage;
    }
    // Over the network, the ramdisk is fetched before any operating system can ask.
    if !by_media && http.is_none() && seen.dhcp.is_some_and(|dhcp| has_system(dhcp, since)) {
        return Stage::OwnDisk;
    }
    if let Some(stage) = seen.dhcp.and_then(|dhcp| addressed(dhcp, since)) {
        return stage;
    }
    let next = match (seen.listened, by_media) {
        (false, _) => Next::Call,
        (true, true) => Next::Disc,
        (true, false) => Next::Dhcp,
    };
    let long = commanded.or(seen.began).is_some_and(|at| seen.now.duration_since(at) >= FIRMWARE);
    if long { Stage::Silent(next) } else { Stage::On(next) }
}

/// An operating system asked for an address.
fn has_system(dhcp: &DhcpSign, since: Timestamp) -> bool {
    dhcp.asked.as_ref().is_some_and(|asked| asked.at.0 >= since && asked.client == DhcpClient::System)
}

fn has_called(ramdisk: &RamdiskSign, since: Timestamp) -> bool {
    ramdisk.url.is_some() && ramdisk.heartbeat.0 >= since
}

/// Boot scripts and the like are small, and say nothing that the address has not said.
fn fetching(fetch: &HttpSign, now: Timestamp) -> Option<Stage> {
    if let Some(stage) = in_vain(fetch) {
        return (now.duration_since(fetch.at.0) >= IN_VAIN).then_some(stage);
    }
    let ramdisk = ["deploy_kernel", "deploy_ramdisk", ".kernel", ".initramfs", ".iso"];
    if !ramdisk.iter().any(|end| fetch.path.ends_with(end)) {
        return None;
    }
    let kernel = fetch.path.ends_with("kernel");
    let done = fetch.ended.is_some() && !fetch.cut && !kernel;
    Some(if done { Stage::Fetched } else { Stage::Fetching })
}

fn addressed(dhcp: &DhcpSign, since: Timestamp) -> Option<Stage> {
    let asked = dhcp.asked.as_ref().is_some_and(|asked| asked.at.0 >= since);
    let answered = dhcp.answered.as_ref().filter(|answered| answered.at.0 >= since);
    let address = answered.and_then(|answered| answered.address);
    match address {
        Some(address) => Some(Stage::Address(address)),
        None => (asked || answered.is_some()).then_some(Stage::NoAddress),
    }
}

impl Next {
    const fn says(self) -> &'static str {
        match self {
            Self::Dhcp => "no DHCP request yet",
            Self::Disc => "its disc is not fetched yet",
            Self::Call => "its ramdisk has not called yet",
        }
    }

    /// The same, with what may be the cause.
    fn says_why(self) -> String {
        let hint = match self {
            Self::Dhcp => "is its cable in, and is the network first in its own boot order?",
            Self::Disc => {
                "does its BMC reach port 6180 of the box? If it cannot by TLS: annotation foothold.dev/virtual-media=http"
            }
            Self::Call => "is its cable in, and did it start from where its BMC was told to?",
        };
        format!("{}; hint: {hint}", self.says())
    }
}

impl Stage {
    /// In words, which stay the same as long as it does.
    pub fn says(&self) -> String {
        match self {
            Self::Tried => "its BMC is tried".to_owned(),
            Self::Asked => "its BMC is asked what is in it".to_owned(),
            Self::Readied => "Ironic makes it ready: boot files, boot source, power".to_owned(),
            Self::Off => "powered off; Ironic powers it on".to_owned(),
            Self::On(next) => format!("powered on; {}", next.says()),
            Self::Silent(next) => format!("powered on for more than {} min; {}", FIRMWARE.as_mins(), next.says_why()),
            Self::OwnDisk => {
                "an operating system asked DHCP and no ramdisk was fetched: it seems to have started from its \
                              disk; hint: put the network first in its own boot order"
                    .to_owned()
            }
            Self::NoAddress => "asked DHCP; no answer with an address seen".to_owned(),
            Self::Address(address) => format!("asked DHCP and got {address}; fetches the ramdisk"),
            Self::InVain { path, status } => format!("asked the box for `{path}` and got {status}"),
            Self::Fetching => "fetches the ramdisk".to_owned(),
            Self::Fetched => "has the ramdisk; no heartbeat yet".to_owned(),
            Self::Ramdisk => "ramdisk is up, heartbeat seen".to_owned(),
            Self::Writing => "image is being written".to_owned(),
            Self::Written => "image is written; it is restarted into it".to_owned(),
            Self::Step(name) => format!("step `{name}` runs"),
            Self::Removed => "its image is taken away".to_owned(),
            Self::Power(target) => format!("its BMC is told `{target}`, and asked until that is so"),
        }
    }

    /// When Ironic gives up, if no sign comes before.
    pub fn until(&self, node: &Node) -> Option<Timestamp> {
        let state = &node.provision_state;
        let by_change =
            matches!(state, ProvisionState::DeployWait | ProvisionState::CleanWait | ProvisionState::ServiceWait);
        let inspected = node.inspection_started_at.as_deref().filter(|_| *state == ProvisionState::InspectWait);
        let since = inspected.or_else(|| node.provision_updated_at.as_deref().filter(|_| by_change));
        moment(since?)?.checked_add(SignedDuration::from_secs(CALLBACK_SECS)).ok()
    }

    /// Whether each heartbeat moves that moment.
    fn is_kept_alive(&self, node: &Node) -> bool {
        let inspected = matches!(node.provision_state, ProvisionState::Inspecting | ProvisionState::InspectWait);
        !inspected && matches!(self, Self::Ramdisk | Self::Writing | Self::Step(_))
    }

    /// For a condition: what it is and until when, in words that change only with the stage.
    pub fn sentence(&self, node: &Node) -> String {
        let says = self.says();
        if self.is_kept_alive(node) {
            return format!("{says}; given up {} min after its last heartbeat", CALLBACK_SECS / 60);
        }
        match self.until(node) {
            Some(until) => format!("{says}; given up at {until:.0}"),
            None => says,
        }
    }
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
