//! The status of an image.

use agent_api::metal3::{AttachedImage, DataImage, DataImageError, DataImageStatus, Time};
use jiff::Timestamp;

use super::controller::Controller;
use super::look::attached;
use crate::operators::kit::{Next, Object as _, ObjectError};

impl Controller {
    /// The status says what went wrong, and how often in a row.
    pub(super) async fn told(&self, image: &DataImage, why: &str) -> Result<Next, ObjectError> {
        let before = image.status.as_ref().and_then(|status| status.error.as_ref()).map_or(0, |error| error.count);
        let error = DataImageError { count: before + 1, message: why.to_owned() };
        self.write(image, attached(image), Some(error)).await?;
        Ok(Next::requeue(self.failures.one_more(image)))
    }

    /// The status, when it is another one. `now_attached`: what is in the drive.
    pub(super) async fn write(
        &self,
        image: &DataImage,
        now_attached: Option<&str>,
        error: Option<DataImageError>,
    ) -> Result<(), ObjectError> {
        let moved = attached(image) != now_attached;
        if !moved && image.status.as_ref().and_then(|status| status.error.as_ref()) == error.as_ref() {
            return Ok(());
        }
        let mut with = image.clone();
        with.status = Some(DataImageStatus {
            last_reconciled: Some(Time(Timestamp::now())),
            attached_image: now_attached.map(|url| AttachedImage { url: url.to_owned() }),
            error,
        });
        self.common.base.objects.write_status(&with).await?;
        if moved {
            self.common.wake(&image.key());
        }
        Ok(())
    }
}
