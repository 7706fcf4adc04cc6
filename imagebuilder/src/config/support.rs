//! What the format has and this version does not build yet. Ignoring it would promise what the image does not hold.

use super::Findings;
use super::input::{Appliance, FirstBootMode};
use super::path::Path;

pub(super) fn check(input: &Appliance, findings: &mut Findings<'_>) {
    let services = Path::of("services");
    let unsupported = [
        (
            input.first_boot.mode == Some(FirstBootMode::Install),
            Path::of("firstBoot").key("mode"),
            "installing on a disk",
        ),
        (input.services.provisioning.is_some(), services.key("provisioning"), "provisioning servers"),
    ];
    for (_, path, what) in unsupported.into_iter().filter(|(used, ..)| *used) {
        let found = format!("{what} is not supported yet by this version");
        findings.unsupported(&path, &found, "remove it, or build with a version of foothold that supports it");
    }
}
