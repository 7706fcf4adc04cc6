//! The login of a tenant cluster: what the controller writes is run by real Glewlwyd, out of the image that the builder makes,
//! and a real API server is told of it as those of an application cluster are.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use agent_api::release::Sip;
use agent_api::sip::auth::AuthStatus;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use foothold::config::{Clusters, Provisioning, Services};
use foothold::host::command::Running;
use foothold::toolbox::{Tool, Toolbox};
use foothold_tests::service_image::ServiceImage;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::site::{PATIENCE, condition};
use crate::tenants::{CLUSTERS, Tenants};

const PASSWORD: &str = "secret-of-alice";
/// Of that password, by Python's `hashlib.pbkdf2_hmac`.
const HASH: &str = "$pbkdf2-sha256$150000$MDEyMzQ1Njc4OWFiY2RlZg$MyWdAGeTf8t4x8vxHMsQpOxmDmksTe31GlVPaWfOhqc";
/// Where the browser would be led back to.
const REDIRECT: &str = "http%3A%2F%2Flocalhost%3A8000";
/// What proves that who asks for a token began the login (RFC 7636).
const VERIFIER: &str = "one-verifier-of-this-test-that-is-as-long-as-it-has-to-be";

/// A port of nodes that nobody has.
fn node_port() -> u16 {
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (30_100..32_767).filter(|port| port % 7 == 0).find(free).expect("a free port")
}

fn image() -> ServiceImage {
    let services = Services {
        provisioning: Some(Provisioning::default()),
        clusters: Some(Clusters::default()),
        sip: Some(Sip::default()),
        ..Services::default()
    };
    ServiceImage::of_packages(&services, "oidc").unwrap_or_else(|error| panic!("making the image: {error:#}"))
}

/// The spec of a cluster that has a login and nothing else.
fn spec(port: u16, more: &Value) -> Value {
    let users = json!([{"name": "alice", "email": "alice@example.org", "groups": ["operators"]}]);
    let mut auth = json!({"nodePort": port, "users": users});
    if let (Some(auth), Some(more)) = (auth.as_object_mut(), more.as_object()) {
        auth.extend(more.clone());
    }
    json!({"nodes": {}, "services": {"auth": [auth]}})
}

/// The provider of a cluster, as its pod would run it.
struct Provider {
    client: Client,
    status: AuthStatus,
    base: String,
    /// Where the authority's certificates lie.
    authority: String,
    running: Running,
    _folders: [TempDir; 2],
}

impl Provider {
    /// Waits for what the controller makes, and runs it.
    async fn start(tenants: &Tenants, image: &ServiceImage, name: &str, port: u16) -> Self {
        let path = format!("{CLUSTERS}/{name}");
        let object = tenants.until(&path, "told whom to trust", |object| object["status"]["auth"].is_object()).await;
        let status: AuthStatus = serde_json::from_value(object["status"]["auth"].clone()).expect("a status");
        let secret = format!("/api/v1/namespaces/tenants/secrets/auth-{name}");
        let secret = tenants.api.get(&secret).await.expect("asked").expect("there");
        let (data, run) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        for (key, value) in secret["data"].as_object().expect("data") {
            let text = STANDARD.decode(value.as_str().expect("a text")).expect("base64");
            let text = String::from_utf8(text).expect("a text");
            // No Service leads from the nodes' port to the pod's here.
            let text = text.replace("port=8443\n", &format!("port={port}\n"));
            fs_err::write(data.path().join(key), text).expect("written");
        }
        let authority = data.path().join("ca.crt");
        fs_err::write(&authority, &status.ca).expect("written");
        let deployment = format!("/apis/apps/v1/namespaces/tenants/deployments/auth-{name}");
        let deployment = tenants.api.get(&deployment).await.expect("asked").expect("there");
        let pod = &deployment["spec"]["template"]["spec"];
        // A container runtime makes the places of mounts.
        for place in ["etc/oidc", "run/oidc"] {
            fs_err::create_dir_all(image.tree.path().join(place)).expect("a place");
        }
        let toolbox = Toolbox::at(image.tree.path(), &image.helper);
        tool(&toolbox, &pod["initContainers"][0], data.path(), run.path()).run().expect("a database");
        let running = tool(&toolbox, &pod["containers"][0], data.path(), run.path()).start().expect("started");
        let trusted = reqwest::Certificate::from_pem(status.ca.as_bytes()).expect("the authority");
        let client = Client::builder().tls_certs_only([trusted]).no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        let mut provider = Self {
            client,
            base: format!("https://127.0.0.1:{port}"),
            authority: authority.display().to_string(),
            status,
            running,
            _folders: [data, run],
        };
        provider.until_it_answers().await;
        provider
    }

    async fn until_it_answers(&mut self) {
        let begun = Instant::now();
        let url = format!("{}/.well-known/openid-configuration", self.status.issuer);
        loop {
            if let Ok(answer) = self.client.get(&url).send().await {
                let found: Value = answer.json().await.expect("JSON");
                assert_eq!(found["issuer"], self.status.issuer);
                return;
            }
            if let Some(said) = self.running.ended() {
                panic!("the provider has ended: {said}");
            }
            assert!(begun.elapsed() < PATIENCE, "{url} does not answer");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The session of a browser in which somebody says who he is.
    async fn session(&self, user: &str, password: &str) -> Result<String, StatusCode> {
        let body = json!({"username": user, "password": password}).to_string();
        let asked = self.client.post(format!("{}/api/auth/", self.base)).header("content-type", "application/json");
        let answer = asked.body(body).send().await.expect("an answer");
        if !answer.status().is_success() {
            return Err(answer.status());
        }
        let cookie = answer.headers()["set-cookie"].to_str().expect("a text");
        Ok(cookie.split(';').next().unwrap_or_default().to_owned())
    }

    /// Where a login leads that its page has let go on.
    async fn led_to(&self, session: &str) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let client = &self.status.client_id;
        let url = format!(
            "{}/auth?response_type=code&client_id={client}&redirect_uri={REDIRECT}&scope=openid%20email%20groups&state=s&nonce=n\
             &code_challenge={challenge}&code_challenge_method=S256&g_continue",
            self.status.issuer
        );
        let answer = self.client.get(url).header("cookie", session).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::FOUND);
        answer.headers()["location"].to_str().expect("a text").to_owned()
    }

    /// What a code is worth.
    async fn exchange(&self, code: &str, verifier: &str) -> (StatusCode, Value) {
        let client = &self.status.client_id;
        let body = format!(
            "grant_type=authorization_code&code={code}&redirect_uri={REDIRECT}&client_id={client}&code_verifier={verifier}"
        );
        let asked = self.client.post(format!("{}/token", self.status.issuer)).body(body);
        let asked = asked.header("content-type", "application/x-www-form-urlencoded");
        let answer = asked.send().await.expect("an answer");
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    /// A token of alice's, by a code as `kubectl oidc-login` asks for it.
    async fn token(&self) -> String {
        let session = self.session("alice", PASSWORD).await.expect("a session");
        let code = code_of(&self.led_to(&session).await);
        let (status, answer) = self.exchange(&code, VERIFIER).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["id_token"].as_str().expect("a token").to_owned()
    }
}

/// The code in an address.
fn code_of(location: &str) -> String {
    let (_, query) = location.split_once('?').expect("a query");
    let code = query.split('&').find_map(|pair| pair.strip_prefix("code="));
    code.unwrap_or_else(|| panic!("no code in {location}")).to_owned()
}

/// A container's command, in the image.
fn tool<'a>(toolbox: &'a Toolbox, container: &Value, data: &Path, run: &Path) -> Tool<'a> {
    let command: Vec<&str> =
        container["command"].as_array().expect("a command").iter().filter_map(Value::as_str).collect();
    let (program, arguments) = command.split_first().expect("a program");
    let tool = toolbox.tool(program).args(arguments);
    tool.bind(data, Path::new("/etc/oidc"), false).bind(run, Path::new("/run/oidc"), true)
}

/// Who the API server says that somebody is: what `kubectl auth whoami` asks.
async fn whoami(tenants: &Tenants, token: &str) -> (StatusCode, Value) {
    let port = tenants.cluster.places.port("6443");
    let url = format!("https://127.0.0.1:{port}/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let client = Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().build().expect("a client");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let asked = client.post(url).bearer_auth(token).header("content-type", "application/json").body(body);
    let answer = asked.send().await.expect("an answer");
    (answer.status(), answer.json().await.unwrap_or_default())
}

/// What is missing is said, and nothing is made.
async fn nothing_without_a_password(tenants: &Tenants, port: u16) {
    tenants.cluster("one", spec(port, &json!({}))).await;
    let object = tenants.says("one", "False", "InfraServiceFailure").await;
    let (_, _, message) = condition(&object, "Ready");
    assert!(message.contains("auth[0].passwordHashes is missing: there is no password by default"), "{message}");
    let path = format!("{CLUSTERS}/one");
    let named = json!({"spec": spec(port, &json!({"passwordHashes": "hashes"}))});
    tenants.api.merge(&path, &named).await.expect("changed");
    let says = |words: &'static str| move |object: &Value| condition(object, "Ready").2.contains(words);
    tenants
        .until(&path, "told", says("Secret `tenants/hashes`, which `auth[0].passwordHashes` names, is not there"))
        .await;
    tenants.secret("tenants", "hashes", json!({"alice": PASSWORD})).await;
    tenants.until(&path, "told", says("`alice` is no hash of PBKDF2")).await;
    for kind in ["/apis/apps/v1/namespaces/tenants/deployments", "/api/v1/namespaces/tenants/services"] {
        let none = tenants.api.get(kind).await.expect("asked").expect("a list");
        assert_eq!(none["items"], json!([]), "nothing is made");
    }
    let secret = "/api/v1/namespaces/tenants/secrets/hashes";
    tenants.api.merge(secret, &json!({"stringData": {"alice": HASH}})).await.expect("changed");
}

/// SIP-11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_takes_tokens_of_its_own_login_and_of_no_other() {
    let image = image();
    let mut tenants = Tenants::prepare().await;
    tenants.run();
    let port = node_port();
    nothing_without_a_password(&tenants, port).await;
    let own = Provider::start(&tenants, &image, "one", port).await;
    let other_port = node_port();
    tenants.cluster("two", spec(other_port, &json!({"passwordHashes": "hashes"}))).await;
    let other = Provider::start(&tenants, &image, "two", other_port).await;

    // Who is not asked for does not come in: the package's own administrator neither.
    for (user, password) in [("alice", "wrong"), ("alice", ""), ("admin", "password"), ("bob", PASSWORD)] {
        let refused = own.session(user, password).await.expect_err("refused");
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "{user}: {password}");
    }
    let led = own.led_to("").await;
    assert!(led.starts_with(&format!("{}/login.html?", own.base)), "{led}");
    let session = own.session("alice", PASSWORD).await.expect("a session");
    let code = code_of(&own.led_to(&session).await);
    let (status, answer) = own.exchange(&code, "another-verifier-than-the-one-that-the-login-was-begun-with").await;
    assert!(!status.is_success(), "{answer}");

    // A token is one of its own issuer. The API server asks for the keys while it starts, and anew until it has them.
    tenants.stop();
    tenants.cluster.restart_api_server_with(&own.status.flags(&own.authority)).await;
    let begun = Instant::now();
    let who = loop {
        let (status, answer) = whoami(&tenants, &own.token().await).await;
        if status == StatusCode::CREATED {
            break answer["status"]["userInfo"].clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{status}: {answer}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(who["username"], "oidc:alice@example.org");
    assert_eq!(who["groups"], json!(["oidc:operators", "system:authenticated"]));
    let (status, _) = whoami(&tenants, &other.token().await).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "a token of another issuer");
    let token = own.token().await;
    let (signed, signature) = token.rsplit_once('.').expect("a signature");
    let forged = format!("{signed}.{}", signature.chars().rev().collect::<String>());
    assert_eq!(whoami(&tenants, &forged).await.0, StatusCode::UNAUTHORIZED, "a signature of nobody's");
}
