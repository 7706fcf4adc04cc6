//! Status of a [`super::BareMetalHost`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bare_metal_host::BootMode;
use super::common::{Condition, Nullable, SecretReference, Time, present};
use super::hardware::HardwareDetails;
use super::host_network_attachment::{SwitchPortConfig, SwitchPortIdentifier};
use super::image::{CustomDeploy, Image, RootDeviceHints};
use super::raid::{FirmwareConfig, RaidConfig};

/// What the controller is doing with a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProvisioningState {
    /// Nothing yet.
    #[default]
    #[serde(rename = "")]
    None,
    /// Nothing, for want of a BMC.
    #[serde(rename = "unmanaged")]
    Unmanaged,
    /// Trying its BMC.
    #[serde(rename = "registering")]
    Registering,
    /// Of older versions; goes on to `preparing`.
    #[serde(rename = "match profile")]
    MatchProfile,
    /// Finding out what is in it.
    #[serde(rename = "inspecting")]
    Inspecting,
    /// Setting up RAID, BIOS and firmware.
    #[serde(rename = "preparing")]
    Preparing,
    /// Of older versions: `available`.
    #[serde(rename = "ready")]
    Ready,
    /// Waiting for an image.
    #[serde(rename = "available")]
    Available,
    /// Writing the image.
    #[serde(rename = "provisioning")]
    Provisioning,
    /// Keeping its power as wanted.
    #[serde(rename = "provisioned")]
    Provisioned,
    /// Keeping its power as wanted; somebody else installed it.
    #[serde(rename = "externally provisioned")]
    ExternallyProvisioned,
    /// Cleaning its disks.
    #[serde(rename = "deprovisioning")]
    Deprovisioning,
    /// Powering it off for the last time.
    #[serde(rename = "powering off before delete")]
    PoweringOffBeforeDelete,
    /// Forgetting it.
    #[serde(rename = "deleting")]
    Deleting,
}

impl ProvisioningState {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::None,
        Self::Unmanaged,
        Self::Registering,
        Self::MatchProfile,
        Self::Inspecting,
        Self::Preparing,
        Self::Ready,
        Self::Available,
        Self::Provisioning,
        Self::Provisioned,
        Self::ExternallyProvisioned,
        Self::Deprovisioning,
        Self::PoweringOffBeforeDelete,
        Self::Deleting,
    ];

    /// The name as it stands in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Unmanaged => "unmanaged",
            Self::Registering => "registering",
            Self::MatchProfile => "match profile",
            Self::Inspecting => "inspecting",
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Available => "available",
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::ExternallyProvisioned => "externally provisioned",
            Self::Deprovisioning => "deprovisioning",
            Self::PoweringOffBeforeDelete => "powering off before delete",
            Self::Deleting => "deleting",
        }
    }
}

impl std::fmt::Display for ProvisioningState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationalStatus {
    /// Nobody has looked yet.
    #[default]
    #[serde(rename = "")]
    Unknown,
    /// As it should be.
    #[serde(rename = "OK")]
    Ok,
    /// Known, but its BMC is not.
    #[serde(rename = "discovered")]
    Discovered,
    /// See `errorType` and `errorMessage`.
    #[serde(rename = "error")]
    Error,
    /// Waiting for others: only so many are provisioned at a time.
    #[serde(rename = "delayed")]
    Delayed,
    /// Left alone, as the annotation says.
    #[serde(rename = "detached")]
    Detached,
    /// Its firmware is being changed.
    #[serde(rename = "servicing")]
    Servicing,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ErrorType {
    /// A host that is in use could not be registered again.
    #[serde(rename = "provisioned registration error")]
    ProvisionedRegistration,
    /// The BMC could not be reached or did not let us in.
    #[serde(rename = "registration error")]
    Registration,
    /// It could not be found out what is in the host.
    #[serde(rename = "inspection error")]
    Inspection,
    /// RAID, BIOS or firmware could not be set up.
    #[serde(rename = "preparation error")]
    Preparation,
    /// The image could not be written, or the disks not be cleaned.
    #[serde(rename = "provisioning error")]
    Provisioning,
    /// The host could not be powered on or off.
    #[serde(rename = "power management error")]
    PowerManagement,
    /// The host could not be taken out of Ironic.
    #[serde(rename = "detach error")]
    Detach,
    /// Its firmware could not be changed.
    #[serde(rename = "servicing error")]
    Servicing,
}

/// A version of the BMC's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// The Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// Its `resourceVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_version: Option<String>,
}

/// When something began and ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationMetric {
    /// When it began.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub start: Option<Nullable<Time>>,
    /// When it ended.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub end: Option<Nullable<Time>>,
}

/// What was done last, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationHistory {
    /// Registering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<OperationMetric>,
    /// Inspecting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect: Option<OperationMetric>,
    /// Provisioning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision: Option<OperationMetric>,
    /// Deprovisioning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprovision: Option<OperationMetric>,
}

/// What was done with the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionStatus {
    /// What is being done now.
    pub state: ProvisioningState,
    /// Ironic's UUID of it.
    #[serde(rename = "ID")]
    pub id: String,
    /// The image that was written last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// The hints that were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// How it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// Volumes that were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidConfig>,
    /// Of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Deploy procedure that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
}

/// How the port behind a network interface was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedNetworkAttachmentConfig {
    /// Name of the interface.
    pub name: String,
    /// How.
    pub switch_port_config: SwitchPortConfig,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<SwitchPortIdentifier>,
}

/// What was found and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostStatus {
    /// How the host is.
    pub operational_status: OperationalStatus,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    /// When this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_profile: Option<String>,
    /// What is in the host; also in `HardwareData`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
    /// What was done with it.
    pub provisioning: ProvisionStatus,
    /// Credentials that worked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub good_credentials: Option<CredentialsStatus>,
    /// Credentials that were tried last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried_credentials: Option<CredentialsStatus>,
    /// What went wrong, for people.
    pub error_message: String,
    /// Whether it is powered on, as last seen.
    pub powered_on: bool,
    /// What was done last, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_history: Option<OperationHistory>,
    /// Errors since something succeeded.
    #[serde(default)]
    pub error_count: i64,
    /// Times that provisioning of this image failed; starts again with a success or another image.
    #[serde(default)]
    pub provisioning_fail_count: i64,
    /// The image that was tried last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempted_image: Option<Image>,
    /// How the host is, one condition an aspect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// How its ports were set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_network_attachment_configs: Option<Vec<AppliedNetworkAttachmentConfig>>,
}
