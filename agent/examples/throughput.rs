//! The content server against nginx: the same files, the same clients, by turns.
//!
//! ```text
//! cargo run --release -p foothold-agent --example throughput -- NGINX FOLDER [SECONDS]
//! ```
//! `NGINX` is the program (Debian's, unpacked anywhere), `FOLDER` has room for 1.1 GiB. Both servers run as processes of
//! their own with two workers; 64 clients on loopback take whole files on connections that stay open, and let the kernel
//! forget what arrives. Three turns each; the median counts.

#![expect(clippy::print_stdout, reason = "it prints figures")]
#![expect(clippy::disallowed_methods, reason = "it starts the servers that it compares")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_api::release::{ContentKind, Digest};
use anyhow::{Context, Result, bail};
use foothold_agent::content::server::Content;
use foothold_agent::content::{Held, Source};
use foothold_agent::http;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::PrivateKeyDer;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const CLIENTS: usize = 64;
const TURNS: usize = 3;
/// Bytes that a client takes at a time.
const PIECE: usize = 256 << 10;
/// Name and bytes of each file.
const FILES: [(&str, usize); 4] = [("small", 4 << 10), ("medium", 64 << 10), ("mebi", 1 << 20), ("gibi", 1 << 30)];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", folder, port] => serve(Path::new(folder), port.parse()?),
        [nginx, folder] => compare(nginx, Path::new(folder), Duration::from_secs(5)),
        [nginx, folder, secs] => compare(nginx, Path::new(folder), Duration::from_secs(secs.parse()?)),
        _ => bail!("usage: throughput NGINX FOLDER [SECONDS]"),
    }
}

fn compare(nginx: &str, folder: &Path, turn: Duration) -> Result<()> {
    make_files(folder)?;
    let own = Server::start(Command::new(std::env::current_exe()?).arg("serve").arg(folder))?;
    let other = Server::nginx(nginx, folder)?;
    println!("{:<8}{:>14}{:>14}{:>8}", "file", "foothold", "nginx", "ratio");
    for (name, bytes) in FILES {
        let mut rates: [Vec<f64>; 2] = Default::default();
        for _ in 0..TURNS {
            for (server, rates) in [&own, &other].into_iter().zip(&mut rates) {
                rates.push(load(server.address, name, bytes, turn)?);
            }
        }
        let [own, other] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[TURNS / 2]
        });
        let in_words = |rate: f64| {
            if bytes < 1 << 20 { format!("{rate:.0}/s") } else { format!("{:.0} MiB/s", rate * mib(bytes)) }
        };
        println!("{name:<8}{:>14}{:>14}{:>8.2}", in_words(own), in_words(other), own / other);
    }
    println!("peak memory, KiB: foothold {}, nginx {}", own.peak_kib(), other.peak_kib());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn make_files(folder: &Path) -> Result<()> {
    fs_err::create_dir_all(folder)?;
    for (name, bytes) in FILES {
        let path = folder.join(name);
        if fs_err::metadata(&path).is_ok_and(|found| found.len() == bytes as u64) {
            continue;
        }
        let mut file = fs_err::File::create(path)?;
        let piece = vec![0x5a; bytes.min(1 << 20)];
        for _ in 0..bytes / piece.len() {
            file.write_all(&piece)?;
        }
    }
    Ok(())
}

/// A server that is stopped when it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        let address = free_address()?;
        let child = command.arg(address.port().to_string()).stdin(Stdio::null()).spawn()?;
        Self { child, address }.wait()
    }

    fn nginx(program: &str, folder: &Path) -> Result<Self> {
        let address = free_address()?;
        let text = format!(
            "daemon off; worker_processes 2; error_log stderr crit; pid {0}/nginx.pid; events {{ worker_connections 512; }}
             http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; client_body_temp_path {0};
             proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0};
             server {{ listen {address}; root {0}; }} }}",
            folder.display()
        );
        let configuration = folder.join("nginx.conf");
        fs_err::write(&configuration, text)?;
        let mut command = Command::new(program);
        // Its workers read files that only this user may read.
        let user = ["-g", "user root;"];
        let child = command.arg("-c").arg(&configuration).args(user).stdin(Stdio::null()).spawn()?;
        Self { child, address }.wait()
    }

    fn wait(self) -> Result<Self> {
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(self.address).is_err() {
            if Instant::now() > until {
                bail!("nothing listens on {}", self.address);
            }
        }
        Ok(self)
    }

    /// Of the process and those it started.
    fn peak_kib(&self) -> u64 {
        let id = self.child.id();
        let children = fs_err::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let ids = children.split_whitespace().map(str::to_owned).chain([id.to_string()]);
        let peak = |id: String| -> Option<u64> {
            let status = fs_err::read_to_string(format!("/proc/{id}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.split_whitespace().next()?.parse().ok()
        };
        ids.filter_map(peak).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Files a second that all clients together get whole.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn load(address: SocketAddr, name: &str, bytes: usize, turn: Duration) -> Result<f64> {
    let taken = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let client = || -> Result<()> {
            let mut stream = TcpStream::connect(address)?;
            while began.elapsed() < turn {
                taken.fetch_add(take(&mut stream, name, began + turn)?, Ordering::Relaxed);
            }
            Ok(())
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
    })?;
    Ok(taken.into_inner() as f64 / bytes as f64 / began.elapsed().as_secs_f64())
}

/// Takes the file, or as much of it as comes until then. Returns bytes of the body.
fn take(stream: &mut TcpStream, name: &str, until: Instant) -> Result<u64> {
    stream.write_all(format!("GET /{name} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes())?;
    let mut buffer = vec![0; 8192];
    let mut filled = 0;
    let (end, length) = loop {
        let read = stream.read(&mut buffer[filled..])?;
        if read == 0 {
            bail!("the server closed the connection");
        }
        filled += read;
        let text = String::from_utf8_lossy(&buffer[..filled]);
        let Some(end) = text.find("\r\n\r\n") else { continue };
        if !text.starts_with("HTTP/1.1 200") {
            bail!("an answer that is none: {}", text.lines().next().unwrap_or_default());
        }
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        break (end + 4, length.context("a length")?.trim().parse::<u64>()?);
    };
    let mut taken = (filled - end) as u64;
    let mut piece = vec![0; PIECE];
    while taken < length && Instant::now() < until {
        // The kernel forgets the bytes: what is measured is who sends them.
        let most = usize::try_from(length - taken).unwrap_or(PIECE).min(PIECE);
        let (_, read) = recv(&*stream, &mut piece[..most], RecvFlags::TRUNC)?;
        if read == 0 {
            bail!("the server closed the connection");
        }
        taken += read as u64;
    }
    Ok(taken)
}

/// The folder's files.
struct Folder(Vec<Held>);

impl Source for Folder {
    fn find(&self, path: &str) -> Option<Held> {
        self.0.iter().find(|held| held.path == path).cloned()
    }

    fn list(&self) -> Vec<Held> {
        self.0.clone()
    }
}

fn serve(folder: &Path, port: u16) -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let held = |(name, bytes): (&str, usize)| -> Result<Held> {
        let digest = Digest::from_hex(&"ab".repeat(32))?;
        let (path, file) = (name.to_owned(), folder.join(name));
        Ok(Held { path, kind: ContentKind::File, file, digest, size: bytes as u64 })
    };
    let files = Folder(FILES.into_iter().map(held).collect::<Result<_>>()?);
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into());
    let tls =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![pair.cert.der().clone()], key)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let mut tasks = JoinSet::new();
        let content = Arc::new(Content::new(vec![Arc::new(files)], folder, 1_790_000_000));
        http::start(&mut tasks, &[([127, 0, 0, 1], port).into()], content, tls, &CancellationToken::new());
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    })
}
