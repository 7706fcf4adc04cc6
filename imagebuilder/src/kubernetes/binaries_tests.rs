//! Programs from a folder and from a server, with small files in their place.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_api::release::Blob;
use anyhow::Result;

use super::{Binaries, KUBERNETES, Source};
use crate::lock::testserver::Server;
use crate::store::{Cache, Made, hash};

const VERSION: &str = "v1.36.4";

/// A cache, and programs laid out as a server has them.
struct Bench {
    dir: tempfile::TempDir,
    cache: Cache,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let bench = Self { dir, cache };
        fs_err::create_dir_all(bench.programs()).expect("folders");
        for name in KUBERNETES.programs {
            bench.publish(name, format!("program {name} ").repeat(5000).as_bytes());
        }
        bench
    }

    fn served(&self) -> PathBuf {
        self.dir.path().join("served")
    }

    fn programs(&self) -> PathBuf {
        self.served().join("release").join(VERSION).join("bin/linux/amd64")
    }

    fn publish(&self, name: &str, bytes: &[u8]) {
        fs_err::write(self.programs().join(name), bytes).expect("a program");
        let digest = hash::bytes(bytes).hex().to_owned();
        fs_err::write(self.programs().join(format!("{name}.sha256")), digest).expect("a digest");
    }

    fn at<'a>(&'a self, source: Source<'a>) -> Binaries<'a> {
        Binaries { cache: &self.cache, source, version: VERSION, offline: false, waiting: &|_| () }
    }
}

fn make(binaries: &Binaries<'_>, lock: &BTreeMap<String, Blob>) -> Result<(Made, bool)> {
    binaries.make(lock, &|_| Ok(format!("{VERSION}\n")))
}

#[test]
fn a_folder_gives_exactly_the_programs_of_the_lock() {
    let bench = Bench::new();
    let folder = bench.programs();
    let binaries = bench.at(Source::Directory(&folder));
    let lock = binaries.resolve().expect("programs");
    assert_eq!(lock.keys().collect::<Vec<_>>(), KUBERNETES.programs);
    let (made, cached) = make(&binaries, &lock).expect("made");
    assert!(!cached);
    assert_eq!(made.files, lock);
    for (name, blob) in &made.files {
        let there = fs_err::read(bench.cache.blob_path(&blob.digest)).expect("in the cache");
        assert_eq!(there, fs_err::read(folder.join(name)).expect("in the folder"));
    }
    assert!(make(&binaries, &lock).expect("made").1, "the second time it is cached");
}

#[test]
fn a_program_in_the_folder_that_changed_is_named_even_when_the_old_one_is_cached() {
    let bench = Bench::new();
    let folder = bench.programs();
    let binaries = bench.at(Source::Directory(&folder));
    let lock = binaries.resolve().expect("programs");
    make(&binaries, &lock).expect("made");
    bench.publish("kubelet", b"another");
    let text = make(&binaries, &lock).expect_err("changed").to_string();
    assert!(text.contains("amd64/kubelet` is sha256:") && text.contains("(7 bytes), the lock expects"), "{text}");
    fs_err::remove_file(folder.join("kubectl")).expect("removed");
    let text = format!("{:#}", make(&binaries, &lock).expect_err("gone"));
    assert!(text.contains("kubectl") && text.contains("must hold kube-apiserver, "), "{text}");
}

#[test]
fn programs_of_another_version_are_refused_before_anything_is_made_of_them() {
    let bench = Bench::new();
    let folder = bench.programs();
    let binaries = bench.at(Source::Directory(&folder));
    let lock = binaries.resolve().expect("programs");
    let asked = Cell::new(false);
    let ask = |program: &Path| {
        asked.set(true);
        assert_eq!(fs_err::read(program)?, fs_err::read(folder.join("kubeadm"))?);
        Ok("v1.36.3\n".to_owned())
    };
    let text = binaries.make(&lock, &ask).expect_err("another version").to_string();
    assert!(asked.get());
    assert!(text.contains("is v1.36.3, `kubernetes.version` is v1.36.4\nhint: write `version: v1.36.3`"), "{text}");
    assert!(!make(&binaries, &lock).expect("made").1, "what was refused is not in the cache");
}

#[test]
fn published_programs_are_fetched_once_checked_and_then_found_offline() {
    let bench = Bench::new();
    let server = Server::start(&bench.served());
    let binaries = bench.at(Source::Upstream(server.url()));
    // The line breaks in the second digest's program.
    server.hang_up_after(&[usize::MAX, 1000]);
    let lock = binaries.resolve().expect("programs");
    let (made, _) = make(&binaries, &lock).expect("made");
    assert_eq!(made.files, lock);
    let asked = server.asked();
    assert_eq!(asked.len(), 2 * KUBERNETES.programs.len() + 1, "{asked:?}");
    assert_eq!(asked[0].0, "/release/v1.36.4/bin/linux/amd64/kube-apiserver.sha256");
    assert_eq!(asked[2], ("/release/v1.36.4/bin/linux/amd64/kube-apiserver".to_owned(), 1000));
    drop(server);
    let offline = Binaries { offline: true, ..bench.at(Source::Upstream("http://nowhere.invalid")) };
    assert!(make(&offline, &lock).expect("cached").1);
}

#[test]
fn a_program_that_is_gone_from_the_cache_is_fetched_again_as_the_lock_names_it() {
    let bench = Bench::new();
    let server = Server::start(&bench.served());
    let binaries = bench.at(Source::Upstream(server.url()));
    let lock = binaries.resolve().expect("programs");
    let kubelet = bench.cache.blob_path(&lock["kubelet"].digest);
    fs_err::remove_file(&kubelet).expect("removed");
    let offline = Binaries { offline: true, ..bench.at(Source::Upstream(server.url())) };
    let text = make(&offline, &lock).expect_err("not in the cache").to_string();
    assert!(text.contains("`--offline` was given\nhint: "), "{text}");
    make(&binaries, &lock).expect("fetched");
    assert!(kubelet.exists());
    fs_err::remove_file(&kubelet).expect("removed");
    bench.publish("kubelet", b"another");
    let text = make(&binaries, &lock).expect_err("the server has another").to_string();
    assert!(text.contains("amd64/kubelet` is sha256:") && text.contains("(7 bytes), sha256:"), "{text}");
    assert!(!kubelet.exists());
}

#[test]
fn a_program_that_is_not_what_its_published_digest_says_is_not_locked() {
    let bench = Bench::new();
    fs_err::write(bench.programs().join("kubectl"), b"damaged").expect("written");
    let server = Server::start(&bench.served());
    let text = bench.at(Source::Upstream(server.url())).resolve().expect_err("damaged").to_string();
    assert!(text.contains("amd64/kubectl` is sha256:"), "{text}");
    fs_err::write(bench.programs().join("kubectl.sha256"), b"<html>").expect("written");
    let text = format!("{:#}", bench.at(Source::Upstream(server.url())).resolve().expect_err("no digest"));
    assert!(text.contains("amd64/kubectl.sha256`"), "{text}");
}

#[test]
fn a_part_of_another_file_is_not_gone_on_with() {
    let bench = Bench::new();
    let server = Server::start(&bench.served());
    let digest = hash::file(&bench.programs().join("kubelet")).expect("a program").digest;
    let downloads = bench.cache.path("downloads");
    fs_err::create_dir_all(&downloads).expect("a folder");
    fs_err::write(downloads.join(digest.hex()), b"another file's beginning").expect("written");
    let lock = bench.at(Source::Upstream(server.url())).resolve().expect("programs");
    assert_eq!(lock["kubelet"].digest, digest);
    assert_eq!(fs_err::read_dir(&downloads).expect("listed").count(), 0);
}
