//! The objects of each part, with a chart's values where a box has its own. Pure.

use agent_api::clusters;
use agent_api::metal3::crds as metal3_crds;
use agent_api::release::{Digest, Image, Release};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster::objects::{ObjectsError, Placed};
use crate::provisioning;
use crate::registry::pod as registry;
use crate::services::clusters as services_of_clusters;
use crate::services::deployed::{Controller, NAMESPACE, place};
use crate::services::parts::{resources, restricted};
use crate::services::{Mount, dhcp, metal3, sip, vino};

/// Placeholders of a chart for what a box knows by itself.
const REGISTRY: &str = "{{ .Values.registry }}";
const IN_NAMESPACE: &str = "{{ .Release.Namespace }}";
const ADDRESS: &str = "{{ required `address: the address at which servers reach this node` .Values.address }}";
const NODE: &str = "{{ required `node: the name of the node, as kubectl get nodes tells it` .Values.node }}";
/// Name of the pod that runs services as the box does, and of what belongs to it.
const ON_NODE: &str = "foothold-node";
/// Annotation of a pod with the digest of what it is made of, images too.
const CONTENT: &str = "foothold.dev/content";
/// Health of that pod, on the loopback address.
const HEALTH: u16 = 8090;

/// A part of the box.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// `baremetalhost`, `dhcp`, `bpa`, `kpa`, `sip`, `vino`, `registry`; `node` is what several of them share.
    pub name: &'static str,
    /// Images that it runs, by reference of the release.
    pub images: Vec<String>,
    /// The kinds that it needs.
    pub definitions: Vec<Value>,
    /// Its other objects, in the order in which they are needed.
    pub objects: Vec<Value>,
}

/// All parts that the release has.
pub fn print(release: &Release) -> Result<Vec<Part>, ObjectsError> {
    let reference = |begins: &str| release.image(begins).map(|image| image.reference.clone());
    let pulled = |begins: &str| release.image(begins).map(pulled);
    let mut parts = Vec::new();
    let Some((agent, agent_name)) = pulled(metal3::IMAGE).zip(reference(metal3::IMAGE)) else { return Ok(parts) };
    if let Some(ironic) = reference(provisioning::IMAGE) {
        let images = vec![agent_name.clone(), ironic];
        parts.push(part("baremetalhost", images, metal3::without_secret(&agent)?));
    }
    if let Some(dnsmasq) = reference(dhcp::IMAGE) {
        let hosts = definition("baremetalhosts.metal3.io");
        parts.push(part("dhcp", vec![agent_name.clone(), dnsmasq], hosts.map(|it| place(&it)).transpose()?));
    }
    let helm = pulled(services_of_clusters::HELM).zip(reference(services_of_clusters::HELM));
    if let (Some(_), Some((helm, helm_name))) = (&release.clusters, helm) {
        let bpa = services_of_clusters::controller(&agent, ADDRESS, release);
        let kinds = |names: &[&str]| names.iter().filter_map(|name| definition(name)).collect::<Vec<_>>();
        let definitions =
            kinds(&["baremetalhosts.metal3.io", "provisionings.bpa.akraino.org", "softwares.bpa.akraino.org"]);
        let mut bpa = part("bpa", vec![agent_name.clone()], placed(&definitions, &bpa)?);
        bpa.objects.iter_mut().for_each(|object| make_folder(object, &agent));
        parts.push(bpa);
        let kpa = services_of_clusters::releases(&agent, &helm, ADDRESS);
        let definitions = kinds(&["provisionings.bpa.akraino.org", "releases.kpa.foothold.dev"]);
        parts.push(part("kpa", vec![agent_name.clone(), helm_name], placed(&definitions, &kpa)?));
    }
    if let Some(of_sip) = sip::Images::of(release, pulled) {
        let images = [sip::IMAGE, sip::JUMP_HOST, sip::OIDC].into_iter().filter_map(reference).collect();
        let hosts = definition("baremetalhosts.metal3.io").map(|it| place(&it)).transpose()?;
        parts.push(part("sip", images, hosts.into_iter().chain(sip::all(&of_sip, Some(ADDRESS))?)));
    }
    let of_vino = pulled(vino::IMAGE).zip(reference(vino::IMAGE));
    if let (Some(declared), Some((image, name))) = (&release.vino, of_vino) {
        let hosts = definition("baremetalhosts.metal3.io").map(|it| place(&it)).transpose()?;
        let vino = vino::Vino::with(agent.clone(), image, declared.interface.clone());
        parts.push(part("vino", vec![agent_name.clone(), name], hosts.into_iter().chain(vino::objects(&vino)?)));
    }
    if let Some(registry) = reference(registry::IMAGE) {
        parts.push(part("registry", vec![agent_name.clone(), registry], []));
    }
    parts.push(Part { name: "node", images: vec![agent_name], definitions: Vec::new(), objects: on_node(&agent) });
    Ok(parts)
}

/// The image in the registry that a chart is told; by tag alone where that is its own, as it is imported (as
/// [`Image::in_registry`] has it).
fn pulled(image: &Image) -> String {
    let (own, path) = image.reference.split_once('/').unwrap_or(("", &image.reference));
    format!("{REGISTRY}/{path}{{{{ if ne .Values.registry `{own}` }}}}@{}{{{{ end }}}}", image.manifest)
}

fn placed(kinds: &[Value], controller: &Controller) -> Result<Vec<Placed>, ObjectsError> {
    let mut all: Vec<Placed> = kinds.iter().map(place).collect::<Result<_, _>>()?;
    all.extend(controller.rights()?);
    all.push(controller.deployment()?);
    Ok(all)
}

/// A kind by its name.
fn definition(name: &str) -> Option<Value> {
    let all = metal3_crds::all().into_iter().chain(clusters::crds::all());
    let mut all = all.filter_map(|definition| serde_json::to_value(definition).ok());
    all.find(|definition| definition["metadata"]["name"] == name)
}

fn part(name: &'static str, images: Vec<String>, all: impl IntoIterator<Item = Placed>) -> Part {
    let objects = all.into_iter().map(|placed| for_chart(placed.object));
    let (definitions, objects) = objects.partition(|object| object["kind"] == "CustomResourceDefinition");
    Part { name, images, definitions, objects }
}

/// The object as a chart has it: its namespace is the release's, its pod runs on the chosen node, from images that are
/// pulled.
fn for_chart(mut object: Value) -> Value {
    if object["metadata"]["namespace"] == NAMESPACE {
        object["metadata"]["namespace"] = IN_NAMESPACE.into();
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        // Groups have none.
        if subject["namespace"] == NAMESPACE {
            subject["namespace"] = IN_NAMESPACE.into();
        }
    }
    if object["kind"] == "Deployment" {
        // What the box takes away of an older Deployment of its own.
        if let Some(strategy) = object["spec"]["strategy"].as_object_mut() {
            strategy.remove("rollingUpdate");
        }
        let template = &mut object["spec"]["template"];
        // Who runs Ironic says the box's own anew. Images that were imported keep their tags: the pod is another one all the
        // same.
        let digest = Digest::of(template["spec"].to_string()).to_string();
        template["metadata"]["annotations"] = json!({CONTENT: digest});
        let pod = &mut template["spec"];
        pod["nodeSelector"] = json!({"kubernetes.io/hostname": NODE});
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            container["imagePullPolicy"] = "IfNotPresent".into();
        }
        for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
            if volume["hostPath"]["type"] == "Directory" {
                volume["hostPath"]["type"] = "DirectoryOrCreate".into();
            }
        }
    }
    object
}

/// The agent makes the folder before the controller writes into it, as it does on the box.
fn make_folder(object: &mut Value, image: &str) {
    if object["kind"] != "Deployment" {
        return;
    }
    let pod = &mut object["spec"]["template"]["spec"];
    let mount = Mount::folder("clusters", services_of_clusters::FOLDER).mount();
    let mut rights = json!(restricted(&["CHOWN", "DAC_OVERRIDE", "FOWNER"]));
    rights["runAsUser"] = 0.into();
    rights["runAsNonRoot"] = false.into();
    pod["initContainers"] = json!([{
        "name": "folder", "image": image, "imagePullPolicy": "IfNotPresent",
        "args": ["parts", "folder"],
        "securityContext": rights,
        "resources": resources(("10m", "16Mi"), Some("64Mi")),
        "volumeMounts": [mount],
    }]);
}

/// The pod that runs services as the box does, and its Site. It is root of its node, as the agent is on the box.
fn on_node(image: &str) -> Vec<Value> {
    let metadata = json!({"name": ON_NODE, "namespace": IN_NAMESPACE});
    let labels = json!({"app.kubernetes.io/name": ON_NODE});
    let site = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque",
        "data": {"site.yaml": "{{ include `foothold.site` . | b64enc }}"},
    });
    let from_pod = |name: &str, field: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}});
    let host = |name: &str, path: &str, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
    let probe = |path: &str, period: i32| json!({"httpGet": {"host": "127.0.0.1", "port": HEALTH, "path": path}, "periodSeconds": period});
    let pod = json!({
        "hostNetwork": true,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "priorityClassName": "system-cluster-critical",
        "automountServiceAccountToken": false,
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "tolerations": [{"operator": "Exists"}],
        // It gives back what it put into the kubelet's folder.
        "terminationGracePeriodSeconds": 30,
        "containers": [{
            "name": "node", "image": image, "imagePullPolicy": "IfNotPresent",
            "args": [
                "parts", "node", "--services", "{{ include `foothold.services` . }}", "--site", "/etc/foothold/site.yaml",
                "--registry", REGISTRY, "--namespace", IN_NAMESPACE, "--node", "$(NODE_NAME)", "--address", "$(NODE_ADDRESS)",
                "--health-address", format!("127.0.0.1:{HEALTH}"),
            ],
            "env": [from_pod("NODE_NAME", "spec.nodeName"), from_pod("NODE_ADDRESS", "status.hostIP")],
            // Static pods, mounts of uploads, files of other users.
            "securityContext": {"privileged": true, "runAsUser": 0},
            "resources": resources(("20m", "64Mi"), Some("512Mi")),
            "livenessProbe": probe("/healthz", 30),
            "readinessProbe": probe("/readyz", 5),
            "volumeMounts": [
                {"name": "run", "mountPath": "/run/foothold", "mountPropagation": "Bidirectional"},
                {"name": "data", "mountPath": "/var/lib/foothold", "mountPropagation": "Bidirectional"},
                {"name": "services", "mountPath": "/usr/share/foothold/services", "readOnly": true},
                {"name": "manifests", "mountPath": "/etc/kubernetes/manifests"},
                {"name": "admin", "mountPath": "/etc/kubernetes/super-admin.conf", "readOnly": true},
                {"name": "site", "mountPath": "/etc/foothold", "readOnly": true},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }],
        "volumes": [
            host("run", "/run/foothold", "DirectoryOrCreate"),
            host("data", "/var/lib/foothold", "DirectoryOrCreate"),
            host("services", "/var/lib/foothold/medium/services", "Directory"),
            host("manifests", "/etc/kubernetes/manifests", "Directory"),
            host("admin", "/etc/kubernetes/admin.conf", "File"),
            {"name": "site", "secret": {"secretName": ON_NODE, "defaultMode": 0o400}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    });
    let content = Digest::of(pod.to_string()).to_string();
    let annotations = json!({"foothold.dev/site": "{{ include `foothold.site` . | sha256sum }}", CONTENT: content});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": ON_NODE, "namespace": IN_NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    });
    vec![site, deployment]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_api::release::{Clusters, Digest, Image, Release, Sip, Vino};
    use serde_json::{Value, json};

    use super::{Part, print};
    use crate::fixtures::release;

    fn whole() -> Release {
        let image = |reference: &&str| Image {
            reference: (*reference).to_owned(),
            index: None,
            inner: Vec::new(),
            manifest: Digest::of(reference),
            blobs: Vec::new(),
        };
        let names = [
            "agent:0.1.0",
            "ironic:29.0.5",
            "dnsmasq:2.91",
            "helm:4.3.1",
            "sip:0.1.0",
            "jumphost:10.0",
            "oidc:2.7.6",
            "vino:0.1.0",
            "registry:3.1.2",
        ];
        let references: Vec<String> = names.iter().map(|name| format!("foothold.dev/{name}")).collect();
        Release {
            images: references.iter().map(|reference| image(&reference.as_str())).collect(),
            clusters: Some(Clusters::default()),
            sip: Some(Sip {}),
            vino: Some(Vino { interface: Some("ens5".to_owned()) }),
            ..release()
        }
    }

    fn parts(release: &Release) -> BTreeMap<&'static str, Part> {
        print(release).expect("printed").into_iter().map(|part| (part.name, part)).collect()
    }

    fn deployments(part: &Part) -> impl Iterator<Item = &Value> {
        part.objects.iter().filter(|object| object["kind"] == "Deployment")
    }

    #[test]
    fn every_part_has_its_kinds_rights_and_pod() {
        let parts = parts(&whole());
        let counts: Vec<(&str, usize, usize)> =
            parts.values().map(|part| (part.name, part.definitions.len(), part.objects.len())).collect();
        let expected = [
            ("baremetalhost", 13, 4),
            ("bpa", 3, 4),
            ("dhcp", 1, 0),
            ("kpa", 2, 4),
            ("node", 0, 2),
            ("registry", 0, 0),
            ("sip", 2, 4),
            ("vino", 3, 9),
        ];
        assert_eq!(counts, expected);
        for part in parts.values() {
            let text = serde_json::to_string(&part.objects).expect("JSON");
            assert!(!text.contains("kube-system") && !text.contains("\"Never\""), "{text}");
            for deployment in deployments(part) {
                let pod = &deployment["spec"]["template"]["spec"];
                assert!(pod["nodeSelector"]["kubernetes.io/hostname"].is_string(), "{deployment}");
                let containers = pod["containers"].as_array().expect("containers").iter();
                for container in containers.chain(pod["initContainers"].as_array().into_iter().flatten()) {
                    let image = container["image"].as_str().expect("an image");
                    let by_tag = image.starts_with("{{ .Values.registry }}/") && image.ends_with("{{ end }}");
                    let by_digest = image.contains("{{ if ne .Values.registry `foothold.dev` }}@sha256:");
                    assert!(by_tag && by_digest, "{image}");
                }
            }
        }
    }

    #[test]
    fn what_pods_start_is_pulled_by_digest_too() {
        let parts = parts(&whole());
        let parts_flags =
            [("kpa", &["--helm"][..]), ("sip", &["--image", "--jump-host", "--oidc"]), ("vino", &["--image"])];
        for (part, flags) in parts_flags {
            let deployment = deployments(&parts[part]).next().expect("a Deployment");
            let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().expect("arguments");
            for flag in flags {
                let at = args.iter().position(|arg| arg == flag).expect("the flag");
                assert!(args[at + 1].as_str().expect("a text").contains("@sha256:"), "{args:?}");
            }
        }
    }

    #[test]
    fn the_folder_of_clusters_is_made_by_the_agent_before_the_controller_runs() {
        let parts = parts(&whole());
        let pod = &deployments(&parts["bpa"]).next().expect("a Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["initContainers"][0]["args"], serde_json::json!(["parts", "folder"]));
        assert_eq!(pod["initContainers"][0]["volumeMounts"][0]["mountPath"], "/var/lib/foothold/clusters");
        assert_eq!(pod["volumes"][0]["hostPath"]["type"], "DirectoryOrCreate");
        assert!(
            parts["kpa"].objects.iter().all(|object| object["spec"]["template"]["spec"]["initContainers"].is_null())
        );
    }

    /// What it makes is in a namespace of its own, and accounts are named where they are.
    #[test]
    fn vino_keeps_its_namespace_and_nothing_of_it_shares_a_port_with_the_node() {
        let parts = parts(&whole());
        let of = |kind: &str, name: &str| {
            let found = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
            parts["vino"].objects.iter().find(found).unwrap_or_else(|| panic!("{kind} {name}")).clone()
        };
        assert_eq!(
            of("Namespace", "vino-system")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            "privileged"
        );
        let binding = of("RoleBinding", "vino-operator");
        assert_eq!(binding["metadata"]["namespace"], "vino-system");
        assert_eq!(binding["subjects"][0]["namespace"], "{{ .Release.Namespace }}");
        assert_eq!(of("ClusterRoleBinding", "vino-node")["subjects"][0]["namespace"], Value::Null);
        let arguments = |part: &str| {
            let pod = &deployments(&parts[part]).next().expect("a Deployment")["spec"]["template"]["spec"];
            pod["containers"][0]["args"].as_array().expect("arguments").clone()
        };
        assert!(arguments("vino").ends_with(&[json!("--interface"), json!("ens5")]));
        let addresses = ["bpa", "kpa", "sip", "vino", "node"].map(|part| {
            let args = arguments(part);
            let is = |arg: &Value| arg == "--metrics-address" || arg == "--health-address";
            let at = args.iter().position(is).expect("an address");
            args[at + 1].as_str().expect("a text").to_owned()
        });
        assert_eq!(addresses.iter().collect::<std::collections::BTreeSet<_>>().len(), addresses.len(), "{addresses:?}");
    }

    #[test]
    fn a_release_that_declares_nothing_has_no_parts() {
        assert_eq!(print(&release()).expect("printed"), []);
        let without = Release { clusters: None, sip: None, vino: None, ..whole() };
        assert_eq!(parts(&without).into_keys().collect::<Vec<_>>(), ["baremetalhost", "dhcp", "node", "registry"]);
    }
}
