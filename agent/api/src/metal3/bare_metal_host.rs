//! `BareMetalHost`: a server, how to reach it, and what it shall be.
//!
//! ```text
//! spec    what the user wants         webhook (`admission`) and schema check it
//! status  what the controller found   one state of `ProvisioningState`, and why
//! ```

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ObjectReference, SecretReference, Taint};
use super::host_network_attachment::{HostNetworkAttachmentRef, SwitchPortIdentifier};
use super::host_status::{BareMetalHostStatus, ProvisioningState};
use super::image::{CustomDeploy, Image, RootDeviceHints};
use super::raid::{FirmwareConfig, RaidConfig};

/// How a host starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BootMode {
    /// UEFI.
    #[default]
    #[serde(rename = "UEFI")]
    Uefi,
    /// UEFI, with secure boot once it is provisioned.
    #[serde(rename = "UEFISecureBoot")]
    UefiSecureBoot,
    /// BIOS.
    #[serde(rename = "legacy")]
    Legacy,
}

/// How a host is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InspectionMode {
    /// Not at all.
    #[serde(rename = "disabled")]
    Disabled,
    /// By a ramdisk that runs on it.
    #[serde(rename = "agent")]
    Agent,
    /// By its BMC, without booting anything. Redfish only.
    #[serde(rename = "fast")]
    Fast,
}

/// What happens to the disks between two users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AutomatedCleaningMode {
    /// Partition tables and signatures are erased.
    #[default]
    #[serde(rename = "metadata")]
    Metadata,
    /// Nothing.
    #[serde(rename = "disabled")]
    Disabled,
}

/// How the BMC is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcDetails {
    /// Its address as a URL; the scheme says what is spoken. See [`super::bmc_address`].
    pub address: String,
    /// Secret of this namespace with `username` and `password`.
    pub credentials_name: String,
    /// Whether any certificate will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
}

/// How the port behind a network interface is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Its name as inspection found it; or `macAddress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-zA-Z0-9._-]+$"))]
    pub name: Option<String>,
    /// Its MAC address as inspection found it; or `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub mac_address: Option<String>,
    /// How its port is set up.
    pub host_network_attachment: HostNetworkAttachmentRef,
    /// Its port, when the switch does not tell by LLDP; goes before what it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<SwitchPortIdentifier>,
}

/// What is wanted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    namespaced,
    derive = "PartialEq",
    kind = "BareMetalHost",
    plural = "baremetalhosts",
    shortname = "bmh",
    shortname = "bmhost",
    status = "BareMetalHostStatus",
    doc = "A server: how to reach it, and what it shall be.",
    printcolumn(
        name = "Status",
        type_ = "string",
        description = "How the host is",
        priority = 1,
        json_path = ".status.operationalStatus"
    ),
    printcolumn(
        name = "State",
        type_ = "string",
        description = "What is done with it",
        json_path = ".status.provisioning.state"
    ),
    printcolumn(
        name = "Consumer",
        type_ = "string",
        description = "Who uses it",
        json_path = ".spec.consumerRef.name"
    ),
    printcolumn(
        name = "BMC",
        type_ = "string",
        description = "Where its BMC is",
        priority = 1,
        json_path = ".spec.bmc.address"
    ),
    printcolumn(
        name = "Online",
        type_ = "string",
        description = "Whether it shall be powered on",
        json_path = ".spec.online"
    ),
    printcolumn(name = "Error", type_ = "string", description = "What went wrong", json_path = ".status.errorType"),
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "How long it is here",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostSpec {
    /// Never acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// How the BMC is reached. Without it the host is only known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcDetails>,
    /// Volumes that are made before the host is available. Nothing changes when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidConfig>,
    /// No driver knows it any more: see `HostFirmwareSettings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Of older versions; see `rootDeviceHints` and `architecture`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_profile: Option<String>,
    /// Which disk the image is written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// How the host starts; UEFI when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// MAC address of the interface that the host boots from. Never the BMC's.
    #[serde(rename = "bootMACAddress", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"))]
    pub boot_mac_address: Option<String>,
    /// Whether the host shall be powered on. Acted on in states that do not need its power for themselves.
    pub online: bool,
    /// Who uses the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// What is written to it. Setting it starts provisioning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Secret with user data for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
    /// Secret of this namespace with network data for the ramdisk, and for the config drive when `networkData` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preprovisioning_network_data_name: Option<String>,
    /// Secret with network data for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Secret with metadata for the config drive; made up when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// Anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether somebody else installed the host: only its power is taken care of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub externally_provisioned: Option<bool>,
    /// What happens to the disks between two users.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default = "cleaning_of_metadata")]
    pub automated_cleaning_mode: Option<AutomatedCleaningMode>,
    /// A deploy procedure of one's own, instead of `image`. Setting it starts provisioning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// `x86_64` or `aarch64`; found by inspection when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Whether the host is rebooted where it would be powered off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_power_off: Option<bool>,
    /// How the host is inspected; by a ramdisk when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<InspectionMode>,
    /// How the ports behind its network interfaces are set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
}

#[expect(clippy::unnecessary_wraps, reason = "a default has the type of its field")]
fn cleaning_of_metadata() -> Option<AutomatedCleaningMode> {
    Some(AutomatedCleaningMode::Metadata)
}

impl BareMetalHostSpec {
    /// Whether anything is said about the BMC.
    pub fn has_bmc(&self) -> bool {
        self.bmc.as_ref().is_some_and(|bmc| !bmc.address.is_empty() || !bmc.credentials_name.is_empty())
    }

    /// URL of the image; empty without one.
    pub fn image_url(&self) -> &str {
        self.image.as_ref().map_or("", |image| &image.url)
    }

    /// Deploy procedure of one's own; empty without one.
    pub fn custom_method(&self) -> &str {
        self.custom_deploy.as_ref().map_or("", |custom| &custom.method)
    }

    /// Whether somebody else installed the host.
    pub fn externally_provisioned(&self) -> bool {
        self.externally_provisioned.unwrap_or_default()
    }
}

impl BareMetalHost {
    /// State that the host is in.
    pub fn state(&self) -> ProvisioningState {
        self.status.as_ref().map_or(ProvisioningState::None, |status| status.provisioning.state)
    }

    /// Value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether inspection is switched off, by the field or by the annotation.
    pub fn inspection_disabled(&self) -> bool {
        self.spec.inspection_mode == Some(InspectionMode::Disabled)
            || self.annotation(super::annotations::INSPECT) == Some("disabled")
    }

    /// Whether the host shall have an image or a deploy procedure that it has not.
    pub fn needs_provisioning(&self) -> bool {
        let (image, method) = self.provisioned();
        let wants_image = !self.spec.image_url().is_empty() && image.is_empty();
        let wants_method = !self.spec.custom_method().is_empty() && self.spec.custom_method() != method;
        self.spec.online && (wants_image || wants_method)
    }

    /// Whether the host has, or is being given, something else than it shall have.
    pub fn image_withdrawn(&self) -> bool {
        let (image, method) = self.provisioned();
        let (wanted, custom) = (self.spec.image_url(), self.spec.custom_method());
        if custom.is_empty() {
            return !method.is_empty() || wanted.is_empty() || !image.is_empty() && wanted != image;
        }
        !method.is_empty() && custom != method || !image.is_empty() && wanted != image
    }

    /// URL of the image and deploy procedure that the host has; empty without.
    fn provisioned(&self) -> (&str, &str) {
        self.status.as_ref().map_or(("", ""), |status| {
            let done = &status.provisioning;
            let image = done.image.as_ref().map_or("", |image| &image.url);
            (image, done.custom_deploy.as_ref().map_or("", |custom| &custom.method))
        })
    }
}
