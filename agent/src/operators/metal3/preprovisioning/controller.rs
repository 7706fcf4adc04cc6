//! Answers what is asked for, and has the hosts looked at that asked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_api::metal3::PreprovisioningImage;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::decide::answer;
use super::{FINALIZER, Settings};
use crate::operators::kit::{Key, Next, Object as _, ObjectError, Turn};
use crate::operators::metal3::common::Common;

/// Until a Secret is looked for again that is not there.
const MISSING: Duration = Duration::from_secs(10);
/// Until the version of a Secret that is there is compared again.
const SECRET: Duration = Duration::from_secs(60);

struct Controller {
    common: Common,
    settings: Settings,
    /// Versions of the images that hosts were woken for.
    told: Mutex<HashMap<Key, Option<String>>>,
}

/// Runs the controller of images, where there is something to do for it.
pub async fn run(common: Common, settings: Settings) {
    if !settings.used && !settings.answers() {
        std::future::pending::<()>().await;
    }
    let (store, touched) = common.base.touched::<PreprovisioningImage>();
    let controller = Controller { common: common.clone(), settings, told: Mutex::default() };
    common.run(controller, store, vec![touched]).await;
}

impl Turn for Controller {
    type Kind = PreprovisioningImage;

    async fn turn(&self, mut image: PreprovisioningImage) -> Result<Next, ObjectError> {
        let key = image.key();
        if image.leaves() {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            if self.settings.answers() && image.held_by(FINALIZER) {
                self.common.base.objects.let_go(&image, FINALIZER).await?;
            }
            return Ok(Next::await_change());
        }
        let mut next = Next::await_change();
        if self.settings.answers() {
            let mut version = None;
            if let Some(name) = &image.spec.network_data_name {
                version = self.common.base.objects.version::<Secret>(&key.0, name).await?;
                next = Next::requeue(if version.is_some() { SECRET } else { MISSING });
            }
            let status = answer(&image, &self.settings.ramdisk, version.as_deref(), Timestamp::now());
            if image.status.as_ref() != Some(&status) {
                image.status = Some(status);
                image = self.common.base.objects.write_status(&image).await?;
            }
        }
        if self.settings.used && image.status.is_some() {
            self.wake(&key, image.metadata.resource_version);
        }
        Ok(next)
    }
}

impl Controller {
    /// Has the host looked at, once for each version of its image.
    fn wake(&self, key: &Key, version: Option<String>) {
        let before = self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), version.clone());
        if before != Some(version) {
            self.common.wake(key);
        }
    }
}
