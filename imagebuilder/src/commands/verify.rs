//! `foothold verify`: every byte of an image or device against its signed release.

use anyhow::Result;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::inspect::open;
use crate::cli;
use crate::error::WrongUsage;
use crate::medium::Medium;
use crate::medium::check::{self, Checked, Findings};
use crate::medium::keys::{Keys, NoPublicKey};
use crate::problems::{Damaged, count};
use crate::report::{CommandError, Outcome, Report, details};

/// Checks everything; all problems together are the command's error.
pub fn run(args: &cli::Verify, report: &Report) -> Result<Outcome, CommandError> {
    let keys = Keys::of_user(args.key.as_deref()).map_err(|error| match error.downcast::<NoPublicKey>() {
        Ok(error) => {
            let hint = "give the `.pub` file that `minisign -G` wrote".to_owned();
            CommandError::from(WrongUsage { message: error.to_string(), hint })
        }
        Err(error) => error.into(),
    })?;
    let medium = open(&args.image)?;
    let step = report.step("verify", "files");
    let findings = check::check(&medium, &keys, &mut |done, total| {
        step.bytes(done, Some(total));
        report.cancel().check()
    })?;
    let image = args.image.display().to_string();
    if !findings.problems.is_empty() {
        step.failed(&format!("{} found", count(findings.problems.len(), "problem")));
        return Err(Damaged { image, problems: findings.problems }.into());
    }
    step.done_with(details([("bytes", findings.bytes.into()), ("files", findings.files.into())]));
    report.data(&sentences(&medium, &findings));
    Ok(Outcome::Data { kind: "verify", data: as_data(&image, &medium, &findings) })
}

fn sentences(medium: &Medium, findings: &Findings) -> String {
    let mut lines = Vec::new();
    for checked in &findings.releases {
        lines.push(format!("release    {} of {}", checked.found.folder, title(checked)));
        lines.push(format!("signature  {}", checked.verdict.sentence()));
        lines.push(format!("proof      {}", checked.proof.sentence()));
    }
    let (files, bytes) = (count(findings.files, "file"), HumanBytes(findings.bytes));
    lines.push(format!("content    {files}, {bytes}: every byte is what the release says ({})", medium.format.name()));
    lines.join("\n")
}

fn title(checked: &Checked) -> String {
    checked.release.as_ref().map(|release| format!("{} {}", release.name, release.version)).unwrap_or_default()
}

fn as_data(image: &str, medium: &Medium, findings: &Findings) -> Value {
    let releases: Vec<Value> = findings
        .releases
        .iter()
        .map(|checked| {
            json!({
                "id": checked.found.folder,
                "name": checked.release.as_ref().map(|release| &release.name),
                "version": checked.release.as_ref().map(|release| &release.version),
                "signature": checked.verdict.json(checked.release.as_ref()),
                "proof": checked.proof.json(),
            })
        })
        .collect();
    json!({
        "image": image,
        "format": medium.format,
        "files": findings.files,
        "bytes": findings.bytes,
        "releases": releases,
        "problems": [],
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
