//! The controller of `BareMetalHost`s on the box: the kinds, its rights, its way to Ironic, and its pod. Pure.

use agent_api::metal3::crds;
use agent_api::ports;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::authorities;
use super::client::Access;
use crate::cluster::objects::{ObjectsError, Placed, place};
use crate::signs::keep;
use crate::steps::Missing;

/// What the image's name begins with.
pub const IMAGE: &str = "foothold.dev/agent:";
/// Name of all its objects but one.
const NAME: &str = "baremetal-operator";
const NAMESPACE: &str = "kube-system";
/// The Secret with user, password and authority for Ironic.
const CREDENTIALS: &str = "ironic-credentials";
/// Where the pod finds it.
const MOUNTED: &str = "/etc/ironic";
/// Where the pod finds the box's table of signs of life.
const SIGNS: &str = "/var/run/signs";
/// Metrics and health, on the loopback address: metal3's port for them.
const METRICS: u16 = 8085;
/// The webhook, on the loopback address: metal3's port for it.
const WEBHOOK: u16 = 9443;
/// Path of the Deployment.
pub const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kube-system/deployments/baremetal-operator";

/// All objects, in the order in which they are needed.
///
/// # Errors
/// A kind without a collection, which none is.
pub fn objects(image: &str, access: &Access) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Value> = Vec::new();
    for kind in crds::all() {
        objects.push(serde_json::to_value(kind)?);
    }
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    let secret = secret(access);
    let generation = hex::encode(&Sha256::digest(secret["data"].to_string())[..8]);
    objects.extend([
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": [
            {"apiGroups": ["metal3.io"], "resources": ["*"], "verbs": ["*"]},
            // Secrets of claims are copied to their hosts; labels of the claims' namespaces are what policies ask for.
            {"apiGroups": [""], "resources": ["secrets"],
                "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
                "verbs": ["get", "create", "patch"]},
            {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
            "subjects": [subject]}),
        secret,
        deployment(image, &generation),
    ]);
    objects.into_iter().map(place).collect()
}

fn secret(access: &Access) -> Value {
    let text = |text: &str| STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": CREDENTIALS, "namespace": NAMESPACE},
        "data": {
            "username": text(&access.credentials.username),
            "password": text(&access.credentials.password),
            "ca.crt": text(&access.authority),
        },
    })
}

/// One pod at a time, on the box's own network, where Ironic is.
fn deployment(image: &str, generation: &str) -> Value {
    let probe = |path: &str, secs: u8| json!({"httpGet": {"host": "127.0.0.1", "port": METRICS, "path": path}, "periodSeconds": secs});
    let labels = json!({"app.kubernetes.io/name": NAME});
    let ironic = format!("https://127.0.0.1:{}", ports::IRONIC);
    let ca = format!("{MOUNTED}/ca.crt");
    let container = json!({
        "name": "operator",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["operator", "baremetalhost", "--ironic", ironic, "--ironic-ca", ca, "--ironic-auth", MOUNTED,
            "--bmc-authorities", format!("{}/{}", super::RUN, authorities::FILE),
            "--webhook-address", format!("127.0.0.1:{WEBHOOK}"), "--signs", format!("{SIGNS}/{}", keep::FILE)],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}},
        "livenessProbe": probe("/healthz", 10),
        // `ready` waits for it.
        "readinessProbe": probe("/readyz", 3),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "ironic", "mountPath": MOUNTED, "readOnly": true},
            // The folder, not the file: the file is replaced by another each time.
            {"name": "signs", "mountPath": SIGNS, "readOnly": true},
        ],
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate", "rollingUpdate": null},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {"foothold.dev/generation": generation}},
                "spec": {
                    "hostNetwork": true,
                    "dnsPolicy": "ClusterFirstWithHostNet",
                    "priorityClassName": "system-cluster-critical",
                    "serviceAccountName": NAME,
                    "tolerations": [{"operator": "Exists"}],
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [
                        {"name": "ironic", "secret": {"secretName": CREDENTIALS, "defaultMode": 0o440}},
                        {"name": "signs", "hostPath": {"path": keep::RUN, "type": "DirectoryOrCreate"}},
                    ],
                },
            },
        },
    })
}

/// Whether the Deployment of the API server's answer has a pod that is ready.
///
/// # Errors
/// What is missing.
pub fn available(deployment: Option<&Value>) -> Result<(), Missing> {
    let missing = |why: String| Err(Missing::new("the controller of BareMetalHosts", why));
    let Some(deployment) = deployment else { return missing("its Deployment is not there".to_owned()) };
    if deployment["status"]["availableReplicas"].as_u64().unwrap_or_default() > 0 {
        return Ok(());
    }
    let conditions = deployment["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let why = conditions.iter().find(|condition| condition["status"] == "False");
    missing(why.and_then(|condition| condition["message"].as_str()).unwrap_or("its pod is being started").to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DEPLOYMENT, available, objects};
    use crate::provisioning::client::Access;
    use crate::provisioning::credentials::Credentials;

    fn access(password: &str) -> Access {
        let dir = tempfile::tempdir().expect("a folder");
        let mut credentials = Credentials::open(dir.path()).expect("credentials");
        credentials.password = password.to_owned();
        Access { port: 6385, authority: "CA".to_owned(), credentials }
    }

    #[test]
    fn kinds_come_first_and_the_pod_last() {
        let all = objects("foothold.dev/agent:1", &access("a")).expect("placed");
        assert_eq!(all.len(), 13 + 5);
        assert!(all[..13].iter().all(|placed| placed.object["kind"] == "CustomResourceDefinition"));
        assert_eq!(all[0].path(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/baremetalhosts.metal3.io");
        assert_eq!(all[17].path(), DEPLOYMENT);
    }

    #[test]
    fn the_pod_reads_the_table_where_the_agent_writes_it() {
        let all = objects("foothold.dev/agent:1", &access("a")).expect("placed");
        let pod = &all[17].object["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][1]["hostPath"]["path"], "/run/foothold/hosts");
        let mount = &pod["containers"][0]["volumeMounts"][1];
        assert_eq!((&mount["name"], &mount["mountPath"]), (&json!("signs"), &json!("/var/run/signs")));
        let args = pod["containers"][0]["args"].as_array().expect("arguments");
        assert_eq!(args[args.len() - 2..], [json!("--signs"), json!("/var/run/signs/signs.json")]);
    }

    #[test]
    fn other_credentials_are_another_pod() {
        let generation = |password: &str| {
            let all = objects("foothold.dev/agent:1", &access(password)).expect("placed");
            all[17].object["spec"]["template"]["metadata"]["annotations"].to_string()
        };
        assert_eq!(generation("a"), generation("a"));
        assert_ne!(generation("a"), generation("b"));
    }

    #[test]
    fn a_controller_that_is_not_available_is_told_with_the_reason() {
        assert!(available(Some(&json!({"status": {"availableReplicas": 1}}))).is_ok());
        assert_eq!(available(None).expect_err("missing").why, "its Deployment is not there");
        let waiting = json!({"status": {"conditions": [
            {"type": "Progressing", "status": "True", "message": "x"},
            {"type": "Available", "status": "False", "message": "Deployment does not have minimum availability."},
        ]}});
        let missing = available(Some(&waiting)).expect_err("missing");
        assert_eq!(missing.why, "Deployment does not have minimum availability.");
    }
}
