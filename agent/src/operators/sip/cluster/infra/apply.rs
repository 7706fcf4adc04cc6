//! Makes the objects, checks before, tells pods after, and removes what is not asked for.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use agent_api::metal3::annotations::REBOOT;
use agent_api::sip::auth::AuthStatus;
use agent_api::sip::cluster::SipCluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodCondition, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role as Rights, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use serde_json::json;

use super::jumphost::{HOST_KEY, HOST_KEY_PUBLIC};
use super::requests::Wish;
use super::{Backend, Given, Infra, Objects, PART_OF, TEMPLATES, auth, plan, ports, requests};
use crate::host::runner::{RunError, Runner as _, System};
use crate::operators::kit::{Object, ObjectError, doing};
use crate::operators::sip::cluster::consoles;
use crate::operators::sip::cluster::controller::{Controller, owner};
use crate::operators::sip::cluster::decide::is_of;
use crate::operators::sip::run::MANAGER;
use crate::ssh;
use crate::steps::blocking;

/// Longest run of `haproxy -c`.
const CHECK: Duration = Duration::from_secs(20);
/// Annotation of pods. When its value changes, the kubelet updates the mounted files at once.
const CONFIG: &str = "sip.airshipit.org/config";

/// How far the services are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// All run.
    Runs,
    /// The objects are there, and a pod is not ready yet: the text says which.
    Waits(String),
    /// They cannot be made: the text says why.
    Fails(String),
}

/// What came of the services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// How far they are.
    pub applied: Applied,
    /// What API servers must be told of the login, where it was made.
    pub auth: Option<AuthStatus>,
}

impl Controller {
    /// Brings the services of the cluster up to date. Where one cannot be made, none is touched.
    pub(in crate::operators::sip::cluster) async fn serve(
        &self,
        object: &SipCluster,
        backends: &[Backend],
    ) -> Result<Served, ObjectError> {
        let fails = |why: String| Ok(Served { applied: Applied::Fails(why), auth: None });
        let wrong = super::wrong(object);
        if !wrong.is_empty() {
            return fails(wrong.join("\n"));
        }
        let given = match self.given(object).await? {
            Ok(given) => given,
            Err(why) => return fails(why),
        };
        let mut plans = Vec::new();
        for infra in Infra::ALL {
            let planned = plan(infra, object, backends, &given, &self.settings.images);
            match self.checked(infra, planned).await {
                Ok(planned) => plans.push((infra, planned.map(Box::new))),
                Err(why) => return fails(why),
            }
        }
        for (infra, planned) in &plans {
            let Some(planned) = planned else { continue };
            if let Some(why) = self.foreign(object, *infra, planned).await? {
                return fails(why);
            }
        }
        let wanted: Vec<&Service> = plans.iter().filter_map(|(_, planned)| Some(&planned.as_ref()?.service)).collect();
        let in_the_way = self.tried(object, &wanted).await?;
        // First what goes: others may get its ports.
        for (infra, _) in plans.iter().filter(|(_, planned)| planned.is_none()) {
            self.remove(*infra, object).await?;
        }
        for name in in_the_way {
            self.base.objects.delete::<Service>(&object.key().0, &name).await?;
        }
        let mut waits = Vec::new();
        for (infra, planned) in &plans {
            if let Some(planned) = planned {
                waits.extend(self.make(*infra, object, planned).await?);
            }
        }
        if Infra::JumpHost.is_asked(object) {
            self.answer(object, backends).await?;
        }
        let applied = if waits.is_empty() { Applied::Runs } else { Applied::Waits(waits.join("; ")) };
        Ok(Served { applied, auth: auth::status(object, &given) })
    }

    /// Templates and keys of users that lie in other objects, and the jump host's key.
    async fn given(&self, object: &SipCluster) -> Result<Result<Given, String>, ObjectError> {
        let (namespace, _) = object.key();
        let objects = &self.base.objects;
        let mut given = Given::default();
        for (infra, map, key) in TEMPLATES.into_iter().filter(|(infra, ..)| infra.is_asked(object)) {
            let Some(found) = objects.get::<ConfigMap>(&namespace, map).await? else { continue };
            let Some(text) = found.data.and_then(|mut data| data.remove(key)) else {
                let what = infra.component();
                return Ok(Err(format!("ConfigMap `{namespace}/{map}` with the template of `{what}` has no `{key}`")));
            };
            given.templates.insert(map, text);
        }
        given.auth = match self.auth_given(object).await? {
            Ok(auth) => auth,
            Err(why) => return Ok(Err(why)),
        };
        let Some(wish) = object.spec.services.jump_host.first() else { return Ok(Ok(given)) };
        let name = &wish.node_ssh_private_keys;
        let Some(keys) = objects.secret(&namespace, name).await? else {
            let why =
                format!("Secret `{namespace}/{name}`, which `jumpHost[0].nodeSSHPrivateKeys` names, is not there");
            return Ok(Err(why));
        };
        given.node_keys = keys.data.into_iter().flatten().map(|(key, _)| key).collect();
        let own = objects.secret(&namespace, &Infra::JumpHost.name(object)).await?;
        given.host_key = match host_key(own.as_ref()) {
            Some(key) => key,
            None => match ssh::new_key(&Infra::JumpHost.name(object)) {
                Ok(key) => key,
                Err(error) => return Ok(Err(error.to_string())),
            },
        };
        Ok(Ok(given))
    }

    /// The plan, if `HAProxy` accepts its configuration.
    async fn checked(&self, infra: Infra, planned: Result<Option<Objects>, String>) -> Result<Option<Objects>, String> {
        let planned = planned?;
        let config = planned.as_ref().and_then(|planned| planned.config.clone());
        if let (Some(config), Some(haproxy)) = (config, self.settings.haproxy.clone()) {
            let ran = blocking(move || Ok(check(&haproxy, &config))).await.map_err(|error| format!("{error:#}"))?;
            ran.map_err(|why| format!("the configuration of `{}`: {why}", infra.component()))?;
        }
        Ok(planned)
    }

    /// Writes the objects. Returns what still has to become ready, if anything.
    async fn make(&self, infra: Infra, object: &SipCluster, planned: &Objects) -> Result<Option<String>, ObjectError> {
        let objects = &self.base.objects;
        // Whatever of it is made below must go again when it is not asked for.
        self.removed.lock().await.remove(&(object.key(), infra));
        for map in &planned.config_maps {
            objects.apply(map, MANAGER).await?;
        }
        if let Some(authority) = &planned.authority {
            objects.apply(authority, MANAGER).await?;
        }
        let secret = objects.apply(&planned.secret, MANAGER).await?;
        if let Some((account, rights, binding)) = &planned.rights {
            objects.apply(account, MANAGER).await?;
            objects.apply(rights, MANAGER).await?;
            objects.apply(binding, MANAGER).await?;
        }
        objects.apply(&planned.service, MANAGER).await?;
        let deployment = objects.apply(&planned.deployment, MANAGER).await?;
        let version = secret.resource_version().unwrap_or_default();
        let pods = self.wake(object, infra, &version).await?;
        Ok(waits_for(&infra.name(object), &deployment, &pods))
    }

    /// Why the objects of a service cannot be made: one of that name is somebody else's. What is the cluster's is looked at
    /// once.
    async fn foreign(
        &self,
        object: &SipCluster,
        infra: Infra,
        planned: &Objects,
    ) -> Result<Option<String>, ObjectError> {
        let at = (object.key(), infra);
        if self.known.lock().await.contains(&at) {
            return Ok(None);
        }
        let mut found = vec![
            self.foreign_one(object, &planned.secret).await?,
            self.foreign_one(object, &planned.service).await?,
            self.foreign_one(object, &planned.deployment).await?,
        ];
        for map in &planned.config_maps {
            found.push(self.foreign_one(object, map).await?);
        }
        if let Some(authority) = &planned.authority {
            found.push(self.foreign_one(object, authority).await?);
        }
        if let Some((account, rights, binding)) = &planned.rights {
            found.push(self.foreign_one(object, account).await?);
            found.push(self.foreign_one(object, rights).await?);
            found.push(self.foreign_one(object, binding).await?);
        }
        let found = found.into_iter().flatten().next();
        if found.is_none() {
            self.known.lock().await.insert(at);
        }
        Ok(found)
    }

    async fn foreign_one<K: Object>(&self, object: &SipCluster, wanted: &K) -> Result<Option<String>, ObjectError> {
        let (namespace, name) = wanted.key();
        let found = self.base.objects.get::<K>(&namespace, &name).await?;
        let is_own = |found: &K| owner(found.meta()).contains(&ObjectRef::from_obj(object));
        Ok(found.filter(|found| !is_own(found)).map(|_| {
            format!(
                "{} `{namespace}/{name}` is there, and was not made for this SIPCluster; hint: remove it, or give the SIPCluster \
                 another name",
                K::kind(&())
            )
        }))
    }

    /// Names of Services that must go before the wanted ones are written. The API server was asked before whether it would
    /// give the ports and addresses that are new.
    async fn tried(&self, object: &SipCluster, wanted: &[&Service]) -> Result<BTreeSet<String>, ObjectError> {
        let api = self.base.objects.api::<Service>(&object.key().0);
        let ours = ListParams::default().labels(&format!("{}={}", PART_OF.0, PART_OF.1));
        let names = Infra::ALL.map(|infra| infra.name(object));
        let mut found = api.list(&ours).await.map_err(doing("listing Services"))?.items;
        found.retain(|service| names.contains(&service.name_any()));
        let name = format!("trial-{}", object.key().1);
        for service in wanted {
            let Some(trial) = ports::trial(&name, service, &found) else { continue };
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let what = format!("trying the ports and the address of Service `{}`", service.name_any());
            match api.create(&params, &trial).await.map_err(doing(what)) {
                // Somebody has a Service of that name: it cannot be tried.
                Err(error) if !error.is_stale() => return Err(error),
                _ => {}
            }
        }
        Ok(ports::in_the_way(wanted, &found))
    }

    /// The pods. The kubelet is made to update their files now; without this it takes up to a minute.
    async fn wake(&self, object: &SipCluster, infra: Infra, version: &str) -> Result<Vec<Pod>, ObjectError> {
        let (namespace, _) = object.key();
        let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={}", infra.name(object)));
        let pods = self.base.objects.api::<Pod>(&namespace).list(&own).await.map_err(doing("listing pods"))?;
        for pod in pods.items.iter().filter(|pod| pod.annotations().get(CONFIG).is_none_or(|it| it != version)) {
            let change = json!({"metadata": {"annotations": {CONFIG: version}}});
            match self.base.objects.merge(pod, change).await {
                // It is on its way out, or changes: the kubelet looks at it anyway.
                Err(error) if !error.is_gone() && !error.is_stale() => return Err(error),
                _ => {}
            }
        }
        Ok(pods.items)
    }

    /// Removes a service. What is removed is remembered, so that later turns need not ask for it.
    async fn remove(&self, infra: Infra, object: &SipCluster) -> Result<(), ObjectError> {
        let at = (object.key(), infra);
        if self.removed.lock().await.contains(&at) {
            return Ok(());
        }
        let (namespace, _) = object.key();
        let name = infra.name(object);
        self.remove_one::<Deployment>(&namespace, &name).await?;
        self.remove_one::<Service>(&namespace, &name).await?;
        self.remove_one::<Secret>(&namespace, &name).await?;
        if infra == Infra::Auth {
            self.remove_one::<ConfigMap>(&namespace, &name).await?;
            self.remove_one::<Secret>(&namespace, &auth::authority_name(object)).await?;
        }
        if infra == Infra::JumpHost {
            self.remove_one::<ConfigMap>(&namespace, &name).await?;
            self.remove_one::<ConfigMap>(&namespace, &requests::name(object)).await?;
            self.remove_one::<RoleBinding>(&namespace, &name).await?;
            self.remove_one::<Rights>(&namespace, &name).await?;
            self.remove_one::<ServiceAccount>(&namespace, &name).await?;
        }
        self.known.lock().await.remove(&at);
        self.removed.lock().await.insert(at);
        Ok(())
    }

    /// Removes all services, also those that are remembered as removed.
    pub(in crate::operators::sip::cluster) async fn remove_all(&self, object: &SipCluster) -> Result<(), ObjectError> {
        let key = object.key();
        self.removed.lock().await.retain(|(of, _)| *of != key);
        for infra in Infra::ALL {
            self.remove(infra, object).await?;
        }
        self.removed.lock().await.retain(|(of, _)| *of != key);
        Ok(())
    }

    /// Removes an object if it was made here. An object of a user with the same name stays.
    async fn remove_one<K: Object>(&self, namespace: &str, name: &str) -> Result<(), ObjectError> {
        let found = self.base.objects.get::<K>(namespace, name).await?;
        let (label, value) = PART_OF;
        if found.is_some_and(|found| found.labels().get(label).is_some_and(|it| it == value)) {
            self.base.objects.delete::<K>(namespace, name).await?;
        }
        Ok(())
    }

    /// Does what users ask for on the jump host.
    async fn answer(&self, object: &SipCluster, backends: &[Backend]) -> Result<(), ObjectError> {
        let (namespace, _) = object.key();
        let objects = &self.base.objects;
        let Some(map) = objects.get::<ConfigMap>(&namespace, &requests::name(object)).await? else { return Ok(()) };
        for request in requests::open(map.data.as_ref(), backends) {
            let mut console = None;
            let text = match (&request.host, &request.wish) {
                (None, _) => Some(format!("`{}` is no host of this cluster", request.name)),
                (Some((within, name)), Wish::Reboot) => Some(self.reboot(object, within, name).await?),
                (Some(_), Wish::Console(Err(why))) => Some(format!("the request cannot be read: {why}")),
                (Some(host), Wish::Console(Ok(listener))) => {
                    console = Some((host.clone(), listener.clone()));
                    None
                }
            };
            if let Some(text) = &text {
                log::info!("{namespace}/{}: `{}`: {text}", Infra::JumpHost.name(object), request.key);
            }
            let change = requests::answer(&request, text.as_deref());
            let api = objects.api::<ConfigMap>(&namespace);
            let params = kube::api::PatchParams::default();
            let answered = api.patch(&map.name_any(), &params, &kube::api::Patch::Merge(change)).await;
            answered.map_err(doing("answering the jump host"))?;
            // Once it is taken: it is not opened twice.
            if let Some((host, listener)) = console {
                let answer = (map.name_any(), request.answer);
                let wish = consoles::Wish { object: object.clone(), host, listener, answer };
                self.consoles.open(self.base.client.clone(), wish);
            }
        }
        Ok(())
    }

    /// Asks the controller of hosts for a reboot.
    async fn reboot(&self, object: &SipCluster, namespace: &str, name: &str) -> Result<String, ObjectError> {
        let host = self.base.objects.get::<BareMetalHost>(namespace, name).await?;
        let Some(host) = host.filter(|host| is_of(host, object)) else {
            return Ok(format!("BareMetalHost `{namespace}/{name}` is not this cluster's any more"));
        };
        self.base.objects.merge(&host, json!({"metadata": {"annotations": {REBOOT: ""}}})).await?;
        Ok(format!("BareMetalHost `{namespace}/{name}` is asked to reboot"))
    }
}

/// The private and public key that the jump host already has.
fn host_key(secret: Option<&Secret>) -> Option<(String, String)> {
    let text = |key: &str| auth::text_of(secret?, key);
    Some((text(HOST_KEY)?, text(HOST_KEY_PUBLIC)?))
}

/// Why a Deployment is not yet available in its newest version, if it is not.
fn waits_for(name: &str, deployment: &Deployment, pods: &[Pod]) -> Option<String> {
    let status = deployment.status.clone().unwrap_or_default();
    let seen = status.observed_generation == deployment.metadata.generation;
    let [all, updated, available] =
        [status.replicas, status.updated_replicas, status.available_replicas].map(Option::unwrap_or_default);
    // A pod of before goes on until the new one answers: it says nothing of that.
    if seen && updated >= 1 && all <= updated && available >= updated {
        return None;
    }
    let stuck = pods.iter().filter(|pod| !pod.leaves()).find_map(stuck);
    let failed = || {
        let conditions = status.conditions.unwrap_or_default();
        conditions.into_iter().find(|it| it.status.as_deref() == Some("False"))?.message
    };
    let why = stuck.or_else(failed).unwrap_or_else(|| "its pod is being started".to_owned());
    Some(format!("{name}: {why}"))
}

/// Why a pod does not get on, in the words of the scheduler or the kubelet.
fn stuck(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let refused = |it: &&PodCondition| it.type_ == "PodScheduled" && it.status == "False";
    if let Some(condition) = status.conditions.iter().flatten().find(refused) {
        return Some(format!("no node takes its pod: {}", condition.message.as_deref().unwrap_or_default()));
    }
    let containers = [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten();
    containers.into_iter().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|it| !["ContainerCreating", "PodInitializing"].contains(it))?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(format!("container `{}` with the image `{}`: {reason}: {message}", container.name, container.image))
    })
}

/// Has `HAProxy` check a configuration.
///
/// # Errors
/// What it says.
pub fn check(haproxy: &Path, config: &str) -> Result<(), String> {
    let program = haproxy.to_string_lossy();
    match System::new().run(&[&program, "-c", "-f", "/dev/stdin"], config.as_bytes(), CHECK) {
        Ok(_) => Ok(()),
        Err(RunError::Failed { stderr, .. }) => Err(stderr.trim().to_owned()),
        Err(error) => Err(crate::steps::chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn deployment(all: i32, updated: i32, available: i32) -> Deployment {
        let status = json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "availableReplicas": available,
            "conditions": [{"type": "Available", "status": "False", "message": "no minimum availability"}]});
        let object = json!({"metadata": {"generation": 2}, "spec": {"selector": {}, "template": {}}, "status": status});
        serde_json::from_value(object).expect("a Deployment")
    }

    /// A new image that cannot be had leaves the pod of before, which says nothing of the new one.
    #[test]
    fn a_service_runs_when_its_newest_pod_does() {
        assert_eq!(waits_for("a", &deployment(1, 1, 1), &[]), None);
        for other in [deployment(2, 1, 1), deployment(1, 0, 1), deployment(1, 1, 0)] {
            assert_eq!(waits_for("a", &other, &[]).as_deref(), Some("a: no minimum availability"));
        }
    }

    #[test]
    fn what_a_pod_waits_for_is_said_as_scheduler_and_kubelet_say_it() {
        let pod = |status: Value| serde_json::from_value::<Pod>(json!({"status": status})).expect("a pod");
        let waiting = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "no such image"}});
            pod(
                json!({"containerStatuses": [{"name": "sshd", "image": "x:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": state}]}),
            )
        };
        let told = |pod: Pod| waits_for("a", &deployment(2, 1, 1), &[pod]).expect("it waits");
        assert_eq!(
            told(waiting("ImagePullBackOff")),
            "a: container `sshd` with the image `x:1`: ImagePullBackOff: no such image"
        );
        assert_eq!(told(waiting("ContainerCreating")), "a: no minimum availability");
        let condition = json!({"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"});
        assert_eq!(told(pod(json!({"conditions": [condition]}))), "a: no node takes its pod: 0/1 nodes are available");
    }
}
