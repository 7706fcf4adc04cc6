//! Does what was decided for an image.

use std::sync::PoisonError;
use std::time::Duration;

use agent_api::metal3::data_image::FINALIZER;
use agent_api::metal3::{BareMetalHost, DataImage};
use kube::Resource as _;
use serde_json::json;

use super::controller::Controller;
use super::decide::{Asked, Step, decide};
use super::look::{Drive, attached};
use crate::ironic::Node;
use crate::operators::kit::{Key, Next, Object as _, ObjectError};

/// Ironic's word for the drive.
const DEVICE: &str = "cdrom";

impl Controller {
    pub(super) fn asked(&self, key: &Key) -> Option<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(super) fn ask(&self, key: &Key, asked: Option<Asked>) {
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match asked {
            Some(asked) => all.insert(key.clone(), asked),
            None => all.remove(key),
        };
    }

    /// The image goes with its host, and not before it is out of the drive.
    pub(super) async fn hold(&self, image: &DataImage, host: &BareMetalHost) -> Result<(), ObjectError> {
        let mut owners = image.metadata.owner_references.clone().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == host.metadata.uid.as_ref()) {
            owners.extend(host.owner_ref(&()));
        }
        let mut finalizers = image.metadata.finalizers.clone().unwrap_or_default();
        if !image.held_by(FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let metadata = json!({"ownerReferences": owners, "finalizers": finalizers});
        self.common.base.objects.merge(image, json!({"metadata": metadata})).await.map(drop)
    }

    pub(super) async fn let_go(&self, image: &DataImage) -> Result<(), ObjectError> {
        let key = image.key();
        self.ask(&key, None);
        self.failures.none(&key);
        self.common.base.objects.let_go(image, FINALIZER).await?;
        // The host may wait for its drive.
        self.common.wake(&key);
        Ok(())
    }

    pub(super) async fn act(&self, image: &DataImage, node: &Node, drive: Drive) -> Result<Next, ObjectError> {
        let key = image.key();
        let ironic = &self.common.ironic;
        let (done, asked) = match decide(image, drive, self.asked(&key).as_ref()) {
            Step::Rest => {
                if image.status.as_ref().is_some_and(|status| status.error.is_some()) {
                    self.write(image, attached(image), None).await?;
                }
                self.failures.none(&key);
                return Ok(Next::await_change());
            }
            Step::LetGo => {
                self.let_go(image).await?;
                return Ok(Next::await_change());
            }
            Step::Note(url) => {
                self.ask(&key, None);
                self.failures.none(&key);
                self.write(image, url.as_deref(), None).await?;
                // What follows from it, such as the next image, or the end.
                return Ok(Next::requeue(Duration::ZERO));
            }
            Step::Failed => {
                self.ask(&key, None);
                let why = node.error().unwrap_or("the drive is not as Ironic was asked for, and it does not say why");
                return self.told(image, why).await;
            }
            Step::Attach(url) => (ironic.attach_media(&node.uuid, DEVICE, &url).await, Asked::Attach(url)),
            Step::Detach => (ironic.detach_media(&node.uuid, DEVICE).await, Asked::Detach),
        };
        match done {
            Ok(()) => {
                self.ask(&key, Some(asked));
                Ok(Next::requeue(self.common.pace.short))
            }
            Err(error) => self.failed(image, &error).await,
        }
    }
}
