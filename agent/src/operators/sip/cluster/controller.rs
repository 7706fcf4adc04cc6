//! Queues and turns of clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_api::meta::ConditionStatus;
use agent_api::metal3::BareMetalHost;
use agent_api::sip::cluster::{FINALIZER, READY, SipCluster, cluster_of};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::ObjectMeta;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Resource as _, ResourceExt as _};
use tokio::sync::{Mutex, OnceCell};

use super::consoles::Consoles;
use super::decide::{self, Member};
use super::infra::{Applied, Backend, Infra, PART_OF, Served, TEMPLATES, auth};
use super::look::{Ahead, Found};
use super::tell::{Told, What};
use crate::operators::kit::objects::key_of;
use crate::operators::kit::turns::{self, refs, related_by_metadata};
use crate::operators::kit::{Base, Failures, Key, Next, Object, ObjectError, Queue, Turn, told_key};
use crate::operators::sip::Settings;
use crate::steps::chain;

/// Pause until hosts are looked for again. A change of a host is noticed at once.
const SEARCH: Duration = Duration::from_secs(300);
/// Pause while services do not all run: what keeps them back need not change an object that is watched.
const STARTING: Duration = Duration::from_secs(15);
/// Pause after another writer changed a host first.
const AGAIN: Duration = Duration::from_millis(200);

/// The controller.
pub(super) struct Controller {
    pub base: Base,
    pub failures: Failures,
    /// All hosts, as they are watched.
    pub hosts: Store<BareMetalHost>,
    /// Set once the watch has listed all hosts.
    pub listed: OnceCell<()>,
    /// Hosts that were changed here and whose change the watch has not told yet. It is locked while hosts are chosen and
    /// claimed, so that clusters do this one after the other.
    pub ahead: Mutex<Ahead>,
    /// Services that are not asked for and whose objects are already removed.
    pub removed: Mutex<BTreeSet<(Key, Infra)>>,
    /// Services of whose objects none is somebody else's.
    pub known: Mutex<BTreeSet<(Key, Infra)>>,
    /// Serial lines that users of jump hosts have.
    pub consoles: Consoles,
    pub settings: Settings,
}

/// Runs the controller of clusters.
pub async fn run(base: Base, settings: &Settings) {
    let (store, changed) = base.changed::<SipCluster>();
    let (hosts, writer) = reflector::store();
    let all = store.clone();
    let of_hosts = turns::related(everywhere::<BareMetalHost>(&base), writer, move |host| {
        all.state_filter(|object: &SipCluster| concerns(object, host))
            .iter()
            .map(|it| ObjectRef::from_obj(&**it))
            .collect()
    });
    let others = queues(&base, &store, &hosts);
    let controller = Controller {
        base: base.clone(),
        failures: Failures::default(),
        hosts,
        listed: OnceCell::new(),
        ahead: Mutex::default(),
        removed: Mutex::default(),
        known: Mutex::default(),
        consoles: Consoles::default(),
        settings: settings.clone(),
    };
    base.run(controller, store, [changed, of_hosts].into_iter().chain(others).collect()).await;
}

fn everywhere<K: Object>(base: &Base) -> (Api<K>, watcher::Config) {
    (Api::all(base.client.clone()), watcher::Config::default())
}

/// Whether the cluster is as its spec asks for.
fn is_settled(object: &SipCluster) -> bool {
    let Some(status) = &object.status else { return false };
    let mut ready = status.conditions.iter().flatten().filter(|condition| condition.kind == READY);
    status.observed_generation == object.metadata.generation
        && ready.any(|condition| condition.status == ConditionStatus::True)
}

fn has(object: &SipCluster, host: &BareMetalHost) -> bool {
    let (namespace, name) = object.key();
    let told = told_key(&host.key());
    let had = object.status.iter().flat_map(|status| &status.nodes).any(|node| node.host == told);
    had || cluster_of(host.labels()) == Some((&namespace, &name))
}

/// Whether a change of the host matters to the cluster: the cluster has the host, had it, or still needs hosts.
fn concerns(object: &SipCluster, host: &BareMetalHost) -> bool {
    has(object, host) || !is_settled(object)
}

/// Whether the host names that Secret: for its BMC or its network data.
fn names(host: &BareMetalHost, secret: &Key) -> bool {
    let (namespace, _) = host.key();
    let bmc = host.spec.bmc.as_ref().map(|bmc| (namespace.clone(), bmc.credentials_name.clone()));
    let data =
        host.spec.network_data.as_ref().and_then(|it| {
            Some((it.namespace.clone().filter(|it| !it.is_empty()).unwrap_or(namespace), it.name.clone()?))
        });
    bmc.as_ref() == Some(secret) || data.as_ref() == Some(secret)
}

/// The cluster that an object was made for.
pub(super) fn owner(meta: &ObjectMeta) -> Vec<ObjectRef<SipCluster>> {
    let within = meta.namespace.clone().unwrap_or_default();
    let owners = meta.owner_references.iter().flatten().filter(|owner| owner.kind == SipCluster::kind(&()));
    owners.map(|owner| ObjectRef::new(&owner.name).within(&within)).collect()
}

/// Clusters that a Secret matters to: the Secret was made for them, belongs to one of their hosts, or has keys for their
/// jump host or what their login is made of.
fn of_secret(meta: &ObjectMeta, all: &Store<SipCluster>, hosts: &Store<BareMetalHost>) -> Vec<ObjectRef<SipCluster>> {
    let secret = key_of(meta);
    let named = hosts.state_filter(|host: &BareMetalHost| names(host, &secret));
    let concerned = |object: &SipCluster| {
        let services = &object.spec.services;
        let keys = services.jump_host.iter().any(|wish| wish.node_ssh_private_keys == secret.1);
        let login = services.auth.iter().flat_map(auth::secrets).any(|name| name == secret.1);
        (keys || login) && object.key().0 == secret.0 || named.iter().any(|host| concerns(object, host))
    };
    let mut found = refs(&all.state_filter(concerned));
    found.extend(owner(meta));
    found
}

/// Clusters that a `ConfigMap` matters to: it was made for them, or has a template for load balancers.
fn of_config_map(meta: &ObjectMeta, all: &Store<SipCluster>) -> Vec<ObjectRef<SipCluster>> {
    let name = meta.name.as_deref().unwrap_or_default();
    if !TEMPLATES.iter().any(|(_, map, _)| *map == name) {
        return owner(meta);
    }
    refs(&all.state_filter(|object: &SipCluster| object.namespace() == meta.namespace))
}

/// Changes of all that a cluster is made of and stands on.
fn queues(base: &Base, all: &Store<SipCluster>, hosts: &Store<BareMetalHost>) -> Vec<Queue<SipCluster>> {
    let ours = || watcher::Config::default().labels(&format!("{}={}", PART_OF.0, PART_OF.1));
    let secrets = {
        let (all, hosts) = (all.clone(), hosts.clone());
        related_by_metadata::<Secret, _>(Api::all(base.client.clone()), watcher::Config::default(), move |meta| {
            of_secret(meta, &all, &hosts)
        })
    };
    let maps = |config: watcher::Config| {
        let all = all.clone();
        related_by_metadata::<ConfigMap, _>(Api::all(base.client.clone()), config, move |meta| {
            of_config_map(meta, &all)
        })
    };
    let mut queues = vec![
        secrets,
        maps(ours()),
        related_by_metadata::<Deployment, _>(Api::all(base.client.clone()), ours(), owner),
        related_by_metadata::<Service, _>(Api::all(base.client.clone()), ours(), owner),
    ];
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    queues.extend(TEMPLATES.iter().map(|(_, map, _)| maps(named(map))));
    queues
}

impl Turn for Controller {
    type Kind = SipCluster;

    async fn turn(&self, object: SipCluster) -> Result<Next, ObjectError> {
        if object.leaves() {
            return self.leave(&object).await;
        }
        if !object.held_by(FINALIZER) {
            self.base.objects.hold(&object, FINALIZER).await?;
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        let wrong = decide::wrong(&object);
        if !wrong.is_empty() {
            self.tell(&object, Told::new(What::Unschedulable, wrong.join("\n"))).await?;
            return Ok(Next::await_change());
        }
        // A watch that ends here ends the controller, too.
        self.listed.get_or_init(async || drop(self.hosts.wait_until_ready().await)).await;
        match self.gather(&object).await? {
            Some(found) => Box::pin(self.conclude(&object, &found)).await,
            None => Ok(Next::requeue(AGAIN)),
        }
    }
}

impl Controller {
    /// Chooses hosts and writes the choice on them. `None` when another writer changed one of them first: the cluster is
    /// then looked at again.
    async fn gather(&self, object: &SipCluster) -> Result<Option<Found>, ObjectError> {
        let mut ahead = self.ahead.lock().await;
        let found = self.look(object, &mut ahead).await?;
        if object.is_dry_run() {
            return Ok(Some(found));
        }
        match self.carry_out(object, &found, &mut ahead).await {
            Ok(true) => Ok(Some(found)),
            Ok(false) => Ok(None),
            Err(error) => {
                self.tell(object, Told::new(What::UnableToApplyLabels, chain(&error))).await?;
                Err(error)
            }
        }
    }

    /// What is done next about the hosts that were found.
    async fn conclude(&self, object: &SipCluster, found: &Found) -> Result<Next, ObjectError> {
        if object.is_dry_run() {
            self.tell(object, Told::dry_run(found)).await?;
            return Ok(Next::requeue(SEARCH));
        }
        self.consoles.keep(&object.key(), &found.choice.kept());
        let mut lacking: Vec<String> = found.choice.short.iter().map(|short| short.why.clone()).collect();
        lacking.extend(found.broken.iter().cloned());
        let failed = found.choice.failed.iter();
        let told =
            |host: &Member, why: &str| format!("{}: {why}; it stays until there is another one", told_key(&host.host));
        lacking.extend(failed.map(|(host, why)| told(host, why)));
        let served = match Box::pin(self.services(object, found)).await {
            Ok(served) => served,
            Err(error) if error.is_stale() => return Err(error),
            Err(error) => {
                let rest = self.failures.one_more(object);
                self.tell(object, Told::new(What::InfraServiceFailure, chain(&error)).with(found)).await?;
                return Ok(Next::requeue(rest));
            }
        };
        self.failures.none(&object.key());
        let (what, why) = match served.applied {
            _ if !lacking.is_empty() => (What::Unschedulable, lacking.join("\n")),
            Applied::Fails(why) => (What::InfraServiceFailure, why),
            Applied::Waits(why) => (What::Progressing, why),
            Applied::Runs => (What::Succeeded, format!("{} hosts are the cluster's", found.choice.members.len())),
        };
        self.tell(object, Told::new(what, why).with(found).trusting(served.auth)).await?;
        let is_incomplete = matches!(what, What::Progressing | What::InfraServiceFailure);
        Ok(Next::requeue(if is_incomplete { STARTING } else { SEARCH }))
    }

    /// Brings up load balancers, jump host and login. Nothing is changed before there are hosts, or while the address of a host is
    /// unknown: what runs goes on.
    async fn services(&self, object: &SipCluster, found: &Found) -> Result<Served, ObjectError> {
        let (choice, broken) = (&found.choice, &found.broken);
        if !broken.is_empty() || !choice.short.is_empty() && choice.members.is_empty() {
            return Ok(Served { applied: Applied::Waits(String::new()), auth: None });
        }
        Box::pin(self.serve(object, &Backend::all(&choice.members, &found.addresses))).await
    }
}
