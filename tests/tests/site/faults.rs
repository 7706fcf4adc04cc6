//! What a user sees of a BMC that misbehaves, in each state that a host can be in, and how soon the host goes on when the
//! cause is gone. Real Ironic asks emulated BMCs; the machines behind them are [`Imitation`]s. A server that was not
//! switched on because its BMC lied is waited for as long as any other: ninety seconds here, half an hour on a box.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foothold_qemu::bmc::{Bmc, Faults, Flaps, MemoryPower, Power as _, PowerFault};
use serde_json::{Value, json};

use super::bench::{Dhcp, Parts, RESCUE, Site, in_namespace, in_state};
use super::ramdisk::Imitation;

/// How long a BMC misbehaves, at most: a host that goes on regardless, or has told what is wrong, needs no more of it.
const ILL: Duration = Duration::from_secs(60);
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
    state: &'static str,
    fault: &'static str,
    /// Nothing when the host went on regardless.
    told: Option<String>,
    /// When it was told, or when the host went on.
    after: Duration,
    /// From the end of the cause on.
    recovered: Duration,
    /// Requests that the BMC got in a minute of its illness.
    asked: f64,
}

/// What was seen of a BMC while it misbehaved, and since when it does no more.
struct Told {
    words: Option<String>,
    after: Duration,
    asked: u32,
    well: Instant,
}

/// What went wrong; nothing of a host that is gone.
fn error(host: Option<&Value>) -> &str {
    host.and_then(|host| host["status"]["errorMessage"].as_str()).unwrap_or_default()
}

/// What a user reads: the error, or what is waited for. Of a BMC that lies, its word is all that there is.
fn told(host: &Value) -> String {
    let status = &host["status"];
    let error = error(Some(host));
    if !error.is_empty() {
        return error.to_owned();
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let waits: String =
        conditions.filter(|it| it["type"] == "Progressing").filter_map(|it| it["message"].as_str()).collect();
    let stays = host["metadata"]["deletionTimestamp"].is_null();
    if waits.is_empty() && stays && status["poweredOn"] == host["spec"]["online"] && status["operationalStatus"] == "OK"
    {
        return format!("(taken at its word: poweredOn is {})", status["poweredOn"]);
    }
    waits
}

/// Whether a host is in a state.
fn is(host: Option<&Value>, state: &str) -> bool {
    host.is_some_and(|it| it["status"]["provisioning"]["state"] == state)
}

/// Whether it is as it shall be, and nothing is done with it.
fn is_ready(host: &Value) -> bool {
    let mut conditions = host["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Whether its machine is on or off, and said to be.
fn powered(on: bool) -> impl Fn(&Patient, Option<&Value>) -> bool {
    move |patient, host| patient.power.is_on() == on && host.is_some_and(|host| host["status"]["poweredOn"] == on)
}

/// Nine hosts, and what was seen of them.
struct Ward {
    site: Site,
    patients: Vec<Patient>,
    table: Vec<Seen>,
}

impl Ward {
    /// All BMCs misbehave from now on.
    fn fall_ill(&self) {
        for patient in &self.patients {
            patient.bmc.set_faults(patient.faults.clone());
        }
    }

    /// All BMCs misbehave while this is wanted of their hosts, then none does, and all hosts come to be as wanted.
    async fn change(&mut self, state: &'static str, change: Value, wanted: impl Fn(&Patient, Option<&Value>) -> bool) {
        self.fall_ill();
        for patient in &self.patients {
            self.site.change(patient.name, change.clone()).await;
        }
        self.through(state, wanted).await;
    }

    async fn through(&mut self, state: &'static str, wanted: impl Fn(&Patient, Option<&Value>) -> bool) {
        self.site.tell(state);
        let begun = Instant::now();
        let mut ill: Vec<(&Patient, usize)> = self.patients.iter().map(|it| (it, it.bmc.asked().len())).collect();
        let mut well: Vec<(&Patient, Told)> = Vec::new();
        while !(ill.is_empty() && well.is_empty()) {
            let mut still = Vec::new();
            for (patient, before) in ill {
                let host = self.site.get(patient.name).await;
                let words = match error(host.as_ref()) {
                    _ if wanted(patient, host.as_ref()) => None,
                    "" if begun.elapsed() > ILL => Some(told(&host.unwrap_or_default())),
                    "" => {
                        still.push((patient, before));
                        continue;
                    }
                    error => Some(error.to_owned()),
                };
                assert!(words.as_deref() != Some(""), "{} in {state} goes without an explanation", patient.name);
                let asked = u32::try_from(patient.bmc.asked().len() - before).unwrap_or(u32::MAX);
                patient.bmc.set_faults(Faults::default());
                well.push((patient, Told { words, after: begun.elapsed(), asked, well: Instant::now() }));
            }
            ill = still;
            let mut still = Vec::new();
            for (patient, seen) in well {
                let host = self.site.get(patient.name).await;
                if !error(host.as_ref()).is_empty() || !wanted(patient, host.as_ref()) {
                    if seen.well.elapsed() > PATIENCE {
                        let firmware = self.site.at(&Site::path_of("hostfirmwaresettings", patient.name)).await;
                        panic!("{} in {state} does not go on: {host:#?}, {firmware:#}", patient.name);
                    }
                    still.push((patient, seen));
                    continue;
                }
                let minutes = seen.after.as_secs_f64().max(1.0) / 60.0;
                self.table.push(Seen {
                    state,
                    fault: patient.name,
                    told: seen.words,
                    after: seen.after,
                    recovered: seen.well.elapsed(),
                    asked: f64::from(seen.asked) / minutes,
                });
            }
            well = still;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.show(state);
    }

    /// All hosts come to be in a state, with BMCs that are well.
    async fn rest(&mut self, state: &str) {
        let names: Vec<&str> = self.patients.iter().map(|patient| patient.name).collect();
        self.site.all(&names, state, PATIENCE, in_state(state)).await;
    }

    /// What was seen in a state, as Markdown.
    #[expect(clippy::print_stderr, reason = "a table for people")]
    fn show(&self, state: &str) {
        let mut text = String::new();
        for seen in self.table.iter().filter(|seen| seen.state == state) {
            let told = seen.told.as_deref().unwrap_or("(goes on regardless)").replace('\n', " ");
            let (after, recovered) = (seen.after.as_secs_f64(), seen.recovered.as_secs_f64());
            let _ = writeln!(
                text,
                "| {state} | {} | {told} | {after:.0} s | {recovered:.0} s | {:.0} |",
                seen.fault, seen.asked
            );
        }
        eprintln!(
            "| state | fault | told | after | goes on after | requests a minute |\n|---|---|---|---|---|---|\n{text}"
        );
    }
}

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test site -- --ignored`"]
fn every_fault_of_a_bmc_is_explained_and_gone_with_its_cause_in_each_state() {
    in_namespace(Parts::imitated, |parts| async {
        let mut ward = admitted(Site::start(parts, Dhcp::Off).await).await;
        let beyond = |_: &Patient, host: Option<&Value>| {
            ["inspecting", "preparing", "available"].iter().any(|state| is(host, state))
        };
        ward.through("registering", beyond).await;
        ward.rest("available").await;

        let now = jiff::Timestamp::now();
        let again = json!({"metadata": {"annotations": {"inspect.metal3.io": ""}}});
        let inspected = move |_: &Patient, host: Option<&Value>| {
            let end = host.and_then(|host| host["status"]["operationHistory"]["inspect"]["end"].as_str());
            let end = end.and_then(|end| end.parse::<jiff::Timestamp>().ok());
            is(host, "available") && end.is_some_and(|end| end > now)
        };
        ward.change("inspecting", again, inspected).await;

        ward.fall_ill();
        ward.set_bios(json!({"LogicalProc": "Disabled"})).await;
        let prepared = |patient: &Patient, host: Option<&Value>| {
            let patch = |asked: &foothold_qemu::bmc::Asked| asked.method == "PATCH" && asked.path.contains("Bios");
            is(host, "available") && patient.bmc.asked().iter().any(patch)
        };
        ward.through("preparing", prepared).await;
        ward.has_bios("LogicalProc", "Disabled").await;

        ward.change("available, to be switched off", json!({"spec": {"online": false}}), powered(false)).await;
        ward.change("available, to be switched on", json!({"spec": {"online": true}}), powered(true)).await;

        let image = json!({"spec": {"image": ward.site.image(RESCUE)}});
        let installed = |patient: &Patient, host: Option<&Value>| {
            is(host, "provisioned") && patient.power.is_on() && host.is_some_and(|it| it["status"]["poweredOn"] == true)
        };
        ward.change("provisioning", image, installed).await;
        ward.change("provisioned, to be switched off", json!({"spec": {"online": false}}), powered(false)).await;
        ward.change("provisioned, to be switched on", json!({"spec": {"online": true}}), powered(true)).await;

        let cleaned = |_: &Patient, host: Option<&Value>| is(host, "available");
        ward.change("deprovisioning", json!({"spec": {"image": null}}), cleaned).await;

        let external =
            |_: &Patient, host: Option<&Value>| is(host, "externally provisioned") && host.is_some_and(is_ready);
        let change = json!({"spec": {"externallyProvisioned": true}});
        ward.change("to be externally provisioned", change, external).await;
        let (off, on) = ("externally provisioned, to be switched off", "externally provisioned, to be switched on");
        ward.change(off, json!({"spec": {"online": false}}), powered(false)).await;
        ward.change(on, json!({"spec": {"online": true}}), powered(true)).await;

        ward.fall_ill();
        for patient in &ward.patients {
            ward.site.delete(patient.name).await;
        }
        ward.through("to be deleted", |_, host| host.is_none()).await;
        ward.site.stop().await;
    });
}

/// A host, a BMC and an imitation for each fault.
async fn admitted(mut site: Site) -> Ward {
    let mut patients = Vec::new();
    for (number, (name, faults)) in faults().into_iter().enumerate() {
        let power = Arc::new(MemoryPower::new(false));
        let (bmc, address) = site.bmc(Arc::clone(&power));
        bmc.set_faults(faults.clone());
        let mac = format!("52:54:00:22:01:{number:02x}");
        site.beside(Imitation::new(&mac, site.own, Arc::clone(&power)).run());
        site.host_at(name, &mac, json!({"bmc": {"address": address}})).await;
        patients.push(Patient { name, faults, bmc, power });
    }
    Ward { site, patients, table: Vec::new() }
}

impl Ward {
    /// Asks for BIOS settings of all hosts.
    async fn set_bios(&self, settings: Value) {
        for patient in &self.patients {
            let path = Site::path_of("hostfirmwaresettings", patient.name);
            self.site.merge_at(&path, &json!({"spec": {"settings": settings}})).await;
        }
    }

    /// All hosts come to say that they have a BIOS setting.
    async fn has_bios(&self, name: &str, value: &str) {
        for patient in &self.patients {
            let (path, begun) = (Site::path_of("hostfirmwaresettings", patient.name), Instant::now());
            loop {
                let object = self.site.at(&path).await;
                if object["status"]["settings"][name] == value {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "{} has not {name}: {object:#}", patient.name);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}
