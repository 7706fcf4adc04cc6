//! The metrics API of the box (`kubectl top`, autoscalers): metrics-server, behind `ready`.

use std::time::Duration;

use agent_api::events::{Phase, PhaseWord};
use futures_util::future::BoxFuture;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Ground, PODS_LOG, Service, Turn, deployed};
use crate::cluster::api::Api;
use crate::cluster::metrics_server::{self, DEPLOYMENT, NODES, Trust};
use crate::cluster::{Node, kubelet};
use crate::machine::Machine;
use crate::steps::{Missing, Step, chain};

/// The metrics API answers.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "metrics-server",
    next: "it is tried again",
    log: PODS_LOG,
};

/// Its image, which the release has if the definition declares `services.metrics`.
pub const IMAGE: &str = "foothold.dev/metrics-server:";
/// What it is for a user.
const TITLE: &str = "the metrics API";
/// Pause between two looks at the kubelet's certificate.
const LOOK: Duration = Duration::from_secs(60);

/// The metrics API.
#[derive(Debug)]
pub struct Metrics {
    image: String,
}

impl Metrics {
    /// `None` if the release does not declare it.
    pub fn of(machine: &Machine) -> Option<Self> {
        Some(Self { image: machine.release().image(IMAGE)?.reference.clone() })
    }

    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let place = || async {
            let trust = trust(on.machine, on.node)?;
            deployed::apply(api, &metrics_server::objects(&self.image, &trust)?).await
        };
        deployed::bring_up(on, &STEP, place, || answers(api)).await;
    }

    /// Updates its objects when the kubelet's certificate has changed. Ends only when it is dropped.
    async fn follow_certificate(&self, on: Ground<'_>) {
        let mut known = trust(on.machine, on.node).ok();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = trust(on.machine, on.node).ok();
            let Some(trust) = now.as_ref().filter(|_| now != known) else { continue };
            let objects = metrics_server::objects(&self.image, trust);
            let placed = async { deployed::apply(&on.machine.api()?, &objects?).await };
            match placed.await {
                Ok(_) => known = now,
                Err(error) => log::error!("{TITLE} is not told of the kubelet's new certificate: {error:#}"),
            }
        }
    }
}

impl Service for Metrics {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn turn(&self) -> Turn {
        Turn::Behind
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on, api))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(answers(api))
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        Box::pin(self.follow_certificate(on))
    }
}

/// The authority of the kubelet's certificate: the certificate after it in the same file.
fn trust(machine: &Machine, node: &Node) -> anyhow::Result<Trust> {
    let authority = fs_err::read_to_string(machine.at(kubelet::DIR).join(kubelet::SERVING))?;
    let generation = hex::encode(&Sha256::digest(&authority)[..8]);
    Ok(Trust::Node { name: node.name.clone(), address: node.advertise, authority, generation })
}

/// Whether it answers with the usage of the node.
async fn answers(api: &Api) -> Result<(), Missing> {
    match api.get(NODES).await {
        Ok(Some(list)) => tells(&list),
        // Why there is no answer, as long as its pod is what is missing.
        Ok(None) => Err(Missing::new(TITLE, "the API server does not know it")),
        Err(error) => {
            deployed::ask(api, DEPLOYMENT, TITLE).await?;
            Err(Missing::new(TITLE, chain(&error)))
        }
    }
}

fn tells(list: &Value) -> Result<(), Missing> {
    let some = list["items"].as_array().is_some_and(|items| items.iter().any(|item| item["usage"].is_object()));
    if some { Ok(()) } else { Err(Missing::new(TITLE, "it has not measured the node yet")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_api::release::{Digest, Image, Release};
    use serde_json::json;

    use super::{Metrics, tells, trust};
    use crate::cluster::Node;
    use crate::cluster::metrics_server::Trust;
    use crate::fixtures::release;
    use crate::host::files;
    use crate::host::runner::FakeRunner;
    use crate::machine::Machine;
    use crate::machine::tests::machine;

    fn node() -> Node {
        Node {
            name: "edge".to_owned(),
            advertise: [198, 18, 0, 1].into(),
            service_address: [10, 96, 0, 1].into(),
            site_addresses: Vec::new(),
        }
    }

    #[test]
    fn a_release_has_it_with_its_image() {
        let dir = tempfile::tempdir().expect("a folder");
        let image = Image {
            reference: "foothold.dev/metrics-server:v0.8.0".to_owned(),
            index: None,
            inner: Vec::new(),
            manifest: Digest::of("manifest"),
            blobs: Vec::new(),
        };
        let without = machine(dir.path(), FakeRunner::default());
        assert!(Metrics::of(&without).is_none());
        let (runner, facts) = (Arc::new(FakeRunner::default()), without.facts().clone());
        let with = Release { images: vec![image], ..release() };
        let with = Machine::new(dir.path(), runner, with, facts, String::new());
        assert_eq!(Metrics::of(&with).expect("declared").image, "foothold.dev/metrics-server:v0.8.0");
    }

    #[test]
    fn it_trusts_the_kubelets_own_certificate_and_is_another_pod_with_another_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let machine = machine(dir.path(), FakeRunner::default());
        assert!(trust(&machine, &node()).is_err(), "there is no kubelet yet");
        let told = |text: &str| {
            let path = machine.at("/var/lib/kubelet/pki/kubelet.crt");
            files::write(&path, text.as_bytes(), files::PUBLIC).expect("written");
            let Trust::Node { name, address, authority, generation } = trust(&machine, &node()).expect("trusted")
            else {
                panic!("the kubelet is not checked");
            };
            assert_eq!((name.as_str(), address, authority.as_str()), ("edge", node().advertise, text));
            generation
        };
        assert_ne!(told("one"), told("another"));
    }

    #[test]
    fn it_answers_once_it_has_measured_the_node() {
        let node = json!({"metadata": {"name": "edge"}, "usage": {"cpu": "100m", "memory": "900Mi"}});
        assert_eq!(tells(&json!({"kind": "NodeMetricsList", "items": [node]})), Ok(()));
        let missing = tells(&json!({"kind": "NodeMetricsList", "items": []})).expect_err("nothing is measured");
        assert_eq!(missing.why, "it has not measured the node yet");
    }
}
