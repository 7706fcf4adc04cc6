//! The status of software, its condition and events.

use agent_api::clusters::provisioning::READY;
use agent_api::clusters::software::{Software, SoftwareOfNode, SoftwareStatus};
use agent_api::meta::Time;
use jiff::Timestamp;
use kube::Resource as _;

use super::controller::Controller;
use crate::operators::kit::conditions::merge;
use crate::operators::kit::{Event, NewCondition, ObjectError, Reason};

/// Kind of condition, and its reason while it holds: the packages have the versions that they shall have.
const UP_TO_DATE: &str = "UpToDate";

/// The state of the software: the reason of its condition and of its event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum What {
    /// The spec is wrong.
    #[default]
    Invalid,
    /// The cluster is not there yet.
    Waiting,
    /// A node lacks packages; it is tried again.
    Failing,
    /// Nodes go to other versions.
    Updating,
    /// Every node has its packages.
    Installed,
}

impl Reason for What {
    fn word(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidSpec",
            Self::Waiting => "WaitingForCluster",
            Self::Failing => "InstallationFailed",
            Self::Updating => "UpdatingNodes",
            Self::Installed => "SoftwareInstalled",
        }
    }

    fn is_warning(self) -> bool {
        match self {
            Self::Invalid | Self::Failing => true,
            Self::Waiting | Self::Updating | Self::Installed => false,
        }
    }
}

/// What is told of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub what: What,
    pub why: String,
    /// What each node has; `None`: as before.
    pub nodes: Option<Vec<SoftwareOfNode>>,
    /// Why nodes have other versions than they shall have: a word, and a text.
    pub lag: Option<(&'static str, String)>,
    /// The request that is done.
    pub handled: Option<String>,
}

impl Told {
    pub fn of(what: What, why: String) -> Self {
        Self { what, why, ..Self::default() }
    }
}

impl Controller {
    /// Writes the status if more than its date has changed, and an event if the reason or the nodes have changed. The object
    /// has it, too, then.
    pub(super) async fn tell(&self, object: &mut Software, told: Told) -> Result<(), ObjectError> {
        let Told { what, why, nodes, lag, handled } = told;
        let (before, now) = (object.status.clone().unwrap_or_default(), Timestamp::now());
        let generation = object.metadata.generation;
        let condition = |kind, holds, reason, message| NewCondition { kind, holds, reason, message, generation };
        // While a few nodes are updated, all have the packages.
        let holds = matches!(what, What::Installed | What::Updating);
        let mut conditions = vec![condition(READY, holds, what.word(), why.clone())];
        conditions.extend(match (what, lag) {
            (What::Installed, None) => Some(condition(UP_TO_DATE, true, UP_TO_DATE, String::new())),
            (What::Updating, None) => Some(condition(UP_TO_DATE, false, what.word(), why.clone())),
            (_, Some((word, text))) => Some(condition(UP_TO_DATE, false, word, text)),
            (_, None) => None,
        });
        let status = SoftwareStatus {
            conditions: Some(merge(before.conditions.as_ref(), conditions, now)),
            observed_generation: generation,
            last_handled_update: handled.or_else(|| before.last_handled_update.clone()),
            last_checked: before.last_checked,
            nodes: nodes.unwrap_or_else(|| before.nodes.clone()),
        };
        if status == before {
            return Ok(());
        }
        let status = SoftwareStatus { last_checked: Some(Time(now)), ..status };
        self.common.base.objects.change_status(object, &before, &status).await?;
        object.status = Some(status);
        self.common.base.tell(&object.object_ref(&()), &Event::new(what, why)).await;
        Ok(())
    }
}
