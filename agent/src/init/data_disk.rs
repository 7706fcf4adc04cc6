//! DATA: found, or made where the release allows it, or memory. What the initrd does with [`crate::disk`]'s decisions.

use std::path::Path;
use std::time::{Duration, Instant};

use agent_api::boot::DataFound;
use agent_api::events::Phase;
use rustix::mount::MountFlags;

use super::fatal::Fatal;
use super::layers::{SYSROOT, damage_in};
use super::loader::Loader;
use super::medium::Medium;
use super::report::Report;
use crate::disk::decide::{DataChoice, DataPlan, DataWish, OtherDisk, decide};
use crate::disk::execute::{self, DiskError, PlanDisks};
use crate::disk::facts;
use crate::host::System;
use crate::host::block;
use crate::host::mount::{self, MountOptions};
use crate::host::uevent::Uevents;

/// How long disks may be announced late. Without USB only what was announced already is still on its way.
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_USB: Duration = Duration::from_millis(1500);
const SETTLE_AT_MOST: Duration = Duration::from_secs(10);
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
        let plan = decide(&DataWish { places, choice, appliance, failed: &failed }, &boot.facts, others.as_deref());
        let disk = match &plan {
            DataPlan::LookAtOthers => {
                settle();
                others = Some(facts::other_disks(&medium.disk.name, appliance));
                continue;
            }
            DataPlan::Ram { reason } => {
                in_memory(&var)?;
                report.done(step, &format!("DATA in memory, forgotten at power-off: {reason}"));
                return Ok(DataFound::Ram { reason: reason.clone() });
            }
            DataPlan::Impossible { reason } => return Err(impossible(reason)),
            DataPlan::Use { disk, .. } | DataPlan::CreateOnBootDisk { disk } | DataPlan::TakeDisk { disk } => {
                disk.clone()
            }
        };
        let disks = PlanDisks {
            boot: &medium.disk,
            found: &boot,
            covered: medium.covered,
            others: others.as_deref().unwrap_or_default(),
            appliance,
        };
        let say = |line: &str| report.line(&format!("disk: {line}"));
        match execute::carry_out(&plan, &disks, &System::in_root(Path::new(SYSROOT)), &var, &say) {
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
                if matches!(plan, DataPlan::Use { format: false, .. }) {
                    return Err(unusable(&disk, &error));
                }
                failed.push((disk, error.to_string()));
            }
        }
    }
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
    mount::mount("tmpfs", "data", var, MountOptions::new(MountFlags::empty(), "mode=0755,size=55%"))
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
    let next = "check the disk; a file system that is damaged at its start: `e2fsck -b` on another machine, with a copy of the partition at hand; to start without it and without its state: foothold.data=ram; to begin anew: delete its partition DATA";
    Fatal::disk("data", found, "a DATA that can be mounted", next)
}
