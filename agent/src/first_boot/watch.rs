//! After `ready`: everything is asked again from time to time, failures and recoveries are told,
//! certificates follow the addresses and the calendar.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::control_plane::bring_up_to_date;
use super::run::{Cluster, Declared};
use super::{Machine, addons, decide, phase, ready};
use crate::cluster::api::Api;
use crate::cluster::pki::Issued;
use crate::cluster::{Node, TEMPLATES, bpa_service, manifests, objects};
use crate::host::addresses;
use crate::registry::Front;
use crate::services::{Ground, Turn, registry};
use crate::steps::{Step, Steps, blocking};

/// Pause between two rounds of checks.
const CHECK: Duration = Duration::from_secs(15);
/// A failed check is repeated after this; only the second failure in a row is told.
const CHECK_AGAIN: Duration = Duration::from_secs(3);
/// Pause between two looks at addresses and clock.
const LOOK: Duration = Duration::from_secs(2);
/// What is started behind `ready` is asked after this long, too, when it has not come up.
const BEHIND: Duration = Duration::from_secs(600);
/// Certificates are looked at this often, beside every change of address and jump of the clock.
const RENEW: Duration = Duration::from_secs(12 * 3600);
/// A clock that moved this much against the monotonic one was set.
const JUMP_SECS: u64 = 60;
/// How long the kubelet needs to see that a static pod's manifest is gone.
const GONE: Duration = Duration::from_secs(25);

/// Watches until it is dropped.
pub async fn forever(
    machine: &Machine,
    steps: &Steps,
    Cluster { node, api, node_ready }: Cluster,
    declared: &Declared,
    front: &Front,
) {
    let (services, on) = (&declared.services, Ground { machine, steps, node: &node });
    let (started, start) = oneshot::channel();
    let behind = async {
        tokio::join!(services.start(Turn::Behind, on, &api), addons::all_of_coredns(steps, &api));
        // Nobody waits any more when it took too long.
        let _ = started.send(());
    };
    let checks = async {
        let _ = timeout(BEHIND, start).await;
        check(on, node_ready, declared, front).await;
    };
    let certificates = follow(machine, steps, node.clone());
    tokio::join!(certificates, behind, checks, lead_to_uploads(machine, &node), services.tend(on));
}

/// Pods find the server for uploads by a Service. Nothing waits for it, so it comes behind `ready`.
async fn lead_to_uploads(machine: &Machine, node: &Node) {
    while let Err(error) = apply_uploads(machine, node).await {
        log::warn!("the Service of uploads is not there yet: {error:#}");
        sleep(CHECK).await;
    }
}

async fn apply_uploads(machine: &Machine, node: &Node) -> anyhow::Result<()> {
    let api = machine.api()?;
    for placed in bpa_service::objects(node)? {
        objects::apply(&api, &placed).await?;
    }
    Ok(())
}

/// Repeats the checks; tells the step that fails, and `ready` again when all is well again.
async fn check(on: Ground<'_>, node_ready: f64, declared: &Declared, front: &Front) {
    let Ground { machine, steps, .. } = on;
    // What failed since `ready` is over when all is well.
    let mut failed: Option<&'static Step> = (!steps.bus.now().ready).then_some(&registry::STEP);
    let mut suspicious = false;
    loop {
        sleep(if suspicious || failed.is_some() { CHECK_AGAIN } else { CHECK }).await;
        // The kubeconfig may have been renewed: a client costs one handshake.
        let result = match machine.api() {
            Ok(api) => once(on, &api, declared, front).await,
            Err(error) => Err((&phase::READYZ, format!("{error:#}"))),
        };
        match (result, failed) {
            (Ok(()), None) => suspicious = false,
            (Ok(()), Some(step)) => {
                steps.bus.done(step.phase, step.name);
                steps.bus.started(phase::READY.phase, phase::READY.name);
                ready::tell_ready(machine, steps, node_ready);
                (failed, suspicious) = (None, false);
            }
            (Err(_), None) if !suspicious => suspicious = true,
            (Err((step, cause)), before) if before != Some(step) => {
                if let Some(before) = before {
                    steps.bus.done(before.phase, before.name);
                }
                // The step begins anew: its time counts from the failure, not from the boot.
                steps.bus.started(step.phase, step.name);
                steps.fail(step, &cause);
                failed = Some(step);
            }
            (Err(_), _) => {}
        }
    }
}

async fn once(on: Ground<'_>, api: &Api, declared: &Declared, front: &Front) -> Result<(), (&'static Step, String)> {
    let mut checked = ready::check_once(on.machine, on.node, api, front, &declared.services).await;
    if let (Ok(()), Some(objects)) = (&checked, &declared.objects) {
        checked = objects.check(on.steps, api).await.map_err(|missing| (&phase::SITE_HEALTH, missing));
    }
    checked.map_err(|(step, missing)| (step, format!("{}: {}", missing.what, missing.why)))
}

/// Renews certificates for addresses that came while the cluster was brought up, so that the API answers at all addresses
/// when the box says `ready`. Returns the node with its present addresses.
pub async fn catch_up(machine: &Machine, steps: &Steps, mut node: Node) -> Node {
    if has_moved(&mut node) {
        // What fails is told, and tried again by the watch.
        let _ = renew(machine, steps, &node).await;
    }
    node
}

/// Takes over the addresses of now; whether they are others than before.
fn has_moved(node: &mut Node) -> bool {
    let found = addresses().map(|have| decide::site_addresses(&have)).unwrap_or_default();
    let moved = found != node.site_addresses;
    node.site_addresses = found;
    moved
}

/// Keeps certificates right: addresses, calendar, clock.
async fn follow(machine: &Machine, steps: &Steps, mut node: Node) {
    let mut next = Instant::now() + RENEW;
    let mut clock = Clock::now(machine);
    // What was missed before the watch began is caught up with first.
    let mut due = true;
    loop {
        due |= has_moved(&mut node);
        let now = Clock::now(machine);
        due |= now.was_set_since(&clock) || Instant::now() >= next;
        clock = now;
        if due {
            next = Instant::now() + RENEW;
            due = renew(machine, steps, &node).await.is_err();
        }
        sleep(LOOK).await;
    }
}

async fn renew(machine: &Machine, steps: &Steps, node: &Node) -> Result<(), ()> {
    let (on, who) = (machine.clone(), node.clone());
    match blocking(move || bring_up_to_date(&on, &who, true)).await {
        Ok((_, issued)) if issued.is_empty() => Ok(()),
        Ok((_, issued)) => {
            let files: Vec<String> = issued.iter().map(|one| format!("{}: {:?}", one.file, one.reason)).collect();
            let step = &phase::CERTIFICATES;
            steps.bus.started(step.phase, step.name);
            steps.bus.done_with(step.phase, step.name, serde_json::json!({"issued": files}));
            restart(machine, steps, node, &pods_to_restart(&issued)).await;
            Ok(())
        }
        Err(error) => {
            steps.fail(&phase::CERTIFICATES, &format!("{error:#}"));
            Err(())
        }
    }
}

/// Static pods that read a kubeconfig only when they start. etcd and the API server read their
/// certificates anew by themselves.
fn pods_to_restart(issued: &[Issued]) -> Vec<&'static str> {
    let reads =
        [("controller-manager.conf", "kube-controller-manager.yaml"), ("scheduler.conf", "kube-scheduler.yaml")];
    let files: BTreeSet<&str> = issued.iter().map(|one| one.file.as_str()).collect();
    reads.into_iter().filter(|(file, _)| files.contains(file)).map(|(_, manifest)| manifest).collect()
}

async fn restart(machine: &Machine, steps: &Steps, node: &Node, pods: &[&'static str]) {
    if pods.is_empty() {
        return;
    }
    let dir = machine.at(manifests::DIR);
    let templates = machine.at(TEMPLATES).join("manifests");
    let taken = manifests::hold_back(&dir, pods);
    sleep(GONE).await;
    let placed = manifests::place(&templates, &dir, pods, node);
    if let Err(error) = taken.and(placed.map(drop)) {
        steps.fail(&phase::CONTROLLERS, &error.to_string());
    }
}

/// The wall clock and the monotonic one, taken together.
struct Clock {
    wall: u64,
    steady: Instant,
}

impl Clock {
    fn now(machine: &Machine) -> Self {
        Self { wall: machine.validity().now, steady: Instant::now() }
    }

    fn was_set_since(&self, earlier: &Self) -> bool {
        let expected = earlier.wall + self.steady.duration_since(earlier.steady).as_secs();
        self.wall.abs_diff(expected) > JUMP_SECS
    }
}

#[cfg(test)]
mod tests {
    use super::pods_to_restart;
    use crate::cluster::pki::{Issued, Reason};

    #[test]
    fn only_those_that_read_once_are_restarted() {
        let issued = |files: &[&str]| -> Vec<Issued> {
            files.iter().map(|file| Issued { file: (*file).to_owned(), reason: Reason::EndsSoon }).collect()
        };
        assert_eq!(pods_to_restart(&issued(&["apiserver", "admin.conf"])), Vec::<&str>::new());
        assert_eq!(pods_to_restart(&issued(&["scheduler.conf", "apiserver"])), ["kube-scheduler.yaml"]);
    }
}
