//! Queues and turns of claims.

use agent_api::metal3::host_claim::FINALIZER;
use agent_api::metal3::{HostClaim, HostDeployPolicy, NamespacedName};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::Resource as _;
use kube::runtime::reflector::{ObjectRef, Store};

use super::decide::is_free;
use super::tell::PolicyReason;
use super::{consumer, policy};
use crate::operators::kit::{Event, Next, Object as _, ObjectError, Queue, Turn};
use crate::operators::metal3::common::Common;

/// The controller.
pub(super) struct Controller {
    pub common: Common,
    pub policies: Store<HostDeployPolicy>,
}

/// Runs the controller of claims.
pub async fn run(common: Common) {
    let (store, changed) = common.base.changed::<HostClaim>();
    let (policies, of_policies) = of_policies(&common, store.clone());
    let (all, hosts) = (store.clone(), common.hosts.clone());
    let of_hosts = common.of_hosts(move |(namespace, name)| {
        let host = hosts.get(&ObjectRef::new(name).within(namespace));
        let user = host.as_ref().and_then(|host| consumer(host));
        if let Some((namespace, name)) = user {
            return vec![ObjectRef::new(name).within(namespace)];
        }
        // A host that came free is for those that have none; one that is gone was somebody's.
        let free = host.as_ref().is_some_and(|host| is_free(host));
        let gone = NamespacedName { namespace: namespace.clone(), name: name.clone() };
        let theirs = all.state_filter(|claim: &HostClaim| {
            let had = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref());
            had == Some(&gone) || free && had.is_none()
        });
        theirs.iter().map(|claim| ObjectRef::from_obj(&**claim)).collect()
    });
    let controller = Controller { common: common.clone(), policies };
    common.run(controller, store, vec![changed, of_hosts, of_policies]).await;
}

/// Claims without a host, when a policy changes. A wrong policy gets an event.
fn of_policies(common: &Common, claims: Store<HostClaim>) -> (Store<HostDeployPolicy>, Queue<HostClaim>) {
    let (policies, changed) = common.base.changed::<HostDeployPolicy>();
    let (recorder, known) = (common.base.recorder.clone(), policies.clone());
    let of = move |changed: ObjectRef<HostDeployPolicy>| {
        let (recorder, policy) = (recorder.clone(), known.get(&changed));
        let open = claims.state_filter(|claim: &HostClaim| {
            claim.status.as_ref().is_none_or(|status| status.bare_metal_host.is_none())
        });
        async move {
            if let Some(policy) = policy
                && let Some(why) = policy::problem(&policy)
            {
                let told = Event::new(PolicyReason::InvalidPolicy, format!("{why}; it admits nobody"));
                told.publish(&recorder, &policy.object_ref(&())).await;
            }
            let open: Vec<_> = open.iter().map(|claim| Ok(ObjectRef::from_obj(&**claim))).collect();
            Ok(stream::iter(open))
        }
    };
    (policies, changed.and_then(of).try_flatten().boxed())
}

impl Turn for Controller {
    type Kind = HostClaim;

    async fn turn(&self, claim: HostClaim) -> Result<Next, ObjectError> {
        if claim.leaves() {
            return self.leave(&claim).await;
        }
        if !claim.held_by(FINALIZER) {
            self.common.base.objects.hold(&claim, FINALIZER).await?;
            return Ok(Next::await_change());
        }
        match self.host(&claim).await? {
            Some(host) => self.keep(&claim, &host).await,
            None => self.find(&claim).await,
        }
    }
}
