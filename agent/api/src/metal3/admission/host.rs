//! Rules of `BareMetalHost`.

use std::collections::BTreeSet;

use super::super::annotations::INSPECT;
use super::super::bmc_address::{self, BmcAddress, BmcAddressError};
use super::super::go_url::quoted;
use super::super::{
    BareMetalHost, BareMetalHostSpec, BootMode, HardwareRaidVolume, InspectionMode, NetworkInterface,
    OperationalStatus, ProvisioningState, RaidConfig, RootDeviceHints, SoftwareRaidLevel, SoftwareRaidVolume,
};
use super::{Secrets, annotations, image};
use crate::net::hardware_address;

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
    if let Some(wanted) = &spec.raid {
        raid(wanted, spec.root_device_hints.is_some(), &mut problems);
    }
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
    network_interfaces(spec.network_interfaces.as_deref().unwrap_or_default(), &mut problems);
    problems
}

/// What speaks against a change of a host.
pub fn host_update(old: &BareMetalHost, new: &BareMetalHost) -> Vec<String> {
    let mut problems = host_create(new);
    let address = |spec: &BareMetalHostSpec| spec.bmc.as_ref().map_or_else(String::new, |bmc| bmc.address.clone());
    // A write of the spec may come without a status.
    let both = [old, new];
    let is_in = |state: ProvisioningState| both.iter().any(|host| host.state() == state);
    let detached = |host: &&BareMetalHost| {
        host.status.as_ref().is_some_and(|it| it.operational_status == OperationalStatus::Detached)
    };
    let movable = both.iter().any(detached) || is_in(ProvisioningState::Registering);
    let had = address(&old.spec);
    if !had.is_empty() && had != address(&new.spec) && !movable {
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
    if becomes_external && !is_in(ProvisioningState::Available) {
        let state = if old.status.is_some() { old.state() } else { new.state() };
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
    } else if hardware_address(mac).is_none() {
        problems.push(format!("address {mac}: invalid MAC address"));
    }
    if spec.boot_mode == Some(BootMode::UefiSecureBoot) && !driver.supports_secure_boot() {
        problems.push(format!("BMC driver {scheme} does not support secure boot"));
    }
    if spec.inspection_mode == Some(InspectionMode::Fast) && driver.fast_inspect_interface().is_none() {
        problems.push(format!("BMC driver {scheme} does not support fast (out-of-band) inspection"));
    }
}

/// `hints`: the spec says which disk the image is written to.
fn raid(raid: &RaidConfig, hints: bool, problems: &mut Vec<String>) {
    if !raid.hardware().is_empty() && !raid.software().is_empty() {
        problems.push("hardwareRAIDVolumes and softwareRAIDVolumes can not be set at the same time".into());
    }
    hardware_volumes(raid.hardware(), problems);
    let is_root = |volume: &SoftwareRaidVolume| volume.root_volume == Some(true);
    let roots = raid.software().iter().filter(|volume| is_root(volume)).count();
    if roots > 1 {
        problems.push("softwareRAIDVolumes[*].rootVolume can only be set once".into());
    }
    if roots == 1 && hints {
        problems.push("softwareRAIDVolumes[*].rootVolume and rootDeviceHints can not be set at the same time".into());
    }
    // metal3 says so of the first one when the host is prepared, of the root volume at once.
    if raid.software().first().is_some_and(|first| first.level != SoftwareRaidLevel::One) {
        problems.push("the level in first volume of software raid must be RAID1".into());
    }
    for (index, volume) in raid.software().iter().enumerate() {
        if is_root(volume) && volume.level != SoftwareRaidLevel::One {
            problems.push(format!("softwareRAIDVolumes[{index}] with rootVolume set must use RAID level 1"));
        }
    }
}

fn hardware_volumes(volumes: &[HardwareRaidVolume], problems: &mut Vec<String>) {
    for (index, volume) in volumes.iter().enumerate() {
        let name = volume.name.as_deref().unwrap_or_default();
        if let Some(first) = volumes[..index].iter().position(|other| !name.is_empty() && other.name == volume.name) {
            problems.push(format!("the names({name}) of volume[{index}] and volume[{first}] are repeated"));
        }
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
}

/// Each one is told by its name or by its MAC address, and once.
fn network_interfaces(interfaces: &[NetworkInterface], problems: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, interface) in interfaces.iter().enumerate() {
        let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        let selector = match (given(&interface.name), given(&interface.mac_address)) {
            (None, None) => {
                problems.push(format!("networkInterfaces[{index}]: must specify either name or macAddress"));
                continue;
            }
            (Some(_), Some(_)) => {
                problems.push(format!("networkInterfaces[{index}]: name and macAddress are mutually exclusive"));
                continue;
            }
            (Some(selector), None) | (None, Some(selector)) => selector,
        };
        if !seen.insert(selector.to_lowercase()) {
            problems
                .push(format!("networkInterfaces[{index}]: duplicate interface selector for {}", quoted(&selector)));
        }
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
