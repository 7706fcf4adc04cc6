//! Another DHCP server on the segment of a box that boots: there before it, gone, and back. What the box answers is
//! heard on the wire.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_api::net::MacAddress;
use foothold_agent::provisioning::segment::packet::Answer;
use foothold_qemu::bmc::MemoryPower;
use foothold_qemu::site::BRIDGE;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::BOOT;
use crate::bench::{BOX, RESCUE, Site, lan};
use crate::booted::with_box_beside;
use crate::wire::{Client, FOREIGN, FOREIGN_MAC, Process, Wire, foreign_server};

/// The other server's card.
const CARD: &str = "foreign";
/// The card of a machine that is none of the box's.
const MACHINE: &str = "machine";
/// Unknown machines, and the one of a `BareMetalHost`.
const EARLY: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 1]);
const LATER: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 2]);
const LAST: MacAddress = MacAddress([0x52, 0x54, 0, 0, 1, 3]);
const KNOWN: MacAddress = MacAddress([0x52, 0x54, 0, 0, 0, 1]);
/// What firmware waits for at least: PXE asks 4 times in 60 s.
const FIRMWARE: Duration = Duration::from_secs(60);
/// The agent tells the cluster of what DHCP found every 10 s; an emulated box takes its time.
const TOLD: Duration = Duration::from_secs(120);
/// The guard forgets a server that was silent for five minutes.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The other server, an unknown machine that asks all the time, and an ear.
struct Beside {
    server: Process,
    leases: TempDir,
    wire: Wire,
    asked: JoinHandle<Vec<Answer>>,
    stop: CancellationToken,
}

impl Beside {
    fn start() -> Self {
        let lan = lan();
        lan.card(CARD, &FOREIGN_MAC.to_string()).expect("a card");
        lan.address_on(CARD, &format!("{FOREIGN}/24")).expect("an address");
        lan.card(MACHINE, "52:54:00:00:00:f3").expect("a card");
        let (leases, stop) = (tempfile::tempdir().expect("a folder"), CancellationToken::new());
        let (server, wire) = (foreign_server(CARD, leases.path()), Wire::on(BRIDGE));
        let (client, token) = (Client::on(MACHINE), stop.clone());
        let asked = std::thread::spawn(move || {
            let mut answers = Vec::new();
            while !token.is_cancelled() {
                answers.extend(client.all(EARLY, Duration::from_secs(10)));
            }
            answers
        });
        Self { server, leases, wire, asked, stop }
    }
}

/// Whom the box answered since the last call: all that it says to machines that ask for it is broadcast.
fn answered(wire: &Wire) -> Vec<MacAddress> {
    wire.answers().into_iter().filter(|answer| answer.server == BOX).map(|answer| answer.to).collect()
}

/// What the box says of its DHCP server.
fn said(site: &Site) -> String {
    let status = site.rest("/api/v1/status");
    let steps = status["steps"].as_array().cloned().unwrap_or_default();
    let step = steps.iter().find(|step| step["phase"] == "services" && step["step"] == "dhcp");
    step.unwrap_or_else(|| panic!("no such step: {status:#}")).to_string()
}

/// Warnings about another server.
async fn warnings(site: &Site) -> Vec<String> {
    let events = site.at("/api/v1/namespaces/default/events").await;
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let warning = |event: &Value| event["reason"] == "ForeignDHCPServer" && event["type"] == "Warning";
    let text = |event: Value| event["message"].as_str().unwrap_or_default().to_owned();
    events.into_iter().filter(warning).map(text).collect()
}

/// The first answer of that server to a machine that asks as firmware does.
fn ask(client: &Client, mac: MacAddress, server: Ipv4Addr, within: Duration) -> Answer {
    let begun = Instant::now();
    let answer = tokio::task::block_in_place(|| client.ask(mac, within, |answer| answer.server == server));
    answer.unwrap_or_else(|| panic!("{server} did not answer {mac} in {:?}", begun.elapsed()))
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn no_unknown_machine_is_answered_beside_another_dhcp_server_that_was_there_before_or_comes_after() {
    with_box_beside(&[RESCUE], Beside::start, |mut site, beside| async move {
        let Beside { server, leases, wire, asked, stop } = beside;
        stop.cancel();
        let heard = tokio::task::block_in_place(|| asked.join()).expect("it asked");
        assert!(heard.iter().any(|answer| answer.server == FOREIGN), "the other server serves: {heard:?}");
        assert!(heard.iter().all(|answer| answer.server == FOREIGN), "{heard:?}");
        assert_eq!(answered(&wire), [], "while the box booted, and after it");
        let who = format!("{FOREIGN} ({FOREIGN_MAC})");
        assert!(said(&site).contains(&who), "{}", said(&site));
        // The cluster is told beside `ready`, not before it.
        let ready = Instant::now();
        while !warnings(&site).await.iter().any(|warning| warning.contains(&who)) {
            assert!(ready.elapsed() < TOLD, "no event names {who}: {:?}", warnings(&site).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let screen = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("site-foreign.png");
        site.booted_box().machine().session.vm.screenshot(&screen).expect("a picture");
        site.tell(&format!("beside another server the box says: {}", said(&site)));

        let client = Client::on(MACHINE);
        let (_bmc, address) = site.bmc(Arc::new(MemoryPower::new(false)));
        let spec = json!({"online": false, "externallyProvisioned": true, "bmc": {"address": address}});
        site.host_at("server-10", &KNOWN.to_string(), spec).await;
        ask(&client, KNOWN, BOX, BOOT);
        site.tell("the machine of a BareMetalHost is answered");
        assert!(answered(&wire).iter().all(|mac| *mac == KNOWN), "an unknown machine was answered");

        drop(server);
        let gone = Instant::now();
        ask(&client, LATER, BOX, FORGOTTEN);
        site.tell(&format!("alone, the box answers an unknown machine {} s after that", gone.elapsed().as_secs()));

        let server = foreign_server(CARD, leases.path());
        ask(&client, LAST, FOREIGN, FIRMWARE);
        tokio::task::block_in_place(|| client.all(LAST, FIRMWARE));
        let to = answered(&wire);
        assert!(!to.contains(&LAST), "an unknown machine was answered beside the server that is back: {to:?}");
        assert!(said(&site).contains(&who), "{}", said(&site));
        site.tell("the other server is back, and keeps the unknown machine");
        drop(server);
        site.stop().await;
    });
}
