//! Downloads over HTTP that survive a bad line: what has arrived is kept, and the rest is asked for.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fs_err::File;
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::host::cancel;
use crate::host::command::pause;

/// Attempts in a row that bring nothing before it is given up.
const ATTEMPTS: u32 = 5;
/// Pause after the first of them; doubled after each.
const PAUSE: Duration = Duration::from_millis(200);
/// A server that says nothing for so long is taken for gone.
const SILENCE: Duration = Duration::from_secs(30);
/// How often a wait looks whether to stop.
const POLL: Duration = Duration::from_millis(200);

/// A client of HTTP servers, which goes through the proxies of the environment.
#[derive(Debug)]
pub struct Http {
    client: Client,
    runtime: Runtime,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Another attempt may do better.
    ForNow(anyhow::Error),
    /// It would not.
    ForGood(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::ForGood(error.into())
    }
}

impl Http {
    /// A new client.
    pub fn new() -> Result<Self> {
        let client = Client::builder().connect_timeout(SILENCE).build().context("making an HTTP client")?;
        Ok(Self { client, runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// Downloads into `path`, behind what an earlier download left there. `on_bytes` is told bytes done, and bytes in
    /// all if the server says so.
    pub fn download(&self, url: &str, path: &Path, on_bytes: &mut dyn FnMut(u64, Option<u64>)) -> Result<()> {
        let mut file = fs_err::OpenOptions::new().append(true).create(true).open(path)?;
        let size = || Ok(fs_err::metadata(path)?.len());
        let result = persist(url, size, || self.runtime.block_on(rest(&self.client, url, &mut file, on_bytes)));
        result.with_context(|| format!("downloading `{url}`"))?;
        Ok(file.sync_all()?)
    }
}

/// Attempts `what` until it succeeds, or until attempts bring nothing any more: `size` tells what has come.
pub(crate) fn persist<T>(
    what: &str,
    size: impl Fn() -> Result<u64>,
    mut attempt: impl FnMut() -> Result<T, Failed>,
) -> Result<T> {
    let mut failures = 0;
    loop {
        let before = size()?;
        let failed = match attempt() {
            Ok(result) => return Ok(result),
            Err(failed) => failed,
        };
        failures = if size()? > before { 1 } else { failures + 1 };
        match failed {
            Failed::ForNow(error) if failures < ATTEMPTS => {
                log::debug!("downloading `{what}`: {error:#}");
                rest_a_while(PAUSE * 2_u32.pow(failures - 1))?;
            }
            Failed::ForNow(error) | Failed::ForGood(error) => return Err(error),
        }
    }
}

/// Asks for what `file` does not have yet.
async fn rest(
    client: &Client,
    url: &str,
    file: &mut File,
    on_bytes: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(), Failed> {
    let have = file.metadata()?.len();
    let ask = client.get(url);
    let ask = if have > 0 { ask.header(RANGE, format!("bytes={have}-")) } else { ask };
    let mut answer = wait(ask.send()).await?;
    let mut done = match begins_at(&answer, have)? {
        Begins::At(byte) => byte,
        Begins::Nowhere => return Ok(()),
        Begins::Elsewhere => {
            file.set_len(0)?;
            return Err(Failed::ForNow(anyhow!("the server has another file than before")));
        }
    };
    if done != have {
        file.set_len(done)?;
    }
    let total = answer.content_length().map(|rest| done + rest);
    while let Some(bytes) = wait(answer.chunk()).await? {
        cancel::check()?;
        file.write_all(&bytes)?;
        done += bytes.len() as u64;
        on_bytes(done, total);
    }
    match total {
        Some(total) if total != done => Err(Failed::ForNow(anyhow!("{done} of {total} bytes came"))),
        _ => Ok(()),
    }
}

/// Where in the file an answer begins.
enum Begins {
    /// At this byte.
    At(u64),
    /// Nothing is missing.
    Nowhere,
    /// What is here cannot be continued.
    Elsewhere,
}

/// Where the answer to a request for the bytes from `have` on begins (RFC 9110, sections 14.4 and 15.5.17).
fn begins_at(answer: &Response, have: u64) -> Result<Begins, Failed> {
    let status = answer.status();
    let range = answer.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match status {
        StatusCode::PARTIAL_CONTENT if range.starts_with(&format!("bytes {have}-")) => Ok(Begins::At(have)),
        StatusCode::RANGE_NOT_SATISFIABLE if range == format!("bytes */{have}") => Ok(Begins::Nowhere),
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => Ok(Begins::Elsewhere),
        _ if status.is_success() => Ok(Begins::At(0)),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Err(Failed::ForNow(said(status))),
        _ if status.is_server_error() => Err(Failed::ForNow(said(status))),
        _ => Err(Failed::ForGood(said(status))),
    }
}

fn said(status: StatusCode) -> anyhow::Error {
    anyhow!("the server says {status}")
}

/// Waits for the server, but not for ever, and not when everything should stop.
async fn wait<T>(work: impl Future<Output = reqwest::Result<T>>) -> Result<T, Failed> {
    patiently(work).await?.map_err(|error| Failed::ForNow(error.without_url().into()))
}

/// Waits for something that a server does, but not for ever, and not when everything should stop.
pub(crate) async fn patiently<T>(work: impl Future<Output = T>) -> Result<T, Failed> {
    let mut work = std::pin::pin!(work);
    let mut waited = Duration::ZERO;
    while waited < SILENCE {
        if let Ok(result) = timeout(POLL, &mut work).await {
            return Ok(result);
        }
        cancel::check()?;
        waited += POLL;
    }
    Err(Failed::ForNow(anyhow!("the server has said nothing for {} s", SILENCE.as_secs())))
}

/// Sleeps, but not when everything should stop.
fn rest_a_while(time: Duration) -> Result<()> {
    let mut left = time;
    while !left.is_zero() {
        cancel::check()?;
        let nap = left.min(POLL);
        pause(nap);
        left -= nap;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Http;
    use crate::lock::testserver::Server;

    /// More than one packet.
    fn content() -> Vec<u8> {
        (0_u32..50_000).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect()
    }

    fn serve(dir: &Path) -> Server {
        fs_err::create_dir(dir.join("served")).expect("a folder");
        fs_err::write(dir.join("served/file"), content()).expect("a file");
        Server::start(&dir.join("served"))
    }

    fn download(server: &Server, name: &str, into: &Path) -> anyhow::Result<()> {
        Http::new()?.download(&format!("{}/{name}", server.url()), into, &mut |_, _| ())
    }

    #[test]
    fn what_arrived_before_the_line_broke_is_not_fetched_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let (server, into) = (serve(dir.path()), dir.path().join("got"));
        server.hang_up_after(&[100_000, 0, 50_000]);
        download(&server, "file", &into).expect("downloaded");
        assert_eq!(fs_err::read(&into).expect("a file"), content());
        let from: Vec<u64> = server.asked().into_iter().map(|(_, from)| from).collect();
        assert_eq!(from, [0, 100_000, 100_000, 150_000]);
    }

    #[test]
    fn a_download_goes_on_where_an_earlier_program_was_stopped() {
        let dir = tempfile::tempdir().expect("a folder");
        let (server, into) = (serve(dir.path()), dir.path().join("got"));
        fs_err::write(&into, &content()[..1000]).expect("a part");
        let mut seen = Vec::new();
        let url = format!("{}/file", server.url());
        Http::new().expect("a client").download(&url, &into, &mut |done, all| seen.push((done, all))).expect("a file");
        assert_eq!(fs_err::read(&into).expect("a file"), content());
        assert_eq!(seen.last(), Some(&(200_000, Some(200_000))));
        download(&server, "file", &into).expect("nothing is missing");
        assert_eq!(server.asked(), [("/file".to_owned(), 1000), ("/file".to_owned(), 200_000)]);
    }

    #[test]
    fn a_part_that_is_longer_than_the_file_is_given_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let (server, into) = (serve(dir.path()), dir.path().join("got"));
        fs_err::write(&into, vec![0; 200_001]).expect("another file");
        download(&server, "file", &into).expect("downloaded");
        assert_eq!(fs_err::read(&into).expect("a file"), content());
    }

    #[test]
    fn a_server_that_is_busy_is_asked_again_and_one_without_the_file_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let (server, into) = (serve(dir.path()), dir.path().join("got"));
        server.fail_with(&[503, 429]);
        download(&server, "file", &into).expect("downloaded");
        assert_eq!(server.asked().len(), 3);
        let error = download(&server, "none", &dir.path().join("none")).expect_err("it is not there");
        let text = format!("{error:#}");
        assert!(text.contains("/none`: the server says 404"), "{text}");
        assert_eq!(server.asked().len(), 4);
    }
}
