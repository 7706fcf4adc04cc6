//! A fake Ironic: the API of nodes and ports over HTTP, the node's state machine with delays, faults on demand.
//!
//! It stands where Ironic and the servers behind it are too slow or too well-behaved for a test: a thousand nodes,
//! a lost database, a conductor that answers no more.

mod firmware;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::media::Bmcs;

/// The password that the fake BMCs take.
pub const PASSWORD: &str = "right";

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Nobody answers any more.
    pub hangs: bool,
    /// Every so many-th change finds its node locked.
    pub locked_every: Option<u64>,
    /// Cleaning fails.
    pub cleaning: bool,
    /// So many inspections fail first.
    pub inspections: u64,
    /// Ramdisks that are booted now never call.
    pub silence: bool,
    /// So many cleanings break off first.
    pub abandoned: u64,
    /// So many power changes break off first.
    pub unswitched: u64,
}

/// What there is.
#[derive(Debug, Default)]
pub struct World {
    /// Nodes by UUID.
    pub nodes: BTreeMap<String, Value>,
    /// Ports by MAC address.
    pub ports: BTreeMap<String, Value>,
    /// What goes wrong.
    pub faults: Faults,
    /// Power changes of nodes, by name.
    pub power: Vec<(String, String)>,
    /// Requests so far.
    pub asked: u32,
    /// Requests that change something: method and path.
    pub changes: Vec<String>,
    /// Images that were deployed, with config drives.
    pub deployed: Vec<Value>,
    /// Most nodes that were inspected, deployed or cleaned at a time.
    pub most_busy: usize,
    /// BIOS settings and firmware.
    pub firmware: firmware::Firmware,
    /// Drives and subscriptions.
    pub bmcs: Bmcs,
    /// How long each step takes.
    pub step: Duration,
    pending: BTreeMap<String, (Instant, Then)>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Verified,
    Inspected,
    Deployed,
    Undeployed,
    Available,
    Cleaned,
    Adopted,
    Serviced,
    Power(bool),
}

/// The fake, served on loopback until it is dropped.
pub struct FakeIronic {
    world: Arc<Mutex<World>>,
    /// Where it listens.
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

impl Drop for FakeIronic {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeIronic {
    /// With steps of this length.
    pub async fn start(step: Duration) -> Self {
        let world = Arc::new(Mutex::new(World { step, ..World::default() }));
        let router = Router::new()
            .route("/", get(root))
            .route("/v1/drivers", get(drivers))
            .route("/v1/ports", any(ports))
            .route("/v1/nodes", any(nodes))
            .route("/v1/nodes/{ident}", any(node))
            .route("/v1/nodes/{ident}/{*rest}", any(part))
            .with_state(world.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        #[expect(clippy::disallowed_methods, reason = "it ends with its handle")]
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self { world, address, server }
    }

    /// What there is now.
    pub fn world(&self) -> MutexGuard<'_, World> {
        let mut world = lock(&self.world);
        world.tick();
        world
    }

    /// The database is lost.
    pub fn wipe(&self) {
        let mut world = self.world();
        world.nodes.clear();
        world.ports.clear();
        world.pending.clear();
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

type Shared = State<Arc<Mutex<World>>>;

fn refused(status: StatusCode, text: &str) -> Response {
    let inner = json!({"faultcode": "Client", "faultstring": text, "debuginfo": null}).to_string();
    (status, axum::Json(json!({"error_message": inner}))).into_response()
}

fn shown(mut node: Value) -> Value {
    for (name, value) in node["driver_info"].as_object_mut().into_iter().flatten() {
        if name.ends_with("_password") {
            *value = json!("******");
        }
    }
    node
}

impl World {
    /// The node by UUID or name.
    pub fn find(&self, ident: &str) -> Option<String> {
        let by_name = || self.nodes.iter().find(|(_, node)| node["name"] == ident).map(|(uuid, _)| uuid.clone());
        self.nodes.contains_key(ident).then(|| ident.to_owned()).or_else(by_name)
    }

    /// A node by name.
    pub fn named(&self, name: &str) -> Option<&Value> {
        self.nodes.get(&self.find(name)?)
    }

    fn set(&mut self, uuid: &str, state: &str) {
        if let Some(node) = self.nodes.get_mut(uuid) {
            node["provision_state"] = json!(state);
            node["target_provision_state"] = json!(null);
        }
        let busy = ["inspect wait", "wait call-back", "deleting", "cleaning"];
        let busy =
            self.nodes.values().filter(|node| busy.iter().any(|state| node["provision_state"] == *state)).count();
        self.most_busy = self.most_busy.max(busy);
    }

    fn begin(&mut self, uuid: &str, state: &str, then: Then) {
        self.set(uuid, state);
        if let Some(node) = self.nodes.get_mut(uuid) {
            node["last_error"] = json!(null);
        }
        // What comes after it keeps the old time, as of a BMC that was asked for nothing: no reason to begin anew again.
        if self.faults.silence && matches!(then, Then::Inspected | Then::Deployed) {
            let info = json!({"last_power_state_change": jiff_now()});
            self.nodes.get_mut(uuid).expect("there")["driver_internal_info"] = info;
            return;
        }
        if self.faults.abandoned > 0 && state == "cleaning" {
            self.faults.abandoned -= 1;
            let node = self.nodes.get_mut(uuid).expect("there");
            node["provision_updated_at"] = json!(jiff_now());
            return;
        }
        let until = Instant::now() + self.step;
        self.pending.insert(uuid.to_owned(), (until, then));
    }

    fn fail(&mut self, uuid: &str, state: &str, error: &str) {
        self.set(uuid, state);
        if let Some(node) = self.nodes.get_mut(uuid) {
            node["last_error"] = json!(error);
        }
    }

    fn switch(&mut self, uuid: &str, on: bool) {
        let wanted = if on { "power on" } else { "power off" };
        let Some(node) = self.nodes.get_mut(uuid) else { return };
        if node["power_state"] != wanted {
            node["power_state"] = json!(wanted);
            self.power.push((node["name"].as_str().unwrap_or_default().to_owned(), wanted.to_owned()));
        }
    }

    /// What is due happens.
    fn tick(&mut self) {
        let now = Instant::now();
        let due: Vec<(String, Then)> = self
            .pending
            .iter()
            .filter(|(_, (until, _))| *until <= now)
            .map(|(uuid, (_, then))| (uuid.clone(), *then))
            .collect();
        for (uuid, then) in due {
            self.pending.remove(&uuid);
            if self.nodes.contains_key(&uuid) {
                self.happen(&uuid, then);
            }
        }
    }

    fn happen(&mut self, uuid: &str, then: Then) {
        match then {
            Then::Verified => {
                let info = &self.nodes[uuid]["driver_info"];
                let password = info.get("redfish_password").or_else(|| info.get("ipmi_password"));
                if password.is_some_and(|password| *password == PASSWORD) {
                    self.set(uuid, "manageable");
                    if self.nodes[uuid]["power_state"].is_null() {
                        self.nodes.get_mut(uuid).expect("there")["power_state"] = json!("power on");
                    }
                } else {
                    self.fail(uuid, "enroll", "Failed to get power state for node: wrong password");
                }
            }
            Then::Inspected if self.faults.inspections > 0 => {
                self.faults.inspections -= 1;
                self.fail(uuid, "inspect failed", "timeout reached while inspecting the node");
            }
            Then::Inspected => {
                let node = self.nodes.get_mut(uuid).expect("there");
                node["inspection_finished_at"] = json!(jiff_now());
                self.switch(uuid, true);
                self.set(uuid, "manageable");
            }
            Then::Deployed => {
                let node = self.nodes[uuid].clone();
                let info = &node["instance_info"];
                if info["image_checksum"] == "bad" {
                    self.fail(uuid, "deploy failed", "Image failed to verify against checksum");
                } else {
                    self.deployed.push(node);
                    self.switch(uuid, true);
                    self.set(uuid, "active");
                }
            }
            Then::Undeployed => {
                let node = self.nodes.get_mut(uuid).expect("there");
                node["instance_info"] = json!({});
                node["instance_uuid"] = json!(null);
                self.clean(uuid, Then::Available);
            }
            Then::Available | Then::Cleaned if self.faults.cleaning => {
                self.fail(uuid, "clean failed", "Agent returned error for clean step: no space left");
                self.nodes.get_mut(uuid).expect("there")["maintenance"] = json!(true);
            }
            Then::Available => {
                self.switch(uuid, false);
                self.set(uuid, "available");
            }
            Then::Cleaned => self.written(uuid, "manageable"),
            Then::Serviced => self.serviced(uuid),
            Then::Adopted => self.set(uuid, "active"),
            Then::Power(on) => {
                let node = self.nodes.get_mut(uuid).expect("there");
                (node["target_power_state"], node["reservation"]) = (json!(null), json!(null));
                self.switch(uuid, on);
            }
        }
    }

    fn serviced(&mut self, uuid: &str) {
        if self.firmware.fails {
            self.fail(uuid, "service failed", "Node failed to perform service step: the file is damaged");
            self.nodes.get_mut(uuid).expect("there")["maintenance"] = json!(true);
            return;
        }
        self.switch(uuid, true);
        self.written(uuid, "active");
    }

    fn written(&mut self, uuid: &str, state: &str) {
        self.firmware.finish(uuid);
        self.set(uuid, state);
    }

    fn clean(&mut self, uuid: &str, then: Then) {
        if self.nodes[uuid]["automated_clean"] == false {
            self.set(uuid, "available");
        } else {
            self.switch(uuid, true);
            self.begin(uuid, "cleaning", then);
        }
    }

    fn provision(&mut self, uuid: &str, body: &Value) -> Response {
        // A power change holds the node: real Ironic begins nothing else before it has ended.
        if !self.nodes[uuid]["reservation"].is_null() {
            return locked_by_host();
        }
        let state = self.nodes[uuid]["provision_state"].as_str().unwrap_or_default().to_owned();
        let target = body["target"].as_str().unwrap_or_default();
        match (target, state.as_str()) {
            ("manage", "enroll") => self.begin(uuid, "verifying", Then::Verified),
            ("manage", "available" | "inspect failed" | "clean failed" | "adopt failed") => {
                self.set(uuid, "manageable");
            }
            ("inspect", "manageable" | "inspect failed") => self.begin(uuid, "inspect wait", Then::Inspected),
            ("abort", "inspect wait") => {
                self.pending.remove(uuid);
                self.fail(uuid, "inspect failed", "Inspection was aborted by request.");
            }
            ("provide", "manageable") => self.clean(uuid, Then::Available),
            ("clean", "manageable") => {
                self.firmware.begin(uuid, target, &body["clean_steps"]);
                self.begin(uuid, "cleaning", Then::Cleaned);
            }
            ("service", "active" | "service failed") => {
                self.firmware.begin(uuid, target, &body["service_steps"]);
                self.begin(uuid, "servicing", Then::Serviced);
            }
            ("abort", "service failed") => self.set(uuid, "active"),
            ("active", "available") => {
                self.nodes.get_mut(uuid).expect("there")["configdrive"] = body["configdrive"].clone();
                self.begin(uuid, "wait call-back", Then::Deployed);
            }
            ("deleted", "active" | "deploy failed" | "error" | "wait call-back") => {
                self.begin(uuid, "deleting", Then::Undeployed);
            }
            ("adopt", "manageable" | "adopt failed") => self.begin(uuid, "adopting", Then::Adopted),
            _ => {
                let text = format!(
                    "The requested action \"{target}\" can not be performed on node while it is in state \"{state}\"."
                );
                return refused(StatusCode::BAD_REQUEST, &text);
            }
        }
        StatusCode::ACCEPTED.into_response()
    }
}

fn jiff_now() -> String {
    // RFC 3339 with whole seconds is what Ironic writes; a second ahead hides nothing, since tests are slower.
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = k8s_openapi::jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or_default() + 1);
    time.map_or_else(|_| String::new(), |time| time.to_string())
}

/// Waits while nobody answers, then notes the request; an answer when it ends there.
async fn enter(world: &Mutex<World>, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    while lock(world).faults.hangs {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut world = lock(world);
    world.tick();
    world.asked += 1;
    if headers.get("X-OpenStack-Ironic-API-Version").is_none_or(|version| version != "1.95") {
        return Some(refused(StatusCode::NOT_ACCEPTABLE, "no version"));
    }
    if method == Method::GET {
        return None;
    }
    world.changes.push(format!("{method} {path}"));
    world.count += 1;
    let count = world.count;
    let locked = world.faults.locked_every.is_some_and(|every| count.is_multiple_of(every));
    let creates = method == Method::POST;
    (locked && !creates).then(locked_by_host)
}

fn locked_by_host() -> Response {
    let why = "Node is locked by host box, please retry after the current operation is completed.";
    refused(StatusCode::CONFLICT, why)
}

async fn root(State(world): Shared) -> Response {
    while lock(&world).faults.hangs {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let version = json!({"id": "v1", "min_version": "1.1", "version": "1.95", "status": "CURRENT"});
    axum::Json(json!({"name": "OpenStack Ironic API", "default_version": version, "versions": [version]}))
        .into_response()
}

async fn drivers(State(world): Shared, headers: HeaderMap) -> Response {
    if let Some(answer) = enter(&world, &Method::GET, "", &headers).await {
        return answer;
    }
    axum::Json(json!({"drivers": [{"name": "redfish"}, {"name": "ipmi"}]})).into_response()
}

async fn ports(
    State(world): Shared,
    method: Method,
    headers: HeaderMap,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    if let Some(answer) = enter(&world, &method, "/v1/ports", &headers).await {
        return answer;
    }
    let mut world = lock(&world);
    if method == Method::GET {
        let matches = |port: &&Value| {
            query.get("node").is_none_or(|node| port["node_uuid"] == **node)
                && query.get("address").is_none_or(|address| port["address"] == **address)
        };
        let found: Vec<&Value> = world.ports.values().filter(matches).collect();
        return axum::Json(json!({"ports": found})).into_response();
    }
    let mut port: Value = serde_json::from_slice(&body).expect("JSON");
    let address = port["address"].as_str().unwrap_or_default().to_owned();
    if world.ports.contains_key(&address) {
        return refused(StatusCode::CONFLICT, &format!("A port with MAC address {address} already exists."));
    }
    port["uuid"] = json!(format!("port-{address}"));
    world.ports.insert(address, port.clone());
    (StatusCode::CREATED, axum::Json(port)).into_response()
}

async fn nodes(State(world): Shared, method: Method, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(answer) = enter(&world, &method, "/v1/nodes", &headers).await {
        return answer;
    }
    let mut world = lock(&world);
    if method == Method::GET {
        let all: Vec<Value> = world.nodes.values().cloned().map(shown).collect();
        return axum::Json(json!({"nodes": all})).into_response();
    }
    let mut node: Value = serde_json::from_slice(&body).expect("JSON");
    let name = node["name"].as_str().unwrap_or_default().to_owned();
    if world.find(&name).is_some() {
        return refused(StatusCode::CONFLICT, &format!("A node with name {name} already exists."));
    }
    world.count += 1;
    let uuid = format!("00000000-0000-4000-8000-{:012}", world.count);
    for (field, value) in [
        ("uuid", json!(uuid)),
        ("provision_state", json!("enroll")),
        ("power_state", json!(null)),
        ("target_power_state", json!(null)),
        ("last_error", json!(null)),
        ("maintenance", json!(false)),
        ("instance_info", json!({})),
        ("deploy_interface", json!("direct")),
    ] {
        node[field] = value;
    }
    world.nodes.insert(uuid, node.clone());
    (StatusCode::CREATED, axum::Json(shown(node))).into_response()
}

async fn node(
    State(world): Shared,
    method: Method,
    headers: HeaderMap,
    Path(ident): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    if let Some(answer) = enter(&world, &method, &format!("/v1/nodes/{ident}"), &headers).await {
        return answer;
    }
    let mut world = lock(&world);
    let Some(uuid) = world.find(&ident) else {
        return refused(StatusCode::NOT_FOUND, &format!("Node {ident} could not be found."));
    };
    if method == Method::DELETE {
        if world.nodes[&uuid]["maintenance"] != true || !world.nodes[&uuid]["instance_uuid"].is_null() {
            return refused(StatusCode::CONFLICT, &format!("Node {ident} is associated with an instance."));
        }
        world.nodes.remove(&uuid);
        world.ports.retain(|_, port| port["node_uuid"] != uuid);
        return StatusCode::NO_CONTENT.into_response();
    }
    if method == Method::PATCH {
        let changes: Vec<Value> = serde_json::from_slice(&body).expect("JSON");
        let node = world.nodes.get_mut(&uuid).expect("there");
        let other = |change: &Value| change["path"] == "/driver" && change["value"] != node["driver"];
        if changes.iter().any(other) && query.get("reset_interfaces").is_none_or(|reset| reset != "true") {
            return refused(StatusCode::BAD_REQUEST, "Could not find the following interface in the driver's");
        }
        for change in changes {
            let path = change["path"].as_str().unwrap_or_default();
            let (parent, name) = path.rsplit_once('/').unwrap_or_default();
            let parent = if parent.is_empty() { Some(&mut *node) } else { node.pointer_mut(parent) };
            let parent = parent.and_then(Value::as_object_mut).expect("a parent");
            if change["op"] == "remove" {
                let default = if name == "deploy_interface" { json!("direct") } else { Value::Null };
                parent.insert(name.to_owned(), default);
            } else {
                parent.insert(name.to_owned(), change["value"].clone());
            }
        }
    }
    axum::Json(shown(world.nodes[&uuid].clone())).into_response()
}

async fn part(
    State(world): Shared,
    method: Method,
    headers: HeaderMap,
    Path((ident, rest)): Path<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    if let Some(answer) = enter(&world, &method, &format!("/v1/nodes/{ident}/{rest}"), &headers).await {
        return answer;
    }
    let mut world = lock(&world);
    let Some(uuid) = world.find(&ident) else {
        return refused(StatusCode::NOT_FOUND, &format!("Node {ident} could not be found."));
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let node = world.nodes[&uuid].clone();
    if let Some(answer) = world.bmcs.answer(&node, (method.as_str(), &rest), &query, &body) {
        return answer;
    }
    match (rest.as_str(), method.as_str()) {
        ("states/provision", "PUT") => return world.provision(&uuid, &body),
        ("states/power", "PUT") => {
            let on = body["target"].as_str().is_some_and(|target| target != "power off" && target != "soft power off");
            let node = world.nodes.get_mut(&uuid).expect("there");
            node["target_power_state"] = json!(if on { "power on" } else { "power off" });
            node["driver_internal_info"]["last_power_state_change"] = json!(jiff_now());
            if world.faults.unswitched > 0 {
                world.faults.unswitched -= 1;
                return StatusCode::ACCEPTED.into_response();
            }
            world.nodes.get_mut(&uuid).expect("there")["reservation"] = json!("box");
            let until = Instant::now() + world.step;
            world.pending.insert(uuid, (until, Then::Power(on)));
            return StatusCode::ACCEPTED.into_response();
        }
        ("states/raid", "PUT") => world.nodes.get_mut(&uuid).expect("there")["target_raid_config"] = body,
        ("maintenance", "PUT") => world.nodes.get_mut(&uuid).expect("there")["maintenance"] = json!(true),
        ("maintenance", "DELETE") => world.nodes.get_mut(&uuid).expect("there")["maintenance"] = json!(false),
        ("bios", "GET") => return axum::Json(world.firmware.bios(&uuid)).into_response(),
        ("firmware", "GET") => return axum::Json(world.firmware.components(&uuid)).into_response(),
        ("validate", "GET") => {
            return axum::Json(json!({"boot": {"result": true}, "deploy": {"result": true}})).into_response();
        }
        ("inventory", "GET") => {
            let number = uuid.trim_start_matches("00000000-0000-4000-8000-").trim_start_matches('0').to_owned();
            let number: u32 = number.parse().unwrap_or_default();
            let mac = format!("52:54:00:{:02x}:{:02x}:{:02x}", number >> 16, number >> 8 & 0xff, number & 0xff);
            return axum::Json(json!({"inventory": {
                "hostname": "node", "memory": {"physical_mb": 2048},
                "cpu": {"architecture": "x86_64", "count": 2, "frequency": "2100.0", "flags": ["fpu"]},
                "interfaces": [{"name": "eth0", "mac_address": mac, "ipv4_address": "172.22.0.9"}],
                "disks": [{"name": "/dev/vda", "size": 10_737_418_240_u64, "rotational": false}],
                "system_vendor": {"manufacturer": "QEMU"},
            }, "plugin_data": {}}))
            .into_response();
        }
        _ => return refused(StatusCode::NOT_FOUND, &rest),
    }
    StatusCode::NO_CONTENT.into_response()
}
