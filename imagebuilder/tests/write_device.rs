//! `foothold write` on real block devices: loop devices that the test makes and takes away.
//!
//! Needs root, loop devices, and `losetup`, `mkfs.ext4`, `mount`, `dmsetup`, `sfdisk`; without them it says so and passes.

use std::path::{Path, PathBuf};

use assert_cmd::cargo::cargo_bin_cmd;

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
    fn new(dir: &Path, bytes: u64) -> Option<Self> {
        let file = dir.join("backing");
        fs_err::File::create(&file).expect("a file").set_len(bytes).expect("its length");
        let device = tool("losetup", &["--find", "--show", "--partscan", file.to_str().expect("UTF-8")]);
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

fn image(dir: &Path, bytes: usize) -> PathBuf {
    let mut content: Vec<u8> =
        (0..bytes).map(|i| u8::try_from((i / 13 + i / 5003) % 251).expect("below 256")).collect();
    content[512..520].copy_from_slice(b"EFI PART");
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
    let dir = tempfile::tempdir().expect("a directory");
    let device = Loop::new(dir.path(), bytes)?;
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
