//! The status of a subscription.

use agent_api::metal3::BmcEventSubscription;
use serde_json::json;

use super::controller::Controller;
use crate::operators::kit::ObjectError;

impl Controller {
    /// The status says why, once.
    pub(super) async fn tell(&self, subscription: &BmcEventSubscription, why: &str) -> Result<(), ObjectError> {
        let told = subscription.status.as_ref().and_then(|status| status.error.as_deref());
        if told != Some(why) {
            self.common.base.objects.merge_status(subscription, json!({"error": why})).await?;
        }
        Ok(())
    }
}
