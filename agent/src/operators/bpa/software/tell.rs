//! The status of software, its condition and events.

use agent_api::clusters::provisioning::READY;
use agent_api::clusters::software::{Software, SoftwareOfNode, SoftwareStatus};
use agent_api::meta::Time;
use jiff::Timestamp;
use kube::Resource as _;

use super::controller::Controller;
use crate::operators::kit::conditions::merge;
use crate::operators::kit::{Event, NewCondition, ObjectError, Reason};

/// The state of the software: the reason of its condition and of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The spec is wrong.
    Invalid,
    /// The cluster is not there yet.
    Waiting,
    /// A node lacks packages; it is tried again.
    Failing,
    /// Every node has its packages.
    Installed,
}

impl Reason for What {
    fn word(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidSpec",
            Self::Waiting => "WaitingForCluster",
            Self::Failing => "InstallationFailed",
            Self::Installed => "SoftwareInstalled",
        }
    }

    fn is_warning(self) -> bool {
        match self {
            Self::Invalid | Self::Failing => true,
            Self::Waiting | Self::Installed => false,
        }
    }
}

impl Controller {
    /// Writes the status if more than its date has changed, and an event if the reason or the nodes have changed.
    pub(super) async fn tell(
        &self,
        object: &Software,
        what: What,
        why: String,
        nodes: Option<Vec<SoftwareOfNode>>,
    ) -> Result<(), ObjectError> {
        let (before, now) = (object.status.clone().unwrap_or_default(), Timestamp::now());
        let generation = object.metadata.generation;
        let holds = what == What::Installed;
        let condition = NewCondition { kind: READY, holds, reason: what.word(), message: why.clone(), generation };
        let status = SoftwareStatus {
            conditions: Some(merge(before.conditions.as_ref(), [condition], now)),
            observed_generation: generation,
            last_checked: before.last_checked,
            nodes: nodes.unwrap_or_else(|| before.nodes.clone()),
        };
        if status == before {
            return Ok(());
        }
        let status = SoftwareStatus { last_checked: Some(Time(now)), ..status };
        self.common.base.objects.change_status(object, &before, &status).await?;
        self.common.base.tell(&object.object_ref(&()), &Event::new(what, why)).await;
        Ok(())
    }
}
