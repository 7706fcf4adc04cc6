//! What follows when a subscription cannot be made or removed.

use agent_api::metal3::BmcEventSubscription;

use super::controller::Controller;
use crate::ironic::IronicError;
use crate::operators::kit::{Next, ObjectError};

impl Controller {
    /// Ironic did not do it.
    pub(super) async fn failed(
        &self,
        subscription: &BmcEventSubscription,
        what: &str,
        error: &IronicError,
    ) -> Result<Next, ObjectError> {
        if matches!(error, IronicError::Busy(_)) {
            return Ok(Next::requeue(self.common.pace.short));
        }
        self.refused(subscription, &format!("failed to {what} a subscription: {error}")).await
    }

    /// It is tried again, ever less often.
    pub(super) async fn refused(&self, subscription: &BmcEventSubscription, why: &str) -> Result<Next, ObjectError> {
        self.tell(subscription, why).await?;
        Ok(Next::requeue(self.failures.one_more(subscription)))
    }
}

/// Ironic answers 404 whatever went wrong with the BMC: only the BMC's own 404 says that the subscription is gone
/// (sushy's `ResourceNotFoundError`).
pub(super) fn is_gone(error: &IronicError) -> bool {
    match error {
        IronicError::NotFound(message) => message.contains("code 404") || message.contains("ResourceNotFound"),
        IronicError::Client(_)
        | IronicError::Away { .. }
        | IronicError::Versions { .. }
        | IronicError::Busy(_)
        | IronicError::Taken(_)
        | IronicError::Refused { .. }
        | IronicError::Form { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_gone;
    use crate::ironic::IronicError;

    #[test]
    fn only_the_bmcs_own_404_means_that_a_subscription_is_gone() {
        let answer = |error: &str| IronicError::NotFound(format!("Redfish delete_subscription failed. Error: {error}"));
        assert!(is_gone(&answer("HTTP GET https://bmc/redfish/v1/EventService/Subscriptions/7 returned code 404.")));
        assert!(!is_gone(&answer("Unable to connect to https://bmc/redfish/v1/.")));
        assert!(!is_gone(&IronicError::Busy("returned code 404".to_owned())));
    }
}
