//! Gives hosts back, claims them, and lets everything go.

use std::collections::HashMap;

use agent_api::metal3::BareMetalHost;
use agent_api::sip::cluster::{CLUSTER_NAME, CLUSTER_NAMESPACE, FINALIZER, NODE_TYPE, STANDBY, SipCluster};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::controller::Controller;
use super::decide::{Choice, Member};
use super::look::{Ahead, Found};
use super::tell::{Told, What};
use crate::operators::kit::{Key, Next, Object as _, ObjectError, doing};
use crate::steps::chain;

/// The change of a host that makes it belong to no cluster.
fn released() -> Value {
    let labels = json!({CLUSTER_NAMESPACE: null, CLUSTER_NAME: null, NODE_TYPE: null});
    json!({"metadata": {"labels": labels, "annotations": {STANDBY: null}}})
}

/// The change of a host that makes it the cluster's: its labels, and whether it stands by.
fn claimed(object: &SipCluster, member: &Member) -> Value {
    let (namespace, name) = object.key();
    let labels = json!({CLUSTER_NAMESPACE: namespace, CLUSTER_NAME: name, NODE_TYPE: member.role.word()});
    let standby = member.standby.then_some("true");
    json!({"metadata": {"labels": labels, "annotations": {STANDBY: standby}}})
}

/// Which change is written on which host. Hosts are given back before others are claimed, so that the cluster never has
/// more of them than it asks for.
fn changes(object: &SipCluster, choice: &Choice) -> Vec<(Key, Value)> {
    let release = choice.release.iter().map(|(host, _)| (host.clone(), released()));
    let own = choice.turn.iter().chain(&choice.claim).map(|member| (member.host.clone(), claimed(object, member)));
    release.chain(own).collect()
}

impl Controller {
    /// Writes the choice on the hosts. A host that was changed since it was chosen is not written: then the result is
    /// false, and nothing more is written.
    pub(super) async fn carry_out(
        &self,
        object: &SipCluster,
        found: &Found,
        ahead: &mut Ahead,
    ) -> Result<bool, ObjectError> {
        let hosts: HashMap<Key, &BareMetalHost> = found.hosts.iter().map(|host| (host.key(), &**host)).collect();
        for (key, change) in changes(object, &found.choice) {
            let Some(host) = hosts.get(&key) else { return Ok(false) };
            match self.base.objects.merge(*host, change).await {
                Ok(now) => ahead.changed(host, now),
                Err(error) if error.is_stale() || error.is_gone() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Deletes what was made for the cluster, gives the hosts back, then lets the object go.
    pub(super) async fn leave(&self, object: &SipCluster) -> Result<Next, ObjectError> {
        if !object.held_by(FINALIZER) {
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(object) {
            return Ok(Next::requeue(left));
        }
        if let Err(error) = self.dismantle(object).await {
            if error.is_stale() {
                return Err(error);
            }
            let rest = self.failures.one_more(object);
            self.tell(object, Told::new(What::UnableToDecommission, chain(&error))).await?;
            return Ok(Next::requeue(rest));
        }
        self.failures.none(&object.key());
        self.base.objects.let_go(object, FINALIZER).await?;
        Ok(Next::await_change())
    }

    /// Removes the services and gives the hosts back. The hosts are read from the API server: the watch may not have the
    /// last claim yet.
    async fn dismantle(&self, object: &SipCluster) -> Result<(), ObjectError> {
        self.consoles.keep(&object.key(), &[]);
        self.remove_all(object).await?;
        let mut ahead = self.ahead.lock().await;
        let (namespace, name) = object.key();
        let own = ListParams::default().labels(&format!("{CLUSTER_NAMESPACE}={namespace},{CLUSTER_NAME}={name}"));
        let hosts = Api::<BareMetalHost>::all(self.base.client.clone());
        let hosts = hosts.list(&own).await.map_err(doing("listing BareMetalHosts"))?;
        for host in &hosts.items {
            match self.base.objects.merge(host, released()).await {
                Ok(now) => ahead.changed(host, now),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use agent_api::sip::cluster::Role;

    use super::*;

    #[test]
    fn hosts_are_given_back_before_others_are_claimed_and_each_change_is_whole() {
        let mut object = SipCluster::new("one", agent_api::sip::cluster::SipClusterSpec::default());
        object.metadata.namespace = Some("tenants".to_owned());
        let key = |name: &str| ("hosts".to_owned(), name.to_owned());
        let member = |name, standby| Member { role: Role::Worker, host: key(name), standby, topology: None };
        let choice = Choice {
            release: vec![(key("a"), "it failed".to_owned())],
            turn: vec![member("b", false)],
            claim: vec![member("c", true)],
            ..Choice::default()
        };
        let changes = changes(&object, &choice);
        assert_eq!(changes.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let labels = |at: usize| changes[at].1["metadata"]["labels"].clone();
        assert_eq!(labels(0), json!({CLUSTER_NAMESPACE: null, CLUSTER_NAME: null, NODE_TYPE: null}));
        assert_eq!(labels(2), json!({CLUSTER_NAMESPACE: "tenants", CLUSTER_NAME: "one", NODE_TYPE: "Worker"}));
        let standby = |at: usize| changes[at].1["metadata"]["annotations"][STANDBY].clone();
        assert_eq!((standby(0), standby(1), standby(2)), (Value::Null, Value::Null, json!("true")));
    }
}
