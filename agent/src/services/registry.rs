//! The registry: its storage in memory and DATA, and its pod. Before `ready` where uploads are declared, else behind it:
//! images of the release are served by the agent.

use std::sync::Arc;

use agent_api::boot::MEDIUM;
use agent_api::events::{Phase, PhaseWord};
use agent_api::ports::REGISTRY;
use agent_api::release::MEDIUM_ROOT;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::{EVERY, Ground, Mount, PODS_LOG, Service, StaticPod, Turn, asked};
use crate::cluster::api::Api;
use crate::machine::Machine;
use crate::registry::pod::{CONFIG, IMAGE, ROOT, SOCKET_DIR, USER};
use crate::registry::{Front, RegistryStorage};
use crate::steps::{Missing, Outcome, Step, blocking};

/// The registry's pod and its storage.
pub const STEP: Step =
    Step { phase: PhaseWord::new(Phase::Services.name()), name: "registry", next: "it is tried again", log: PODS_LOG };

/// The registry of a release that has one.
pub struct Registry {
    front: Arc<Front>,
    storage: Arc<RegistryStorage>,
}

impl Registry {
    /// `None` if the release has no registry.
    pub fn of(front: &Arc<Front>) -> Option<Self> {
        Some(Self { storage: front.storage()?, front: Arc::clone(front) })
    }

    /// Lays out what the release carries, lets the kubelet start the pod, and waits until it answers.
    async fn bring_up(&self, on: Ground<'_>) {
        let act = || async {
            let (machine, carried, storage) = (on.machine.clone(), Arc::clone(&self.front), Arc::clone(&self.storage));
            let placed = blocking(move || {
                let secret: [u8; 32] = rand::random();
                storage.prepare(carried.catalog(), carried.store(), &hex::encode(secret))?;
                let Some(image) = machine.release().image(IMAGE) else { return Ok(Outcome::Current(())) };
                let changed = pod(&image.reference, storage.limit().is_some()).place(&machine)?;
                let (repositories, blobs) = (carried.catalog().repositories.len(), carried.catalog().sizes.len());
                let detail = json!({"repositories": repositories, "blobs": blobs, "writableBytes": storage.limit()});
                Ok(if changed { Outcome::Done((), detail) } else { Outcome::Current(()) })
            })
            .await?;
            on.steps.wait(&STEP, EVERY, || self.answers()).await;
            Ok(placed)
        };
        on.steps.perform(&STEP, act).await;
    }

    /// Whether it tells the tags of an image of the release: its pod has found its storage.
    async fn answers(&self) -> Result<(), Missing> {
        let Some(first) = self.front.catalog().repositories.keys().next() else { return Ok(()) };
        let path = format!("/v2/{first}/tags/list");
        asked(REGISTRY, &path, "an answer of the registry", &[200]).await
    }
}

impl Service for Registry {
    fn step(&self) -> &'static Step {
        &STEP
    }

    /// A definition that gives it space for uploads makes `ready` wait for it.
    fn turn(&self) -> Turn {
        if self.storage.limit().is_some() { Turn::Last } else { Turn::Behind }
    }

    fn start<'a>(&'a self, on: Ground<'a>, _api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, _api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(self.answers())
    }
}

/// The pod of `distribution`. It has no probe: the agent asks the registry by HTTP, which costs less than a program at each
/// probe.
fn pod(image: &str, writable: bool) -> StaticPod {
    let store = format!("{MEDIUM}/{MEDIUM_ROOT}/store");
    StaticPod {
        name: "registry",
        image: image.to_owned(),
        args: vec!["serve".to_owned(), CONFIG.to_owned()],
        env: vec![("OTEL_TRACES_EXPORTER", "none".to_owned()), ("GOMEMLIMIT", "96MiB".to_owned())],
        user: Some(USER),
        requests: ("10m", "32Mi"),
        mounts: vec![
            Mount::file("config", CONFIG, CONFIG),
            Mount::folder("socket", SOCKET_DIR),
            Mount::folder("root", ROOT).at("/var/lib/registry").read_only_if(!writable),
            Mount::folder("store", store).read_only(),
        ],
        ..StaticPod::default()
    }
}

#[cfg(test)]
mod tests {
    use super::pod;

    #[test]
    fn the_pod() {
        insta::assert_snapshot!(pod("foothold.dev/registry:3.1.2", true).manifest().expect("a manifest"));
        let mounts =
            |writable: bool| pod("a", writable).object().spec.expect("a spec").containers.remove(0).volume_mounts;
        let root = |writable: bool| mounts(writable).expect("mounts").remove(2);
        assert_eq!((root(true).read_only, root(false).read_only), (None, Some(true)));
        assert_eq!(root(false).mount_path, "/var/lib/registry");
    }
}
