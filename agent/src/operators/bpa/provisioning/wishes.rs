//! What a `Provisioning` asks for, checked: nodes with their roles, networks, version. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_api::clusters::provisioning::{CLUSTER_LABEL, Cni, NodeRole, NodeWish, Provisioning, StorageWish};
use agent_api::metal3::host_firmware_settings::IntOrString;
use agent_api::net::{Cidr, MacAddress, is_label};
use agent_api::sip::auth::AuthStatus;

use super::tenant::Tenant;
use crate::operators::kit::Key;

/// Default addresses of pods: ICN's own.
const POD_CIDR: &str = "10.244.64.0/18";
/// Default addresses of Services: ICN's own.
const SERVICE_CIDR: &str = "10.244.0.0/18";
/// Addresses that each node has for its pods: Kubernetes' default.
const NODE_PREFIX: u8 = 24;
/// The same for IPv6.
const NODE_PREFIX_V6: u8 = 64;
/// Possible numbers of masters: etcd needs a majority.
const MASTERS: [usize; 3] = [1, 3, 5];

/// A node that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedNode {
    /// Its name in the cluster.
    pub name: String,
    /// Its role.
    pub roles: Vec<NodeRole>,
    /// The MAC address by which it is found, as it was written.
    pub mac: Option<(MacAddress, String)>,
    /// Processors that it has at least.
    pub cpu: i64,
    /// Memory that it has at least, in MiB.
    pub memory_mib: i64,
    /// Whether it must be able to do SR-IOV.
    pub sriov: bool,
    /// Whether it must have `QuickAssist`.
    pub qat: bool,
    /// Labels that the host must have.
    pub labels: BTreeMap<String, String>,
    /// Its host, if a `SIPCluster` chose it.
    pub host: Option<Key>,
    /// The address at which that cluster's load balancer reaches it.
    pub address: Option<IpAddr>,
}

/// A cluster that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub cluster: String,
    /// Its nodes: masters first, each role in the order of the spec.
    pub nodes: Vec<WantedNode>,
    /// Addresses of pods.
    pub pod_cidr: String,
    /// Addresses of Services.
    pub service_cidr: String,
    /// Where the API is reached: host and port; the first master when `None`.
    pub endpoint: Option<(String, u16)>,
    /// An address that the masters keep among themselves.
    pub virtual_ip: Option<IpAddr>,
    /// The network of its pods.
    pub cni: Cni,
    /// Whether it gets the metrics API. `None`: if the box carries it.
    pub metrics: Option<bool>,
    /// What makes its volumes. `None`: local-path-provisioner, if the box carries it.
    pub storage: Option<StorageWish>,
    /// Who its users are, beside those of certificates and tokens of its own.
    pub auth: Option<AuthStatus>,
}

impl Wanted {
    /// Reads the spec; the nodes are those of `tenant` where it names one.
    ///
    /// # Errors
    /// All that is wrong, each with its path.
    pub fn of(object: &Provisioning, tenant: Option<&Tenant>) -> Result<Self, Vec<String>> {
        let spec = &object.spec;
        let mut wrong = Vec::new();
        let nodes = tenant.map_or_else(|| asked(object, &mut wrong), |tenant| tenant.nodes.clone());
        let masters = nodes.iter().filter(|node| node.roles.contains(&NodeRole::Master)).count();
        if !MASTERS.contains(&masters) {
            let place = tenant.map_or_else(|| "spec.masters".to_owned(), Tenant::control_plane);
            wrong.push(format!("{place} has {masters} nodes, and etcd needs 1, 3 or 5"));
        }
        wrong.extend(unfit_name(object));
        let (pod_cidr, service_cidr) = networks(object, nodes.len(), &mut wrong);
        let kubernetes = spec.kubernetes.clone().unwrap_or_default();
        let named = kubernetes.control_plane_endpoint.is_some() || kubernetes.virtual_ip.is_some();
        let balanced = tenant.and_then(|tenant| tenant.endpoint.clone()).filter(|_| !named);
        let endpoint = kubernetes.control_plane_endpoint.as_deref().and_then(|text| match endpoint(text) {
            Ok(endpoint) => Some(endpoint),
            Err(why) => {
                wrong.push(why);
                None
            }
        });
        let virtual_ip = kubernetes.virtual_ip.as_deref().and_then(|text| match text.parse::<IpAddr>() {
            Ok(address) if !address.is_loopback() && !address.is_multicast() && !address.is_unspecified() => {
                Some(address)
            }
            _ => {
                wrong.push(format!(
                    "spec.kubernetes.virtualIP is `{text}`, expected a free address of the servers' network"
                ));
                None
            }
        });
        if kubernetes.control_plane_endpoint.is_some() && kubernetes.virtual_ip.is_some() {
            wrong.push("spec.kubernetes has `controlPlaneEndpoint` and `virtualIP`; keep one of them".to_owned());
        }
        let by_box = spec.installer.is_none();
        if by_box && masters > 1 && !named && balanced.is_none() {
            wrong.push(format!(
                "spec.kubernetes.virtualIP is missing: {masters} masters need an address at which one of them always \
                 answers; hint: name a free address of the servers' network, or a load balancer in `controlPlaneEndpoint`"
            ));
        }
        installed_by_others(object, &mut wrong);
        let wanted = Self {
            cluster: object.cluster().to_owned(),
            nodes,
            pod_cidr,
            service_cidr,
            endpoint: endpoint.or(balanced),
            virtual_ip,
            cni: kubernetes.cni.unwrap_or_default(),
            metrics: kubernetes.metrics,
            storage: kubernetes.storage,
            auth: tenant.and_then(|tenant| tenant.auth.clone()),
        };
        if wrong.is_empty() { Ok(wanted) } else { Err(wrong) }
    }
}

impl WantedNode {
    /// Whether any server fits.
    fn is_any(&self) -> bool {
        let resources = self.cpu > 0 || self.memory_mib > 0 || self.sriov || self.qat;
        self.mac.is_none() && !resources && self.labels.is_empty()
    }

    /// The MAC address as it was written, for messages.
    pub fn written(&self) -> &str {
        self.mac.as_ref().map_or("", |(_, written)| written)
    }
}

/// Nodes that the spec itself asks for.
fn asked(object: &Provisioning, wrong: &mut Vec<String>) -> Vec<WantedNode> {
    let spec = &object.spec;
    let selector = spec.node_selector.clone().unwrap_or_default();
    let mut nodes: Vec<WantedNode> = Vec::new();
    for (at, item) in spec.masters.iter().enumerate() {
        for (name, wish) in item {
            let path = format!("spec.masters[{at}].{name}");
            let node = read(name, wish, &path, NodeRole::Master, &selector.masters, wrong);
            if nodes.iter().any(|other| other.name == node.name) {
                wrong.push(already(&node));
            } else if node.is_any() {
                wrong.push(format!("MAC address for masterNode {name} not provided"));
            }
            nodes.push(node);
        }
    }
    for (at, item) in spec.workers.iter().enumerate() {
        for (name, wish) in item {
            let path = format!("spec.workers[{at}].{name}");
            let node = read(name, wish, &path, NodeRole::Worker, &selector.workers, wrong);
            add_worker(&mut nodes, node, wrong);
        }
    }
    if !nodes.iter().any(|node| node.roles.contains(&NodeRole::Worker)) {
        for node in &mut nodes {
            node.roles.push(NodeRole::Worker);
        }
    }
    nodes
}

/// Errors for keys of the spec that an installer in an image decides by itself.
fn installed_by_others(object: &Provisioning, wrong: &mut Vec<String>) {
    if object.spec.installer.is_none() {
        return;
    }
    let kubernetes = object.spec.kubernetes.clone().unwrap_or_default();
    let said = [
        ("version", kubernetes.version.is_some()),
        ("serviceCIDR", kubernetes.service_cidr.is_some()),
        ("virtualIP", kubernetes.virtual_ip.is_some()),
        ("cni", kubernetes.cni.is_some()),
        ("metrics", kubernetes.metrics.is_some()),
        ("storage", kubernetes.storage.is_some()),
    ];
    for (key, _) in said.into_iter().filter(|(_, said)| *said) {
        wrong.push(format!(
            "spec.kubernetes.{key} is for the box's own installer; the image of `spec.installer` chooses it"
        ));
    }
}

/// ICN's rule: a name that is both master and worker, with the same MAC address or with none, is one node with both roles.
fn add_worker(nodes: &mut Vec<WantedNode>, node: WantedNode, wrong: &mut Vec<String>) {
    let mac = node.mac.as_ref().map(|(mac, _)| *mac);
    let of = |other: &WantedNode| other.mac.as_ref().map(|(mac, _)| *mac);
    if let Some(same) = nodes.iter_mut().find(|other| other.name == node.name) {
        if same.roles == [NodeRole::Master] && (mac.is_none() || mac == of(same)) {
            same.roles.push(NodeRole::Worker);
        } else {
            wrong.push(already(&node));
        }
        return;
    }
    if let Some(other) = nodes.iter().find(|other| mac.is_some() && of(other) == mac) {
        wrong.push(already(&WantedNode { name: other.name.clone(), ..node }));
        return;
    }
    if node.is_any() {
        wrong.push(format!("MAC address for workerNode {} not provided", node.name));
        return;
    }
    nodes.push(node);
}

fn already(node: &WantedNode) -> String {
    format!(
        "A node with label {} already exists, modify resource and assign a different label to node with MACAddress {}",
        node.name,
        node.written()
    )
}

fn read(
    name: &str,
    wish: &NodeWish,
    path: &str,
    role: NodeRole,
    labels: &BTreeMap<String, String>,
    wrong: &mut Vec<String>,
) -> WantedNode {
    if !is_label(name) {
        wrong.push(format!("{path}: `{name}` is no name of a node: a to z, 0 to 9, `-` inside, at most 63 characters"));
    }
    let written = wish.mac_address.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let mac = written.and_then(|text| {
        let mac = MacAddress::from_any(text).filter(|mac| !mac.is_group());
        if mac.is_none() {
            wrong.push(format!(
                "{path}.mac-address is `{text}`, expected the address of one card, such as `52:54:00:12:34:56`"
            ));
        }
        mac.map(|mac| (mac, text.to_owned()))
    });
    let memory_mib = match wish.memory.as_ref().map_or(Ok(0), mebibytes) {
        Ok(mebibytes) => mebibytes,
        Err(found) => {
            wrong.push(format!("{path}.memory is `{found}`, expected a quantity such as `64Gi`"));
            0
        }
    };
    WantedNode {
        name: name.to_owned(),
        roles: vec![role],
        mac,
        cpu: wish.cpu.unwrap_or_default(),
        memory_mib,
        sriov: wish.sriov.unwrap_or_default(),
        qat: wish.qat.unwrap_or_default(),
        labels: labels.clone(),
        ..WantedNode::default()
    }
}

/// A quantity of bytes, rounded up to MiB. A number alone is bytes, as in Kubernetes.
fn mebibytes(quantity: &IntOrString) -> Result<i64, String> {
    const UNITS: [(&str, f64); 12] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let text = quantity.to_string();
    let at = text.find(|char: char| !(char.is_ascii_digit() || char == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let number: Option<f64> = number.parse().ok().filter(|number: &f64| *number >= 0.0);
    let bytes = factor.zip(number).map(|(factor, number)| number * factor).filter(|bytes| *bytes < 1e18);
    #[expect(clippy::cast_possible_truncation, reason = "below 10^18")]
    bytes.map(|bytes| (bytes / 1_048_576.0).ceil() as i64).ok_or(text)
}

/// Secrets, and labels of theirs, bear the name of the cluster; its installer's pod, too.
fn unfit_name(object: &Provisioning) -> Option<String> {
    let (name, most) = (object.cluster(), if object.spec.installer.is_some() { 59 } else { 63 });
    if name.len() <= most && name.split('.').all(is_label) {
        return None;
    }
    let labels = object.metadata.labels.as_ref();
    let place = if labels.is_some_and(|labels| labels.contains_key(CLUSTER_LABEL)) {
        format!("the label `{CLUSTER_LABEL}`")
    } else {
        "metadata.name".to_owned()
    };
    Some(format!(
        "{place} is `{name}`, which is no name of a cluster: a to z, 0 to 9, `-` and `.` inside, at most {most} characters; \
         hint: the label `{CLUSTER_LABEL}` names it"
    ))
}

/// kubeadm's limits. `nodes`: how many are asked for.
fn sizes(pods: Cidr, services: Cidr, nodes: usize) -> Vec<String> {
    let told = |cidr: Cidr| format!("{}/{}", cidr.address, cidr.prefix);
    let mut wrong = Vec::new();
    if pods.address.is_ipv4() != services.address.is_ipv4() {
        let (pods, services) = (told(pods), told(services));
        wrong.push(format!("addresses of pods ({pods}) and of Services ({services}) must both be IPv4, or both IPv6"));
    }
    let (least, most) = if services.address.is_ipv4() { (12, 28) } else { (108, 124) };
    if !(least..=most).contains(&services.prefix) {
        let services = told(services);
        wrong.push(format!("spec.kubernetes.serviceCIDR is `{services}`, expected a prefix of /{least} to /{most}"));
    }
    if services.network() != services {
        let (found, network) = (told(services), told(services.network()));
        wrong.push(format!("spec.kubernetes.serviceCIDR is `{found}`; hint: the network is `{network}`"));
    }
    let of_node = if pods.address.is_ipv4() { NODE_PREFIX } else { NODE_PREFIX_V6 };
    if pods.prefix + 16 < of_node {
        let least = of_node - 16;
        wrong.push(format!("spec.kubernetes.podCIDR is `{}`, expected a prefix of at least /{least}", told(pods)));
    }
    let room = of_node.checked_sub(pods.prefix).map_or(0, |bits| 1_usize << bits.min(20));
    if room < nodes {
        let pods = told(pods);
        wrong.push(format!("{pods} has room for {room} nodes (a /{of_node} each), and {nodes} are asked for"));
    }
    wrong
}

/// Addresses of pods and of Services.
fn networks(object: &Provisioning, nodes: usize, wrong: &mut Vec<String>) -> (String, String) {
    let spec = &object.spec;
    let kubernetes = spec.kubernetes.clone().unwrap_or_default();
    let pods = kubernetes.pod_cidr.as_ref().or(spec.pod_subnet.as_ref());
    if let (Some(one), Some(other)) = (&kubernetes.pod_cidr, &spec.pod_subnet)
        && one != other
    {
        wrong.push(format!("spec.kubernetes.podCIDR is `{one}`, and spec.PodSubnet is `{other}`: leave one out"));
    }
    let pods = pods.cloned().unwrap_or_else(|| POD_CIDR.to_owned());
    let services = kubernetes.service_cidr.unwrap_or_else(|| SERVICE_CIDR.to_owned());
    let mut cidr = |path: &str, text: &str| {
        let read = Cidr::parse(text);
        if read.is_none() {
            wrong.push(format!("{path} is `{text}`, expected a network such as `{POD_CIDR}`"));
        }
        read
    };
    let (of_pods, of_services) =
        (cidr("spec.kubernetes.podCIDR", &pods), cidr("spec.kubernetes.serviceCIDR", &services));
    if let (Some(one), Some(other)) = (of_pods, of_services)
        && one.overlaps(other)
    {
        wrong.push(format!("addresses of pods ({pods}) and of Services ({services}) overlap"));
    }
    if let (Some(of_pods), Some(of_services), None) = (of_pods, of_services, &spec.installer) {
        wrong.extend(sizes(of_pods, of_services, nodes));
    }
    (pods, services)
}

/// `HOST` or `HOST:PORT`.
pub(super) fn endpoint(text: &str) -> Result<(String, u16), String> {
    let bad = || format!("spec.kubernetes.controlPlaneEndpoint is `{text}`, expected `HOST` or `HOST:PORT`");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
        _ => (text, 6443),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    if port == 0 || !(name || host.parse::<IpAddr>().is_ok()) {
        return Err(bad());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]
mod tests {
    use agent_api::clusters::provisioning::{NodeRole, Provisioning};
    use serde_json::{Value, json};

    use super::Wanted;

    const A: &str = "00:c6:14:04:61:b2";
    const B: &str = "00:c4:13:04:62:b5";

    fn wanted(spec: Value) -> Result<Wanted, Vec<String>> {
        let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
            "metadata": {"name": "p", "namespace": "default", "labels": {"cluster": "one"}}, "spec": spec});
        Wanted::of(&serde_json::from_value::<Provisioning>(object).expect("a Provisioning"), None)
    }

    fn roles(spec: Value) -> Vec<(String, Vec<NodeRole>)> {
        let wanted = wanted(spec).expect("good");
        wanted.nodes.into_iter().map(|node| (node.name, node.roles)).collect()
    }

    #[test]
    fn masters_without_workers_are_workers_too() {
        let both = vec![NodeRole::Master, NodeRole::Worker];
        assert_eq!(roles(json!({"masters": [{"m": {"mac-address": A}}]})), [("m".to_owned(), both.clone())]);
        // The same name, with the same MAC address in another spelling or none.
        for mac in [json!({}), json!({"mac-address": ""}), json!({"mac-address": "00-C6-14-04-61-B2"})] {
            let spec = json!({"masters": [{"m": {"mac-address": A}}], "workers": [{"m": mac}]});
            assert_eq!(roles(spec), [("m".to_owned(), both.clone())]);
        }
        let apart = json!({"masters": [{"m": {"mac-address": A}}], "workers": [{"w": {"mac-address": B}}]});
        assert_eq!(roles(apart), [("m".to_owned(), vec![NodeRole::Master]), ("w".to_owned(), vec![NodeRole::Worker])]);
    }

    #[test]
    fn an_installer_of_the_users_own_chooses_by_itself() {
        let masters =
            json!([{"a": {"mac-address": A}}, {"b": {"mac-address": B}}, {"c": {"mac-address": "00:c4:13:04:62:b6"}}]);
        let installer = json!({"image": "kud:1"});
        wanted(json!({"masters": masters, "installer": installer, "KUDPlugins": ["emco"]})).expect("its own endpoint");
        let kubernetes = json!({"version": "v1.36.4", "cni": "none", "podCIDR": "10.1.0.0/16"});
        let wrong =
            wanted(json!({"masters": masters, "installer": installer, "kubernetes": kubernetes})).expect_err("refused");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("spec.kubernetes.version is for the box's own installer"), "{wrong:?}");
    }

    #[test]
    fn what_is_not_asked_for_is_as_icn_had_it() {
        let wanted =
            wanted(json!({"masters": [{"m": {"mac-address": A}}], "PodSubnet": "10.244.64.0/18"})).expect("good");
        assert_eq!(
            (&*wanted.cluster, &*wanted.pod_cidr, &*wanted.service_cidr),
            ("one", "10.244.64.0/18", "10.244.0.0/18")
        );
        assert_eq!((wanted.endpoint, wanted.virtual_ip), (None, None));
    }

    /// The name of Secrets, folders and Jobs.
    #[test]
    fn a_cluster_has_a_name_that_its_secrets_can_bear() {
        let long = "a".repeat(60);
        for (label, installer, good) in [
            ("one", false, true),
            ("site.one", false, true),
            (&*long, false, true),
            (&*long, true, false),
            ("One", false, false),
            ("one_two", false, false),
        ] {
            let mut spec = json!({"masters": [{"m": {"mac-address": A}}]});
            if installer {
                spec["installer"] = json!({"image": "kud:1"});
            }
            let object = json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
                "metadata": {"name": "p", "namespace": "default", "labels": {"cluster": label}}, "spec": spec});
            let read = Wanted::of(&serde_json::from_value::<Provisioning>(object).expect("a Provisioning"), None);
            assert_eq!(read.is_ok(), good, "{label}: {read:?}");
            if let Err(wrong) = read {
                assert!(wrong[0].starts_with(&format!("the label `cluster` is `{label}`")), "{wrong:?}");
            }
        }
    }

    #[test]
    fn memory_is_a_quantity() {
        for (memory, expected) in [
            (json!("4Gi"), 4096),
            (json!("64G"), 61036),
            (json!("512Mi"), 512),
            (json!(1_048_576), 1),
            (json!("1.5Gi"), 1536),
        ] {
            let read = wanted(json!({"masters": [{"m": {"memory": memory}}]})).expect("good");
            assert_eq!(read.nodes[0].memory_mib, expected, "{memory}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_the_words_of_icn_or_with_its_path() {
        let one = json!({"mac-address": A});
        let already = |label: &str, mac: &str| {
            format!(
                "A node with label {label} already exists, modify resource and assign a different label to node with MACAddress {mac}"
            )
        };
        for (spec, expected) in [
            (json!({"masters": [{"m": {}}]}), "MAC address for masterNode m not provided".to_owned()),
            (json!({"masters": [{"m": one}], "workers": [{"m": {"mac-address": B}}]}), already("m", B)),
            (json!({"masters": [{"m": one}], "workers": [{"w": one}]}), already("m", A)),
            (
                json!({"masters": [{"m": one}], "workers": [{"w": {}}]}),
                "MAC address for workerNode w not provided".to_owned(),
            ),
            (
                json!({"masters": [{"m": {"mac-address": "00:c6"}}]}),
                "spec.masters[0].m.mac-address is `00:c6`".to_owned(),
            ),
            (
                json!({"masters": [{"m": {"mac-address": "01:00:5e:00:00:01"}}]}),
                "expected the address of one card".to_owned(),
            ),
            (json!({"masters": [{"m": {"memory": "lots"}}]}), "spec.masters[0].m.memory is `lots`".to_owned()),
            (json!({"masters": [{"m": {"memory": "-1Gi"}}]}), "spec.masters[0].m.memory is `-1Gi`".to_owned()),
            (json!({"masters": []}), "spec.masters has 0 nodes".to_owned()),
            (json!({"masters": [{"a": one}, {"b": {"mac-address": B}}]}), "spec.masters has 2 nodes".to_owned()),
            (
                json!({"masters": [{"m": one}], "PodSubnet": "10.0.0.0"}),
                "spec.kubernetes.podCIDR is `10.0.0.0`".to_owned(),
            ),
            (json!({"masters": [{"m": one}], "PodSubnet": "10.244.0.0/16"}), "overlap".to_owned()),
            (json!({"masters": [{"m": one}], "PodSubnet": "10.9.0.0/25"}), "has room for 0 nodes".to_owned()),
            (
                json!({"masters": [{"m": one}], "PodSubnet": "10.9.0.0/16", "kubernetes": {"podCIDR": "10.8.0.0/16"}}),
                "leave one out".to_owned(),
            ),
            (json!({"masters": [{"m": one}], "PodSubnet": "fd00::/48"}), "must both be IPv4, or both IPv6".to_owned()),
            (
                json!({"masters": [{"m": one}], "kubernetes": {"serviceCIDR": "fd01::/64", "podCIDR": "fd00::/48"}}),
                "serviceCIDR is `fd01::/64`, expected a prefix of /108 to /124".to_owned(),
            ),
            (
                json!({"masters": [{"m": one}], "kubernetes": {"serviceCIDR": "11.0.0.0/8"}}),
                "serviceCIDR is `11.0.0.0/8`, expected a prefix of /12 to /28".to_owned(),
            ),
            (
                json!({"masters": [{"m": one}], "kubernetes": {"serviceCIDR": "10.8.0.1/16"}}),
                "hint: the network is `10.8.0.0/16`".to_owned(),
            ),
            (
                json!({"masters": [{"m": one}], "kubernetes": {"serviceCIDR": "fd01::/112", "podCIDR": "fd00::/32"}}),
                "podCIDR is `fd00::/32`, expected a prefix of at least /48".to_owned(),
            ),
            (
                json!({"masters": [{"m": one}], "kubernetes": {"controlPlaneEndpoint": "a b"}}),
                "spec.kubernetes.controlPlaneEndpoint is `a b`".to_owned(),
            ),
        ] {
            let wrong = wanted(spec.clone()).expect_err("wrong").join("\n");
            assert!(wrong.contains(&expected), "{spec}: {wrong}");
        }
    }
}
