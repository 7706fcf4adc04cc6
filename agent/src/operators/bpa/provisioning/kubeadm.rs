//! kubeadm's configurations (`kubeadm.k8s.io/v1beta4`), made from what is wanted. Pure.

use agent_api::clusters::provisioning::NodeRole;
use agent_api::net::before_port;
use serde_json::{Value, json};

use super::balance;
use super::decide::Chosen;
use super::login;
use super::wishes::Wanted;
use crate::node::plan::{Invitation, PATCHES};

const API: &str = "kubeadm.k8s.io/v1beta4";
const SOCKET: &str = "unix:///run/containerd/containerd.sock";
/// A server that boots from a slow disk, or is emulated, takes its time: kubeadm's own limits are 4 and 5 minutes.
const PATIENCE: &str = "20m0s";
/// A token is needed while nodes join, and no longer.
const TOKEN: &str = "15m0s";

/// The scheduler and the controller manager end when they cannot renew their lease in time: on a slow server they get more
/// time than the ten seconds of the default. They also write it less often. Who takes over from a master that has died does
/// so after little more than a minute; the API does not wait for that.
const LEASES: [(&str, &str); 3] = [
    ("leader-elect-lease-duration", "60s"),
    ("leader-elect-renew-deadline", "40s"),
    ("leader-elect-retry-period", "10s"),
];
/// etcd that is slow for a moment is not dead: with the two seconds of the default, the kubelet would start the API server
/// anew, which makes a busy server busier.
const ETCD_CHECKS: [(&str, &str); 2] = [("etcd-healthcheck-timeout", "10s"), ("etcd-readycheck-timeout", "10s")];
/// Members of etcd, milliseconds. With the 100 and 1000 of the default, members on slow servers elect a leader over and over,
/// and every election stops all writing. Ten heartbeats make an election, as etcd's page on tuning asks for.
const ELECTIONS: [(&str, &str); 2] = [("heartbeat-interval", "500"), ("election-timeout", "5000")];

/// `HOST:PORT` of the API.
pub fn endpoint(wanted: &Wanted, first: &Chosen) -> String {
    let (host, port) = host_and_port(wanted, first);
    at(&host, port)
}

/// `HOST:PORT` of a name or an address.
pub fn at(host: &str, port: u16) -> String {
    format!("{}:{port}", before_port(host))
}

/// Name or address of the API, and its port.
pub fn host_and_port(wanted: &Wanted, first: &Chosen) -> (String, u16) {
    wanted.endpoint.clone().unwrap_or_else(|| match wanted.virtual_ip {
        Some(shared) => (shared.to_string(), balance::PORT),
        None => (first.ip.to_string(), 6443),
    })
}

/// Flags of a component of the control plane.
fn flags<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let args: Vec<Value> = all.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"extraArgs": args})
}

fn timeouts() -> Value {
    json!({
        "controlPlaneComponentHealthCheck": PATIENCE,
        "discovery": PATIENCE,
        "etcdAPICall": PATIENCE,
        "kubeletHealthCheck": PATIENCE,
        "kubernetesAPICall": PATIENCE,
        "tlsBootstrap": PATIENCE,
    })
}

fn registration(node: &Chosen) -> Value {
    let mut all = json!({
        "name": node.name,
        "criSocket": SOCKET,
        "kubeletExtraArgs": [{"name": "node-ip", "value": node.ip}],
    });
    // A master that is a worker, too, runs everybody's pods.
    if node.roles.contains(&NodeRole::Master) && node.roles.contains(&NodeRole::Worker) {
        all["taints"] = json!([]);
    }
    all
}

/// The configuration of the first member of the control plane.
pub fn init(wanted: &Wanted, version: &str, first: &Chosen) -> String {
    let init = json!({
        "apiVersion": API,
        "kind": "InitConfiguration",
        "bootstrapTokens": [{
            "ttl": TOKEN,
            "usages": ["signing", "authentication"],
            "groups": ["system:bootstrappers:kubeadm:default-node-token"],
        }],
        "localAPIEndpoint": {"advertiseAddress": first.ip, "bindPort": 6443},
        "nodeRegistration": registration(first),
        "patches": {"directory": PATCHES},
        "timeouts": timeouts(),
    });
    let login = login::flags(wanted);
    let cluster = json!({
        "apiVersion": API,
        "kind": "ClusterConfiguration",
        "apiServer": flags(ETCD_CHECKS.into_iter().chain(login.iter().flatten().map(|(name, value)| (*name, &**value)))),
        "clusterName": wanted.cluster,
        "controllerManager": flags(LEASES),
        "controlPlaneEndpoint": endpoint(wanted, first),
        // The keys of the box's own cluster, too: RSA costs a small server seconds for each key, and each handshake more.
        "encryptionAlgorithm": "ECDSA-P256",
        "etcd": {"local": flags(ELECTIONS)},
        "kubernetesVersion": version,
        "networking": {"podSubnet": wanted.pod_cidr, "serviceSubnet": wanted.service_cidr},
        "scheduler": flags(LEASES),
    });
    let kubelet = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "cgroupDriver": "systemd"});
    let proxy =
        json!({"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables"});
    documents(&[init, cluster, kubelet, proxy])
}

/// The configuration of a node that joins.
pub fn join(wanted: &Wanted, first: &Chosen, node: &Chosen, invitation: &Invitation) -> String {
    let mut join = json!({
        "apiVersion": API,
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": endpoint(wanted, first),
                "token": invitation.token,
                "caCertHashes": [invitation.ca_hash],
            },
            "tlsBootstrapToken": invitation.token,
        },
        "nodeRegistration": registration(node),
        "patches": {"directory": PATCHES},
        "timeouts": timeouts(),
    });
    if node.roles.contains(&NodeRole::Master) {
        join["controlPlane"] = json!({
            "certificateKey": invitation.certificate_key,
            "localAPIEndpoint": {"advertiseAddress": node.ip, "bindPort": 6443},
        });
    }
    documents(&[join])
}

/// JSON is YAML.
fn documents(all: &[Value]) -> String {
    let texts: Vec<String> = all.iter().map(|document| format!("{document:#}\n")).collect();
    texts.join("---\n")
}

#[cfg(test)]
pub(super) mod tests {
    use agent_api::clusters::provisioning::Cni;
    use agent_api::clusters::provisioning::NodeRole::{Master, Worker};
    use serde_json::{Value, json};

    use super::{Invitation, Wanted, init, join};
    use crate::operators::bpa::provisioning::decide::tests::chosen;

    /// What is wanted, as tests of what follows from it need it.
    pub fn wanted(endpoint: Option<(&str, u16)>) -> Wanted {
        Wanted {
            cluster: "one".to_owned(),
            nodes: Vec::new(),
            pod_cidr: "10.244.64.0/18".to_owned(),
            service_cidr: "10.244.0.0/18".to_owned(),
            endpoint: endpoint.map(|(host, port)| (host.to_owned(), port)),
            virtual_ip: None,
            cni: Cni::Flannel,
            metrics: None,
            storage: None,
            auth: None,
        }
    }

    fn read(text: &str) -> Vec<Value> {
        text.split("---\n").map(|document| serde_json::from_str(document).expect("JSON")).collect()
    }

    #[test]
    fn slow_servers_are_given_time_to_lead() {
        let all = read(&init(&wanted(None), "v1.36.4", &chosen("m", 10, &[Master])));
        for component in ["controllerManager", "scheduler"] {
            let lease = json!({"name": "leader-elect-lease-duration", "value": "60s"});
            assert_eq!(all[1][component]["extraArgs"][0], lease);
        }
        let elections = json!([
            {"name": "heartbeat-interval", "value": "500"},
            {"name": "election-timeout", "value": "5000"},
        ]);
        assert_eq!(all[1]["etcd"]["local"]["extraArgs"], elections);
        assert_eq!(all[0]["patches"]["directory"], "/run/foothold-node/patches");
    }

    #[test]
    fn a_lone_master_runs_pods_and_is_the_endpoint() {
        let all = read(&init(&wanted(None), "v1.36.4", &chosen("m", 10, &[Master, Worker])));
        assert_eq!(all[0]["nodeRegistration"]["taints"], json!([]));
        assert_eq!(all[0]["bootstrapTokens"][0]["ttl"], "15m0s");
        assert_eq!(all[1]["controlPlaneEndpoint"], "172.22.0.10:6443");
        assert_eq!(all[1]["encryptionAlgorithm"], "ECDSA-P256");
        let patient = json!([
            {"name": "etcd-healthcheck-timeout", "value": "10s"},
            {"name": "etcd-readycheck-timeout", "value": "10s"},
        ]);
        assert_eq!(all[1]["apiServer"]["extraArgs"], patient);
        assert_eq!(all[1]["networking"], json!({"podSubnet": "10.244.64.0/18", "serviceSubnet": "10.244.0.0/18"}));
        assert_eq!(all.len(), 4);
        let apart = read(&init(&wanted(Some(("api.site", 443))), "v1.36.4", &chosen("m", 10, &[Master])));
        assert!(apart[0]["nodeRegistration"].get("taints").is_none(), "kubeadm's own taint");
        assert_eq!(apart[1]["controlPlaneEndpoint"], "api.site:443");
        let shared = Wanted { virtual_ip: Some([172, 22, 0, 250].into()), ..wanted(None) };
        let shared = init(&shared, "v1.36.4", &chosen("m", 10, &[Master]));
        assert_eq!(read(&shared)[1]["controlPlaneEndpoint"], "172.22.0.250:8443");
        // `tests/tests/virtual_address.rs` has real servers run with its flags.
        insta::assert_snapshot!("init", shared);
    }

    #[test]
    fn who_joins_as_a_master_gets_the_certificates() {
        let invitation = Invitation {
            token: "abcdef.0123456789abcdef".to_owned(),
            ca_hash: "sha256:00".to_owned(),
            certificate_key: Some("k".to_owned()),
        };
        let first = chosen("m", 10, &[Master]);
        let worker = &read(&join(&wanted(None), &first, &chosen("w", 11, &[Worker]), &invitation))[0];
        assert!(worker.get("controlPlane").is_none());
        assert_eq!(worker["discovery"]["bootstrapToken"]["apiServerEndpoint"], "172.22.0.10:6443");
        assert_eq!(
            worker["nodeRegistration"]["kubeletExtraArgs"],
            json!([{"name": "node-ip", "value": "172.22.0.11"}])
        );
        let master = &read(&join(&wanted(None), &first, &chosen("n", 12, &[Master]), &invitation))[0];
        assert_eq!(master["controlPlane"]["certificateKey"], "k");
        assert_eq!(master["patches"]["directory"], "/run/foothold-node/patches");
        assert_eq!(master["controlPlane"]["localAPIEndpoint"]["advertiseAddress"], "172.22.0.12");
    }
}
