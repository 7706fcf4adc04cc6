//! What scripts and people see of `inspect` and `verify`.

use std::path::PathBuf;

use serde_json::Value;

use super::run;
use crate::cli;
use crate::commands::inspect;
use crate::error::Exit;
use crate::format::Format;
use crate::release::testbench::{Sample, noise};
use crate::report::text::Text;
use crate::report::{CommandError, Outcome, Report};

/// Exit code, last line of data, everything for people.
fn ended(work: impl FnOnce(&Report) -> Result<Outcome, CommandError>) -> (Exit, Value, String) {
    let (data, lines) = (Text::default(), Text::default());
    let report = Report::to_writers(Box::new(data.clone()), Box::new(lines.clone()));
    let exit = report.finish(&work(&report));
    let last = data.text().lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("a JSON line");
    (exit, last, lines.text())
}

fn verify(image: &std::path::Path, key: Option<PathBuf>) -> (Exit, Value, String) {
    ended(|report| run(&cli::Verify { image: image.to_owned(), key }, report))
}

fn public_key(sample: &Sample) -> PathBuf {
    let path = sample.plan.out.join("release.pub");
    fs_err::create_dir_all(&sample.plan.out).expect("a folder");
    fs_err::write(&path, &sample.public_key).expect("written");
    path
}

#[test]
fn a_whole_image_is_data_with_the_reach_of_its_signature() {
    let sample = Sample::new();
    let image = sample.write(Format::Iso);
    let (exit, last, lines) = verify(&image, Some(public_key(&sample)));
    assert_eq!(exit, Exit::Done);
    assert_eq!(last["result"], "data");
    assert_eq!(last["kind"], "verify");
    let data = &last["data"];
    assert_eq!(data["format"], "iso");
    assert_eq!(data["files"], sample.files(Format::Iso));
    assert_eq!(data["problems"], serde_json::json!([]));
    assert_eq!(data["releases"][0]["id"], sample.id.as_str());
    assert_eq!(data["releases"][0]["signature"]["trust"], "given");
    assert_eq!(data["releases"][0]["signature"]["good"], true);
    assert!(lines.contains("verify files"), "{lines}");
    assert_eq!(verify(&image, None).1["data"]["releases"][0]["signature"]["trust"], "carried");
}

#[test]
fn every_problem_of_a_damaged_image_is_listed_and_the_exit_code_is_1() {
    let mut sample = Sample::new();
    let names = [1, 2].map(|number| sample.digest(number).trim_start_matches("sha256:").to_owned());
    sample.plan.store.retain(|file| !names.iter().any(|name| file.path.ends_with(name)));
    let image = sample.write(Format::Raw);
    let (exit, last, lines) = verify(&image, Some(public_key(&sample)));
    assert_eq!(exit, Exit::Failed);
    assert_eq!((&last["result"], &last["code"]), (&"error".into(), &1.into()));
    let problems = last["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 2);
    for problem in problems {
        assert_eq!(problem["found"], "it is missing");
        assert_eq!(problem["neededBy"][0], "image `example.org/a:1`");
    }
    let start = format!("error: `{}` has 2 problems:\n  blob sha256:", image.display());
    assert!(lines.contains(&start), "{lines}");
    assert!(lines.contains("\nhint: `foothold write` copies an image anew"), "{lines}");
}

#[test]
fn a_key_that_is_none_and_a_file_that_is_no_image_are_wrong_usage() {
    let sample = Sample::new();
    let image = sample.write(Format::Iso);
    let (exit, last, _) = verify(&image, Some(sample.plan.entries.current.kernel.clone()));
    assert_eq!(exit, Exit::Wrong, "{last}");
    let secret = sample.plan.out.join("../release.key");
    let (exit, last, _) = verify(&image, Some(secret.clone()));
    assert_eq!(exit, Exit::Wrong);
    assert_eq!(last["message"], format!("`{}` is no minisign public key", secret.display()));
    let file = sample.plan.out.join("noise");
    fs_err::write(&file, noise(1, 100_000)).expect("written");
    let (exit, last, _) = verify(&file, None);
    assert_eq!(exit, Exit::Wrong);
    assert_eq!(last["message"], format!("`{}` is neither a disk image, an ISO nor a qcow2", file.display()));
    assert_eq!(verify("/nowhere/a.raw".as_ref(), None).0, Exit::Wrong);
}

#[test]
fn inspect_gives_the_release_as_data() {
    let sample = Sample::new();
    let image = sample.write(Format::Qcow2);
    let (exit, last, _) = ended(|report| inspect::run(&cli::Inspect { image, sbom: false }, report));
    assert_eq!(exit, Exit::Done);
    assert_eq!(last["kind"], "inspect");
    let found = &last["data"]["releases"][0];
    assert_eq!(found["id"], sample.id.as_str());
    assert_eq!(found["release"], serde_json::to_value(&sample.release).expect("JSON"));
    assert_eq!(found["signature"]["developmentKey"], false);
    assert_eq!(found["signature"]["keyId"].as_str().map(str::len), Some(16));
}
