//! Queues and turns of subscriptions.

use std::time::Duration;

use agent_api::metal3::BmcEventSubscription;
use agent_api::metal3::bmc_event_subscription::FINALIZER;
use kube::runtime::reflector::ObjectRef;

use super::decide::{Step, decide};
use crate::operators::kit::{Failures, Key, Next, Object as _, ObjectError, Turn};
use crate::operators::metal3::common::Common;

/// Until Ironic is asked again that was away, or did not know the host.
const IRONIC: Duration = Duration::from_secs(30);

/// The controller.
pub(super) struct Controller {
    pub common: Common,
    pub failures: Failures,
}

/// Runs the controller of subscriptions.
pub async fn run(common: Common) {
    let (store, changed) = common.base.changed::<BmcEventSubscription>();
    let all = store.clone();
    let of_hosts = common.of_hosts(move |(namespace, name)| {
        let theirs = all.state_filter(|one: &BmcEventSubscription| {
            one.metadata.namespace.as_ref() == Some(namespace) && one.spec.host_name.as_ref() == Some(name)
        });
        // One that is there needs nothing of its host until it is to go.
        let open = theirs
            .iter()
            .filter(|one| one.leaves() || one.status.as_ref().is_none_or(|status| status.subscription_id.is_none()));
        open.map(|one| ObjectRef::from_obj(&**one)).collect()
    });
    let controller = Controller { common: common.clone(), failures: Failures::default() };
    common.run(controller, store, vec![changed, of_hosts]).await;
}

impl Turn for Controller {
    type Kind = BmcEventSubscription;

    async fn turn(&self, subscription: BmcEventSubscription) -> Result<Next, ObjectError> {
        let key = subscription.key();
        let host = match self.look(&subscription).await? {
            Ok(host) => host,
            Err(error) => {
                log::debug!("BMCEventSubscription `{}/{}`: {error}", key.0, key.1);
                return Ok(Next::requeue(IRONIC));
            }
        };
        match decide(&subscription, &host) {
            Step::Rest => Ok(self.rests(&key)),
            Step::Wait => Ok(Next::requeue(IRONIC)),
            // The change of it is the next turn.
            Step::Hold => {
                self.common.base.objects.hold(&subscription, FINALIZER).await?;
                Ok(Next::await_change())
            }
            Step::LetGo => {
                self.common.base.objects.let_go(&subscription, FINALIZER).await?;
                Ok(self.rests(&key))
            }
            Step::Tell(why) => {
                self.tell(&subscription, &why).await?;
                Ok(self.rests(&key))
            }
            Step::Create(_) | Step::Remove { .. } if let Some(left) = self.failures.left(&subscription) => {
                Ok(Next::requeue(left))
            }
            Step::Create(node) => self.create(&subscription, &node).await,
            Step::Remove { node, id } => self.remove(&subscription, &node, &id).await,
        }
    }
}

impl Controller {
    /// It waits for others.
    pub(super) fn rests(&self, key: &Key) -> Next {
        self.failures.none(key);
        Next::await_change()
    }
}
