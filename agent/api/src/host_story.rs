//! What the box knows of each server that it provisions: `GET /api/v1/hosts` and `GET /api/v1/hosts/NAMESPACE/NAME`.
//!
//! ```text
//! HostList ─ hosts ─► HostLine { state, waits: Waits, last: LastSign }
//! HostStory = HostLine + conditions + signs: Signs { bmc, dhcp, http, ramdisk } + timeline: Vec<Happening>
//! ```
//! The signs of life are also what the guard of DHCP and the box's agent hand to the controller in files.

use std::net::{IpAddr, Ipv4Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metal3::{Condition, Time};

/// Kind of a host's condition that tells what its BMC says when it is asked; there as long as something waits for it.
pub const BMC_ANSWERS: &str = "BMCAnswers";

/// `GET /api/v1/hosts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostList {
    /// All `BareMetalHost`s, by namespace and name.
    pub hosts: Vec<HostLine>,
    /// Whom the box could not ask, and why: what they know is missing above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A `BareMetalHost` in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostLine {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `status.provisioning.state`; empty before the controller has seen the host.
    pub state: String,
    /// What is wrong, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is waited for; nothing for a host that is as it shall be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// The last sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastSign>,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// Where the host stands and what comes next, in words.
    #[serde(rename = "for")]
    pub what: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Until when: then it is given up, or tried again. A sign of life may move it. For ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A sign of life in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSign {
    /// When.
    pub at: Time,
    /// Of what.
    pub kind: SignKind,
    /// In words.
    pub says: String,
}

/// What gives a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignKind {
    /// Its BMC.
    Bmc,
    /// A DHCP packet, from it or to it.
    Dhcp,
    /// A file of the box that it fetches.
    Http,
    /// Its ramdisk.
    Ramdisk,
}

/// `GET /api/v1/hosts/NAMESPACE/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostStory {
    /// The host in one line.
    #[serde(flatten)]
    pub line: HostLine,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Signs of life, the last of each kind.
    pub signs: Signs,
    /// What happened, in order.
    pub timeline: Vec<Happening>,
    /// Whom the box could not ask, and why: what they know is missing above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Signs of life of a host, the last of each kind; what was never seen is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signs {
    /// Its BMC, as Ironic knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcSign>,
    /// DHCP on the box's own segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<DhcpSign>,
    /// What it, or its BMC, fetches from the box over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSign>,
    /// Its ramdisk, as Ironic knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramdisk: Option<RamdiskSign>,
}

/// A BMC. Ironic asks each for its power every minute, and tells no time of an answer: only changes and failures. While
/// something waits for a BMC, the controller asks it, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcSign {
    /// Whether it answered when it was asked last; not known before the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<bool>,
    /// `power on`, `power off`, as it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<String>,
    /// When it was last told to change the power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commanded: Option<Time>,
    /// Why it does not answer, or lets nobody in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// DHCP of one MAC address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpSign {
    /// Which, lower case with colons.
    pub mac: String,
    /// The last that it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<DhcpAsked>,
    /// The last that it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<DhcpAnswered>,
    /// The address that the box lends it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Ipv4Addr>,
}

impl DhcpSign {
    /// When it was last heard, or answered.
    pub fn last(&self) -> Option<Time> {
        let asked = self.asked.as_ref().map(|asked| asked.at);
        asked.max(self.answered.as_ref().map(|answered| answered.at))
    }
}

/// A question by DHCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpAsked {
    /// When.
    pub at: Time,
    /// Which, as RFC 2132, 9.6 names it, in lower case: `discover`, `request`; `bootp` without one.
    pub message: String,
    /// What asked.
    pub client: DhcpClient,
    /// Which firmware it boots with (RFC 4578, 2.1): 0 is a BIOS, 7 UEFI of x86-64, 11 UEFI of ARM, 16 UEFI HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<u16>,
}

/// What asks by DHCP, in the order of a network boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DhcpClient {
    /// Firmware that boots by PXE.
    Pxe,
    /// Firmware that boots by HTTP.
    HttpBoot,
    /// iPXE.
    Ipxe,
    /// An operating system: the ramdisk, or what is installed.
    System,
}

/// An answer by DHCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpAnswered {
    /// When.
    pub at: Time,
    /// Which, as RFC 2132, 9.6 names it, in lower case: `offer`, `ack`, `nak`; `bootp` without one.
    pub message: String,
    /// The address that it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// Who answered.
    pub server: Ipv4Addr,
    /// Whether that is this box.
    pub ours: bool,
}

/// A file that was asked for over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpSign {
    /// Who asked.
    pub client: IpAddr,
    /// For which path.
    pub path: String,
    /// When.
    pub at: Time,
    /// When all that was asked for was handed to the network, or the client was gone; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// HTTP status of the answer; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of the answer's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The client was gone before the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A ramdisk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RamdiskSign {
    /// Its last heartbeat that Ironic took.
    pub heartbeat: Time,
    /// Where Ironic reaches it; absent once Ironic has powered the server off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Something that happened to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Happening {
    /// When; of what happened several times, the last time.
    pub at: Time,
    /// What kind of thing.
    pub kind: HappeningKind,
    /// One word: an event's or condition's reason, a state, the kind of a sign.
    pub word: String,
    /// For people, one line.
    pub says: String,
    /// Something is wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warning: bool,
    /// How often, when it was more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
}

/// A kind of thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HappeningKind {
    /// An operation of the host began or ended.
    State,
    /// A condition changed.
    Condition,
    /// An event of the cluster about the host.
    Event,
    /// A sign of life.
    Sign,
}
