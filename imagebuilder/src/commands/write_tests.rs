use std::path::{Path, PathBuf};

use rstest::rstest;
use sha2::{Digest as _, Sha256};

use super::{Kind, PIECE, Written, compare, judge, kind, run};
use crate::cli::Write;
use crate::disk::gpt;
use crate::error::Exit;
use crate::host::block::{Block, Target, Use};
use crate::report::{Outcome, Report};

const GIB: u64 = 1 << 30;

fn stick() -> Block {
    Block { name: "sdb".into(), size: 8 * GIB, sector: 512, ..Block::default() }
}

fn refusal(block: Block) -> String {
    let refusal = judge(&Target::Block(block), Kind::Raw, GIB, false).expect_err("a refusal");
    format!("{}\nhint: {}", refusal.found, refusal.hint)
}

#[test]
fn an_unused_disk_that_is_large_enough_may_be_written() {
    assert_eq!(judge(&Target::Block(stick()), Kind::Raw, GIB, false), Ok(()));
}

#[rstest]
#[case(Block { uses: vec![Use::Mount("sdb1".into(), "/media/usb".into())], ..stick() }, "is in use: `sdb1` is mounted on `/media/usb`")]
#[case(Block { uses: vec![Use::Mount("sdb2".into(), "/boot".into())], ..stick() }, "holds the running system: `sdb2` is mounted on `/boot`")]
#[case(Block { uses: vec![Use::Holder("sdb2".into(), "dm-0".into()), Use::Mount("dm-0".into(), "/".into())], ..stick() }, "holds the running system: `dm-0` is mounted on `/`")]
#[case(Block { uses: vec![Use::Swap("sdb3".into())], ..stick() }, "is in use: `sdb3` is swap space")]
#[case(Block { uses: vec![Use::Holder("sdb".into(), "md127".into())], ..stick() }, "is in use: `sdb` is part of `md127`")]
#[case(Block { partition_of: Some("sdb".into()), ..stick() }, "is a partition of `sdb`")]
#[case(Block { read_only: true, ..stick() }, "is read-only")]
#[case(Block { size: GIB - 1, ..stick() }, "has 1073741823 bytes, the image has 1073741824")]
fn a_disk_is_refused_with_the_reason(#[case] block: Block, #[case] expected: &str) {
    let refusal = refusal(block);
    assert!(refusal.starts_with(expected), "{refusal}");
}

#[rstest]
#[case(Target::File, false, "is a file, not a device")]
#[case(Target::Absent, false, "is not there")]
#[case(Target::Other, true, "is not a block device")]
fn what_is_no_disk_is_refused(#[case] target: Target, #[case] file: bool, #[case] expected: &str) {
    let refusal = judge(&target, Kind::Raw, 1, file).expect_err("a refusal");
    assert_eq!(refusal.found, expected);
}

#[test]
fn images_are_known_by_their_first_bytes() {
    let with = |at: usize, magic: &[u8]| {
        let mut head = vec![0; 40 << 10];
        head[at..at + magic.len()].copy_from_slice(magic);
        head
    };
    assert_eq!(kind(&with(512, b"EFI PART")), Kind::Raw);
    assert_eq!(kind(&with(32769, b"CD001")), Kind::Iso);
    assert_eq!(kind(&with(0, b"QFI\xfb")), Kind::Qcow2);
    assert_eq!(kind(&with(0, b"\x28\xb5\x2f\xfd")), Kind::Compressed);
    assert_eq!(kind(&with(0, b"#!/bin/sh")), Kind::Unknown);
    assert_eq!(kind(b""), Kind::Unknown);
}

#[test]
fn blocks_of_another_size_are_for_a_raw_image_only() {
    let disk = |sector| Target::Block(Block { sector, ..stick() });
    assert_eq!(judge(&disk(4096), Kind::Raw, GIB, false), Ok(()));
    let refusal = judge(&disk(4096), Kind::Iso, GIB, false).expect_err("an ISO");
    assert!(refusal.found.starts_with("has blocks of 4096 bytes, and machines start an ISO"), "{}", refusal.found);
    assert!(refusal.hint.starts_with("build one with `--format raw`"), "{}", refusal.hint);
    let refusal = judge(&disk(2048), Kind::Raw, GIB, false).expect_err("neither");
    assert_eq!(refusal.found, "has blocks of 2048 bytes, 512 or 4096 were expected");
}

/// A raw image of that length: an empty table, and bytes that differ everywhere.
fn image(dir: &Path, length: usize) -> PathBuf {
    let mut bytes: Vec<u8> = (0..length).map(|i| u8::try_from((i / 7 + i / 4099) % 251).expect("below 256")).collect();
    let table = gpt::encode(length as u64, gpt::SECTOR, uuid::Uuid::from_u128(7), &[]);
    bytes[..table.primary.len()].copy_from_slice(&table.primary);
    let backup_at = length - table.backup.len();
    bytes[backup_at..].copy_from_slice(&table.backup);
    let path = dir.join("image.raw");
    fs_err::write(&path, bytes).expect("an image");
    path
}

#[rstest]
#[case(1 << 20)]
#[case(PIECE)]
#[case(2 * PIECE + 2048)]
#[case(PIECE + 512)]
fn what_is_written_is_read_back(#[case] length: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, device) = (image(dir.path(), length), dir.path().join("target"));
    let args = Write { image: image.clone(), device: device.clone(), file: true };
    let outcome = run(&args, &Report::silent()).expect("it is written");
    let Outcome::Written { bytes, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(bytes, length as u64);
    assert!(fs_err::read(image).expect("the image") == fs_err::read(device).expect("the copy"));
}

#[test]
fn a_qcow2_is_refused_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("a.qcow2");
    fs_err::write(&image, b"QFI\xfb\0\0\0\x03").expect("an image");
    let args = Write { image, device: dir.path().join("target"), file: true };
    let error = run(&args, &Report::silent()).expect_err("a refusal");
    assert_eq!(error.exit(), Exit::Wrong);
    assert_eq!(error.hint().as_deref(), Some("build one with `--format raw` or `--format iso`"));
    assert!(!dir.path().join("target").exists(), "nothing may be touched");
}

#[test]
fn an_interrupted_write_leaves_nothing_that_looks_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, device) = (image(dir.path(), 2 * PIECE), dir.path().join("target"));
    let report = Report::silent();
    report.cancel().cancel();
    let error = run(&Write { image, device: device.clone(), file: true }, &report).expect_err("an interruption");
    assert_eq!(error.exit(), Exit::Interrupted);
    let head = fs_err::read(device).expect("the target");
    assert!(head.get(512..520) != Some(b"EFI PART".as_slice()));
}

#[rstest]
#[case(5, 0, PIECE)]
#[case(PIECE + 7, PIECE, 2 * PIECE)]
#[case(2 * PIECE + 1, 2 * PIECE, 2 * PIECE + 512)]
fn a_device_that_returns_other_bytes_is_named_with_the_place(
    #[case] at: usize,
    #[case] from: usize,
    #[case] to: usize,
) {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(dir.path(), 2 * PIECE + 512);
    let content = fs_err::read(&image).expect("the image");
    let written =
        Written { whole: [0; 32], pieces: content.chunks(PIECE).map(|piece| Sha256::digest(piece).into()).collect() };
    let mut worn = content.clone();
    worn[at] ^= 1;
    fs_err::write(&image, worn).expect("the worn copy");
    let report = Report::silent();
    let step = report.step("write", "compare");
    let error = compare(&image, content.len() as u64, &written, &report, &step).expect_err("a difference");
    assert!(error.to_string().contains(&format!("first between byte {from} and {to}")), "{error}");
}

#[test]
fn a_device_that_ends_early_is_found_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(dir.path(), PIECE + 4096);
    let content = fs_err::read(&image).expect("the image");
    let written =
        Written { whole: [0; 32], pieces: content.chunks(PIECE).map(|piece| Sha256::digest(piece).into()).collect() };
    fs_err::write(&image, &content[..PIECE]).expect("the short copy");
    let report = Report::silent();
    let step = report.step("write", "compare");
    assert!(compare(&image, content.len() as u64, &written, &report, &step).is_err());
}

#[rstest]
#[case::a_block(512)]
#[case::a_piece(PIECE)]
fn an_image_whose_end_is_missing_is_refused(#[case] missing: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(dir.path(), 3 * PIECE);
    let content = fs_err::read(&image).expect("the image");
    fs_err::write(&image, &content[..content.len() - missing]).expect("the cut-off one");
    let args = Write { image, device: dir.path().join("target"), file: true };
    let error = run(&args, &Report::silent()).expect_err("a refusal");
    assert_eq!(error.exit(), Exit::Wrong);
    let expected = format!("is cut off: it has {} bytes, its partition table says {}", 3 * PIECE - missing, 3 * PIECE);
    assert!(error.message().contains(&expected), "{}", error.message());
    assert!(!dir.path().join("target").exists(), "nothing may be touched");
}

/// By its own name, and by links to it.
#[test]
fn an_image_is_not_written_onto_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(dir.path(), PIECE);
    let content = fs_err::read(&image).expect("the image");
    let (hard, soft) = (dir.path().join("hard"), dir.path().join("soft"));
    fs_err::hard_link(&image, &hard).expect("a link");
    fs_err::os::unix::fs::symlink(&image, &soft).expect("a link");
    for device in [image.clone(), hard, soft] {
        let args = Write { image: image.clone(), device, file: true };
        let error = run(&args, &Report::silent()).expect_err("a refusal");
        assert!(error.exit() == Exit::Wrong && error.message().contains("is the image itself"), "{}", error.message());
    }
    assert!(fs_err::read(&image).expect("the image") == content, "nothing may be touched");
    let args = Write { image, device: dir.path().join("target"), file: true };
    run(&args, &Report::silent()).expect("another file");
}

#[test]
fn an_image_with_a_damaged_table_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(dir.path(), PIECE);
    let mut content = fs_err::read(&image).expect("the image");
    content[512 + 40] ^= 1;
    fs_err::write(&image, content).expect("the damaged one");
    let args = Write { image, device: dir.path().join("target"), file: true };
    let error = run(&args, &Report::silent()).expect_err("a refusal");
    assert!(error.message().contains("is damaged: the partition table at the start"), "{}", error.message());
}
