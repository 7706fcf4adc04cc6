//! The status of a claim, and events of policies.

use agent_api::metal3::host_claim::{ASSOCIATED, SYNCHRONIZED};
use agent_api::metal3::{BareMetalHost, HostClaim, HostClaimStatus, NamespacedName, Time};
use jiff::Timestamp;

use super::controller::Controller;
use crate::operators::kit::conditions::merge;
use crate::operators::kit::{NewCondition, Object as _, ObjectError, Reason};

/// Reason of an event of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyReason {
    /// Its regular expression is wrong.
    InvalidPolicy,
}

impl Reason for PolicyReason {
    fn word(self) -> &'static str {
        match self {
            Self::InvalidPolicy => "InvalidPolicy",
        }
    }

    fn is_warning(self) -> bool {
        match self {
            Self::InvalidPolicy => true,
        }
    }
}

/// What is known of a claim, in the words of its conditions.
pub(super) enum Told {
    Associated(bool, &'static str, String),
    Synchronized(bool, &'static str, String),
}

impl Controller {
    /// Writes the status, when it is another one.
    pub(super) async fn tell(
        &self,
        claim: &HostClaim,
        host: Option<&BareMetalHost>,
        told: Vec<Told>,
    ) -> Result<(), ObjectError> {
        let before = claim.status.clone().unwrap_or_default();
        let status = status(claim, host, told, Timestamp::now());
        if status == before {
            return Ok(());
        }
        self.common.base.objects.change_status(claim, &before, &status).await.map(drop)
    }
}

/// The status of a claim: with a new date when it is another one.
fn status(claim: &HostClaim, host: Option<&BareMetalHost>, told: Vec<Told>, now: Timestamp) -> HostClaimStatus {
    let before = claim.status.clone().unwrap_or_default();
    let told = told.into_iter().map(|told| {
        let (kind, holds, reason, message) = match told {
            Told::Associated(holds, reason, message) => (ASSOCIATED, holds, reason, message),
            Told::Synchronized(holds, reason, message) => (SYNCHRONIZED, holds, reason, message),
        };
        NewCondition { kind, holds, reason, message, generation: claim.metadata.generation }
    });
    let conditions = merge(before.conditions.as_ref(), told, now);
    let name = host.map(|host| NamespacedName { namespace: host.key().0, name: host.key().1 });
    let inspected = host.and_then(|host| host.status.as_ref()).filter(|status| status.hardware.is_some());
    let mut status = HostClaimStatus {
        last_updated: before.last_updated,
        conditions: Some(conditions),
        hardware_data: inspected.and(name.clone()),
        bare_metal_host: name,
        powered_on: host.and_then(|host| host.status.as_ref()).map(|status| status.powered_on),
    };
    if status != before {
        status.last_updated = Some(Time(now));
    }
    status
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{ConditionStatus, HostClaim, HostClaimSpec};
    use jiff::Timestamp;

    use super::{Told, status};

    #[test]
    fn a_status_changes_when_what_it_says_does() {
        let mut claim = HostClaim::new("c", HostClaimSpec::default());
        let told = || vec![Told::Associated(false, "NoBareMetalHost", "none".to_owned())];
        let first = status(&claim, None, told(), Timestamp::UNIX_EPOCH);
        assert_eq!(first.last_updated.expect("a date").0, Timestamp::UNIX_EPOCH);
        claim.status = Some(first.clone());
        assert_eq!(status(&claim, None, told(), Timestamp::now()), first);
        let found = vec![Told::Associated(true, "BareMetalHostAssociated", String::new())];
        let then = status(&claim, None, found, Timestamp::now());
        assert_ne!(then.last_updated, first.last_updated);
        let conditions = then.conditions.expect("conditions");
        assert_eq!((conditions.len(), conditions[0].status), (1, ConditionStatus::True));
    }
}
