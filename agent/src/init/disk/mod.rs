//! DATA: found, or made where the release allows it, or memory.
//!
//! ```text
//! facts (reads only) -> decide (pure) -> execute -> mounted at /sysroot/var
//! ```
//! A DATA belongs to the medium on whose disk it lies; on a disk of its own it belongs to the
//! appliance that its `lib/foothold/data.json` names, whatever release that runs.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_api::boot::DataFound;
use agent_api::events::Phase;
use rustix::mount::MountFlags;

use super::fatal::Fatal;
use super::layers::{SYSROOT, damage_in};
use super::loader::Loader;
use super::medium::Medium;
use super::parameters::DataChoice;
use super::report::Report;
use crate::host::block::{self, Disk};
use crate::host::mount::{self, Options};
use crate::host::uevent::Uevents;
use crate::host::{Runner, System};

mod decide;
mod execute;
mod facts;
pub mod install;
mod table;

pub use decide::DATA_LABEL;
use decide::{OtherDisk, Plan, Wish, decide};
use execute::DiskError;
use table::Entry;

/// Disks that are announced belatedly: without USB nothing is awaited but what is on its way.
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_USB: Duration = Duration::from_millis(1500);
const SETTLE_AT_MOST: Duration = Duration::from_secs(10);
/// Name of the partition that holds the release.
const STORE_NAME: &str = "STORE";
const USB_DEVICES: &str = "/sys/bus/usb/devices";

/// Brings DATA to `/sysroot/var`.
///
/// `settle` waits for disks that are on their way; called only when others than the boot disk matter.
pub fn prepare(report: &Report, medium: &Medium, choice: DataChoice, settle: &dyn Fn()) -> Result<DataFound, Fatal> {
    let step = report.started(Phase::Disk, "data");
    let var = Path::new(SYSROOT).join("var");
    let boot = facts::boot_disk(&medium.disk, medium.covered);
    let mut others: Option<Vec<OtherDisk>> = None;
    let mut failed: Vec<(String, String)> = Vec::new();
    loop {
        let (places, appliance) = (&medium.release.data[..], medium.release.name.as_str());
        let plan = decide(&Wish { places, choice, appliance, failed: &failed }, &boot.facts, others.as_deref());
        let disk = match &plan {
            Plan::LookAtOthers => {
                settle();
                others = Some(facts::other_disks(&medium.disk.name, appliance));
                continue;
            }
            Plan::Ram { reason } => {
                in_memory(&var)?;
                report.done(step, &format!("DATA in memory, forgotten at power-off: {reason}"));
                return Ok(DataFound::Ram { reason: reason.clone() });
            }
            Plan::Impossible { reason } => return Err(impossible(reason)),
            Plan::Use { disk, .. } | Plan::CreateOnBootDisk { disk } | Plan::TakeDisk { disk } => disk.clone(),
        };
        match carry_out(report, medium, &boot, others.as_deref(), &plan, &var) {
            Ok((partition, created)) => {
                let word = if created { "made on" } else { "found on" };
                report.done(step, &format!("DATA {word} {partition}"));
                return Ok(execute::found(partition, created));
            }
            Err(error) => {
                // The tools come from the medium: what looks like a bad disk may be a bad layer.
                if let Some(fatal) = medium.layers.iter().find_map(damage_in) {
                    return Err(fatal);
                }
                if matches!(plan, Plan::Use { format: false, .. }) {
                    return Err(unusable(&disk, &error));
                }
                failed.push((disk, error.to_string()));
            }
        }
    }
}

/// Carries out a plan that names a disk; the partition that is mounted then, and whether it is new.
fn carry_out(
    report: &Report,
    medium: &Medium,
    boot: &facts::BootFound,
    others: Option<&[OtherDisk]>,
    plan: &Plan,
    var: &Path,
) -> Result<(String, bool), DiskError> {
    let find = |name: &str| -> Disk {
        let other = others.unwrap_or_default().iter().find(|other| other.disk.name == name);
        other.map_or_else(|| medium.disk.clone(), |other| other.disk.clone())
    };
    let (disk, partition, format) = match plan {
        Plan::Use { disk, partition, format } => {
            let disk = find(disk);
            if let Some(found) = boot.table.as_ref().filter(|_| disk.name == medium.disk.name) {
                execute::mend_table(&disk, found)?;
            }
            (disk, partition.clone(), *format)
        }
        Plan::CreateOnBootDisk { .. } => {
            let partition = execute::create_on_boot_disk(&medium.disk, boot, medium.covered)?;
            (medium.disk.clone(), partition, true)
        }
        Plan::TakeDisk { disk } => {
            let disk = find(disk);
            let partition = execute::take_disk(&disk, &medium.release.name)?;
            (disk, partition, true)
        }
        Plan::LookAtOthers | Plan::Ram { .. } | Plan::Impossible { .. } => {
            return Err(DiskError::NoRoom { disk: String::new() });
        }
    };
    let name = execute::known_to_kernel(&disk, &partition)?;
    let say = |line: &str| report.line(&format!("disk: {line}"));
    let runner: &dyn Runner = &System::in_root(Path::new(SYSROOT));
    if format {
        execute::format(runner, &name)?;
    } else {
        execute::repair_if_marked(runner, &name, &say)?;
    }
    execute::mount_or_repair(runner, &name, var, &say)?;
    if format {
        super::data::mark(var, &medium.release.name).map_err(|source| DiskError::Disk {
            what: "writing",
            disk: name.clone(),
            source,
        })?;
        execute::finish(&name, var)?;
    }
    Ok((name, format))
}

/// Tells the kernel about the partitions of a disk whose table it could not use: only the copy at
/// the end is whole after a power cut. Returns what is wrong when the disk is too short for its table.
pub fn announce_partitions(disk: &Disk) -> Option<String> {
    let mut device = fs_err::File::open(block::node(&disk.name)).ok()?;
    if let Ok(Some(found)) = table::read(&mut device, disk.bytes, disk.block_bytes)
        && found.table.last_usable < disk.bytes / disk.block_bytes
    {
        for entry in found.table.used() {
            let _ = block::add_partition(&block::node(&disk.name), entry.number, entry.start, entry.bytes);
        }
        return None;
    }
    let (has, needs) = (disk.bytes, table::claimed_bytes(&mut device, disk.block_bytes, STORE_NAME).ok()??);
    (needs > has).then(|| format!("{} has {has} bytes, the image on it {needs}: a cut-off image", disk.name))
}

/// Whether a partition is the one that holds the release.
fn is_medium_store(entry: &Entry) -> bool {
    entry.name == STORE_NAME
}

/// Waits until no device has been announced for a while.
pub fn settle(uevents: &Uevents, loader: &Loader) {
    loader.wait_for_first_round();
    let has_usb = fs_err::read_dir(USB_DEVICES).is_ok_and(|mut entries| entries.next().is_some());
    let quiet = if has_usb { SETTLE_USB } else { SETTLE };
    let begin = Instant::now();
    let disks = || block::list(Path::new(block::SYS_BLOCK)).unwrap_or_default();
    let mut known = disks();
    while begin.elapsed() < SETTLE_AT_MOST {
        let heard = uevents.wait(quiet);
        let now = disks();
        if heard.is_empty() && now == known {
            return;
        }
        known = now;
    }
}

fn in_memory(var: &Path) -> Result<(), Fatal> {
    mount::mount("tmpfs", "data", var, Options::new(MountFlags::empty(), "mode=0755,size=55%"))
        .map_err(|error| Fatal::disk("data", mount::cause(&error), "memory for DATA", "give the box more memory"))
}

fn impossible(reason: &str) -> Fatal {
    let found = format!("no place for DATA: {reason}");
    let next =
        "add an empty disk, or write the image to a larger one; to look around without a disk: foothold.data=ram";
    Fatal::disk("data", found, "a place that the release allows", next)
}

fn unusable(disk: &str, error: &DiskError) -> Fatal {
    let found = format!("DATA on {disk} is there and cannot be used: {error}");
    let next = "check the disk; to start without it and without its state: foothold.data=ram; to begin anew: delete its partition DATA";
    Fatal::disk("data", found, "a DATA that can be mounted", next)
}
