//! DHCP and TFTP for servers, if the release gives it addresses to lease. Its pod is laid out and told of new machines.
//! What its guard finds is shown on the console, in REST and as events of the cluster.

use std::net::Ipv4Addr;
use std::time::Duration;

use agent_api::events::{DHCP_STEP, Phase, PhaseWord};
use agent_api::metal3::BareMetalHost;
use agent_api::servers::{DhcpPolicy, Provisioning};
use futures_util::future::BoxFuture;
use kube::api::ApiResource;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ironic::{Ironic, addresses};
use super::{EVERY, Ground, Mount, PODS_LOG, Service, StaticPod};
use crate::cluster::Node;
use crate::cluster::api::Api;
use crate::cluster::follow::Kept;
use crate::host::files;
use crate::machine::Machine;
use crate::provisioning::IronicPlan;
use crate::provisioning::dhcp::{self, HOSTS, RUN, SETTINGS, STATE, settings};
use crate::provisioning::segment::state::{self, Answers, GuardState};
use crate::steps::{Missing, Outcome, Step, Steps, blocking};

/// DHCP and TFTP for servers, behind its guard.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: DHCP_STEP,
    next: "it is tried again; `kubectl -n kube-system logs dhcp-NODE` says what it does",
    log: PODS_LOG,
};

/// What the image's name begins with.
pub const IMAGE: &str = "foothold.dev/dnsmasq:";
/// Pause between two looks at addresses and the guard's state.
const LOOK: Duration = Duration::from_secs(10);
/// All hosts of the cluster.
const BARE_METAL_HOSTS: &str = "/apis/metal3.io/v1alpha1/baremetalhosts";

/// The DHCP server of this box.
#[derive(Debug)]
pub struct Dhcp {
    plan: IronicPlan,
    image: String,
}

impl Dhcp {
    /// `None` if the release has no image of it, or there is nothing to lease.
    pub fn of(machine: &Machine, ironic: &Ironic) -> Option<Self> {
        let image = machine.release().image(IMAGE)?.reference.clone();
        let declared = &ironic.plan().declared;
        let wanted = declared.range.is_some() && declared.dhcp != DhcpPolicy::Off;
        wanted.then(|| Self { plan: ironic.plan().clone(), image })
    }

    /// Starts it, and waits until its guard has decided who is answered.
    async fn bring_up(&self, machine: &Machine, steps: &Steps, api: &Api) {
        let act = || async {
            steps.wait(&STEP, EVERY, || self.place(machine)).await;
            // An API server that has just started reads its storage first.
            let told = || async {
                let told = self.tell_hosts(machine, api).await;
                told.map_err(|error| Missing::new("the cluster's hosts, whom DHCP knows", format!("{error:#}")))
            };
            steps.wait(&STEP, EVERY, told).await;
            steps.wait(&STEP, EVERY, || async { answers(machine) }).await;
            Ok(Outcome::Done((), read(machine).map_or(Value::Null, |state| detail(&state))))
        };
        steps.perform(&STEP, act).await;
    }

    /// Lays everything out for the box's address of now, the pod's manifest last.
    async fn place(&self, machine: &Machine) -> Result<(), Missing> {
        let what = "DHCP for servers";
        let Some((interface, own)) = self.plan.segment(&addresses()) else {
            let why = "the box has no IPv4 address on their network: give it one with `services.provisioning.address`, \
                       or by Site";
            return Err(Missing::new(what, why));
        };
        let (machine, image, declared) = (machine.clone(), self.image.clone(), self.plan.declared.clone());
        let laid_out = blocking(move || lay_out(&machine, &image, &declared, &interface, own));
        laid_out.await.map_err(|error: anyhow::Error| Missing::new(what, format!("{error:#}")))
    }

    /// Writes the file of known machines, before anybody is answered.
    async fn tell_hosts(&self, machine: &Machine, api: &Api) -> anyhow::Result<()> {
        let list = api.get(BARE_METAL_HOSTS).await?.unwrap_or_default();
        let all: Vec<Value> = list["items"].as_array().into_iter().flatten().map(dhcp::machine).collect();
        write_hosts(machine, dhcp::hosts(all.iter())).await
    }

    /// Writes the file again when the known machines change. Ends only when it is dropped.
    async fn follow_hosts(&self, machine: &Machine) {
        let kind = ApiResource::erase::<BareMetalHost>(&());
        let keep = |host: &Value| Some(dhcp::machine(host));
        let tell = |known: &Kept<Value>| write_hosts(machine, dhcp::hosts(known.values()));
        machine.follow(&kind, "DHCP is not told of new machines", keep, tell).await;
    }

    /// Follows addresses, and tells what the guard finds. Ends only when it is dropped.
    async fn follow_guard(&self, machine: &Machine, steps: &Steps, node: &Node) {
        let (mut told, mut missed) = (read(machine).map(|state| state.news()), None);
        loop {
            tokio::time::sleep(LOOK).await;
            let missing = self.place(machine).await.err();
            if let Some(missing) = missing.as_ref().filter(|_| missing != missed) {
                log::warn!("{}: {}", missing.what, missing.why);
            }
            missed = missing;
            let state = read(machine);
            let tending = async {
                let events: Vec<_> = state.iter().flat_map(|state| state.events(&node.name)).collect();
                if events.is_empty() {
                    return Ok(());
                }
                let api = machine.api()?;
                for event in events {
                    let event = serde_json::to_value(event)?;
                    let name = event["metadata"]["name"].as_str().unwrap_or_default();
                    let path = format!("/api/v1/namespaces/default/events/{name}");
                    api.apply(&path, &event, "foothold-agent", true).await?;
                }
                Ok::<_, anyhow::Error>(())
            };
            if let Err(error) = tending.await {
                log::warn!("the cluster is not told of what DHCP found: {error:#}");
            }
            let news = state.as_ref().map(GuardState::news);
            if let Some(state) = state.filter(|_| news != told) {
                log::info!("{}", state.sentence());
                steps.bus.started(STEP.phase, STEP.name);
                steps.bus.done_with(STEP.phase, STEP.name, detail(&state));
                told = news;
            }
        }
    }
}

impl Service for Dhcp {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on.machine, on.steps, api))
    }

    fn ask<'a>(&'a self, machine: &'a Machine, _api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(async { answers(machine) })
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        let all = async move {
            tokio::join!(self.follow_hosts(on.machine), self.follow_guard(on.machine, on.steps, on.node));
        };
        Box::pin(all)
    }
}

async fn write_hosts(machine: &Machine, text: String) -> anyhow::Result<()> {
    let path = machine.at(RUN).join(HOSTS);
    blocking(move || Ok(files::write(&path, text.as_bytes(), files::PUBLIC).map(drop)?)).await
}

/// Settings, the folder of leases, and last the pod's manifest.
fn lay_out(
    machine: &Machine,
    image: &str,
    declared: &Provisioning,
    interface: &str,
    own: Ipv4Addr,
) -> anyhow::Result<()> {
    let Some(settings) = settings(declared, own, machine.release().ntp_serve) else { return Ok(()) };
    let text = serde_json::to_string(&settings)? + "\n";
    let generation = hex::encode(&Sha256::digest(&text)[..8]);
    let state = machine.at(STATE);
    fs_err::create_dir_all(&state)?;
    if files::write(&machine.at(RUN).join(SETTINGS), text.as_bytes(), files::PUBLIC)? {
        // The state that an earlier pod left does not hold for this one.
        files::remove(&state.join(state::STATE))?;
    }
    pod(image, interface, generation).place(machine).map(drop)
}

/// The pod: the image of dnsmasq, under the agent's guard. It reads its settings only when it starts: another `generation`
/// of them is another pod.
///
/// Its user is root, as dnsmasq expects at its start; of root's capabilities it has only those for the network.
fn pod(image: &str, interface: &str, generation: String) -> StaticPod {
    let args = [
        "--interface",
        interface,
        "--config",
        &format!("{RUN}/{SETTINGS}"),
        "--hosts",
        &format!("{RUN}/{HOSTS}"),
        "--state",
        STATE,
    ];
    StaticPod {
        name: "dhcp",
        image: image.to_owned(),
        args: args.map(str::to_owned).to_vec(),
        capabilities: &["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"],
        requests: ("10m", "16Mi"),
        memory_limit: Some("128Mi"),
        grace_secs: Some(10),
        mounts: vec![Mount::folder("run", RUN).read_only(), Mount::folder("state", STATE)],
        generation: Some(generation),
        ..StaticPod::default()
    }
}

/// Whether the guard has decided who is answered, and reports no problem.
fn answers(machine: &Machine) -> Result<(), Missing> {
    let missing = |why: &str| Err(Missing::new("an answer of DHCP's guard", why));
    let Some(state) = read(machine) else { return missing("its pod is being started") };
    match (&state.problem, state.answers) {
        (Some(problem), _) => missing(problem),
        (None, Answers::Nobody) if state.others.is_empty() => missing(&state.why),
        _ => Ok(()),
    }
}

fn read(machine: &Machine) -> Option<GuardState> {
    let text = fs_err::read_to_string(machine.at(STATE).join(state::STATE)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Detail of its event: the sentence, and all of the state.
fn detail(state: &GuardState) -> Value {
    let mut detail = json!(state);
    detail["message"] = state.sentence().into();
    detail
}

#[cfg(test)]
mod tests {
    use agent_api::net::AddressRange;
    use agent_api::servers::Provisioning;
    use jiff::Timestamp;
    use serde_json::json;

    use super::{STATE, answers, lay_out, pod, state};
    use crate::cluster::manifests;
    use crate::host::runner::FakeRunner;
    use crate::machine::tests::machine;
    use crate::provisioning::segment::guard::Other;
    use crate::provisioning::segment::settings::DhcpPolicy;
    use crate::provisioning::segment::state::{Answers, GuardState};
    use agent_api::net::MacAddress;

    fn found() -> GuardState {
        GuardState {
            interface: "enp2s0".to_owned(),
            policy: DhcpPolicy::Guard,
            answers: Answers::Nobody,
            why: "the first look for other servers is not over".to_owned(),
            others: Vec::new(),
            known: 0,
            admitted: Vec::new(),
            waiting: Vec::new(),
            hosts: Vec::new(),
            problem: None,
        }
    }

    #[test]
    fn the_pod() {
        let pod = pod("foothold.dev/dnsmasq:2.91", "enp1s0", "0123456789abcdef".to_owned());
        insta::assert_snapshot!(pod.manifest().expect("a manifest"));
    }

    #[test]
    fn what_an_earlier_pod_found_does_not_outlive_its_settings() {
        let dir = tempfile::tempdir().expect("a folder");
        let machine = machine(dir.path(), FakeRunner::default());
        let state = machine.at(STATE).join(state::STATE);
        let range = AddressRange { first: [172, 22, 0, 10].into(), last: [172, 22, 0, 100].into() };
        let declared = Provisioning { range: Some(range), ..Provisioning::default() };
        let place = |own: [u8; 4]| {
            lay_out(&machine, "foothold.dev/dnsmasq:2.91", &declared, "enp2s0", own.into()).expect("laid out");
            fs_err::read_to_string(machine.at(manifests::DIR).join("foothold-dhcp.yaml")).expect("a manifest")
        };
        fs_err::create_dir_all(machine.at(STATE)).expect("a folder");
        fs_err::write(&state, "of the boot before").expect("written");
        let first = place([172, 22, 0, 1]);
        assert!(!state.exists());
        fs_err::write(&state, json!(found()).to_string()).expect("written");
        assert_eq!(place([172, 22, 0, 1]), first);
        assert!(state.exists());
        assert_ne!(place([172, 22, 0, 2]), first, "its settings are others: another pod");
        assert!(!state.exists());
    }

    #[test]
    fn it_answers_once_the_guard_has_looked() {
        let dir = tempfile::tempdir().expect("a folder");
        let machine = machine(dir.path(), FakeRunner::default());
        fs_err::create_dir_all(machine.at(STATE)).expect("a folder");
        let said = |state: &GuardState| {
            fs_err::write(machine.at(STATE).join(state::STATE), json!(state).to_string()).expect("written");
            answers(&machine).map_err(|missing| missing.why)
        };
        assert_eq!(answers(&machine).expect_err("nothing yet").why, "its pod is being started");
        assert_eq!(said(&found()), Err("the first look for other servers is not over".to_owned()));
        assert_eq!(said(&GuardState { answers: Answers::KnownAndAdmitted, ..found() }), Ok(()));
        let other = Other {
            server: [192, 0, 2, 1].into(),
            mac: MacAddress([2, 0, 0, 0, 0, 7]),
            offered: None,
            first: Timestamp::UNIX_EPOCH,
            last: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(said(&GuardState { answers: Answers::Known, others: vec![other], ..found() }), Ok(()));
        let odd = vec!["host `a`: is odd".to_owned()];
        assert_eq!(said(&GuardState { answers: Answers::KnownAndAdmitted, hosts: odd, ..found() }), Ok(()));
        let problem = "dnsmasq ended by itself".to_owned();
        assert_eq!(said(&GuardState { problem: Some(problem.clone()), ..found() }), Err(problem));
    }
}
