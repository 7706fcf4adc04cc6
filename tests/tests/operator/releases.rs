//! Releases (`Release`) on a real API server, which is also the cluster that they are for, with a real Helm. Nobody runs
//! pods: the tests are the kubelet, and the controller of Jobs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use foothold::host::command::{Run, Running};
use foothold_agent::helm::look::Cluster as There;
use foothold_agent::operators::kpa::{self, Settings};
use foothold_tests::programs::program;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{admin, define};
use crate::site::{PATIENCE, condition};
use crate::tenants::Tenants;

const WEB: &str = "/apis/kpa.foothold.dev/v1alpha1/namespaces/tenants/releases/web";
const RELEASES: &str = "/apis/kpa.foothold.dev/v1alpha1/namespaces/tenants/releases";
const JOBS: &str = "/apis/batch/v1/namespaces/tenants/jobs";
const PODS: &str = "/api/v1/namespaces/tenants/pods";
const MAP: &str = "/api/v1/namespaces/tenants/configmaps/web";
const RECORDS: &str = "/api/v1/namespaces/tenants/secrets?labelSelector=owner%3Dhelm";

/// The controller of releases, and what its Jobs would run with.
struct Site {
    tenants: Tenants,
    controller: JoinHandle<()>,
    chart: TempDir,
    helm: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

impl Site {
    async fn start() -> Self {
        let tenants = Tenants::prepare().await;
        define(&tenants.api, &agent_api::clusters::crds::all()).await;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        tenants.api.create("/api/v1/namespaces/tenants/serviceaccounts", &account).await.expect("an account");
        let kubeconfig = fs_err::read_to_string(admin(&tenants.cluster)).expect("a kubeconfig");
        for name in ["there", "also-there"] {
            tenants.secret("tenants", name, json!({"value": kubeconfig})).await;
        }
        let settings = Settings {
            kubeconfig: Some(admin(&tenants.cluster)),
            namespace: None,
            address: [127, 0, 0, 1].into(),
            helm: "foothold.dev/helm:1".to_owned(),
            serve: None,
        };
        let stop = CancellationToken::new();
        #[expect(clippy::disallowed_methods, reason = "it ends with the handle")]
        let controller = tokio::spawn(async move { kpa::run(&settings, &stop).await.expect("the controller") });
        let chart = tempfile::tempdir().expect("a folder");
        let site = Self { tenants, controller, chart, helm: program("helm", "helm") };
        site.write("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
        site.write(
            "templates/web.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: web }\ndata: { {{ .Values.key | default \"color\" }}: {{ .Values.color | default \"red\" }} }\n",
        );
        site
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.chart.path().join(name);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs_err::write(path, text).expect("written");
    }

    fn helm(&self, words: &[&str]) -> Run {
        let kubeconfig = admin(&self.tenants.cluster);
        let place = [Path::new("--namespace"), Path::new("tenants"), Path::new("--kubeconfig"), &kubeconfig];
        Run::new(&self.helm).clear_env().env("HOME", self.tenants.cluster.dir.path()).args(words).args(place)
    }

    /// `helm upgrade` as the pod of a release calls it.
    fn upgrade(&self, more: &[&str]) -> Run {
        let words = ["upgrade", "--install", "web", "--reset-values", "--wait", "--timeout", "60s"];
        let ours = ["--server-side=true", "--force-conflicts"];
        self.helm(&[&words[..], &ours, more].concat()).arg(self.chart.path())
    }

    async fn object(&self, path: &str) -> Value {
        self.tenants.api.get(path).await.expect("asked").unwrap_or_default()
    }

    async fn change(&self, path: &str, change: Value) {
        self.tenants.api.merge(path, &change).await.expect("changed");
    }

    async fn says(&self, what: &'static str) -> Value {
        self.tenants.until(WEB, what, |object| condition(object, "Ready").2.contains(what)).await
    }

    /// The only Job, once there is one that nobody ends.
    async fn job(&self) -> Value {
        let begun = Instant::now();
        loop {
            let all = self.object(JOBS).await["items"].as_array().cloned().unwrap_or_default();
            assert!(all.len() < 2, "two Helms: {all:#?}");
            if let Some(job) = all.first().filter(|job| job["metadata"]["deletionTimestamp"].is_null()) {
                return job.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "no Job: {:#}", self.object(WEB).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until somebody ends the Job, and lets it go, as the garbage collector does once its pod is gone.
    async fn ends(&self, job: &Value) {
        let path = path_of(job);
        let ended = self.tenants.until(&path, "ended", |job| !job["metadata"]["deletionTimestamp"].is_null()).await;
        assert_eq!(ended["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        let secret = format!("/api/v1/namespaces/tenants/secrets/{}", name_of(job));
        self.tenants.until(&secret, "gone", Value::is_null).await;
        self.change(&path, json!({"metadata": {"finalizers": null}})).await;
    }

    /// What Kubernetes says once the pod of a Job has ended with this report.
    async fn reports(&self, job: &Value, report: &Value) {
        let name = name_of(job);
        let spec = &job["spec"]["template"];
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec["spec"],
            "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-name": name}}});
        self.tenants.api.create(PODS, &pod).await.expect("a pod");
        let now = "2026-01-01T00:00:00Z";
        let ended = json!({"exitCode": 0, "message": report.to_string(), "startedAt": now, "finishedAt": now});
        let container = json!({"name": "helm", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": ended}});
        let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [container]}});
        self.change(&format!("{PODS}/{name}/status"), status).await;
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let status = json!({"startTime": now, "completionTime": now, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        self.change(&format!("{}/status", path_of(job)), json!({"status": status})).await;
        self.tenants.until(&path_of(job), "gone", Value::is_null).await;
        self.tenants.api.delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).await.expect("deleted");
    }

    /// Starts Helm, and waits until it is in this state, and waits for a hook that nobody runs.
    async fn hangs(&self, state: &str) -> Running {
        let helm = self.upgrade(&["--set", "color=green"]).start().expect("started");
        let begun = Instant::now();
        while self.newest().await != state || self.object(&format!("{JOBS}/hook")).await.is_null() {
            assert!(begun.elapsed() < PATIENCE, "not {state}, but {}", self.newest().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        helm
    }

    /// State of the newest record.
    async fn newest(&self) -> String {
        let all = self.object(RECORDS).await["items"].as_array().cloned().unwrap_or_default();
        let label =
            |record: &Value, name: &str| record["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        let newest = all.iter().max_by_key(|record| label(record, "version").parse::<i64>().unwrap_or_default());
        newest.map(|record| label(record, "status")).unwrap_or_default()
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("a name")
}

fn path_of(job: &Value) -> String {
    format!("{JOBS}/{}", name_of(job))
}

fn installed(revision: i64) -> Value {
    json!({"chart": "web-1.0.0", "revision": revision, "objects": 1})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_one_helm_at_a_time_and_what_others_did_is_put_right() {
    let site = Site::start().await;
    let spec = json!({"kubeConfig": {"secretRef": {"name": "there"}}, "chart": {"file": "files/web-1.0.0.tgz"}});
    let object = json!({"apiVersion": "kpa.foothold.dev/v1alpha1", "kind": "Release", "metadata": {"name": "web"}, "spec": spec});
    site.tenants.api.create(RELEASES, &object).await.expect("taken");

    // Where it goes is known before it goes there, and another spec waits until the Helm before has ended.
    let first = site.job().await;
    assert_eq!(site.object(WEB).await["status"]["installed"]["secret"]["name"], "there");
    site.change(WEB, json!({"spec": {"values": {"color": "blue"}}})).await;
    site.says("the Helm before is ended first").await;
    site.ends(&first).await;
    let second = site.job().await;
    let attempt = |job: &Value| job["metadata"]["annotations"]["kpa.foothold.dev/attempt"].clone();
    assert_ne!(attempt(&first), attempt(&second));
    site.upgrade(&["--set", "color=blue"]).output().expect("installed");
    site.reports(&second, &installed(1)).await;
    site.says("revision 1").await;

    // By hand.
    site.upgrade(&["--set", "color=green"]).output().expect("upgraded");
    site.change(WEB, json!({"metadata": {"annotations": {"look": "1"}}})).await;
    let mends = site.job().await;
    site.says("Helm upgrades it, because somebody else brought revision 2, after revision 1").await;
    site.upgrade(&["--set", "color=blue"]).output().expect("upgraded");
    site.reports(&mends, &installed(3)).await;
    site.says("revision 3").await;

    // An upgrade fails, and the spec is put back.
    site.change(WEB, json!({"spec": {"values": {"key": "a/b"}}})).await;
    let fails = site.job().await;
    site.upgrade(&["--set", "key=a/b"]).output().expect_err("no key");
    site.reports(&fails, &json!({"chart": "", "revision": 0, "objects": 0, "error": "no such key"})).await;
    site.says("no such key").await;
    site.change(WEB, json!({"spec": {"values": {"key": null}}})).await;
    let back = site.job().await;
    site.says("because its newest revision 4 is `failed`").await;
    site.upgrade(&["--set", "color=blue"]).output().expect("upgraded");
    site.reports(&back, &installed(5)).await;
    site.says("revision 5").await;

    // The same cluster by another name: nothing is uninstalled.
    site.change(WEB, json!({"spec": {"kubeConfig": {"secretRef": {"name": "also-there"}}}})).await;
    let renamed = site.job().await;
    assert_eq!(renamed["spec"]["template"]["spec"]["containers"][0]["args"], json!(["release", "apply"]));
    assert_eq!(site.object(WEB).await["status"]["installed"]["secret"]["name"], "also-there");

    // Deleted while it is suspended: what is of ours goes.
    site.change(WEB, json!({"spec": {"suspend": true}})).await;
    site.says("`spec.suspend` is true").await;
    site.tenants.api.delete(WEB).await.expect("deleted");
    site.ends(&renamed).await;
    site.tenants.until(WEB, "gone", Value::is_null).await;
    assert_eq!((site.newest().await.as_str(), &site.object(MAP).await["data"]["color"]), ("deployed", &json!("blue")));
    assert_eq!(site.object(JOBS).await["items"], json!([]), "nothing removes it");
}

/// What the pod of a release relies on, by the box's own Helm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_helm_that_was_cut_off_left_does_not_keep_the_next_one_out() {
    let site = Site::start().await;
    let kubeconfig = fs_err::read_to_string(admin(&site.tenants.cluster)).expect("a kubeconfig");
    let there = There::of(&kubeconfig).await.expect("a cluster");
    let hook = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: hook\n  annotations: { helm.sh/hook: \"pre-install,pre-upgrade\" }\n\
        spec: { template: { spec: { restartPolicy: Never, containers: [{ name: a, image: a }] } } }\n";
    for state in ["pending-install", "pending-upgrade"] {
        site.write("templates/hook.yaml", hook);
        // Dropped, it is killed.
        drop(site.hangs(state).await);
        site.write("templates/hook.yaml", "");
        let refused = site.upgrade(&[]).output().expect_err("locked").to_string();
        assert!(refused.contains("another operation (install/upgrade/rollback) is in progress"), "{refused}");
        there.unlock("tenants", "web").await.expect("unlocked");
        assert_eq!(site.newest().await, "failed");
        there.unlock("tenants", "web").await.expect("nothing to do");
        site.upgrade(&[]).output().expect("installed");
        assert_eq!(
            (site.newest().await.as_str(), &site.object(MAP).await["data"]["color"]),
            ("deployed", &json!("red"))
        );
        site.tenants.api.delete(&format!("{JOBS}/hook?propagationPolicy=Background")).await.expect("deleted");
    }
    // One that is asked to end says how far it came.
    site.write("templates/hook.yaml", hook);
    site.hangs("pending-upgrade").await.stop(Duration::from_secs(60));
    assert_eq!(site.newest().await, "failed");
    site.write("templates/hook.yaml", "");

    // A field that somebody else took is the release's again.
    site.change(MAP, json!({"data": {"color": "of another"}})).await;
    site.upgrade(&[]).output().expect("mended");
    assert_eq!(site.object(MAP).await["data"]["color"], "red");
    // So is one of a Helm that applied it itself.
    site.helm(&["uninstall", "web"]).output().expect("gone");
    let old = ["install", "web", "--server-side=false", "--set", "color=old"];
    site.helm(&old).arg(site.chart.path()).output().expect("installed");
    site.change(MAP, json!({"data": {"color": "of another"}})).await;
    site.upgrade(&[]).output().expect("taken over");
    assert_eq!(site.object(MAP).await["data"]["color"], "red");
}
