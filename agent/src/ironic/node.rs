//! What Ironic says about nodes and ports.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What Ironic is doing with a node ("Bare Metal State Machine").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ProvisionState {
    /// Known, its BMC not tried.
    #[default]
    Enroll,
    /// Its BMC is being tried.
    Verifying,
    /// Its BMC answers.
    Manageable,
    /// To be deployed.
    Available,
    /// Being deployed.
    Deploying,
    /// Being deployed; the ramdisk is waited for.
    DeployWait,
    /// Not deployed.
    DeployFail,
    /// It has an instance.
    Active,
    /// Its instance is being removed.
    Deleting,
    /// Its instance could not be removed.
    Error,
    /// Being cleaned.
    Cleaning,
    /// Being cleaned; the ramdisk is waited for.
    CleanWait,
    /// Not cleaned.
    CleanFail,
    /// Being inspected.
    Inspecting,
    /// Being inspected; the ramdisk is waited for.
    InspectWait,
    /// Not inspected.
    InspectFail,
    /// Being adopted.
    Adopting,
    /// Not adopted.
    AdoptFail,
    /// An instance's firmware is being changed.
    Servicing,
    /// An instance's firmware is being changed; the ramdisk is waited for.
    ServiceWait,
    /// An instance's firmware could not be changed.
    ServiceFail,
    /// Any other.
    Other(String),
}

/// Names as the API has them.
const NAMES: [(&str, ProvisionState); 21] = [
    ("enroll", ProvisionState::Enroll),
    ("verifying", ProvisionState::Verifying),
    ("manageable", ProvisionState::Manageable),
    ("available", ProvisionState::Available),
    ("deploying", ProvisionState::Deploying),
    ("wait call-back", ProvisionState::DeployWait),
    ("deploy failed", ProvisionState::DeployFail),
    ("active", ProvisionState::Active),
    ("deleting", ProvisionState::Deleting),
    ("error", ProvisionState::Error),
    ("cleaning", ProvisionState::Cleaning),
    ("clean wait", ProvisionState::CleanWait),
    ("clean failed", ProvisionState::CleanFail),
    ("inspecting", ProvisionState::Inspecting),
    ("inspect wait", ProvisionState::InspectWait),
    ("inspect failed", ProvisionState::InspectFail),
    ("adopting", ProvisionState::Adopting),
    ("adopt failed", ProvisionState::AdoptFail),
    ("servicing", ProvisionState::Servicing),
    ("service wait", ProvisionState::ServiceWait),
    ("service failed", ProvisionState::ServiceFail),
];

impl From<String> for ProvisionState {
    fn from(name: String) -> Self {
        let known = NAMES.into_iter().find(|(known, _)| *known == name);
        known.map_or(Self::Other(name), |(_, state)| state)
    }
}

impl From<ProvisionState> for String {
    fn from(state: ProvisionState) -> Self {
        state.name().to_owned()
    }
}

impl ProvisionState {
    /// The name as the API has it.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => NAMES.iter().find(|(_, state)| state == known).map_or("", |(name, _)| name),
        }
    }

    /// Whether Ironic holds its lock of the node as long as it is in the state: it waits for nobody meanwhile.
    pub const fn is_worked_in(&self) -> bool {
        matches!(
            self,
            Self::Verifying
                | Self::Deploying
                | Self::Deleting
                | Self::Cleaning
                | Self::Inspecting
                | Self::Adopting
                | Self::Servicing
        )
    }

    /// Whether its BMC has let Ironic in once.
    pub const fn is_tried(&self) -> bool {
        !matches!(self, Self::Enroll | Self::Verifying)
    }

    /// Whether Ironic is at work with the node and leaves the state by itself.
    pub const fn is_busy(&self) -> bool {
        match self {
            Self::Verifying
            | Self::Deploying
            | Self::DeployWait
            | Self::Deleting
            | Self::Cleaning
            | Self::CleanWait
            | Self::Inspecting
            | Self::InspectWait
            | Self::Adopting
            | Self::Servicing
            | Self::ServiceWait => true,
            Self::Enroll
            | Self::Manageable
            | Self::Available
            | Self::DeployFail
            | Self::Active
            | Self::Error
            | Self::CleanFail
            | Self::InspectFail
            | Self::AdoptFail
            | Self::ServiceFail
            | Self::Other(_) => false,
        }
    }
}

impl std::fmt::Display for ProvisionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A node. Passwords in it are masked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Ironic's own name of it.
    pub uuid: String,
    /// Its name.
    pub name: Option<String>,
    /// What is being done with it.
    pub provision_state: ProvisionState,
    /// What that shall lead to.
    pub target_provision_state: Option<String>,
    /// `power on`, `power off`, or not known.
    pub power_state: Option<String>,
    /// What its power is being changed to.
    pub target_power_state: Option<String>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Whether Ironic leaves it alone.
    pub maintenance: bool,
    /// Why it does.
    pub maintenance_reason: Option<String>,
    /// What Ironic found wrong with it: `power failure`, `clean failure`, ...
    pub fault: Option<String>,
    /// Who has locked it, when somebody has.
    pub reservation: Option<String>,
    /// Hardware type.
    pub driver: String,
    /// How its BMC is reached.
    pub driver_info: Map<String, Value>,
    /// What it is.
    pub properties: Map<String, Value>,
    /// What it runs.
    pub instance_info: Map<String, Value>,
    /// Whose it is.
    pub instance_uuid: Option<String>,
    /// Whether it is cleaned before it is available.
    pub automated_clean: Option<bool>,
    /// How it boots.
    pub boot_interface: Option<String>,
    /// How it is deployed.
    pub deploy_interface: Option<String>,
    /// How it is inspected.
    pub inspect_interface: Option<String>,
    /// When it was inspected last.
    pub inspection_finished_at: Option<String>,
    /// When its inspection began.
    pub inspection_started_at: Option<String>,
    /// When its state changed last, or a heartbeat kept it.
    pub provision_updated_at: Option<String>,
    /// The step of a deployment that is done: `step`, `interface`, ...; empty between them.
    pub deploy_step: Value,
    /// The step of a cleaning that is done, likewise.
    pub clean_step: Value,
    /// The step of servicing that is done, likewise.
    pub service_step: Value,
    /// What Ironic notes for itself.
    pub driver_internal_info: Map<String, Value>,
    /// Network configuration of the ramdisk.
    pub network_data: Option<Value>,
    /// Whether it may never be powered off (since 1.95).
    pub disable_power_off: Option<bool>,
}

impl Node {
    /// Whether it is powered on, when that is known.
    pub fn powered_on(&self) -> Option<bool> {
        match self.power_state.as_deref() {
            Some("power on") => Some(true),
            Some("power off") => Some(false),
            Some(_) | None => None,
        }
    }

    /// Whether its power is being changed. Who changes it has locked it: a target that nobody has the lock for broke off
    /// (a write that its database refused), and stays until it is asked for again.
    pub fn is_being_switched(&self) -> bool {
        self.target_power_state.is_some() && self.reservation.is_some()
    }

    /// Whether it is in a state that only who works with it ends, for so long, and nobody does: what it was to do broke
    /// off on the way (a write that its database refused), and Ironic does not notice.
    pub fn is_abandoned(&self, now: Timestamp, patience: SignedDuration) -> bool {
        let since = self.provision_updated_at.as_deref().and_then(|since| since.parse::<Timestamp>().ok());
        let long = since.is_some_and(|since| now.duration_since(since) > patience);
        self.provision_state.is_worked_in() && self.reservation.is_none() && long
    }

    /// What went wrong last; nothing when nothing did.
    pub fn error(&self) -> Option<&str> {
        self.last_error.as_deref().filter(|error| !error.is_empty())
    }
}

/// A network interface of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Ironic's own name of it.
    pub uuid: String,
    /// MAC address.
    pub address: String,
    /// Node it belongs to.
    pub node_uuid: String,
    /// Whether the node boots from it.
    pub pxe_enabled: Option<bool>,
}

/// A change of a node (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Patch {
    /// A field gets a value, whether it had one or not.
    Add {
        /// Where.
        path: String,
        /// Value.
        value: Value,
    },
    /// A field has no value any more.
    Remove {
        /// Where.
        path: String,
    },
}

impl Patch {
    /// A field gets a value.
    pub fn add(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Add { path: path.into(), value: value.into() }
    }

    /// The field.
    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Remove { path } => path,
        }
    }

    /// A field has no value any more.
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use jiff::{SignedDuration, Timestamp};
    use rstest::rstest;

    use super::{NAMES, Node, Patch, ProvisionState};

    /// State, who holds the lock, when the state began, at 10:06:00 with a patience of five minutes.
    #[rstest]
    #[case::broke_off("cleaning", None, Some("10:00:00.5"), true)]
    #[case::at_work("cleaning", Some("box"), Some("10:00:00"), false)]
    #[case::not_for_long("deploying", None, Some("10:01:01"), false)]
    #[case::waits_for_a_ramdisk("clean wait", None, Some("10:00:00"), false)]
    #[case::at_rest("manageable", None, Some("10:00:00"), false)]
    #[case::since_when_is_not_known("verifying", None, None, false)]
    fn a_node_is_abandoned_in_a_state_that_nobody_ends(
        #[case] state: &str,
        #[case] reservation: Option<&str>,
        #[case] since: Option<&str>,
        #[case] abandoned: bool,
    ) {
        let node = Node {
            provision_state: ProvisionState::from(state.to_owned()),
            reservation: reservation.map(str::to_owned),
            provision_updated_at: since.map(|time| format!("2026-03-02T{time}+00:00")),
            ..Node::default()
        };
        let now: Timestamp = "2026-03-02T10:06:00Z".parse().expect("a time");
        assert_eq!(node.is_abandoned(now, SignedDuration::from_mins(5)), abandoned);
    }

    #[test]
    fn states_have_the_names_of_the_api() {
        for (name, state) in NAMES {
            assert_eq!(ProvisionState::from(name.to_owned()), state);
            assert_eq!(String::from(state), name);
        }
        assert_eq!(ProvisionState::from("rescue".to_owned()), ProvisionState::Other("rescue".into()));
    }

    #[test]
    fn a_node_is_read_with_nulls_and_without_fields() {
        let node: Node = serde_json::from_value(json!({
            "uuid": "u", "name": null, "provision_state": "wait call-back", "power_state": null, "last_error": null,
            "driver_info": {}, "extra": {"unknown": 1}
        }))
        .expect("a node");
        assert_eq!((node.provision_state, node.name), (ProvisionState::DeployWait, None));
    }

    #[test]
    fn a_change_is_written_as_the_rfc_has_it() {
        let changes = [Patch::add("/a", 1), Patch::remove("/b")];
        let wanted = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}]);
        assert_eq!(json!(changes), wanted);
    }
}
