//! What a server runs in its memory while Ironic inspects, installs and cleans it, for a machine that is nothing but a
//! state in memory: it goes where network boot leads it, tells an inventory, and does whatever it is told at once.
//!
//! Only where a BMC is what is looked at: what real servers run is in every other test of a site.
//!
//! ```text
//! powered on ─► pxelinux.cfg/MAC ─► kernel's words ─► continue_inspection ─► lookup ─► heartbeat, again and again
//!                                                                Ironic ─► commands ┘
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_api::ports;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use foothold_qemu::bmc::{Act, Boot, BootFrom, MemoryPower, Power as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::bench::{BOX, DISK};
use crate::provisioning::VERSION;

/// From power-on to the first word.
const BOOTS_WITHIN: Duration = Duration::from_secs(2);
/// Between two tries of anything, and between two heartbeats.
const PAUSE: Duration = Duration::from_secs(2);
/// Names that Ironic gives the agent's steps of cleaning and deploying.
const MANAGER: &str = "generic_hardware_manager";

/// A machine without a body.
pub struct Imitation {
    mac: String,
    /// Where Ironic reaches it.
    own: Ipv4Addr,
    power: Arc<MemoryPower>,
    client: reqwest::Client,
}

/// What it was told to do and has done.
type Commands = Arc<Mutex<Vec<Value>>>;

impl Imitation {
    /// The machine with that card.
    pub fn new(mac: &str, own: Ipv4Addr, power: Arc<MemoryPower>) -> Self {
        // As the kernel is told (`ipa-insecure`).
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
        let client = client.timeout(Duration::from_secs(60)).build().expect("a client");
        Self { mac: mac.to_owned(), own, power, client }
    }

    /// Boots whenever it is switched on or reset. Ends only when it is dropped.
    pub async fn run(self) {
        loop {
            let (on, boots) = self.now();
            if on && boots.last().is_none_or(|boot| boot.from != BootFrom::Disk) {
                tokio::select! {
                    () = self.ramdisk() => {}
                    () = self.until_other(&boots) => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn now(&self) -> (bool, Vec<Boot>) {
        (self.power.is_on(), self.power.boots())
    }

    async fn until_other(&self, boots: &[Boot]) {
        loop {
            let (on, now) = self.now();
            if !on || now.len() != boots.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ramdisk(&self) {
        tokio::time::sleep(BOOTS_WITHIN).await;
        let Some(words) = self.kernel().await else { return std::future::pending().await };
        let word = |key: &str| words.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let api = word("ipa-api-url").expect("where Ironic is").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind((self.own, 0)).await.expect("a port");
        let own = listener.local_addr().expect("an address");
        let life = async {
            if let Some(url) = word("ipa-inspection-callback-url") {
                // Without a version, as the agent does: with one, the answer is the only one that names the token.
                self.until_taken(|| self.client.post(url).json(&inventory(&self.mac, own))).await;
            }
            self.agent(&api, own).await;
        };
        tokio::select! {
            () = life => {}
            () = self.obey(listener) => {}
        }
    }

    /// What the kernel is told where network boot leads; none where it leads to the disk, or nowhere.
    async fn kernel(&self) -> Option<String> {
        let at = SocketAddr::from((BOX, ports::CONTENT));
        let url = format!("http://{at}/provisioning/pxelinux.cfg/{}", self.mac.replace(':', "-"));
        let answer = self.client.get(url).send().await.ok()?.error_for_status().ok()?;
        let script = answer.text().await.ok()?;
        let mut lines = script.lines().map(str::trim);
        lines.clone().find(|line| line.starts_with("goto ")).filter(|line| *line == "goto deploy")?;
        lines.find(|line| line.starts_with("kernel ")).map(str::to_owned)
    }

    /// Asks until it is answered well.
    async fn until_taken(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Value {
        loop {
            let answer = request().send().await;
            if let Ok(answer) = answer.and_then(reqwest::Response::error_for_status) {
                return answer.json().await.unwrap_or_default();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn agent(&self, api: &str, own: SocketAddr) {
        let url = format!("{api}/v1/lookup?addresses={}", self.mac);
        let found = self.until_taken(|| self.client.get(&url).header(VERSION.0, VERSION.1)).await;
        let uuid = found["node"]["uuid"].as_str().expect("a node");
        let (url, callback) = (format!("{api}/v1/heartbeat/{uuid}"), format!("http://{own}"));
        let token = &found["config"]["agent_token"];
        let beat = json!({"callback_url": callback, "agent_version": "10.2.0", "agent_token": token});
        loop {
            self.until_taken(|| self.client.post(&url).header(VERSION.0, VERSION.1).json(&beat)).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Takes commands, and switches itself off when it is told to.
    async fn obey(&self, listener: TcpListener) {
        let done = Commands::default();
        let list = get(async |State(done): State<Commands>| Json(json!({"commands": *lock(&done)})));
        let list = list.post(async |State(done): State<Commands>, Json(command): Json<Value>| {
            let answer = answered(&command);
            lock(&done).push(answer.clone());
            Json(answer)
        });
        let router = Router::new().route("/v1/commands/", list).with_state(Arc::clone(&done));
        let off = async {
            while lock(&done).iter().all(|it| it["command_name"] != "power_off") {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            tokio::time::sleep(BOOTS_WITHIN).await;
            self.power.act(Act::Off, Boot::default()).expect("off");
        };
        tokio::select! {
            served = async { axum::serve(listener, router).await } => served.expect("served"),
            () = off => {}
        }
    }
}

fn lock(commands: &Commands) -> std::sync::MutexGuard<'_, Vec<Value>> {
    commands.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As the agent of Debian 13 answers (`extensions/{clean,deploy,standby}.py`), with one step of each kind.
fn answered(command: &Value) -> Value {
    let (name, params) = (command["name"].as_str().unwrap_or_default(), &command["params"]);
    let step = |step: &str, priority: u8| json!({"step": step, "priority": priority, "interface": "deploy", "reboot_requested": false, "abortable": true});
    let versions = json!({MANAGER: "1.2"});
    let result = match name {
        "clean.get_clean_steps" => json!({
            "clean_steps": {MANAGER: [step("erase_devices_metadata", 99)]},
            "hardware_manager_version": versions,
        }),
        "deploy.get_deploy_steps" => json!({
            "deploy_steps": {MANAGER: [step("write_image", 0)]},
            "hardware_manager_version": versions,
        }),
        "clean.execute_clean_step" => json!({"clean_result": null, "clean_step": params["step"]}),
        "deploy.execute_deploy_step" => json!({"deploy_result": "done", "deploy_step": params["step"]}),
        _ => Value::Null,
    };
    json!({
        "id": "0",
        "command_name": name.rsplit('.').next(),
        "command_params": params,
        "command_status": "SUCCEEDED",
        "command_error": null,
        "command_result": result,
    })
}

/// As the agent of Debian 13 tells it (`hardware.py`).
fn inventory(mac: &str, own: SocketAddr) -> Value {
    let disk = json!({
        "name": "/dev/vda", "model": "", "size": DISK, "rotational": false, "wwn": null, "serial": "imitation",
        "vendor": "0x1af4", "wwn_with_extension": null, "wwn_vendor_extension": null, "hctl": null, "by_path": null,
        "logical_sectors": 512, "physical_sectors": 512,
    });
    let card = json!({
        "name": "ens3", "mac_address": mac, "ipv4_address": own.ip(), "ipv6_address": null, "has_carrier": true,
        "lldp": [], "vendor": "0x1af4", "product": "0x0001", "client_id": null, "biosdevname": null, "speed_mbps": null,
        "pci_address": "0000:00:03.0", "driver": "virtio_net",
    });
    json!({
        "inventory": {
            "interfaces": [card],
            "disks": [disk],
            "cpu": {"model_name": "none", "frequency": "2000", "count": 2, "architecture": "x86_64", "flags": [], "socket_count": 1},
            "memory": {"total": 2_u64 << 30, "physical_mb": 2048},
            "bmc_address": "0.0.0.0",
            "bmc_v6address": "::/0",
            "system_vendor": {"product_name": "Server", "serial_number": "SN0001", "manufacturer": "Example",
                              "firmware": {"vendor": "Example", "version": "1.4.2", "build_date": "01/01/2025"}},
            "boot": {"current_boot_mode": "uefi", "pxe_interface": mac},
            "hostname": "imitation",
        },
        "root_disk": disk,
        "boot_interface": mac,
        "error": null,
    })
}
