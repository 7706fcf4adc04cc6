//! What follows when Ironic does not do it.

use std::time::Duration;

use agent_api::metal3::DataImage;

use super::controller::Controller;
use crate::ironic::IronicError;
use crate::operators::kit::{Next, ObjectError};

/// Until Ironic is asked again that was away.
const IRONIC: Duration = Duration::from_secs(30);

impl Controller {
    /// Ironic is asked again, or the user is told.
    pub(super) async fn failed(&self, image: &DataImage, error: &IronicError) -> Result<Next, ObjectError> {
        match error {
            IronicError::Busy(_) => Ok(Next::requeue(self.common.pace.short)),
            error if error.is_passing() => Ok(Next::requeue(IRONIC)),
            // The BMC's own errors come as errors of the server.
            error => self.told(image, &error.to_string()).await,
        }
    }
}
