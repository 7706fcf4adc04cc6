//! IPMI, asked of OpenIPMI's `ipmi_sim`, of the toolbox.

use std::net::UdpSocket;
use std::process::Stdio;
use std::time::Duration;

use agent_api::metal3::bmc_address::Credentials;
use agent_api::rehearsal::{CellState, Check};
use foothold_agent::bmc::console::{self, Access};
use foothold_agent::bmc::ipmi::Client;
use foothold_agent::bmc::rehearsal::Plan;
use foothold_agent::steps::chain;
use foothold_qemu::Tools;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::site::{cell, manifest, plan, rehearse_one, those};

const PASSWORD: &str = "secret";
/// The simulator listens after a moment.
const STARTS: Duration = Duration::from_secs(1);

/// A simulator on loopback. It ends with the handle.
struct Simulator {
    port: u16,
    _process: tokio::process::Child,
    _dir: TempDir,
}

impl Simulator {
    /// One that answers already.
    async fn start() -> Self {
        Self::with("").await
    }

    /// The same, with more lines in its configuration.
    async fn with(more: &str) -> Self {
        let argv = Tools::program_or_make("usr/bin/ipmi_sim").expect("ipmi_sim is in the toolbox");
        let dir = tempfile::tempdir().expect("a folder");
        let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let configuration = format!(
            "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n    \
             allowed_auths_admin none md2 md5 straight\n    guid a123456789abcdefa123456789abcdef\n  endlan\n  \
             user 1 true \"\" \"test\" user 10 none md2 md5 straight\n  \
             user 2 true \"admin\" \"{PASSWORD}\" admin 10 none md2 md5 straight\n  \
             user 3 true \"looker\" \"{PASSWORD}\" user 10 none md2 md5 straight\n{more}"
        );
        let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                        sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
        let (lan, emu) = (dir.path().join("lan.conf"), dir.path().join("bmc.emu"));
        fs_err::write(&lan, configuration).expect("written");
        fs_err::write(&emu, commands).expect("written");
        #[expect(clippy::disallowed_methods, reason = "the simulator is a process of this test")]
        let mut command = tokio::process::Command::from(std::process::Command::new(&argv[0]));
        command.args(&argv[1..]).arg("-n").arg("-c").arg(lan).arg("-f");
        command.arg(emu).arg("-s").arg(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().expect("ipmi_sim starts");
        let answers = async { while Client::find(([127, 0, 0, 1], port).into(), STARTS).await.is_err() {} };
        timeout(STARTS * 20, answers).await.expect("ipmi_sim answers");
        Self { port, _process: process, _dir: dir }
    }

    fn address(&self) -> String {
        format!("ipmi://127.0.0.1:{}", self.port)
    }
}

#[tokio::test]
async fn a_real_simulator_answers_every_check() {
    let simulator = Simulator::start().await;
    // It does not take cipher suite 17: the client falls back to 3.
    let host = rehearse_one(&manifest("one", &simulator.address(), PASSWORD, None), &plan()).await;
    assert!(host.good, "{host:#?}");
    assert_eq!(cell(&host, Check::Power).says, "off");
    assert_eq!(cell(&host, Check::Firmware).says, "BMC 9.08, IPMI 2.0");
    // Its event log counts from its start, and without a helper program it has no boot options.
    assert_eq!(those(&host, CellState::Warn), [Check::Boot, Check::Clock], "{host:#?}");
    assert_eq!(those(&host, CellState::Skipped), [Check::Media]);
}

#[tokio::test]
async fn wrong_passwords_and_users_are_told_apart() {
    let simulator = Simulator::start().await;
    let ask = async |user: &str, password: &str, query: &str| {
        let yaml = manifest("one", &format!("{}{query}", simulator.address()), password, None);
        rehearse_one(&yaml.replace("\"admin\"", &format!("\"{user}\"")), &plan()).await
    };
    for (user, password, query, says) in [
        ("admin", "wrong", "", "the password is wrong"),
        ("nobody", PASSWORD, "", "does not know the user"),
        ("admin", "a password that is too long", "", "longer than the 20 bytes"),
    ] {
        let host = ask(user, password, query).await;
        assert_eq!(those(&host, CellState::Bad), [Check::Credentials], "{host:#?}");
        assert!(cell(&host, Check::Credentials).says.contains(says), "{host:#?}");
    }
    let host = ask("looker", PASSWORD, "?privilegelevel=USER").await;
    assert_eq!(cell(&host, Check::Credentials).state, CellState::Good, "{host:#?}");
}

#[tokio::test]
async fn nobody_on_the_port_is_told_in_time() {
    let port = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = format!("ipmi://{}", port.local_addr().expect("an address"));
    let plan = Plan { patience: Duration::from_millis(300), ..plan() };
    let host = rehearse_one(&manifest("one", &address, PASSWORD, None), &plan).await;
    assert_eq!(those(&host, CellState::Bad), [Check::Reach], "{host:#?}");
    assert!(cell(&host, Check::Reach).says.contains("no answer to 3 packets"), "{host:#?}");
}

/// A simulator whose serial line is a connection of this test.
async fn with_line() -> (Simulator, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (Simulator::with(&format!("  sol \"tcp:127.0.0.1:{port}\" 115200\n")).await, listener)
}

impl Simulator {
    fn access(&self, user: &str) -> Access {
        let credentials = Credentials { username: user.to_owned(), password: PASSWORD.to_owned() };
        Access { address: self.address(), unverified: false, authority: None, credentials, host_key: None }
    }
}

async fn passes(from: &mut (impl AsyncWrite + Unpin), to: &mut (impl AsyncRead + Unpin), text: &str) {
    let mut bytes = vec![0; text.len()];
    let both = async {
        let (written, read) = tokio::join!(from.write_all(text.as_bytes()), to.read_exact(&mut bytes));
        written.expect("written");
        read.expect("read");
    };
    timeout(STARTS * 60, both).await.expect("in time");
    assert!(bytes == text.as_bytes(), "{}", String::from_utf8_lossy(&bytes));
}

#[tokio::test]
async fn the_serial_line_of_a_bmc_with_ipmi_goes_both_ways_and_is_free_when_it_is_left() {
    let (simulator, listener) = with_line().await;
    let access = simulator.access("admin");
    let open = async || console::open(&access).await;
    // The simulator keeps its connection from one session to the next.
    let (mut line, _) = timeout(STARTS * 20, listener.accept()).await.expect("in time").expect("a connection");
    for _ in 0..2 {
        let mut console = open().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(console.host_key(), None);
        let mut shown = console.line();
        passes(&mut line, &mut shown, "login: ").await;
        passes(&mut shown, &mut line, "root\r").await;
        // More than one packet takes, each way.
        let long = "more than one packet takes ".repeat(60);
        passes(&mut line, &mut shown, &long).await;
        passes(&mut shown, &mut line, &long).await;
        // One that asks meanwhile is refused, and ends nothing.
        let refused = chain(&open().await.err().expect("refused"));
        assert!(refused.contains("somebody else has it; hint: `ipmitool sol deactivate`"), "{refused}");
        let mut shown = console.line();
        passes(&mut line, &mut shown, "# ").await;
        console.close().await;
    }
}

#[tokio::test]
async fn a_bmc_without_a_serial_line_says_so_and_a_wrong_password_is_told() {
    let simulator = Simulator::start().await;
    let refused = console::open(&simulator.access("admin")).await.err().expect("refused");
    assert!(chain(&refused).starts_with("its BMC's Serial-over-LAN: "), "{}", chain(&refused));
    let mut access = simulator.access("admin");
    access.credentials.password = "wrong".to_owned();
    let refused = console::open(&access).await.err().expect("refused");
    assert_eq!(chain(&refused), "asking its BMC by IPMI: the password is wrong");
}

/// The BMC goes while somebody looks: it is said on the line, which ends.
#[tokio::test]
async fn a_bmc_that_goes_ends_the_line_with_a_word() {
    let (simulator, listener) = with_line().await;
    let mut console =
        console::open(&simulator.access("admin")).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let (mut line, _) = timeout(STARTS * 20, listener.accept()).await.expect("in time").expect("a connection");
    let mut shown = console.line();
    passes(&mut line, &mut shown, "login: ").await;
    drop(simulator);
    shown.write_all(b"a").await.expect("typed");
    let mut said = String::new();
    timeout(STARTS * 60, shown.read_to_string(&mut said)).await.expect("in time").expect("text");
    assert!(said.starts_with("\r\n") && said.contains("sending to 127.0.0.1"), "{said}");
}
