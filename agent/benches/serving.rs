//! Content and registry against nginx, which serves the same files in the same run: bytes and answers per second, for 64
//! clients on loopback. Needs Debian's `nginx-light` and `wrk`.
//!
//! ```text
//! cargo bench -p foothold-agent --bench serving
//!
//! this program again ─► content  ┐
//!                   └─► registry ├─◄ wrk, one after the other, in rounds
//!                        nginx   ┘
//! ```

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]
#![expect(clippy::disallowed_methods, reason = "real programs are measured")]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::boot::MEDIUM;
use agent_api::release::{Blob, ContentKind, Digest, Image, Release};
use anyhow::{Context as _, ensure};
use foothold_agent::content::server::Content;
use foothold_agent::content::{Held, Source};
use foothold_agent::door::{Gate, own_certificate, tls};
use foothold_agent::events::Bus;
use foothold_agent::registry::Front;
use foothold_agent::{http, pulls};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What makes this program the server: a folder, and two ports of loopback.
const SERVE: &str = "--serve";
const SIZES: [(&str, usize); 3] = [("1 KiB", 1 << 10), ("1 MiB", 1 << 20), ("1 GiB", 1 << 30)];
const CLIENTS: &str = "64";
const SECONDS: &str = "8";
const ROUNDS: usize = 3;
/// Until a server that was started answers.
const START: Duration = Duration::from_secs(20);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().position(|one| one == SERVE) {
        Some(at) => serve(&arguments[at + 1..]),
        None => measure(),
    }
}

/// A file in the store; its bytes are the same each time, and no two sizes share them.
fn put(store: &Path, size: usize) -> anyhow::Result<Blob> {
    let mut state = u64::try_from(size)?;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    });
    let bytes: Vec<u8> = words.take(size / 8).flatten().collect();
    let digest = Digest::of(&bytes);
    fs_err::write(store.join(digest.hex()), &bytes)?;
    Ok(Blob { digest, size: u64::try_from(size)? })
}

fn store_of(root: &Path) -> anyhow::Result<std::path::PathBuf> {
    let medium = root.join(MEDIUM.trim_start_matches('/'));
    let store = medium.join(agent_api::release::MEDIUM_ROOT).join("store/sha256");
    fs_err::create_dir_all(&store)?;
    Ok(store)
}

/// Serves the store of `root`, as the daemon does.
fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [root, content, registry, ..] = arguments else { anyhow::bail!("{SERVE} ROOT PORT PORT") };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let at = |port: &str| anyhow::Ok([SocketAddr::from(([127, 0, 0, 1], port.parse()?))]);
    runtime.block_on(serve_on(Path::new(root), at(content)?, at(registry)?))
}

async fn serve_on(root: &Path, content: [SocketAddr; 1], registry: [SocketAddr; 1]) -> anyhow::Result<()> {
    let store = store_of(root)?;
    let mut blobs = Vec::new();
    for entry in fs_err::read_dir(&store)? {
        let entry = entry?;
        let digest = Digest::from_hex(&entry.file_name().to_string_lossy())?;
        blobs.push(Blob { digest, size: entry.metadata()?.len() });
    }
    let held = |blob: &Blob| Held {
        path: format!("files/{}", blob.digest.hex()),
        kind: ContentKind::File,
        file: store.join(blob.digest.hex()),
        digest: blob.digest.clone(),
        size: blob.size,
    };
    let carried: Vec<Held> = blobs.iter().map(held).collect();
    let manifest = blobs.first().context("an empty store")?.digest.clone();
    let image =
        Image { reference: "docker.io/library/app:1".to_owned(), index: None, inner: Vec::new(), manifest, blobs };
    let release = Release { images: vec![image], ..Release::default() };
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let (certificate, _) = own_certificate(&root.join("web"))?;
    let tls = tls(certificate)?;
    let recorder = pulls::start(&mut tasks, &Bus::in_memory(), &stop);
    let front = Front::new(&release, root, Arc::new(Gate::new(&root.join("access"))), recorder);
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(carried)];
    let files = Content::new(sources, &root.join(MEDIUM.trim_start_matches('/')), 0);
    http::start(&mut tasks, &content, Arc::new(files), tls.clone(), &stop);
    http::start(&mut tasks, &registry, Arc::new(front), tls, &stop);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// A program that ends with its handle.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Ok(Self(started.with_context(|| format!("{program} does not start; hint: apt-get install nginx-light wrk"))?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // nginx takes its workers along only when it is asked to end.
        if let Some(id) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn until_it_answers(port: u16) -> anyhow::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(begun.elapsed() < START, "nothing answers at port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// nginx as Debian configures it, without a log of each answer.
fn nginx(root: &Path, store: &Path, port: u16) -> anyhow::Result<Running> {
    let text = format!(
        "daemon off; worker_processes auto; pid {root}/nginx.pid; error_log {root}/nginx.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on;\n\
         server {{ listen 127.0.0.1:{port}; root {store}; }} }}\n",
        root = root.display(),
        store = store.display()
    );
    let file = root.join("nginx.conf");
    fs_err::write(&file, text)?;
    Running::start(Command::new("nginx").arg("-e").arg(root.join("nginx.log")).arg("-c").arg(file))
}

/// Answers and bytes per second of one run.
#[derive(Clone, Copy, Debug)]
struct Rate {
    answers: f64,
    bytes: f64,
}

fn wrk(url: &str) -> anyhow::Result<Rate> {
    let arguments = ["-t2", "-c", CLIENTS, "-d", SECONDS, "--timeout", "60", url];
    let ended = Command::new("wrk").args(arguments).output().context("wrk; hint: apt-get install nginx-light wrk")?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    ensure!(ended.status.success() && !said.contains("Non-2xx"), "{url}: {said}");
    let after = |name: &str| {
        let rest = said.split_once(name).map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default());
        rest.with_context(|| format!("no `{name}` in: {said}"))
    };
    Ok(Rate { answers: after("Requests/sec:")?.parse()?, bytes: bytes_of(after("Transfer/sec:")?)? })
}

/// Bytes of what `wrk` writes as `1.50GB`.
fn bytes_of(text: &str) -> anyhow::Result<f64> {
    let (number, factor) = [("KB", 10), ("MB", 20), ("GB", 30), ("TB", 40), ("B", 0)]
        .into_iter()
        .find_map(|(unit, power)| Some((text.strip_suffix(unit)?, f64::from(power).exp2())))
        .with_context(|| format!("`{text}` is no amount of bytes"))?;
    Ok(number.parse::<f64>()? * factor)
}

/// The middle one of some figures.
fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let root = dir.path();
    let store = store_of(root)?;
    let stored: Vec<Blob> = SIZES.iter().map(|(_, size)| put(&store, *size)).collect::<Result<_, _>>()?;
    let [content, registry, theirs] = [free_port()?, free_port()?, free_port()?];
    let ours = [SERVE.to_owned(), root.display().to_string(), content.to_string(), registry.to_string()];
    let _ours = Running::start(Command::new(std::env::current_exe()?).args(ours))?;
    let _nginx = nginx(root, &store, theirs)?;
    for port in [content, registry, theirs] {
        until_it_answers(port)?;
    }
    println!("{CLIENTS} clients, middle of {ROUNDS} rounds of {SECONDS} s; ratios to nginx");
    for ((name, _), file) in SIZES.iter().zip(&stored) {
        let hex = file.digest.hex();
        let urls = [
            format!("http://127.0.0.1:{theirs}/{hex}"),
            format!("http://127.0.0.1:{content}/files/{hex}"),
            format!("http://127.0.0.1:{registry}/v2/library/app/blobs/sha256:{hex}"),
        ];
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push([wrk(&urls[0])?, wrk(&urls[1])?, wrk(&urls[2])?]);
        }
        // Many small answers are counted, large ones weighed.
        let figure = |rate: &Rate| if file.size < 1 << 20 { rate.answers } else { rate.bytes / f64::from(1 << 20) };
        let unit = if file.size < 1 << 20 { "answers/s" } else { "MiB/s" };
        let of = |server: usize| middle(rounds.iter().map(|round| figure(&round[server])).collect());
        let ratio =
            |server: usize| middle(rounds.iter().map(|round| figure(&round[server]) / figure(&round[0])).collect());
        println!(
            "{name:>6}  nginx {:>9.0} {unit}   content {:>9.0} ({:.2})   registry {:>9.0} ({:.2})",
            of(0),
            of(1),
            ratio(1),
            of(2),
            ratio(2)
        );
    }
    Ok(())
}
