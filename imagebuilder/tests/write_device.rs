//! `foothold write` on real block devices: loop devices that the test makes and takes away.
//!
//! Needs root, loop devices, and `losetup`, `mkfs.ext4`, `mount`, `dmsetup`, `sfdisk`; without them it says so and passes.

use std::path::{Path, PathBuf};

use assert_cmd::cargo::cargo_bin_cmd;
use foothold::disk::gpt::{self, Partition};
use uuid::Uuid;

/// Runs a tool; its stdout, if it succeeded.
#[expect(clippy::disallowed_methods, reason = "the bench needs the host's own tools")]
fn tool(program: &str, args: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device on a file of that size; gone when dropped.
struct Loop {
    device: String,
    file: PathBuf,
}

impl Loop {
    fn new(dir: &Path, bytes: u64, block: u64) -> Option<Self> {
        let file = dir.join("backing");
        fs_err::File::create(&file).expect("a file").set_len(bytes).expect("its length");
        let (file_name, block) = (file.to_str().expect("UTF-8"), block.to_string());
        let device = tool("losetup", &["--find", "--show", "--partscan", "--sector-size", &block, file_name]);
        if device.is_none() {
            eprint("no loop device can be made here: nothing was tested");
        }
        Some(Self { device: device?, file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tool("losetup", &["--detach", &self.device]);
    }
}

#[expect(clippy::print_stderr, reason = "a test that could not test has to say so")]
fn eprint(text: &str) {
    eprintln!("{text}");
}

/// A raw image; with one partition, when that fits.
fn image(dir: &Path, bytes: usize) -> PathBuf {
    let mut content: Vec<u8> =
        (0..bytes).map(|i| u8::try_from((i / 13 + i / 5003) % 251).expect("below 256")).collect();
    let (start, guid) = (1 << 20, Uuid::from_u128(1));
    let one = Partition {
        number: 3,
        name: "STORE".to_owned(),
        type_guid: gpt::TYPE_LINUX,
        guid,
        start,
        bytes: 4 << 20,
        attributes: 0,
    };
    let partitions = if bytes >= 8 << 20 { vec![one] } else { Vec::new() };
    let table = gpt::encode(bytes as u64, gpt::SECTOR, Uuid::from_u128(7), &partitions);
    content[..table.primary.len()].copy_from_slice(&table.primary);
    content[bytes - table.backup.len()..].copy_from_slice(&table.backup);
    let path = dir.join("image.raw");
    fs_err::write(&path, content).expect("an image");
    path
}

/// Exit code and stderr of `foothold write`.
fn write(image: &Path, device: &str) -> (Option<i32>, String) {
    let output = cargo_bin_cmd!("foothold").arg("write").arg(image).arg(device).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn bench(bytes: u64) -> Option<(tempfile::TempDir, Loop)> {
    bench_with_blocks(bytes, 512)
}

fn bench_with_blocks(bytes: u64, block: u64) -> Option<(tempfile::TempDir, Loop)> {
    let dir = tempfile::tempdir().expect("a directory");
    let device = Loop::new(dir.path(), bytes, block)?;
    Some((dir, device))
}

#[test]
fn an_unused_device_holds_the_image_afterwards_and_no_old_partition_table() {
    let Some((dir, device)) = bench(16 << 20) else { return };
    fs_err::write(&device.file, vec![0xEE; 16 << 20]).expect("old content");
    let image = image(dir.path(), (9 << 20) + 512);
    let (code, stderr) = write(&image, &device.device);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("read back and compared"), "{stderr}");
    let (written, expected) = (fs_err::read(&device.file).expect("the file"), fs_err::read(image).expect("the image"));
    assert!(written[..expected.len()] == expected, "other bytes");
    assert!(written[15 << 20..].iter().all(|byte| *byte == 0), "the end still holds what was there");
}

#[test]
fn a_disk_with_large_blocks_gets_a_table_that_counts_in_them() {
    let Some((dir, device)) = bench_with_blocks(16 << 20, 4096) else { return };
    let image = image(dir.path(), 9 << 20);
    let (code, stderr) = write(&image, &device.device);
    assert_eq!(code, Some(0), "{stderr}");
    let blocks = ::gpt::disk::LogicalBlockSize::Lb4096;
    let table = ::gpt::GptConfig::new().writable(false).logical_block_size(blocks);
    let table = table.open(&device.file).expect("a table that counts in 4096 bytes");
    table.primary_header().expect("whole at the start");
    let store = &table.partitions()[&3];
    assert_eq!((store.name.as_str(), store.first_lba, store.last_lba), ("STORE", 256, 1279));
    let output = cargo_bin_cmd!("foothold").arg("verify").arg(&device.device).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("counts in blocks"), "{stderr}");
    let (written, expected) = (fs_err::read(&device.file).expect("the file"), fs_err::read(image).expect("the image"));
    assert!(written[1 << 20..5 << 20] == expected[1 << 20..5 << 20], "other bytes");
}

#[test]
fn an_image_copied_to_large_blocks_as_it_is_is_told() {
    let Some((dir, device)) = bench_with_blocks(16 << 20, 4096) else { return };
    let image = image(dir.path(), 9 << 20);
    fs_err::copy(&image, &device.device).expect("copied");
    let output = cargo_bin_cmd!("foothold").arg("verify").arg(&device.device).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("counts in blocks of 512 bytes, the device's have 4096"), "{stderr}");
}

#[test]
fn a_mounted_device_is_refused_and_untouched() {
    let Some((dir, device)) = bench(16 << 20) else { return };
    let point = dir.path().join("mounted");
    fs_err::create_dir(&point).expect("a directory");
    let point = point.to_str().expect("UTF-8");
    let made = tool("mkfs.ext4", &["-q", &device.device]).and_then(|_| tool("mount", &[&device.device, point]));
    if made.is_none() {
        return eprint("nothing can be mounted here: nothing was tested");
    }
    let (code, stderr) = write(&image(dir.path(), 1 << 20), &device.device);
    tool("umount", &[point]);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains(&format!("is mounted on `{point}`")), "{stderr}");
    assert!(stderr.contains("hint: if its content may be lost: `umount "), "{stderr}");
    assert!(tool("mount", &[&device.device, point]).is_some(), "the file system is damaged");
    tool("umount", &[point]);
}

#[test]
fn a_partition_is_refused_and_a_disk_with_a_mounted_partition_too() {
    let Some((dir, device)) = bench(32 << 20) else { return };
    let script = dir.path().join("table");
    fs_err::write(&script, "label: gpt\nsize=20MiB\n").expect("a script");
    let shell = format!("sfdisk -q {} < {} && partx -u {0}", device.device, script.display());
    let partition = format!("{}p1", device.device);
    let made = tool("sh", &["-c", &shell]);
    if made.is_none() || !Path::new(&partition).exists() {
        return eprint("no partitions on loop devices here: nothing was tested");
    }
    let image = image(dir.path(), 1 << 20);
    let (code, stderr) = write(&image, &partition);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains("is a partition of `loop"), "{stderr}");
    let point = dir.path().join("mounted");
    fs_err::create_dir(&point).expect("a directory");
    let point = point.to_str().expect("UTF-8");
    if tool("mkfs.ext4", &["-q", &partition]).and_then(|_| tool("mount", &[&partition, point])).is_some() {
        let (code, stderr) = write(&image, &device.device);
        tool("umount", &[point]);
        assert_eq!(code, Some(64), "{stderr}");
        assert!(stderr.contains("p1` is mounted on"), "{stderr}");
    }
}

#[test]
fn a_device_below_another_one_is_refused() {
    let Some((dir, device)) = bench(16 << 20) else { return };
    let name = format!("foothold-write-test-{}", std::process::id());
    let table = format!("0 2048 linear {} 0", device.device);
    if tool("dmsetup", &["create", &name, "--table", &table]).is_none() {
        return eprint("no device mapper here: nothing was tested");
    }
    let (code, stderr) = write(&image(dir.path(), 1 << 20), &device.device);
    tool("dmsetup", &["remove", &name]);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains("is part of `dm-"), "{stderr}");
}

#[test]
fn a_device_that_is_too_small_is_refused_before_anything_is_written() {
    let Some((dir, device)) = bench(1 << 20) else { return };
    let (code, stderr) = write(&image(dir.path(), (1 << 20) + 512), &device.device);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains("has 1048576 bytes, the image has 1049088"), "{stderr}");
    assert!(fs_err::read(&device.file).expect("the file").iter().all(|byte| *byte == 0));
}
