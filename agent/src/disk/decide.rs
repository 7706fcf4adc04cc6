//! Where DATA goes: a pure decision from what the release allows and what the disks hold.

use agent_api::release::{DataPlace, DiskSelector};
use serde::Serialize;

use crate::host::block::Disk;

/// Label of DATA's ext4. It is set last: a file system without it is unfinished.
pub const DATA_LABEL: &str = "FOOTHOLD-DATA";
/// A disk smaller than this is not worth a DATA.
const LEAST_DISK: u64 = 256 << 20;

/// Where DATA may go (`foothold.data=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataChoice {
    /// As the release says.
    #[default]
    Auto,
    /// Into memory, whatever the release says.
    Ram,
}

/// A partition of DATA's type and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataPartition {
    /// Number in the table.
    pub number: u32,
    /// First byte on the disk.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// What is in it.
    pub state: DataState,
}

/// What is in a partition of DATA's type and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DataState {
    /// A finished DATA, of the appliance of that name if it could be read.
    Made(Option<String>),
    /// Nothing, or a file system whose label was not set yet.
    Unfinished,
    /// Something else.
    Foreign(String),
}

/// The disk that holds the medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootDisk {
    /// Kernel name.
    pub name: String,
    /// DATA on it.
    pub data: Option<DataPartition>,
    /// Bytes that a new partition would get, or why there can be none.
    pub free: Result<u64, String>,
}

/// Another disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherDisk {
    /// What it is.
    pub disk: Disk,
    /// What it holds.
    pub holds: Holds,
}

/// What another disk holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Holds {
    /// Nothing: no table, no signature, zeros wherever it was looked at.
    Nothing,
    /// A table that we began to write on it.
    Begun,
    /// One partition, DATA; `ours` when the table's id says that this appliance made it.
    OnlyData {
        /// The partition.
        data: DataPartition,
        /// Whether the table's id is that of this appliance.
        ours: bool,
    },
    /// Anything else; never touched.
    Foreign(String),
}

/// What to do about DATA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum DataPlan {
    /// The other disks must be looked at before anything can be decided.
    LookAtOthers,
    /// Use a partition; `format` when it is unfinished.
    Use {
        /// Kernel name of the disk.
        disk: String,
        /// The partition.
        partition: DataPartition,
        /// Whether it must be formatted first.
        format: bool,
    },
    /// Make a partition in the free space of the boot disk.
    CreateOnBootDisk {
        /// Kernel name of the disk.
        disk: String,
    },
    /// Take a whole empty disk.
    TakeDisk {
        /// Kernel name of the disk.
        disk: String,
    },
    /// Use memory.
    Ram {
        /// Why.
        reason: String,
    },
    /// The release allows nothing that is possible.
    Impossible {
        /// Why each place is not possible.
        reason: String,
    },
}

/// What the release and the boot menu want.
#[derive(Clone, Copy, Debug)]
pub struct DataWish<'a> {
    /// Places in order of preference.
    pub places: &'a [DataPlace],
    /// Kernel parameter.
    pub choice: DataChoice,
    /// Name of the appliance.
    pub appliance: &'a str,
    /// Disks on which it was tried and failed, with the reason.
    pub failed: &'a [(String, String)],
}

/// Decides. A DATA that exists comes before any that could be made.
pub fn decide(wish: &DataWish<'_>, boot: &BootDisk, others: Option<&[OtherDisk]>) -> DataPlan {
    if wish.choice == DataChoice::Ram {
        return DataPlan::Ram { reason: "the boot menu says so (foothold.data=ram)".to_owned() };
    }
    let mut reasons = Vec::new();
    for place in wish.places {
        match place {
            DataPlace::BootDisk { .. } => {
                if let Some(plan) = existing_on_boot_disk(wish, boot, &mut reasons) {
                    return plan;
                }
            }
            DataPlace::Disk { selector } => {
                let Some(others) = others else { return DataPlan::LookAtOthers };
                if let Some(plan) = existing_elsewhere(wish, selector, others, &mut reasons) {
                    return plan;
                }
            }
            DataPlace::Ram => {}
        }
    }
    for place in wish.places {
        let plan = match place {
            DataPlace::BootDisk { min_bytes } => new_on_boot_disk(wish, *min_bytes, boot, &mut reasons),
            DataPlace::Disk { selector } => new_elsewhere(wish, selector, others.unwrap_or_default(), &mut reasons),
            DataPlace::Ram => Some(DataPlan::Ram { reason: words(&reasons) }),
        };
        if let Some(plan) = plan {
            return plan;
        }
    }
    DataPlan::Impossible { reason: words(&reasons) }
}

fn words(reasons: &[String]) -> String {
    if reasons.is_empty() { "the release says so".to_owned() } else { reasons.join("; ") }
}

fn existing_on_boot_disk(wish: &DataWish<'_>, boot: &BootDisk, reasons: &mut Vec<String>) -> Option<DataPlan> {
    let partition = boot.data.clone()?;
    let format = match &partition.state {
        DataState::Made(_) => false,
        DataState::Unfinished => true,
        DataState::Foreign(what) => {
            reasons.push(format!("partition {} of {} holds {what}", partition.number, boot.name));
            return None;
        }
    };
    if format && let Some(why) = failed_on(wish, &boot.name) {
        reasons.push(format!("{}: {why}", boot.name));
        return None;
    }
    Some(DataPlan::Use { disk: boot.name.clone(), partition, format })
}

fn new_on_boot_disk(
    wish: &DataWish<'_>,
    min_bytes: u64,
    boot: &BootDisk,
    reasons: &mut Vec<String>,
) -> Option<DataPlan> {
    let name = &boot.name;
    let why_not = match (failed_on(wish, name), &boot.free) {
        (Some(why), _) | (None, Err(why)) => format!("{name}: {why}"),
        // The reason was given when the existing one was looked at.
        (None, Ok(_)) if boot.data.is_some() => return None,
        (None, Ok(free)) if *free >= min_bytes => return Some(DataPlan::CreateOnBootDisk { disk: name.clone() }),
        (None, Ok(free)) => format!("{name}: {} MiB free, {} MiB needed", free >> 20, min_bytes >> 20),
    };
    reasons.push(why_not);
    None
}

fn failed_on<'a>(wish: &DataWish<'a>, name: &str) -> Option<&'a String> {
    wish.failed.iter().find(|(disk, _)| disk == name).map(|(_, why)| why)
}

fn existing_elsewhere(
    wish: &DataWish<'_>,
    selector: &DiskSelector,
    others: &[OtherDisk],
    reasons: &mut Vec<String>,
) -> Option<DataPlan> {
    // A DATA that exists is used though a newer release wants larger disks.
    let selector = DiskSelector { min_bytes: None, ..selector.clone() };
    for other in others.iter().filter(|other| fits(&selector, &other.disk)) {
        let Holds::OnlyData { data, ours } = &other.holds else { continue };
        if let Some(why) = failed_on(wish, &other.disk.name) {
            reasons.push(format!("{}: {why}", other.disk.name));
            continue;
        }
        let format = match &data.state {
            DataState::Made(Some(owner)) if owner == wish.appliance => false,
            DataState::Made(None) if *ours => false,
            DataState::Unfinished if *ours => true,
            DataState::Made(Some(owner)) => {
                reasons.push(format!("{} holds the data of appliance `{owner}`", other.disk.name));
                continue;
            }
            DataState::Made(None) | DataState::Unfinished => {
                reasons.push(format!("{} holds data of an unknown appliance", other.disk.name));
                continue;
            }
            DataState::Foreign(what) => {
                reasons.push(format!("{} holds {what}", other.disk.name));
                continue;
            }
        };
        return Some(DataPlan::Use { disk: other.disk.name.clone(), partition: data.clone(), format });
    }
    None
}

fn new_elsewhere(
    wish: &DataWish<'_>,
    selector: &DiskSelector,
    others: &[OtherDisk],
    reasons: &mut Vec<String>,
) -> Option<DataPlan> {
    let mut free = Vec::new();
    for other in others {
        let name = &other.disk.name;
        let why_not = match (&other.holds, failed_on(wish, name)) {
            (_, Some(why)) => why.clone(),
            (Holds::OnlyData { .. }, None) => continue,
            (Holds::Foreign(what), None) => format!("holds {what}"),
            (Holds::Nothing | Holds::Begun, None) if other.disk.read_only => "read-only".to_owned(),
            (Holds::Nothing | Holds::Begun, None) if other.disk.bytes < LEAST_DISK => "too small".to_owned(),
            (Holds::Nothing | Holds::Begun, None) if !fits(selector, &other.disk) => {
                "not what was asked for".to_owned()
            }
            (Holds::Nothing | Holds::Begun, None) => {
                free.push(other);
                continue;
            }
        };
        reasons.push(format!("{name}: {why_not}"));
    }
    if free.is_empty() && others.is_empty() {
        reasons.push("no other disk".to_owned());
    }
    // One that was begun is finished before another is taken.
    free.sort_by_key(|other| (other.holds != Holds::Begun, rank(selector, &other.disk)));
    free.first().map(|other| DataPlan::TakeDisk { disk: other.disk.name.clone() })
}

/// `smallest` or `largest` first, otherwise by serial number, then by name.
pub fn rank(selector: &DiskSelector, disk: &Disk) -> (u64, String, String) {
    let size = match selector.prefer.as_deref() {
        Some("smallest") => disk.bytes,
        Some("largest") => u64::MAX - disk.bytes,
        _ => 0,
    };
    (size, disk.serial.clone(), disk.name.clone())
}

/// Whether a disk is one of those that are meant.
pub fn fits(selector: &DiskSelector, disk: &Disk) -> bool {
    selector.bus.as_ref().is_none_or(|bus| *bus == disk.bus)
        && selector.serial.as_ref().is_none_or(|serial| *serial == disk.serial)
        && selector.min_bytes.is_none_or(|bytes| disk.bytes >= bytes)
}

#[cfg(test)]
mod tests {
    use agent_api::release::{DataPlace, DiskSelector};

    use super::{BootDisk, DataChoice, DataPartition, DataPlan, DataState, DataWish, Holds, OtherDisk, decide};
    use crate::host::block::Disk;

    const GIB: u64 = 1 << 30;

    fn places() -> Vec<DataPlace> {
        let any = DataPlace::Disk { selector: DiskSelector::default() };
        vec![DataPlace::BootDisk { min_bytes: GIB }, any, DataPlace::Ram]
    }

    fn wish(places: &[DataPlace]) -> DataWish<'_> {
        DataWish { places, choice: DataChoice::Auto, appliance: "edge", failed: &[] }
    }

    fn boot(free: Result<u64, &str>, data: Option<DataState>) -> BootDisk {
        BootDisk { name: "vda".to_owned(), data: data.map(partition), free: free.map_err(str::to_owned) }
    }

    fn partition(state: DataState) -> DataPartition {
        DataPartition { number: 4, start: 1 << 20, bytes: GIB, state }
    }

    fn other(name: &str, gib: u64, holds: Holds) -> OtherDisk {
        let disk = Disk { name: name.to_owned(), bytes: gib * GIB, bus: "virtio".to_owned(), ..Disk::default() };
        OtherDisk { disk, holds }
    }

    fn made_by(owner: &str) -> Holds {
        Holds::OnlyData { data: partition(DataState::Made(Some(owner.to_owned()))), ours: false }
    }

    fn take(disk: &str) -> DataPlan {
        DataPlan::TakeDisk { disk: disk.to_owned() }
    }

    #[test]
    fn data_on_the_boot_disk_is_used_without_a_look_at_others() {
        let made = DataState::Made(Some("another".to_owned()));
        let plan = decide(&wish(&places()), &boot(Ok(0), Some(made.clone())), None);
        assert_eq!(plan, DataPlan::Use { disk: "vda".to_owned(), partition: partition(made), format: false });
    }

    #[test]
    fn unfinished_data_is_formatted_again() {
        let plan = decide(&wish(&places()), &boot(Ok(0), Some(DataState::Unfinished)), None);
        assert!(matches!(plan, DataPlan::Use { format: true, .. }), "{plan:?}");
    }

    #[test]
    fn data_that_exists_elsewhere_comes_before_free_space_at_home() {
        let places = places();
        assert_eq!(decide(&wish(&places), &boot(Ok(9 * GIB), None), None), DataPlan::LookAtOthers);
        let others = [other("vdb", 2, Holds::Nothing), other("vdc", 2, made_by("edge"))];
        let plan = decide(&wish(&places), &boot(Ok(9 * GIB), None), Some(&others));
        assert!(matches!(&plan, DataPlan::Use { disk, format: false, .. } if disk == "vdc"), "{plan:?}");
        let plan = decide(&wish(&places), &boot(Ok(9 * GIB), None), Some(&others[..1]));
        assert_eq!(plan, DataPlan::CreateOnBootDisk { disk: "vda".to_owned() });
    }

    #[test]
    fn foreign_disks_are_never_taken_and_the_reason_says_what_they_hold() {
        let others =
            [other("vdb", 9, Holds::Foreign("LVM2 physical volume".to_owned())), other("vdc", 9, made_by("shop"))];
        let plan = decide(&wish(&places()), &boot(Err("read-only"), None), Some(&others));
        let reason = "vdc holds the data of appliance `shop`; vda: read-only; vdb: holds LVM2 physical volume";
        assert_eq!(plan, DataPlan::Ram { reason: reason.to_owned() });
    }

    #[test]
    fn without_ram_in_the_release_it_is_impossible() {
        let places = [DataPlace::BootDisk { min_bytes: 2 * GIB }];
        let plan = decide(&wish(&places), &boot(Ok(GIB), None), None);
        assert_eq!(plan, DataPlan::Impossible { reason: "vda: 1024 MiB free, 2048 MiB needed".to_owned() });
    }

    #[test]
    fn the_selector_picks_among_empty_disks() {
        let others =
            [other("vdb", 4, Holds::Nothing), other("vdc", 2, Holds::Nothing), other("vdd", 8, Holds::Nothing)];
        for (prefer, min, expected) in [
            (None, 0, take("vdb")),
            (Some("smallest"), 0, take("vdc")),
            (Some("largest"), 0, take("vdd")),
            (Some("smallest"), 3 * GIB, take("vdb")),
        ] {
            let selector =
                DiskSelector { prefer: prefer.map(str::to_owned), min_bytes: Some(min), ..DiskSelector::default() };
            let places = [DataPlace::Disk { selector }];
            assert_eq!(decide(&wish(&places), &boot(Ok(0), None), Some(&others)), expected, "{prefer:?}");
        }
    }

    #[test]
    fn a_disk_that_was_begun_is_finished_first() {
        let places = [DataPlace::Disk { selector: DiskSelector::default() }];
        let others = [other("vdb", 4, Holds::Nothing), other("vdc", 2, Holds::Begun)];
        assert_eq!(decide(&wish(&places), &boot(Ok(0), None), Some(&others)), take("vdc"));
        let ours = Holds::OnlyData { data: partition(DataState::Unfinished), ours: true };
        let plan = decide(&wish(&places), &boot(Ok(0), None), Some(&[other("vdb", 4, ours)]));
        assert!(matches!(plan, DataPlan::Use { format: true, .. }), "{plan:?}");
        let theirs = Holds::OnlyData { data: partition(DataState::Unfinished), ours: false };
        let plan = decide(&wish(&places), &boot(Ok(0), None), Some(&[other("vdb", 4, theirs)]));
        assert!(matches!(plan, DataPlan::Impossible { .. }), "{plan:?}");
    }

    #[test]
    fn what_failed_is_not_tried_again() {
        let places = places();
        let failed = [("vda".to_owned(), "writing the table: I/O error".to_owned())];
        let wish = DataWish { failed: &failed, ..wish(&places) };
        let plan = decide(&wish, &boot(Ok(9 * GIB), None), Some(&[]));
        let reason = "vda: writing the table: I/O error; no other disk";
        assert_eq!(plan, DataPlan::Ram { reason: reason.to_owned() });
    }

    #[test]
    fn the_boot_menu_can_ask_for_memory() {
        let places = places();
        let wish = DataWish { choice: DataChoice::Ram, ..wish(&places) };
        let plan = decide(&wish, &boot(Ok(0), Some(DataState::Unfinished)), None);
        assert!(matches!(plan, DataPlan::Ram { .. }));
    }
}
