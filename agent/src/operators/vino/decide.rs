//! What is wrong with a `Vino`, and which machines each node keeps, gets and loses. Pure.
//!
//! ```text
//! hosts of a node, by kind ─┬─ as many as are asked for stay: those that are somebody's, then the first by number
//!                           ├─ too many: the last that are nobody's go; somebody's stay, and that is said
//!                           └─ too few: the first numbers that are free
//! ```
//! A host goes before its machine: the machine stays among the node's values until its host is gone.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::metal3::{BareMetalHost, ProvisioningState};
use agent_api::net::Cidr;
use agent_api::sip::cluster::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE, cluster_of};
use agent_api::sip::selector::{wrong_label_name, wrong_labels};
use agent_api::vino::pool::Range;
use agent_api::vino::spec::{CR_NAME, CR_NAMESPACE, DOMAIN, NODE, Network, NodeSet, Vino, VinoSpec};
use kube::ResourceExt as _;

use super::ipam;
use crate::operators::kit::{Key, Object as _, told_key};

/// Labels of a host that say whose it is.
const RESERVED: [&str; 5] = [CR_NAME, CR_NAMESPACE, CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE];

/// `namespace-name`: what the names of its objects begin with.
pub fn stem(object: &Vino) -> String {
    let (namespace, name) = object.key();
    format!("{namespace}-{name}")
}

/// Name of a host.
pub fn host_name(object: &Vino, node: &str, domain: &str) -> String {
    format!("{}-{node}-{domain}", stem(object))
}

/// Labels of all that is made for it.
pub fn labels(object: &Vino) -> BTreeMap<String, String> {
    let (namespace, name) = object.key();
    [(CR_NAME.to_owned(), name), (CR_NAMESPACE.to_owned(), namespace)].into()
}

/// The `Vino` that an object was made for.
pub fn owner(labels: &BTreeMap<String, String>) -> Option<Key> {
    Some((labels.get(CR_NAMESPACE)?.clone(), labels.get(CR_NAME)?.clone()))
}

/// The range of a network from which nodes give addresses by DHCP.
///
/// # Errors
/// An end of the range is wrong.
pub fn dhcp_range(network: &Network) -> Result<Option<Range>, ipam::IpamError> {
    match (&network.dhcp_allocation_start, &network.dhcp_allocation_stop, &network.instance_subnet) {
        (Some(start), Some(stop), _) => ipam::range(start, stop).map(Some),
        (_, _, Some(subnet)) => ipam::whole(subnet).map(Some),
        _ => Ok(None),
    }
}

/// The range of a network for addresses of bridges and machines.
///
/// # Errors
/// An end of the range is wrong or missing.
pub fn static_range(network: &Network) -> Result<Range, ipam::IpamError> {
    let (start, stop) = network.static_range().unwrap_or_default();
    ipam::range(start, stop)
}

/// All errors of the spec. Most errors are already refused by the schema.
pub fn wrong(object: &Vino) -> Vec<String> {
    let spec = &object.spec;
    let mut all = Vec::new();
    if spec.bmc_credentials.username.is_empty() || spec.bmc_credentials.password.is_empty() {
        all.push("spec.bmcCredentials: `username` or `password` is missing; there is no default".to_owned());
    }
    let selected = spec.node_selector.iter().flat_map(|selector| &selector.match_labels);
    all.extend(wrong_labels("spec.nodeSelector.matchLabels", selected));
    let copied = spec.node_label_keys_to_copy.iter();
    let at = "spec.nodeLabelKeysToCopy";
    all.extend(copied.filter_map(|key| wrong_label_name(at, key).or_else(|| reserved_label(at, key))));
    all.extend(wrong_networks(spec));
    all.extend(wrong_nodes(spec));
    all
}

/// Why hosts cannot be given a label, if they cannot.
fn reserved_label(at: &str, key: &str) -> Option<String> {
    let is_reserved = RESERVED.contains(&key);
    is_reserved.then(|| format!("{at}: found `{key}`, which says whose a host is: nobody else gives that label"))
}

fn wrong_networks(spec: &VinoSpec) -> Vec<String> {
    let mut all = Vec::new();
    for (number, network) in spec.networks.iter().enumerate() {
        let at = format!("spec.networks[{number}] (`{}`)", network.name);
        let Some(subnet) = Cidr::parse(&network.subnet) else {
            all.push(format!("{at}: subnet is `{}`, expected a network such as `192.168.2.0/20`", network.subnet));
            continue;
        };
        let ranges = [("static", static_range(network).map(Some)), ("DHCP", dhcp_range(network))];
        let mut good = Vec::new();
        for (what, found) in ranges {
            match found {
                Err(error) => all.push(format!("{at}: the {what} range: {error}")),
                Ok(Some(range)) => {
                    let within = |text: &str| text.parse().is_ok_and(|address| subnet.contains(address));
                    if within(&range.start) && within(&range.stop) {
                        let reserved = ipam::reserved_in(&network.subnet, &range).filter(|_| what == "DHCP");
                        all.extend(reserved.map(|address| {
                            format!(
                                "{at}: the DHCP range has {address}, which no machine of {subnet} can have",
                                subnet = network.subnet
                            )
                        }));
                        good.push(range);
                    } else {
                        let (start, stop) = (range.start, range.stop);
                        all.push(format!("{at}: the {what} range [{start},{stop}] is not in {}", network.subnet));
                    }
                }
                Ok(None) => {}
            }
        }
        if let [one, other] = &good[..]
            && ipam::overlap(one, other).unwrap_or(false)
        {
            all.push(format!("{at}: the static range and the DHCP range have addresses in common"));
        }
        for other in &spec.networks[..number] {
            if Cidr::parse(&other.subnet).is_some_and(|it| it.overlaps(subnet)) {
                let (name, text) = (&other.name, &other.subnet);
                all.push(format!("{at}: its subnet {} overlaps with {text} of `{name}`", network.subnet));
            }
            if let Some(bridge) = network.bridge_name.as_ref().filter(|_| network.bridge_name == other.bridge_name) {
                all.push(format!("{at}: bridgeName is `{bridge}`, which is that of `{}`, too", other.name));
            }
        }
    }
    all
}

fn wrong_nodes(spec: &VinoSpec) -> Vec<String> {
    let mut all = Vec::new();
    let mut names = BTreeSet::new();
    for (number, set) in spec.nodes.iter().enumerate() {
        let at = format!("spec.nodes[{number}] (`{}`)", set.name);
        if set.name.is_empty() || !names.insert(&set.name) {
            all.push(format!("{at}: found a name that is empty or another one's"));
        }
        let labels = format!("spec.nodes[{number}].bmhLabels");
        all.extend(wrong_labels(&labels, &set.bmh_labels));
        all.extend(set.bmh_labels.keys().filter_map(|key| reserved_label(&labels, key)));
        for interface in &set.network_interfaces {
            if !spec.networks.iter().any(|network| network.name == interface.network) {
                all.push(format!(
                    "{at}: interface `{}` names network `{}`, which is not there",
                    interface.name, interface.network
                ));
            }
        }
        if let Some(name) = set.boot_interface().filter(|name| set.network_interfaces.iter().all(|it| it.name != *name))
        {
            all.push(format!("{at}: bootInterfaceName is `{name}`, expected one of its interfaces"));
        }
    }
    all
}

/// The order of age: time of creation, then name.
fn age(object: &Vino) -> (Option<k8s_openapi::jiff::Timestamp>, Key) {
    (object.metadata.creation_timestamp.as_ref().map(|time| time.0), object.key())
}

/// What this `Vino` asks for and an older one already has.
pub fn conflicts<'a>(object: &Vino, others: impl IntoIterator<Item = &'a Vino>) -> Vec<String> {
    let mut all = Vec::new();
    let earlier = others.into_iter().filter(|other| other.key() != object.key() && age(other) < age(object));
    for other in earlier {
        let name = told_key(&other.key());
        for network in &object.spec.networks {
            for theirs in &other.spec.networks {
                if let Some(why) = shared(network, theirs) {
                    all.push(format!(
                        "network `{}` and network `{}` of Vino `{name}`: {why}",
                        network.name, theirs.name
                    ));
                }
            }
        }
        if stem(other) == stem(object) {
            all.push(format!(
                "Vino `{name}` has hosts of the same names, `{}-...`; hint: give this one another name",
                stem(object)
            ));
        }
    }
    all
}

/// What two networks share although only one can have it. They may share a subnet, but no range.
fn shared(one: &Network, other: &Network) -> Option<String> {
    let (a, b) = (Cidr::parse(&one.subnet)?, Cidr::parse(&other.subnet)?);
    if !a.overlaps(b) {
        return None;
    }
    if a.network() != b.network() {
        return Some(format!("their subnets {} and {} overlap", one.subnet, other.subnet));
    }
    let ranges = |network: &Network| {
        [static_range(network).ok(), dhcp_range(network).ok().flatten()].into_iter().flatten().collect::<Vec<_>>()
    };
    for mine in ranges(one) {
        for theirs in ranges(other) {
            if ipam::overlap(&mine, &theirs).unwrap_or(false) {
                let ends = |range: &Range| format!("[{},{}]", range.start, range.stop);
                let (mine, theirs) = (ends(&mine), ends(&theirs));
                return Some(format!("their ranges {mine} and {theirs} in {} overlap", one.subnet));
            }
        }
    }
    None
}

/// Who uses a host, if anybody.
pub fn user_of(host: &BareMetalHost) -> Option<String> {
    if let Some((namespace, name)) = cluster_of(host.labels()) {
        return Some(format!("SIPCluster {namespace}/{name} has it"));
    }
    let by = host.spec.consumer_ref.as_ref()?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{} {}/{} has it", text(&by.kind), text(&by.namespace), text(&by.name)))
}

/// Why a host is in use, so that it is not deleted even if there are too many.
pub fn in_use(host: &BareMetalHost) -> Option<String> {
    if let Some(user) = user_of(host) {
        return Some(user);
    }
    let is_made = matches!(
        host.state(),
        ProvisioningState::Provisioning | ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned
    );
    (is_made || host.spec.image.is_some() || host.spec.custom_deploy.is_some())
        .then(|| "it has a system, or is getting one".to_owned())
}

/// A host that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    /// Its node.
    pub node: String,
    /// Its machine.
    pub domain: String,
    /// It is being deleted.
    pub leaves: bool,
    /// Why it is in use, if it is.
    pub in_use: Option<String>,
}

impl Existing {
    /// `None` for a host that was not made here.
    pub fn of(host: &BareMetalHost) -> Option<Self> {
        let text = |name: &str| host.annotation(name).map(str::to_owned);
        Some(Self { node: text(NODE)?, domain: text(DOMAIN)?, leaves: host.leaves(), in_use: in_use(host) })
    }
}

/// Which machines a node keeps, gets and loses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    /// Machines that are asked for: index in `spec.nodes`, and name.
    pub wanted: Vec<(usize, String)>,
    /// Machines whose hosts are deleted.
    pub remove: Vec<String>,
    /// Machines that stay as they are until their hosts are gone: those that go, and those that are too many and in use.
    pub lasting: Vec<String>,
    /// Machines that are too many but in use, and why.
    pub stuck: Vec<(String, String)>,
}

/// Decides about the machines of a node. Without `is_asked` the node loses all of them.
pub fn machines(sets: &[NodeSet], node: &str, is_asked: bool, hosts: &[Existing]) -> Machines {
    let mut made = Machines::default();
    let own: Vec<&Existing> = hosts.iter().filter(|host| host.node == node).collect();
    let mut by_set: BTreeMap<&str, Vec<(u32, &Existing)>> = BTreeMap::new();
    for host in own {
        let number = host.domain.rsplit_once('-').and_then(|(set, number)| Some((set, number.parse().ok()?)));
        let (set, number) = number.unwrap_or((host.domain.as_str(), 0));
        by_set.entry(set).or_default().push((number, host));
    }
    for (at, set) in sets.iter().enumerate() {
        let count = if is_asked { usize::try_from(set.count).unwrap_or_default() } else { 0 };
        let had = by_set.remove(set.name.as_str()).unwrap_or_default();
        let stays = trim(&mut made, had.clone(), count);
        let taken: BTreeSet<u32> = had.iter().map(|(number, _)| *number).collect();
        let free = (0..).filter(|number| !taken.contains(number)).take(count.saturating_sub(stays.len()));
        let mut numbers: Vec<u32> = stays.into_iter().chain(free).collect();
        numbers.sort_unstable();
        made.wanted.extend(numbers.into_iter().map(|number| (at, format!("{}-{number}", set.name))));
    }
    for (_, had) in by_set {
        trim(&mut made, had, 0);
    }
    made
}

/// Numbers of the hosts that stay: at most `count`, and more only if they are in use.
fn trim(made: &mut Machines, mut had: Vec<(u32, &Existing)>, count: usize) -> Vec<u32> {
    had.sort_unstable_by_key(|(number, _)| *number);
    let (leaving, mut stays): (Vec<_>, Vec<_>) = had.into_iter().partition(|(_, host)| host.leaves);
    made.lasting.extend(leaving.into_iter().map(|(_, host)| host.domain.clone()));
    while stays.len() > count {
        if let Some(at) = stays.iter().rposition(|(_, host)| host.in_use.is_none()) {
            let (_, host) = stays.remove(at);
            made.remove.push(host.domain.clone());
            made.lasting.push(host.domain.clone());
        } else if let Some((_, host)) = stays.pop() {
            made.stuck.push((host.domain.clone(), host.in_use.clone().unwrap_or_default()));
            made.lasting.push(host.domain.clone());
        }
    }
    stays.into_iter().map(|(number, _)| number).collect()
}

/// Labels of a host: those of the node that are to be copied, then those of its kind, which win.
///
/// # Errors
/// Labels that the node does not have.
pub fn host_labels(
    object: &Vino,
    set: &NodeSet,
    node_labels: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Vec<String>> {
    let mut labels = labels(object);
    let mut missing = Vec::new();
    for key in &object.spec.node_label_keys_to_copy {
        match node_labels.get(key) {
            Some(value) if !value.is_empty() => drop(labels.insert(key.clone(), value.clone())),
            _ if set.bmh_labels.contains_key(key) => {}
            _ => missing.push(key.clone()),
        }
    }
    labels.extend(set.bmh_labels.clone());
    if missing.is_empty() { Ok(labels) } else { Err(missing) }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
