//! A server as a test looks at it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use foothold_qemu::site;
use foothold_tests::waits;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// A server: its BMC, and the machine.
pub struct Server(pub site::Server);

impl Server {
    /// Of its only card.
    pub fn mac(&self) -> &str {
        self.0.mac()
    }

    /// How a host names its BMC.
    pub fn address(&self, scheme: &str) -> String {
        self.0.address(scheme)
    }

    /// What it said since it was last switched on.
    pub fn serial(&self) -> String {
        self.0.serial()
    }

    /// Waits until its ssh server greets.
    pub async fn answers_ssh(&self, address: Ipv4Addr, within: Duration) {
        let begun = Instant::now();
        let greet = async || {
            let mut stream = TcpStream::connect((address, 22)).await.ok()?;
            let mut greeting = [0; 4];
            stream.read_exact(&mut greeting).await.ok()?;
            (&greeting == b"SSH-").then_some(())
        };
        while tokio::time::timeout(Duration::from_secs(5), greet()).await != Ok(Some(())) {
            assert!(begun.elapsed() < within, "no ssh at {address}\n{}", self.serial());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Keeps what it said so far, for people. It has waited for nothing that did not come.
    pub fn keep_words(&self, name: &str) {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("site-{}-{name}.log", self.mac().replace(':', "")));
        let said = self.serial();
        assert_eq!(waits::sat_out(&said), [""; 0], "its boot sat out a wait\n{said}");
        fs_err::write(path, said).expect("written");
    }

    /// Waits until it says something, whatever its BMC does to it meanwhile.
    pub async fn says(&self, text: &str, within: Duration) {
        let begun = Instant::now();
        while !self.serial().contains(text) {
            assert!(begun.elapsed() < within, "`{text}` was not said\n{}", self.serial());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
