//! When an output is taken as it is, and when it is written anew.

use std::path::Path;

use rstest::rstest;

use super::qcow2::Compression;
use super::tests::{plan, written};
use super::{Format, ImagePlan, OutputFile, recall};
use crate::disk::testbench::Toolbox;

fn recalled(plan: &ImagePlan) -> Option<OutputFile> {
    recall(Format::Raw, plan, &Toolbox::find()).expect("it looks")
}

/// Changes bytes of a file and gives it the time of modification it had.
fn change_unnoticed(path: &Path) {
    let before = fs_err::metadata(path).expect("a file").modified().expect("a time");
    let file = fs_err::OpenOptions::new().write(true).open(path).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(file.file(), b"damage", 1 << 20).expect("written");
    file.file().set_modified(before).expect("a time");
}

#[test]
fn an_output_that_is_there_and_would_come_out_the_same_is_taken_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    assert_eq!(recalled(&plan), None);
    let first = written(Format::Raw, &plan, &Toolbox::find());
    assert_eq!(recalled(&plan), Some(first));
    assert_eq!(recall(Format::Iso, &plan, &Toolbox::find()).expect("it looks"), None, "another format is another file");
}

#[rstest]
#[case::touched(|path: &Path| {
    let file = fs_err::OpenOptions::new().write(true).open(path).expect("opened");
    file.file().set_modified(std::time::SystemTime::UNIX_EPOCH).expect("touched");
})]
#[case::damaged(change_unnoticed)]
#[case::truncated(|path: &Path| {
    fs_err::OpenOptions::new().write(true).open(path).expect("opened").set_len(1 << 20).expect("cut");
})]
#[case::missing(|path: &Path| fs_err::remove_file(path).expect("removed"))]
#[case::replaced_by_a_copy(|path: &Path| {
    fs_err::copy(path, path.with_extension("copy")).expect("copied");
    fs_err::rename(path.with_extension("copy"), path).expect("renamed");
})]
#[case::replaced_by_a_link(|path: &Path| {
    fs_err::rename(path, path.with_extension("moved")).expect("renamed");
    fs_err::os::unix::fs::symlink(path.with_extension("moved"), path).expect("linked");
})]
fn an_output_that_was_changed_is_made_anew(#[case] change: fn(&Path)) {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    let first = written(Format::Raw, &plan, &Toolbox::find());
    change(&first.file);
    assert_eq!(recalled(&plan), None);
    let second = written(Format::Raw, &plan, &Toolbox::find());
    assert_eq!(second.sha256, first.sha256);
    assert_eq!(recalled(&plan), Some(second));
}

#[rstest]
#[case::release(|plan: &mut ImagePlan| plan.release_id = "ef".repeat(32))]
#[case::menu(|plan: &mut ImagePlan| plan.entries.consoles.truncate(1))]
#[case::parameters(|plan: &mut ImagePlan| plan.entries.current.entry.parameters.truncate(1))]
#[case::site(|plan: &mut ImagePlan| plan.site.truncate(1))]
#[case::store(|plan: &mut ImagePlan| plan.store.truncate(2))]
#[case::size(|plan: &mut ImagePlan| plan.virtual_bytes = Some(1 << 30))]
#[case::compression(|plan: &mut ImagePlan| plan.compression = Compression::Zlib)]
#[case::limit(|plan: &mut ImagePlan| plan.max_bytes = Some(1 << 30))]
#[case::kernel(|plan: &mut ImagePlan| change_unnoticed(&plan.entries.current.kernel))]
fn an_output_of_other_inputs_is_made_anew(#[case] change: fn(&mut ImagePlan)) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plan = plan(dir.path());
    written(Format::Raw, &plan, &Toolbox::find());
    change(&mut plan);
    assert_eq!(recalled(&plan), None);
}

#[test]
fn the_same_image_in_another_folder_is_written_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plan = plan(dir.path());
    let first = written(Format::Raw, &plan, &Toolbox::find());
    plan.out = dir.path().join("other");
    assert!(!plan.out.exists());
    assert_eq!(recalled(&plan), None);
    let second = written(Format::Raw, &plan, &Toolbox::find());
    assert_eq!(second.sha256, first.sha256);
}
