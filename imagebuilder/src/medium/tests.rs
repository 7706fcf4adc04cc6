//! Whole images, written by the code that writes real ones, read back and damaged byte by byte.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rstest::rstest;

use super::Medium;
use super::check::{Findings, check};
use super::keys::{Key, Keys, Trust};
use super::sectors;
use crate::disk::Content;
use crate::disk::extents::Extents;
use crate::format::qcow2::Compression;
use crate::format::{self, Format};
use crate::release::testbench::{Sample, noise};

fn checked(image: &Path, keys: &Keys) -> Findings {
    let medium = Medium::open(image).expect("a medium");
    check(&medium, keys, &mut |done, total| {
        assert!(done <= total);
        Ok(())
    })
    .expect("not interrupted")
}

pub(super) fn problems(image: &Path, keys: &Keys) -> Vec<String> {
    checked(image, keys).problems.iter().map(ToString::to_string).collect()
}

/// Where a file that begins with `start` lies in a raw image or ISO: files begin on sectors.
pub(super) fn place_of(image: &Path, start: &[u8]) -> u64 {
    let file = fs_err::File::open(image).expect("the image");
    let size = file.metadata().expect("its size").len();
    let mut chunk = vec![0; 1 << 20];
    for at in (0..size).step_by(chunk.len()) {
        let length = usize::try_from(size - at).map_or(chunk.len(), |left| left.min(chunk.len()));
        file.file().read_exact_at(&mut chunk[..length], at).expect("reads");
        if let Some(sector) = chunk[..length].chunks(512).position(|sector| sector.starts_with(start)) {
            return at + sector as u64 * 512;
        }
    }
    panic!("the image does not hold the file")
}

/// Inverts the lowest bit of a byte; twice is as if nothing had been.
pub(super) fn flip(image: &Path, at: u64) {
    let file = fs_err::OpenOptions::new().read(true).write(true).open(image).expect("the image");
    let mut byte = [0];
    file.file().read_exact_at(&mut byte, at).expect("reads");
    file.file().write_all_at(&[byte[0] ^ 1], at).expect("writes");
}

fn cut(image: &Path, size: u64) {
    fs_err::OpenOptions::new().write(true).open(image).expect("the image").set_len(size).expect("cuts");
}

#[rstest]
#[case::raw(Format::Raw)]
#[case::qcow2(Format::Qcow2)]
#[case::iso(Format::Iso)]
fn every_format_is_read_back_whole(#[case] format: Format) {
    let sample = Sample::new();
    let image = sample.write(format);
    let findings = checked(&image, &sample.keys());
    assert_eq!(findings.problems, []);
    assert_eq!((findings.releases.len(), findings.files), (1, sample.files(format)));
    let checked = &findings.releases[0];
    assert_eq!(checked.found.folder, sample.id);
    assert_eq!(checked.release.as_ref(), Some(&sample.release));
    assert!(checked.verdict.fault.is_none());
    let medium = Medium::open(&image).expect("a medium");
    assert_eq!(medium.format, format);
    assert_eq!(medium.carried_key(&sample.id).expect("readable"), Some(sample.public_key.clone()));
}

#[test]
fn a_qcow2_with_zlib_is_read_back_whole() {
    let sample = Sample::new();
    let dir = tempfile::tempdir().expect("a folder");
    let raw = sample.write(Format::Raw);
    let mut image = Extents::new(fs_err::metadata(&raw).expect("metadata").len());
    image.push(0, &Content::File { path: raw, bytes: image.size() }).expect("a piece");
    let qcow2 = dir.path().join("a.qcow2");
    let options = fs_err::OpenOptions::new().read(true).write(true).create_new(true).open(&qcow2);
    format::qcow2::write(&image, &mut options.expect("a file"), Compression::Zlib, &mut |_, _| ()).expect("a qcow2");
    let findings = checked(&qcow2, &sample.keys());
    assert_eq!(findings.problems, []);
    assert_eq!(findings.files, sample.files(Format::Raw));
}

/// The raw image as it is written on a disk of larger blocks.
fn with_large_blocks(image: &Path, scratch: &Path) -> std::path::PathBuf {
    let large = scratch.join("large.raw");
    fs_err::copy(image, &large).expect("a copy");
    let file = fs_err::OpenOptions::new().write(true).open(&large).expect("the copy");
    for patch in sectors::patches(image, scratch).expect("patches") {
        let length = usize::try_from(patch.bytes.size()).expect("small");
        let bytes = super::bytes::read(&*patch.bytes, 0, length).expect("its bytes");
        file.file().write_all_at(&bytes, patch.at).expect("written");
    }
    large
}

#[test]
fn a_disk_with_large_blocks_holds_the_same_release() {
    let sample = Sample::new();
    let image = sample.write(Format::Raw);
    let dir = tempfile::tempdir().expect("a folder");
    let large = with_large_blocks(&image, dir.path());
    let findings = checked(&large, &sample.keys());
    assert_eq!(findings.problems, []);
    assert_eq!(findings.files, sample.files(Format::Raw));
    // Other readers agree: of the table, and of the volumes in it.
    let size = gpt::disk::LogicalBlockSize::Lb4096;
    let table = gpt::GptConfig::new().writable(false).only_valid_headers(true).logical_block_size(size);
    let table = table.open(&large).expect("a table");
    let before = gpt::GptConfig::new().writable(false).open(&image).expect("a table");
    let bytes = |block: u64, one: &gpt::partition::Partition| {
        (one.name.clone(), one.part_guid, one.flags, one.first_lba * block, (one.last_lba + 1) * block)
    };
    let (now, then) = (table.partitions().values(), before.partitions().values());
    assert!(now.map(|one| bytes(4096, one)).eq(then.map(|one| bytes(512, one))), "other partitions");
    let toolbox = crate::disk::testbench::Toolbox::find();
    for partition in table.partitions().values().filter(|one| ["ESP", "SITE"].contains(&one.name.as_str())) {
        let volume = dir.path().join(&partition.name);
        let mut bytes = vec![0; usize::try_from((partition.last_lba + 1 - partition.first_lba) * 4096).expect("small")];
        fs_err::File::open(&large)
            .expect("the disk")
            .file()
            .read_exact_at(&mut bytes, partition.first_lba * 4096)
            .expect("read");
        assert_eq!(bytes[11..13], 4096_u16.to_le_bytes());
        fs_err::write(&volume, bytes).expect("written");
        toolbox.check(&["fsck.fat", "-n", volume.to_str().expect("text")]);
    }
}

#[rstest]
#[case::raw(Format::Raw)]
#[case::iso(Format::Iso)]
fn every_flipped_byte_is_named(#[case] format: Format) {
    let sample = Sample::new();
    let image = sample.write(format);
    let keys = sample.keys();
    let boot = format!("`foothold/boot/{}", &sample.id[..16]);
    let folder = format!("`foothold/releases/{}", sample.id);
    let blob = |number: usize| sample.digest(number);
    let layer = &sample.release.layers[0];
    let initrd_path = sample.plan.entries.current.initrd.clone();
    let (json, signature) = (bytes_of(&sample, 0), bytes_of(&sample, 1));
    let os = format!("layer `os` (blob {})", layer.digest);
    let cases: Vec<(&str, Vec<u8>, u64, Vec<String>)> = vec![
        (
            "layer data",
            noise(9, 64),
            5 * 4096 + 7,
            vec![format!("{os}: data block 5 (byte 20480) does not match its digest")],
        ),
        (
            "top of the tree",
            noise(9, 64),
            layer.data_bytes + 40,
            vec![format!("{os}: the hash tree does not match the root hash {}", layer.root_hash)],
        ),
        (
            "shared blob",
            noise(3, 64),
            100,
            vec![format!(
                "blob {}: it was changed; needed by image `example.org/a:1`, image `example.org/b:1`",
                blob(2)
            )],
        ),
        (
            "kernel",
            noise(4, 64),
            199_999,
            vec![format!("{boot}/vmlinuz`: it was changed; needed by boot entry `default`")],
        ),
        (
            "initrd",
            fs_err::read(initrd_path).expect("the initrd")[..64].to_vec(),
            4000,
            vec![format!("{boot}/initrd`: it was changed; needed by boot entry `default`")],
        ),
        (
            "release.json",
            json[..64].to_vec(),
            offset_of(&json, b"10.244"),
            vec![
                format!("{folder}/release.json`: it was changed"),
                format!("{folder}/release.json.minisig`: the signature is not by this key, or the file was changed"),
            ],
        ),
        (
            "signature",
            // Up to the signature itself: all begin alike.
            signature[..110].to_vec(),
            // A letter that the flip turns into another one: the text stays base64.
            60 + signature[60..100].iter().position(|byte| (b'b'..b'z').contains(byte)).expect("a letter") as u64,
            vec![format!("{folder}/release.json.minisig`: the signature is not by this key, or the file was changed")],
        ),
    ];
    for (what, start, offset, expected) in cases {
        let at = place_of(&image, &start) + offset;
        flip(&image, at);
        assert_eq!(problems(&image, &keys).iter().map(|text| short(text)).collect::<Vec<_>>(), expected, "{what}");
        flip(&image, at);
    }
    assert_eq!(problems(&image, &keys), Vec::<String>::new());
}

/// Without the digests of a change, which depend on the key.
pub(super) fn short(text: &str) -> String {
    let Some((before, after)) = text.split_once("it was changed: its sha256 is ") else {
        return text.strip_suffix(": it was changed").map_or_else(|| text.to_owned(), str::to_owned);
    };
    let needed = after.find("; needed by").map_or("", |at| &after[at..]);
    format!("{before}it was changed{needed}")
}

fn bytes_of(sample: &Sample, number: usize) -> Vec<u8> {
    match &sample.plan.store[number].content {
        Content::Bytes(bytes) | Content::Reserved(bytes) => bytes.clone(),
        Content::File { path, .. } => fs_err::read(path).expect("the file"),
    }
}

fn offset_of(bytes: &[u8], part: &[u8]) -> u64 {
    bytes.windows(part.len()).position(|window| window == part).expect("it is there") as u64
}

#[test]
fn a_missing_a_shortened_and_a_strange_blob_are_named() {
    let mut sample = Sample::new();
    let (own, shared) = (sample.digest(1), sample.digest(2));
    let is = |path: &str, digest: &str| path.ends_with(digest.trim_start_matches("sha256:"));
    sample.plan.store.retain(|file| !is(&file.path, &own));
    for file in sample.plan.store.iter_mut().filter(|file| is(&file.path, &shared)) {
        file.content = Content::Bytes(noise(3, 4_000));
    }
    let strange = "0".repeat(64);
    let path = format!("foothold/store/sha256/{strange}");
    sample.plan.store.push(crate::disk::SourceFile { path, content: Content::Bytes(b"x".to_vec()) });
    let image = sample.write(Format::Iso);
    let mut expected = vec![
        format!("blob {own}: it is missing; needed by image `example.org/a:1`"),
        format!(
            "blob {shared}: it has 4000 bytes, 5000 expected; needed by image `example.org/a:1`, image `example.org/b:1`"
        ),
        format!("blob sha256:{strange}, which no release names: it was changed"),
    ];
    expected.sort();
    let mut found: Vec<_> = problems(&image, &sample.keys()).iter().map(|text| short(text)).collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_raw_image_that_is_cut_off_says_where_and_what_is_lost() {
    let sample = Sample::new();
    let image = sample.write(Format::Raw);
    let size = fs_err::metadata(&image).expect("its size").len();
    let end = place_of(&image, &noise(9, 64)) + 100 * 4096;
    cut(&image, end);
    let found = problems(&image, &sample.keys());
    assert_eq!(found[0], format!("image: it is cut off: it has {end} bytes, its partition table says {size}"));
    let layer = &sample.release.layers[0].digest;
    let lost = format!("blob {layer}: it cannot be read: the image ends at byte {end}, bytes up to ");
    let named = found.iter().find(|text| text.starts_with(&lost)).expect("the layer is named");
    assert!(named.ends_with(" are wanted; needed by layer `os`"), "{named}");
}

#[test]
fn an_iso_that_is_cut_off_says_where_and_what_is_lost() {
    let sample = Sample::new();
    let image = sample.write(Format::Iso);
    let end = place_of(&image, &noise(9, 64)) + 100 * 4096;
    cut(&image, end);
    let found = problems(&image, &sample.keys());
    assert!(
        found[0].starts_with(&format!("image: it is cut off: it has {end} bytes, its volume descriptor says ")),
        "{found:?}"
    );
    let lost = format!("blob {}: it cannot be read: the image ends at byte {end}", sample.release.layers[0].digest);
    assert!(found.iter().any(|text| text.starts_with(&lost)), "{found:?}");
}

#[test]
fn a_qcow2_that_is_cut_off_cannot_be_opened_and_says_why() {
    let sample = Sample::new();
    let image = sample.write(Format::Qcow2);
    let size = fs_err::metadata(&image).expect("its size").len();
    cut(&image, size / 2);
    let error = Medium::open(&image).err().expect("refused").to_string();
    let start = format!("reading the qcow2's tables: the image ends at byte {}, bytes up to ", size / 2);
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn a_damaged_cluster_of_a_qcow2_costs_the_files_in_it() {
    let sample = Sample::new();
    let image = sample.write(Format::Qcow2);
    // Noise does not compress: the layer's clusters lie as they are, but not on sectors of the file.
    let bytes = fs_err::read(&image).expect("the image");
    let at = offset_of(&bytes, &noise(9, 200_000)[100_000..100_032]);
    flip(&image, at);
    let os = format!("layer `os` (blob {})", sample.release.layers[0].digest);
    let block = 100_000 / 4096;
    let expected = format!("{os}: data block {block} (byte {}) does not match its digest", block * 4096);
    assert_eq!(problems(&image, &sample.keys()), [expected]);
}

#[test]
fn the_key_in_the_image_is_used_when_there_is_no_better_one() {
    let sample = Sample::new();
    let image = sample.write(Format::Iso);
    let trust = |keys: &Keys| checked(&image, keys).releases[0].verdict.key.clone().map(|key| key.trust);
    assert_eq!(trust(&Keys::default()), Some(Trust::Carried));
    let key = |text: &str, trust| Some(Key { text: text.to_owned(), trust });
    let own = Trust::Development("development.key".into());
    let keys = Keys { given: None, development: key(&sample.public_key, own.clone()) };
    assert_eq!(trust(&keys), Some(own.clone()));
    let other = Sample::new().public_key;
    let keys = Keys { given: None, development: key(&other, own) };
    assert_eq!(trust(&keys), Some(Trust::Carried), "the user's key did not make this signature");
    let keys = Keys { given: key(&other, Trust::Given("other.pub".into())), development: None };
    let expected = ["release.json.minisig", "boot-files.json"].map(|file| {
        let place = format!("`foothold/releases/{}/{file}`", sample.id);
        format!("{place}: the signature is not by this key, or the file was changed")
    });
    assert_eq!(problems(&image, &keys), expected);
}

#[test]
fn what_is_no_image_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("notes.txt");
    fs_err::write(&file, "hello").expect("written");
    let error = Medium::open(&file).err().expect("refused").to_string();
    assert!(error.starts_with(&format!("`{}` is neither a disk image, an ISO nor a qcow2", file.display())), "{error}");
}

/// Damage to what the file systems themselves are made of must end in words, never in a panic.
#[rstest]
#[case::raw_table(Format::Raw, 512, 2048)]
#[case::raw_esp(Format::Raw, 2 << 20, 4096)]
#[case::raw_store(Format::Raw, 0, 40 << 10)]
#[case::qcow2_header(Format::Qcow2, 0, 128)]
#[case::iso(Format::Iso, 32 << 10, 64 << 10)]
fn damaged_metadata_is_survived(#[case] format: Format, #[case] from: u64, #[case] length: u64) {
    let sample = Sample::new();
    let image = sample.write(format);
    let from = if from == 0 && format == Format::Raw { store_start(&image) } else { from };
    for step in 0..200 {
        let at = from + step * 7919 % length;
        flip(&image, at);
        if let Ok(medium) = Medium::open(&image) {
            check(&medium, &sample.keys(), &mut |_, _| Ok(())).expect("not interrupted");
        }
        flip(&image, at);
    }
    assert_eq!(problems(&image, &sample.keys()), Vec::<String>::new());
}

fn store_start(image: &Path) -> u64 {
    let table = gpt::GptConfig::new().writable(false).open(image).expect("a table");
    let store = table.partitions().values().find(|partition| partition.name == "STORE").expect("STORE");
    store.first_lba * 512 + 1024
}

impl Sample {
    /// The key as if the user had named it.
    pub fn keys(&self) -> Keys {
        let trust = Trust::Given("release.pub".into());
        Keys { given: Some(Key { text: self.public_key.clone(), trust }), development: None }
    }
}
