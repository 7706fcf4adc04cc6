//! A real control plane of one test, as far as an API server needs one.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_api::boot::{BootFacts, DataFound, Mode};
use foothold::host::command::Run;
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::{Node, kubeconfig};
use foothold_agent::first_boot::{Machine, control_plane};
use foothold_agent::host::System;
use foothold_tests::programs::program;
use foothold_tests::{fixture, free_port};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long an API server may take until it answers, beside others that start.
const PATIENCE: Duration = Duration::from_secs(180);
/// The administrator's kubeconfig in the folder of a cluster.
const ADMIN: &str = "operator.conf";

/// A process that is started anew when it ends, as the kubelet does with a static pod: an API server gives up after 20 s
/// without etcd, whose first write may take longer on a busy disk. It ends with its handle, and with the test's own
/// process: then the thread that started it ends, for which it waits (prctl(2), `PR_SET_PDEATHSIG`).
pub struct Process {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    fn start(program: Run) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || run_until(&program, &ended));
        Self { end: Some(end), thread: Some(thread) }
    }

    /// Ends it, and waits for that.
    pub fn end(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[expect(clippy::print_stderr, reason = "what it said is shown if the test fails")]
fn run_until(program: &Run, ended: &Receiver<()>) {
    let mut running = program.start().expect("started");
    while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
        if let Some(said) = running.ended() {
            eprintln!("{} ended and is started anew:\n{said}", program.display());
            running = program.start().expect("started");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ports and folders in place of the fixed ones of the manifests.
pub struct Places {
    pub root: PathBuf,
    ports: [(&'static str, u16); 4],
}

impl Places {
    pub fn new(root: &Path) -> Self {
        let ports = ["2379", "2380", "2381", "6443"].map(|fixed| (fixed, free_port()));
        Self { root: root.to_owned(), ports }
    }

    pub fn port(&self, name: &str) -> u16 {
        self.ports.iter().find(|(known, _)| *known == name).map_or(0, |(_, port)| *port)
    }

    fn local(&self, argument: &str) -> String {
        let root = self.root.display().to_string();
        let mut text = argument.replace("/etc/kubernetes", &format!("{root}/etc/kubernetes"));
        text = text.replace("/var/lib/etcd", &format!("{root}/var/lib/etcd"));
        for (fixed, port) in self.ports {
            text = text
                .replace(&format!(":{fixed}"), &format!(":{port}"))
                .replace(&format!("port={fixed}"), &format!("port={port}"));
        }
        text
    }

    /// Starts what a manifest says, as a process of the host.
    fn start(&self, manifest: &str, program: PathBuf, more: Vec<String>) -> Process {
        let text = fs_err::read_to_string(rendered("manifests").join(manifest)).expect("a manifest");
        let text = text.replace("foothold-node-name", "edge").replace("198.18.0.1", "127.0.0.1");
        let pod: Value = serde_saphyr::from_str(&text).expect("YAML");
        let command = pod["spec"]["containers"][0]["command"].as_array().expect("a command");
        let arguments = command.iter().skip(1).filter_map(Value::as_str).map(|argument| self.local(argument));
        // One listener would be asked for twice, since both addresses are loopback here.
        let arguments = arguments.map(|argument| {
            let doubled = argument.strip_prefix("--listen-client-urls=").and_then(|urls| urls.split(',').next());
            doubled.map_or_else(|| argument.clone(), |one| format!("--listen-client-urls={one}"))
        });
        Process::start(Run::new(program).args(arguments).args(more))
    }
}

/// What kubeadm renders, kept for tests.
pub fn rendered(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/kubernetes").join(name)
}

pub fn machine(root: &Path) -> Machine {
    let facts = BootFacts {
        release: "ab".repeat(32),
        mode: Mode::Run,
        medium: "vda3".to_owned(),
        data: DataFound::Ram { reason: "a test".to_owned() },
        machine_id: "4f2a10c3".repeat(4),
        first_boot: true,
        clock_was_wrong: false,
    };
    Machine::new(root, Arc::new(System::new()), fixture::release(), facts, String::new())
}

pub fn node() -> Node {
    Node {
        name: "edge".to_owned(),
        advertise: "127.0.0.1".parse().expect("an address"),
        service_address: "10.96.0.1".parse().expect("an address"),
        site_addresses: Vec::new(),
    }
}

/// Control plane of one test, as far as an API server needs one. It ends before its folder goes.
pub struct Cluster {
    api_server: Process,
    _etcd: Process,
    pub places: Places,
    pub credentials: control_plane::Credentials,
    pub dir: TempDir,
}

impl Cluster {
    pub fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a directory");
        let (credentials, issued) =
            control_plane::bring_up_to_date(&machine(dir.path()), &node(), false).expect("certificates");
        assert_eq!(issued.len(), 13);
        let places = Places::new(dir.path());
        write_admin(&places, &dir.path().join(ADMIN));
        let etcd = Self::etcd(&places);
        let api_server = Self::api_server(&places, Vec::new());
        Self { api_server, _etcd: etcd, places, credentials, dir }
    }

    pub fn etcd(places: &Places) -> Process {
        places.start("etcd.yaml", program("etcd", "server"), Vec::new())
    }

    fn api_server(places: &Places, more: Vec<String>) -> Process {
        places.start("kube-apiserver.yaml", program("kubernetes", "kube-apiserver"), more)
    }

    /// Ends the API server and starts another one. Returns when it answers.
    pub async fn restart_api_server(&mut self) -> Api {
        self.restart_api_server_with(&[]).await
    }

    /// The same, with more flags: name and value.
    pub async fn restart_api_server_with(&mut self, flags: &[(&str, String)]) -> Api {
        self.api_server.end();
        let more = flags.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        self.api_server = Self::api_server(&self.places, more);
        client(&self.places, kubeconfig::SUPER_ADMIN).await
    }

    /// The machine on which it runs; its administrator's kubeconfig has the port of the test.
    pub fn machine(&self) -> Machine {
        let kubeconfig = self.places.root.join("etc/kubernetes").join(kubeconfig::SUPER_ADMIN);
        fs_err::copy(admin(self), kubeconfig).expect("copied");
        machine(&self.places.root)
    }
}

pub async fn client(places: &Places, file: &str) -> Api {
    let text = fs_err::read_to_string(places.root.join("etc/kubernetes").join(file)).expect("a kubeconfig");
    let mut parsed = kubeconfig::parse(&text).expect("a kubeconfig");
    parsed.server = format!("https://127.0.0.1:{}", places.port("6443"));
    let api = Api::new(&parsed).expect("a client");
    let begun = Instant::now();
    loop {
        // Of its own namespaces it makes this one last.
        let answer = api.get("/api/v1/namespaces/default").await;
        if matches!(answer, Ok(Some(_))) {
            return api;
        }
        assert!(begun.elapsed() < PATIENCE, "the API server of a test: {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Waits until a kind is served; its schema is one that the API server understands to the last field.
pub async fn served(api: &Api, name: &str) {
    let path = format!("{DEFINITIONS}/{name}");
    for _ in 0..600 {
        let found = api.get(&path).await.expect("asked").expect("there");
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = |kind: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == "True");
        assert!(!holds("NonStructuralSchema"), "{name}: {conditions:?}");
        if holds("Established") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} is not served");
}

/// Has the API server serve the kinds of metal3.
pub async fn define_metal3(api: &Api) {
    define(api, &agent_api::metal3::crds::all()).await;
}

/// Has the API server serve kinds.
pub async fn define(api: &Api, definitions: &[CustomResourceDefinition]) {
    for definition in definitions {
        api.create(DEFINITIONS, &json!(definition)).await.expect("a definition");
    }
    for definition in definitions {
        served(api, definition.metadata.name.as_deref().unwrap_or_default()).await;
    }
}

/// The administrator's kubeconfig, with the port of the test. It was written before the cluster had more than one user.
pub fn admin(cluster: &Cluster) -> PathBuf {
    cluster.dir.path().join(ADMIN)
}

fn write_admin(places: &Places, path: &Path) {
    let from = places.root.join("etc/kubernetes").join(kubeconfig::SUPER_ADMIN);
    let text = fs_err::read_to_string(from).expect("a kubeconfig");
    let server = format!("server: https://127.0.0.1:{}", places.port("6443"));
    let lines = text.lines().map(|line| match line.find("server: ") {
        Some(at) => format!("{}{server}", &line[..at]),
        None => line.to_owned(),
    });
    fs_err::write(path, lines.collect::<Vec<_>>().join("\n") + "\n").expect("written");
}
