//! What is sent to a box is used, and an upload lives through what happens at a site: cut connections, a power cut.

use std::time::Instant;

use agent_api::ports;
use foothold::cli::Network;
use foothold::store::hash;
use foothold_tests::client::with_metadata;
use foothold_tests::{Appliance, Boxed, How, noise};
use reqwest::{Body, Method, StatusCode, header};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use super::{LOOK, PATIENCE, Site};

/// The routes of OS images of one owner's cluster.
const IMAGES: &str = "alpha/one/os_images";
const UPLOAD_OFFSET: &str = "upload-offset";
/// Far more than lies in buffers on the way.
const LARGE: usize = 768 << 20;
/// The most that lies between client and agent, and may be lost with the connection.
const ON_THE_WAY: usize = 8 << 20;

/// An OS image by the REST of the Binary Provisioning Agent, in two parts: then it is among the others.
pub fn are_used(site: &Site<'_>) {
    let whole = noise(1, 700_000);
    announce(site, "sent.img", whole.len());
    let anonymous =
        site.client.get(format!("https://{}/v1/baremetalcluster/{IMAGES}/sent.img", site.machine.address(ports::BPA)));
    assert_eq!(site.ask(anonymous).status, StatusCode::UNAUTHORIZED);
    send(site, "sent.img", &whole, 0);
    let told = String::from_utf8(site.wait_for("images/alpha/one/sent.img.sha256")).expect("text");
    assert!(told.starts_with(hash::bytes(&whole).hex()), "{told}");
    assert_eq!(site.get("images/sent.img"), whole);
    assert_eq!(site.ask(image(site, Method::DELETE, "sent.img")).status, StatusCode::NO_CONTENT);
    assert_eq!(site.ask(site.content("images/sent.img")).status, StatusCode::NOT_FOUND);
}

/// The connection is cut five times, then the box's power, in the middle of what it takes in.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test airgap -- --ignored`"]
#[expect(clippy::print_stdout, reason = "the offsets are what it is for")]
fn an_upload_goes_on_after_cut_connections_and_a_power_cut() {
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    let appliance = Appliance::get();
    let whole = noise(2, LARGE);
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let site = Site::of(&machine);
    announce(&site, "large.img", LARGE);
    let mut offset = 0;
    for cut in 1..=5 {
        let at = cut * LARGE / 7;
        send_until(&site, &whole, offset, at, |_| {});
        offset = offset_near(&site, at);
        println!("cut at {at}: {offset} bytes are there");
    }
    let at = 6 * LARGE / 7;
    send_until(&site, &whole, offset, at, |machine| machine.session.vm.kill().expect("the power is cut"));
    drop(machine);
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let site = Site::of(&machine);
    let kept = offset_of(&site);
    println!("power cut at {at}: {kept} bytes are there");
    assert!((offset..=at).contains(&kept), "what an answer told is kept: {offset}, {kept}");
    send(&site, "large.img", &whole, kept);
    let told = String::from_utf8(site.wait_for("images/alpha/one/large.img.sha256")).expect("text");
    assert!(told.starts_with(hash::bytes(&whole).hex()), "{told}");
    let back = dir.path().join("back");
    site.download("images/large.img", &back);
    assert_eq!(hash::file(&back).expect("readable").digest, hash::bytes(&whole));
}

fn announce(site: &Site<'_>, name: &str, bytes: usize) {
    let metadata = json!({ "owner": "alpha", "cluster_name": "one", "type": "os_image", "image_name": name,
        "image_offset": 0, "image_length": bytes, "upload_complete": false, "description": { "image_records": [] } });
    let answer = site.ask(with_metadata(site.bpa(Method::POST, IMAGES), &metadata));
    assert_eq!(answer.status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&answer.body));
}

fn image(site: &Site<'_>, method: Method, name: &str) -> reqwest::RequestBuilder {
    site.bpa(method, &format!("{IMAGES}/{name}"))
}

/// Sends the rest.
fn send(site: &Site<'_>, name: &str, whole: &[u8], offset: usize) {
    let patch = image(site, Method::PATCH, name).header(UPLOAD_OFFSET, offset);
    let answer = site.ask(patch.body(whole[offset..].to_vec()));
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.headers[UPLOAD_OFFSET], whole.len().to_string());
}

/// Sends what lies between the two offsets as the beginning of the rest, lets `happen` what happens, and hangs up.
fn send_until(site: &Site<'_>, whole: &[u8], from: usize, until: usize, happen: impl FnOnce(&Boxed)) {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let patch = image(site, Method::PATCH, "large.img")
        .header(UPLOAD_OFFSET, from)
        .header(header::CONTENT_LENGTH, whole.len() - from)
        .body(Body::wrap_stream(ReaderStream::new(far)));
    let sent = site.runtime.block_on(async {
        let feed = async {
            near.write_all(&whole[from..until]).await.expect("taken in");
            happen(site.machine);
            drop(near);
        };
        tokio::join!(patch.send(), feed).0
    });
    assert!(sent.is_err(), "the connection was cut: {sent:?}");
}

/// How much the box has.
fn offset_of(site: &Site<'_>) -> usize {
    let answer = site.ask(image(site, Method::HEAD, "large.img"));
    assert_eq!(answer.status, StatusCode::OK);
    answer.headers[UPLOAD_OFFSET].to_str().expect("text").parse().expect("a number")
}

/// The same, once it has noticed the cut and has kept what came before it. While it takes in, it tells of whole pieces of
/// 64 MiB, none of which ends as near to a cut.
fn offset_near(site: &Site<'_>, cut: usize) -> usize {
    let began = Instant::now();
    loop {
        let offset = offset_of(site);
        if offset + ON_THE_WAY >= cut {
            return offset;
        }
        assert!(began.elapsed() < PATIENCE, "{offset} bytes of {cut} that were sent are there");
        site.runtime.block_on(async { tokio::time::sleep(LOOK).await });
    }
}
