//! A client of the box's REST and of its Kubernetes API, over real TLS.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use foothold_agent::cluster::kubeconfig::ParsedKubeconfig;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

/// The texts of a support bundle, by path.
pub type SupportBundle = BTreeMap<PathBuf, String>;

/// How long the API server may be away; how long an object is watched.
const AWAY: Duration = Duration::from_secs(180);
const WATCHED: Duration = Duration::from_secs(600);

/// The body of a POST or PUT of the Binary Provisioning Agent: a form of what is told about an image, and a file, here an
/// empty one (its bytes go by PATCH).
pub fn with_metadata(request: RequestBuilder, metadata: &Value) -> RequestBuilder {
    let part = |name: &str, text: &str| {
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\n{text}\r\n")
    };
    let body = part("metadata", &metadata.to_string()) + &part("file", "") + "--x--\r\n";
    request.header(CONTENT_TYPE, "multipart/form-data; boundary=x").body(body)
}

/// A client. Every call panics with what went wrong.
pub struct Client {
    web: SocketAddr,
    api: SocketAddr,
    token: String,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// A client of a box whose ports are forwarded to these addresses.
    pub fn new(web: SocketAddr, api: SocketAddr, token: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { web, api, token: token.to_owned(), runtime }
    }

    /// Status code and bytes of a request to the box's REST.
    fn fetch(&self, method: &Method, path: &str, token: Option<&str>) -> (u16, Vec<u8>) {
        let url = format!("https://{}{path}", self.web);
        self.runtime.block_on(async {
            // The certificate is the box's own; what is tested is who may read, not whom we trust.
            let client =
                reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build().expect("a client");
            let request = client.request(method.clone(), url);
            let request = token.iter().fold(request, RequestBuilder::bearer_auth);
            let answer = request.send().await.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"));
            (answer.status().as_u16(), answer.bytes().await.expect("a body").to_vec())
        })
    }

    /// Status code and body of a GET on the box's REST, with `token` or none.
    pub fn get_as(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let (status, body) = self.fetch(&Method::GET, path, token);
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// The body of an authorized GET.
    pub fn get(&self, path: &str) -> String {
        let (status, body) = self.get_as(path, Some(&self.token));
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// The bytes of an authorized GET.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let (status, body) = self.fetch(&Method::GET, path, Some(&self.token));
        assert_eq!(status, 200, "GET {path}");
        body
    }

    /// An authorized POST of nothing, which asks for something to happen.
    pub fn ask_for(&self, path: &str) {
        let (status, body) = self.fetch(&Method::POST, path, Some(&self.token));
        assert_eq!(status, 202, "POST {path}: {}", String::from_utf8_lossy(&body));
    }

    /// The support bundle as it is now.
    pub fn support_bundle(&self) -> SupportBundle {
        let bundle = self.bytes("/api/v1/support-bundle");
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bundle.as_slice()));
        let texts = archive.entries().expect("an archive").map(|entry| {
            let mut entry = entry.expect("an entry");
            let (path, mut bytes) = (entry.path().expect("a path").into_owned(), Vec::new());
            entry.read_to_end(&mut bytes).expect("a file");
            (path, String::from_utf8_lossy(&bytes).into_owned())
        });
        texts.collect()
    }

    /// An admin's kubeconfig as JSON, with the address of this client's and the name that the certificate has.
    pub fn kubeconfig_file(&self) -> Value {
        let text = self.get(&format!("/api/v1/kubeconfig?server=https://{}", self.api));
        let mut config: Value = serde_saphyr::from_str(&text).expect("a kubeconfig");
        config["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes".into();
        config
    }

    /// The same, taken apart.
    pub fn kubeconfig(&self) -> ParsedKubeconfig {
        let config = self.kubeconfig_file();
        let text = |pointer: &str| {
            let text = config.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_else(|| panic!("no {pointer}")).to_owned()
        };
        let data = |pointer: &str| String::from_utf8(base64_decode(&text(pointer))).expect("PEM");
        ParsedKubeconfig {
            server: text("/clusters/0/cluster/server"),
            ca: data("/clusters/0/cluster/certificate-authority-data"),
            certificate: data("/users/0/user/client-certificate-data"),
            key: data("/users/0/user/client-key-data"),
        }
    }

    /// An admin's connection to the Kubernetes API, made from the box's own kubeconfig: its authority is trusted
    /// and nothing else.
    pub fn kubernetes(&self) -> Kubernetes<'_> {
        let ParsedKubeconfig { ca, certificate, key, .. } = self.kubeconfig();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(ca.as_bytes()).expect("an authority")])
            .identity(reqwest::Identity::from_pem((certificate + &key).as_bytes()).expect("a client certificate"))
            // The certificate names `kubernetes`, and the port is forwarded.
            .resolve("kubernetes", self.api)
            .no_proxy()
            .build()
            .expect("a client");
        Kubernetes { client, runtime: &self.runtime, port: self.api.port() }
    }
}

fn base64_decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text.trim()).expect("base64")
}

/// The Kubernetes API as cluster admin.
pub struct Kubernetes<'a> {
    client: reqwest::Client,
    runtime: &'a tokio::runtime::Runtime,
    port: u16,
}

impl Kubernetes<'_> {
    /// GET of an API path. What comes from an API server that is just starting does not count: on a busy host it may miss
    /// its own health check, and is then started anew. Connections break then, and it knows no roles at first.
    pub fn get(&self, path: &str) -> Value {
        let url = format!("https://kubernetes:{}{path}", self.port);
        let whole = async || {
            let answer = self.client.get(&url).send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.text().await?))
        };
        let until = Instant::now() + AWAY;
        self.runtime.block_on(async {
            loop {
                let told = match whole().await {
                    Ok((status, body)) if status.is_success() => {
                        return serde_json::from_str(&body).unwrap_or(Value::String(body));
                    }
                    // An admin may do everything.
                    Ok((status, body)) if status == StatusCode::FORBIDDEN || status.is_server_error() => {
                        format!("{status}: {body}")
                    }
                    Ok((status, body)) => panic!("GET {path}: {status}: {body}"),
                    Err(error) => format!("{error:?}"),
                };
                assert!(Instant::now() < until, "GET {path}: {told}");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        })
    }

    /// GET of an API path whose answer is text: a pod's log.
    pub fn text(&self, path: &str) -> String {
        match self.get(path) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Watches the object `name` of a list until `done` says so, at most ten minutes; the object as it is then.
    pub fn wait(&self, list: &str, name: &str, done: impl Fn(&Value) -> bool) -> Option<Value> {
        let query = format!("watch=true&timeoutSeconds=600&fieldSelector=metadata.name%3D{name}");
        let url = format!("https://kubernetes:{}{list}?{query}", self.port);
        let until = Instant::now() + WATCHED;
        self.runtime.block_on(async {
            // A watch that is broken off begins anew with what is there then.
            while Instant::now() < until {
                let Ok(mut answer) = self.client.get(&url).send().await else {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    continue;
                };
                let mut text = Vec::new();
                while let Ok(Some(chunk)) = answer.chunk().await {
                    text.extend_from_slice(&chunk);
                    while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = text.drain(..=end).collect();
                        let event: Value = serde_json::from_slice(&line).expect("a watch event");
                        if done(&event["object"]) {
                            return Some(event["object"].clone());
                        }
                    }
                }
            }
            None
        })
    }

    /// POST of an object; the object as it was created.
    pub fn create(&self, path: &str, object: &Value) -> Value {
        let url = format!("https://kubernetes:{}{path}", self.port);
        self.runtime.block_on(async {
            let sent = self.client.post(&url).json(object).send().await;
            let answer = sent.unwrap_or_else(|error| panic!("POST {path}: {error:?}"));
            let status = answer.status();
            let body = answer.text().await.expect("a body");
            assert!(status.is_success(), "POST {path}: {status}: {body}");
            serde_json::from_str(&body).expect("an object")
        })
    }
}
