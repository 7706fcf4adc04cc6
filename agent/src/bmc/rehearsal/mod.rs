//! Asking every BMC of a site what provisioning will need of it, without changing anything.
//!
//! ```text
//! hosts ─► rehearse: so many at once, each until its deadline ─┬─► by_redfish ─┐
//!                                                              └─► by_ipmi ────┤ judge
//!                                                                              ▼
//!                                        Outcome: row of the matrix, answers ─► table, JSON, export
//! ```
//! Both open a session, as Ironic does, and end it; in it they only read. What is good here is what Ironic works with.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::metal3::bmc_address::Credentials;
use agent_api::rehearsal::{Cell, CellState, Check, HostRehearsal, Rehearsal};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::address::{Address, Way, resolve};
use super::ipmi::{self, Privilege};
use super::manifests::Host;
use super::redfish::{Exchange, Redfish, RedfishError};
use super::trust::Trust;

mod by_redfish;
mod export;
mod judge;
mod pulse;
mod table;
mod twins;

pub use pulse::{Target, Trouble, pulse};
pub use table::text;

/// How to ask.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For one answer.
    pub patience: Duration,
    /// For one host.
    pub deadline: Duration,
    /// Hosts at a time.
    pub at_once: usize,
    /// Whether what BMCs answered is kept, for a file.
    pub keep_answers: bool,
    /// Whom to trust, where a host's own manifests say nothing.
    pub trust: Trust,
}

impl Default for Plan {
    /// 5 s an answer, 45 s a host, 32 hosts at a time, the system's authorities.
    fn default() -> Self {
        let (patience, deadline) = (Duration::from_secs(5), Duration::from_secs(45));
        Self { patience, deadline, at_once: 32, keep_answers: true, trust: Trust::System }
    }
}

/// A host's row, and what it answered.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The row.
    pub host: HostRehearsal,
    /// Redfish's answers.
    exchanges: Vec<Exchange>,
    /// What must not be in a file.
    secrets: Vec<String>,
}

/// What is known of a host while it is asked. A deadline keeps what there is.
#[derive(Default)]
struct Row {
    cells: BTreeMap<Check, Cell>,
    vendor: Option<String>,
    product: Option<String>,
}

impl Row {
    fn set(&mut self, check: Check, cell: Cell) {
        self.cells.insert(check, cell);
    }

    /// Adds what is bad to what is bad already; anything else gives way.
    fn add(&mut self, check: Check, cell: Cell) {
        match self.cells.get_mut(&check).filter(|there| there.state == CellState::Bad) {
            Some(there) => there.says = format!("{}; {}", cell.says, there.says),
            None => self.set(check, cell),
        }
    }

    /// Every check that nobody got to.
    fn fill(&mut self, says: &str) {
        for check in Check::ALL {
            self.cells.entry(check).or_insert_with(|| Cell::skipped(says));
        }
    }
}

/// Asks all hosts; the outcomes are in their order. Needs a tokio runtime.
pub async fn rehearse(hosts: Vec<Host>, plan: &Plan) -> (Rehearsal, Vec<Outcome>) {
    let at = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let seats = Arc::new(Semaphore::new(plan.at_once.max(1)));
    let mut tasks = JoinSet::new();
    let twins = twins::find(&hosts);
    for ((number, host), twins) in hosts.into_iter().enumerate().zip(twins) {
        let (seats, plan) = (Arc::clone(&seats), plan.clone());
        tasks.spawn(async move {
            // It is never closed.
            let _seat = seats.acquire_owned().await;
            (number, ask(host, twins, &plan).await)
        });
    }
    let mut outcomes = tasks.join_all().await;
    outcomes.sort_by_key(|(number, _)| *number);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let hosts: Vec<HostRehearsal> = outcomes.iter().map(|outcome| outcome.host.clone()).collect();
    (Rehearsal { good: hosts.iter().all(|host| host.good), at, hosts }, outcomes)
}

/// Writes the answers of vendors that are not known into a folder, made if it is not there: how many files.
pub fn export(outcomes: &[Outcome], dir: &Path, keep_serials: bool) -> std::io::Result<usize> {
    fs_err::create_dir_all(dir)?;
    let files: Vec<_> = outcomes.iter().filter_map(|outcome| export::file(outcome, keep_serials)).collect();
    files.iter().try_for_each(|(name, text)| fs_err::write(dir.join(name), text))?;
    Ok(files.len())
}

/// `twins`: what the host has together with one before it.
async fn ask(host: Host, twins: Vec<(Check, Cell)>, plan: &Plan) -> Outcome {
    let begun = Instant::now();
    let mut row = Row::default();
    let mut exchanges = Vec::new();
    match Address::parse(&host.address) {
        Err(error) => row.set(Check::Reach, Cell::bad(error.to_string(), error.hint())),
        Ok(Address::Redfish { base, system, way }) => {
            exchanges = ask_redfish(&mut row, &host, plan, &base, system.as_deref(), way).await;
        }
        Ok(Address::Ipmi { host: name, port, privilege }) => {
            let end = tokio::time::Instant::now() + plan.deadline;
            let asked = timeout_at(end, by_ipmi(&mut row, &host, plan.patience, (&name, port), privilege)).await;
            late(&mut row, asked.is_err(), plan);
        }
    }
    if let Err(why) = &host.credentials {
        let hint = "add the Secret to the file, with `username` and `password`";
        row.set(Check::Credentials, Cell::bad(why.clone(), hint));
    }
    for (check, cell) in twins {
        row.add(check, cell);
    }
    row.fill("not asked: see the checks before");
    let secrets =
        host.credentials.map(|Credentials { username, password }| vec![password, username]).unwrap_or_default();
    let good = row.cells.values().all(|cell| cell.state != CellState::Bad);
    let host = HostRehearsal {
        namespace: host.namespace,
        name: host.name,
        address: host.address,
        vendor: row.vendor,
        product: row.product,
        good,
        secs: begun.elapsed().as_secs_f64(),
        cells: row.cells,
    };
    Outcome { host, exchanges, secrets }
}

/// Says where the deadline came.
fn late(row: &mut Row, late: bool, plan: &Plan) {
    let next = Check::ALL.into_iter().find(|check| !row.cells.contains_key(check));
    if let Some(check) = next.filter(|_| late) {
        let says = format!("not done within {} s", plan.deadline.as_secs());
        row.set(check, Cell::bad(says, "give it more time, or restart the BMC"));
    }
}

async fn ask_redfish(
    row: &mut Row,
    host: &Host,
    plan: &Plan,
    base: &str,
    system: Option<&str>,
    way: Way,
) -> Vec<Exchange> {
    let trust = Trust::of_host(host.unverified, host.authority.as_deref(), plan.trust.clone());
    let credentials = host.credentials.clone().ok();
    let made = trust.map_err(RedfishError::from);
    let redfish = match made.and_then(|trust| Redfish::new(base, credentials, &trust, plan.patience)) {
        Ok(redfish) => redfish,
        Err(error) => {
            row.set(Check::Reach, judge::unreached(&error));
            return Vec::new();
        }
    };
    let end = tokio::time::Instant::now() + plan.deadline;
    let asked = timeout_at(end, by_redfish::ask(row, &redfish, host.credentials.is_ok(), system, way)).await;
    late(row, asked.is_err(), plan);
    // Also where the deadline came first: BMCs have few sessions.
    redfish.close().await;
    // What came back later counts for the first cell, too.
    if row.cells.get(&Check::Reach).is_some_and(|cell| cell.state == CellState::Good) {
        row.set(Check::Reach, judge::reach("Redfish", redfish.count()));
    }
    if plan.keep_answers { redfish.exchanges() } else { Vec::new() }
}

async fn by_ipmi(row: &mut Row, host: &Host, patience: Duration, (name, port): (&str, u16), privilege: Privilege) {
    let begun = Instant::now();
    row.set(Check::Media, Cell::skipped("IPMI knows no virtual media"));
    let address = match resolve(name, port).await {
        Ok(address) => address,
        Err(why) => {
            let cell = Cell::bad(why, "check the name in `spec.bmc.address`, and this machine's name servers");
            return row.set(Check::Reach, cell);
        }
    };
    if let Err(error) = ipmi::Client::find(address, patience).await {
        return row.set(Check::Reach, judge::ipmi(&error));
    }
    row.set(Check::Reach, judge::reach("IPMI 2.0", (1, 0, begun.elapsed())));
    let Ok(Credentials { username: user, password }) = host.credentials.clone() else { return };
    let login = ipmi::Login { user, password, privilege };
    let mut session = match ipmi::Client::open(address, &login, patience).await {
        Ok(session) => session,
        Err(error) => return row.set(Check::Credentials, judge::ipmi(&error)),
    };
    row.set(Check::Credentials, Cell::good(format!("a session as `{}` opens", login.user)));
    ask_session(row, &mut session).await;
    // The BMC ends it after a while anyway.
    let _ = session.close().await;
}

/// All that needs a session.
async fn ask_session(row: &mut Row, session: &mut ipmi::Client) {
    let first = session.chassis_status().await;
    row.set(Check::Boot, judge::ipmi_boot(session.boot_options().await));
    let before = Timestamp::now();
    let clock = match session.time().await {
        Ok(Some(theirs)) => Timestamp::from_second(theirs.into()).ok().map_or_else(judge::no_clock, |theirs| {
            let ours = before.checked_add(before.duration_until(Timestamp::now()) / 2).unwrap_or(before);
            judge::ipmi_clock(theirs, ours)
        }),
        Ok(None) => judge::no_clock(),
        Err(error) => judge::ipmi(&error),
    };
    row.set(Check::Clock, clock);
    match session.device_id().await {
        Ok(id) => {
            row.vendor = id.vendor().map(str::to_owned);
            row.product = Some(format!("manufacturer {}, product {}", id.manufacturer, id.product));
            row.set(Check::Firmware, judge::ipmi_firmware(&id));
        }
        Err(error) => row.set(Check::Firmware, judge::ipmi(&error)),
    }
    let power = match first {
        Ok(first) => session.chassis_status().await.map(|last| judge::ipmi_power(first, last)),
        Err(error) => Err(error),
    };
    row.set(Check::Power, power.unwrap_or_else(|error| judge::ipmi(&error)));
}
