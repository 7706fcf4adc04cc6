//! The objects of local-path-provisioner, for the box's own cluster and for clusters of servers, after those of its module
//! (`deploy/local-path-storage.yaml`): a default `StorageClass` whose volumes are folders of the node that uses them. Pure.

use serde_json::{Value, json};

use super::objects::{ObjectsError, Placed, place};

/// Name of the Deployment, and of most other objects.
pub const NAME: &str = "local-path-provisioner";
/// Where it lives.
pub const NAMESPACE: &str = "local-path-storage";
/// Path of the Deployment.
pub const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/local-path-storage/deployments/local-path-provisioner";
/// Path of the `StorageClass`.
pub const STORAGE_CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/local-path";
/// Where volumes are on a node.
pub const FOLDER: &str = "/var/lib/foothold/volumes";
/// Where the pod finds its settings.
const CONFIG: &str = "/etc/config";

/// What makes and removes the folder of a volume. Programs of any user write there.
const SETUP: &str = "#!/bin/sh\nset -eu\nmkdir -m 0777 -p \"$VOL_DIR\"\n";
const TEARDOWN: &str = "#!/bin/sh\nset -eu\nrm -rf \"$VOL_DIR\"\n";

/// All objects, in the order in which they are needed; `image`: what its pod runs, and the pods that make folders.
pub fn objects(image: &str) -> Result<Vec<Placed>, ObjectsError> {
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
    all.extend(rights());
    all.extend([settings(image), deployment(image), storage_class()]);
    all.into_iter().map(place).collect()
}

fn within(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE})
}

/// Its account, and what it may do: pods of its own namespace, volumes of all.
fn rights() -> [Value; 5] {
    let version = "rbac.authorization.k8s.io/v1";
    let bind = |kind: &str, metadata: Value, role: &str| {
        json!({"apiVersion": version, "kind": kind, "metadata": metadata,
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME}})
    };
    let read = ["get", "list", "watch"];
    let write = ["get", "list", "watch", "create", "patch", "update", "delete"];
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within(NAME)}),
        json!({"apiVersion": version, "kind": "Role", "metadata": within(NAME),
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": write}]}),
        bind("RoleBinding", within(NAME), "Role"),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": [
            {"apiGroups": [""], "verbs": read,
                "resources": ["nodes", "persistentvolumeclaims", "configmaps", "pods", "pods/log"]},
            {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": write},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": read},
        ]}),
        bind("ClusterRoleBinding", json!({"name": NAME}), "ClusterRole"),
    ]
}

fn settings(image: &str) -> Value {
    let paths = json!({"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [FOLDER]}]});
    let helper = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "volume"}, "spec": {
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": false,
        "containers": [{"name": "volume", "image": image, "imagePullPolicy": "IfNotPresent"}],
    }});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": within("local-path-config"), "data": {
        "config.json": paths.to_string(),
        "setup": SETUP,
        "teardown": TEARDOWN,
        "helperPod.yaml": helper.to_string(),
    }})
}

fn deployment(image: &str) -> Value {
    let labels = json!({"app": NAME});
    let container = json!({
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["start", "--config", format!("{CONFIG}/config.json"), "--service-account-name", NAME],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "CONFIG_MOUNT_PATH", "value": CONFIG},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": CONFIG, "readOnly": true}],
    });
    let pod = json!({
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "local-path-config"}}],
    });
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": within(NAME), "spec": {
        "replicas": 1,
        // Never two of them at a time: nobody elects a leader.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }})
}

/// Its volumes are `local`, not `hostPath`: a folder that is not there keeps the pod from starting, and is not made anew,
/// empty.
fn storage_class() -> Value {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true", "defaultVolumeType": "local"});
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "local-path", "annotations": annotations},
        "provisioner": "rancher.io/local-path",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{DEPLOYMENT, FOLDER, STORAGE_CLASS, objects};

    #[test]
    fn the_objects() {
        let all = objects("foothold.dev/local-path-provisioner:v1").expect("placed");
        let text: Vec<String> = all.iter().map(|placed| format!("{}\n{:#}\n", placed.path(), placed.object)).collect();
        insta::assert_snapshot!(text.concat());
    }

    #[test]
    fn what_is_asked_for_is_there_and_pods_that_make_folders_run_the_same_image() {
        let all = objects("a.example/image:1").expect("placed");
        for path in [DEPLOYMENT, STORAGE_CLASS] {
            assert!(all.iter().any(|placed| placed.path() == path), "{path}");
        }
        let data = &all.iter().find(|placed| placed.name == "local-path-config").expect("settings").object["data"];
        let json = |key: &str| -> Value { serde_json::from_str(data[key].as_str().expect("text")).expect("JSON") };
        assert_eq!(json("helperPod.yaml")["spec"]["containers"][0]["image"], "a.example/image:1");
        assert_eq!(json("config.json")["nodePathMap"][0]["paths"][0], FOLDER);
    }
}
