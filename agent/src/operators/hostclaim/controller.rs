//! Does what a claim needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::annotations::REBOOT;
use agent_api::metal3::host_claim::{ASSOCIATED, FINALIZER, SYNCHRONIZED};
use agent_api::metal3::{
    BareMetalHost, Condition, ConditionStatus, HostClaim, HostClaimStatus, HostDeployPolicy, NamespacedName,
    ProvisioningState, Time,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::controller::Action as Next;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::choose::{choose, is_free};
use super::{consumer, is_of, policy, reference, secrets, wishes};
use crate::operators::baremetalhost::objects::{ObjectError, doing};
use crate::operators::baremetalhost::story::Told as Event;
use crate::operators::turns::{Common, Object as _, Queue, Turn};

/// Until a claim without a host looks for one again: labels of namespaces are not watched.
const SEARCH: Duration = Duration::from_secs(30);
/// Until the Secrets of a host that is not provisioned yet are compared again: they are not watched.
const SECRETS: Duration = Duration::from_secs(30);
/// After somebody else took the host.
const AGAIN: Duration = Duration::from_millis(200);

struct Controller {
    common: Common,
    policies: Store<HostDeployPolicy>,
}

/// What is known of a claim, in the words of its conditions.
enum Told {
    Associated(bool, &'static str, String),
    Synchronized(bool, &'static str, String),
}

/// Runs the controller of claims.
pub async fn run(common: Common) {
    let (store, changed) = common.changed::<HostClaim>();
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

/// Claims without a host, when a policy changes. What is wrong with the policy is told as its event.
fn of_policies(common: &Common, claims: Store<HostClaim>) -> (Store<HostDeployPolicy>, Queue<HostClaim>) {
    let (policies, changed) = common.changed::<HostDeployPolicy>();
    let (recorder, known) = (common.recorder.clone(), policies.clone());
    let of = move |changed: ObjectRef<HostDeployPolicy>| {
        let (recorder, policy) = (recorder.clone(), known.get(&changed));
        let open = claims.state_filter(|claim: &HostClaim| {
            claim.status.as_ref().is_none_or(|status| status.bare_metal_host.is_none())
        });
        async move {
            if let Some(policy) = policy
                && let Some(why) = policy::problem(&policy)
            {
                let told = Event::warning("InvalidPolicy", format!("{why}; it admits nobody"));
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
            self.common.set_finalizer(&claim, FINALIZER, true).await?;
            return Ok(Next::await_change());
        }
        match self.host(&claim).await? {
            Some(host) => self.keep(&claim, &host).await,
            None => self.find(&claim).await,
        }
    }
}

impl Controller {
    /// The host that the status names, when it names the claim too.
    async fn host(&self, claim: &HostClaim) -> Result<Option<BareMetalHost>, ObjectError> {
        let Some(at) = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref()) else {
            return Ok(None);
        };
        let host = self.common.objects.host(&at.namespace, &at.name).await?;
        Ok(host.filter(|host| is_of(host, claim)))
    }

    /// Namespaces whose hosts the claim may have.
    async fn namespaces(&self, claim: &HostClaim) -> Result<BTreeSet<String>, ObjectError> {
        let (own, _) = claim.key();
        let policies = self.policies.state();
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        if policies.iter().any(|policy| policy::asks_for_labels(policy)) {
            let api = Api::<Namespace>::all(self.common.client.clone());
            let found = api.get_opt(&own).await.map_err(doing(format!("reading Namespace `{own}`")))?;
            labels = found.map(|namespace| namespace.labels().clone()).unwrap_or_default();
        }
        let mut all = BTreeSet::from([own.clone()]);
        for policy in &policies {
            // What is wrong with it was told when it was changed.
            if policy::admits(policy, &own, &labels) == Ok(true) {
                all.insert(policy.key().0);
            }
        }
        Ok(all)
    }

    /// Finds a host, and makes it the claim's unless it was changed since it was seen.
    async fn find(&self, claim: &HostClaim) -> Result<Next, ObjectError> {
        let namespaces = self.namespaces(claim).await?;
        let hosts: Vec<Arc<BareMetalHost>> = self.common.hosts.state();
        let found = match choose(claim, &hosts, &namespaces) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let had = claim.status.as_ref().is_some_and(|status| status.bare_metal_host.is_some());
                let told = if had {
                    Told::Associated(false, "MissingBareMetalHost", "the claim's host is gone".to_owned())
                } else {
                    let why = "no host is available that is as the claim asks for, in a namespace that admits it";
                    Told::Associated(false, "NoBareMetalHost", why.to_owned())
                };
                self.tell(claim, None, vec![told]).await?;
                return Ok(Next::requeue(SEARCH));
            }
            Err(why) => {
                self.tell(claim, None, vec![Told::Associated(false, "NoBareMetalHost", why)]).await?;
                return Ok(Next::await_change());
            }
        };
        let host = if is_of(&found, claim) {
            (*found).clone()
        } else {
            let change = json!({"spec": {"consumerRef": reference(claim)}});
            match self.common.objects.merge(&*found, change).await {
                Ok(host) => host,
                Err(error) if error.is_stale() || error.is_gone() => return Ok(Next::requeue(AGAIN)),
                Err(error) => return Err(error),
            }
        };
        log::info!("HostClaim `{}/{}` has the host `{}/{}`", claim.key().0, claim.key().1, host.key().0, host.key().1);
        self.keep(claim, &host).await
    }

    /// Keeps the host as the claim says.
    async fn keep(&self, claim: &HostClaim, host: &BareMetalHost) -> Result<Next, ObjectError> {
        let associated = || Told::Associated(true, "BareMetalHostAssociated", String::new());
        let data = match secrets::provide(&self.common, claim, host).await? {
            Ok(data) => data,
            Err(lack) => {
                let lacking = Told::Synchronized(false, lack.role.failure(), lack.why);
                self.tell(claim, Some(host), vec![associated(), lacking]).await?;
                return Ok(Next::requeue(SECRETS));
            }
        };
        let needless = secrets::needless(claim, host);
        let (spec, annotations) = (wishes::changes(claim, host, &data), wishes::reboots(claim, host));
        if !spec.is_empty() || !annotations.is_empty() {
            let change = json!({"spec": spec, "metadata": {"annotations": annotations}});
            match self.common.objects.merge(host, change).await {
                Ok(_) => {}
                Err(error) if error.is_stale() || error.is_gone() => return Ok(Next::requeue(AGAIN)),
                Err(error) => {
                    let why = format!("the host cannot be changed: {}", crate::steps::chain(&error));
                    let not = Told::Synchronized(false, "BareMetalHostNotSynchronized", why);
                    self.tell(claim, Some(host), vec![associated(), not]).await?;
                    return Ok(Next::requeue(SEARCH));
                }
            }
        }
        secrets::remove(&self.common, host, &needless).await?;
        // The one-time reboot is the host's now.
        if claim.annotations().contains_key(REBOOT) {
            self.common.objects.merge(claim, json!({"metadata": {"annotations": {REBOOT: null}}})).await?;
        }
        let synchronized = Told::Synchronized(true, "ConfigurationSynced", String::new());
        self.tell(claim, Some(host), vec![associated(), synchronized]).await?;
        // What is copied is read once, when the host is provisioned.
        let open = secrets::has_copies(claim, host) && host.state() != ProvisioningState::Provisioned;
        Ok(if open { Next::requeue(SECRETS) } else { Next::await_change() })
    }

    /// Gives the host back, clean.
    async fn leave(&self, claim: &HostClaim) -> Result<Next, ObjectError> {
        if !claim.held_by(FINALIZER) {
            return Ok(Next::await_change());
        }
        let host = match self.host(claim).await? {
            Some(host) => Some(host),
            // The status may not say yet what the host does.
            None => match self.common.hosts.state().into_iter().find(|host| is_of(host, claim)) {
                Some(host) => self.common.objects.host(&host.key().0, &host.key().1).await?,
                None => None,
            },
        };
        if let Some(host) = host.filter(|host| is_of(host, claim)) {
            let cleared = wishes::cleared(&host);
            let clean = wishes::is_clean(&host);
            if !cleared.is_empty() {
                self.common.objects.merge(&host, json!({"spec": cleared})).await?;
            }
            if !cleared.is_empty() || !clean {
                let why = "the host is being deprovisioned".to_owned();
                self.tell(claim, Some(&host), vec![Told::Associated(false, "HostClaimDeleting", why)]).await?;
                return Ok(Next::requeue(SEARCH));
            }
            secrets::remove(&self.common, &host, secrets::all(claim, &host)).await?;
            self.common.objects.merge(&host, json!({"spec": {"consumerRef": null}})).await?;
        }
        self.common.set_finalizer(claim, FINALIZER, false).await?;
        Ok(Next::await_change())
    }

    /// Writes the status, when it is another one.
    async fn tell(&self, claim: &HostClaim, host: Option<&BareMetalHost>, told: Vec<Told>) -> Result<(), ObjectError> {
        let before = claim.status.clone().unwrap_or_default();
        let status = status(claim, host, told, Timestamp::now());
        if status == before {
            return Ok(());
        }
        // The claim may have been merged into since it was read: fields that went are told as such.
        let mut change = json!(status);
        for (field, _) in json!(before).as_object().into_iter().flatten() {
            if change.get(field).is_none() {
                change[field] = json!(null);
            }
        }
        self.common.merge_status(claim, change).await.map(drop)
    }
}

/// The status of a claim: with a new date when it is another one.
fn status(claim: &HostClaim, host: Option<&BareMetalHost>, told: Vec<Told>, now: Timestamp) -> HostClaimStatus {
    let before = claim.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone().unwrap_or_default();
    for told in told {
        let (kind, holds, reason, message) = match told {
            Told::Associated(holds, reason, message) => (ASSOCIATED, holds, reason, message),
            Told::Synchronized(holds, reason, message) => (SYNCHRONIZED, holds, reason, message),
        };
        let holds = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let at = conditions.iter().position(|it| it.kind == kind);
        let same = at.map(|at| &conditions[at]).filter(|it| it.status == holds);
        let condition = Condition {
            kind: kind.to_owned(),
            status: holds,
            observed_generation: claim.metadata.generation,
            last_transition_time: same.map_or(Time(now), |it| it.last_transition_time),
            reason: reason.to_owned(),
            message,
        };
        match at {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
    }
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
