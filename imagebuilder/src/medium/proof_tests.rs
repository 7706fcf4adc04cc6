//! A proof in whole images: nothing but its place changes, and only a good one counts.

use std::path::Path;

use agent_api::proof::{self, Proof, RESERVED};
use rstest::rstest;

use super::Medium;
use super::keys::{Keys, Verdict};
use super::proof::{Reserved, State};
use super::tests::problems;
use crate::disk::Tools as _;
use crate::disk::testbench::Toolbox;
use crate::fixtures::proof_of;
use crate::format::{self, Format};
use crate::release::sign::Signer;
use crate::release::testbench::{Sample, signer};
use crate::store::Stamp;

fn state(image: &Path, keys: &Keys) -> State {
    let medium = Medium::open(image).expect("a medium");
    let found = medium.releases().expect("readable").pop().expect("a release");
    State::of(&found, &Verdict::of(&medium, &found, keys))
}

fn reserved(image: &Path) -> Reserved {
    let medium = Medium::open(image).expect("a medium");
    let found = medium.releases().expect("readable").pop().expect("a release");
    Reserved::find(&medium, &found).expect("readable").expect("a place")
}

fn signed(signer: &Signer, proof: &Proof) -> Vec<u8> {
    let json = serde_json::to_string(proof).expect("JSON");
    let signature = signer.sign(json.as_bytes(), "test").expect("signed");
    proof::place(&json, &signature).expect("it fits")
}

#[rstest]
#[case::raw(Format::Raw)]
#[case::qcow2(Format::Qcow2)]
#[case::iso(Format::Iso)]
fn a_proof_is_put_into_its_place_and_nothing_else_changes(#[case] format: Format) {
    let sample = Sample::new();
    let image = sample.write(format);
    assert_eq!(state(&image, &sample.keys()), State::Absent);
    let before = fs_err::read(&image).expect("reads");
    let proof = proof_of(&sample.id);
    reserved(&image).write(&image, &signed(&sample.signer, &proof)).expect("written");
    assert_eq!(state(&image, &sample.keys()), State::Valid(Box::new(proof)));
    assert_eq!(problems(&image, &sample.keys()), Vec::<String>::new());
    let after = fs_err::read(&image).expect("reads");
    assert_eq!(before.len(), after.len());
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(0 < changed && changed < RESERVED, "{changed} bytes were changed");
    if format == Format::Qcow2 {
        Toolbox::find().run(&["qemu-img", "check", image.to_str().expect("UTF-8")], &[]).expect("qemu-img agrees");
    }
    // Taking it back gives the image that was there before, to the byte.
    reserved(&image).write(&image, &proof::reserve(&sample.id)).expect("written");
    assert!(fs_err::read(&image).expect("reads") == before);
}

#[test]
fn only_a_whole_proof_of_this_release_by_its_key_counts() {
    let sample = Sample::new();
    let image = sample.write(Format::Raw);
    let place = reserved(&image);
    let good = signed(&sample.signer, &proof_of(&sample.id));
    let mut changed = good.clone();
    let at = changed.windows(4).position(|bytes| bytes == b"53.2").expect("the figure");
    changed[at] = b'1';
    let torn = [&good[..512], &proof::reserve(&sample.id)[512..]].concat();
    let dir = tempfile::tempdir().expect("a folder");
    let others = signed(&signer(dir.path()), &proof_of(&sample.id));
    let other_release = signed(&sample.signer, &proof_of(&"ef".repeat(32)));
    let mut last = place;
    for (bytes, word) in [
        (changed, "BROKEN: its signature does not hold"),
        (torn, "BROKEN: the reserved place holds neither"),
        (others, "FOREIGN: it was signed with another key"),
        (other_release, "FOREIGN: it proves the release ef"),
        (proof::reserve(&"ef".repeat(32)), "FOREIGN: the place is reserved for another release"),
    ] {
        last.write(&image, &bytes).expect("written");
        last = reserved(&image);
        let found = state(&image, &sample.keys());
        assert!(found.sentence().starts_with(word), "{found:?}");
        let named = problems(&image, &sample.keys());
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(named[0].starts_with(&format!("`foothold/releases/{}/proof.json`: ", sample.id)), "{named:?}");
    }
    last.write(&image, &good).expect("written");
    assert!(matches!(state(&image, &sample.keys()), State::Valid(_)));
}

#[rstest]
#[case::raw(Format::Raw)]
#[case::qcow2(Format::Qcow2)]
fn a_proved_output_is_the_one_that_was_written(#[case] format: Format) {
    let sample = Sample::new();
    let image = sample.write(format);
    let recall = || format::recall(format, &sample.plan, &Toolbox::find()).expect("it looks");
    let first = recall().expect("just written");
    let before = Stamp::of(&image).expect("a stamp");
    reserved(&image).write(&image, &signed(&sample.signer, &proof_of(&sample.id))).expect("written");
    assert_eq!(recall(), None, "nobody has said that the change was meant");
    format::follow(&sample.plan.cache, &image, before).expect("remembered");
    let second = recall().expect("it is the same output");
    assert_ne!(first.sha256, second.sha256);
    assert_eq!(second.sha256, crate::store::hash::file(&image).expect("hashed").digest.hex());
    // A change that nobody meant is still seen, also after a later proof.
    let before = Stamp::of(&image).expect("a stamp");
    fs_err::OpenOptions::new().append(true).open(&image).expect("opens").set_len(first.bytes + 512).expect("longer");
    format::follow(&sample.plan.cache, &image, before).expect("remembered");
    let grown = Stamp::of(&image).expect("a stamp");
    fs_err::OpenOptions::new().write(true).open(&image).expect("opens").set_len(first.bytes).expect("shorter");
    format::follow(&sample.plan.cache, &image, before).expect("nothing to remember");
    assert_ne!(grown, Stamp::of(&image).expect("a stamp"));
    assert_eq!(recall(), None);
}
