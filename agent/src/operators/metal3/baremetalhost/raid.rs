//! RAID volumes: what is asked for beside what was made, and the cleaning that leads from the one to the other.
//!
//! ```text
//! spec.raid, status.provisioning.raid, driver ──► next ──► Stage { interface, volumes, steps, reached } ──► status
//! ```
//!
//! The two lists mean what they mean to metal3, whatever the order in which they are given:
//!
//! ```text
//! list                   absent or null                      []                                   volumes
//! hardwareRAIDVolumes    those of the controller stay        they are cleared, once               they are cleared and made
//! softwareRAIDVolumes    cleared, if this controller made    the same; and the RAID controller    they are cleared and made
//!                        any and nothing else is asked for   is left alone, whatever the other says
//! ```
//!
//! Volumes of the kernel are cleared and made by the ramdisk, those of a RAID controller by the BMC. Ironic changes the
//! one who does it between two cleanings only, so that the way from the kernel's volumes to a controller's takes two.

use agent_api::metal3::bmc_address::Driver;
use agent_api::metal3::{HardwareRaidVolume, Nullable, RaidConfig, RootDeviceHints, SoftwareRaidVolume};
use serde_json::{Value, json};

use super::wishes::hints;

/// Ironic's RAID interface of the ramdisk.
const RAMDISK: &str = "agent";
/// Ironic's RAID interface of BMCs that know no RAID.
const NONE: &str = "no-raid";

/// One cleaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Who does it: Ironic's RAID interface.
    pub interface: &'static str,
    /// The volumes that are made ("RAID Configuration").
    pub volumes: Vec<Value>,
    /// Clean steps.
    pub steps: Vec<Value>,
    /// What there is afterwards.
    pub reached: RaidConfig,
}

impl Stage {
    fn cleared_by(interface: &'static str, reached: RaidConfig) -> Self {
        let mut steps = vec![json!({"interface": "raid", "step": "delete_configuration"})];
        // What was on the disks would be found again as members of old volumes.
        if interface == RAMDISK {
            steps.push(json!({"interface": "deploy", "step": "erase_devices_metadata"}));
        }
        Self { interface, volumes: Vec::new(), steps, reached }
    }

    fn made_by(interface: &'static str, volumes: Vec<Value>, reached: RaidConfig) -> Self {
        let mut stage = Self::cleared_by(interface, reached);
        stage.steps.push(json!({"interface": "raid", "step": "create_configuration"}));
        Self { volumes, ..stage }
    }
}

/// What is to be there in the end, as the status has it; `made` is what is there.
pub fn wanted(spec: Option<&RaidConfig>, made: Option<&RaidConfig>) -> Option<RaidConfig> {
    let asked = spec.map(plain).unwrap_or_default();
    let made = made.map(plain);
    let none_made = RaidConfig::default();
    let there = made.as_ref().unwrap_or(&none_made);
    if asked == RaidConfig::default() {
        if there.software().is_empty() {
            return made;
        }
        let kept = there.hardware_raid_volumes.clone().filter(|_| !there.hardware().is_empty());
        return Some(RaidConfig { hardware_raid_volumes: kept, software_raid_volumes: empty() });
    }
    // The controller is left alone: what it has it keeps.
    if asked.hardware().is_empty() && asked.software_raid_volumes.is_some() {
        return Some(RaidConfig { hardware_raid_volumes: there.hardware_raid_volumes.clone(), ..asked });
    }
    Some(asked)
}

/// Whether something else is asked for than what is there.
pub fn is_due(spec: Option<&RaidConfig>, made: Option<&RaidConfig>) -> bool {
    wanted(spec, made) != made.map(plain)
}

/// Whether the next cleaning makes volumes in the place of others. When it fails, what is there is neither.
pub fn is_making(spec: Option<&RaidConfig>, made: Option<&RaidConfig>) -> bool {
    let (asked, there) = (spec.map(plain).unwrap_or_default(), made.map(plain).unwrap_or_default());
    if asked.hardware().is_empty() {
        !asked.software().is_empty() && asked.software() != there.software()
    } else {
        there.software().is_empty() && asked.hardware() != there.hardware()
    }
}

/// The next cleaning; nothing when there is nothing to do. `root`: which disk the spec wants the image on.
///
/// # Errors
/// Why what is asked for cannot be had, in metal3's words.
pub fn next(
    spec: Option<&RaidConfig>,
    made: Option<&RaidConfig>,
    driver: Driver,
    root: Option<&RootDeviceHints>,
) -> Result<Option<Stage>, String> {
    let Some(reached) = wanted(spec, made) else { return Ok(None) };
    let (asked, there) = (spec.map(plain).unwrap_or_default(), made.map(plain).unwrap_or_default());
    let (hardware, software) = (asked.hardware(), asked.software());
    let controller = driver.raid_interface();
    if !hardware.is_empty() && !software.is_empty() {
        return Err("hardwareRAIDVolumes and softwareRAIDVolumes can not be set at the same time".to_owned());
    }
    if !hardware.is_empty() && controller == NONE {
        return Err(format!("RAID settings are defined, but the node's driver {controller} does not support RAID"));
    }
    // Hints say which disk it is; with both, Ironic would take the volume.
    let told = root.is_some_and(|root| !hints(root).is_empty());
    if !software.is_empty() {
        let same = software == there.software();
        let volumes = software_volumes(software, told);
        return Ok((!same).then(|| Stage::made_by(RAMDISK, volumes, reached)));
    }
    if !there.software().is_empty() {
        // The controller's turn, if any, comes after it.
        let kept = there.hardware_raid_volumes.clone();
        let more = !hardware.is_empty() || !there.hardware().is_empty();
        let between = RaidConfig { hardware_raid_volumes: kept, software_raid_volumes: empty() };
        return Ok(Some(Stage::cleared_by(RAMDISK, if more { between } else { reached })));
    }
    if !hardware.is_empty() {
        let same = hardware == there.hardware();
        let volumes = hardware_volumes(hardware, told);
        return Ok((!same).then(|| Stage::made_by(controller, volumes, reached)));
    }
    let clears = asked.hardware_raid_volumes.is_some() && asked.software_raid_volumes.is_none();
    let cleared = there.hardware_raid_volumes.is_some() && there.hardware().is_empty();
    let due = clears && !cleared && controller != NONE;
    Ok(due.then(|| Stage::cleared_by(controller, reached)))
}

#[expect(clippy::unnecessary_wraps, reason = "a list of the spec, told from an absent one")]
const fn empty<T>() -> Option<Nullable<Vec<T>>> {
    Some(Nullable(Some(Vec::new())))
}

/// The same with one way to say each thing: `null` is absent, and so are a size of 0 and a volume that is not the root.
fn plain(config: &RaidConfig) -> RaidConfig {
    let mut plain = config.clone();
    plain.hardware_raid_volumes = plain.hardware_raid_volumes.filter(|list| list.0.is_some());
    plain.software_raid_volumes = plain.software_raid_volumes.filter(|list| list.0.is_some());
    for volume in plain.hardware_raid_volumes.iter_mut().flat_map(|list| &mut list.0).flatten() {
        volume.size_gibibytes = volume.size_gibibytes.filter(|size| *size > 0);
        volume.name = volume.name.take().filter(|name| !name.is_empty());
        volume.controller = volume.controller.take().filter(|name| !name.is_empty());
        volume.physical_disks = volume.physical_disks.take().filter(|disks| !disks.is_empty());
    }
    for volume in plain.software_raid_volumes.iter_mut().flat_map(|list| &mut list.0).flatten() {
        volume.size_gibibytes = volume.size_gibibytes.filter(|size| *size > 0);
        volume.root_volume = volume.root_volume.filter(|root| *root);
        volume.physical_disks = volume.physical_disks.take().filter(|disks| !disks.is_empty());
    }
    plain
}

fn size(gibibytes: Option<i64>) -> Value {
    gibibytes.map_or_else(|| json!("MAX"), |size| json!(size))
}

/// The first one is the root volume, unless hints tell the disk.
fn hardware_volumes(volumes: &[HardwareRaidVolume], told: bool) -> Vec<Value> {
    let root = (!told).then_some(0);
    volumes.iter().enumerate().map(|(index, volume)| hardware_volume(volume, root == Some(index))).collect()
}

fn hardware_volume(volume: &HardwareRaidVolume, root: bool) -> Value {
    let mut disk = json!({"size_gb": size(volume.size_gibibytes), "raid_level": volume.level});
    let optional = [
        ("is_root_volume", root.then(|| json!(true))),
        ("volume_name", volume.name.as_ref().map(|name| json!(name))),
        ("disk_type", volume.rotational.map(|rotates| json!(if rotates { "hdd" } else { "ssd" }))),
        ("number_of_physical_disks", volume.number_of_physical_disks.map(|number| json!(number))),
        ("controller", volume.controller.as_ref().map(|name| json!(name))),
        ("physical_disks", volume.physical_disks.as_ref().map(|names| json!(names))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            disk[name] = value;
        }
    }
    disk
}

/// The root volume is the one that says so; else the first one, unless hints tell the disk.
fn software_volumes(volumes: &[SoftwareRaidVolume], told: bool) -> Vec<Value> {
    let says_so = volumes.iter().position(|volume| volume.root_volume == Some(true));
    let root = says_so.or((!told).then_some(0));
    volumes.iter().enumerate().map(|(index, volume)| software_volume(volume, root == Some(index))).collect()
}

fn software_volume(volume: &SoftwareRaidVolume, root: bool) -> Value {
    let mut disk =
        json!({"size_gb": size(volume.size_gibibytes), "raid_level": volume.level, "controller": "software"});
    if root {
        disk["is_root_volume"] = json!(true);
    }
    if let Some(disks) = &volume.physical_disks {
        disk["physical_disks"] = disks.iter().map(|disk| Value::Object(hints(disk))).collect();
    }
    disk
}

#[cfg(test)]
#[path = "raid_tests.rs"]
mod tests;
