//! The controller of tenant clusters on the box (`SIPCluster`): its kind, rights and pod.

use agent_api::events::{Phase, PhaseWord};
use agent_api::sip::crds;
use futures_util::future::BoxFuture;

use super::deployed::{self, Controller, place, rule};
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
/// Path of `HAProxy` in the image.
const HAPROXY: &str = "/usr/sbin/haproxy";
/// Metrics and health, on the loopback address.
const METRICS: u16 = 8088;

/// The controller.
#[derive(Debug)]
pub struct Sip {
    image: String,
    jump_host: String,
}

impl Sip {
    /// `None` if the release does not declare it.
    pub fn of(machine: &Machine) -> Option<Self> {
        let release = machine.release();
        release.sip.as_ref()?;
        let (image, jump_host) = (release.image(IMAGE)?.reference.clone(), release.image(JUMP_HOST)?.reference.clone());
        Some(Self { image, jump_host })
    }

    /// Starts it, and waits until it is there.
    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let place = || async { deployed::apply(api, &objects(&self.image, &self.jump_host)?).await };
        deployed::bring_up(on, &STEP, place, || is_there(api)).await;
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
        Box::pin(seen::follow_tenants(on))
    }
}

async fn is_there(api: &Api) -> Result<(), Missing> {
    deployed::ask(api, &Controller::path(NAME), TITLE).await
}

/// All objects, in the order in which they are needed.
pub fn objects(image: &str, jump_host: &str) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Placed> = crds::all().iter().map(place).collect::<Result<_, _>>()?;
    let controller = controller(image, jump_host);
    objects.extend(controller.rights()?);
    objects.push(controller.deployment()?);
    Ok(objects)
}

fn controller(image: &str, jump_host: &str) -> Controller {
    let metrics = format!("127.0.0.1:{METRICS}");
    let args = ["operator", "sip", "--image", image, "--jump-host", jump_host, "--haproxy", HAPROXY];
    let args = args.into_iter().chain(["--metrics-address", &metrics]);
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    Controller {
        name: NAME,
        image: image.to_owned(),
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

    use super::{Controller, NAME, objects};

    #[test]
    fn the_kind_comes_first_and_the_pod_last() {
        let all = objects("foothold.dev/sip:1", "foothold.dev/jumphost:1").expect("placed");
        assert_eq!(all.len(), 1 + 4);
        assert_eq!(all[0].object["spec"]["names"]["kind"], "SIPCluster");
        assert_eq!(all[4].path(), Controller::path(NAME));
        let args = all[4].object["spec"]["template"]["spec"]["containers"][0]["args"].as_array().expect("arguments");
        assert_eq!(args[..4], [json!("operator"), json!("sip"), json!("--image"), json!("foothold.dev/sip:1")]);
    }
}
