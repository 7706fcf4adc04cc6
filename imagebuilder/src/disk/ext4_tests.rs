//! Filesystems of many shapes, judged by `e2fsck` and read back by `debugfs`.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use proptest::prelude::{ProptestConfig, Strategy, prop, proptest};
use rstest::rstest;
use uuid::Uuid;

use super::{Ext4Error, Identity, build};
use crate::disk::extents::Extents;
use crate::disk::testbench::Toolbox;
use crate::disk::{Content, SourceFile};

fn identity() -> Identity {
    Identity { label: "STORE", uuid: Uuid::from_u128(0x1234_5678_9abc_def0), time: 1_760_000_000 }
}

/// Writes the image's data, and only that.
fn image(extents: &Extents, dir: &Path) -> String {
    let path = dir.join("store.img");
    let file = fs_err::File::create(&path).expect("a file");
    file.set_len(extents.size()).expect("a size");
    let mut reader = extents.reader();
    let mut at = 0;
    while let Some(next) = extents.next_data(at) {
        at = next / 4096 * 4096;
        let mut block = [0; 4096];
        reader.read_at(at, &mut block).expect("reads");
        file.file().write_all_at(&block, at).expect("writes");
        at += 4096;
    }
    path.display().to_string()
}

fn bytes(path: &str, bytes: Vec<u8>) -> SourceFile {
    SourceFile { path: path.to_owned(), content: Content::Bytes(bytes) }
}

/// A file of zeros that takes no room.
fn sparse(dir: &Path, path: &str, size: u64) -> SourceFile {
    let source = dir.join(path.replace('/', "_"));
    fs_err::File::create(&source).expect("a file").set_len(size).expect("a size");
    SourceFile { path: path.to_owned(), content: Content::File { path: source, bytes: size } }
}

fn trees() -> impl Strategy<Value = Vec<SourceFile>> {
    let part = "[a-z]{1,3}|[a-f0-9]{64}|é[a-z]{0,120}";
    let path = prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"));
    let content = prop::collection::vec(prop::num::u8::ANY, 0..9000);
    prop::collection::btree_map(path, content, 0..40).prop_map(|files: BTreeMap<String, Vec<u8>>| {
        // A path that is another one's folder cannot be a file.
        let is_folder = |path: &String| files.keys().any(|other| other.starts_with(&format!("{path}/")));
        files.iter().filter(|(path, _)| !is_folder(path)).map(|(path, content)| bytes(path, content.clone())).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_tree_is_clean_for_e2fsck_and_reads_back(files in trees()) {
        let toolbox = Toolbox::find();
        let dir = tempfile::tempdir().expect("a folder");
        let image = image(&build(&files, &identity()).expect("a filesystem"), dir.path());
        toolbox.check(&["e2fsck", "-fn", &image]);
        let out = dir.path().join("out");
        fs_err::create_dir_all(&out).expect("a folder");
        toolbox.check(&["debugfs", "-R", &format!("rdump / {}", out.display()), &image]);
        for file in &files {
            let Content::Bytes(expected) = &file.content else { unreachable!("bytes only") };
            assert_eq!(&fs_err::read(out.join(&file.path)).expect("read back"), expected);
        }
    }
}

#[rstest]
#[case::within_a_group(100 << 20, 1)]
#[case::several_extents(500 << 20, 4)]
#[case::extents_in_a_node(600 << 20, 5)]
#[case::many_groups(9 << 30, 72)]
#[case::several_extent_nodes(45 << 30, 360)]
fn large_files_are_contiguous_and_clean(#[case] size: u64, #[case] extents: usize) {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let files =
        [bytes("first", b"1".to_vec()), sparse(dir.path(), "store/large", size), bytes("z/last", vec![7; 5000])];
    let image = image(&build(&files, &identity()).expect("a filesystem"), dir.path());
    let said = toolbox.check(&["e2fsck", "-fn", &image]);
    assert!(said.contains("0.0% non-contiguous"), "{said}");
    let listed = toolbox.check(&["debugfs", "-R", "ex /store/large", &image]);
    let leaves =
        listed.lines().filter(|line| line.trim_start().starts_with("0/ 0") || line.trim_start().starts_with("1/ 1"));
    assert_eq!(leaves.count(), extents, "{listed}");
}

#[test]
fn thousands_of_blobs_in_one_folder_are_clean() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let files: Vec<_> = (0..3000).map(|number| bytes(&format!("store/{number:064x}"), vec![1; 10])).collect();
    let image = image(&build(&files, &identity()).expect("a filesystem"), dir.path());
    toolbox.check(&["e2fsck", "-fn", &image]);
}

#[test]
fn there_is_no_free_block_and_writing_is_refused() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let image = image(&build(&[bytes("a/b", vec![1; 100])], &identity()).expect("a filesystem"), dir.path());
    let said = toolbox.check(&["dumpe2fs", "-h", &image]);
    for expected in ["Filesystem volume name:   STORE", "Free blocks:              0", "read-only"] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(!said.contains("has_journal"), "{said}");
}

#[rstest]
#[case::absolute("/a")]
#[case::ends_with_a_slash("a/")]
#[case::parent("a/../b")]
#[case::empty("")]
fn a_path_that_cannot_be_stored_is_refused(#[case] path: &str) {
    let error = build(&[bytes(path, Vec::new())], &identity()).expect_err("a bad path");
    assert!(matches!(error, Ext4Error::Path(_)), "{error}");
}

#[rstest]
#[case::a_file_twice(&["a", "a"])]
#[case::a_file_that_is_a_folder(&["a", "a/b"])]
#[case::a_folder_that_is_a_file(&["a/b", "a"])]
fn a_path_that_is_there_twice_is_refused(#[case] paths: &[&str]) {
    let files: Vec<_> = paths.iter().map(|path| bytes(path, Vec::new())).collect();
    assert!(matches!(build(&files, &identity()), Err(Ext4Error::Twice(_))));
}
