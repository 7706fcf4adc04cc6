//! Whole images, judged by other people's tools.

use std::path::Path;

use agent_api::menu::MenuEntry;

use super::qcow2::Compression;
use super::{Format, ImagePlan, OutputFile, write};
use crate::boot::{BootEntries, BootEntry};
use crate::disk::testbench::Toolbox;
use crate::disk::{Content, SourceFile};

/// A release with a kernel, an initrd and files that are empty, small, not a whole block, and sparse.
pub(super) fn plan(dir: &Path) -> ImagePlan {
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs_err::write(&path, bytes).expect("a source file");
        path
    };
    let noise: Vec<u8> = (0_u32..300_000).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    let sparse = file("sparse", b"");
    let opened = fs_err::OpenOptions::new().write(true).open(&sparse).expect("opens");
    opened.set_len(5 << 20).expect("a size");
    std::os::unix::fs::FileExt::write_all_at(opened.file(), b"middle", 3 << 20).expect("data");
    let entry = |id: &str, title: &str| BootEntry {
        entry: MenuEntry {
            release_id: id.repeat(32),
            title: title.to_owned(),
            parameters: vec!["quiet".to_owned(), "foothold.site=a b".to_owned()],
        },
        kernel: file("vmlinuz", &noise),
        initrd: file("initrd", &noise[..500_001]),
    };
    let source = |path: &str, content| SourceFile { path: path.to_owned(), content };
    let content = |name: &str, bytes: &[u8]| {
        let path = file(name, bytes);
        Content::File { path, bytes: bytes.len() as u64 }
    };
    ImagePlan {
        release_id: "ab".repeat(32),
        built: 1_760_000_000,
        name: "edge".to_owned(),
        version: "1.4.0".to_owned(),
        store: vec![
            source("foothold/releases/abc/release.json", Content::Bytes(b"{}".to_vec())),
            source(&format!("foothold/store/sha256/{}", "1".repeat(64)), content("noise", &noise)),
            source(&format!("foothold/store/sha256/{}", "2".repeat(64)), content("empty", b"")),
            source(
                &format!("foothold/store/sha256/{}", "3".repeat(64)),
                Content::File { path: sparse, bytes: 5 << 20 },
            ),
        ],
        entries: BootEntries {
            current: entry("ab", "edge 1.4.0"),
            previous: Some(entry("cd", "edge 1.3.0")),
            consoles: vec!["tty0".to_owned(), "ttyS0".to_owned()],
        },
        site: vec![
            source("README.txt", Content::Bytes(b"put `site.yaml` here\n".to_vec())),
            source("site.yaml.example", Content::Bytes(b"kind: Site\n".to_vec())),
        ],
        virtual_bytes: None,
        max_bytes: None,
        compression: Compression::Zstd(3),
        cache: dir.join("cache"),
        out: dir.join("out"),
    }
}

pub(super) fn written(format: Format, plan: &ImagePlan, toolbox: &Toolbox) -> OutputFile {
    write(format, plan, toolbox, &mut |done, total| assert!(done <= total)).expect("an image")
}

fn path(file: &OutputFile) -> &str {
    file.file.to_str().expect("UTF-8")
}

/// Cuts a partition out of a raw image.
fn cut(image: &str, start_mib: u64, len_mib: u64, to: &Path) -> String {
    use std::io::{Read as _, Seek as _};
    let mut source = fs_err::File::open(image).expect("the image");
    source.seek(std::io::SeekFrom::Start(start_mib << 20)).expect("seeks");
    let mut target = fs_err::File::create(to).expect("a file");
    std::io::copy(&mut source.take(len_mib << 20), &mut target).expect("copies");
    to.display().to_string()
}

#[test]
fn a_raw_disk_is_accepted_by_sgdisk_e2fsck_and_fsck_fat() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let file = written(Format::Raw, &plan(dir.path()), &toolbox);
    let said = toolbox.check(&["sgdisk", "-v", path(&file)]);
    assert!(said.contains("No problems found"), "{said}");
    let table = toolbox.check(&["sgdisk", "-p", path(&file)]);
    for name in ["BIOS", "ESP", "STORE", "SITE"] {
        assert!(table.contains(name), "{table}");
    }
    let esp = cut(path(&file), 2, 128, &dir.path().join("esp.img"));
    toolbox.check(&["fsck.fat", "-n", &esp]);
    let store = cut(path(&file), 130, 7, &dir.path().join("store.img"));
    toolbox.check(&["e2fsck", "-fn", &store]);
    let site = cut(path(&file), 137, 64, &dir.path().join("site.img"));
    toolbox.check(&["fsck.fat", "-n", &site]);
    let hash = toolbox_free_sha256(path(&file));
    assert_eq!(hash, file.sha256);
}

fn toolbox_free_sha256(path: &str) -> String {
    hex::encode(<sha2::Sha256 as sha2::Digest>::digest(fs_err::read(path).expect("reads")))
}

#[test]
fn a_qcow2_is_accepted_by_qemu_img_and_holds_a_whole_disk() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    let file = written(Format::Qcow2, &plan, &toolbox);
    toolbox.check(&["qemu-img", "check", path(&file)]);
    let raw = dir.path().join("whole.raw").display().to_string();
    toolbox.check(&["qemu-img", "convert", "-O", "raw", path(&file), &raw]);
    assert_eq!(fs_err::metadata(&raw).expect("the disk").len(), super::DEFAULT_VIRTUAL_BYTES);
    let said = toolbox.check(&["sgdisk", "-v", &raw]);
    assert!(said.contains("No problems found"), "{said}");
    assert_eq!(toolbox_free_sha256(path(&file)), file.sha256);
}

#[test]
fn the_qcow2_of_a_disk_of_the_same_size_equals_the_raw_image() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plan = plan(dir.path());
    let raw = written(Format::Raw, &plan, &toolbox);
    plan.virtual_bytes = Some(raw.bytes);
    let qcow2 = written(Format::Qcow2, &plan, &toolbox);
    toolbox.check(&["qemu-img", "compare", path(&raw), path(&qcow2)]);
}

#[test]
fn the_same_release_gives_the_same_bytes_in_another_folder_and_order() {
    let toolbox = Toolbox::find();
    let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    for format in [Format::Raw, Format::Qcow2, Format::Iso] {
        let first = written(format, &plan(one.path()), &toolbox);
        let mut shuffled = plan(other.path());
        shuffled.store.reverse();
        let second = written(format, &shuffled, &toolbox);
        assert_eq!((first.bytes, first.sha256), (second.bytes, second.sha256), "{format:?}");
    }
}

#[test]
fn a_cd_image_boots_both_firmwares_for_xorriso_and_is_a_sound_disk_for_sgdisk() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let file = written(Format::Iso, &plan(dir.path()), &toolbox);
    let said = toolbox.check(&[
        "xorriso",
        "-indev",
        path(&file),
        "-report_el_torito",
        "plain",
        "-report_system_area",
        "plain",
    ]);
    for expected in ["BIOS  y   none", "UEFI  y   none", "boot-info-table grub2-boot-info", "EFI System Partition"] {
        assert!(said.contains(expected), "{said}");
    }
    let said = toolbox.check(&["sgdisk", "-v", path(&file)]);
    assert!(said.contains("No problems found"), "{said}");
    assert_eq!(toolbox_free_sha256(path(&file)), file.sha256);
}

#[test]
fn a_cd_image_holds_the_files_with_roots_ownership() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    let file = written(Format::Iso, &plan, &toolbox);
    let listed = toolbox.check(&["xorriso", "-indev", path(&file), "-find", "/", "-exec", "lsdl"]);
    // `e` is El Torito's catalog, which no source file stands behind.
    let expected = ["drwxr-xr-x    1 0        0 ", "-r--r--r--    1 0        0 ", "erw-r--r--    1 0        0 "];
    assert!(listed.lines().all(|line| expected.iter().any(|start| line.starts_with(start))), "{listed}");
    let out = dir.path().join("extracted").display().to_string();
    toolbox.check(&["xorriso", "-osirrox", "on", "-indev", path(&file), "-extract", "/", &out]);
    for source in &plan.store {
        let extracted = fs_err::read(Path::new(&out).join(&source.path)).expect("extracted");
        let expected = match &source.content {
            Content::Bytes(bytes) | Content::Reserved(bytes) => bytes.clone(),
            Content::File { path, .. } => fs_err::read(path).expect("the source"),
        };
        assert!(extracted == expected, "`{}` differs", source.path);
    }
    // Menus of others start the image's own.
    let loopback = fs_err::read_to_string(Path::new(&out).join("boot/grub/loopback.cfg")).expect("extracted");
    let named = loopback.strip_prefix("configfile /").expect("it names a menu").trim_end();
    assert!(Path::new(&out).join(named).is_file(), "{loopback}");
}

#[test]
fn the_store_holds_the_files_and_stays_within_its_size() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    let file = written(Format::Raw, &plan, &toolbox);
    let store = cut(path(&file), 130, 7, &dir.path().join("store.img"));
    let dumped = dir.path().join("dumped");
    fs_err::create_dir_all(&dumped).expect("a folder");
    for source in &plan.store {
        let to = dumped.join("file").display().to_string();
        toolbox.check(&["debugfs", "-R", &format!("dump /{} {to}", source.path), &store]);
        assert_eq!(fs_err::metadata(&to).expect("dumped").len(), source.content.len(), "{}", source.path);
    }
}

#[test]
fn an_image_beyond_max_size_is_refused_with_numbers_and_leaves_nothing() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let mut plan = plan(dir.path());
    plan.max_bytes = Some(3 << 20);
    for (format, needs) in
        [(Format::Raw, "the image needs 202 MiB, `maxSize` allows 3 MiB"), (Format::Iso, "the iso file has")]
    {
        let error = write(format, &plan, &toolbox, &mut |_, _| ()).expect_err("too large").to_string();
        assert!(error.starts_with(needs) && error.contains("hint: raise `maxSize`"), "{error}");
    }
    assert_eq!(fs_err::read_dir(&plan.out).expect("the folder").count(), 0);
}

#[test]
fn a_disk_smaller_than_its_content_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plan = plan(dir.path());
    plan.virtual_bytes = Some(64 << 20);
    let error = write(Format::Qcow2, &plan, &Toolbox::find(), &mut |_, _| ()).expect_err("too small").to_string();
    assert!(error.starts_with("the disk is to have 64 MiB, the content needs 202 MiB"), "{error}");
}

#[test]
fn a_damaged_core_image_in_the_cache_is_made_anew() {
    let toolbox = Toolbox::find();
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    let first = written(Format::Raw, &plan, &toolbox);
    for entry in fs_err::read_dir(&plan.cache).expect("the cache") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "img") {
            let mut bytes = fs_err::read(&path).expect("reads");
            bytes[5000] ^= 1;
            fs_err::write(&path, bytes).expect("writes");
        }
    }
    assert_eq!(written(Format::Raw, &plan, &toolbox).sha256, first.sha256);
}

#[test]
fn a_source_that_has_changed_its_size_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let plan = plan(dir.path());
    fs_err::write(dir.path().join("noise"), b"short").expect("writes");
    for format in [Format::Raw, Format::Qcow2, Format::Iso] {
        let error = write(format, &plan, &Toolbox::find(), &mut |_, _| ()).expect_err("changed").to_string();
        assert!(error.contains("noise` has 5 bytes, 1200000 expected"), "{error}");
    }
}
