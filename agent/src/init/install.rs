//! `firstBoot.mode: install`: the medium is brought to a disk of the box, and the boot goes on from there
//! ([`crate::disk::install`]).

use std::path::Path;
use std::time::{Duration, Instant};

use agent_api::events::Phase;
use agent_api::release::{InstallTarget, MEDIUM_ROOT};

use super::fatal::Fatal;
use super::medium::Medium;
use super::report::Report;
use crate::disk::execute::DiskError;
use crate::disk::facts::{install_id, mounted_for_a_look, table_of};
use crate::disk::install::{Candidate, Standing, choose, needs, put_on, standing, survey};
use crate::disk::is_medium_store;
use crate::disk::table::FoundTable;
use crate::host::block::Disk;
use crate::host::clock;

/// Time between two looks for a disk that fits, and between two messages that there is none.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Brings the medium to a disk that fits, unless it is there; kernel name of that disk.
///
/// Waits while there is none: `cannot_start` shows why, `settle` waits for disks that are on their way.
pub fn prepare(
    report: &Report,
    medium: &Medium,
    wish: &InstallTarget,
    settle: &dyn Fn(),
    cannot_start: &dyn Fn(&Fatal),
) -> Result<String, Fatal> {
    let (source, id) = (&medium.disk, install_id(&medium.release.name));
    if standing(source, id) == Standing::Installed {
        return Ok(source.name.clone());
    }
    let step = report.started(Phase::Disk, "install");
    let found = to_copy(source)?;
    let needs = needs(&found.table, &medium.release);
    let mut told = None::<Instant>;
    loop {
        settle();
        let candidates = survey(&source.name, id);
        match choose(wish, needs, &candidates) {
            Ok(Candidate { disk, standing: Standing::Installed }) => {
                same_release(disk, medium)?;
                report.done(step, &format!("installed on {} earlier", disk.name));
                return Ok(disk.name.clone());
            }
            Ok(Candidate { disk, .. }) => {
                let mut say = |what: &str, percent| report.progress(step, what, percent);
                put_on(source, disk, &found.table, id, &mut say).map_err(|error| failed(&error))?;
                report.done(step, &format!("installed on {}; the medium is not needed any more", disk.name));
                return Ok(disk.name.clone());
            }
            Err(reason) => {
                if told.is_none_or(|told| told.elapsed() >= TELL_AGAIN) {
                    cannot_start(&no_disk(&reason));
                    told = Some(Instant::now());
                }
                clock::pause(LOOK_AGAIN);
            }
        }
    }
}

fn to_copy(source: &Disk) -> Result<FoundTable, Fatal> {
    let why = match table_of(source) {
        Ok(Some(found)) if found.table.used().iter().any(is_medium_store) => return Ok(found),
        Ok(_) => "is no disk with the partitions of an image".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    let next = "start from a stick with the raw image, or from the qcow2: a CD cannot be installed";
    Err(Fatal::disk("install", format!("the medium {} {why}", source.name), "a medium that can be copied", next))
}

/// The disk starts this release, rather than another one of the same appliance.
fn same_release(disk: &Disk, medium: &Medium) -> Result<(), Fatal> {
    let store = table_of(disk).ok().flatten().and_then(|found| found.table.used().into_iter().find(is_medium_store));
    let is_there = store.is_some_and(|store| {
        let path = Path::new(MEDIUM_ROOT).join("releases").join(&medium.id);
        mounted_for_a_look(&disk.partition_name(store.number), |root| root.join(path).exists()).unwrap_or(false)
    });
    if is_there {
        return Ok(());
    }
    let found = format!("{} holds this appliance in another release than the medium", disk.name);
    let next = "take the medium out to start the one on the disk; to install this one, empty the disk first: its DATA is lost then";
    Err(Fatal::disk("install", found, "the medium's release, or an empty disk", next))
}

fn no_disk(reason: &str) -> Fatal {
    let next = "add a disk that fits, or empty one; the box goes on by itself when there is one; to run from the medium: foothold.data=ram";
    Fatal::disk("install", format!("no disk to install on: {reason}"), "a disk as `firstBoot.target` wants it", next)
}

fn failed(error: &DiskError) -> Fatal {
    let next = "start again: the copy begins anew; if it fails again, replace the disk or the medium that is named";
    Fatal::disk("install", error.to_string(), "a medium that can be read and a disk that keeps what is written", next)
}
