//! The objects of metrics-server, for the box's own cluster and for clusters of servers, after those of its module
//! (`manifests/base`). Pure.
//!
//! It lives in a namespace of its own: `ready` waits for every pod of `kube-system`, and nothing needs this one that early.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::objects::{ObjectsError, Placed, place};
use super::probes::{FAILURES, TIMEOUT_SECS};

/// Name of the Deployment, and of most other objects.
pub const NAME: &str = "metrics-server";
/// Where it lives.
pub const NAMESPACE: &str = "metrics-server";
/// Path of the Deployment.
pub const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/metrics-server/deployments/metrics-server";
/// What nodes use, by the API that it serves.
pub const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
/// Port of its API.
const PORT: u16 = 10250;
/// Where the pod finds the kubelet's authority.
const AUTHORITY: &str = "/etc/kubelet";
const AUTHORITY_FILE: &str = "ca.crt";

/// How it knows that it is a kubelet that answers: it tells it its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// There is one node, and this is what signed its certificate.
    Node {
        /// Its name, for which the certificate is.
        name: String,
        /// Its address.
        address: IpAddr,
        /// PEM.
        authority: String,
        /// Digest of that: another one is another pod, which reads it when it starts.
        generation: String,
    },
    /// By nothing. kubeadm's kubelets make their certificates themselves; `serverTLSBootstrap` needs somebody who approves
    /// each node's request, and Kubernetes brings nobody. The token reads what nodes and pods use, and names of both.
    Nothing,
}

/// All objects, in the order in which they are needed; `image`: what its pod runs.
pub fn objects(image: &str, trust: &Trust) -> Result<Vec<Placed>, ObjectsError> {
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
    all.extend(rights());
    if let Trust::Node { authority, .. } = trust {
        let data = json!({AUTHORITY_FILE: authority});
        all.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": within("kubelet"), "data": data}));
    }
    all.extend([deployment(image, trust), service(), api_service()]);
    all.into_iter().map(place).collect()
}

fn within(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "labels": labels()})
}

fn labels() -> Value {
    json!({"k8s-app": NAME})
}

/// Its account, and what it may do.
fn rights() -> [Value; 6] {
    let api = "rbac.authorization.k8s.io";
    let version = "rbac.authorization.k8s.io/v1";
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]);
    let bind = |kind: &str, metadata: Value, role: (&str, &str)| {
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "subjects": subjects,
            "roleRef": {"apiGroup": api, "kind": role.0, "name": role.1}})
    };
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within(NAME)}),
        // Who may see pods may see what they use.
        json!({"apiVersion": version, "kind": "ClusterRole",
            "metadata": {"name": "system:aggregated-metrics-reader", "labels": {
                "rbac.authorization.k8s.io/aggregate-to-view": "true",
                "rbac.authorization.k8s.io/aggregate-to-edit": "true",
                "rbac.authorization.k8s.io/aggregate-to-admin": "true",
            }},
            "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "system:metrics-server"}, "rules": [
            {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
        ]}),
        bind("ClusterRoleBinding", json!({"name": "system:metrics-server"}), ("ClusterRole", "system:metrics-server")),
        bind(
            "ClusterRoleBinding",
            json!({"name": "metrics-server:system:auth-delegator"}),
            ("ClusterRole", "system:auth-delegator"),
        ),
        // Whom the API server speaks for.
        bind(
            "RoleBinding",
            json!({"name": "metrics-server-auth-reader", "namespace": "kube-system"}),
            ("Role", "extension-apiserver-authentication-reader"),
        ),
    ]
}

fn deployment(image: &str, trust: &Trust) -> Value {
    let mut args = vec![
        "--cert-dir=/tmp".to_owned(),
        format!("--secure-port={PORT}"),
        "--kubelet-use-node-status-port".to_owned(),
        "--metric-resolution=15s".to_owned(),
    ];
    let mut volumes = vec![json!({"name": "tmp", "emptyDir": {}})];
    let mut mounts = vec![json!({"name": "tmp", "mountPath": "/tmp"})];
    let (mut aliases, mut annotations) = (json!([]), json!({}));
    match trust {
        Trust::Node { name, address, generation, .. } => {
            args.push(format!("--kubelet-certificate-authority={AUTHORITY}/{AUTHORITY_FILE}"));
            args.push("--kubelet-preferred-address-types=Hostname".to_owned());
            aliases = json!([{"ip": address, "hostnames": [name]}]);
            annotations = json!({"foothold.dev/generation": generation});
            volumes.push(json!({"name": "kubelet", "configMap": {"name": "kubelet"}}));
            mounts.push(json!({"name": "kubelet", "mountPath": AUTHORITY, "readOnly": true}));
        }
        Trust::Nothing => {
            args.push("--kubelet-insecure-tls".to_owned());
            args.push("--kubelet-preferred-address-types=InternalIP".to_owned());
        }
    }
    let probe = |path: &str, secs: u32, failures: i32| {
        let get = json!({"path": path, "port": "https", "scheme": "HTTPS"});
        json!({"httpGet": get, "periodSeconds": secs, "timeoutSeconds": TIMEOUT_SECS, "failureThreshold": failures})
    };
    let container = json!({
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "20m", "memory": "48Mi"}, "limits": {"memory": "256Mi"}},
        "livenessProbe": probe("/livez", 10, FAILURES),
        "readinessProbe": probe("/readyz", 5, 3),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    });
    let pod = json!({
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "hostAliases": aliases,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    });
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": within(NAME), "spec": {
        "selector": {"matchLabels": labels()},
        "template": {"metadata": {"labels": labels(), "annotations": annotations}, "spec": pod},
    }})
}

fn service() -> Value {
    let port = json!({"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https", "appProtocol": "https"});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": within(NAME), "spec": {"selector": labels(), "ports": [port]}})
}

/// The API server does not check its certificate, which it makes itself at each start: what it says is a number of the
/// cluster's own network.
fn api_service() -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
    "spec": {
        "service": {"name": NAME, "namespace": NAMESPACE},
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "insecureSkipTLSVerify": true,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }})
}

#[cfg(test)]
mod tests {
    use super::{DEPLOYMENT, Trust, objects};
    use crate::cluster::objects::Placed;

    fn on_the_box(generation: &str) -> Trust {
        Trust::Node {
            name: "edge".to_owned(),
            address: [198, 18, 0, 1].into(),
            authority: "PEM".to_owned(),
            generation: generation.to_owned(),
        }
    }

    #[test]
    fn the_objects_of_the_box() {
        let all = objects("foothold.dev/metrics-server:v1", &on_the_box("a")).expect("placed");
        let text: Vec<String> = all.iter().map(|placed| format!("{}\n{:#}\n", placed.path(), placed.object)).collect();
        insta::assert_snapshot!(text.concat());
    }

    #[test]
    fn a_kubelet_is_asked_by_its_name_and_checked_only_where_who_signed_it_is_known() {
        let deployment = |trust: &Trust| {
            let all = objects("a", trust).expect("placed");
            all.into_iter().find(|placed| placed.path() == DEPLOYMENT).expect("a Deployment").object
        };
        let template = |trust: &Trust| deployment(trust)["spec"]["template"].clone();
        assert_ne!(template(&on_the_box("a")), template(&on_the_box("b")), "another pod");
        let (checked, unchecked) = (template(&on_the_box("a")), template(&Trust::Nothing));
        for (pod, insecure) in [(&checked, false), (&unchecked, true)] {
            let args = pod["spec"]["containers"][0]["args"].to_string();
            assert_eq!(args.contains("--kubelet-insecure-tls"), insecure, "{args}");
            assert_eq!(args.contains("--kubelet-certificate-authority=/etc/kubelet/ca.crt"), !insecure, "{args}");
        }
        let kinds =
            |trust: &Trust| -> Vec<String> { objects("a", trust).expect("placed").iter().map(Placed::title).collect() };
        assert!(!kinds(&Trust::Nothing).contains(&"ConfigMap metrics-server/kubelet".to_owned()));
    }
}
