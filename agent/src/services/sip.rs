//! The controller of tenant clusters on the box (`SIPCluster`): its kind, rights and pod.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::events::{Phase, PhaseWord};
use agent_api::release::Release;
use agent_api::sip::crds;
use futures_util::future::BoxFuture;

use super::deployed::{self, Controller, place, rule};
use super::ironic::{Ironic, addresses};
use super::{Ground, PODS_LOG, Service, seen};
use crate::cluster::api::Api;
use crate::cluster::objects::{ObjectsError, Placed};
use crate::machine::Machine;
use crate::steps::{Missing, Step};

/// The controller, with its kind and rights.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "sip-operator",
    next: "it is tried again",
    log: PODS_LOG,
};

/// Name of all its objects.
const NAME: &str = "sip-operator";
/// What it is for a user.
const TITLE: &str = "the controller of tenant clusters";
/// Image with `HAProxy` and the agent.
pub const IMAGE: &str = "foothold.dev/sip:";
/// Image of jump hosts.
pub const JUMP_HOST: &str = "foothold.dev/jumphost:";
/// Image of logins.
pub const OIDC: &str = "foothold.dev/oidc:";
/// Path of `HAProxy` in the image.
const HAPROXY: &str = "/usr/sbin/haproxy";
/// Metrics and health, on the loopback address.
const METRICS: u16 = 8088;
/// Pause between two looks at the box's address.
const LOOK: Duration = Duration::from_secs(30);

/// The controller.
#[derive(Debug)]
pub struct Sip {
    images: Images,
    ironic: Option<Arc<Ironic>>,
}

/// Images that it and the pods of its services run.
#[derive(Clone, Debug)]
pub struct Images {
    /// With `HAProxy` and the agent.
    pub own: String,
    /// With OpenSSH.
    pub jump_host: String,
    /// With an OIDC provider.
    pub oidc: String,
}

impl Images {
    /// Those of a release, each as `named` says; none where the release lacks one.
    pub fn of(release: &Release, named: impl Fn(&str) -> Option<String>) -> Option<Self> {
        release.sip.as_ref()?;
        Some(Self { own: named(IMAGE)?, jump_host: named(JUMP_HOST)?, oidc: named(OIDC)? })
    }
}

impl Sip {
    /// `None` if the release does not declare it. `ironic` knows the network of the servers.
    pub fn of(machine: &Machine, ironic: Option<&Arc<Ironic>>) -> Option<Self> {
        let release = machine.release();
        let images = Images::of(release, |begins| release.image(begins).map(|image| image.reference.clone()))?;
        Some(Self { images, ironic: ironic.map(Arc::clone) })
    }

    /// Starts it, and waits until it is there.
    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let place = || async { deployed::apply(api, &objects(&self.images, self.own())?).await };
        deployed::bring_up(on, &STEP, place, || is_there(api)).await;
    }

    /// The box's address on the servers' network: part of every login's issuer. Only logins need it.
    fn own(&self) -> Option<Ipv4Addr> {
        self.ironic.as_ref()?.plan().segment(&addresses()).map(|(_, own)| own)
    }

    /// Tells it when servers reach the box at another address. Ends only when it is dropped.
    async fn follow_address(&self, machine: &Machine) {
        let mut known = self.own();
        loop {
            tokio::time::sleep(LOOK).await;
            let own = self.own();
            if own.is_none() || own == known {
                continue;
            }
            let placed = async { deployed::apply(&machine.api()?, &objects(&self.images, own)?).await };
            match placed.await {
                Ok(_) => known = own,
                Err(error) => log::error!("{TITLE} is not told: {error:#}"),
            }
        }
    }
}

impl Service for Sip {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on, api))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(is_there(api))
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::join!(self.follow_address(on.machine), seen::follow_tenants(on));
        })
    }
}

async fn is_there(api: &Api) -> Result<(), Missing> {
    deployed::ask(api, &Controller::path(NAME), TITLE).await
}

/// All objects, in the order in which they are needed. `own`: the box's address on the servers' network, where it is known.
fn objects(images: &Images, own: Option<Ipv4Addr>) -> Result<Vec<Placed>, ObjectsError> {
    all(images, own.map(|own| own.to_string()).as_deref())
}

/// The same, where the address may be another text.
pub fn all(images: &Images, own: Option<&str>) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Placed> = crds::all().iter().map(place).collect::<Result<_, _>>()?;
    let controller = controller(images, own);
    objects.extend(controller.rights()?);
    objects.push(controller.deployment()?);
    Ok(objects)
}

fn controller(images: &Images, own: Option<&str>) -> Controller {
    let Images { own: image, jump_host, oidc } = images;
    let metrics = format!("127.0.0.1:{METRICS}");
    let args = ["operator", "sip", "--image", image, "--jump-host", jump_host, "--oidc", oidc, "--haproxy", HAPROXY];
    let args = args.into_iter().chain(own.into_iter().flat_map(|own| ["--box", own]));
    let args = args.chain(["--metrics-address", &metrics]);
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    Controller {
        name: NAME,
        image: image.clone(),
        args: args.map(str::to_owned).collect(),
        rules: vec![
            rule(&["airship.airshipit.org"], &["*"], &["*"]),
            // Hosts are found, claimed and rebooted, and not made.
            rule(&["metal3.io"], &["baremetalhosts"], &["get", "list", "watch", "patch"]),
            // Network data and credentials of hosts, templates of users; what pods of the clusters read.
            rule(&[""], &["secrets", "configmaps", "services", "serviceaccounts"], &all),
            rule(&["apps"], &["deployments"], &all),
            // It gives a jump host no right that it has not itself.
            rule(&["rbac.authorization.k8s.io"], &["roles", "rolebindings"], &all),
            // They are told when what they mount is another one.
            rule(&[""], &["pods"], &["get", "list", "patch"]),
            // Consoles are brought to the jump host that asks. Who connects by a web socket needs `get`, from 1.35 on `create`.
            rule(&[""], &["pods/portforward"], &["get", "create"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
        ],
        health_port: METRICS,
        memory_limit: Some("256Mi"),
        ..Controller::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Controller, Images, NAME, objects};

    #[test]
    fn the_kind_comes_first_and_the_pod_last() {
        let names = ["sip", "jumphost", "oidc"].map(|name| format!("foothold.dev/{name}:1"));
        let [own, jump_host, oidc] = names;
        let images = Images { own, jump_host, oidc };
        let all = objects(&images, Some([172, 22, 0, 1].into())).expect("placed");
        assert_eq!(all.len(), 1 + 4);
        assert_eq!(all[0].object["spec"]["names"]["kind"], "SIPCluster");
        assert_eq!(all[4].path(), Controller::path(NAME));
        let args = all[4].object["spec"]["template"]["spec"]["containers"][0]["args"].as_array().expect("arguments");
        assert_eq!(args[..4], [json!("operator"), json!("sip"), json!("--image"), json!("foothold.dev/sip:1")]);
        assert_eq!(args[6..8], [json!("--oidc"), json!("foothold.dev/oidc:1")]);
        assert_eq!(args[10..12], [json!("--box"), json!("172.22.0.1")]);
        let without = objects(&images, None).expect("placed");
        assert!(!without[4].object.to_string().contains("--box"), "each login names its host then");
    }
}
