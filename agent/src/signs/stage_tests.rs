use agent_api::host_story::{DhcpAnswered, DhcpAsked, DhcpClient, DhcpSign, HttpSign};
use agent_api::metal3::Time;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Next, Seen, Stage, stage};
use crate::ironic::Node;

/// The server is powered on at 08:00:00; times of the tables are seconds after it.
fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-03-02T08:00:00Z".parse().expect("a moment");
    start + SignedDuration::from_secs(seconds)
}

fn written(seconds: i64) -> Value {
    json!(at(seconds).to_string())
}

fn node(state: &str, more: Value) -> Node {
    let mut fields = json!({
        "provision_state": state, "power_state": "power on", "boot_interface": "ipxe", "inspect_interface": "agent",
        "inspection_started_at": written(-10), "provision_updated_at": written(-5),
        "driver_internal_info": {"last_power_state_change": "2026-03-02T08:00:00.000000"},
    });
    let (Value::Object(into), Value::Object(more)) = (&mut fields, more) else { panic!("objects") };
    for (name, value) in more {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
    serde_json::from_value(fields).expect("a node")
}

fn called(seconds: i64) -> Value {
    let heartbeat = at(seconds).to_string().trim_end_matches('Z').to_owned();
    json!({"driver_internal_info": {"agent_url": "https://172.22.0.50:9999", "agent_last_heartbeat": heartbeat}})
}

fn asked(seconds: i64) -> DhcpSign {
    let message = "discover".to_owned();
    let asked = DhcpAsked { at: Time(at(seconds)), message, client: DhcpClient::Pxe, architecture: Some(7) };
    DhcpSign { mac: "52:54:00:00:00:0a".to_owned(), asked: Some(asked), ..DhcpSign::default() }
}

/// An operating system asks, not the firmware.
fn asked_by_system(seconds: i64) -> DhcpSign {
    let sign = answered(seconds, "ack");
    let asked = sign.asked.map(|asked| DhcpAsked { client: DhcpClient::System, architecture: None, ..asked });
    DhcpSign { asked, ..sign }
}

fn answered(seconds: i64, message: &str) -> DhcpSign {
    let address = (message != "nak").then_some([172, 22, 0, 50].into());
    let server = [172, 22, 0, 1].into();
    let answered = DhcpAnswered { at: Time(at(seconds)), message: message.to_owned(), address, server, ours: true };
    DhcpSign { answered: Some(answered), ..asked(seconds) }
}

fn fetch(seconds: i64, path: &str, status: Option<u16>) -> HttpSign {
    let (began, ended) = (Time(at(seconds)), status.map(|_| Time(at(seconds))));
    let client = std::net::IpAddr::from([172, 22, 0, 50]);
    HttpSign { client, path: path.to_owned(), at: began, ended, status, bytes: status.map(|_| 1), cut: false }
}

struct Look {
    node: Node,
    dhcp: Option<DhcpSign>,
    http: Option<HttpSign>,
    listened: bool,
}

fn look(node: Node) -> Look {
    Look { node, dhcp: None, http: None, listened: true }
}

impl Look {
    fn dhcp(self, sign: DhcpSign) -> Self {
        Self { dhcp: Some(sign), ..self }
    }

    fn http(self, sign: HttpSign) -> Self {
        Self { http: Some(sign), ..self }
    }

    fn stage_at(&self, seconds: i64) -> Option<Stage> {
        let (dhcp, http) = (self.dhcp.as_ref(), self.http.as_ref());
        let (listened, began) = (self.listened, Some(at(-60)));
        stage(&Seen { node: &self.node, listened, dhcp, http, began, now: at(seconds) })
    }

    fn sentence(&self, seconds: i64) -> String {
        self.stage_at(seconds).map_or_else(|| "nothing".to_owned(), |stage| stage.sentence(&self.node))
    }
}

const KERNEL: &str = "/provisioning/5a1ee0f4/deploy_kernel";
const RAMDISK: &str = "/provisioning/5a1ee0f4/deploy_ramdisk";
const CONFIG: &str = "/provisioning/pxelinux.cfg/52-54-00-00-00-0a";
const DISC: &str = "/provisioning/redfish/boot-5a1ee0f4.iso";

/// What somebody reads who asks why a server is stuck.
#[test]
fn every_sign_of_a_boot_says_what_comes_next() {
    let inspect = |more: Value| look(node("inspect wait", more));
    let media = || inspect(json!({"boot_interface": "redfish-virtual-media"}));
    let deploy = |step: &str, state: &str| look(node(state, json!({"deploy_step": {"step": step}})));
    let off = json!({"power_state": "power off"});
    let blind = |look: Look| Look { listened: false, ..look };
    let table: Vec<(&str, Look)> = vec![
        ("its BMC is tried", look(node("verifying", json!({"power_state": null})))),
        ("inspected by its BMC", look(node("inspecting", json!({"inspect_interface": "redfish"})))),
        ("made ready", look(node("inspecting", off.clone()))),
        ("off", inspect(off)),
        ("being switched", inspect(json!({"target_power_state": "power on"}))),
        ("left alone", look(node("active", json!({})))),
        ("being switched, for itself", look(node("active", json!({"target_power_state": "power off"})))),
        ("on", inspect(json!({}))),
        ("on, with virtual media", media()),
        ("on, and nobody listens", blind(inspect(json!({})))),
        ("asked in vain", inspect(json!({})).dhcp(asked(8))),
        ("refused", inspect(json!({})).dhcp(answered(8, "nak"))),
        ("asked by a system on its disk", inspect(json!({})).dhcp(asked_by_system(8))),
        ("offered", inspect(json!({})).dhcp(answered(8, "offer"))),
        ("asked before it was powered on", inspect(json!({})).dhcp(answered(-8, "ack"))),
        ("reads its boot script", inspect(json!({})).dhcp(answered(8, "ack")).http(fetch(9, CONFIG, Some(200)))),
        ("has no boot script", inspect(json!({})).dhcp(answered(8, "ack")).http(fetch(9, CONFIG, Some(404)))),
        ("fetches the kernel", inspect(json!({})).dhcp(answered(8, "ack")).http(fetch(9, KERNEL, Some(200)))),
        ("fetches the ramdisk", inspect(json!({})).dhcp(answered(8, "ack")).http(fetch(9, RAMDISK, None))),
        ("has the ramdisk", inspect(json!({})).dhcp(answered(8, "ack")).http(fetch(9, RAMDISK, Some(200)))),
        ("has its disc", media().http(fetch(-20, DISC, Some(206)))),
        ("had a disc of a try before", media().http(fetch(-2000, DISC, Some(206)))),
        ("calls while it is inspected", inspect(called(40))),
        ("its inventory is read", look(node("inspecting", called(40)))),
        ("called before it was powered on", inspect(called(-40))),
        ("is deployed: made ready", look(node("deploying", json!({})))),
        ("is deployed: on", deploy("deploy", "wait call-back")),
        ("is deployed: called", look(node("wait call-back", called(40)))),
        ("is deployed: in its ramdisk since inspection", look(node("deploying", called(400)))),
        ("is deployed: written", deploy("write_image", "wait call-back")),
        ("is deployed: written, Ironic looks", deploy("write_image", "deploying")),
        ("is deployed: restarted", deploy("boot_instance", "deploying")),
        ("is deployed: another step", deploy("apply_configuration", "deploying")),
        ("is undeployed", look(node("deleting", json!({})))),
        ("is cleaned: on", look(node("clean wait", json!({"clean_step": {}})))),
        ("is cleaned: by a step", look(node("clean wait", json!({"clean_step": {"step": "erase_devices_metadata"}})))),
        ("is available", look(node("available", called(40)))),
    ];
    let mut told: Vec<String> = table.iter().map(|(name, look)| format!("{name}: {}", look.sentence(60))).collect();
    for (name, look) in [
        ("on for long", inspect(json!({}))),
        ("on for long, with virtual media", media()),
        ("on for long, and nobody listens", blind(inspect(json!({})))),
    ] {
        told.push(format!("{name}: {}", look.sentence(700)));
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn words_do_not_change_with_every_heartbeat_or_packet() {
    let beat = |updated: i64| {
        let mut fields = called(updated);
        fields["deploy_step"] = json!({"step": "write_image"});
        fields["provision_updated_at"] = written(updated);
        look(node("wait call-back", fields))
    };
    assert_eq!(beat(30).sentence(31), beat(90).sentence(91));
    let (first, later) = (beat(30), beat(90));
    let until = |look: &Look| look.stage_at(100).and_then(|stage| stage.until(&look.node));
    assert_eq!((until(&first), until(&later)), (Some(at(1830)), Some(at(1890))), "the moment itself moves");
    let packet = |seconds: i64| look(node("inspect wait", json!({}))).dhcp(answered(seconds, "ack"));
    assert_eq!(packet(5).sentence(6), packet(50).sentence(55));
}

/// iPXE asks for the next name within a second.
#[test]
fn a_file_in_vain_is_told_only_when_nothing_follows() {
    let look = look(node("inspect wait", json!({}))).dhcp(answered(5, "ack")).http(fetch(9, CONFIG, Some(404)));
    assert_eq!(look.stage_at(10), Some(Stage::Address([172, 22, 0, 50].into())));
    assert_eq!(look.stage_at(29), Some(Stage::InVain { path: CONFIG.to_owned(), status: 404 }));
}

/// metal3 #2691: a server that starts its old system again when it is to be cleaned is not waited for without a word.
#[test]
fn a_server_that_starts_from_its_disk_is_told_from_one_that_has_the_ramdisk() {
    let cleaned = |more: Value| look(node("clean wait", more));
    assert_eq!(cleaned(json!({})).dhcp(asked_by_system(30)).stage_at(31), Some(Stage::OwnDisk));
    let ramdisk = cleaned(json!({})).dhcp(asked_by_system(30)).http(fetch(20, RAMDISK, Some(200)));
    assert_eq!(ramdisk.stage_at(31), Some(Stage::Fetched), "the ramdisk asks, too");
    let before = cleaned(json!({})).dhcp(asked_by_system(-30));
    assert_eq!(before.stage_at(31), Some(Stage::On(Next::Dhcp)), "the system was still up");
    let media = cleaned(json!({"boot_interface": "redfish-virtual-media"})).dhcp(asked_by_system(30));
    assert_eq!(media.stage_at(31), Some(Stage::Address([172, 22, 0, 50].into())), "nothing else asks there");
}

#[test]
fn a_server_of_which_nothing_is_heard_is_explained_after_ten_minutes() {
    for (boot, next) in [("ipxe", Next::Dhcp), ("redfish-virtual-media", Next::Disc)] {
        let cleaned = look(node("clean wait", json!({"boot_interface": boot})));
        assert_eq!(cleaned.stage_at(599), Some(Stage::On(next)));
        assert_eq!(cleaned.stage_at(600), Some(Stage::Silent(next)));
    }
    let called = look(node("clean wait", called(40)));
    assert_eq!(called.stage_at(900), Some(Stage::Ramdisk));
}

/// The ramdisk asks again and again, with no pause that a look could wait for.
#[test]
fn an_image_that_is_not_there_is_told_while_it_is_asked_for() {
    let writes = || look(node("deploying", json!({"deploy_step": {"step": "write_image"}})));
    let (image, sum) = ("/images/rescue.raw", "/images/rescue.raw.sha256");
    assert_eq!(writes().http(fetch(9, image, Some(200))).stage_at(10), Some(Stage::Writing));
    let told = writes().http(fetch(9, sum, Some(404))).stage_at(10);
    assert_eq!(told, Some(Stage::InVain { path: sum.to_owned(), status: 404 }));
}

/// All that a whole boot leads to is fewer words than its host may be written (50).
#[test]
fn a_boot_is_told_in_a_handful_of_steps() {
    let on = || look(node("inspect wait", json!({})));
    let mut told: Vec<String> = Vec::new();
    for second in 0..120 {
        let mut look = on();
        look.dhcp = match second {
            0..10 => None,
            10..12 => Some(asked(second)),
            // Firmware, iPXE and the ramdisk each ask again.
            _ => Some(answered(second, "ack")),
        };
        look.http = match second {
            0..20 => None,
            20..25 => Some(fetch(second, CONFIG, Some(200))),
            25..27 => Some(fetch(25, KERNEL, None)),
            27..40 => Some(fetch(27, RAMDISK, None)),
            _ => Some(fetch(27, RAMDISK, Some(200))),
        };
        let sentence = look.sentence(second);
        if told.last() != Some(&sentence) {
            told.push(sentence);
        }
    }
    assert_eq!(told.len(), 5, "{told:#?}");
}
