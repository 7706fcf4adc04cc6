//! What is said about two images, two locks, and one of each.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::run;
use crate::cli;
use crate::error::Exit;
use crate::format::Format;
use crate::lock::{Deb, Lock};
use crate::release::testbench::Sample;
use crate::report::text::Text;
use crate::report::{CommandError, Outcome, Report};
use crate::store::hash;

fn ended(work: impl FnOnce(&Report) -> Result<Outcome, CommandError>) -> (Exit, Value) {
    let data = Text::default();
    let report = Report::to_writers(Box::new(data.clone()), Box::new(Text::default()));
    let exit = report.finish(&work(&report));
    (exit, data.text().lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("a JSON line"))
}

fn diff(a: &Path, b: &Path) -> (Exit, Value) {
    let (a, b) = (a.to_owned(), b.to_owned());
    ended(|report| run(&cli::Diff { a, b, bundle: None, key: None }, report))
}

fn lock(dir: &Path, name: &str, packages: &[(&str, &str)], set: &str) -> PathBuf {
    let mut lock = Lock::new(1);
    let deb = |(name, version): &(&str, &str)| Deb {
        name: (*name).to_owned(),
        version: (*version).to_owned(),
        architecture: "amd64".to_owned(),
        sha256: hash::bytes(name.as_bytes()),
        size: 1,
    };
    lock.debian.insert("os".to_owned(), packages.iter().map(deb).collect());
    lock.debian.insert("site".to_owned(), vec![deb(&(set, "1"))]);
    lock.modules.insert("etcd".to_owned(), hash::bytes(set.as_bytes()));
    let path = dir.join(name);
    lock.write(&path).expect("written");
    path
}

#[test]
fn the_same_release_in_two_formats_is_the_same() {
    let sample = Sample::new();
    let (raw, iso) = (sample.write(Format::Raw), sample.write(Format::Iso));
    let (exit, last) = diff(&raw, &iso);
    assert_eq!((exit, &last["kind"], &last["data"]["same"]), (Exit::Done, &"diff".into(), &true.into()));
    assert_eq!(last["data"]["a"]["release"], sample.id.as_str());
}

#[test]
fn two_releases_differ_in_what_they_hold() {
    let (a, b) = (
        Sample::new(),
        Sample::changed(|release| {
            release.packages[0].version = "13.9".to_owned();
            release.boot[0].command_line = "quiet panic=60".to_owned();
            release.images.pop();
        }),
    );
    let (exit, last) = diff(&a.write(Format::Raw), &b.write(Format::Raw));
    assert_eq!((exit, &last["data"]["same"]), (Exit::Done, &false.into()));
    let changes = &last["data"]["changes"];
    assert_eq!(changes["packages"], serde_json::json!([{"name": "base-files", "from": "13.8", "to": "13.9"}]));
    assert_eq!(changes["parameters"][0]["name"], "panic=60");
    assert_eq!(changes["images"][0]["name"], "example.org/b:1");
    assert!(changes["images"][0].get("to").is_none());
    assert_eq!(changes["layers"], serde_json::json!([]));
}

#[test]
fn locks_are_compared_in_all_they_hold_and_with_an_image_in_the_packages() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = lock(dir.path(), "a.lock", &[("base-files", "13.8"), ("bash", "5")], "chrony");
    let b = lock(dir.path(), "b.lock", &[("base-files", "13.9"), ("dash", "1")], "lldpd");
    let (_, last) = diff(&a, &b);
    let changes = &last["data"]["changes"];
    let names = |kind: &str| -> Vec<String> {
        let found = changes[kind].as_array().expect("a list").iter();
        found.map(|change| change["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("packages"), ["base-files", "bash", "dash"]);
    assert_eq!(names("packages of site"), ["chrony", "lldpd"]);
    assert_eq!(names("goModuleSets"), ["etcd"]);
    assert_eq!(diff(&a, &a).1["data"]["same"], true);
    let sample = Sample::new();
    let (_, last) = diff(&sample.write(Format::Raw), &a);
    let kinds: Vec<&String> = last["data"]["changes"].as_object().expect("kinds").keys().collect();
    assert_eq!(kinds, ["packages"]);
    assert_eq!(last["data"]["changes"]["packages"][0]["name"], "bash");
}

#[test]
fn what_is_neither_image_nor_lock_is_wrong_usage() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("notes.txt");
    fs_err::write(&path, "hello").expect("written");
    let (exit, last) = diff(&path, &path);
    assert_eq!(exit, Exit::Wrong, "{last}");
    assert_eq!(diff(Path::new("nowhere.lock"), &path).0, Exit::Wrong);
}

#[test]
fn a_bundle_takes_the_place_of_neither_image() {
    let (a, b) = (Sample::new(), Sample::changed(|release| release.packages[0].version = "13.9".to_owned()));
    let (a, b) = (a.write(Format::Raw), b.write(Format::Raw));
    let before = [&a, &b].map(|image| hash::file(image).expect("read"));
    let dir = tempfile::tempdir().expect("a folder");
    let link = dir.path().join("update.tar");
    fs_err::os::unix::fs::symlink(&b, &link).expect("a link");
    for out in [&a, &b, &link] {
        let args = cli::Diff { a: a.clone(), b: b.clone(), bundle: Some(out.clone()), key: None };
        let (exit, last) = ended(|report| run(&args, report));
        assert_eq!(exit, Exit::Wrong, "{last}");
        assert!(last["message"].as_str().is_some_and(|told| told.contains("is one of the two images")), "{last}");
    }
    assert_eq!([&a, &b].map(|image| hash::file(image).expect("read")), before);
}
