//! What the box is, and its memory, disk and addresses at this moment, read from /run and /proc: facts that are no events.
//! Console and REST show the same ones.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_api::boot::{BootFacts, DataFound, MediumFailure, Mode};
use agent_api::events::{State, Status};
use agent_api::proof::{Proof, Start};
use agent_api::release::Release;
use agent_api::rest::{BoxStatus, Medium, Memory, Progress, Share, SiteStatus, Space};
use agent_api::site::interfaces::OWN_NAMES;

use crate::events::{Bus, StepPlan, uptime};
use crate::{eta, host};

/// The most damaged places that are shown: a dying stick has thousands.
const MOST_FAILURES: usize = 256;

/// What stays the same while the box runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the appliance.
    pub name: String,
    /// Version of the appliance.
    pub version: String,
    /// Release id, 64 hex digits; empty when not known.
    pub release: String,
    /// When the release was built, seconds since 1970; 0 when not known.
    pub built: u64,
    /// The release is signed with a development key.
    pub development_key: bool,
    /// The release provisions other servers.
    pub provisioning: bool,
    /// How the box was asked to start.
    pub mode: Mode,
    /// Where DATA is.
    pub data: Option<DataFound>,
}

/// Reads the facts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Vitals {
    run: PathBuf,
    proc: PathBuf,
    data: PathBuf,
    identity: Identity,
    proof: Option<Arc<Start>>,
    shares: Arc<Mutex<BTreeMap<String, Share>>>,
}

impl Vitals {
    /// Of a real box.
    pub fn of_box() -> Self {
        Self::below(Path::new("/run/foothold"), Path::new("/proc"))
    }

    /// With the initrd's files in `run` and the kernel's in `proc`.
    pub fn below(run: &Path, proc: &Path) -> Self {
        let (data, shares) = (PathBuf::from("/var"), Arc::default());
        let (identity, proof) = (identify(run), proved(run));
        Self { run: run.to_owned(), proc: proc.to_owned(), data, identity, proof, shares }
    }

    /// What stays the same while the box runs.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What a start of this kind (first or later) took when the release was proved.
    pub fn proof(&self) -> Option<Arc<Start>> {
        self.proof.clone()
    }

    /// Memory, now.
    pub fn memory(&self) -> Memory {
        memory_of(&fs_err::read_to_string(self.proc.join("meminfo")).unwrap_or_default())
    }

    /// The medium, as far as the guard has read it.
    pub fn medium(&self) -> Medium {
        let check = fs_err::read_to_string(self.run.join("medium-check.json")).unwrap_or_default();
        let failures = fs_err::read_to_string(self.run.join("medium-failures.jsonl")).unwrap_or_default();
        Medium { checked_percent: percent_of(&check), failures: failures_of(&failures) }
    }

    /// Takes down what a kind takes of DATA, for all clones.
    pub fn set_share(&self, kind: &str, share: Share) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.to_owned(), share);
    }

    /// DATA, now, and what the kinds were last said to take.
    pub fn space(&self) -> Space {
        let (total_bytes, free_bytes) = host::block::space_of(&self.data).unwrap_or_default();
        let kinds = self.shares.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Space { total_bytes, free_bytes, kinds }
    }

    /// Everything REST tells under `status`.
    pub fn box_status(&self, bus: &Bus, web_fingerprint: &str) -> BoxStatus {
        let identity = self.identity.clone();
        let status = bus.now();
        let now = (uptime() * 1000.0).round() / 1000.0;
        let eta = self.proof.as_ref().filter(|_| identity.mode == Mode::Run);
        BoxStatus {
            name: identity.name,
            version: identity.version,
            release: identity.release,
            development_key: identity.development_key,
            hostname: hostname(),
            mode: identity.mode,
            data: identity.data,
            uptime_secs: now,
            eta: eta.and_then(|proof| eta::eta(proof, &status, now)),
            ready_at: bus.ready_at(),
            clock: clock(),
            memory: self.memory(),
            progress: progress(&status, &bus.plan()),
            medium: self.medium(),
            space: self.space(),
            objects: bus.objects().to_vec(),
            site: SiteStatus::clone(&bus.site()),
            web_fingerprint: web_fingerprint.to_owned(),
            releases: Vec::new(),
            status: (*status).clone(),
        }
    }
}

/// The proof's start of the same kind: first or later.
fn proved(run: &Path) -> Option<Arc<Start>> {
    let proof: Proof = serde_json::from_slice(&fs_err::read(run.join("proof.json")).ok()?).ok()?;
    let facts: BootFacts = serde_json::from_slice(&fs_err::read(run.join("boot.json")).ok()?).ok()?;
    let start = if facts.first_boot { proof.first_boot } else { proof.reboot };
    (proof.release == facts.release).then(|| Arc::new(start))
}

fn identify(run: &Path) -> Identity {
    let read = |name: &str| fs_err::read(run.join(name)).unwrap_or_default();
    let facts: Option<BootFacts> = serde_json::from_slice(&read("boot.json")).ok();
    let release: Option<Release> = serde_json::from_slice(&read("release.json")).ok();
    let mut identity = Identity { name: "foothold".to_owned(), ..Identity::default() };
    if let Some(release) = release {
        identity.name = release.name;
        identity.version = release.version;
        identity.built = release.built;
        identity.development_key = release.development_key;
        identity.provisioning = release.provisioning.is_some();
    }
    if let Some(facts) = facts {
        identity.release = facts.release;
        identity.mode = facts.mode;
        identity.data = Some(facts.data);
    }
    identity
}

/// Memory by the text of `/proc/meminfo`.
pub(crate) fn memory_of(meminfo: &str) -> Memory {
    let kib = |key: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let (total, available) = (kib("MemTotal"), kib("MemAvailable"));
    Memory { used_mib: total.saturating_sub(available) / 1024, total_mib: total / 1024 }
}

fn percent_of(check: &str) -> Option<u8> {
    let check: serde_json::Value = serde_json::from_str(check).ok()?;
    let percent = check.get("percent")?.as_f64()?.clamp(0.0, 100.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=100")]
    Some(percent as u8)
}

fn failures_of(lines: &str) -> Vec<MediumFailure> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).take(MOST_FAILURES).collect()
}

/// The box's clock, RFC 3339, UTC, whole seconds.
pub fn clock() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The host name of the running kernel.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// "step 6 of 14": steps seen and steps planned, each counted once.
pub fn progress(status: &Status, plan: &StepPlan) -> Progress {
    let ended = status.steps.iter().filter(|step| matches!(step.state, State::Done | State::Skipped));
    let seen = |phase: &str, step: &str| status.steps.iter().any(|s| s.phase == phase && s.step == step);
    let to_come = plan.iter().filter(|(phase, step)| !seen(phase.name(), step));
    Progress { done: ended.count(), total: status.steps.len() + to_come.count() }
}

/// Addresses under which others may reach the box: none of loopback, of links only, of the pods.
pub fn addresses() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = host::addresses()
        .unwrap_or_default()
        .into_iter()
        .filter(|one| is_outward(&one.interface) && !one.address.is_loopback() && !is_link_local(one.address))
        .map(|one| one.address)
        .collect();
    // IPv4 first: that is what people type.
    found.sort();
    found.dedup();
    found
}

fn is_outward(interface: &str) -> bool {
    !OWN_NAMES.iter().any(|prefix| interface.starts_with(prefix))
}

/// Whether an address is good on its own link only.
pub(crate) const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use agent_api::events::{Event, Phase, State, Status};
    use agent_api::rest::{Memory, Progress};

    use super::{Vitals, failures_of, is_outward, memory_of, percent_of, progress};

    #[test]
    fn memory_in_use_is_what_is_not_available() {
        let meminfo = "MemTotal:        4030464 kB\nMemFree:          100 kB\nMemAvailable:    3006464 kB\n";
        assert_eq!(memory_of(meminfo), Memory { used_mib: 1000, total_mib: 3936 });
        assert_eq!(memory_of(""), Memory::default());
    }

    #[test]
    fn progress_counts_steps_seen_and_steps_planned_once() {
        let mut status = Status::default();
        status.apply(&Event::of_box(1.0, Phase::Medium, "find", State::Done));
        status.apply(&Event::of_box(2.0, Phase::Runtime, "containerd", State::Started));
        let plan = vec![(Phase::Runtime.into(), "containerd".to_owned()), (Phase::Ready.into(), "ready".to_owned())];
        assert_eq!(progress(&status, &plan), Progress { done: 1, total: 3 });
    }

    #[test]
    fn files_of_the_guard_are_read_with_tolerance() {
        assert_eq!(percent_of(r#"{"percent":41.7}"#), Some(41));
        assert_eq!(percent_of(r#"{"percent":"#), None);
        let line = r#"{"what":"os","device":"vda3","block":7,"message":"layer `os` is damaged"}"#;
        assert_eq!(failures_of(&format!("{line}\n{{\"wh")).len(), 1);
    }

    #[test]
    fn interfaces_of_pods_are_not_the_boxs_addresses() {
        for inner in ["lo", "cni0", "veth12", "foothold0"] {
            assert!(!is_outward(inner), "{inner}");
        }
        assert!(is_outward("enp1s0"));
    }

    #[test]
    fn a_proof_is_that_of_this_release_and_of_this_kind_of_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let facts = |first: bool| {
            format!(
                r#"{{"release":"{}","mode":"run","medium":"vda3","data":{{"on":"ram","reason":""}},"machineId":"","firstBoot":{first},"clockWasWrong":false}}"#,
                "ab".repeat(32)
            )
        };
        let proof = |release: &str| {
            let start = |secs: f64| {
                format!(
                    r#"{{"nodeReadySecs":1.0,"readySecs":{secs},"usage":{{"memoryUsedMiB":0,"memoryPeakMiB":0,"dataUsedMiB":0,"dataPeakMiB":0,"dataTotalMiB":0}},"requests":[],"steps":[]}}"#
                )
            };
            let machine = r#"{"accel":"tcg","cpus":2,"memoryMiB":4096,"firmware":"uefi","network":"none"}"#;
            format!(
                r#"{{"apiVersion":"foothold.dev/v1","kind":"Proof","release":"{}","builder":"","date":"","machine":{machine},"image":{{"format":"raw","bytes":1}},"firstBoot":{},"reboot":{},"budgets":[]}}"#,
                release.repeat(32),
                start(53.0),
                start(35.0)
            )
        };
        let ready = |first: bool, release: &str| {
            fs_err::write(dir.path().join("boot.json"), facts(first)).expect("written");
            fs_err::write(dir.path().join("proof.json"), proof(release)).expect("written");
            Vitals::below(dir.path(), dir.path()).proof().map(|start| start.ready_secs)
        };
        assert_eq!(ready(true, "ab"), Some(53.0));
        assert_eq!(ready(false, "ab"), Some(35.0));
        assert_eq!(ready(true, "cd"), None);
    }

    #[test]
    fn a_machine_without_the_initrds_files_still_has_a_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let vitals = Vitals::below(dir.path(), dir.path());
        assert_eq!(vitals.identity().name, "foothold");
        assert_eq!(vitals.memory(), Memory::default());
        assert!(vitals.medium().failures.is_empty());
    }
}
