//! Damage to what firmware starts, in images written by the code that writes real ones.

use std::path::{Path, PathBuf};

use rstest::rstest;

use super::Medium;
use super::bytes::Image;
use super::eltorito::{self, SECTOR};
use super::tests::{flip, place_of, problems, short};
use crate::boot::esp;
use crate::disk::layout::BIOS_BOOT_AT;
use crate::disk::testbench::Toolbox;
use crate::disk::{Content, Tools as _};
use crate::format::Format;
use crate::release::testbench::Sample;

/// What is said about a flipped byte, without digests.
fn said(image: &Path, sample: &Sample, at: u64) -> Vec<String> {
    flip(image, at);
    let found = problems(image, &sample.keys()).iter().map(|text| short(text)).collect();
    flip(image, at);
    found
}

fn written(format: Format) -> (Sample, PathBuf) {
    let sample = Sample::new();
    let image = sample.write(format);
    (sample, image)
}

#[rstest]
#[case::raw(Format::Raw, "the partition `ESP`")]
#[case::iso(Format::Iso, "the CD's ESP image")]
fn a_flipped_byte_of_what_uefi_starts_is_named(#[case] format: Format, #[case] esp: &str) {
    let (sample, image) = written(format);
    for (in_tree, path) in [
        ("usr/lib/shim/shimx64.efi.signed", "EFI/BOOT/BOOTX64.EFI"),
        ("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "EFI/BOOT/grubx64.efi"),
    ] {
        let program = fs_err::read(Toolbox::find().file(in_tree)).expect("the program");
        let at = place_of(&image, &program[..512]) + 300_000;
        assert_eq!(
            said(&image, &sample, at),
            [format!("`{path}` in {esp}: it was changed; needed by starting with UEFI")]
        );
    }
}

#[test]
fn a_flipped_byte_of_a_menu_is_named_whichever_it_is() {
    let sample = Sample::new();
    let files = esp::loader_files(&sample.plan.entries, &Toolbox::find()).expect("files");
    let Some(Content::Bytes(menu)) = files.into_iter().map(|file| file.content).next_back() else { panic!("a menu") };
    for (format, expected) in [
        (Format::Raw, vec!["in the partition `ESP`: it was changed; needed by starting with UEFI"]),
        (
            Format::Iso,
            vec![
                "in the CD's ESP image: it was changed; needed by starting with UEFI",
                "of the CD: it was changed; needed by starting with BIOS",
            ],
        ),
    ] {
        let image = sample.write(format);
        let bytes = fs_err::read(&image).expect("the image");
        let sectors = bytes.chunks(512).enumerate().filter(|(_, sector)| menu.starts_with(sector));
        let mut found: Vec<_> =
            sectors.flat_map(|(number, _)| said(&image, &sample, number as u64 * 512 + 700)).collect();
        found.sort();
        let expected: Vec<_> = expected.iter().map(|text| format!("`EFI/debian/grub.cfg` {text}")).collect();
        assert_eq!(found, expected, "{format:?}");
    }
}

#[test]
fn a_flipped_byte_of_what_a_bios_starts_from_a_disk_is_named() {
    let (sample, image) = written(Format::Raw);
    let is_named = |place: &str| [format!("{place}: it was changed; needed by starting with BIOS")];
    for at in [0, 0x5C, 439] {
        assert_eq!(said(&image, &sample, at), is_named("the code of the master boot record"), "byte {at}");
    }
    for at in [0, 500, 30_000] {
        assert_eq!(said(&image, &sample, BIOS_BOOT_AT + at), is_named("GRUB's core image"), "byte {at}");
    }
    assert_eq!(said(&image, &sample, 440), Vec::<String>::new(), "the disk's signature is not code");
}

#[test]
fn a_flipped_byte_of_what_a_bios_starts_from_a_cd_is_named_addresses_too() {
    let (sample, image) = written(Format::Iso);
    let images = eltorito::boot_images(&Image::open(&image).expect("opens")).expect("a catalog");
    let is_named = |place: &str| [format!("{place}: it was changed; needed by starting with BIOS")];
    for at in [0, 0x1B0, 439] {
        assert_eq!(said(&image, &sample, at), is_named("the code of the master boot record"), "byte {at}");
    }
    for at in [0, 8, 12, 20, 40, 2548, 30_000] {
        assert_eq!(said(&image, &sample, images.bios + at), is_named("the CD's boot image for BIOS"), "byte {at}");
    }
    let catalog = place_of(&image, b"\x01\0\0\0");
    for at in [0, 28, 32, 40, 65, 96, 104] {
        assert_ne!(said(&image, &sample, catalog + at), Vec::<String>::new(), "byte {at} of the boot catalog");
    }
    let record = said(&image, &sample, 17 * SECTOR + 20);
    assert_eq!(record[0], "image: the CD's boot catalog cannot be read: the boot record is not of El Torito");
}

#[test]
fn a_list_that_is_missing_changed_or_of_another_release_is_a_problem() {
    let mut sample = Sample::new();
    let place = format!("`foothold/releases/{}/boot-files.json`", sample.id);
    let image = sample.write(Format::Iso);
    let at = place_of(&image, b"{\n  \"release\"") + 20;
    let signature = "the signature is not by this key, or the file was changed";
    assert_eq!(said(&image, &sample, at), [format!("{place}: {signature}")]);

    sample.plan.store.retain(|file| !file.path.ends_with("boot-files.json.minisig"));
    let image = sample.write(Format::Iso);
    assert_eq!(problems(&image, &sample.keys()), [format!("{place}: it or its signature is missing")]);

    let other = Sample::with_boot_files(|files| files.release = "0".repeat(64));
    let image = other.write(Format::Iso);
    let expected = format!("boot-files.json`: it belongs to the release {}", "0".repeat(64));
    let found = problems(&image, &other.keys());
    assert!(found.len() == 1 && found[0].ends_with(&expected), "{found:?}");
}

#[test]
fn a_program_that_is_gone_is_missing() {
    let sample = Sample::with_boot_files(|files| {
        let shim = files.esp["EFI/BOOT/BOOTX64.EFI"].clone();
        files.esp.insert("EFI/BOOT/other.efi".to_owned(), shim);
    });
    let image = sample.write(Format::Qcow2);
    let expected = "`EFI/BOOT/other.efi` in the partition `ESP`: it is missing; needed by starting with UEFI";
    assert_eq!(problems(&image, &sample.keys()), [expected]);
    assert!(Medium::open(&image).is_ok());
}
