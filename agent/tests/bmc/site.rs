//! A site of emulated BMCs, and its manifests.

use std::sync::Arc;
use std::time::Duration;

use agent_api::rehearsal::{Cell, CellState, Check, HostRehearsal, Rehearsal};
use foothold_agent::bmc::manifests;
use foothold_agent::bmc::rehearsal::{Outcome, Plan, rehearse};
use foothold_agent::bmc::trust::Trust;
use foothold_qemu::bmc::{Asked, Bmc, MemoryPower, Options, Profile};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub const PASSWORD: &str = "a-password-of-this-test";

/// A BMC on loopback. It ends with the handle.
pub struct Server {
    pub bmc: Bmc,
    _tasks: JoinSet<()>,
}

impl Server {
    /// A vendor's BMC before a machine that is on.
    pub fn of(profile: &str) -> Self {
        Self::with(profile, |_| {})
    }

    pub fn with(profile: &str, change: impl FnOnce(&mut Options)) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let profile = Profile::known(profile).expect("a profile");
        let mut options = Options::on_loopback(profile, PASSWORD, Arc::new(MemoryPower::new(true)));
        change(&mut options);
        let mut tasks = JoinSet::new();
        let bmc = Bmc::start(&mut tasks, options, &CancellationToken::new()).expect("started");
        Self { bmc, _tasks: tasks }
    }

    /// Host and Secret of this BMC; the address has this scheme and path.
    pub fn manifest(&self, name: &str, scheme: &str, path: &str) -> String {
        let address = format!("{scheme}://{}{path}", self.bmc.address());
        manifest(name, &address, PASSWORD, Some(self.bmc.certificate()))
    }

    /// Every request that is not GET, but for a session that is opened and ended.
    pub fn changes(&self) -> Vec<String> {
        let asked = self.bmc.asked();
        assert!(!asked.is_empty(), "nobody asked");
        let is = |asked: &&Asked, method: &str, path: &str| {
            asked.method == method && asked.path.trim_end_matches('/').contains(path)
        };
        let sessions = |method: &str| asked.iter().filter(|one| is(one, method, "/SessionService/Sessions")).count();
        // Some have paths without a slash at their end asked again.
        assert!(sessions("DELETE") <= 2 * sessions("POST") && sessions("POST") <= 2, "{asked:?}");
        let changes = asked.iter().filter(|one| one.method != "GET" && !one.path.contains("/SessionService/Sessions"));
        changes.map(|asked| format!("{} {}", asked.method, asked.path)).collect()
    }
}

/// Host and Secret as a user of metal3 has them.
pub fn manifest(name: &str, address: &str, password: &str, trusted: Option<&str>) -> String {
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{name}-bmc"), "namespace": "metal" },
        "stringData": { "username": "admin", "password": password, "ca.crt": trusted.unwrap_or_default() },
    });
    let mut secret = secret;
    if trusted.is_none() {
        secret["stringData"].as_object_mut().expect("an object").remove("ca.crt");
    }
    // Each host has its own card.
    let mac = name.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let mac = format!("52:54:00:00:{:02x}:{:02x}", mac >> 8, mac & 0xff);
    let host = serde_json::json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": name, "namespace": "metal" },
        "spec": { "online": true, "bootMACAddress": mac,
            "bmc": { "address": address, "credentialsName": format!("{name}-bmc") } },
    });
    // JSON is YAML.
    format!("---\n{secret}\n---\n{host}\n")
}

/// Short, but enough for a machine that does much else.
pub fn plan() -> Plan {
    Plan {
        patience: Duration::from_secs(10),
        deadline: Duration::from_secs(60),
        at_once: 8,
        keep_answers: true,
        trust: Trust::Authorities(Vec::new()),
    }
}

pub async fn rehearse_all(yaml: &str, plan: &Plan) -> (Rehearsal, Vec<Outcome>) {
    rehearse(manifests::read(yaml).expect("hosts"), plan).await
}

/// The only row.
pub async fn rehearse_one(yaml: &str, plan: &Plan) -> HostRehearsal {
    let (mut rehearsal, _) = rehearse_all(yaml, plan).await;
    assert_eq!(rehearsal.hosts.len(), 1);
    rehearsal.hosts.remove(0)
}

pub fn cell(host: &HostRehearsal, check: Check) -> &Cell {
    host.cells.get(&check).unwrap_or_else(|| panic!("no cell {check:?} in {host:#?}"))
}

/// The checks that are in this state.
pub fn those(host: &HostRehearsal, state: CellState) -> Vec<Check> {
    host.cells.iter().filter(|(_, cell)| cell.state == state).map(|(check, _)| *check).collect()
}
