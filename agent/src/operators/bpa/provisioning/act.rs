//! Claims hosts, starts the work on the servers, stores its results, and gives everything back.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use agent_api::clusters::provisioning::{
    ADDRESS_ANNOTATION, Cni, FINALIZER, NODE_ANNOTATION, NodePhase, NodeRole, NodeStatus, Provisioning,
};
use agent_api::metal3::BareMetalHost;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::controller::Controller;
use super::day_one;
use super::decide::{Chosen, has_system, is_anothers, is_of, is_written_anew, reference};
use super::eta::Schedule;
use super::install::{Made, Order, Work, install};
use super::inventory::{self, KUBESPRAY, LEGACY};
use super::job::{self, JobOrder};
use super::leaving;
use super::tell::{Told, What, is_settled};
use super::upkeep::{self, Aim, stands};
use super::wishes::Wanted;
use crate::host::files;
use crate::operators::bpa::common::{Goods, MANAGER};
use crate::operators::bpa::login::{LoginError, entered_as, key_name, secret};
use crate::operators::kit::{Next, Object as _, ObjectError, doing, told_key};
use crate::steps::chain;

/// Label of ICN for clusters of virtual machines.
const VM: (&str, &str) = ("cluster-type", "virtlet-vm");
/// Annotation of a `Provisioning` that is being deleted: servers that do not answer are given back without a reset.
pub(super) const ABANDON: &str = "bpa.akraino.org/abandon";
/// Pause until servers that do not answer are asked again.
const AGAIN: Duration = Duration::from_secs(30);
/// Pause until work that is to end is looked at again.
const ENDS: Duration = Duration::from_secs(1);

/// Name of the Secret with the kubeconfig, as Cluster API has it.
pub(super) fn kubeconfig_name(object: &Provisioning) -> String {
    format!("{}-kubeconfig", object.cluster())
}

/// The cluster, as servers know it: `namespace/name/uid`.
fn id_of(object: &Provisioning) -> String {
    let (namespace, name) = object.key();
    format!("{namespace}/{name}/{}", object.metadata.uid.clone().unwrap_or_default())
}

impl Controller {
    /// Claims the chosen hosts for the cluster. A host that was changed since it was read is not written: then the result
    /// is false.
    pub(super) async fn claim(&self, object: &Provisioning, chosen: &[Chosen]) -> Result<bool, ObjectError> {
        for node in chosen {
            let Some(host) = self.host(&node.host).await? else { return Ok(false) };
            // DHCP keeps it for the node.
            let address = node.leased.then(|| node.ip.to_string());
            let noted = host.annotations().get(NODE_ANNOTATION) == Some(&node.name)
                && host.annotations().get(ADDRESS_ANNOTATION) == address.as_ref();
            if is_of(&host, object) && noted {
                continue;
            }
            if is_anothers(&host, object).is_some() {
                return Ok(false);
            }
            let change = json!({
                "metadata": {"annotations": {NODE_ANNOTATION: node.name, ADDRESS_ANNOTATION: address}},
                "spec": {"consumerRef": reference(object)},
            });
            match self.common.base.objects.merge(&host, change).await {
                Ok(_) => {}
                Err(error) if error.is_stale() || error.is_gone() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    async fn host(&self, (namespace, name): &(String, String)) -> Result<Option<BareMetalHost>, ObjectError> {
        self.common.base.objects.get(namespace, name).await
    }

    /// Whether the cluster is as its spec asks for.
    pub(super) fn is_current(&self, object: &Provisioning, chosen: &[Chosen]) -> bool {
        let Some(status) = &object.status else { return false };
        let same = |node: &Chosen| {
            let told = status.nodes.iter().find(|told| node.is(told));
            told.is_some_and(|told| {
                told.phase == NodePhase::Installed && told.roles == node.roles && !self.is_written_anew(told)
            })
        };
        stands(object)
            && is_settled(status)
            && status.observed_generation == object.metadata.generation
            && status.nodes.len() == chosen.len()
            && chosen.iter().all(same)
    }

    /// Whether the OS of the node's host was written after it was installed.
    pub(super) fn is_written_anew(&self, node: &NodeStatus) -> bool {
        let hosts = self.common.hosts.state();
        let host = hosts.iter().find(|host| told_key(&host.key()) == node.host);
        host.is_some_and(|host| is_written_anew(host, node))
    }

    /// The cluster's folder, by its name, as ICN has it.
    pub(super) fn folder(&self, object: &Provisioning) -> PathBuf {
        self.common.folder.join(object.cluster())
    }

    /// Starts the work on the servers. `renew`: certificates are made anew, too. The inner error says why it cannot begin.
    pub(super) async fn begin(
        &self,
        object: &Provisioning,
        wanted: &Wanted,
        chosen: Vec<Chosen>,
        aim: Aim,
        renew: bool,
    ) -> Result<Result<(), String>, ObjectError> {
        let nodes = chosen.clone();
        let doing = match &object.spec.installer {
            Some(installer) => self.job_order(object, installer, &chosen).await.map(Box::new).map(Doing::Job),
            None => self.order(object, wanted, chosen, aim, renew).await.map(Box::new).map(Doing::Ours),
        };
        let doing = match doing {
            Ok(doing) => doing,
            Err(StartError::Object(error)) => return Err(error),
            Err(StartError::Told(why)) => return Ok(Err(why)),
        };
        let mut before = object.status.as_ref().map(|status| status.nodes.clone()).unwrap_or_default();
        before.retain(|node| !self.is_written_anew(node));
        // What another's image does, and in which order, nobody knows.
        let schedule = match (&doing, aim) {
            (Doing::Ours(_), Aim::Spec) => Schedule::of(&nodes, &before),
            (Doing::Job(_), _) | (_, Aim::Upkeep) => Schedule::unknown(),
        };
        let leave = match &doing {
            Doing::Ours(order) => leaving::told(&order.leaving),
            // What an installer leaves behind is its own.
            Doing::Job(_) => Vec::new(),
        };
        let work = Work::new(&nodes, &before, leave, aim, schedule, Arc::clone(&self.history));
        let work = Arc::new(work.of(object.metadata.generation));
        self.works.lock().unwrap_or_else(PoisonError::into_inner).insert(object.key(), Arc::clone(&work));
        self.tell(object, work.told(What::Installing)).await?;
        let (wake, key) = (self.wake.clone(), object.key());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are done with.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let doing = async {
                match (doing, aim) {
                    (Doing::Ours(order), Aim::Spec) => install(&order, &work).await,
                    (Doing::Ours(order), Aim::Upkeep) => upkeep::keep_up(&order, &work).await,
                    (Doing::Job(order), _) => job::install(&order, &work).await,
                }
            };
            let made = tokio::select! {
                made = doing => made,
                () = work.until_halted() => Err(anyhow::anyhow!("it was ended before its end")),
            };
            work.end(made.map_err(|error| format!("{error:#}")));
            // Nobody is left to wake when the controller ends.
            let _ = wake.send(key);
        });
        Ok(Ok(()))
    }

    /// `hosts.ini` in both forms.
    pub(super) fn write_inventories(&self, object: &Provisioning, chosen: &[Chosen]) -> anyhow::Result<()> {
        let (user, port) = entered_as(object);
        let vm = object.labels().get(VM.0).is_some_and(|kind| kind == VM.1);
        let inventories =
            [(LEGACY, inventory::legacy(chosen, port, vm)), (KUBESPRAY, inventory::kubespray(chosen, &user, port))];
        for (name, text) in inventories {
            files::replace_below(&self.common.folder, &self.folder(object).join(name), text.as_bytes())?;
        }
        Ok(())
    }

    async fn order(
        &self,
        object: &Provisioning,
        wanted: &Wanted,
        chosen: Vec<Chosen>,
        aim: Aim,
        renew: bool,
    ) -> Result<Order, StartError> {
        let told = |error: anyhow::Error| StartError::Told(format!("{error:#}"));
        let login = self.common.login(object).await?;
        let before = object.status.as_ref().and_then(|status| status.version.clone());
        let own = || self.common.place.version.clone();
        // What stays as it is needs nothing of the box.
        let (version, goods, day_one) = match aim {
            Aim::Spec => {
                self.write_inventories(object, &chosen).map_err(told)?;
                let version = asked_version(object).map(str::to_owned).or(before).unwrap_or_else(own);
                let goods = self.goods(wanted, &version).await?;
                (version, goods, day_one::manifests(wanted, &self.common.parts).map_err(told)?)
            }
            Aim::Upkeep => (before.unwrap_or_else(own), Goods::default(), Vec::new()),
        };
        let leaving = match aim {
            Aim::Spec => leaving::leaving(object, &chosen, &self.common.hosts.state()),
            Aim::Upkeep => Vec::new(),
        };
        Ok(Order {
            id: id_of(object),
            wanted: wanted.clone(),
            version,
            goods,
            day_one,
            place: self.common.place.clone(),
            login,
            agent: Arc::clone(&self.common.agent),
            existed: object.status.as_ref().is_some_and(|status| status.finished_at.is_some()),
            renew,
            leaving,
            abandon: object.annotations().contains_key(ABANDON),
            logs: self.folder(object).join("log"),
            chosen,
        })
    }

    /// What the box has for nodes of that version.
    async fn goods(&self, wanted: &Wanted, version: &str) -> Result<Goods, StartError> {
        let goods = self.common.place.goods(version).await;
        let mut goods = goods.map_err(|error| StartError::Told(format!("{error:#}")))?;
        if wanted.cni == Cni::None {
            goods.flannel = None;
        } else if goods.flannel.is_none() {
            let why = "the box has no flannel for servers; hint: add `services: { clusters: {} }` to its definition, or say `cni: none`";
            return Err(StartError::Told(why.to_owned()));
        }
        Ok(goods)
    }

    /// Stores the results of the work: the Secret with the kubeconfig, ICN's `ConfigMap`, and the file in the cluster's
    /// folder.
    pub(super) async fn keep(
        &self,
        object: &Provisioning,
        nodes: &[NodeStatus],
        made: &Made,
    ) -> Result<(), ObjectError> {
        let objects = &self.common.base.objects;
        let data = [("value", made.kubeconfig.clone()), ("admin.conf", made.kubeconfig.clone())];
        let kept = secret(object, &kubeconfig_name(object), "cluster.x-k8s.io/secret", data);
        objects.apply(&kept, MANAGER).await?;
        objects.apply(&addresses(object, nodes), MANAGER).await?;
        let path = self.folder(object).join("artifacts/admin.conf");
        let written = files::replace_below(&self.common.folder, &path, made.kubeconfig.as_bytes());
        if let Err(error) = written {
            log::warn!("{error}");
        }
        Ok(())
    }

    /// Gives back hosts that the cluster does not need any more.
    pub(super) async fn release_others(&self, object: &Provisioning, chosen: &[Chosen]) -> Result<(), ObjectError> {
        for host in self.common.hosts.state() {
            if is_of(&host, object) && !chosen.iter().any(|chosen| chosen.host == host.key()) {
                self.release(&host).await?;
            }
        }
        Ok(())
    }

    async fn release(&self, host: &BareMetalHost) -> Result<(), ObjectError> {
        let annotations = json!({NODE_ANNOTATION: null, ADDRESS_ANNOTATION: null});
        let change = json!({"metadata": {"annotations": annotations}, "spec": {"consumerRef": null}});
        match self.common.base.objects.merge(host, change).await {
            Err(error) if error.is_gone() => Ok(()),
            released => released.map(drop),
        }
    }

    /// Resets the servers, then gives them back, and removes what was made.
    pub(super) async fn leave(&self, object: &Provisioning) -> Result<Next, ObjectError> {
        if !object.held_by(FINALIZER) {
            return Ok(Next::await_change());
        }
        let key = object.key();
        // What fails would be tried for ever. kubeadm is not cut off: a reset waits on the server until it has ended.
        if let Some(work) = self.work(&key) {
            work.halt();
            let ended = work.ended().is_some();
            // Who was entered in the meantime is reset, too.
            self.tell(object, work.told(What::Deleting)).await?;
            if ended {
                self.forget_work(&key);
            }
            return Ok(Next::requeue(ENDS));
        }
        // An installer of the user's does not work on servers that are given back.
        self.forget_job(object).await?;
        let own = self.own_hosts(object).await?;
        let failed = self.reset_all(object, &own).await?;
        if !failed.is_empty() && !object.annotations().contains_key(ABANDON) {
            let why = format!(
                "{}\nhint: the annotation `{ABANDON}` gives back servers that do not answer, as they are",
                failed.join("\n")
            );
            self.tell(object, Told::new(What::Deleting, why)).await?;
            return Ok(Next::requeue(AGAIN));
        }
        for host in &own {
            if let Some(host) = self.host(&host.key()).await?.filter(|host| is_of(host, object)) {
                self.release(&host).await?;
            }
        }
        self.forget(object).await?;
        self.failures.none(&key);
        self.common.base.objects.let_go(object, FINALIZER).await?;
        Ok(Next::await_change())
    }

    /// The hosts of a cluster, as they are: an operator that has just begun to watch them knows none.
    async fn own_hosts(&self, object: &Provisioning) -> Result<Vec<Arc<BareMetalHost>>, ObjectError> {
        let all = Api::<BareMetalHost>::all(self.common.base.client.clone());
        let hosts = match all.list(&ListParams::default()).await.map_err(doing("listing BareMetalHosts")) {
            Ok(list) => list.items,
            // There is no such kind, and so no host.
            Err(error) if error.is_gone() => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(hosts.into_iter().filter(|host| is_of(host, object)).map(Arc::new).collect())
    }

    /// Resets the servers on which an installation was begun, all at the same time. Returns what failed, in words.
    async fn reset_all(&self, object: &Provisioning, own: &[Arc<BareMetalHost>]) -> Result<Vec<String>, ObjectError> {
        let nodes = object.status.as_ref().map(|status| status.nodes.clone()).unwrap_or_default();
        // A server that is being provisioned anew has nothing to reset.
        let runs = |node: &NodeStatus| {
            let host = own.iter().find(|host| told_key(&host.key()) == node.host);
            host.is_some_and(|host| has_system(host))
        };
        // One whose key was never seen was never entered.
        let nodes: Vec<&NodeStatus> = nodes.iter().filter(|node| node.host_key.is_some() && runs(node)).collect();
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let login = match self.common.login(object).await {
            Ok(login) => login,
            // A namespace that is being deleted takes no new key.
            Err(LoginError::Object(error)) if !error.is_refused() => return Err(error),
            Err(error) => return Ok(vec![chain(&error)]),
        };
        let told = nodes.iter().map(|node| NodeStatus { phase: NodePhase::Removing, ..(*node).clone() }).collect();
        self.tell(object, Told { nodes: Some(told), ..Told::new(What::Deleting, "resetting the servers") }).await?;
        let agent = &self.common.agent;
        let cluster = id_of(object);
        let one = async |node: &&NodeStatus| {
            agent.reset(&login, node, &cluster).await.map_err(|error| format!("{}: {error:#}", node.name))
        };
        let ended: Vec<Result<(), String>> = join_all(nodes.iter().map(one)).await;
        Ok(ended.into_iter().filter_map(Result::err).collect())
    }

    /// Secrets, `ConfigMap` and folder of the cluster.
    async fn forget(&self, object: &Provisioning) -> Result<(), ObjectError> {
        // What bears the cluster's name is the older object's.
        if self.taken_by(object).is_some() {
            return Ok(());
        }
        let (namespace, _) = object.key();
        let objects = &self.common.base.objects;
        for name in [kubeconfig_name(object), key_name(object)] {
            objects.delete::<Secret>(&namespace, &name).await?;
        }
        objects.delete::<ConfigMap>(&namespace, &addresses_name(object)).await?;
        self.forget_job(object).await?;
        let folder = self.folder(object);
        if folder.exists()
            && let Err(error) = fs_err::remove_dir_all(&folder)
        {
            log::warn!("{error}");
        }
        Ok(())
    }
}

/// The version of Kubernetes that the spec names.
pub(super) fn asked_version(object: &Provisioning) -> Option<&str> {
    object.spec.kubernetes.as_ref()?.version.as_deref()
}

fn addresses_name(object: &Provisioning) -> String {
    format!("{}-configmap", object.cluster())
}

/// ICN's `ConfigMap`: the address of each node, by role and name.
fn addresses(object: &Provisioning, nodes: &[NodeStatus]) -> ConfigMap {
    let (namespace, _) = object.key();
    let key = |node: &NodeStatus| {
        let role = if node.roles.contains(&NodeRole::Master) { "MASTER" } else { "WORKER" };
        (format!("{role}_{}", node.name), node.ip.clone())
    };
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(addresses_name(object)),
            namespace: Some(namespace),
            labels: Some([("cluster".to_owned(), object.cluster().to_owned())].into()),
            owner_references: kube::Resource::controller_owner_ref(object, &()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(nodes.iter().map(key).collect()),
        ..ConfigMap::default()
    }
}

/// What does the work.
enum Doing {
    /// This operator, by SSH.
    Ours(Box<Order>),
    /// An image of the user's.
    Job(Box<JobOrder>),
}

/// Why the work could not begin.
pub(super) enum StartError {
    Object(ObjectError),
    Told(String),
}

impl From<ObjectError> for StartError {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

impl From<LoginError> for StartError {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Object(error) => Self::Object(error),
            other => Self::Told(chain(&other)),
        }
    }
}
