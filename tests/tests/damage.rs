//! One flipped byte in a layer ends in a message that names the layer, never in a silent hang.

use std::os::unix::fs::FileExt;
use std::path::Path;

use foothold::cli::{Attach, MachineFirmware};
use foothold::medium::Medium;
use foothold_tests::appliance::PATIENCE;
use foothold_tests::{Appliance, How};

/// Copies the image sparsely and flips one byte of the layer's blob, `at` bytes into it.
fn with_a_flip(image: &Path, blob: &Path, at: usize, into: &Path) {
    let copied = fs_err::copy(image, into).expect("copied");
    let (image, blob) = (fs_err::read(image).expect("the image"), fs_err::read(blob).expect("the blob"));
    let needle = &blob[at..at + 4096];
    // A store's files begin at blocks, and so does every sample of them.
    let step = if at.is_multiple_of(512) { 512 } else { 1 };
    let found = (0..image.len() - 4096).step_by(step).find(|start| &image[*start..*start + 4096] == needle);
    let offset = found.unwrap_or_else(|| panic!("the blob is not in the image of {copied} bytes")) as u64;
    let file = fs_err::OpenOptions::new().write(true).open(into).expect("opened");
    file.file().write_all_at(&[needle[0] ^ 0x40], offset).expect("flipped");
}

#[test]
fn a_flipped_byte_in_a_layer_is_named_on_the_screen() {
    let appliance = Appliance::get();
    let dir = tempfile::tempdir().expect("a folder");
    let image = dir.path().join("damaged.raw");
    let medium = Medium::open(&appliance.image("raw")).unwrap_or_else(|error| panic!("{error}"));
    let releases = medium.releases().expect("the image's releases");
    let release = releases.first().expect("a release").release().expect("a manifest");
    let layer = release.layers.iter().find(|layer| layer.name == "kubernetes").expect("the layer");
    let blob = appliance.builder().cache.blob_path(&layer.digest);
    with_a_flip(&appliance.image("raw"), &blob, 4096 * 100, &image);
    let how = How { attach: Attach::Usb, firmware: MachineFirmware::Bios, image: Some(&image), ..How::default() };
    let machine = appliance.boot(how);
    // The place is read when the first pod gets its network, or by the guard after `ready`, whichever is first.
    let told = machine.session.vm.wait_serial(PATIENCE, "MEDIUM DAMAGED: layer `kubernetes`");
    told.unwrap_or_else(|error| panic!("{error}"));
    assert!(machine.session.vm.serial_text().contains("block 100 is not what was"));
}
