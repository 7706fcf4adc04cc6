//! A file is read out of a layer by the toolbox's own program: `foothold run` finds kubectl so.

use std::path::Path;

use foothold::layer::squashfs::{self, Packing};
use foothold::store::Cache;
use foothold::toolbox::Toolbox;

#[test]
fn a_file_of_a_layer_is_read_and_one_that_is_not_there_is_named() {
    let root = foothold_qemu::Tools::locate_or_make().expect("a toolbox").root().to_owned();
    let toolbox = Toolbox::at(&root, Path::new(env!("CARGO_BIN_EXE_foothold")));
    let dir = tempfile::tempdir().expect("a folder");
    let cache = Cache::open(dir.path()).expect("a cache");
    let work = cache.work_dir().expect("a folder");
    fs_err::create_dir_all(work.path().join("tree/usr/bin")).expect("folders");
    fs_err::write(work.path().join("tree/usr/bin/kubectl"), b"a program").expect("written");
    let packing = Packing { level: 1, all_root: true, time: 1 << 30, order: Vec::new() };
    squashfs::make(&toolbox, &work, "tree", "layer", &packing).expect("a layer");
    let layer = work.path().join("layer");
    // As a layer has its tree of hashes behind it.
    let mut bytes = fs_err::read(&layer).expect("read");
    bytes.resize(bytes.len() + 8192, 7);
    fs_err::write(&layer, bytes).expect("written");
    assert_eq!(squashfs::file_of(&toolbox, &layer, "usr/bin/kubectl").expect("the file"), b"a program");
    let missing = squashfs::file_of(&toolbox, &layer, "usr/bin/none").expect_err("it is not there");
    assert!(format!("{missing:#}").contains("usr/bin/none"), "{missing:#}");
}
