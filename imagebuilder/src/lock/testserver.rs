//! An HTTP server on loopback for tests: serves a folder, and hangs up in the middle when it is told to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A server that ends when it is dropped.
pub(crate) struct Server {
    url: String,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// `GET /path` and the first byte asked for, in order.
    asked: Vec<(String, u64)>,
    /// Bytes of a body after which it hangs up, one each request.
    hang_ups: Vec<usize>,
    /// Statuses of the next answers, instead of the file.
    failures: Vec<u16>,
    ended: bool,
}

impl Server {
    /// Serves `folder` on a free port.
    pub(crate) fn start(folder: &Path) -> Self {
        // Before the first client; another test may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State::default()));
        let (folder, shared) = (folder.to_owned(), Arc::clone(&state));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.lock().unwrap_or_else(PoisonError::into_inner).ended {
                    break;
                }
                // A client that goes away is its own affair.
                let _ = answer(stream, &folder, &shared);
            }
        });
        Self { url, state, thread: Some(thread) }
    }

    /// `http://127.0.0.1:<port>`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The next answers end after so many bytes of their body.
    pub(crate) fn hang_up_after(&self, bytes: &[usize]) {
        self.state().hang_ups = bytes.iter().rev().copied().collect();
    }

    /// The next answers are these statuses.
    pub(crate) fn fail_with(&self, statuses: &[u16]) {
        self.state().failures = statuses.iter().rev().copied().collect();
    }

    /// What was asked for: path and first byte.
    pub(crate) fn asked(&self) -> Vec<(String, u64)> {
        self.state().asked.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state().ended = true;
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, folder: &Path, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut from = 0;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap_or_default();
        }
        if line.is_empty() {
            break;
        }
    }
    let (hang_up, failure) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.push((path.clone(), from));
        let failure = state.failures.pop();
        (if failure.is_none() { state.hang_ups.pop() } else { None }, failure)
    };
    let file: PathBuf = folder.join(path.trim_start_matches('/'));
    let (status, range, body) = match (failure, fs_err::read(file)) {
        (Some(status), _) => (status, String::new(), Vec::new()),
        (None, Err(_)) => (404, String::new(), Vec::new()),
        (None, Ok(bytes)) => part(&bytes, from),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} -\r\nContent-Length: {length}\r\nConnection: close\r\n{range}\r\n")?;
    stream.write_all(&body[..hang_up.unwrap_or(length).min(length)])
}

/// The bytes from `from` on, as a server with ranges gives them.
fn part(bytes: &[u8], from: u64) -> (u16, String, Vec<u8>) {
    let start = usize::try_from(from).expect("a small file");
    match (start, bytes.len()) {
        (0, _) => (200, String::new(), bytes.to_vec()),
        (start, all) if start < all => {
            (206, format!("Content-Range: bytes {start}-{}/{all}\r\n", all - 1), bytes[start..].to_vec())
        }
        (_, all) => (416, format!("Content-Range: bytes */{all}\r\n"), Vec::new()),
    }
}
