//! A builder with a cache of its own for a definition, and a proxy that hangs up.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_api::release::Image;
use foothold::builder::{AgentProfile, Builder};
use foothold::config::{self, Appliance};
use foothold::content::images;
use foothold::lock::Lock;
use foothold::lock::fetch::Network;
use foothold::report::Report;
use foothold::store::Cache;

/// A definition and an empty cache.
pub struct Bench {
    /// The folder of both.
    pub dir: tempfile::TempDir,
    /// The builder.
    pub at: Builder,
    /// The definition.
    pub appliance: Appliance,
}

impl Bench {
    /// For a definition that ends with these lines.
    pub fn new(lines: &str) -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"), lines)
    }

    /// The same beside files that the definition names.
    pub fn in_folder(dir: tempfile::TempDir, lines: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let appliance = appliance(&dir.path().join("appliance.yaml"), lines);
        let at = Builder {
            cache: Cache::open(&dir.path().join("cache")).expect("a cache"),
            workspace: foothold::builder::workspace().expect("the sources"),
            helper: PathBuf::from("foothold"),
            network: Network::default(),
            agent: AgentProfile::Site,
            report: Report::to_writers(Box::new(std::io::sink()), Box::new(std::io::sink())),
        };
        Self { dir, at, appliance }
    }

    /// The images in a new lock.
    pub fn lock(&self) -> anyhow::Result<Lock> {
        let mut lock = Lock::new(1_760_000_000);
        images::resolve_fetched(&self.at, &self.appliance, &mut lock)?;
        Ok(lock)
    }

    /// The images of a lock, in the cache.
    pub fn make(&self, lock: &Lock) -> anyhow::Result<Vec<Image>> {
        images::make_fetched(&self.at, &self.appliance, lock)
    }
}

/// A definition that ends with these lines, as if it lay in that file.
fn appliance(file: &Path, lines: &str) -> Appliance {
    let text =
        format!("apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: edge, version: 1.4.0 }}\n{lines}");
    let checked = config::check(file, text);
    let problems = checked.problems.to_string();
    checked.appliance.unwrap_or_else(|| panic!("{problems}"))
}

/// Stands before a server of plain HTTP, counts what is asked and cuts connections in the middle.
pub struct FlakyProxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Bytes of a blob after which to hang up, one each request for a blob.
    cuts: Vec<u64>,
    /// Path, first byte asked for, and bytes of the body that were passed on.
    seen: Vec<(String, u64, u64)>,
}

impl FlakyProxy {
    /// In front of that server.
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        // Ends with the process: nothing of it outlives a test.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || pass_on(client, server, &shared));
            }
        });
        Self { address, state }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next answers with blobs end after so many bytes.
    pub fn cut_after(&self, bytes: &[u64]) {
        self.state().cuts = bytes.iter().rev().copied().collect();
    }

    /// First byte asked for and bytes passed on, of each request for the blob.
    pub fn seen(&self, digest: &str) -> Vec<(u64, u64)> {
        let state = self.state();
        let of_it = state.seen.iter().filter(|(path, ..)| path.ends_with(&format!("/blobs/{digest}")));
        of_it.map(|(_, from, bytes)| (*from, *bytes)).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pass_on(mut client: TcpStream, server: SocketAddr, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut head, mut from) = (format!("{request}\r\nConnection: close\r\n"), 0);
    for line in lines {
        let line = line?;
        if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap_or_default();
        }
        if line.is_empty() {
            break;
        }
        head.extend([&*line, "\r\n"]);
    }
    let mut upstream = TcpStream::connect(server)?;
    upstream.write_all(format!("{head}\r\n").as_bytes())?;
    let mut answer = BufReader::new(upstream);
    let mut line = String::new();
    while answer.read_line(&mut line)? > 0 {
        client.write_all(line.as_bytes())?;
        if line == "\r\n" {
            break;
        }
        line.clear();
    }
    let (number, cut) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.push((path.clone(), from, 0));
        let cut = if path.contains("/blobs/") { state.cuts.pop() } else { None };
        (state.seen.len() - 1, cut)
    };
    let (mut left, mut buffer) = (cut.unwrap_or(u64::MAX), [0; 4096]);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let n = answer.read(&mut buffer[..most])?;
        if n == 0 {
            break;
        }
        client.write_all(&buffer[..n])?;
        left -= n as u64;
        state.lock().unwrap_or_else(PoisonError::into_inner).seen[number].2 += n as u64;
    }
    Ok(())
}
