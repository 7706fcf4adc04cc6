//! An installer of the user's: an image that the spec names, run as a Job as ICN's operator runs its own.
//!
//! ```text
//! /opt/kud/multi-cluster/CLUSTER/hosts.ini, inventory.ini   in
//! /.ssh/id_rsa                                              in: the user's key
//! ./installer --cluster CLUSTER [--network PODS] [--plugins ...]
//! /opt/kud/multi-cluster/CLUSTER/artifacts/admin.conf       out, and exit code 0
//! ```
//! The Job is named after the cluster, and an annotation says for which nodes it was made. So a restarted operator finds
//! it, and an added node leads to a new Job.

use std::path::PathBuf;
use std::time::Duration;

use agent_api::clusters::provisioning::{InstallerWish, NodePhase, Provisioning};
use agent_api::meta::Time;
use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;

use super::act::StartError;
use super::controller::Controller;
use super::decide::Chosen;
use super::install::{Made, Work};
use crate::cluster::follow::client_of;
use crate::host::files;
use crate::operators::bpa::common::MANAGER;
use crate::operators::bpa::login::secret;
use crate::operators::kit::{Object as _, ObjectError, Objects};
use crate::steps::Key;

/// Where the installer finds the folders of all clusters.
const FOLDER: &str = "/opt/kud/multi-cluster";
/// Settings that the user gives to the installer, if any.
const SETTINGS: &str = "kud-installer";
/// Annotation: what the Job was made for.
const DIGEST: &str = "bpa.akraino.org/installer-digest";
/// Longest run of an installer. ICN's fetches and compiles for an hour.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// Pause between two looks at the Job.
const LOOK: Duration = Duration::from_secs(2);
/// Lines of its log that are kept.
const LINES: i64 = 10_000;

/// Work of an installer.
pub(super) struct JobOrder {
    objects: Objects,
    image: String,
    key: Secret,
    job: Job,
    /// The cluster's folder.
    folder: PathBuf,
    all: PathBuf,
}

/// Name of the Job, as ICN's operator has it, and of the Secret with its key.
pub(super) fn job_name(object: &Provisioning) -> String {
    format!("kud-{}", object.cluster())
}

impl Controller {
    /// Writes the inventories, and makes the Job's objects, which are not created yet.
    pub(super) async fn job_order(
        &self,
        object: &Provisioning,
        installer: &InstallerWish,
        chosen: &[Chosen],
    ) -> Result<JobOrder, StartError> {
        let private = self.common.users_key(object).await?;
        self.write_inventories(object, chosen).map_err(|error| StartError::Told(format!("{error:#}")))?;
        let folder = self.folder(object);
        let key = secret(object, &job_name(object), "Opaque", [("id_rsa", private)]);
        let all = self.common.folder.clone();
        let job = made(object, installer, chosen, &self.common.folder_on_host.to_string_lossy());
        Ok(JobOrder {
            objects: self.common.base.objects.clone(),
            image: installer.image.clone(),
            key,
            job,
            folder,
            all,
        })
    }

    /// Removes the Job, its pod and its Secret.
    pub(super) async fn forget_job(&self, object: &Provisioning) -> Result<(), ObjectError> {
        if object.spec.installer.is_none() {
            return Ok(());
        }
        let ((namespace, _), name) = (object.key(), job_name(object));
        self.common.base.objects.delete::<Job>(&namespace, &name).await?;
        self.common.base.objects.delete::<Secret>(&namespace, &name).await
    }
}

/// Runs the installer and takes its result.
pub(super) async fn install(order: &JobOrder, work: &Work) -> anyhow::Result<Made> {
    let (namespace, name) = order.job.key();
    let image = &order.image;
    for node in work.nodes() {
        work.change(&node.name, |node| {
            node.phase = NodePhase::Installing;
            node.since = Some(Time(Timestamp::now()));
        });
    }
    let digest = |job: &Job| job.annotations().get(DIGEST).cloned();
    let objects = &order.objects;
    let look = loop {
        work.say(format!("the installer `{image}` begins"));
        match objects.get::<Job>(&namespace, &name).await? {
            None => {
                objects.apply(&order.key, MANAGER).await?;
                objects.apply(&order.job, MANAGER).await?;
            }
            Some(job) if job.leaves() => {}
            Some(job) if digest(&job) != digest(&order.job) => objects.delete::<Job>(&namespace, &name).await?,
            Some(job) => {
                let look = objects.look_at(&job).await?;
                if look.ended.is_some() {
                    break look;
                }
                work.say(look.held_up().map_or_else(
                    || {
                        format!(
                            "the installer `{image}` runs; its log: `kubectl logs job/{name} --namespace {namespace}`"
                        )
                    },
                    |why| format!("the installer `{image}` does not run: {why}"),
                ));
            }
        }
        tokio::time::sleep(LOOK).await;
    };
    // A log that nobody has any more is no reason to lose what was done.
    let log = objects.log_of(&namespace, &look, LINES).await.unwrap_or_else(|error| format!("{error}\n"));
    files::replace_below(&order.all, &order.folder.join("log/installer.log"), log.as_bytes())?;
    let ended = look.ended.as_ref();
    if !ended.is_some_and(|ended| ended.complete) {
        let code = look.terminated()["exitCode"].as_i64();
        let how = code.map_or_else(
            || ended.map(|ended| ended.message.clone()).unwrap_or_default(),
            |code| format!("it ended with {code}"),
        );
        bail!("the installer `{image}` failed: {how}; hint: read its log, `installer`");
    }
    let path = order.folder.join("artifacts/admin.conf");
    let kubeconfig = fs_err::read_to_string(&path).with_context(|| {
        format!("the installer `{image}` ended with 0, and left no kubeconfig in `artifacts/admin.conf`")
    })?;
    let parsed = Kubeconfig::from_yaml(&kubeconfig).context("reading `artifacts/admin.conf` of the installer")?;
    let endpoint = endpoint(&parsed);
    work.say(format!("asking the new cluster at {endpoint}"));
    let version = client_of(parsed).await?.apiserver_version().await;
    let version = version.with_context(|| format!("asking the cluster that `{image}` made at {endpoint}"))?.git_version;
    for node in work.nodes() {
        work.change(&node.name, |node| {
            node.phase = NodePhase::Installed;
            node.installed_at = Some(Time(Timestamp::now()));
        });
    }
    Ok(Made { kubeconfig, version, endpoint, networks: None })
}

/// `HOST:PORT` of a kubeconfig.
fn endpoint(kubeconfig: &Kubeconfig) -> String {
    let server = kubeconfig.clusters.iter().find_map(|one| one.cluster.as_ref()?.server.clone()).unwrap_or_default();
    server.trim_start_matches("https://").trim_end_matches('/').to_owned()
}

/// The words of the command line, with ICN's arguments.
fn words(object: &Provisioning, installer: &InstallerWish) -> Vec<String> {
    let own = if installer.command.is_empty() { vec!["./installer".to_owned()] } else { installer.command.clone() };
    let pods = object.spec.kubernetes.as_ref().and_then(|kubernetes| kubernetes.pod_cidr.clone());
    let pods = pods.or_else(|| object.spec.pod_subnet.clone());
    let network = pods.map(|pods| ["--network".to_owned(), pods]);
    let plugins = &object.spec.kud_plugins;
    let flag = (!plugins.is_empty()).then(|| "--plugins".to_owned());
    let cluster = ["--cluster".to_owned(), object.cluster().to_owned()];
    own.into_iter().chain(cluster).chain(network.into_iter().flatten()).chain(flag).chain(plugins.clone()).collect()
}

fn made(object: &Provisioning, installer: &InstallerWish, chosen: &[Chosen], folder: &str) -> Job {
    let ((namespace, _), name) = (object.key(), job_name(object));
    let words = words(object, installer);
    // ssh refuses a key that others may read. What the installer leaves is read by the operator, which need not be root.
    let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let script = format!(
        "cp -rL /.ssh /root/ && chmod 700 /root/.ssh && chmod 600 /root/.ssh/* || exit 1; \"$@\"; code=$?; \
         chown -R {}:{} {FOLDER}/{} || exit 1; exit $code",
        own.0,
        own.1,
        object.cluster()
    );
    let command = ["/bin/sh", "-c", &script, "sh"].map(str::to_owned).into_iter().chain(words).collect::<Vec<_>>();
    let nodes: Vec<String> =
        chosen.iter().map(|node| format!("{} {} {:?} {:?}", node.name, node.ip, node.roles, node.host)).collect();
    let digest = Key::of(std::iter::once(&installer.image).chain(&command).chain(&nodes)).to_string();
    let labels = json!({"cluster": object.cluster()});
    let job = json!({
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels, "annotations": {DIGEST: digest},
            "ownerReferences": object.controller_owner_ref(&()).map(|owner| vec![owner]),
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": LONGEST.as_secs(),
            "template": {"metadata": {"labels": labels}, "spec": {
                "restartPolicy": "Never",
                // Servers are on a network that pods of the box do not reach by themselves.
                "hostNetwork": true,
                "dnsPolicy": "ClusterFirstWithHostNet",
                "automountServiceAccountToken": false,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "installer", "image": installer.image, "imagePullPolicy": "IfNotPresent",
                    "command": command,
                    "securityContext": {"privileged": true},
                    "envFrom": [{"configMapRef": {"name": SETTINGS, "optional": true}}],
                    "volumeMounts": [{"name": "multi-cluster", "mountPath": FOLDER}, {"name": "ssh", "mountPath": "/.ssh"}],
                }],
                "volumes": [
                    {"name": "multi-cluster", "hostPath": {"path": folder, "type": "Directory"}},
                    {"name": "ssh", "secret": {"secretName": name, "defaultMode": 0o400}},
                ],
            }},
        },
    });
    // What is written here is what the types say; a test makes it.
    serde_json::from_value(job).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::{InstallerWish, NodeRole, Provisioning};
    use serde_json::{Value, json};

    use super::super::decide::tests::chosen;
    use super::{DIGEST, endpoint, made};

    fn object(spec: &Value) -> Provisioning {
        let mut all = json!({"masters": [{"m": {"mac-address": "00:c6:14:04:61:b2"}}]});
        all.as_object_mut().expect("a spec").extend(spec.as_object().expect("a spec").clone());
        serde_json::from_value(json!({"apiVersion": "bpa.akraino.org/v1alpha1", "kind": "Provisioning",
            "metadata": {"name": "p", "namespace": "site", "uid": "u", "labels": {"cluster": "one"}}, "spec": all}))
        .expect("a Provisioning")
    }

    fn job(object: &Provisioning, installer: &InstallerWish, nodes: &[&str]) -> Value {
        let nodes: Vec<_> = nodes.iter().zip(10..).map(|(name, at)| chosen(name, at, &[NodeRole::Master])).collect();
        json!(made(object, installer, &nodes, "/var/lib/foothold/clusters"))
    }

    #[test]
    fn it_is_the_job_of_icns_operator() {
        let installer = InstallerWish { image: "kud:1".to_owned(), command: Vec::new() };
        let with = object(&json!({"PodSubnet": "10.244.64.0/18", "KUDPlugins": ["emco", "a b"]}));
        let job = job(&with, &installer, &["m"]);
        assert_eq!((&job["metadata"]["name"], &job["metadata"]["namespace"]), (&json!("kud-one"), &json!("site")));
        assert_eq!(job["metadata"]["ownerReferences"][0]["name"], "p");
        assert_eq!(job["metadata"]["labels"], json!({"cluster": "one"}));
        assert_eq!(job["spec"]["backoffLimit"], 0);
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!((&pod["hostNetwork"], &pod["restartPolicy"]), (&json!(true), &json!("Never")));
        let container = &pod["containers"][0];
        let words = ["./installer", "--cluster", "one", "--network", "10.244.64.0/18", "--plugins", "emco", "a b"];
        assert_eq!(container["command"].as_array().expect("words")[4..], words.map(|word| json!(word)));
        assert_eq!(container["envFrom"][0]["configMapRef"], json!({"name": "kud-installer", "optional": true}));
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/opt/kud/multi-cluster");
        assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/var/lib/foothold/clusters");
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "kud-one");
    }

    #[test]
    fn another_node_or_another_wish_is_another_job() {
        let installer = |image: &str| InstallerWish { image: image.to_owned(), command: vec!["run".to_owned()] };
        let digest = |job: Value| job["metadata"]["annotations"][DIGEST].as_str().expect("a digest").to_owned();
        let plain = object(&json!({}));
        let first = digest(job(&plain, &installer("a"), &["m"]));
        assert_eq!(first, digest(job(&plain, &installer("a"), &["m"])));
        let others = [
            digest(job(&plain, &installer("b"), &["m"])),
            digest(job(&plain, &installer("a"), &["m", "n"])),
            digest(job(&object(&json!({"KUDPlugins": ["emco"]})), &installer("a"), &["m"])),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
        assert_eq!(
            job(&plain, &installer("a"), &["m"])["spec"]["template"]["spec"]["containers"][0]["command"][4],
            "run"
        );
    }

    #[test]
    fn the_endpoint_is_that_of_the_kubeconfig() {
        let text = "apiVersion: v1\nkind: Config\nclusters: [ { name: a, cluster: { server: \"https://10.0.0.1:6443/\" } } ]\n";
        let parsed = kube::config::Kubeconfig::from_yaml(text).expect("a kubeconfig");
        assert_eq!(endpoint(&parsed), "10.0.0.1:6443");
    }
}
