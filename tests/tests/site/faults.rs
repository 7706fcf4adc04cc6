//! What a user sees of a BMC that misbehaves, in each state that a host can be in without a machine that runs, and how soon
//! the host goes on when the cause is gone. Real Ironic asks emulated BMCs; nothing is booted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foothold_qemu::bmc::{Bmc, Faults, Flaps, MemoryPower, Power as _, PowerFault};
use serde_json::{Value, json};

use super::bench::{Dhcp, Parts, Site, in_namespace};

/// How long a BMC misbehaves.
const ILL: Duration = Duration::from_secs(150);
/// Far more than any wait, far less than hours.
const PATIENCE: Duration = Duration::from_secs(900);

/// Names and kinds of what can be wrong.
fn faults() -> Vec<(&'static str, Faults)> {
    let none = Faults::default;
    vec![
        ("slow", Faults { delay_ms: 3000, ..none() }),
        ("very-slow", Faults { delay_ms: 90_000, ..none() }),
        ("flapping", Faults { flaps: Some(Flaps { answered: 3, dropped: 2 }), ..none() }),
        ("dead", Faults { flaps: Some(Flaps { answered: 0, dropped: 1 }), ..none() }),
        ("silent", Faults { silent: true, ..none() }),
        ("wrong-credentials", Faults { refuse_credentials: true, ..none() }),
        ("inverted-power", Faults { power: PowerFault::Inverted, ..none() }),
        ("wavering-power", Faults { power: PowerFault::Wavering, ..none() }),
        ("deaf", Faults { power: PowerFault::Deaf, ..none() }),
    ]
}

/// A host whose BMC has one of the faults, now and then.
struct Patient {
    name: &'static str,
    faults: Faults,
    bmc: Bmc,
    power: Arc<MemoryPower>,
}

/// What was seen of one fault in one state.
struct Seen {
    /// Nothing when the host went on regardless.
    told: Option<String>,
    /// When it was told, or when the host went on.
    after: Duration,
    /// From the end of the cause on.
    recovered: Duration,
}

type Table = BTreeMap<(&'static str, &'static str), Seen>;

/// What went wrong; nothing of a host that is gone.
fn error(host: Option<&Value>) -> &str {
    host.and_then(|host| host["status"]["errorMessage"].as_str()).unwrap_or_default()
}

/// What a user reads: the error, or what is waited for. Of a BMC that lies, its word is all that there is.
fn told(host: &Value) -> String {
    let status = &host["status"];
    let stays = host["metadata"]["deletionTimestamp"].is_null();
    if stays && status["poweredOn"] == host["spec"]["online"] && status["operationalStatus"] == "OK" {
        return format!("(taken at its word: poweredOn is {})", status["poweredOn"]);
    }
    let error = error(Some(host));
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let waits = conditions.filter(|it| it["type"] == "Progressing").filter_map(|it| it["message"].as_str());
    if error.is_empty() { waits.collect() } else { error.to_owned() }
}

/// All BMCs misbehave while something is wanted of them, then none does, and all hosts come to be as wanted.
async fn through(
    site: &Site,
    patients: &[Patient],
    state: &'static str,
    table: &mut Table,
    wanted: impl Fn(&Patient, Option<&Value>) -> bool,
) {
    let begun = Instant::now();
    let mut first: BTreeMap<&str, (Option<String>, Duration)> = BTreeMap::new();
    while begun.elapsed() < ILL && first.len() < patients.len() {
        for patient in patients {
            if first.contains_key(patient.name) {
                continue;
            }
            let host = site.get(patient.name).await;
            if wanted(patient, host.as_ref()) {
                first.insert(patient.name, (None, begun.elapsed()));
            } else if !error(host.as_ref()).is_empty() {
                first.insert(patient.name, (Some(error(host.as_ref()).to_owned()), begun.elapsed()));
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    for patient in patients {
        if !first.contains_key(patient.name) {
            let host = site.get(patient.name).await.unwrap_or_default();
            let words = told(&host);
            assert!(!words.is_empty(), "{} in {state} goes without an explanation: {host:#}", patient.name);
            first.insert(patient.name, (Some(words), begun.elapsed()));
        }
        patient.bmc.set_faults(Faults::default());
    }
    let well = Instant::now();
    let mut left: Vec<&Patient> = patients.iter().collect();
    while !left.is_empty() {
        let mut still = Vec::new();
        for patient in left {
            let host = site.get(patient.name).await;
            if !error(host.as_ref()).is_empty() || !wanted(patient, host.as_ref()) {
                assert!(well.elapsed() < PATIENCE, "{} in {state} does not go on: {host:#?}", patient.name);
                still.push(patient);
                continue;
            }
            let (told, after) = first.remove(patient.name).expect("seen");
            table.insert((state, patient.name), Seen { told, after, recovered: well.elapsed() });
        }
        left = still;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The table, as Markdown.
#[expect(clippy::print_stderr, reason = "a table for people")]
fn show(table: &Table) {
    let mut text = "| state | fault | told | after | goes on |\n|---|---|---|---|---|\n".to_owned();
    for ((state, fault), seen) in table {
        let told = seen.told.as_deref().unwrap_or("(goes on regardless)").replace('\n', " ");
        let (after, recovered) = (seen.after.as_secs_f64(), seen.recovered.as_secs_f64());
        let _ = writeln!(text, "| {state} | {fault} | {told} | {after:.0} s | {recovered:.0} s |");
    }
    eprintln!("{text}");
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn every_fault_of_a_bmc_is_explained_and_gone_with_its_cause() {
    in_namespace(Parts::make, |parts| async {
        let mut site = Site::start(parts, Dhcp::Off).await;
        let (mut patients, mut table) = (Vec::new(), Table::new());
        for (number, (name, faults)) in faults().into_iter().enumerate() {
            let power = Arc::new(MemoryPower::new(false));
            let (bmc, address) = site.bmc(Arc::clone(&power));
            bmc.set_faults(faults.clone());
            let spec = json!({"online": false, "externallyProvisioned": true, "bmc": {"address": address}});
            site.host_at(name, &format!("52:54:00:22:01:{number:02x}"), spec).await;
            patients.push(Patient { name, faults, bmc, power });
        }
        let is =
            |host: Option<&Value>, state: &str| host.is_some_and(|it| it["status"]["provisioning"]["state"] == state);
        let registered = |_: &Patient, host: Option<&Value>| is(host, "externally provisioned");
        through(&site, &patients, "registering", &mut table, registered).await;

        for patient in &patients {
            patient.bmc.set_faults(patient.faults.clone());
            site.change(patient.name, json!({"spec": {"online": true}})).await;
        }
        let on = |patient: &Patient, host: Option<&Value>| {
            patient.power.is_on() && host.is_some_and(|host| host["status"]["poweredOn"] == true)
        };
        through(&site, &patients, "externally provisioned, to be switched on", &mut table, on).await;

        for patient in &patients {
            patient.bmc.set_faults(patient.faults.clone());
            site.delete(patient.name).await;
        }
        through(&site, &patients, "to be deleted", &mut table, |_, host| host.is_none()).await;
        show(&table);
        site.stop().await;
    });
}
