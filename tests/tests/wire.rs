//! A second machine on the servers' wire, and real Ironic behind the agent: every request that could give it a secret of
//! another server.

mod provisioning;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_api::ports;
use foothold_agent::content::Source;
use foothold_agent::content::server::Content;
use foothold_agent::provisioning::client::Access;
use foothold_agent::provisioning::segment::dnsmasq::LEASES;
use foothold_agent::provisioning::served::Served;
use foothold_agent::provisioning::wire::SERVERS;
use foothold_agent::provisioning::{RUN, STATE, dhcp, kept};
use foothold_agent::{door, http};
use foothold_qemu::Tools;
use foothold_qemu::site::{Lan, Namespace};
use foothold_tests::service_image::ServiceImage;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use provisioning::{Bench, VERSION, drivers};

const BOX: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 1);
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the server whose secrets are wanted, which is off.
const VICTIM: &str = "52:54:00:00:00:0a";
/// Of the machine that asks.
const OWN: &str = "52:54:00:00:00:0b";

/// A client on this thread's machine, with a runtime of its own.
struct Machine {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Machine {
    fn new(access: &Access) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { client: access.settings().http(PATIENCE).expect("a client"), runtime }
    }

    fn ask(&self, method: Method, path: &str, body: &Value) -> (StatusCode, String) {
        let url = format!("https://{}{path}", SocketAddr::from((BOX, ports::IRONIC)));
        self.send(self.client.request(method, url).header(VERSION.0, VERSION.1).json(body))
    }

    fn file(&self, path: &str) -> StatusCode {
        let url = format!("http://{}/provisioning/{path}", SocketAddr::from((BOX, ports::CONTENT)));
        self.send(self.client.get(url)).0
    }

    fn send(&self, request: reqwest::RequestBuilder) -> (StatusCode, String) {
        self.runtime.block_on(async {
            let answer = request.send().await.expect("an answer");
            (answer.status(), answer.text().await.expect("a text"))
        })
    }
}

/// A machine on the bridge with that MAC and IP address. Belongs on a thread of the bridge's namespace.
fn machine(tools: &Tools, name: &'static str, mac: &str, address: &'static str) -> Namespace {
    let namespace = Namespace::make().unwrap_or_else(|error| panic!("{error}"));
    let lan = Lan::of_this_thread(tools);
    lan.card(name, mac).expect("a card");
    lan.give(name, &namespace).expect("given");
    let tools = tools.clone();
    namespace.run(move || Lan::of_this_thread(&tools).switch_on(name, &format!("{address}/24")).expect("an address"));
    namespace
}

async fn made(access: &Access, path: &str, body: Value) -> Value {
    let url = format!("https://{}/v1/{path}", SocketAddr::from((BOX, ports::IRONIC)));
    let client = access.settings().http(PATIENCE).expect("a client");
    let request = client.post(url).header(VERSION.0, VERSION.1).json(&body);
    let answer = request.basic_auth(&access.credentials.username, Some(&access.credentials.password)).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), StatusCode::CREATED, "{path}");
    answer.json().await.expect("JSON")
}

/// The box's half: files, who stands before Ironic, Ironic with a node for each MAC address. The ids of the nodes.
async fn box_of(
    bench: &Bench,
    tasks: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> (Access, [String; 2]) {
    let placed = bench.place(false);
    // Nodes that were just made are looked up, too: what is shown here is who may, not when.
    let path = bench.at(RUN).join("ironic.conf");
    let text = fs_err::read_to_string(&path).expect("text").replace("[api]\n", "[api]\nrestrict_lookup = false\n");
    fs_err::write(&path, text).expect("written");
    kept::look_through(bench.root(), &[]).expect("nothing is there yet");
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(Served::of(bench.root()))];
    let content = Arc::new(Content::new(sources, Path::new("/nowhere"), 1_700_000_000));
    let (resolver, _) = door::own_certificate(&bench.at("/web")).expect("a certificate");
    http::start(tasks, &[(BOX, ports::CONTENT).into()], content, door::tls(resolver).expect("TLS"), stop);
    bench.stand_before_ironic(tasks, stop);
    let access = placed.access;
    let mut ironic = bench.start();
    drivers(&access, &mut ironic).await;
    let mut ids = Vec::new();
    let mut servers = Vec::new();
    for (name, mac) in [("victim", VICTIM), ("own", OWN)] {
        let node = made(&access, "nodes", json!({"name": name, "driver": "ipmi"})).await;
        let id = node["uuid"].as_str().expect("an id").to_owned();
        made(&access, "ports", json!({"node_uuid": id, "address": mac})).await;
        let http = bench.at(STATE).join("http").join(&id);
        fs_err::create_dir_all(&http).expect("a folder");
        fs_err::write(http.join("config"), "kernel\n").expect("written");
        servers.push(json!({"macs": [mac], "addresses": [], "bmc": ["172.22.0.200"], "node": id}));
        ids.push(id);
    }
    fs_err::write(bench.at(SERVERS), json!(servers).to_string()).expect("written");
    tasks.spawn(async move {
        std::future::pending::<()>().await;
        drop(ironic);
        Ok(())
    });
    (access, ids.try_into().expect("two"))
}

#[test]
fn nothing_on_the_wire_gets_another_servers_secrets() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tools = Tools::locate().expect("a toolbox");
    let image = ServiceImage::ironic().unwrap_or_else(|error| panic!("making the image: {error:#}"));
    Namespace::make().unwrap_or_else(|error| panic!("{error}")).run(move || {
        let lan = Lan::make(&tools).unwrap_or_else(|error| panic!("{error}"));
        lan.address(&format!("{BOX}/24")).expect("an address");
        let bench = Bench::on_segment(image, BOX);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (access, ids) = runtime.block_on(box_of(&bench, &mut tasks, &stop));
        let leases = bench.at(dhcp::STATE).join(LEASES);
        fs_err::create_dir_all(leases.parent().expect("a folder")).expect("a folder");
        fs_err::write(&leases, format!("4000000000 {OWN} 172.22.0.11 own *\n")).expect("written");

        let (own_access, own_ids) = (access.clone(), ids.clone());
        let own = machine(&tools, "own", OWN, "172.22.0.11");
        own.run(move || asks_for_more_than_its_own(&Machine::new(&own_access), &own_ids));

        // Somebody without a lease, whom the kernel hears from a card of its own.
        let (victim, strange_access) = (ids[0].clone(), access.clone());
        let stranger = machine(&tools, "stranger", "52:54:00:00:00:0c", "172.22.0.66");
        stranger.run(move || {
            let machine = Machine::new(&strange_access);
            for mac in [VICTIM, OWN, "52:54:00:00:00:0c"] {
                let (status, text) = machine.ask(Method::GET, &format!("/v1/lookup?addresses={mac}"), &Value::Null);
                assert!(!status.is_success() && !text.contains("agent_token"), "{mac}: {status} {text}");
            }
            let report = json!({"inventory": {"interfaces": [{"mac_address": VICTIM}]}});
            let sent = machine.ask(Method::POST, "/v1/continue_inspection", &report);
            assert_eq!(sent.0, StatusCode::FORBIDDEN, "{}", sent.1);
            assert_eq!(machine.file(&format!("{victim}/config")), StatusCode::NOT_FOUND);
        });

        // The server itself, once it has its lease; and its BMC, for its files.
        fs_err::write(&leases, format!("4000000000 {VICTIM} 172.22.0.10 victim *\n")).expect("written");
        let (id, victim_access) = (ids[0].clone(), access.clone());
        let victim = machine(&tools, "victim", VICTIM, "172.22.0.10");
        victim.run(move || {
            let machine = Machine::new(&victim_access);
            let (status, text) = machine.ask(Method::GET, &format!("/v1/lookup?addresses={VICTIM}"), &Value::Null);
            assert_eq!(status, StatusCode::OK, "{text}");
            assert!(text.contains(&id) && text.contains("agent_token"), "{text}");
            assert_eq!(machine.file(&format!("{id}/config")), StatusCode::OK);
        });
        let bmc = machine(&tools, "bmc", "52:54:00:00:00:0d", "172.22.0.200");
        let id = ids[0].clone();
        bmc.run(move || assert_eq!(Machine::new(&access).file(&format!("{id}/config")), StatusCode::OK));
        stop.cancel();
        runtime.block_on(tasks.shutdown());
    });
}

fn asks_for_more_than_its_own(machine: &Machine, [victim, own]: &[String; 2]) {
    let get = |path: &str| machine.ask(Method::GET, path, &Value::Null);
    let (status, text) = get(&format!("/v1/lookup?addresses={OWN}"));
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains(own), "{text}");
    let (status, text) = get(&format!("/v1/lookup?addresses={OWN},{VICTIM}&node_uuid={victim}"));
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains(own) && !text.contains(victim), "{text}");
    for path in [
        format!("/v1/lookup?addresses={VICTIM}"),
        format!("/v1/lookup/?addresses={VICTIM}"),
        format!("/v1/lookup?node_uuid={victim}"),
        format!("/v1/lookup?addresses=%35%32:54:00:00:00:0a&addresses={VICTIM}"),
        format!("//v1//lookup?addresses={VICTIM}"),
        format!("/v1/lookup.json?addresses={VICTIM}"),
        format!("/v1/%6Cookup?addresses={VICTIM}"),
        format!("/v1/./lookup?addresses={VICTIM}"),
        format!("/v1/nodes/../lookup?addresses={VICTIM}"),
    ] {
        let (status, text) = get(&path);
        assert!(!status.is_success(), "{path}: {status} {text}");
        assert!(!text.contains("agent_token") && !text.contains(victim.as_str()), "{path}: {text}");
    }
    for path in ["/v1/nodes", "/v1/ports", &format!("/v1/nodes/{victim}"), &format!("/v1/nodes/{victim}/inventory")] {
        assert_eq!(get(path).0, StatusCode::UNAUTHORIZED, "{path}");
    }
    let life = json!({"callback_url": "https://172.22.0.11:9999", "agent_version": "9.0.0"});
    let (status, text) = machine.ask(Method::POST, &format!("/v1/heartbeat/{victim}"), &life);
    assert!(status.is_client_error(), "{status} {text}");
    let report = json!({"inventory": {"interfaces": [{"mac_address": OWN}, {"mac_address": VICTIM}]}});
    for path in ["/v1/continue_inspection".to_owned(), format!("/v1/continue_inspection?node_uuid={victim}")] {
        assert_eq!(machine.ask(Method::POST, &path, &report).0, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(machine.file(&format!("{own}/config")), StatusCode::OK);
    for path in [format!("{victim}/config"), format!("./{victim}/config"), format!("%2e/{victim}/config")] {
        assert_eq!(machine.file(&path), StatusCode::NOT_FOUND, "{path}");
    }
}
