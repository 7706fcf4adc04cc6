//! Resources of `metal3.io/v1alpha1`: field names, defaults, enums and columns are those of metal3's baremetal-operator,
//! so that its users' files, scripts and controllers (Cluster API's among them) go on working.
//!
//! ```text
//! BareMetalHost            a server                       user writes, controller reports
//!   HardwareData             what is in it                  controller writes
//!   PreprovisioningImage     the ramdisk for it             controller writes
//!   HostFirmwareSettings     its BIOS settings              user and controller
//!     FirmwareSchema           what they may be               controller writes
//!   HostFirmwareComponents   its firmware versions          user and controller
//!   HostUpdatePolicy         when they may change           user writes
//!   DataImage                an ISO in its drive            user writes, controller reports
//!   BMCEventSubscription     events of its BMC              user writes, controller reports
//! HostClaim                a wish for some server         user writes, controller reports
//! HostDeployPolicy         who may claim which            user writes
//! HostNetworkAttachment, BareMetalSwitch   ports of switches: not set up, and a condition says so
//!
//! schema (`crds`) ──► API server      `admission` ──► webhook      `bmc_address`, `annotations` ──► controller
//! ```
//!
//! An optional field is an [`Option`] even where the original controller makes no difference between an absent and an
//! empty one: an object comes back with the fields it had.

#![allow(clippy::duplicated_attributes, reason = "every column has a type")]

pub mod admission;
pub mod annotations;
mod bare_metal_host;
mod bare_metal_switch;
pub mod bmc_address;
pub mod bmc_event_subscription;
mod common;
pub mod crds;
pub mod data_image;
mod firmware_schema;
mod go_url;
mod hardware;
pub mod host_claim;
mod host_deploy_policy;
mod host_firmware_components;
pub mod host_firmware_settings;
mod host_network_attachment;
mod host_status;
mod host_update_policy;
mod image;
pub mod preprovisioning_image;
mod raid;
#[cfg(test)]
mod tests;

pub use bare_metal_host::{
    AutomatedCleaningMode, BareMetalHost, BareMetalHostSpec, BmcDetails, BootMode, InspectionMode, NetworkInterface,
};
pub use bare_metal_switch::{
    BareMetalSwitch, BareMetalSwitchSpec, BareMetalSwitchStatus, SwitchCredentialType, SwitchCredentials, SwitchDriver,
};
pub use bmc_event_subscription::{BmcEventSubscription, BmcEventSubscriptionSpec, BmcEventSubscriptionStatus};
pub use common::{
    Condition, ConditionStatus, NamespacedName, Nullable, ObjectReference, SecretReference, Taint, Time, items,
};
pub use data_image::{AttachedImage, DataImage, DataImageError, DataImageSpec, DataImageStatus};
pub use firmware_schema::{AttributeType, FirmwareSchema, FirmwareSchemaSpec, SettingSchema};
pub use hardware::{
    Bios, Cpu, DiskType, Firmware, HardwareData, HardwareDataSpec, HardwareDetails, Lldp, Nic, Storage, SystemVendor,
    Vlan,
};
pub use host_claim::{HostClaim, HostClaimSpec, HostClaimStatus, HostSelector, HostSelectorRequirement};
pub use host_deploy_policy::{
    HostClaimNamespaces, HostDeployPolicy, HostDeployPolicySpec, HostDeployPolicyStatus, NameValuePair,
};
pub use host_firmware_components::{
    FirmwareComponentStatus, FirmwareUpdate, HostFirmwareComponents, HostFirmwareComponentsSpec,
    HostFirmwareComponentsStatus,
};
pub use host_firmware_settings::{
    HostFirmwareSettings, HostFirmwareSettingsSpec, HostFirmwareSettingsStatus, IntOrString,
};
pub use host_network_attachment::{
    HostNetworkAttachment, HostNetworkAttachmentRef, HostNetworkAttachmentSpec, HostNetworkAttachmentStatus,
    SwitchPortConfig, SwitchPortIdentifier, SwitchPortMode, VlanRange,
};
pub use host_status::{
    AppliedNetworkAttachmentConfig, BareMetalHostStatus, CredentialsStatus, ErrorType, OperationHistory,
    OperationMetric, OperationalStatus, ProvisionStatus, ProvisioningState,
};
pub use host_update_policy::{HostUpdatePolicy, HostUpdatePolicySpec, HostUpdatePolicyStatus, UpdatePolicy};
pub use image::{ChecksumType, CustomDeploy, DiskFormat, Image, RootDeviceHints};
pub use preprovisioning_image::{
    ImageFormat, PreprovisioningImage, PreprovisioningImageSpec, PreprovisioningImageStatus, SecretStatus,
};
pub use raid::{
    FirmwareConfig, HardwareRaidLevel, HardwareRaidVolume, RaidConfig, SoftwareRaidLevel, SoftwareRaidVolume,
};

/// API group of all kinds.
pub const GROUP: &str = "metal3.io";
/// The only version of them.
pub const VERSION: &str = "v1alpha1";
