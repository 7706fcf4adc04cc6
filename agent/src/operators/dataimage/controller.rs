//! Does what was decided for an image.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_api::metal3::data_image::FINALIZER;
use agent_api::metal3::{AttachedImage, BareMetalHost, DataImage, DataImageError, DataImageStatus, Time};
use jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::controller::Action as Next;
use kube::runtime::reflector::ObjectRef;
use serde_json::json;

use super::{Asked, Before, Drive, Step, before, decide, installed};
use crate::ironic::{IronicError, Node};
use crate::operators::baremetalhost::objects::ObjectError;
use crate::operators::turns::{Common, Failures, Key, Object as _, Turn};

/// Ironic's word for the drive.
const DEVICE: &str = "cdrom";
/// Until Ironic is asked again that was away.
const IRONIC: Duration = Duration::from_secs(30);
/// Until a host's drive is looked at again that Ironic needs for itself.
const BUSY: Duration = Duration::from_secs(30);

struct Controller {
    common: Common,
    failures: Failures,
    asked: Mutex<HashMap<Key, Asked>>,
}

/// Runs the controller of images.
pub async fn run(common: Common) {
    let (store, changed) = common.changed::<DataImage>();
    let all = store.clone();
    let of_hosts = common.of_hosts(move |(namespace, name)| {
        let image = ObjectRef::<DataImage>::new(name).within(namespace);
        all.get(&image).map(|_| image).into_iter().collect()
    });
    let controller = Controller { common: common.clone(), failures: Failures::default(), asked: Mutex::default() };
    common.run(controller, store, vec![changed, of_hosts]).await;
}

impl Turn for Controller {
    type Kind = DataImage;

    async fn turn(&self, image: DataImage) -> Result<Next, ObjectError> {
        let key = image.key();
        let host = self.common.objects.host(&key.0, &key.1).await?;
        let asked = self.asked(&key).is_some();
        match (before(&image, host.as_ref(), asked), host) {
            (Before::Look, Some(host)) => self.look(&image, &host).await,
            (Before::Hold, Some(host)) => {
                self.hold(&image, &host).await?;
                Ok(Next::await_change())
            }
            (Before::LetGo, _) => {
                self.let_go(&image).await?;
                Ok(Next::await_change())
            }
            (Before::Unable, _) => {
                let why = "the host's BMC has no virtual drive; hint: it needs Redfish";
                let told = image.status.as_ref().and_then(|status| status.error.as_ref());
                if told.is_none_or(|error| error.message != why) {
                    let error = DataImageError { count: 1, message: why.to_owned() };
                    self.write(&image, super::attached(&image), Some(error)).await?;
                }
                Ok(Next::await_change())
            }
            (Before::Rest | Before::Look | Before::Hold, _) => Ok(Next::await_change()),
        }
    }
}

impl Controller {
    fn asked(&self, key: &Key) -> Option<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn ask(&self, key: &Key, asked: Option<Asked>) {
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match asked {
            Some(asked) => all.insert(key.clone(), asked),
            None => all.remove(key),
        };
    }

    /// The image goes with its host, and not before it is out of the drive.
    async fn hold(&self, image: &DataImage, host: &BareMetalHost) -> Result<(), ObjectError> {
        let mut owners = image.metadata.owner_references.clone().unwrap_or_default();
        if !owners.iter().any(|owner| Some(&owner.uid) == host.metadata.uid.as_ref()) {
            owners.extend(host.owner_ref(&()));
        }
        let mut finalizers = image.metadata.finalizers.clone().unwrap_or_default();
        if !image.held_by(FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let metadata = json!({"ownerReferences": owners, "finalizers": finalizers});
        self.common.objects.merge(image, json!({"metadata": metadata})).await.map(drop)
    }

    async fn let_go(&self, image: &DataImage) -> Result<(), ObjectError> {
        let key = image.key();
        self.ask(&key, None);
        self.failures.none(&key);
        self.common.set_finalizer(image, FINALIZER, false).await?;
        // The host may wait for its drive.
        self.common.wake(&key);
        Ok(())
    }

    async fn look(&self, image: &DataImage, host: &BareMetalHost) -> Result<Next, ObjectError> {
        // A host is looked at every few seconds, and each change of it leads here.
        if let Some(left) = self.failures.left(image) {
            return Ok(Next::requeue(left));
        }
        let node = match self.common.node(host).await {
            Ok(node) => node,
            Err(error) => return self.failed(image, &error).await,
        };
        let Some(node) = node else {
            // A host that Ironic will know again may still have the image in its drive.
            if image.leaves() && host.leaves() {
                self.let_go(image).await?;
            }
            return Ok(Next::await_change());
        };
        if node.reservation.is_some() {
            return Ok(Next::requeue(self.common.pace.short));
        }
        if node.provision_state.is_busy() {
            return Ok(Next::requeue(BUSY));
        }
        let full = match self.common.ironic.media_inserted(&node.uuid).await {
            Ok(full) => full,
            Err(error) => return self.failed(image, &error).await,
        };
        let drive = Drive { full, off: node.powered_on() == Some(false), installed: installed(host) };
        self.act(image, &node, drive).await
    }

    async fn act(&self, image: &DataImage, node: &Node, drive: Drive) -> Result<Next, ObjectError> {
        let key = image.key();
        let ironic = &self.common.ironic;
        let (done, asked) = match decide(image, drive, self.asked(&key).as_ref()) {
            Step::Rest => {
                if image.status.as_ref().is_some_and(|status| status.error.is_some()) {
                    self.write(image, super::attached(image), None).await?;
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

    async fn failed(&self, image: &DataImage, error: &IronicError) -> Result<Next, ObjectError> {
        match error {
            IronicError::Busy(_) => Ok(Next::requeue(self.common.pace.short)),
            IronicError::Client(_) | IronicError::Away { .. } | IronicError::Versions { .. } => {
                Ok(Next::requeue(IRONIC))
            }
            // The BMC's own errors come as errors of the server.
            IronicError::Taken(_)
            | IronicError::NotFound(_)
            | IronicError::Refused { .. }
            | IronicError::Form { .. } => self.told(image, &error.to_string()).await,
        }
    }

    /// The status says what went wrong, and how often in a row.
    async fn told(&self, image: &DataImage, why: &str) -> Result<Next, ObjectError> {
        let before = image.status.as_ref().and_then(|status| status.error.as_ref()).map_or(0, |error| error.count);
        let error = DataImageError { count: before + 1, message: why.to_owned() };
        self.write(image, super::attached(image), Some(error)).await?;
        Ok(Next::requeue(self.failures.one_more(image)))
    }

    /// The status, when it is another one. `attached`: what is in the drive.
    async fn write(
        &self,
        image: &DataImage,
        attached: Option<&str>,
        error: Option<DataImageError>,
    ) -> Result<(), ObjectError> {
        let moved = super::attached(image) != attached;
        if !moved && image.status.as_ref().and_then(|status| status.error.as_ref()) == error.as_ref() {
            return Ok(());
        }
        let mut with = image.clone();
        with.status = Some(DataImageStatus {
            last_reconciled: Some(Time(Timestamp::now())),
            attached_image: attached.map(|url| AttachedImage { url: url.to_owned() }),
            error,
        });
        self.common.objects.write_status(&with).await?;
        if moved {
            self.common.wake(&image.key());
        }
        Ok(())
    }
}
