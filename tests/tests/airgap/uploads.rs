//! What is sent to a box is used, and an upload lives through what happens at a site: cut connections, a power cut.

use std::time::Duration;

use agent_api::ports;
use foothold::cli::Network;
use foothold::store::hash;
use foothold_tests::client::with_metadata;
use foothold_tests::registry::TestImage;
use foothold_tests::{Appliance, Boxed, How, noise};
use reqwest::{Body, Method, StatusCode, header};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use super::{More, Site, built};

/// The routes of OS images of one owner's cluster.
const IMAGES: &str = "alpha/one/os_images";
const UPLOAD_OFFSET: &str = "upload-offset";
/// Far more than lies in buffers on the way.
const LARGE: usize = 768 << 20;
/// The most that lies between client and agent, and may be lost with the connection.
const ON_THE_WAY: usize = 8 << 20;

/// The routes of container images of the same.
const CONTAINERS: &str = "alpha/one/container_images";

/// An OS image by the REST of the Binary Provisioning Agent, in two parts: then it is among the others.
pub fn are_used(site: &Site<'_>) {
    let whole = noise(1, 700_000);
    announce(site, IMAGES, "sent.img", whole.len());
    let anonymous =
        site.client.get(format!("https://{}/v1/baremetalcluster/{IMAGES}/sent.img", site.machine.address(ports::BPA)));
    assert_eq!(site.ask(anonymous).status, StatusCode::UNAUTHORIZED);
    send(site, IMAGES, "sent.img", &whole, 0);
    let told = String::from_utf8(site.wait_for("images/alpha/one/sent.img.sha256")).expect("text");
    assert!(told.starts_with(hash::bytes(&whole).hex()), "{told}");
    assert_eq!(site.get("images/sent.img"), whole);
    assert_eq!(site.ask(image(site, IMAGES, Method::DELETE, "sent.img")).status, StatusCode::NO_CONTENT);
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
    announce(&site, IMAGES, "large.img", LARGE);
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
    send(&site, IMAGES, "large.img", &whole, kept);
    let told = String::from_utf8(site.wait_for("images/alpha/one/large.img.sha256")).expect("text");
    assert!(told.starts_with(hash::bytes(&whole).hex()), "{told}");
    let back = dir.path().join("back");
    site.download("images/large.img", &back);
    assert_eq!(hash::file(&back).expect("readable").digest, hash::bytes(&whole));
}

/// What only a deleted image had is free again within minutes, once it is older than a push may take.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test airgap -- --ignored`"]
fn an_image_that_is_deleted_gives_its_space_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let overlay = dir.path().join("disk.qcow2");
    let how = How { network: Network::User, overlay: Some(&overlay), ..How::default() };
    let (appliance, _) = built(dir.path(), More::default());
    let images = [("gone", TestImage::large(8 << 20)), ("kept", TestImage::small("kept"))];
    // By its last blob.
    let status = |site: &Site<'_>, (name, image): &(&str, TestImage)| {
        site.registry(&format!("alpha/{name}/blobs/{}", image.blob_digest(image.blobs.len() - 1))).status
    };
    let mut machine = appliance.boot(how);
    machine.until_ready();
    let site = Site::of(&machine);
    for (name, image) in &images {
        let archive = image.archive(&format!("{name}:1"));
        announce(&site, CONTAINERS, name, archive.len());
        send(&site, CONTAINERS, name, &archive, 0);
        let tag = format!("alpha/{name}/manifests/1");
        site.until("it is in the registry", || site.registry(&tag).status == StatusCode::OK);
    }
    drop(machine);

    let hours_later = jiff::Timestamp::now() + Duration::from_secs(3 * 3600);
    let clock = hours_later.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let mut machine = appliance.boot(How { clock: Some(&clock), ..how });
    machine.until_ready();
    let site = Site::of(&machine);
    assert_eq!(images.each_ref().map(|image| status(&site, image)), [StatusCode::OK; 2]);
    assert_eq!(site.ask(image(&site, CONTAINERS, Method::DELETE, "gone")).status, StatusCode::NO_CONTENT);
    site.until("its bytes are free", || status(&site, &images[0]) == StatusCode::NOT_FOUND);
    let kept = &images[1].1;
    for part in &kept.blobs {
        let digest = hash::bytes(part);
        assert_eq!(site.registry(&format!("alpha/kept/blobs/{digest}")).body, *part);
    }
    assert_eq!(site.registry("alpha/kept/manifests/1").body, kept.documents[0].1);
}

fn announce(site: &Site<'_>, route: &str, name: &str, bytes: usize) {
    let metadata = json!({ "owner": "alpha", "cluster_name": "one", "image_name": name,
        "image_offset": 0, "image_length": bytes, "upload_complete": false, "description": { "image_records": [] } });
    let answer = site.ask(with_metadata(site.bpa(Method::POST, route), &metadata));
    assert_eq!(answer.status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&answer.body));
}

fn image(site: &Site<'_>, route: &str, method: Method, name: &str) -> reqwest::RequestBuilder {
    site.bpa(method, &format!("{route}/{name}"))
}

/// Sends the rest.
fn send(site: &Site<'_>, route: &str, name: &str, whole: &[u8], offset: usize) {
    let patch = image(site, route, Method::PATCH, name).header(UPLOAD_OFFSET, offset);
    let answer = site.ask(patch.body(whole[offset..].to_vec()));
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.headers[UPLOAD_OFFSET], whole.len().to_string());
}

/// Sends what lies between the two offsets as the beginning of the rest, lets `happen` what happens, and hangs up.
fn send_until(site: &Site<'_>, whole: &[u8], from: usize, until: usize, happen: impl FnOnce(&Boxed)) {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let patch = image(site, IMAGES, Method::PATCH, "large.img")
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
    let answer = site.ask(image(site, IMAGES, Method::HEAD, "large.img"));
    assert_eq!(answer.status, StatusCode::OK);
    answer.headers[UPLOAD_OFFSET].to_str().expect("text").parse().expect("a number")
}

/// The same, once it has noticed the cut and has kept what came before it. While it takes in, it tells of whole pieces of
/// 64 MiB, none of which ends as near to a cut.
fn offset_near(site: &Site<'_>, cut: usize) -> usize {
    let mut offset = 0;
    site.until(&format!("what was sent until {cut} is there"), || {
        offset = offset_of(site);
        offset + ON_THE_WAY >= cut
    });
    offset
}
