//! A site of one test: a namespace of a real API server, a fake Ironic, and the real controller between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig;
use foothold_agent::ironic;
use foothold_agent::operators::metal3::{self, Limits, Pace, Ramdisk, Settings};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, admin, client, define_metal3};
use crate::ironic::{FakeIronic, PASSWORD};

/// The control plane of all tests that run now: it ends with the last of them.
static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
/// Only the first one defines the kinds.
static DEFINED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// What is waited for comes within this time even where much else runs.
pub const PATIENCE: Duration = Duration::from_secs(180);

fn cluster() -> Arc<Cluster> {
    let mut shared = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let new = Arc::new(Cluster::start());
        *shared = Arc::downgrade(&new);
        new
    })
}

/// An address of this machine that nobody has.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, foothold_tests::free_port()).into()
}

/// A site.
pub struct Site {
    /// The API server, as an administrator.
    pub api: Api,
    /// Ironic.
    pub ironic: FakeIronic,
    /// Namespace of the hosts.
    pub namespace: String,
    /// Settings of the controller.
    pub settings: Settings,
    operator: Option<(JoinHandle<()>, CancellationToken)>,
    // Last, so that it ends after what asks it.
    _cluster: Arc<Cluster>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Site {
    /// A site whose controller is not started yet.
    pub async fn prepare(namespace: &str, step: Duration) -> Self {
        Self::on(cluster(), namespace, step).await
    }

    /// The same with a control plane of its own.
    pub async fn alone(namespace: &str, step: Duration) -> Self {
        Self::on(Arc::new(Cluster::start()), namespace, step).await
    }

    async fn on(cluster: Arc<Cluster>, namespace: &str, step: Duration) -> Self {
        let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
        {
            let _one = DEFINED.lock().await;
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/baremetalhosts.metal3.io";
            if api.get(path).await.expect("asked").is_none() {
                define_metal3(&api).await;
            }
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.create("/api/v1/namespaces", &object).await.expect("a namespace");
        let ironic = FakeIronic::start(step).await;
        let settings = Settings {
            kubeconfig: Some(admin(&cluster)),
            namespace: Some(namespace.to_owned()),
            ironic: ironic::Settings { url: format!("http://{}", ironic.address), ca: None, user: None },
            bmc_authorities: None,
            external_http_url: None,
            ramdisk: Ramdisk::default(),
            preprovisioning_images: false,
            provisioning_limit: 20,
            workers: 16,
            limits: Limits::default(),
            pace: Pace { short: Duration::from_millis(100), long: Duration::from_millis(200), ..Pace::default() },
            serve: Some(free_address()),
            webhook: None,
            webhook_owner: None,
            pulse: None,
            signs: None,
        };
        Self { api, ironic, namespace: namespace.to_owned(), settings, operator: None, _cluster: cluster }
    }

    /// A site whose controller runs.
    pub async fn start(namespace: &str) -> Self {
        let mut site = Self::prepare(namespace, Duration::from_millis(150)).await;
        site.run();
        site
    }

    /// Starts the controller.
    pub fn run(&mut self) {
        let (settings, stop) = (self.settings.clone(), CancellationToken::new());
        let token = stop.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the site")]
        let task = tokio::spawn(async move {
            metal3::run(&settings, &token).await.expect("the controller");
        });
        self.operator = Some((task, stop));
    }

    /// Kills the controller.
    pub fn stop(&mut self) {
        if let Some((task, stop)) = self.operator.take() {
            stop.cancel();
            task.abort();
        }
    }

    /// Path of a host.
    pub fn path(&self, name: &str) -> String {
        format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts/{name}", self.namespace)
    }

    /// Ironic's name of a host.
    pub fn node(&self, name: &str) -> String {
        format!("{}~{name}", self.namespace)
    }

    /// A Secret.
    pub async fn secret(&self, name: &str, texts: &Value) {
        let path = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": texts});
        self.api.create(&path, &secret).await.expect("a Secret");
    }

    /// A host with good credentials; `spec` is laid over what hosts have here.
    pub async fn host(&self, name: &str, spec: Value) {
        self.secret(&format!("{name}-bmc"), &json!({"username": "admin", "password": PASSWORD})).await;
        self.host_only(name, spec).await;
    }

    /// A host without its Secret.
    pub async fn host_only(&self, name: &str, spec: Value) {
        let mut all = json!({
            "online": true,
            "bmc": {"address": format!("redfish://10.0.0.1/redfish/v1/Systems/{name}"), "credentialsName": format!("{name}-bmc")},
        });
        if let (Some(into), Value::Object(from)) = (all.as_object_mut(), spec) {
            into.extend(from);
        }
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name}, "spec": all});
        let path = format!("/apis/metal3.io/v1alpha1/namespaces/{}/baremetalhosts", self.namespace);
        self.api.create(&path, &host).await.expect("a host");
    }

    /// Merges something into a host.
    pub async fn change(&self, name: &str, change: Value) {
        self.api.merge(&self.path(name), &change).await.expect("changed");
    }

    /// A host as it is.
    pub async fn get(&self, name: &str) -> Option<Value> {
        self.api.get(&self.path(name)).await.expect("asked")
    }

    /// Waits until a host is as it should be.
    pub async fn until(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let host = self.get(name).await.unwrap_or_else(|| panic!("{name} is gone; waited for: {what}"));
            if is(&host) {
                return host;
            }
            if begun.elapsed() > PATIENCE {
                let node = self.ironic.world().named(&self.node(name)).cloned();
                panic!("{name} is not {what}: {}\n{node:?}", host["status"]);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a host is in a state, without an error.
    pub async fn state(&self, name: &str, state: &str) -> Value {
        self.until(name, state, |host| {
            host["status"]["provisioning"]["state"] == state && host["status"]["errorType"].is_null()
        })
        .await
    }

    /// Waits until a host is gone; how long that took.
    pub async fn gone(&self, name: &str) -> Duration {
        let begun = Instant::now();
        while let Some(host) = self.get(name).await {
            assert!(begun.elapsed() < PATIENCE, "{name} is still there: {}", host["status"]);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    }

    /// Deletes a host.
    pub async fn delete(&self, name: &str) {
        self.api.delete(&self.path(name)).await.expect("deleted");
    }

    /// Reasons of the events in the namespace.
    pub async fn events(&self) -> Vec<String> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.namespace);
        let all = self.api.get(&path).await.expect("asked").expect("a list");
        let all = all["items"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until an event with that reason is there: it may come after the status that it belongs to.
    pub async fn told(&self, reason: &str) {
        let begun = Instant::now();
        loop {
            let events = self.events().await;
            if events.iter().any(|event| event == reason) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "there is no event `{reason}`, only {events:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the controller is ready: the API server asks it then.
    pub async fn asks_what_is_admitted(&self) {
        let url = format!("http://{}/readyz", self.settings.serve.expect("an address"));
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let begun = Instant::now();
        loop {
            if client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the controller is not ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the controller serves.
    pub async fn served(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.settings.serve.expect("an address"));
        let answer = reqwest::Client::builder().no_proxy().build().expect("a client").get(url).send().await;
        answer.expect("an answer").text().await.expect("a text")
    }
}

/// A condition of a host: its status, reason and message.
pub fn condition(host: &Value, kind: &str) -> (String, String, String) {
    let all = host["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}
