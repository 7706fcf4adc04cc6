//! A real etcd and kube-apiserver, started with the manifests, certificates and kubeconfigs that the
//! agent makes, on loopback. Runs where `FOOTHOLD_KUBERNETES` names a folder with `kube-apiserver`
//! and `server` (etcd); says so and passes elsewhere. The templates are those of a real kubeadm.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent_api::boot::{BootFacts, DataFound, Mode};
use agent_api::release::{Budgets, Kubernetes, Release};
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::{Node, checks, kubeconfig, objects};
use foothold_agent::first_boot::{Machine, control_plane};
use foothold_agent::host::System;
use serde_json::Value;

/// A process that ends with its handle.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ports and folders in place of the fixed ones of the manifests.
struct Places {
    root: PathBuf,
    programs: PathBuf,
    ports: [(&'static str, u16); 4],
}

impl Places {
    fn new(root: &Path, programs: PathBuf) -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_or(0, |a| a.port());
        let ports = [("2379", free()), ("2380", free()), ("2381", free()), ("6443", free())];
        Self { root: root.to_owned(), programs, ports }
    }

    fn port(&self, name: &str) -> u16 {
        self.ports.iter().find(|(known, _)| *known == name).map_or(0, |(_, port)| *port)
    }

    fn local(&self, argument: &str) -> String {
        let root = self.root.display().to_string();
        let mut text = argument.replace("/etc/kubernetes", &format!("{root}/etc/kubernetes"));
        text = text.replace("/var/lib/etcd", &format!("{root}/etcd"));
        for (fixed, port) in self.ports {
            text = text
                .replace(&format!(":{fixed}"), &format!(":{port}"))
                .replace(&format!("port={fixed}"), &format!("port={port}"));
        }
        text
    }

    /// Starts what a manifest says, as a process of the host.
    fn start(&self, manifest: &str, program: &str) -> Process {
        let text = fs_err::read_to_string(fixture("manifests").join(manifest)).expect("a manifest");
        let text = text.replace("foothold-node-name", "edge").replace("198.18.0.1", "127.0.0.1");
        let pod: Value = serde_saphyr::from_str(&text).expect("YAML");
        let command = pod["spec"]["containers"][0]["command"].as_array().expect("a command");
        let arguments = command.iter().skip(1).filter_map(Value::as_str).map(|argument| self.local(argument));
        // One listener would be asked for twice, since both addresses are loopback here.
        let arguments = arguments.map(|argument| {
            let doubled = argument.strip_prefix("--listen-client-urls=").and_then(|urls| urls.split(',').next());
            doubled.map_or_else(|| argument.clone(), |one| format!("--listen-client-urls={one}"))
        });
        let log = fs_err::File::create(self.root.join(format!("{manifest}.log"))).expect("a log");
        #[expect(clippy::disallowed_methods, reason = "the test's own processes")]
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.into_file());
        Process(command.spawn().expect("started"))
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kubernetes").join(name)
}

fn machine(root: &Path) -> Machine {
    let kubernetes = Kubernetes {
        version: "v1.36.4".to_owned(),
        pod_cidr: "10.244.0.0/16".to_owned(),
        service_cidr: "10.96.0.0/12".to_owned(),
    };
    let release = Release {
        api_version: "foothold.dev/v1".to_owned(),
        kind: "Release".to_owned(),
        name: "edge".to_owned(),
        version: "1.0.0".to_owned(),
        architecture: "amd64".to_owned(),
        built: 1_700_000_000,
        development_key: true,
        layers: Vec::new(),
        boot: Vec::new(),
        kubernetes,
        images: Vec::new(),
        content: Vec::new(),
        packages: Vec::new(),
        data: Vec::new(),
        ntp_serve: false,
        registry_writable_bytes: None,
        budgets: Budgets::default(),
    };
    let facts = BootFacts {
        release: "ab".repeat(32),
        mode: Mode::Run,
        medium: "vda3".to_owned(),
        data: DataFound::Ram { reason: "a test".to_owned() },
        machine_id: "4f2a10c3".repeat(4),
        first_boot: true,
        clock_was_before_build: false,
    };
    Machine::new(root, Arc::new(System::new()), release, facts, String::new())
}

fn node() -> Node {
    Node {
        name: "edge".to_owned(),
        advertise: "127.0.0.1".parse().expect("an address"),
        service_address: "10.96.0.1".parse().expect("an address"),
        site_addresses: Vec::new(),
    }
}

async fn client(places: &Places, file: &str) -> Api {
    let text = fs_err::read_to_string(places.root.join("etc/kubernetes").join(file)).expect("a kubeconfig");
    let mut parsed = kubeconfig::parse(&text).expect("a kubeconfig");
    parsed.server = format!("https://127.0.0.1:{}", places.port("6443"));
    let api = Api::new(&parsed).expect("a client");
    for _ in 0..600 {
        if matches!(api.get("/api/v1/namespaces/kube-system").await, Ok(Some(_))) {
            return api;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", api.get("/api/v1/namespaces/kube-system").await);
}

#[tokio::test]
async fn a_real_api_server_takes_what_the_agent_makes() {
    let Some(programs) = std::env::var_os("FOOTHOLD_KUBERNETES").map(PathBuf::from) else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().expect("a directory");
    let (credentials, issued) =
        control_plane::bring_up_to_date(&machine(dir.path()), &node(), false).expect("certificates");
    assert_eq!(issued.len(), 13);
    let places = Places::new(dir.path(), programs);
    let _etcd = places.start("etcd.yaml", "server");
    let _api_server = places.start("kube-apiserver.yaml", "kube-apiserver");

    let api = client(&places, kubeconfig::SUPER_ADMIN).await;
    let template = fs_err::read_to_string(fixture("objects.json")).expect("objects");
    let all = objects::read(&template, &node(), &credentials.ca).expect("a template");
    let (all, nodes) = objects::split_node(all);
    for placed in &all {
        let new = objects::apply(&api, placed).await.unwrap_or_else(|error| panic!("{}: {error}", placed.title()));
        assert!(new, "{}", placed.title());
    }
    // A second time, as after a power cut, merges and changes nothing.
    for placed in &all {
        let before = api.get(&placed.path()).await.expect("asked").expect("there");
        let new = objects::apply(&api, placed).await.unwrap_or_else(|error| panic!("{}: {error}", placed.title()));
        let after = api.get(&placed.path()).await.expect("asked").expect("there");
        assert!(!new && before == after, "{}", placed.title());
    }
    // Nobody has registered the node: its labels wait, they do not create it.
    assert!(objects::apply(&api, &nodes[0]).await.is_err());
    assert!(checks::node(None, "edge").is_err());

    // The administrator's group is bound by an object that was just applied.
    let admin = client(&places, kubeconfig::ADMIN).await;
    let (ready, text) = admin.health("/readyz?verbose").await.expect("asked");
    assert!(ready || checks::readyz_missing(&text).contains("poststarthook"), "{text}");
    for user in ["controller-manager.conf", "scheduler.conf"] {
        client(&places, user).await;
    }
}
