//! Writes the objects of a `Vino`: those that all nodes share, the values of each node, and the hosts.
//!
//! ```text
//! Secrets, ConfigMap, account, DaemonSet ─► addresses ─► node's values ─► its pod makes the machines, and says so ─► hosts
//!                                                             └─ a host goes ─► its machine leaves the values ─► address is free
//! ```

use std::collections::{BTreeMap, BTreeSet};

use agent_api::metal3::BareMetalHost;
use agent_api::net::MacAddress;
use agent_api::vino::spec::{MAC_PREFIX, Network, Vino, VinoNode};
use agent_api::vino::values::{DomainState, DomainValues, Named, NodeValues, VALUES};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::controller::Controller;
use super::decide::{self, Existing, Machines, host_name};
use super::ipam::{self, Want};
use super::look::{Given, NodeFound};
use super::objects::{self, HostWish, Names, host_secrets};
use super::pools::PoolError;
use super::run::MANAGER;
use super::tell::Part;
use super::template::{self, Machine};
use super::values::{self, Addresses, Common};
use crate::operators::kit::{Object, ObjectError, doing, told_key};
use crate::steps::chain;

/// What all nodes share, once it is written.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// Templates of libvirt.
    pub templates: Option<Named>,
    /// Credentials of Redfish.
    pub credentials: Named,
    /// How far the pods are.
    pub pods: Part,
}

/// The result of a turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    pub nodes: Vec<VinoNode>,
    pub has: usize,
    pub wanted: usize,
    pub wrong: Vec<String>,
    pub waits: Vec<String>,
}

/// A node, and which machines it keeps, gets and loses.
struct Planned<'a> {
    node: &'a NodeFound,
    machines: Machines,
    /// The values to write; `None` for a node that never had any.
    values: Option<NodeValues>,
}

fn named<K: Object>(object: &K) -> Named {
    Named { name: object.name_any(), version: object.resource_version().unwrap_or_default() }
}

impl Controller {
    /// Makes what all nodes share. Else what is wrong with a template, in words.
    pub(super) async fn share(&self, object: &Vino, given: &Given) -> Result<Result<Shared, String>, ObjectError> {
        let (ground, objects, names) = (&self.settings.ground, &self.base.objects, Names::of(object));
        let template = given.daemon_set.as_ref().map(|(_, text)| text.as_str());
        let daemon_set = match objects::daemon_set(object, ground, template) {
            Ok(made) => made,
            Err(why) => {
                let at = given.daemon_set.as_ref().map_or("", |(at, _)| at);
                return Ok(Err(format!("{at}: key `template` {why}")));
            }
        };
        let credentials = objects.apply(&objects::credentials(object, ground, &names.bmc), MANAGER).await?;
        let templates = if given.templates.is_empty() {
            self.remove::<ConfigMap>(object, &names.libvirt).await?;
            None
        } else {
            let map = objects::templates(object, ground, given.templates.clone());
            Some(named(&objects.apply(&map, MANAGER).await?))
        };
        let (account, role, binding) = objects::rights(object, ground);
        objects.apply(&account, MANAGER).await?;
        objects.apply(&role, MANAGER).await?;
        objects.apply(&binding, MANAGER).await?;
        let daemon_set = objects.apply(&daemon_set, MANAGER).await?;
        Ok(Ok(Shared { templates, credentials: named(&credentials), pods: pods(&daemon_set) }))
    }

    /// Removes an object if it was made for this `Vino`. An object of a user with the same name stays.
    pub(super) async fn remove<K: Object>(&self, object: &Vino, name: &str) -> Result<(), ObjectError> {
        let namespace = &self.settings.ground.namespace;
        let found = self.base.objects.get::<K>(namespace, name).await?;
        if found.is_some_and(|found| decide::owner(found.labels()) == Some(object.key())) {
            self.base.objects.delete::<K>(namespace, name).await?;
        }
        Ok(())
    }

    /// Machines and hosts of all nodes.
    pub(super) async fn machines(
        &self,
        object: &Vino,
        given: &Given,
        shared: &Shared,
        nodes: &[NodeFound],
        hosts: &[BareMetalHost],
    ) -> Result<Made, ObjectError> {
        let existing: Vec<Existing> = hosts.iter().filter_map(Existing::of).collect();
        let sets = &object.spec.nodes;
        let machines = |node: &NodeFound| decide::machines(sets, &node.name, node.is_asked, &existing);
        let planned = nodes.iter().map(|node| Planned { node, machines: machines(node), values: None });
        let mut planned: Vec<Planned<'_>> = planned.collect();
        let mut made = Made { wanted: planned.iter().map(|it| it.machines.wanted.len()).sum(), ..Made::default() };
        made.wrong = named_twice(object, &planned);
        if !made.wrong.is_empty() {
            return Ok(made);
        }
        let addresses = match self.addresses(object, &planned).await {
            Ok(addresses) => addresses,
            Err(PoolError::Object(error)) => return Err(error),
            Err(error) => {
                made.wrong.push(error.to_string());
                return Ok(made);
            }
        };
        let common = Common {
            flavors: given.flavors.clone(),
            node_count: nodes.iter().filter(|node| node.is_asked).count(),
            templates: shared.templates.clone(),
            credentials: Some(shared.credentials.clone()),
            namespace: self.settings.ground.namespace.clone(),
        };
        for one in &mut planned {
            match values_of(object, one, &common, &addresses) {
                Ok(values) => one.values = values,
                Err(error) => made.wrong.push(format!("node `{}`: {error}", one.node.name)),
            }
        }
        let network_data = match network_data(object, given, &planned) {
            Ok(all) => all,
            Err(why) => {
                made.wrong.push(why);
                return Ok(made);
            }
        };
        self.keep_secrets(object, hosts, &planned).await?;
        for one in &planned {
            self.annotate(one).await?;
            let told = self.hosts_of(object, one, hosts, &network_data).await?;
            made.has += told.has;
            made.wrong.extend(told.wrong.iter().map(|why| format!("node `{}`: {why}", one.node.name)));
            made.waits.extend(told.waits.iter().map(|why| format!("node `{}`: {why}", one.node.name)));
            made.nodes.push(VinoNode {
                name: one.node.name.clone(),
                hosts: told.has,
                accelerator: one.node.report.as_ref().and_then(|it| it.accelerator).map(|it| it.word().to_owned()),
                why: told.wrong.first().or(told.waits.first()).cloned(),
            });
        }
        if !nodes.iter().any(|node| node.is_asked) && made.wrong.is_empty() {
            made.waits.push("no node that `nodeSelector` selects has a pod of the DaemonSet yet".to_owned());
        }
        Ok(made)
    }

    /// Gives each bridge and machine its address, and frees addresses that are not used any more.
    async fn addresses(&self, object: &Vino, planned: &[Planned<'_>]) -> Result<Addresses, PoolError> {
        let mut all = Addresses::default();
        let vino = told_key(&object.key());
        for network in &object.spec.networks {
            let range = decide::static_range(network)?;
            let dhcp = decide::dhcp_range(network)?;
            let prefix = network.mac_prefix.as_deref().unwrap_or(MAC_PREFIX);
            let given = self
                .pools
                .change(&network.subnet, prefix, |pool, taken| {
                    let mut given = Addresses::default();
                    let (needs, keeps) = (needs(object, network, planned), kept(object, planned));
                    let exact: BTreeSet<&str> = needs.iter().map(|need| need.to.as_str()).collect();
                    let stays = |to: &str| exact.contains(to) || keeps(to);
                    ipam::free(pool, &vino, &stays, std::slice::from_ref(&range));
                    ipam::add_range(pool, &range)?;
                    for need in &needs {
                        let want = Want { vino: &vino, to: &need.to, mac: need.mac };
                        let one = ipam::allocate(pool, &range, want, taken)?;
                        let at = (network.name.clone(), need.of.clone());
                        if need.is_bridge {
                            given.bridges.insert(at.clone(), one);
                            if let Some(dhcp) = &dhcp {
                                let piece = ipam::allocate_piece(pool, dhcp, network.bit_step(), &vino, &need.of)?;
                                given.pieces.insert(at, piece);
                            }
                        } else {
                            given.machines.insert(at, one);
                        }
                    }
                    if dhcp.is_none() {
                        pool.allocated_ranges.retain(|piece| piece.vino != vino);
                    }
                    Ok(given)
                })
                .await?;
            all.bridges.extend(given.bridges);
            all.pieces.extend(given.pieces);
            all.machines.extend(given.machines);
        }
        let subnets: Vec<&str> = object.spec.networks.iter().map(|network| network.subnet.as_str()).collect();
        self.pools.free_others(&vino, &subnets).await?;
        Ok(all)
    }

    /// Writes the Secret with the screens' passwords, and removes Secrets of hosts that are gone.
    async fn keep_secrets(
        &self,
        object: &Vino,
        hosts: &[BareMetalHost],
        planned: &[Planned<'_>],
    ) -> Result<(), ObjectError> {
        let (ground, names) = (&self.settings.ground, Names::of(object));
        let domains = || planned.iter().flat_map(|one| one.values.iter().flat_map(|values| &values.domains));
        let screens: Vec<String> = domains().filter_map(|it| it.vnc.as_ref().map(|vnc| vnc.key.clone())).collect();
        let mut kept: BTreeSet<String> = [names.bmc.clone()].into();
        if !screens.is_empty() {
            let had = self.base.objects.get::<Secret>(&ground.namespace, &names.vnc).await?;
            self.base.objects.apply(&objects::vnc(object, ground, &screens, had.as_ref()), MANAGER).await?;
            kept.insert(names.vnc);
        }
        let of_hosts = hosts.iter().map(ResourceExt::name_any);
        let of_domains = domains().filter_map(|it| it.host.split_once('/').map(|(_, name)| name.to_owned()));
        kept.extend(of_hosts.chain(of_domains).flat_map(|host| host_secrets(&host)));
        self.remove_secrets(object, &kept).await
    }

    /// Removes the Secrets that were made for this `Vino`, except the `kept` ones.
    pub(super) async fn remove_secrets(&self, object: &Vino, kept: &BTreeSet<String>) -> Result<(), ObjectError> {
        let namespace = &self.settings.ground.namespace;
        let own = ListParams::default().labels(&objects::selector(object));
        let api = self.base.objects.api::<Secret>(namespace);
        let all = api.list_metadata(&own).await.map_err(doing("listing Secrets"))?;
        for secret in all.items.iter().map(ResourceExt::name_any).filter(|name| !kept.contains(name)) {
            self.base.objects.delete::<Secret>(namespace, &secret).await?;
        }
        Ok(())
    }

    /// Writes the values of a node into its annotation, or removes the annotation when nothing is left.
    async fn annotate(&self, one: &Planned<'_>) -> Result<(), ObjectError> {
        let node = one.node;
        let Some(values) = &one.values else { return Ok(()) };
        if is_empty(values) && (node.values.is_none() || is_cleared(node)) {
            return self.write(node, None).await;
        }
        self.write(node, Some(values)).await
    }

    /// Writes the annotation of a node, unless somebody changed the node in between.
    pub(super) async fn write(&self, node: &NodeFound, values: Option<&NodeValues>) -> Result<(), ObjectError> {
        let is_same = match (values, &node.values) {
            (None, None) => true,
            (Some(values), Some(had)) => values.hash == had.hash,
            _ => false,
        };
        if is_same || !node.is_there {
            return Ok(());
        }
        let doing_it = || doing(format!("writing on node `{}`", node.name));
        let text = values.map(serde_saphyr::to_string).transpose();
        let text = text.map_err(|error| doing_it()(kube::Error::Service(error.into())))?;
        let change = json!({"metadata": {"annotations": {VALUES: text}, "resourceVersion": node.version}});
        let api = Api::<Node>::all(self.base.client.clone());
        let written = api.patch(&node.name, &PatchParams::default(), &Patch::Merge(change)).await;
        match written.map_err(doing_it()) {
            Err(error) if error.is_gone() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Creates the hosts of a node whose machines are there, and deletes hosts that are too many.
    async fn hosts_of(
        &self,
        object: &Vino,
        one: &Planned<'_>,
        hosts: &[BareMetalHost],
        network_data: &BTreeMap<String, String>,
    ) -> Result<Made, ObjectError> {
        let mut made = Made::default();
        let (node, machines) = (one.node, &one.machines);
        if let Some(other) = &node.of_another {
            made.wrong.push(format!("it is Vino `{other}`'s, and a node has one; hint: another `nodeSelector`"));
        }
        made.wrong.extend(node.unreadable.clone());
        let by_name: BTreeMap<String, &BareMetalHost> = hosts.iter().map(|host| (host.name_any(), host)).collect();
        for domain in &machines.remove {
            self.base
                .objects
                .delete::<BareMetalHost>(&self.settings.ground.namespace, &host_name(object, &node.name, domain))
                .await?;
        }
        for domain in machines.lasting.iter().filter(|it| !machines.stuck.iter().any(|(stuck, _)| stuck == *it)) {
            made.waits.push(format!("host `{}` is being deleted", host_name(object, &node.name, domain)));
        }
        for (domain, why) in &machines.stuck {
            let name = host_name(object, &node.name, domain);
            made.waits.push(format!("host `{name}` is one too many, and {why}: it goes when it is given up"));
        }
        // What libvirt refuses is said of what is asked for now, and not of what was before.
        let current = one.values.as_ref().and_then(|values| node.report.as_ref().filter(|it| it.hash == values.hash));
        made.wrong.extend(current.map(agent_api::vino::values::NodeReport::wrong).unwrap_or_default());
        let Some(values) = one.values.as_ref().filter(|_| node.is_asked) else { return Ok(made) };
        let Some(ip) = &node.ip else {
            made.wrong.push("it has no address of type `InternalIP`, which its hosts' BMC is reached at".to_owned());
            return Ok(made);
        };
        for (at, domain) in &machines.wanted {
            let set = &object.spec.nodes[*at];
            let name = host_name(object, &node.name, domain);
            let had = by_name.get(&name).copied();
            let is_made = current.is_some_and(|report| {
                report
                    .domains
                    .iter()
                    .any(|it| it.name == *domain && it.state != DomainState::Absent && it.error.is_none())
            });
            let labels = match decide::host_labels(object, set, &node.labels) {
                Ok(labels) => labels,
                Err(missing) => {
                    made.has += usize::from(had.is_some());
                    let missing = missing.join("`, `");
                    made.wrong.push(format!(
                        "it has no label `{missing}`, which `nodeLabelKeysToCopy` names: host `{name}` waits for it; hint: \
                         `kubectl label node {} ...`, or say it in `bmhLabels`",
                        node.name
                    ));
                    continue;
                }
            };
            if had.is_none() && !is_made {
                let why = if node.has_pod { "is being made" } else { "waits for the node's pod" };
                made.waits.push(format!("machine `{domain}` {why}"));
                continue;
            }
            let boot_mac =
                values.domains.iter().find(|it| it.name == *domain).map_or("", |it| it.boot_mac_address.as_str());
            let wish = HostWish {
                name: &name,
                node: &node.name,
                node_ip: ip,
                domain,
                boot_mac,
                set,
                labels,
                has_network_data: network_data.contains_key(&name),
            };
            match self.host(object, &wish, had, network_data.get(&name)).await {
                Ok(Ok(())) => made.has += 1,
                Ok(Err(why)) => made.wrong.push(why),
                // Such as another MAC address for booting, which a host cannot get. The other hosts go on.
                Err(error) if error.is_refused() => {
                    made.has += usize::from(had.is_some());
                    made.wrong.push(chain(&error));
                }
                Err(error) => return Err(error),
            }
        }
        if current.is_none() && !is_empty(values) && made.waits.is_empty() {
            made.waits.push("its pod has not said yet that all is as it is asked for".to_owned());
        }
        Ok(made)
    }

    /// Writes a host with its Secrets. An error text when a host of that name belongs to somebody else.
    async fn host(
        &self,
        object: &Vino,
        wish: &HostWish<'_>,
        had: Option<&BareMetalHost>,
        network_data: Option<&String>,
    ) -> Result<Result<(), String>, ObjectError> {
        let (ground, objects) = (&self.settings.ground, &self.base.objects);
        if had.is_none() && objects.get::<BareMetalHost>(&ground.namespace, wish.name).await?.is_some() {
            return Ok(Err(format!(
                "BareMetalHost `{}/{}` is there, and was not made here",
                ground.namespace, wish.name
            )));
        }
        let [credentials, data] = host_secrets(wish.name);
        objects.apply(&objects::credentials(object, ground, &credentials), MANAGER).await?;
        if let Some(text) = network_data {
            let data = objects::secret(object, ground, &data, [("networkData".to_owned(), text.clone())]);
            objects.apply(&data, MANAGER).await?;
        }
        objects.apply(&objects::host(ground, wish, had), MANAGER).await?;
        Ok(Ok(()))
    }
}

/// How far the pods of nodes are.
fn pods(daemon_set: &DaemonSet) -> Part {
    let status = daemon_set.status.clone().unwrap_or_default();
    let (wanted, ready) = (status.desired_number_scheduled, status.number_ready);
    if status.observed_generation != daemon_set.metadata.generation {
        return Part::Waits("the DaemonSet is not looked at yet".to_owned());
    }
    if wanted == 0 {
        return Part::Waits("no node has the labels of `nodeSelector`".to_owned());
    }
    if ready < wanted {
        return Part::Waits(format!("{ready} of {wanted} pods are ready"));
    }
    let old = wanted - status.updated_number_scheduled.unwrap_or_default();
    let why = if old > 0 {
        format!(
            ", {old} of them as they were asked for before: a pod is replaced when somebody deletes it, and takes its machines down"
        )
    } else {
        String::new()
    };
    Part::Done(format!("{ready} of {wanted} pods are ready{why}"))
}

/// Whether the values ask for nothing.
pub(super) fn is_empty(values: &NodeValues) -> bool {
    values.domains.is_empty() && values.networks.is_empty()
}

/// Whether nothing of its values is left on a node, as far as that can be known.
pub(super) fn is_cleared(node: &NodeFound) -> bool {
    let Some(values) = &node.values else { return true };
    let is_clear = |node: &NodeFound| {
        node.current().is_some_and(|report| {
            report.domains.iter().all(|it| it.state == DomainState::Absent) && report.networks.is_empty()
        })
    };
    is_empty(values) && (!node.has_pod || is_clear(node)) || !node.is_there
}

fn values_of(
    object: &Vino,
    one: &Planned<'_>,
    common: &Common,
    addresses: &Addresses,
) -> Result<Option<NodeValues>, serde_json::Error> {
    let lasting = &one.machines.lasting;
    let Some(before) = &one.node.values else {
        let made = || values::of_node(object, &one.node.name, (&one.machines.wanted, &[]), common, addresses);
        return one.node.is_asked.then(made).transpose();
    };
    if !one.node.is_asked {
        return values::leaving(before, lasting).map(Some);
    }
    let lasting: Vec<DomainValues> =
        before.domains.iter().filter(|domain| lasting.contains(&domain.name)).cloned().collect();
    values::of_node(object, &one.node.name, (&one.machines.wanted, &lasting), common, addresses).map(Some)
}

/// Machines of two nodes whose hosts would be called the same: they would have one address.
fn named_twice(object: &Vino, planned: &[Planned<'_>]) -> Vec<String> {
    let mut all: BTreeMap<String, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for one in planned {
        for (_, domain) in &one.machines.wanted {
            let (name, node) = (host_name(object, &one.node.name, domain), one.node.name.as_str());
            if let Some(other) = all.insert(name.clone(), node) {
                wrong.push(format!(
                    "nodes `{other}` and `{node}` would both have a host `{name}`; hint: give one kind in `nodes` another name"
                ));
            }
        }
    }
    wrong
}

/// Who needs an address of a network.
struct Need {
    to: String,
    /// A node, or a host.
    of: String,
    is_bridge: bool,
    /// The MAC address that it has already.
    mac: Option<MacAddress>,
}

fn needs(object: &Vino, network: &Network, planned: &[Planned<'_>]) -> Vec<Need> {
    let mut all = Vec::new();
    for one in planned.iter().filter(|one| one.node.is_asked) {
        let (node, before) = (&one.node.name, one.node.values.as_ref());
        let had = before.and_then(|values| values.networks.iter().find(|it| it.name == network.name));
        let mac = had.and_then(|it| it.bridge_mac.parse().ok());
        all.push(Need { to: node.clone(), of: node.clone(), is_bridge: true, mac });
        for (at, domain) in &one.machines.wanted {
            let interfaces = &object.spec.nodes[*at].network_interfaces;
            if !interfaces.iter().any(|interface| interface.network == network.name) {
                continue;
            }
            let had = before.and_then(|values| values.domains.iter().find(|it| it.name == *domain));
            let had = had.and_then(|it| it.interfaces.iter().find(|it| it.network == network.name));
            let host = host_name(object, node, domain);
            let mac = had.and_then(|it| it.mac_address.parse().ok());
            all.push(Need { to: format!("{host}/{}", network.name), of: host, is_bridge: false, mac });
        }
    }
    all
}

/// Which owners keep their address although they are not asked for any more: those whose machine is not gone yet.
fn kept(object: &Vino, planned: &[Planned<'_>]) -> impl Fn(&str) -> bool + use<> {
    let mut hosts = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    for one in planned {
        let wanted: BTreeSet<&str> = one.machines.wanted.iter().map(|(_, name)| name.as_str()).collect();
        let reported = one.node.report.iter().flat_map(|report| &report.domains);
        let there = reported.filter(|it| it.state != DomainState::Absent).map(|it| it.name.as_str());
        let lasting = one.machines.lasting.iter().map(String::as_str);
        hosts.extend(
            there.chain(lasting).filter(|it| !wanted.contains(it)).map(|it| host_name(object, &one.node.name, it)),
        );
        if one.node.values.is_some() && !is_cleared(one.node) {
            nodes.insert(one.node.name.clone());
        }
    }
    move |to: &str| nodes.contains(to) || to.split_once('/').is_some_and(|(host, _)| hosts.contains(host))
}

/// Network data of all machines, by their hosts.
fn network_data(object: &Vino, given: &Given, planned: &[Planned<'_>]) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for one in planned {
        let Some(values) = &one.values else { continue };
        for (at, name) in &one.machines.wanted {
            let set = &object.spec.nodes[*at];
            let Some((from, template)) = given.network_data.get(&set.name) else { continue };
            let Some(domain) = values.domains.iter().find(|domain| domain.name == *name) else { continue };
            let host = host_name(object, &one.node.name, name);
            let machine = Machine { host: &host, set, networks: &values.networks, domain };
            let text =
                template::network_data(template, &machine).map_err(|why| format!("{from} host `{host}`: {why}"))?;
            all.insert(host, text);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `n` with kind `x-y`, and of `n-x` with kind `y`.
    #[test]
    fn two_machines_are_not_one_host() {
        let object = Vino::new("v", agent_api::vino::spec::VinoSpec::default());
        let node = |name: &str| NodeFound { name: name.to_owned(), ..NodeFound::default() };
        let (one, other) = (node("n"), node("n-x"));
        let planned = |node, wanted: &[&str]| {
            let wanted = wanted.iter().map(|name| (0, (*name).to_owned())).collect();
            Planned { node, machines: Machines { wanted, ..Machines::default() }, values: None }
        };
        let wrong = named_twice(&object, &[planned(&one, &["x-y-0", "y-0"]), planned(&other, &["y-0"])]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("nodes `n` and `n-x` would both have a host `-v-n-x-y-0`"), "{wrong:?}");
        assert!(named_twice(&object, &[planned(&one, &["y-0"]), planned(&other, &["y-0"])]).is_empty());
    }
}
