//! Queues and turns of images.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use agent_api::metal3::{DataImage, DataImageError};
use kube::runtime::reflector::ObjectRef;

use super::decide::{Asked, Before, before};
use super::look::attached;
use crate::operators::kit::{Failures, Key, Next, Object as _, ObjectError, Turn};
use crate::operators::metal3::common::Common;

/// Until a host's drive is looked at again that Ironic needs for itself.
pub(super) const BUSY: Duration = Duration::from_secs(30);

/// The controller.
pub(super) struct Controller {
    pub common: Common,
    pub failures: Failures,
    pub asked: Mutex<HashMap<Key, Asked>>,
}

/// Runs the controller of images.
pub async fn run(common: Common) {
    let (store, changed) = common.base.changed::<DataImage>();
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
        let host = self.common.host(&key.0, &key.1).await?;
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
                    self.write(&image, attached(&image), Some(error)).await?;
                }
                Ok(Next::await_change())
            }
            (Before::Rest | Before::Look | Before::Hold, _) => Ok(Next::await_change()),
        }
    }
}
