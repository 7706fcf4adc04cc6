//! IPMI, asked of OpenIPMI's `ipmi_sim`, of the toolbox.

use std::net::UdpSocket;
use std::process::Stdio;
use std::time::Duration;

use agent_api::rehearsal::{CellState, Check};
use foothold_agent::bmc::ipmi::Client;
use foothold_agent::bmc::rehearsal::Plan;
use foothold_qemu::Tools;
use tempfile::TempDir;
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
        let argv = Tools::program_or_make("usr/bin/ipmi_sim").expect("ipmi_sim is in the toolbox");
        let dir = tempfile::tempdir().expect("a folder");
        let port = UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let configuration = format!(
            "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n    \
             allowed_auths_admin none md2 md5 straight\n    guid a123456789abcdefa123456789abcdef\n  endlan\n  \
             user 1 true \"\" \"test\" user 10 none md2 md5 straight\n  \
             user 2 true \"admin\" \"{PASSWORD}\" admin 10 none md2 md5 straight\n  \
             user 3 true \"looker\" \"{PASSWORD}\" user 10 none md2 md5 straight\n"
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
