//! The clock of a server in the deploy ramdisk. One that lay in a store for years has a time of its own, with which neither it
//! nor Ironic takes the other's certificate. So it takes the box's before the agent starts, and keeps it where its OS will
//! find it.
//!
//! ```text
//! kernel's command line: ipa-api-url ─► any answer of Ironic's API: Date (RFC 9110, 6.6.1) ─► system clock ─► hardware clock
//! ```
//! The certificate of that answer is not checked: nothing can be, without the time. A liar on that wire can spoil an
//! installation in this way, and nothing more: it learns nothing.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use jiff::fmt::rfc2822;
use reqwest::header::DATE;

use crate::host::{Runner as _, System, clock};
use crate::http::client;

/// Where the kernel's command line is.
const COMMAND_LINE: &str = "/proc/cmdline";
/// Its word that says where Ironic is.
const API: &str = "ipa-api-url=";
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long until the next try.
const AGAIN: Duration = Duration::from_millis(500);
/// How long the hardware clock may take: it is set at the start of a second.
const HARDWARE: Duration = Duration::from_secs(20);
/// Seconds that do not matter: the header has whole ones, and the answer takes its time.
const TOLERATED: u64 = 2;

/// What `ramdisk-clock` takes.
#[derive(Debug, Args)]
pub struct RamdiskClock {
    /// How long the box is waited for, in seconds: cards may take half a minute until their switch lets them in.
    #[arg(long, value_name = "SECS", default_value = "60")]
    wait: u64,
}

impl RamdiskClock {
    /// Sets the clocks; returns what was done, as text for people.
    ///
    /// # Errors
    /// The kernel was not told where Ironic is, it does not answer, or a clock cannot be set.
    pub fn run(&self) -> anyhow::Result<String> {
        let line = fs_err::read_to_string(COMMAND_LINE)?;
        let api = api_in(&line).with_context(|| format!("`{COMMAND_LINE}` has no `{API}...`"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let theirs = runtime.block_on(time_of(api, Duration::from_secs(self.wait)))?;
        let own = clock::now_secs();
        if own.abs_diff(theirs) <= TOLERATED {
            return Ok("the clock is that of the box\n".to_owned());
        }
        clock::set_secs(theirs)?;
        System::new().run(&["hwclock", "--systohc", "--utc"], b"", HARDWARE)?;
        let way = if theirs > own { "behind" } else { "ahead" };
        Ok(format!("the clock was {} s {way}: it is that of the box now\n", own.abs_diff(theirs)))
    }
}

/// Where Ironic is, by the kernel's command line. The last of several wins, as in the kernel.
fn api_in(line: &str) -> Option<&str> {
    line.split_whitespace().filter_map(|word| word.strip_prefix(API)).next_back()
}

/// The time that this server's answer tells, in seconds since 1970; asked until it answers.
async fn time_of(api: &str, within: Duration) -> anyhow::Result<u64> {
    let client = client::plain().timeout(ANSWER).tls_danger_accept_invalid_certs(true).build()?;
    let begun = Instant::now();
    let answer = loop {
        match client.get(api).send().await {
            Ok(answer) => break answer,
            Err(error) if begun.elapsed() < within => {
                log::debug!("{api}: {error}");
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => {
                return Err(error).with_context(|| format!("`{api}` gave no answer in {} s", within.as_secs()));
            }
        }
    };
    let date = answer.headers().get(DATE).with_context(|| format!("the answer of `{api}` has no `Date`"))?;
    let time = rfc2822::parse(date.to_str()?).with_context(|| format!("the `Date` of `{api}`"))?.timestamp();
    Ok(u64::try_from(time.as_second())?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::{api_in, time_of};

    #[test]
    fn ironic_is_found_in_what_the_kernel_is_told() {
        let line =
            "nofb ipa-api-url=https://old:6385 console=ttyS0 ipa-api-url=https://172.22.0.1:6385 boot_method=vmedia\n";
        assert_eq!(api_in(line), Some("https://172.22.0.1:6385"));
        assert_eq!(api_in("quiet xipa-api-url=https://172.22.0.1:6385"), None);
    }

    async fn told(head: &'static str) -> anyhow::Result<u64> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let api = format!("http://{}", listener.local_addr().expect("its address"));
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let asked = stream.read(&mut [0; 1024]).await.expect("a request");
            assert!(asked > 0, "no request");
            stream.write_all(head.as_bytes()).await.expect("answered");
            stream.shutdown().await.expect("closed");
        };
        tokio::join!(time_of(&api, Duration::ZERO), server).0
    }

    #[tokio::test]
    async fn any_answer_tells_the_time() {
        let refused = "HTTP/1.1 401 Unauthorized\r\nDate: Fri, 17 Jan 2025 10:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(told(refused).await.expect("a time"), 1_737_108_000);
        let none = told("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect_err("no time");
        assert!(none.to_string().ends_with("has no `Date`"), "{none}");
    }

    #[tokio::test]
    async fn who_never_answers_is_not_waited_for_longer_than_told() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let error = time_of("http://127.0.0.1:9", Duration::ZERO).await.expect_err("nobody is there");
        assert_eq!(error.to_string(), "`http://127.0.0.1:9` gave no answer in 0 s");
    }
}
