//! Volumes of the box's cluster: a default `StorageClass`, whose volumes lie on DATA. Behind `ready`; the file system of an
//! earlier boot is there before any pod is.

use agent_api::events::{Phase, PhaseWord};
use futures_util::future::BoxFuture;
use serde_json::json;

use super::volumes::Volumes;
use super::{EVERY, Ground, PODS_LOG, Service, Turn, deployed};
use crate::cluster::api::Api;
use crate::cluster::local_path::{self, DEPLOYMENT, STORAGE_CLASS};
use crate::machine::Machine;
use crate::steps::{Missing, Outcome, Step, blocking, chain};

/// A claim of the default `StorageClass` gets a volume.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "storage",
    next: "it is tried again; `e2fsck -f /var/lib/foothold/volumes.img` repairs a file system that cannot be mounted",
    log: PODS_LOG,
};

/// Its image, which the release has if the definition declares `services.storage`.
pub const IMAGE: &str = "foothold.dev/local-path-provisioner:";
/// What it is for a user.
const TITLE: &str = "the default StorageClass";

/// Volumes.
#[derive(Debug)]
pub struct Storage {
    image: String,
    volumes: Volumes,
}

impl Storage {
    /// `None` if the release does not declare it.
    pub fn of(machine: &Machine) -> Option<Self> {
        let volumes = Volumes::of(machine)?;
        Some(Self { image: machine.release().image(IMAGE)?.reference.clone(), volumes })
    }

    /// Mounts the volumes of an earlier boot before the pods that use them start. A failure is told when the service is
    /// started.
    async fn mount_known(&self) {
        let volumes = self.volumes.clone();
        if let Err(error) = blocking(move || volumes.mount_known()).await {
            log::error!("the volumes of earlier boots: {error:#}");
        }
    }

    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let act = || async {
            let volumes = self.volumes.clone();
            let bytes = blocking(move || volumes.bring_up()).await?;
            let made = deployed::apply(api, &local_path::objects(&self.image)?).await?;
            on.steps.wait(&STEP, EVERY, || self.is_there(api)).await;
            let changed = bytes.is_some() || made > 0;
            Ok(if changed { Outcome::Done((), json!({"bytes": bytes, "objects": made})) } else { Outcome::Current(()) })
        };
        on.steps.perform(&STEP, act).await;
    }

    async fn is_there(&self, api: &Api) -> Result<(), Missing> {
        self.volumes.mounted()?;
        let class = api.get(STORAGE_CLASS).await.map_err(|error| Missing::new("the API server", chain(&error)))?;
        class.ok_or_else(|| Missing::new(TITLE, "StorageClass `local-path` is not there"))?;
        deployed::ask(api, DEPLOYMENT, TITLE).await
    }
}

impl Service for Storage {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn turn(&self) -> Turn {
        Turn::Behind
    }

    fn prepare<'a>(&'a self, _machine: &'a Machine) -> BoxFuture<'a, ()> {
        Box::pin(self.mount_known())
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on, api))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(self.is_there(api))
    }
}
