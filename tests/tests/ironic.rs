//! Real Ironic, out of the image that the builder makes, with what the agent lays out for it, on loopback.

mod provisioning;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::metal3::bmc_address::{BmcAddress, Credentials, Driver};
use axum::Router;
use axum::routing::get;
use foothold_agent::ironic::Node;
use foothold_agent::operators::metal3::{Ramdisk, Registration};
use foothold_agent::provisioning::client::{Access, Trouble};
use foothold_agent::provisioning::{RUN, STATE, authorities, database};
use foothold_qemu::bmc::{Bmc, BootFrom, MemoryPower, Options, Profile};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use provisioning::{Bench, VERSION, drivers};

/// An answer is there within this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of every BMC.
const PASSWORD: &str = "a password of this test";

/// A request with the password; the status and the body.
async fn ask(access: &Access, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
    let client: Client = access.settings().http(PATIENCE).expect("a client");
    let url = format!("https://127.0.0.1:{}/v1/{path}", access.port);
    let request = client.request(method, url).header(VERSION.0, VERSION.1);
    let request = request.basic_auth(&access.credentials.username, Some(&access.credentials.password));
    let request = if let Some(body) = body { request.json(&body) } else { request };
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.json().await.unwrap_or_default())
}

#[tokio::test]
async fn real_ironic_serves_its_drivers_keeps_nodes_right_and_survives_the_loss_of_its_database() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bench = Bench::on_loopback();
    let placed = bench.place(false);
    assert_eq!(placed.new_database, Some(database::Reason::First));
    let access = &placed.access;
    let mut ironic = bench.start();
    assert_eq!(drivers(access, &mut ironic).await, ["idrac", "ipmi", "redfish"]);

    // Nobody without the password, and not with another one.
    let url = format!("https://127.0.0.1:{}/v1/nodes", access.port);
    let client = access.settings().http(PATIENCE).expect("a client");
    let open = client.get(&url).send().await.expect("an answer");
    assert_eq!(open.status(), StatusCode::UNAUTHORIZED);
    let wrong = client.get(&url).basic_auth(&access.credentials.username, Some("wrong")).send().await;
    assert_eq!(wrong.expect("an answer").status(), StatusCode::UNAUTHORIZED);

    // Every way to start and to install a server that the box promises.
    let (status, driver) = ask(access, Method::GET, "drivers/redfish", None).await;
    assert_eq!(status, StatusCode::OK, "{driver}");
    let names = |list: &Value| -> Vec<String> {
        let mut names: Vec<String> = serde_json::from_value(list.clone()).unwrap_or_default();
        names.sort();
        names
    };
    assert_eq!(names(&driver["enabled_boot_interfaces"]), ["ipxe", "redfish-https", "redfish-virtual-media"]);
    assert_eq!(names(&driver["enabled_deploy_interfaces"]), ["custom-agent", "direct", "ramdisk"]);
    assert_eq!(names(&driver["enabled_inspect_interfaces"]), ["agent", "no-inspect", "redfish"]);
    let (_, idrac) = ask(access, Method::GET, "drivers/idrac", None).await;
    assert!(names(&idrac["enabled_boot_interfaces"]).contains(&"idrac-redfish-virtual-media".to_owned()), "{idrac}");

    // A change of a node leaves it no child of its own; a parent that is meant stays possible.
    let mut nodes = Vec::new();
    for (name, driver) in [("server-1", "redfish"), ("server-2", "ipmi"), ("server-3", "idrac")] {
        let (status, node) = ask(access, Method::POST, "nodes", Some(json!({"name": name, "driver": driver}))).await;
        assert_eq!(status, StatusCode::CREATED, "{node}");
        nodes.push(node["uuid"].clone());
    }
    let patch = json!([{"op": "add", "path": "/extra/rack", "value": "7"}]);
    let (status, node) = ask(access, Method::PATCH, "nodes/server-1", Some(patch)).await;
    assert_eq!((status, &node["extra"]["rack"]), (StatusCode::OK, &json!("7")), "{node}");
    assert_eq!(node["parent_node"], Value::Null);
    let patch = json!([{"op": "add", "path": "/parent_node", "value": nodes[0]}]);
    let (status, node) = ask(access, Method::PATCH, "nodes/server-2", Some(patch)).await;
    assert_eq!((status, &node["parent_node"]), (StatusCode::OK, &nodes[0]), "{node}");

    // Its database goes while it runs: that is noticed, and what the agent lays out anew works after a restart.
    fs_err::remove_file(bench.at(STATE).join("db").join(database::FILE)).expect("lost");
    let (status, answer) = ask(access, Method::GET, "nodes", None).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    let trouble = access.drivers().await.expect_err("no database");
    assert!(matches!(trouble, Trouble::DatabaseLost(_)), "{trouble:?}");
    let anew = bench.place(true);
    assert_eq!(anew.new_database, Some(database::Reason::Lost));
    assert_ne!(anew.generation, placed.generation, "the kubelet starts another pod");
    ironic.stop(Duration::from_secs(30));
    let mut ironic = bench.start();
    assert_eq!(drivers(&anew.access, &mut ironic).await.len(), 3);
    let (status, list) = ask(&anew.access, Method::GET, "nodes", None).await;
    assert_eq!((status, &list["nodes"]), (StatusCode::OK, &json!([])));
    let served = bench.at(STATE).join("http");
    for file in ["boot.ipxe", "snponly.efi", "undionly.kpxe", "ipxe-arm64.efi"] {
        assert!(served.join(file).is_file(), "{file}");
    }
}

/// Where BMCs are told to fetch their media; nobody is there.
const MEDIA: &str = "https://127.0.0.1:1/provisioning";

/// Kernel and ramdisk that nobody starts, on a free loopback port.
async fn ramdisk(tasks: &mut JoinSet<()>) -> Ramdisk {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let router = Router::new().route("/{name}", get(async || "as good as any\n".repeat(100_000)));
    tasks.spawn(async move { axum::serve(listener, router).await.expect("served") });
    Ramdisk { kernel: Some(format!("{url}/kernel")), initrd: Some(format!("{url}/initrd")), ..Ramdisk::default() }
}

/// What the controller tells Ironic about a host whose BMC is there.
fn registered(name: &str, address: &str, ramdisk: &Ramdisk) -> Value {
    registration(name, address, ramdisk, None).whole()
}

fn registration(name: &str, address: &str, ramdisk: &Ramdisk, network: Option<Value>) -> Registration {
    registration_with(name, address, ramdisk, network, true)
}

fn registration_with(
    name: &str,
    address: &str,
    ramdisk: &Ramdisk,
    network: Option<Value>,
    any_certificate: bool,
) -> Registration {
    let bmc = json!({"address": address, "credentialsName": "bmc", "disableCertificateVerification": any_certificate});
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "metal3"}, "spec": {"online": true, "bmc": bmc}});
    let host = serde_json::from_value(host).expect("a host");
    let bmc: BmcAddress = address.parse().expect("an address");
    let credentials = Credentials::new(Some("admin"), Some(PASSWORD)).expect("credentials");
    Registration::of(&host, &bmc, &credentials, Some(ramdisk), network).media_from(&host, bmc.driver, Some(MEDIA))
}

/// Waits until a node is in a state that is asked for.
async fn comes_to(access: &Access, node: &str, wanted: &str) {
    let begun = Instant::now();
    loop {
        let (_, node) = ask(access, Method::GET, node, None).await;
        if node["provision_state"] == wanted {
            return;
        }
        let (state, error) = (&node["provision_state"], &node["last_error"]);
        assert!(begun.elapsed() < Duration::from_secs(120), "not {wanted} but {state}: {error}");
        assert!(error.is_null(), "not {wanted} but {state}: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Ironic's own code for an iDRAC's RAID, where the extension has nothing for it.
const RAID: &str = "
import sushy, sys
from ironic.drivers.modules.drac.raid import DracRedfishRAID as Raid
system = sushy.Sushy(sys.argv[1], 'admin', sys.argv[2], verify=False).get_system(sys.argv[3])
print(Raid._clear_foreign_config(system, None), Raid._change_physical_disk_state(system, None))
";

#[tokio::test(flavor = "multi_thread")]
async fn real_ironic_takes_every_kind_of_bmc_and_an_idrac_boots_its_virtual_disc() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bench = Bench::on_loopback();
    let placed = bench.place(false);
    let access = &placed.access;
    let mut ironic = bench.start();
    drivers(access, &mut ironic).await;
    let mut tasks = JoinSet::new();
    let ramdisk = ramdisk(&mut tasks).await;
    for driver in Driver::ALL {
        let address = format!("{}://127.0.0.1:1/redfish/v1/Systems/1", driver.scheme());
        let node = registered(driver.scheme(), &address, &ramdisk);
        let (status, node) = ask(access, Method::POST, "nodes", Some(node)).await;
        assert_eq!(status, StatusCode::CREATED, "{address}: {node}");
        if let Some(fast) = driver.fast_inspect_interface() {
            let change = json!([{"op": "add", "path": "/inspect_interface", "value": fast}]);
            let path = format!("nodes/{}", node["uuid"].as_str().expect("an id"));
            let (status, node) = ask(access, Method::PATCH, &path, Some(change)).await;
            assert_eq!((status, &node["inspect_interface"]), (StatusCode::OK, &json!(fast)), "{address}: {node}");
        }
    }

    // Each address may be corrected to any other kind; network data come and go.
    for (index, driver) in Driver::ALL.into_iter().enumerate() {
        for network in [Some(json!({"links": [], "networks": [], "services": []})), None] {
            let path = format!("nodes/metal3~{}", driver.scheme());
            let (_, node) = ask(access, Method::GET, &path, None).await;
            let node: Node = serde_json::from_value(node).expect("a node");
            let other = Driver::ALL[(index + 1) % Driver::ALL.len()];
            let address = format!("{}://127.0.0.1:1/redfish/v1/Systems/1", other.scheme());
            let has = network.is_some();
            let changes = registration(driver.scheme(), &address, &ramdisk, network).changes(&node, false);
            let reset = if changes.iter().any(|it| it.path() == "/driver") { "?reset_interfaces=true" } else { "" };
            let path = format!("{path}{reset}");
            let (status, node) = ask(access, Method::PATCH, &path, Some(json!(changes))).await;
            assert_eq!(status, StatusCode::OK, "{} to {}: {node}", driver.scheme(), other.scheme());
            let has_now = node["network_data"].as_object().is_some_and(|data| !data.is_empty());
            assert_eq!((&node["driver"], has_now), (&json!(other.hardware_type()), has), "{node}");
        }
    }

    // By the extension that only Dell's BMC needs: the image has it, and the emulated one takes what it says.
    let power = Arc::new(MemoryPower::new(false));
    let options = Options::on_loopback(Profile::known("idrac").expect("a profile"), PASSWORD, power.clone());
    let bmc = Bmc::start(&mut tasks, options, &CancellationToken::new()).expect("started");
    let system = "/redfish/v1/Systems/System.Embedded.1";
    let address = format!("idrac-virtualmedia+https://{}{system}", bmc.address());
    // Its certificate is checked: first nobody has signed it whom Ironic trusts, and then its host's Secret says so.
    let file = format!("{RUN}/{}", authorities::FILE);
    let node = registration_with("server-1", &address, &ramdisk, None, false).trusting(Some(&file)).whole();
    let (status, node) = ask(access, Method::POST, "nodes", Some(node)).await;
    assert_eq!(status, StatusCode::CREATED, "{node}");
    let node = format!("nodes/{}", node["uuid"].as_str().expect("an id"));
    let manage = Some(json!({"target": "manage"}));
    let (status, answer) = ask(access, Method::PUT, &format!("{node}/states/provision"), manage).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let begun = Instant::now();
    let untrusted = loop {
        let (_, node) = ask(access, Method::GET, &node, None).await;
        if let Some(error) = node["last_error"].as_str() {
            break error.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{node}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert!(untrusted.contains("CERTIFICATE_VERIFY_FAILED"), "{untrusted}");
    bench.trust(&access.authority, &[bmc.certificate()]);
    for (target, state) in [("manage", "manageable"), ("inspect", "inspect wait")] {
        let path = format!("{node}/states/provision");
        let (status, answer) = ask(access, Method::PUT, &path, Some(json!({"target": target}))).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        comes_to(access, &node, state).await;
    }
    let boots = power.boots();
    assert!(matches!(boots.as_slice(), [boot] if boot.from == BootFrom::Cd && boot.once), "{boots:?}");
    let asked = bmc.asked();
    assert!(asked.iter().any(|it| it.path.ends_with("VirtualMedia/CD/Actions/VirtualMedia.InsertMedia")), "{asked:?}");
    let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().expect("a client");
    let drive = format!("{}/redfish/v1/Managers/iDRAC.Embedded.1/VirtualMedia/CD", bmc.url());
    let drive = client.get(drive).basic_auth("admin", Some(PASSWORD)).send().await.expect("an answer");
    let drive: Value = drive.json().await.expect("JSON");
    let image = drive["Image"].as_str().unwrap_or_default();
    assert!(image.starts_with(&format!("{MEDIA}/redfish/")), "{drive}");
    ironic.stop(Duration::from_secs(30));
    let toolbox = bench.toolbox();
    let script = ["/usr/bin/python3", "-c", RAID, &bmc.url(), PASSWORD, system];
    let said = tokio::task::block_in_place(|| bench.tool(&toolbox, &script).run()).expect("goes on without it");
    assert_eq!(String::from_utf8_lossy(&said).trim(), "False False");
}

/// Ironic's own code, with the image's programs and the loaders that the builder packed.
const MAKE_ISO: &str = "
import sys
from ironic.common import images
from ironic.conf import CONF
CONF(['--config-file', sys.argv[1]], project='ironic')
images.create_esp_image_for_uefi(sys.argv[2] + '/boot.iso', sys.argv[2] + '/kernel', sys.argv[2] + '/ramdisk',
                                 esp_image=CONF.esp_image, kernel_params='quiet')
";

#[test]
fn a_medium_for_a_server_is_made_by_ironic_and_has_its_loaders() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bench = Bench::on_loopback();
    bench.place(false);
    let folder = bench.at(STATE).join("tmp");
    for name in ["kernel", "ramdisk"] {
        fs_err::write(folder.join(name), format!("the {name}\n").repeat(1000)).expect("written");
    }
    let (toolbox, config, tmp) = (bench.toolbox(), format!("{RUN}/ironic.conf"), format!("{STATE}/tmp"));
    let made = bench.tool(&toolbox, &["/usr/bin/python3", "-c", MAKE_ISO, &config, &tmp]).run();
    made.unwrap_or_else(|error| panic!("{error}"));
    let iso = format!("{tmp}/boot.iso");
    let list = ["/usr/bin/xorriso", "-indev", &iso, "-pvd_info", "-find", "/"];
    let listed = bench.tool(&toolbox, &list).run().expect("read by xorriso");
    let listed = String::from_utf8_lossy(&listed).into_owned();
    for wanted in ["VMEDIA_BOOT_ISO", "'/EFI/BOOT/grub.cfg'", "'/vmlinuz'", "'/initrd'"] {
        assert!(listed.contains(wanted), "no {wanted} in\n{listed}");
    }
    let esp = ["/usr/bin/mdir", "-i", "/usr/share/ironic/esp.img", "-/", "-b", "::"];
    let loaders = String::from_utf8_lossy(&bench.tool(&toolbox, &esp).run().expect("a volume")).to_uppercase();
    for wanted in ["EFI/BOOT/BOOTX64.EFI", "EFI/BOOT/GRUBX64.EFI", "EFI/DEBIAN/GRUB.CFG"] {
        assert!(loaders.contains(wanted), "no {wanted} in\n{loaders}");
    }
}
