//! Rules of `BareMetalHost`.

use super::super::annotations::INSPECT;
use super::super::bmc_address::{self, BmcAddress, BmcAddressError};
use super::super::{
    BareMetalHost, BareMetalHostSpec, BootMode, InspectionMode, OperationalStatus, ProvisioningState, RaidConfig,
    RootDeviceHints,
};
use super::{Secrets, annotations, image};

/// What speaks against a new host, or against a host as it is after a change.
pub fn host_create(host: &BareMetalHost) -> Vec<String> {
    let mut problems = Vec::new();
    let spec = &host.spec;
    let name = host.metadata.name.as_deref().unwrap_or_default();
    let address = spec.bmc.as_ref().map_or("", |bmc| &bmc.address);
    let bmc = if address.is_empty() { Ok(None) } else { address.parse::<BmcAddress>().map(Some) };
    problems.extend(bmc.as_ref().err().map(BmcAddressError::to_string));
    let namespace = host.metadata.namespace.as_deref().unwrap_or_default();
    Secrets { resource: "baremetalhosts", name, namespace }.check(
        &[
            ("userData", spec.user_data.as_ref()),
            ("networkData", spec.network_data.as_ref()),
            ("metaData", spec.meta_data.as_ref()),
        ],
        &mut problems,
    );
    raid(spec.raid.as_ref(), &mut problems);
    if let Ok(Some(bmc)) = &bmc {
        with_bmc(host, bmc, &mut problems);
    }
    problems.extend(name_of_host(name));
    if !address.is_empty() {
        problems.extend(bmc_address::parsed(address).err().map(|problem| problem.to_string()));
    }
    problems.extend(spec.root_device_hints.as_ref().and_then(root_device));
    if let Some(wanted) = &spec.image {
        image(wanted, &mut problems);
    }
    annotations::check(host, &mut problems);
    problems.extend(inspection_contradicts(host));
    if spec.disable_power_off == Some(true) && !spec.online {
        problems.push("node can't simultaneously have online set to false and have power off disabled".into());
    }
    problems
}

/// What speaks against a change of a host.
pub fn host_update(old: &BareMetalHost, new: &BareMetalHost) -> Vec<String> {
    let mut problems = host_create(new);
    let address = |spec: &BareMetalHostSpec| spec.bmc.as_ref().map_or_else(String::new, |bmc| bmc.address.clone());
    let detached = new.status.as_ref().is_some_and(|it| it.operational_status == OperationalStatus::Detached);
    let state = new.state();
    let had = address(&old.spec);
    if !had.is_empty() && had != address(&new.spec) && !detached && state != ProvisioningState::Registering {
        problems.push(
            "BMC address can not be changed if the BMH is not in the Registering state, or if the BMH is not detached"
                .into(),
        );
    }
    let mac = |spec: &BareMetalHostSpec| spec.boot_mac_address.clone().unwrap_or_default();
    let had = mac(&old.spec);
    if !had.is_empty() && !had.eq_ignore_ascii_case(&mac(&new.spec)) {
        problems.push("bootMACAddress can not be changed once it is set".into());
    }
    let becomes_external = !old.spec.externally_provisioned() && new.spec.externally_provisioned();
    if becomes_external && state != ProvisioningState::Available {
        problems
            .push(format!("externallyProvisioned can only be enabled when in Available state, currently in {state}"));
    }
    problems
}

/// Rules that depend on what the BMC speaks.
fn with_bmc(host: &BareMetalHost, bmc: &BmcAddress, problems: &mut Vec<String>) {
    let (spec, driver, scheme) = (&host.spec, bmc.driver, &bmc.scheme);
    let hardware_raid = spec.raid.as_ref().is_some_and(|raid| !raid.hardware().is_empty());
    if hardware_raid && driver.raid_interface() == "no-raid" {
        problems.push(format!("BMC driver {scheme} does not support configuring RAID"));
    }
    if spec.firmware.is_some() {
        problems.push(format!("firmware settings for {} are not supported", driver.hardware_type()));
    }
    let mac = spec.boot_mac_address.as_deref().unwrap_or_default();
    if mac.is_empty() {
        if driver.needs_mac() || host.inspection_disabled() {
            problems.push(format!("BMC driver {scheme} requires a BootMACAddress value"));
        }
    } else if !is_mac(mac) {
        problems.push(format!("address {mac}: invalid MAC address"));
    }
    if spec.boot_mode == Some(BootMode::UefiSecureBoot) && !driver.supports_secure_boot() {
        problems.push(format!("BMC driver {scheme} does not support secure boot"));
    }
    if spec.inspection_mode == Some(InspectionMode::Fast) && driver.fast_inspect_interface().is_none() {
        problems.push(format!("BMC driver {scheme} does not support fast (out-of-band) inspection"));
    }
}

fn raid(raid: Option<&RaidConfig>, problems: &mut Vec<String>) {
    let Some(raid) = raid else { return };
    if !raid.hardware().is_empty() && !raid.software().is_empty() {
        problems.push("hardwareRAIDVolumes and softwareRAIDVolumes can not be set at the same time".into());
    }
    for (index, volume) in raid.hardware().iter().enumerate() {
        let disks = volume.physical_disks.as_ref().map_or(0, Vec::len);
        if disks == 0 {
            continue;
        }
        if volume.controller.as_ref().is_none_or(String::is_empty) {
            problems.push(format!("'physicalDisks' specified without 'controller' in hardware RAID volume {index}"));
        }
        if let Some(number) = volume.number_of_physical_disks
            && usize::try_from(number) != Ok(disks)
        {
            problems.push(format!(
                "the 'numberOfPhysicalDisks'[{number}] and number of 'physicalDisks'[{disks}] is not same for volume {index}"
            ));
        }
    }
    if raid.software().iter().filter(|volume| volume.root_volume == Some(true)).count() > 1 {
        problems.push("only one volume can have isRootVolume".into());
    }
}

fn name_of_host(name: &str) -> Option<String> {
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Some("BareMetalHost resource name cannot contain characters other than [A-Za-z0-9._-]".into());
    }
    is_uuid(name).then(|| "BareMetalHost resource name cannot be a UUID".into())
}

/// Two of the forms that are read as UUIDs; the others have letters that no name has.
fn is_uuid(name: &str) -> bool {
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|it| it.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split('-').collect();
    let lengths: &[usize] = if parts.len() == 1 { &[32] } else { &[8, 4, 4, 4, 12] };
    parts.len() == lengths.len() && parts.iter().zip(lengths).all(|(part, length)| digits(part, *length))
}

/// 6, 8 or 20 bytes, by colons, hyphens, or in fours by dots, as Go's `net.ParseMAC` reads them.
fn is_mac(text: &str) -> bool {
    let hex = |part: &str, length: usize| part.len() == length && part.bytes().all(|it| it.is_ascii_hexdigit());
    let separated = |separator: char, length: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| hex(part, length))
    };
    separated(':', 2, [6, 8, 20]) || separated('-', 2, [6, 8, 20]) || separated('.', 4, [3, 4, 10])
}

fn root_device(hints: &RootDeviceHints) -> Option<String> {
    let name = hints.device_name.as_deref().filter(|name| !name.is_empty())?;
    let Some(below) = name.strip_prefix("/dev/") else {
        return Some(format!("device name of root device hint must be a /dev/ path, not \"{name}\""));
    };
    below
        .strip_prefix("disk/by-path/")
        .unwrap_or(below)
        .contains('/')
        .then(|| format!("device name of root device hint must be path in /dev/ or /dev/disk/by-path/, not \"{name}\""))
}

fn inspection_contradicts(host: &BareMetalHost) -> Option<String> {
    let annotation = host.annotation(INSPECT).filter(|value| !value.is_empty())?;
    let mode = host.spec.inspection_mode?;
    ((annotation == "disabled") != (mode == InspectionMode::Disabled))
        .then(|| "inspect.metal3.io annotation and inspectionMode field have contradicting values".into())
}
