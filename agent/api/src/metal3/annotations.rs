//! Annotations of a [`super::BareMetalHost`], and what their values say.
//!
//! ```text
//! .../paused                  nothing is done, whatever its value
//! .../detached                taken out of Ironic, left as it is        [`Detached`]
//! .../status                  status to start with, after a move
//! reboot.metal3.io[/client]   reboot; with a client: held powered off   [`RebootMode`]
//! inspect.metal3.io           inspect again; `disabled`: never
//! .../hardwaredetails         what inspection would have found
//! foothold.dev/virtual-media  `http`: its BMC cannot fetch media by TLS
//! ```

use serde::{Deserialize, Serialize};

use serde_json::Value;

use super::bare_metal_host::BareMetalHost;
use super::host_status::BareMetalHostStatus;

/// Held until the host is clean, powered off, and out of Ironic.
pub const FINALIZER: &str = "baremetalhost.metal3.io";
/// Nothing is done with the host.
pub const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// The host is taken out of Ironic and left as it is.
pub const DETACHED: &str = "baremetalhost.metal3.io/detached";
/// Status to start with.
pub const STATUS: &str = "baremetalhost.metal3.io/status";
/// The host is rebooted.
pub const REBOOT: &str = "reboot.metal3.io";
/// The host is inspected again, or never.
pub const INSPECT: &str = "inspect.metal3.io";
/// What inspection would have found.
pub const HARDWARE_DETAILS: &str = "inspect.metal3.io/hardwaredetails";
/// How the BMC fetches virtual media from the box, ours: [`BY_TLS`], or [`BY_HTTP`] if it cannot do that.
pub const VIRTUAL_MEDIA: &str = "foothold.dev/virtual-media";
/// Value of [`VIRTUAL_MEDIA`]: by TLS, as without the annotation.
pub const BY_TLS: &str = "https";
/// Value of [`VIRTUAL_MEDIA`]: in the clear, with the token of the server's agent in it.
pub const BY_HTTP: &str = "http";
/// Label of Secrets that the controller may read.
pub const SECRET_LABEL: (&str, &str) = ("environment.metal3.io", "baremetal");

/// What is to become of a detached host that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeleteAction {
    /// It stays until it is attached again.
    Delay,
    /// It goes, and the server stays as it is.
    #[default]
    #[serde(other)]
    Delete,
}

/// Value of [`DETACHED`]: JSON, or anything, which means the same as nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detached {
    /// What is to become of the host when it is deleted.
    pub delete_action: DeleteAction,
    /// Whether it is detached in the middle of what is being done with it.
    pub force: bool,
}

/// How a host is rebooted. The greater one wins where several ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RebootMode {
    /// The operating system is asked to shut down first.
    #[default]
    Soft,
    /// The power goes off.
    Hard,
}

/// What all reboot annotations of a host ask for together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reboots {
    /// There is one without a client: it is removed once the host is off.
    pub once: bool,
    /// Clients that hold the host powered off until they remove theirs.
    pub held_by: Vec<String>,
    /// How.
    pub mode: RebootMode,
    /// Whether one is to be acted on in the middle of inspection or provisioning.
    pub force: bool,
    /// Annotations whose values are not JSON; they ask for a soft reboot.
    pub invalid: Vec<String>,
}

impl Reboots {
    /// Whether anybody asks.
    pub fn any(&self) -> bool {
        self.once || !self.held_by.is_empty()
    }
}

/// Value of a reboot annotation. An unknown or empty mode is `soft`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RebootArguments {
    mode: String,
    force: bool,
}

/// Whether this is a reboot annotation, and whose: `Some("")` for the one without a client.
pub fn reboot_client(annotation: &str) -> Option<&str> {
    let rest = annotation.strip_prefix(REBOOT)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// What the reboot annotations of a host ask for.
pub fn reboots(host: &BareMetalHost) -> Reboots {
    let mut asked = Reboots::default();
    for (annotation, value) in host.metadata.annotations.iter().flatten() {
        let Some(client) = reboot_client(annotation) else { continue };
        if client.is_empty() {
            asked.once = true;
        } else {
            asked.held_by.push(client.to_owned());
        }
        if value.is_empty() {
            continue;
        }
        match serde_json::from_str::<RebootArguments>(value) {
            Ok(arguments) => {
                asked.force |= arguments.force;
                if arguments.mode == "hard" {
                    asked.mode = RebootMode::Hard;
                }
            }
            Err(_) => asked.invalid.push(annotation.clone()),
        }
    }
    asked
}

/// What [`DETACHED`] asks for, when it is there.
pub fn detached(host: &BareMetalHost) -> Option<Detached> {
    host.annotation(DETACHED).map(|value| serde_json::from_str(value).unwrap_or_default())
}

/// The status that a value of [`STATUS`] holds. What it leaves out is as in a new status, and so is what it has empty:
/// metal3's operator reads it so.
///
/// # Errors
/// It is no status.
pub fn status(value: &str) -> Result<BareMetalHostStatus, serde_json::Error> {
    let mut whole = serde_json::to_value(BareMetalHostStatus::default())?;
    overlay(&mut whole, Value::Object(serde_json::from_str(value)?));
    serde_json::from_value(whole)
}

fn overlay(into: &mut Value, from: Value) {
    match (into, from) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match into.get_mut(&name) {
                    Some(there) => overlay(there, value),
                    None if value == "" || value.as_object().is_some_and(serde_json::Map::is_empty) => {}
                    None => drop(into.insert(name, value)),
                }
            }
        }
        (into, from) => *into = from,
    }
}
