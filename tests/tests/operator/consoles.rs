//! `host console` of a jump host: the real API server in the middle, a real emulated BMC with a serial line, and what a
//! kubelet does with a port of a pod. A socket pair stands in for the serial port of QEMU.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foothold_agent::operators::kit::command;
use foothold_agent::operators::sip::pod::console;
use foothold_qemu::bmc::{Bmc, Machine, MemoryPower, Options, Profile};
use futures_util::{SinkExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_util::sync::CancellationToken;

use crate::cluster::admin;
use crate::site::PATIENCE;
use crate::tenants::{CLUSTERS, HOSTS, Tenants, network};

const PASSWORD: &str = "a password of this test";
const POD: &str = "jumphost-one-7d9f-abcde";
const REQUESTS: &str = "/api/v1/namespaces/tenants/configmaps/jumphost-one-requests";
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGimgw04ltNn+hU5H6x+XkMg2BMksbtU+C69OAc9EizS somebody@example.org";

/// What a kubelet does with `portForward`, by the web socket's protocol `v4.channel.k8s.io`; each port is one of this machine.
async fn kubelet(tasks: &mut JoinSet<()>) -> u16 {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("TLS");
    let tls = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tasks.spawn(async move {
        let mut forwards = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let tls = tls.clone();
            forwards.spawn(async move {
                if let Ok(stream) = tls.accept(stream).await {
                    Box::pin(forward(stream)).await;
                }
            });
        }
    });
    port
}

async fn forward(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut asked = String::new();
    #[allow(clippy::result_large_err, reason = "the library's own signature; not every clippy looks at closures")]
    let greet = |request: &Request, mut response: Response| {
        asked = request.uri().to_string();
        response.headers_mut().insert("sec-websocket-protocol", "v4.channel.k8s.io".parse().expect("a header"));
        Ok(response)
    };
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, greet).await else { return };
    let (path, query) = asked.split_once('?').expect("a query");
    assert!(path.ends_with(&format!("/portForward/tenants/{POD}")), "{path}");
    let port: u16 = query.split('&').find_map(|it| it.split_once('=')?.1.parse().ok()).expect("a port");
    let send = |channel: u8, bytes: &[u8]| {
        let mut frame = vec![channel];
        frame.extend_from_slice(bytes);
        Message::binary(frame)
    };
    for channel in [0, 1] {
        socket.send(send(channel, &port.to_le_bytes())).await.expect("sent");
    }
    let mut pod = match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(pod) => pod,
        Err(error) => {
            socket.send(send(1, error.to_string().as_bytes())).await.expect("sent");
            return;
        }
    };
    let mut bytes = [0; 4096];
    loop {
        tokio::select! {
            read = pod.read(&mut bytes) => {
                let Ok(length @ 1..) = read else {
                    let _ = socket.close(None).await;
                    return;
                };
                if socket.send(send(0, &bytes[..length])).await.is_err() {
                    return;
                }
            }
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) if bytes.first() == Some(&0) => {
                    if pod.write_all(&bytes[1..]).await.is_err() { return }
                }
                Some(Ok(message)) if !message.is_close() => {}
                _ => return,
            },
        }
    }
}

struct Scene {
    tenants: Tenants,
    power: Arc<MemoryPower>,
    _tasks: JoinSet<()>,
}

impl Scene {
    /// Tenant `one` has `h0` with a BMC, and a jump host whose pod runs on `edge`; tenant `two` has `h1`.
    async fn set() -> Self {
        let mut tenants = Tenants::prepare().await;
        let mut tasks = JoinSet::new();
        let power = Arc::new(MemoryPower::default());
        let machine = Machine { name: "h0".to_owned(), serial_line: true, ..Machine::default() };
        let profile = Profile::known("generic").expect("a profile");
        let options = Options { machine, ..Options::on_loopback(profile, PASSWORD, power.clone()) };
        let bmc = Bmc::start(&mut tasks, options, &CancellationToken::new()).expect("a BMC");
        let port = kubelet(&mut tasks).await;
        // Here no controller makes the account `default`.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}});
        tenants.api.create("/api/v1/namespaces/tenants/serviceaccounts", &account).await.expect("an account");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"}});
        tenants.api.create("/api/v1/nodes", &node).await.expect("a node");
        let status = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
        tenants.api.merge("/api/v1/nodes/edge/status", &json!({"status": status})).await.expect("a kubelet");

        tenants.secret("hosts", "net", network("10.0.0.1")).await;
        let bmc_secret = json!({"username": "admin", "password": PASSWORD, "ca.crt": bmc.certificate()});
        tenants.secret("hosts", "bmc", bmc_secret).await;
        tenants.secret("tenants", "keys", json!({"id": "a private key"})).await;
        let data = json!({"name": "net", "namespace": "hosts"});
        let address = format!("redfish://{}/redfish/v1/Systems/1", bmc.address());
        let spec = json!({"networkData": data, "bmc": {"address": address, "credentialsName": "bmc"}});
        tenants.host("h0", json!({"flavor": "one", "rack": "a"}), spec).await;
        let status = json!({"provisioning": {"state": "available", "ID": "", "image": {"url": ""}}, "operationalStatus": "OK",
            "errorMessage": "", "errorCount": 0, "poweredOn": false});
        tenants.api.merge(&format!("{HOSTS}/h0/status"), &json!({"status": status})).await.expect("a status");
        tenants.host("h1", json!({"flavor": "two", "rack": "a"}), json!({"networkData": data})).await;
        tenants.run();
        for (name, services) in [
            (
                "one",
                json!({"jumpHost": [{"nodeInterfaceId": "oam", "nodePort": 30001, "sshAuthorizedKeys": [KEY],
                "nodeSSHPrivateKeys": "keys"}]}),
            ),
            ("two", json!({})),
        ] {
            let workers = json!({"labelSelector": {"matchLabels": {"flavor": name}}, "topologyKey": "rack",
                "count": {"active": 1, "standby": 0}});
            tenants.cluster(name, json!({"nodes": {"Worker": workers}, "services": services})).await;
        }
        tenants.pods_run("jumphost-one").await;
        for name in ["one", "two"] {
            tenants.says(name, "True", "ReconciliationSucceeded").await;
        }
        let scene = Self { tenants, power, _tasks: tasks };
        scene.pod(POD, "jumphost-one").await;
        scene
    }

    async fn pod(&self, name: &str, account: &str) {
        let labels = json!({"app.kubernetes.io/instance": "jumphost-one"});
        let container = json!({"name": "sshd", "image": "foothold.dev/jumphost:1"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"serviceAccountName": account, "nodeName": "edge", "containers": [container]}});
        self.tenants.api.create("/api/v1/namespaces/tenants/pods", &pod).await.expect("a pod");
    }

    /// The `ConfigMap` of requests, as whoever has that token.
    async fn requests_with(&self, token: &str) -> kube::Api<ConfigMap> {
        let text = fs_err::read_to_string(admin(&self.tenants.cluster)).expect("a kubeconfig");
        let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
        config["users"][0]["user"] = json!({"token": token});
        let path: PathBuf = self.tenants.cluster.dir.path().join("token.conf");
        fs_err::write(&path, config.to_string()).expect("written");
        kube::Api::namespaced(command::client(Some(&path)).await.expect("a client"), "tenants")
    }

    /// The same, as a `ServiceAccount`.
    async fn requests_of(&self, account: &str) -> kube::Api<ConfigMap> {
        let path = format!("/api/v1/namespaces/tenants/serviceaccounts/{account}/token");
        let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.tenants.api.ask(&path, &question).await.expect("a token");
        self.requests_with(answer["status"]["token"].as_str().expect("a token")).await
    }
}

async fn opened(requests: &kube::Api<ConfigMap>, host: &str) -> Result<TcpStream, String> {
    console::open(requests, "jumphost-one-requests", host, POD).await.map_err(|error| format!("{error:#}"))
}

/// The same, once the session before has let it go.
async fn opened_when_free(requests: &kube::Api<ConfigMap>, host: &str) -> TcpStream {
    let begun = Instant::now();
    loop {
        match opened(requests, host).await {
            Ok(console) => return console,
            Err(why) => assert!(why.contains("somebody else has") && begun.elapsed() < PATIENCE, "{why}"),
        }
    }
}

async fn refused(requests: &kube::Api<ConfigMap>, host: &str) -> String {
    opened(requests, host).await.expect_err("refused")
}

async fn passes(from: &mut (impl AsyncWrite + Unpin), to: &mut (impl AsyncRead + Unpin), text: &str) {
    from.write_all(text.as_bytes()).await.expect("written");
    let mut bytes = vec![0; text.len()];
    to.read_exact(&mut bytes).await.expect("read");
    assert_eq!(String::from_utf8_lossy(&bytes), text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_the_jump_host_has_the_serial_line_of_a_host_until_he_leaves() {
    let scene = Scene::set().await;
    let requests = scene.requests_of("jumphost-one").await;

    let mut console = opened(&requests, "h0").await.expect("a console");
    let mut line = scene.power.line().await;
    passes(&mut line, &mut console, "login: ").await;
    passes(&mut console, &mut line, "root\r").await;
    passes(&mut line, &mut console, "root\r\nPassword: ").await;
    assert_eq!(refused(&requests, "h0").await, "no console of `h0`: somebody else has its console");
    // A second one that asks ends nothing.
    passes(&mut console, &mut line, "\x03").await;

    // The jump host's end is the end of all of it.
    drop(console);
    let mut rest = Vec::new();
    line.read_to_end(&mut rest).await.expect("the line is let go");
    let map = scene.tenants.api.get(REQUESTS).await.expect("asked").expect("there");
    assert!(map["data"].as_object().is_none_or(serde_json::Map::is_empty), "{map:#}");
    let host = scene.tenants.api.get(&format!("{HOSTS}/h0")).await.expect("asked").expect("there");
    let known = host["metadata"]["annotations"]["sip.airshipit.org/console-host-key"].as_str().expect("a key");
    assert!(known.starts_with("ssh-ed25519 "), "{known}");

    // It is free again, and goes with the cluster.
    let mut console = opened_when_free(&requests, "h0").await;
    let mut line = scene.power.line().await;
    passes(&mut line, &mut console, "# ").await;
    scene.tenants.api.delete(&format!("{CLUSTERS}/one")).await.expect("deleted");
    let mut said = String::new();
    console.read_to_string(&mut said).await.expect("it ends");
    assert_eq!(said, "\r\nthe host is not this cluster's any more\r\n");
    line.read_to_end(&mut rest).await.expect("the line is let go");
    assert!(rest.is_empty(), "nothing was typed that nobody typed: {rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_gets_a_console_and_it_is_said_why() {
    let scene = Scene::set().await;
    let why = refused(&scene.requests_with("a token of nobody").await, "h0").await;
    assert!(why.contains("Unauthorized"), "{why}");
    let why = refused(&scene.requests_of("other").await, "h0").await;
    assert!(why.contains("cannot patch resource"), "{why}");

    let requests = scene.requests_of("jumphost-one").await;
    assert_eq!(refused(&requests, "h1").await, "`h1` is no host of this cluster");
    scene.pod("other", "other").await;
    let error = console::open(&requests, "jumphost-one-requests", "h0", "other").await.expect_err("refused");
    assert_eq!(error.to_string(), "`other` is no pod of this jump host");
    // The account may write its wish, and no more: it does not get to the BMC's password.
    let secrets = kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(requests.into_client(), "hosts");
    let error = secrets.get("bmc").await.expect_err("refused").to_string();
    assert!(error.contains("cannot get resource \"secrets\""), "{error}");

    // What is wrong with the BMC comes to the user.
    let requests = scene.requests_of("jumphost-one").await;
    let secret = "/api/v1/namespaces/hosts/secrets/bmc";
    scene.tenants.api.merge(secret, &json!({"stringData": {"password": "wrong"}})).await.expect("changed");
    let why = refused(&requests, "h0").await;
    assert!(why.starts_with("no console of `h0`: asking its BMC by Redfish: ") && !why.contains(PASSWORD), "{why}");
    let password = STANDARD.encode(PASSWORD);
    scene.tenants.api.merge(secret, &json!({"data": {"password": password}})).await.expect("changed");
    let host = format!("{HOSTS}/h0");
    let other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGimgw04ltNn+hU5H6x+XkMg2BMksbtU+C69OAc9EizS";
    let known = json!({"metadata": {"annotations": {"sip.airshipit.org/console-host-key": other}}});
    scene.tenants.api.merge(&host, &known).await.expect("changed");
    let why = refused(&requests, "h0").await;
    assert!(why.contains("remove the annotation `sip.airshipit.org/console-host-key` of the host"), "{why}");
    let ipmi = json!({"spec": {"bmc": {"address": "ipmi://127.0.0.1"}}});
    scene.tenants.api.merge(&host, &ipmi).await.expect("changed");
    let why = refused(&requests, "h0").await;
    assert!(why.contains("asking its BMC by IPMI: "), "{why}");
}
