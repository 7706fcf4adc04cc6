//! The server, and its clients.

use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use agent_api::bpa::Image;
use axum::body::Bytes;
use hyper::body::Frame;
use reqwest::multipart::Form;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use super::serve;

pub const TOKEN: &str = "a-token-of-this-test";

/// A process that ends with its handle.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program as the server on `folder`; what it says goes to `log`.
fn start(folder: &str, log: &Path) -> Process {
    let log = fs_err::OpenOptions::new().create(true).append(true).open(log).expect("a log").into_file();
    #[expect(clippy::disallowed_methods, reason = "the test kills a real process")]
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(serve::ARGUMENTS).env(serve::FOLDER, folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Process(command.spawn().expect("started"))
}

/// A running server on `dir`.
pub struct Server {
    process: Process,
    pub address: String,
    pub client: Client,
}

impl Server {
    /// Starts it. What an earlier one left in `dir` is taken up.
    pub async fn start(dir: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let _ = fs_err::remove_file(dir.join("address"));
        let text = dir.display().to_string();
        let process = start(&text, &dir.join("log"));
        let mut address = None;
        wait_until("the server listens", async || {
            address = fs_err::read_to_string(dir.join("address")).ok();
            address.is_some()
        })
        .await;
        let authority = fs_err::read(dir.join("web/ca.crt")).expect("the authority");
        let authority = reqwest::Certificate::from_pem(&authority).expect("a certificate");
        // The server closes a connection that waits for ten seconds.
        let builder = Client::builder().tls_certs_only([authority]).no_proxy().http1_only();
        let client = builder.pool_idle_timeout(Duration::from_secs(4)).build().expect("a client");
        Self { process, address: address.expect("an address"), client }
    }

    pub fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        self.client.request(method, format!("https://{}{path}", self.address)).bearer_auth(TOKEN)
    }

    pub async fn announce(&self, collection: &str, metadata: &Value) {
        let form = Form::new().text("metadata", metadata.to_string()).text("file", "x");
        let created = self.ask("POST", collection).multipart(form).send().await.expect("an answer");
        assert_eq!(created.status(), StatusCode::CREATED);
    }

    pub async fn image(&self, path: &str) -> Image {
        self.ask("GET", path).send().await.expect("an answer").json().await.expect("an image")
    }

    /// Sends all of `source` that is not there, and cuts the connection at `cut`.
    pub async fn send(&self, path: &str, source: Source, length: u64, cut: u64) -> reqwest::Result<Response> {
        loop {
            let offset = self.image(path).await.image_offset;
            let body = reqwest::Body::wrap(Pieces { source, at: offset, end: length, cut });
            let request =
                self.ask("PATCH", path).header("Upload-Offset", offset).header("Content-Length", length - offset);
            let answer = request.body(body).send().await?;
            // The one that was cut may still be ending.
            if answer.status() != StatusCode::CONFLICT {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.process.0.kill().expect("killed");
        self.process.0.wait().expect("ended");
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.0.try_wait().expect("a process").is_none()
    }

    /// The most memory it ever had, KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = fs_err::read_to_string(format!("/proc/{}/status", self.process.0.id())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

pub async fn wait_until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn metadata(name: &str, length: u64) -> Value {
    json!({"owner": "alpha", "image_name": name, "image_length": length})
}

/// The bytes of an image, as a function of their place: nobody needs to hold them.
pub type Source = fn(at: u64, into: &mut [u8]);

/// All bytes differ from their neighbours.
pub fn dense(at: u64, into: &mut [u8]) {
    for (byte, at) in into.iter_mut().zip(at..) {
        *byte = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).to_le_bytes()[0];
    }
}

/// A sixteenth of it is there, the rest are holes: as in an image of a fresh file system.
pub fn sparse(at: u64, into: &mut [u8]) {
    if (at >> 20).is_multiple_of(16) { dense(at, into) } else { into.fill(0) }
}

/// A body that ends in an error at `cut`.
struct Pieces {
    source: Source,
    at: u64,
    end: u64,
    cut: u64,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        const PIECE: u64 = 64 * 1024;
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        if self.at >= self.cut {
            return Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionAborted.into())));
        }
        // Pieces never cross a boundary of sources.
        let size = (PIECE - self.at % PIECE).min(self.end - self.at);
        let mut piece = vec![0; usize::try_from(size).expect("a piece")];
        (self.source)(self.at, &mut piece);
        self.at += size;
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }
}
