//! What `kubeadm init` would write and create, taken from its own dry run.
//!
//! ```text
//! kubeadm.yaml --fill--> kubeadm init --dry-run --+-- folder: manifests, kubelet's settings
//!                                                 +-- output: "Attached object:" ... --> objects.json
//! ```
//!
//! The dry run needs neither network nor API server, takes a fraction of a second and works in a
//! scratch root (`--rootfs`). Everything random in it (keys, the bootstrap token, the authority in
//! `cluster-info`) is left out or replaced by a placeholder, so that equal inputs give equal files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Name of the node in the templates.
pub(super) const NODE: &str = "foothold-node-name";
/// Stands for the cluster's authority in `cluster-info`.
pub(super) const CA: &str = "foothold-ca-data";
/// Where the dry run writes, below the scratch root.
const DRY: &str = "/dry";
/// Where the dry run reads its configuration, below the scratch root.
const CONFIG: &str = "/etc/kubeadm.yaml";
/// How the dry run introduces an object, and what it would do with it.
const ACTION: &str = "[dryrun] Would perform action ";
const OBJECT: &str = "[dryrun] Attached object:";
/// How `mark-control-plane` names its labels.
const LABELS: &str = "as control-plane by adding the labels: [";

/// Files of the dry run and where they go in the templates.
const FILES: [(&str, &str); 7] = [
    ("etcd.yaml", "manifests/etcd.yaml"),
    ("kube-apiserver.yaml", "manifests/kube-apiserver.yaml"),
    ("kube-controller-manager.yaml", "manifests/kube-controller-manager.yaml"),
    ("kube-scheduler.yaml", "manifests/kube-scheduler.yaml"),
    ("config.yaml", "kubelet-config.yaml"),
    ("instance-config.yaml", "instance-config.yaml"),
    ("kubeadm-flags.env", "kubeadm-flags.env"),
];

/// What differs between appliances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `v1.36.4`.
    pub version: String,
    /// Addresses of pods.
    pub pod_cidr: String,
    /// Addresses of Services.
    pub service_cidr: String,
}

/// The configuration for kubeadm: the template with these parameters.
pub fn fill(template: &str, parameters: &Parameters) -> String {
    template
        .replace("$version", &parameters.version)
        .replace("$podCIDR", &parameters.pod_cidr)
        .replace("$serviceCIDR", &parameters.service_cidr)
}

/// Arguments and environment of the dry run in the scratch root `root`.
pub fn dry_run(root: &Path) -> (Vec<String>, (&'static str, &'static str)) {
    let argv = ["init", "--dry-run", "--skip-phases=preflight", "--ignore-preflight-errors=all", "--config", CONFIG];
    let mut argv: Vec<String> = argv.iter().map(|&arg| arg.to_owned()).collect();
    argv.push("--rootfs".to_owned());
    argv.push(root.display().to_string());
    (argv, ("KUBEADM_INIT_DRYRUN_DIR", DRY))
}

/// Runs kubeadm with these arguments and this variable; its standard output.
pub type RunKubeadm<'a> = dyn FnMut(&[String], (&str, &str)) -> Result<Vec<u8>> + 'a;

/// Patches of kubeadm's objects (`patches.directory` of its configuration): file name -> bytes.
pub type Patches = BTreeMap<String, Vec<u8>>;

/// Beginning of their names among the templates.
pub const PATCHES_FOLDER: &str = "patches/";
/// Where kubeadm finds them, in a scratch root and on the box.
const PATCHES: &str = "/usr/share/foothold/kubernetes/patches";

/// Reads the patches of a folder.
pub fn patches_in(folder: &Path) -> Result<Patches> {
    let mut patches = Patches::new();
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        patches.insert(entry.file_name().to_string_lossy().into_owned(), fs_err::read(entry.path())?);
    }
    Ok(patches)
}

/// Writes them where kubeadm finds them.
pub fn put_patches(root: &Path, patches: &Patches) -> Result<()> {
    let folder = root.join(PATCHES.trim_start_matches('/'));
    fs_err::create_dir_all(&folder)?;
    Ok(patches.iter().try_for_each(|(name, bytes)| fs_err::write(folder.join(name), bytes))?)
}

/// Renders the templates: file name -> bytes. `scratch` is an empty folder; `run` runs kubeadm with
/// these arguments and this variable and returns its standard output.
pub fn render(
    config: &str,
    patches: &Patches,
    scratch: &Path,
    run: &mut RunKubeadm<'_>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let inside = |path: &str| scratch.join(path.trim_start_matches('/'));
    for folder in ["/tmp", "/etc", DRY] {
        fs_err::create_dir_all(inside(folder))?;
    }
    fs_err::write(inside(CONFIG), config)?;
    put_patches(scratch, patches)?;
    let (argv, variable) = dry_run(scratch);
    let output = run(&argv, variable).context("running kubeadm's dry run")?;
    let output = String::from_utf8(output).context("kubeadm's dry run printed no text")?;
    let mut files = BTreeMap::new();
    for (from, to) in FILES {
        let text = fs_err::read_to_string(inside(DRY).join(from)).context("kubeadm's dry run left something out")?;
        files.insert(to.to_owned(), without_override(&text).into_bytes());
    }
    let mut objects = serde_json::to_vec_pretty(&objects(&output)?)?;
    objects.push(b'\n');
    files.insert("objects.json".to_owned(), objects);
    files.insert("kubeadm.yaml".to_owned(), config.as_bytes().to_vec());
    files.extend(patches.iter().map(|(name, bytes)| (format!("{PATCHES_FOLDER}{name}"), bytes.clone())));
    Ok(files)
}

/// On the box the node has the name of the host: kubeadm writes no override then.
fn without_override(text: &str) -> String {
    let flag = format!("--hostname-override={NODE}");
    text.replace(&format!("{flag} "), "").replace(&flag, "")
}

/// The objects that the dry run would create, in its order, and those it does not show.
fn objects(output: &str) -> Result<Vec<Value>> {
    let mut objects = vec![cluster_admins()];
    let mut action = "";
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix(ACTION) {
            action = rest.split(' ').next().unwrap_or_default();
        } else if let Some((_, labels)) = line.split_once(LABELS) {
            objects.push(node(labels.trim_end_matches(']')));
        } else if line == OBJECT && action == "CREATE" {
            let mut text = String::new();
            // Nothing in an object's YAML begins with a bracket in the first column.
            while let Some(line) = lines.next_if(|line| !line.starts_with('[')) {
                text.push_str(line);
                text.push('\n');
            }
            objects.extend(clean(&text)?);
        }
    }
    ensure!(objects.len() > 20, "kubeadm's dry run shows only {} objects: its output has another form", objects.len());
    ensure!(objects.iter().any(|object| object["kind"] == "Node"), "kubeadm's dry run names no labels for the node");
    Ok(objects)
}

/// Parses one object and takes out what belongs to one cluster only.
fn clean(text: &str) -> Result<Option<Value>> {
    let mut object: Value = serde_saphyr::from_str(text).with_context(|| format!("reading an object:\n{text}"))?;
    if object["kind"] == "Secret" {
        // The bootstrap token: boxes have none until somebody asks for one.
        return Ok(None);
    }
    let Some(map) = object.as_object_mut() else { bail!("not an object:\n{text}") };
    map.remove("status");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("creationTimestamp");
    }
    if object["metadata"]["name"] == "cluster-info" {
        let kubeconfig = object["data"]["kubeconfig"].as_str().context("`cluster-info` holds no kubeconfig")?;
        object["data"]["kubeconfig"] = Value::String(without_ca(kubeconfig)?);
    }
    Ok(Some(object))
}

fn without_ca(kubeconfig: &str) -> Result<String> {
    let key = "certificate-authority-data: ";
    let (before, rest) = kubeconfig.split_once(key).context("`cluster-info` names no authority")?;
    let after = rest.find('\n').map_or("", |end| &rest[end..]);
    Ok(format!("{before}{key}{CA}{after}"))
}

/// What `mark-control-plane` adds to the Node.
fn node(labels: &str) -> Value {
    let labels: BTreeMap<&str, &str> =
        labels.split_whitespace().map(|label| label.split_once('=').unwrap_or((label, ""))).collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}})
}

/// Created by `kubeadm init` with `super-admin.conf` on its first use of `admin.conf`, and not shown
/// by the dry run (kubeadm, `EnsureAdminClusterRoleBinding`).
fn cluster_admins() -> Value {
    let group = "kubeadm:cluster-admins";
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": group},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": group}],
    })
}

#[cfg(test)]
mod tests {
    use super::{Parameters, fill, objects, render, without_override};

    const OUTPUT: &str = include_str!("testdata/dry-run.txt");

    #[test]
    fn objects_of_a_real_dry_run_are_complete_and_hold_nothing_of_its_cluster() {
        let objects = objects(OUTPUT).expect("objects");
        let text = serde_json::to_string(&objects).expect("JSON");
        assert!(!text.contains("BEGIN") && !text.contains("LS0t"), "a certificate is left");
        assert!(!text.contains("bootstrap.kubernetes.io/token"), "a token is left");
        assert!(text.contains("certificate-authority-data: foothold-ca-data\\n"));
        let titles: Vec<String> = objects
            .iter()
            .map(|object| {
                let namespace = object["metadata"]["namespace"].as_str().map(|n| format!("{n}/")).unwrap_or_default();
                let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                format!("{} {namespace}{}", word(&object["kind"]), word(&object["metadata"]["name"]))
            })
            .collect();
        insta::assert_snapshot!(titles.join("\n"));
    }

    #[test]
    fn another_form_of_output_is_an_error_and_not_an_empty_cluster() {
        assert!(objects("[init] done\n").is_err());
    }

    #[test]
    fn the_name_of_the_host_needs_no_override() {
        let text = "KUBELET_KUBEADM_ARGS=\"--hostname-override=foothold-node-name --node-ip=198.18.0.1\"\n";
        assert_eq!(without_override(text), "KUBELET_KUBEADM_ARGS=\"--node-ip=198.18.0.1\"\n");
        let alone = "KUBELET_KUBEADM_ARGS=\"--hostname-override=foothold-node-name\"\n";
        assert_eq!(without_override(alone), "KUBELET_KUBEADM_ARGS=\"\"\n");
    }

    #[test]
    fn the_configuration_gets_its_parameters() {
        let parameters = Parameters {
            version: "v1.36.4".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            service_cidr: "10.96.0.0/12".to_owned(),
        };
        let text = fill(include_str!("../../../packages/kubernetes/kubeadm.yaml"), &parameters);
        assert!(text.contains("kubernetesVersion: v1.36.4\n") && text.contains("podSubnet: 10.244.0.0/16\n"));
        assert!(!text.contains('$'));
    }

    #[test]
    fn the_dry_run_is_given_a_root_and_its_files_are_taken() {
        let scratch = tempfile::tempdir().expect("a folder");
        let root = scratch.path().to_owned();
        let mut run = |argv: &[String], variable: (&str, &str)| {
            assert!(argv.contains(&"--dry-run".to_owned()) && argv.contains(&root.display().to_string()));
            assert_eq!(variable, ("KUBEADM_INIT_DRYRUN_DIR", "/dry"));
            for (file, _) in super::FILES {
                fs_err::write(root.join("dry").join(file), file)?;
            }
            Ok(OUTPUT.as_bytes().to_vec())
        };
        let patches = super::Patches::from([("etcd+strategic.yaml".to_owned(), b"spec: {}".to_vec())]);
        let files = render("config", &patches, scratch.path(), &mut run).expect("rendered");
        assert_eq!(files.len(), 10);
        assert_eq!(files["patches/etcd+strategic.yaml"], b"spec: {}");
        let there = scratch.path().join("usr/share/foothold/kubernetes/patches/etcd+strategic.yaml");
        assert_eq!(fs_err::read(there).expect("where kubeadm looks"), b"spec: {}");
        assert_eq!(files["kubelet-config.yaml"], b"config.yaml");
        assert_eq!(files["kubeadm.yaml"], b"config");
    }
}
