//! `node apply`: the steps of a server, with the engine and the ledger that the box has.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use agent_api::events::PhaseWord;
use agent_api::ports;
use serde_json::json;

use super::plan::{Line, NodePlan, Program, Task};
use super::{LEDGER, Server, address, interface_with, kubernetes, programs, runtime, system};
use crate::events::Bus;
use crate::steps::{Key, Ledger, Outcome, Pace, Step, Steps, blocking};

const RETRY: &str = "it is tried again; the operator tells in the status of the Provisioning";

const fn step(phase: &'static str, name: &'static str, log: &'static str) -> Step {
    Step { phase: PhaseWord::new(phase), name, next: RETRY, log }
}

/// What the server lacks is fetched from the box.
const PROGRAMS: Step = step("system", "programs", "");
/// The address that the box leased to the server becomes its own.
const ADDRESS: Step = step("system", "address", "journalctl -u systemd-networkd");
/// Modules and settings of the kernel.
const KERNEL: Step = step("system", "kernel", "journalctl -k");
/// containerd runs.
const CONTAINERD: Step = step("runtime", "containerd", "journalctl -u containerd");
/// kubeadm.
pub const MEMBER: Step = step("kubernetes", "member", "journalctl -u kubelet");
/// kubeadm of the new version.
const KUBEADM: Step = step("upgrade", "kubeadm", "");
/// kubeadm upgrades what runs.
const UPGRADE: Step = step("upgrade", "kubernetes", "journalctl -u kubelet");
/// The kubelet of the new version runs.
const KUBELET: Step = step("upgrade", "kubelet", "journalctl -u kubelet");
/// Certificates are made anew.
const RENEW: Step = step("certificates", "renew", "journalctl -u kubelet");
/// The API answers with them.
const ANSWERS: Step = step("certificates", "api-server", "journalctl -u kubelet");
/// Objects of the cluster.
const OBJECTS: Step = step("kubernetes", "objects", "");

/// Key in the ledger: the cluster whose node the server is.
pub const CLUSTER: &str = "cluster";

/// Steps of a plan.
fn steps_of(plan: &NodePlan) -> usize {
    let steps = match &plan.task {
        Task::Renew => return 2,
        Task::Upgrade { .. } => 6,
        Task::Init { manifests, .. } if !manifests.is_empty() => 5,
        Task::Init { .. } | Task::Join { .. } => 4,
    };
    steps + usize::from(plan.keeps_address)
}

/// Pause between two signs of life. Without them neither side would notice a lost connection.
const ALIVE: Duration = Duration::from_secs(5);

/// Prints one line. Returns false when nobody reads any more.
pub fn print(line: &Line) -> bool {
    let Ok(text) = serde_json::to_string(line) else { return true };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).is_ok()
}

/// Carries out the plan. Ends when it is done, or when nobody reads its lines any more.
pub async fn apply(server: &Server, plan: &NodePlan) -> anyhow::Result<()> {
    let ledger = Arc::new(Ledger::open(&server.path(LEDGER))?);
    let pace = Pace { first_pause: Duration::from_secs(5), longest_pause: Duration::from_secs(60), ..Pace::default() };
    let steps = Steps { bus: Bus::in_memory(), ledger, stop_before: None, pace };
    let mut events = steps.bus.subscribe();
    print(&Line::Steps(steps_of(plan)));
    let tell = async {
        loop {
            let line = tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => Line::Event(Box::new(event)),
                    Err(_) => Line::Alive,
                },
                () = tokio::time::sleep(ALIVE) => Line::Alive,
            };
            if !print(&line) {
                return;
            }
        }
    };
    let kubeconfig = tokio::select! {
        made = perform(server, plan, &steps) => made?,
        () = tell => anyhow::bail!("nobody reads what this says any more"),
    };
    print(&Line::Done(kubeconfig));
    Ok(())
}

/// All steps, without a reader.
#[cfg(test)]
pub async fn perform_for_tests(server: &Server, plan: &NodePlan) -> anyhow::Result<Option<String>> {
    let ledger = Arc::new(Ledger::open(&server.path(LEDGER))?);
    perform(server, plan, &Steps { bus: Bus::in_memory(), ledger, stop_before: None, pace: Pace::default() }).await
}

async fn perform(server: &Server, plan: &NodePlan, steps: &Steps) -> anyhow::Result<Option<String>> {
    if matches!(plan.task, Task::Renew) {
        steps.perform(&RENEW, || with(server, plan, have_made)).await;
        let at = std::net::SocketAddr::new(plan.address, ports::KUBERNETES_API).to_string();
        let answers = || async {
            kubernetes::answers(&at).await?;
            Ok(Outcome::Done((), json!(null)))
        };
        steps.perform(&ANSWERS, answers).await;
        return Ok(None);
    }
    if let Task::Upgrade { .. } = plan.task {
        // The kubelet is never newer than the API server: it comes when kubeadm has done its part.
        steps.perform(&KUBEADM, || bring(server, plan, is_kubeadm)).await;
        steps.perform(&UPGRADE, || with(server, plan, have_made)).await;
    }
    let renewed = steps.perform(&PROGRAMS, || bring(server, plan, |_| true)).await;
    if plan.keeps_address {
        let keep = |server: &Server, plan: &NodePlan| address::keep(server, &interface_with(plan.address)?);
        steps.perform(&ADDRESS, || with(server, plan, keep)).await;
    }
    steps.perform(&KERNEL, || with(server, plan, |server, plan| Ok(told(system::set_up(server, plan.address)?)))).await;
    steps
        .perform(&CONTAINERD, || {
            with(server, plan, move |server, plan| Ok(told(runtime::set_up(server, &plan.hosts_toml, renewed)?)))
        })
        .await;
    if let Task::Upgrade { .. } = plan.task {
        let restart = |server: &Server, _: &NodePlan| {
            server.call(&["systemctl", "restart", "kubelet.service"], super::SHORT)?;
            Ok(Outcome::Done((), json!(null)))
        };
        steps.perform(&KUBELET, || with(server, plan, restart)).await;
        return Ok(None);
    }
    steps.perform(&MEMBER, || member(server, plan, steps)).await;
    let Task::Init { manifests, .. } = &plan.task else { return Ok(None) };
    if !manifests.is_empty() {
        let apply = |server: &Server, plan: &NodePlan| {
            if let Task::Init { manifests, .. } = &plan.task {
                kubernetes::apply(server, manifests)?;
            }
            Ok(Outcome::Done((), json!(null)))
        };
        steps.perform(&OBJECTS, || with(server, plan, apply)).await;
    }
    kubernetes::kubeconfig(server).map(Some)
}

/// Runs a task of kubeadm on a complete node.
fn have_made(server: &Server, plan: &NodePlan) -> anyhow::Result<Outcome<()>> {
    kubernetes::make(server, plan, true)?;
    settle();
    Ok(Outcome::Done((), json!({"version": plan.version})))
}

/// Waits until what kubeadm wrote is on the disk. kubeadm does not wait for that, and the ledger must not say more than is true
/// after a power cut.
fn settle() {
    nix::unistd::sync();
}

fn told(changed: bool) -> Outcome<()> {
    if changed { Outcome::Done((), json!(null)) } else { Outcome::Current(()) }
}

/// Runs blocking work in a thread, with copies of server and plan.
async fn with<T: Send + 'static>(
    server: &Server,
    plan: &NodePlan,
    act: impl FnOnce(&Server, &NodePlan) -> anyhow::Result<Outcome<T>> + Send + 'static,
) -> anyhow::Result<Outcome<T>> {
    let (server, plan) = (server.clone(), plan.clone());
    blocking(move || act(&server, &plan)).await
}

fn is_kubeadm(program: &Program) -> bool {
    program.path.ends_with("/kubeadm")
}

/// Fetches the missing files that `meant` selects. Returns whether containerd or runc has changed.
async fn bring(server: &Server, plan: &NodePlan, meant: impl Fn(&Program) -> bool) -> anyhow::Result<Outcome<bool>> {
    let (at, all) =
        (server.clone(), plan.programs.iter().filter(|program| meant(program)).cloned().collect::<Vec<_>>());
    let missing: Vec<Program> = blocking(move || programs::missing(&at, &all)).await?;
    let runtime = missing.iter().any(|program| program.path.contains("containerd") || program.path.ends_with("/runc"));
    if runtime {
        server.may_lag(runtime::CONTAINERD)?;
    }
    let mut bytes = 0;
    for program in &missing {
        let (at, one, all) = (server.clone(), program.clone(), plan.programs.clone());
        if !blocking(move || programs::link(&at, &one, &all)).await? {
            bytes += programs::fetch(server, program).await?;
        }
    }
    if missing.is_empty() {
        return Ok(Outcome::Current(false));
    }
    Ok(Outcome::Done(runtime, json!({"files": missing.len(), "bytes": bytes})))
}

/// Runs kubeadm to make the server a node, once. The ledger names the cluster before kubeadm begins.
async fn member(server: &Server, plan: &NodePlan, steps: &Steps) -> anyhow::Result<Outcome<()>> {
    let own = steps.ledger.fact(CLUSTER).as_deref() == Some(&*plan.cluster);
    let key = Key::of([plan.cluster.as_str(), &plan.node]);
    // What was whole once is never begun anew, whether its API answers now or not.
    if own && steps.is_current(&MEMBER, &key) && kubernetes::has_traces(server) {
        return with(server, plan, |server, plan| Ok(told(kubernetes::put_files(server, plan, |_| true)?))).await;
    }
    if !own {
        let clean = |server: &Server, _: &NodePlan| {
            anyhow::ensure!(!kubernetes::has_traces(server), "{}", super::check::FOREIGN);
            Ok(Outcome::Current(()))
        };
        with(server, plan, clean).await?;
        steps.ledger.set_fact(CLUSTER, &plan.cluster)?;
    }
    let made = |server: &Server, plan: &NodePlan| {
        let done = kubernetes::is_done(server, plan);
        if !done {
            kubernetes::make(server, plan, true)?;
        }
        let changed = kubernetes::put_files(server, plan, |_| true)?;
        settle();
        Ok(if done { told(changed) } else { Outcome::Done((), json!({"version": plan.version})) })
    };
    let outcome = with(server, plan, made).await?;
    steps.record(&MEMBER, &key)?;
    Ok(outcome)
}
