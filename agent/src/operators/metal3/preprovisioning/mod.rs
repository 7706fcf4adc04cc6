//! `PreprovisioningImage`: the ramdisk that is made for one host, when `--build-preprov-image` says that a controller makes
//! some (an option of metal3's operator).
//!
//! ```text
//! host controller                       this one, or any other in its place
//! wanted: network data, architecture, ─► PreprovisioningImage.spec
//!         formats that the BMC boots                │
//! found:  Ready, Waits or Failed      ◄─ .status ◄──┴─ answer: the URLs of `--deploy-kernel` and so on
//!    │
//!    └─► deploy_iso, or deploy_kernel, deploy_ramdisk and kernel_append_params of the node
//! ```
//!
//! Without the option there are no such objects, and the URLs go to Ironic as they are; without URLs this controller
//! answers nobody. The network data of the box's own ramdisk are not built into it: Ironic hands them over with it.

mod controller;
mod decide;

pub use controller::run;

use std::env::consts::ARCH;

use agent_api::metal3::bmc_address::Driver;
use agent_api::metal3::preprovisioning_image::{ERROR, ImageFormat, READY};
use agent_api::metal3::{
    AutomatedCleaningMode, BareMetalHost, ConditionStatus, PreprovisioningImage, PreprovisioningImageSpec,
    ProvisioningState,
};

use super::common::Ramdisk;

/// Finalizer of metal3's operator, whose images have something to be removed; ours have not.
const FINALIZER: &str = "preprovisioningimage.metal3.io";

/// Settings of the controller.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether hosts get their ramdisks so.
    pub used: bool,
    /// What is answered.
    pub ramdisk: Ramdisk,
}

impl Settings {
    /// Whether there is anything to answer with.
    pub fn answers(&self) -> bool {
        let ramdisk = &self.ramdisk;
        ramdisk.iso.is_some() || ramdisk.kernel.is_some() && ramdisk.initrd.is_some()
    }
}

/// Whether a host boots a ramdisk in its state, so that it must have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It goes on only with one.
    Must,
    /// It will need one later: Ironic gets it if it is ready.
    May,
    /// It boots none.
    No,
}

/// Whether a host boots a ramdisk in its state.
pub fn need(host: &BareMetalHost) -> Need {
    match host.state() {
        ProvisioningState::Deprovisioning
            if host.spec.automated_cleaning_mode == Some(AutomatedCleaningMode::Disabled) =>
        {
            Need::No
        }
        ProvisioningState::Inspecting | ProvisioningState::Preparing | ProvisioningState::Deprovisioning => Need::Must,
        ProvisioningState::MatchProfile
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::Provisioning => Need::May,
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::Registering
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => Need::No,
    }
}

/// Architecture that a host has by its spec, else by what was found in it.
fn architecture(host: &BareMetalHost) -> Option<String> {
    let found = host.status.as_ref().and_then(|status| status.hardware.as_ref()?.cpu.as_ref()?.arch.clone());
    let told = host.spec.architecture.clone().filter(|name| !name.is_empty());
    told.or(found).filter(|name| !name.is_empty())
}

/// Why a host cannot boot the controller's own ramdisk, which is for the machine that the controller runs on.
pub fn unbootable(host: &BareMetalHost) -> Option<String> {
    let of = architecture(host)?;
    let other = other(&of)?;
    Some(format!(
        "the host's architecture is {other}, and the ramdisk that this controller has for it is for {ARCH}; hint: \
         `spec.architecture` is that of the server; a server of another architecture needs a PreprovisioningImage that \
         another controller makes (`--build-preprov-image`)"
    ))
}

/// An architecture, by whatever name, that is not this machine's.
fn other(architecture: &str) -> Option<&str> {
    let name = match architecture.to_ascii_lowercase().as_str() {
        "amd64" | "x86-64" | "x64" => "x86_64".to_owned(),
        "arm64" => "aarch64".to_owned(),
        name => name.to_owned(),
    };
    (name != ARCH).then_some(architecture)
}

/// What is asked for, for a host.
pub fn wanted(host: &BareMetalHost, driver: Driver) -> PreprovisioningImageSpec {
    let architecture = architecture(host);
    let formats =
        if driver.boots_iso() { vec![ImageFormat::Iso, ImageFormat::Initrd] } else { vec![ImageFormat::Initrd] };
    PreprovisioningImageSpec {
        network_data_name: host.spec.preprovisioning_network_data_name.clone().filter(|name| !name.is_empty()),
        architecture: Some(architecture.unwrap_or_else(|| ARCH.to_owned())),
        accept_formats: Some(formats),
    }
}

/// What was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It can be used.
    Ready(Ramdisk),
    /// It is not there yet; why.
    Waits(String),
    /// It cannot be made; why.
    Failed(String),
}

/// Whether an object's answer is one to what is asked for. `network_data`: version of that Secret.
pub fn found(image: &PreprovisioningImage, network_data: Option<&str>) -> Found {
    let (spec, status) = (&image.spec, image.status.clone().unwrap_or_default());
    let waits = |why: &str| Found::Waits(format!("its PreprovisioningImage {why}"));
    let is = |kind: &str| {
        let all = status.conditions.as_deref().unwrap_or_default();
        all.iter().find(|it| it.kind == kind && it.status == ConditionStatus::True)
    };
    if status.architecture != spec.architecture && is(ERROR).is_none() {
        return waits("is not answered yet, or for another architecture");
    }
    if let Some(error) = is(ERROR) {
        return Found::Failed(format!("the PreprovisioningImage cannot be made: {}", error.message));
    }
    if !status.format.is_some_and(|format| spec.accept_formats.iter().flatten().any(|one| *one == format)) {
        return waits("has no format that the host boots");
    }
    let data = status.network_data.unwrap_or_default();
    if data.name.filter(|name| !name.is_empty()) != spec.network_data_name {
        return waits("holds other network data");
    }
    if spec.network_data_name.is_some() && data.version.as_deref() != network_data {
        return waits("holds older network data");
    }
    let ready = is(READY).filter(|ready| ready.observed_generation == image.metadata.generation);
    let url = status.image_url.filter(|url| !url.is_empty());
    match (ready, url, status.format) {
        (Some(_), Some(url), Some(ImageFormat::Iso)) => Found::Ready(Ramdisk { iso: Some(url), ..Ramdisk::default() }),
        (Some(_), Some(url), Some(ImageFormat::Initrd)) => Found::Ready(Ramdisk {
            initrd: Some(url),
            kernel: status.kernel_url.filter(|url| !url.is_empty()),
            iso: None,
            kernel_params: status.extra_kernel_params.filter(|params| !params.is_empty()),
        }),
        _ => waits("is not ready"),
    }
}

#[cfg(test)]
mod tests;
