//! What the box answers. Pure.

use std::env::consts::ARCH;

use agent_api::metal3::preprovisioning_image::{ERROR, ImageFormat, READY, SecretStatus};
use agent_api::metal3::{PreprovisioningImage, PreprovisioningImageStatus};
use jiff::Timestamp;

use super::other;
use crate::operators::kit::NewCondition;
use crate::operators::kit::conditions::merge;
use crate::operators::metal3::common::Ramdisk;

/// The answer of the box: its own ramdisk, in the first format that it has. `network_data`: version of the Secret that is
/// named; nothing when it does not exist.
pub fn answer(
    image: &PreprovisioningImage,
    ramdisk: &Ramdisk,
    network_data: Option<&str>,
    now: Timestamp,
) -> PreprovisioningImageStatus {
    let spec = &image.spec;
    let before = image.status.clone().unwrap_or_default();
    let has = |format: &ImageFormat| match format {
        ImageFormat::Iso => ramdisk.iso.is_some(),
        ImageFormat::Initrd => ramdisk.kernel.is_some() && ramdisk.initrd.is_some(),
    };
    let format = spec.accept_formats.iter().flatten().copied().find(has);
    let data = spec.network_data_name.clone();
    let missing = data.is_some() && network_data.is_none();
    let foreign = spec.architecture.as_deref().filter(|name| !name.is_empty()).and_then(other);
    let foreign = foreign.map(|other| format!("the box's own ramdisk is for {ARCH}, not for {other}"));
    let (reason, error) = match (&foreign, format, missing) {
        (Some(why), ..) => ("ConfigurationError", Some(why.as_str())),
        (None, None, _) => ("ConfigurationError", Some("No acceptable image format supported")),
        (None, Some(_), true) => ("MissingNetworkData", Some("NetworkData secret not found")),
        (None, Some(_), false) => ("ImageSuccess", None),
    };
    let message = if error.is_some() { "" } else { "the box's own ramdisk" };
    let one = |kind, holds, message: &str| NewCondition {
        kind,
        holds,
        reason,
        message: message.to_owned(),
        generation: image.metadata.generation,
    };
    let told = [one(READY, error.is_none(), message), one(ERROR, error.is_some(), error.unwrap_or_default())];
    let conditions = merge(before.conditions.as_ref(), told, now);
    if error.is_some() {
        return PreprovisioningImageStatus { image_url: None, conditions: Some(conditions), ..before };
    }
    let (image_url, kernel_url) = match format {
        Some(ImageFormat::Iso) => (ramdisk.iso.clone(), None),
        Some(ImageFormat::Initrd) | None => (ramdisk.initrd.clone(), ramdisk.kernel.clone()),
    };
    PreprovisioningImageStatus {
        image_url,
        kernel_url,
        extra_kernel_params: None,
        format,
        network_data: data.map(|name| SecretStatus { name: Some(name), version: network_data.map(str::to_owned) }),
        architecture: spec.architecture.clone(),
        conditions: Some(conditions),
    }
}
