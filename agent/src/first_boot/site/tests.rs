use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use blake2::Digest as _;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::{Origin, Owner, STORED, candidates, find};
use crate::first_boot::Machine;
use crate::host::runner::FakeRunner;
use crate::machine::tests::machine;

fn site(name: &str) -> String {
    format!("apiVersion: foothold.dev/v1\nkind: Site\nhostname: {name}\n")
}

fn with_access(name: &str) -> String {
    format!("{}access: {{ tokenSha256: \"{}\" }}\n", site(name), "ab".repeat(32))
}

/// The box below `root` that was started with this Site on its command line.
fn started_with(root: &Path, text: Option<&str>) -> Machine {
    let box_ = machine(root, FakeRunner::default());
    let line = text.map_or_else(String::new, |text| format!("foothold.site={}", URL_SAFE_NO_PAD.encode(text)));
    Machine::new(root, Arc::new(FakeRunner::default()), box_.release().clone(), box_.facts().clone(), line)
}

fn store(root: &Path, text: &str) {
    let path = root.join(STORED.trim_start_matches('/'));
    fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs_err::write(path, text).expect("written");
}

fn name_of(machine: &Machine) -> (Option<String>, Origin) {
    let found = find(machine).expect("a Site");
    (found.site.hostname, found.origin)
}

#[test]
fn the_first_found_wins_as_long_as_nobody_has_access() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(name_of(&started_with(dir.path(), None)), (None, Origin::Nowhere));
    store(dir.path(), &site("stored"));
    assert_eq!(name_of(&started_with(dir.path(), None)), (Some("stored".to_owned()), Origin::Stored));
    let line = name_of(&started_with(dir.path(), Some(&site("line"))));
    assert_eq!(line, (Some("line".to_owned()), Origin::CommandLine));
    fs_err::remove_file(dir.path().join(STORED.trim_start_matches('/'))).expect("gone");
    assert_eq!(name_of(&started_with(dir.path(), None)), (None, Origin::Nowhere), "it may go again");
}

#[test]
fn a_wrong_one_is_named_with_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path(), &site("A_b"));
    let error = format!("{:#}", find(&started_with(dir.path(), None)).expect_err("wrong"));
    assert!(error.contains("sent by REST: line 3: `hostname`"), "{error}");
    store(dir.path(), "hostname: [");
    find(&started_with(dir.path(), None)).expect_err("no YAML");
    store(dir.path(), &format!("{}networks: {{ dns: [ 10.96.0.10 ] }}\n", site("edge")));
    let error = format!("{:#}", find(&started_with(dir.path(), None)).expect_err("in the cluster"));
    assert!(error.contains("`networks.dns[0]`: 10.96.0.10 lies in `serviceCIDR`"), "{error}");
}

#[test]
fn once_somebody_has_access_another_site_does_not_count() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = started_with(dir.path(), Some(&with_access("first")));
    assert_eq!(name_of(&first), (Some("first".to_owned()), Origin::CommandLine));
    let again = find(&first).expect("the same");
    assert!(again.passed_over.is_empty(), "{:?}", again.passed_over);

    let other = find(&started_with(dir.path(), Some(&with_access("intruder")))).expect("the one in use");
    assert_eq!((other.site.hostname.as_deref(), other.origin), (Some("first"), Origin::Kept));
    assert!(other.passed_over[0].contains("somebody has access to this box already"), "{:?}", other.passed_over);
    let bad = find(&started_with(dir.path(), Some("hostname: ["))).expect("the one in use");
    assert_eq!(bad.site.hostname.as_deref(), Some("first"));
    assert_eq!(name_of(&started_with(dir.path(), None)), (Some("first".to_owned()), Origin::Kept), "taken away");

    store(dir.path(), &with_access("by-rest"));
    let sent = started_with(dir.path(), Some(&with_access("first")));
    assert_eq!(name_of(&sent), (Some("by-rest".to_owned()), Origin::Stored), "before what lies elsewhere");
}

#[test]
fn after_a_claim_only_rest_counts_and_the_last_good_one_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(name_of(&started_with(dir.path(), Some(&site("open")))).0.as_deref(), Some("open"));
    let claimed = dir.path().join("var/lib/foothold/access/token.sha256");
    fs_err::create_dir_all(claimed.parent().expect("a folder")).expect("made");
    fs_err::write(&claimed, "a").expect("written");
    let other = name_of(&started_with(dir.path(), Some(&with_access("intruder"))));
    assert_eq!(other, (Some("open".to_owned()), Origin::Kept));
    store(dir.path(), "hostname: [");
    let bad = find(&started_with(dir.path(), None)).expect("the last good one");
    assert_eq!(bad.site.hostname.as_deref(), Some("open"));
    assert!(bad.passed_over[0].starts_with("sent by REST: "), "{:?}", bad.passed_over);
    fs_err::remove_file(dir.path().join(STORED.trim_start_matches('/'))).expect("gone");
    fs_err::write(dir.path().join("var/lib/foothold/site-in-use.json"), "{").expect("damaged");
    assert_eq!(name_of(&started_with(dir.path(), None)).1, Origin::Nowhere);
}

/// Signs as `minisign -S` does (minisign, "Signature format"): the `BLAKE2b` of the text, then signature and comment.
fn sign(key: &Ed25519KeyPair, text: &str) -> String {
    let signature = key.sign(&blake2::Blake2b512::digest(text));
    let comment = "a test";
    let global = key.sign(&[signature.as_ref(), comment.as_bytes()].concat());
    let head = [b"ED".as_slice(), &[7; 8], signature.as_ref()].concat();
    format!(
        "untrusted comment: a test\n{}\ntrusted comment: {comment}\n{}\n",
        STANDARD.encode(head),
        STANDARD.encode(global.as_ref())
    )
}

#[test]
fn a_signed_site_takes_the_place_and_is_not_taken_twice() {
    let key = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).expect("a key");
    let public = STANDARD.encode([b"Ed".as_slice(), &[7; 8], key.public_key().as_ref()].concat());
    let text = |name: &str| {
        let hash = "ab".repeat(32);
        format!("{}access: {{ tokenSha256: \"{hash}\", siteKeys: [ \"{public}\" ] }}\n", site(name))
    };
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(name_of(&started_with(dir.path(), Some(&text("first")))).0.as_deref(), Some("first"));
    let box_ = started_with(dir.path(), None);
    let kept = super::Kept::read(&box_.at(super::kept::PLACE)).expect("kept");
    let in_use = find(&box_).expect("a Site").site;
    let second = text("second");
    let told = |text: &str, signature: Option<&str>| kept.is_signed(&in_use, text, signature);
    assert!(told(&second, None).expect_err("unsigned").contains("site.yaml.minisig"));
    assert!(told(&second, Some("x")).is_err());
    assert!(told(&text("third"), Some(&sign(&key, &second))).expect_err("another text").contains("no key of"));
    let stranger = Ed25519KeyPair::from_seed_unchecked(&[4; 32]).expect("a key");
    assert!(told(&second, Some(&sign(&stranger, &second))).is_err());
    assert_eq!(told(&second, Some(&sign(&key, &second))), Ok(()));
    super::Kept::keep(Some(&kept), &box_.at(super::kept::PLACE), &second, super::Came::Elsewhere).expect("kept");
    let kept = super::Kept::read(&box_.at(super::kept::PLACE)).expect("kept");
    let first = text("first");
    assert!(kept.is_signed(&in_use, &first, Some(&sign(&key, &first))).expect_err("old").contains("in use before"));
}

#[test]
fn what_was_sent_by_rest_comes_first_where_somebody_has_access() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path(), &site("stored"));
    let box_ = started_with(dir.path(), Some(&site("line")));
    let order = |owner| candidates(&box_, owner).into_iter().map(|one| one.origin).collect::<Vec<_>>();
    assert_eq!(order(Owner::Nobody), [Origin::CommandLine, Origin::Stored]);
    assert_eq!(order(Owner::Token), [Origin::Stored, Origin::CommandLine]);
}

/// A link to itself is to a look what a failing disk is: an error.
#[test]
fn a_claim_that_the_disk_does_not_tell_counts_as_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let claimed = dir.path().join(super::kept::CLAIMED.trim_start_matches('/'));
    fs_err::create_dir_all(claimed.parent().expect("a folder")).expect("made");
    fs_err::os::unix::fs::symlink(&claimed, &claimed).expect("a link");
    let found = find(&started_with(dir.path(), Some(&with_access("stranger")))).expect("a Site");
    assert_eq!((found.site.hostname, found.origin), (None, Origin::Nowhere));
    assert!(found.passed_over[0].contains("somebody has access to this box already"), "{:?}", found.passed_over);
}
