//! Deletes everything, in an order that leaves nothing behind: hosts while their machines are still there, then machines
//! and networks of each node, then the pods that removed those, then addresses and the rest.

use std::collections::BTreeSet;

use agent_api::metal3::BareMetalHost;
use agent_api::vino::spec::{FINALIZER, Vino};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;

use super::act::{is_cleared, is_empty};
use super::controller::Controller;
use super::decide::user_of;
use super::objects::Names;
use super::tell::{Part, Told};
use super::values;
use crate::operators::kit::{Next, Object as _, ObjectError, told_key};
use crate::steps::chain;

impl Controller {
    /// Deletes everything. The status tells what is waited for.
    pub(super) async fn leave(&self, object: &Vino) -> Result<Next, ObjectError> {
        if !object.held_by(FINALIZER) {
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(object) {
            return Ok(Next::requeue(left));
        }
        match Box::pin(self.dismantle(object)).await {
            Ok(waits) if waits.is_empty() => {}
            Ok(waits) => {
                self.failures.none(&object.key());
                self.tell(object, Told::all(&Part::Waits(format!("it is being deleted: {}", waits.join("; ")))))
                    .await?;
                return Ok(Next::await_change());
            }
            Err(error) if error.is_stale() || error.is_gone() => return Err(error),
            Err(error) => {
                let rest = self.failures.one_more(object);
                self.tell(object, Told::all(&Part::Fails(chain(&error)))).await?;
                return Ok(Next::requeue(rest));
            }
        }
        self.failures.none(&object.key());
        self.base.objects.let_go(object, FINALIZER).await?;
        Ok(Next::await_change())
    }

    /// Goes one step further. Returns what is waited for.
    async fn dismantle(&self, object: &Vino) -> Result<Vec<String>, ObjectError> {
        let namespace = &self.settings.ground.namespace;
        let hosts = self.hosts(object).await?;
        let mut waits = Vec::new();
        for host in &hosts {
            let name = host.name_any();
            if let Some(why) = user_of(host).filter(|_| !host.leaves()) {
                waits.push(format!("host `{name}`: {why}; hint: delete that first"));
                continue;
            }
            if !host.leaves() {
                self.base.objects.delete::<BareMetalHost>(namespace, &name).await?;
            }
            waits.push(format!("host `{name}` is going"));
        }
        if !waits.is_empty() {
            return Ok(waits);
        }
        for node in self.nodes(object, &[]).await? {
            let Some(before) = &node.values else { continue };
            if is_cleared(&node) {
                continue;
            }
            if !is_empty(before)
                && let Ok(values) = values::leaving(before, &[])
            {
                self.write(&node, Some(&values)).await?;
            }
            let wrong = node.current().map(agent_api::vino::values::NodeReport::wrong).unwrap_or_default().join("; ");
            let hint = "hint: a pod that does not say so any more may be deleted";
            let why = if wrong.is_empty() { "its pod removes machines and networks".to_owned() } else { wrong };
            waits.push(format!("node `{}`: {why}; {hint}", node.name));
        }
        if !waits.is_empty() {
            return Ok(waits);
        }
        let names = Names::of(object);
        self.remove::<DaemonSet>(object, &names.stem).await?;
        for node in self.nodes(object, &[]).await? {
            self.write(&node, None).await?;
        }
        self.pools.free_others(&told_key(&object.key()), &[]).await?;
        self.remove_secrets(object, &BTreeSet::new()).await?;
        self.remove::<ConfigMap>(object, &names.libvirt).await?;
        self.remove::<RoleBinding>(object, &names.stem).await?;
        self.remove::<Role>(object, &names.stem).await?;
        self.remove::<ServiceAccount>(object, &names.stem).await?;
        Ok(Vec::new())
    }
}
