//! A BMC that hangs or refuses while something waits for it, asked in its own right.

use std::net::UdpSocket;
use std::time::Duration;

use agent_api::metal3::bmc_address::Credentials;
use foothold_agent::bmc::rehearsal::{Target, pulse};
use foothold_agent::bmc::trust::Trust;
use foothold_qemu::bmc::Faults;
use rstest::rstest;

use super::site::{PASSWORD, Server};

fn target(address: String, trust: Trust) -> Target {
    let credentials = Credentials { username: "admin".to_owned(), password: PASSWORD.to_owned() };
    Target { address, credentials, trust }
}

fn of(server: &Server, path: &str) -> Target {
    let trust = Trust::authorities(server.bmc.certificate()).expect("a certificate");
    target(format!("redfish://{}{path}", server.bmc.address()), trust)
}

#[rstest]
#[case::well(Faults::default(), None)]
#[case::without_basic(Faults { refuse_basic: true, ..Faults::default() }, None)]
#[case::without_sessions(Faults { refuse_sessions: true, ..Faults::default() }, None)]
#[case::hangs(Faults { silent: true, ..Faults::default() }, Some(("BMCAway", "its BMC does not answer: no answer within")))]
#[case::refuses(
    Faults { refuse_credentials: true, ..Faults::default() },
    Some(("BMCRefuses", "its BMC does not let anybody in: "))
)]
#[tokio::test]
async fn a_bmc_is_told_for_what_it_does_now(#[case] faults: Faults, #[case] expected: Option<(&str, &str)>) {
    let server = Server::of("generic");
    server.bmc.set_faults(faults);
    for path in ["", "/redfish/v1/Systems/1"] {
        let told = pulse(&of(&server, path), Duration::from_secs(1)).await.expect("a verdict");
        match (told, expected) {
            (Ok(()), None) => {}
            (Err(trouble), Some((word, says))) => {
                assert_eq!(trouble.word, word);
                let told = trouble.to_string();
                assert!(told.starts_with(says) && told.contains("; hint: "), "{told}");
            }
            other => panic!("{other:?}"),
        }
    }
    if expected.is_none() {
        assert_eq!(server.changes(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn what_says_nothing_of_what_ironic_sees_is_no_verdict() {
    let server = Server::of("generic");
    let stranger = target(format!("redfish://{}", server.bmc.address()), Trust::System);
    assert_eq!(pulse(&stranger, Duration::from_secs(2)).await, None, "Ironic may trust it");
    assert!(server.bmc.asked().is_empty(), "no password goes to a stranger");
    let none = target("irmc://192.0.2.1".to_owned(), Trust::System);
    assert_eq!(pulse(&none, Duration::from_secs(2)).await, None);
}

#[tokio::test]
async fn an_ipmi_bmc_that_hangs_is_told() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = format!("ipmi://{}", silent.local_addr().expect("an address"));
    let mut target = target(address, Trust::System);
    // IPMI takes 20 bytes.
    target.credentials.password = "short".to_owned();
    let told = pulse(&target, Duration::from_secs(1)).await.expect("a verdict");
    assert_eq!(told.expect_err("silent").word, "BMCAway");
}
