//! What the format has and this version does not build yet. Ignoring it would promise what the image does not hold.

use super::Findings;
use super::input::{Appliance, FirstBootMode};
use super::path::Path;

pub(super) fn check(input: &Appliance, findings: &mut Findings<'_>) {
    if input.first_boot.mode == Some(FirstBootMode::Install) {
        let path = Path::of("firstBoot").key("mode");
        let found = "installing on a disk is not supported yet by this version";
        findings.unsupported(&path, found, "remove it, or build with a version of foothold that supports it");
    }
}
