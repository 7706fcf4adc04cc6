//! Files from a folder and from a server on loopback.

use std::path::PathBuf;

use agent_api::release::Digest;

use super::{bring, look};
use crate::builder::{AgentProfile, Builder};
use crate::config::Origin;
use crate::lock::fetch::Network;
use crate::lock::testserver::Server;
use crate::report::Report;
use crate::store::{Cache, hash};

struct Bench {
    dir: tempfile::TempDir,
    at: Builder,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        fs_err::create_dir(dir.path().join("served")).expect("a folder");
        let at = Builder {
            cache,
            workspace: PathBuf::new(),
            helper: PathBuf::new(),
            network: Network::default(),
            agent: AgentProfile::Site,
            report: Report::silent(),
        };
        Self { dir, at }
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("served/file");
        fs_err::write(&path, text).expect("written");
        path
    }

    fn holds(&self, text: &str) -> bool {
        self.at.cache.blob_path(&hash::bytes(text.as_bytes())).exists()
    }
}

#[test]
fn a_file_that_is_not_the_one_of_the_lock_names_both_digests_and_the_way_out() {
    let bench = Bench::new();
    let origin = Origin::Path { path: bench.write("first") };
    let locked = look(&bench.at.cache, &origin, false, &|_| ()).expect("looked at");
    bring(&bench.at, &locked, &origin, &|_| ()).expect("the same");
    assert!(bench.holds("first"));
    bench.write("second");
    let text = format!("{:#}", bring(&bench.at, &locked, &origin, &|_| ()).expect_err("another"));
    assert!(text.contains(hash::bytes(b"first").hex()) && text.contains(hash::bytes(b"second").hex()), "{text}");
    assert!(text.contains("lock --update"), "{text}");
}

#[test]
fn a_download_goes_on_after_the_line_broke_and_is_not_made_twice() {
    let bench = Bench::new();
    let text = "content ".repeat(20_000);
    bench.write(&text);
    let server = Server::start(&bench.dir.path().join("served"));
    server.hang_up_after(&[50_000, 10_000]);
    let url = format!("{}/file", server.url());
    let origin = Origin::Url { url, sha256: hash::bytes(text.as_bytes()) };
    let locked = look(&bench.at.cache, &origin, false, &|_| ()).expect("downloaded");
    assert_eq!(server.asked().iter().map(|(_, from)| *from).collect::<Vec<_>>(), [0, 50_000, 60_000]);
    bring(&bench.at, &locked, &origin, &|_| ()).expect("there already");
    assert_eq!(server.asked().len(), 3);
}

#[test]
fn a_file_that_the_server_has_replaced_is_refused_and_nothing_of_it_is_kept() {
    let bench = Bench::new();
    bench.write("replaced");
    let server = Server::start(&bench.dir.path().join("served"));
    let origin = Origin::Url { url: format!("{}/file", server.url()), sha256: hash::bytes(b"published") };
    let text = format!("{:#}", look(&bench.at.cache, &origin, false, &|_| ()).expect_err("another file"));
    assert!(text.contains(hash::bytes(b"published").hex()) && text.contains("`sha256` in the definition"), "{text}");
    assert!(!bench.holds("replaced"));
}

#[test]
fn a_file_url_is_read_from_this_machine_and_checked() {
    let bench = Bench::new();
    let url = format!("file://{}", bench.write("local").display());
    let origin = |sha256: Digest| Origin::Url { url: url.clone(), sha256 };
    look(&bench.at.cache, &origin(hash::bytes(b"local")), true, &|_| ()).expect("read, offline too");
    assert!(bench.holds("local"));
    look(&bench.at.cache, &origin(hash::bytes(b"other")), true, &|_| ()).expect_err("another digest");
}

#[test]
fn offline_is_offline() {
    let bench = Bench::new();
    let origin = Origin::Url { url: "http://127.0.0.1:1/file".into(), sha256: hash::bytes(b"x") };
    let text = format!("{:#}", look(&bench.at.cache, &origin, true, &|_| ()).expect_err("no network"));
    assert!(text.contains("`--offline` was given"), "{text}");
}
