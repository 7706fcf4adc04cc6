//! The registry: its storage in memory and DATA, and its pod. It starts when the cluster is up and the processors are
//! free: before `ready` where uploads are declared, else behind it.

use std::sync::Arc;

use serde_json::json;

use super::{Machine, phase, ready};
use crate::cluster::{files, manifests};
use crate::registry::{Front, pod};
use crate::steps::{Outcome, Steps, blocking};

/// Whether the definition gives the registry space for uploads: then a box is not ready without it. Images of the
/// release are served by the agent.
pub fn is_declared(front: &Front) -> bool {
    front.storage().is_some_and(|storage| storage.limit().is_some())
}

/// Lays out what the release carries, lets the kubelet start the pod, and waits until it answers. A release without a
/// registry has no such step.
pub async fn start(machine: &Machine, steps: &Steps, front: &Arc<Front>) {
    let Some(storage) = front.storage() else { return };
    let act = || async {
        let (machine, carried, storage) = (machine.clone(), Arc::clone(front), Arc::clone(&storage));
        let placed = blocking(move || {
            let secret: [u8; 32] = rand::random();
            storage.prepare(carried.catalog(), carried.store(), &hex::encode(secret))?;
            let Some(image) = machine.release().image(pod::IMAGE) else { return Ok(Outcome::Current(())) };
            let text = pod::manifest(&image.reference, storage.limit().is_some());
            let path = machine.at(manifests::DIR).join(pod::MANIFEST);
            let changed = files::write(&path, text.as_bytes(), files::SECRET)?;
            let (repositories, blobs) = (carried.catalog().repositories.len(), carried.catalog().sizes.len());
            let detail = json!({"repositories": repositories, "blobs": blobs, "writableBytes": storage.limit()});
            Ok(if changed { Outcome::Done((), detail) } else { Outcome::Current(()) })
        })
        .await?;
        steps.wait(&phase::REGISTRY, ready::EVERY, || ready::ask_registry(front)).await;
        Ok(placed)
    };
    steps.perform(&phase::REGISTRY, act).await;
}
