//! Every fault: which cells are bad, what they say, and that nothing was changed.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use agent_api::rehearsal::{CellState, Check};
use foothold_agent::bmc::rehearsal::Plan;
use foothold_qemu::bmc::{Faults, Flaps, PowerFault};
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::site::{PASSWORD, Server, cell, manifest, plan, rehearse_all, rehearse_one, those};

const NOBODY: Vec<String> = Vec::new();

#[rstest]
#[case::inverted(PowerFault::Inverted, "the system says `Off`, its chassis `On`")]
#[case::wavering(PowerFault::Wavering, "the system says")]
#[tokio::test]
async fn a_lie_about_power_that_contradicts_itself_is_noticed(#[case] lie: PowerFault, #[case] part: &str) {
    let server = Server::of("generic");
    server.bmc.set_faults(Faults { power: lie, ..Faults::default() });
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
    assert_eq!(those(&host, CellState::Bad), [Check::Power], "{host:#?}");
    assert!(cell(&host, Check::Power).says.contains(part), "{host:#?}");
    assert_eq!(server.changes(), NOBODY);
}

#[rstest]
#[case::refused_although_right(PASSWORD, true)]
#[case::wrong("another", false)]
#[tokio::test]
async fn wrong_credentials_are_told_and_nothing_else_is_asked(#[case] password: &str, #[case] refuse: bool) {
    let server = Server::of("generic");
    server.bmc.set_faults(Faults { refuse_credentials: refuse, ..Faults::default() });
    let address = format!("redfish://{}", server.bmc.address());
    let yaml = manifest("one", &address, password, Some(server.bmc.certificate()));
    let host = rehearse_one(&yaml, &plan()).await;
    assert_eq!(those(&host, CellState::Good), [Check::Reach], "{host:#?}");
    assert_eq!(those(&host, CellState::Bad), [Check::Credentials]);
    let cell = cell(&host, Check::Credentials);
    assert!(cell.says.contains("401") && cell.hint.is_some(), "{cell:?}");
    assert_eq!(server.bmc.asked().len(), 3, "one try by each way that Ironic has: accounts are locked after a few");
    assert_eq!(server.changes(), NOBODY);
}

#[rstest]
#[case::sessions_only(Faults { refuse_basic: true, ..Faults::default() }, "let in, by a session")]
#[case::basic_only(Faults { refuse_sessions: true, ..Faults::default() }, "let in, by basic authentication")]
#[tokio::test]
async fn who_lets_ironic_in_lets_the_rehearsal_in(#[case] faults: Faults, #[case] says: &str) {
    for profile in ["generic", "ilo"] {
        let server = Server::of(profile);
        server.bmc.set_faults(faults.clone());
        let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
        assert!(host.good, "{host:#?}");
        assert_eq!(cell(&host, Check::Credentials).says, says);
        let asked = server.bmc.asked();
        let sessions = |method: &str| asked.iter().any(|one| one.method == method && one.path.contains("Sessions"));
        assert_eq!(sessions("DELETE"), faults.refuse_basic, "what is opened is ended: {asked:?}");
        assert_eq!(server.changes(), NOBODY);
    }
    let server = Server::of("generic");
    server.bmc.set_faults(Faults { refuse_basic: true, refuse_sessions: true, ..Faults::default() });
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
    let refused = cell(&host, Check::Credentials);
    assert!(refused.says.contains("a session before: ") && refused.says.contains("503"), "{refused:?}");
    assert!(refused.hint.as_ref().is_some_and(|hint| hint.contains("sessions left")), "{refused:?}");
}

/// Links as Ironic follows them: an address that is no system, a system that nobody manages, an enclosure of many.
#[tokio::test]
async fn links_are_judged_as_ironic_follows_them() {
    let server = Server::of("generic");
    let host = rehearse_one(&server.manifest("one", "redfish", "/redfish/v1/Managers/bmc"), &plan()).await;
    assert_eq!(those(&host, CellState::Bad), [Check::Power], "{host:#?}");
    let power = cell(&host, Check::Power);
    assert!(power.says.contains("is a Manager") && power.hint.as_ref().is_some_and(|it| it.contains("/Systems/1")));

    let unmanaged = |links: serde_json::Value| {
        Server::with("generic", move |options| {
            let change = serde_json::json!({ "Links": links });
            options.profile.changes.insert("/redfish/v1/Systems/1".to_owned(), change);
        })
    };
    for none in [serde_json::json!([]), serde_json::Value::Null] {
        let server = unmanaged(serde_json::json!({ "ManagedBy": none }));
        let host = rehearse_one(&server.manifest("one", "redfish-virtualmedia", ""), &plan()).await;
        assert_eq!(those(&host, CellState::Bad), [Check::Media], "{host:#?}");
        assert!(cell(&host, Check::Media).says.contains("`Links/ManagedBy`"), "{host:#?}");
    }
    let server = unmanaged(serde_json::json!({ "ManagedBy": null }));
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
    assert!(host.good, "by network, as the hint says: {host:#?}");
    let manager = serde_json::json!([{ "@odata.id": "/redfish/v1/Managers/bmc" }]);
    let server = unmanaged(serde_json::json!({ "ManagedBy": null, "Managers": manager }));
    assert!(rehearse_one(&server.manifest("one", "redfish-virtualmedia", ""), &plan()).await.good);

    let server = Server::with("generic", |options| {
        let change = serde_json::json!({ "ChassisType": "Enclosure" });
        options.profile.changes.insert("/redfish/v1/Chassis/1".to_owned(), change);
    });
    server.bmc.set_faults(Faults { power: PowerFault::Inverted, ..Faults::default() });
    assert!(rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await.good, "an enclosure is on by itself");
}

/// What answers with no TLS that we have is told for what it is, and each hint is about that.
#[tokio::test]
async fn what_is_no_tls_of_ours_is_told_for_what_it_is() {
    let hello = |suite: u16, version: u16| {
        let (suite, version) = (suite.to_be_bytes(), version.to_be_bytes());
        let body = [&version[..], &[9; 32], &[0], &suite, &[0]].concat();
        let length = u8::try_from(body.len()).expect("short");
        [&[22, 3, 3, 0, length + 4, 2, 0, 0, length][..], &body].concat()
    };
    let table: [(Vec<u8>, CellState, &str, &str); 5] = [
        (hello(0x009c, 0x0303), CellState::Warn, "`RSA_WITH_AES_128_GCM_SHA256`, which Ironic takes", "AES-GCM"),
        (hello(0x002f, 0x0301), CellState::Bad, "TLS 1.0 only", "switch on TLS 1.2"),
        (vec![21, 3, 3, 0, 2, 2, 40], CellState::Bad, "refuses every cipher suite", "certificate"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), CellState::Bad, "no HTTPS", "`+http`"),
        (Vec::new(), CellState::Bad, "closes the connection", "restart the BMC"),
    ];
    for (answer, state, says, hint) in table {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        // A server that wants what only the last hello offers refuses the others.
        let refusal = if answer.is_empty() { Vec::new() } else { vec![21, 3, 3, 0, 2, 2, 40] };
        let mut served = JoinSet::new();
        served.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut bytes = [0; 2048];
                let length = stream.read(&mut bytes).await.expect("a hello");
                // RSA_WITH_AES_128_GCM_SHA256 among its suites.
                let ours = bytes[..length].windows(2).any(|pair| pair == [0x00, 0x9c]);
                let plain = answer.starts_with(b"HTTP");
                let _ = stream.write_all(if ours || plain { &answer } else { &refusal }).await;
            }
        });
        let host = rehearse_one(&manifest("one", &format!("redfish://{address}"), PASSWORD, None), &plan()).await;
        drop(served);
        let reach = cell(&host, Check::Reach);
        assert_eq!(reach.state, state, "{reach:?}");
        assert!(reach.says.contains(says) && reach.hint.as_ref().is_some_and(|it| it.contains(hint)), "{reach:?}");
        assert_eq!(host.good, state == CellState::Warn);
    }
}

#[tokio::test]
async fn a_slow_bmc_is_good_but_to_be_looked_at() {
    let server = Server::of("generic");
    server.bmc.set_faults(Faults { delay_ms: 2100, ..Faults::default() });
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
    assert!(host.good, "{host:#?}");
    assert_eq!(those(&host, CellState::Warn), [Check::Reach], "{host:#?}");
    assert_eq!(server.changes(), NOBODY);
}

#[tokio::test]
async fn a_bmc_that_is_slower_than_the_deadline_says_where_it_came_to() {
    let server = Server::of("generic");
    server.bmc.set_faults(Faults { delay_ms: 1500, ..Faults::default() });
    let plan = Plan { deadline: Duration::from_secs(5), ..plan() };
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan).await;
    assert_eq!(those(&host, CellState::Bad).len(), 1, "{host:#?}");
    let bad = those(&host, CellState::Bad)[0];
    assert!(cell(&host, bad).says.contains("not done within 5 s"), "{host:#?}");
    assert_eq!(cell(&host, Check::Firmware).state, CellState::Skipped, "{host:#?}");
}

#[tokio::test]
async fn a_bmc_that_comes_and_goes_is_asked_again_and_told() {
    let server = Server::of("generic");
    server.bmc.set_faults(Faults { flaps: Some(Flaps { answered: 3, dropped: 1 }), ..Faults::default() });
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
    assert!(host.good, "{host:#?}");
    let reach = cell(&host, Check::Reach);
    assert!(reach.state == CellState::Warn && reach.says.contains("comes and goes"), "{reach:?}");
    assert_eq!(server.changes(), NOBODY);
}

#[tokio::test]
async fn nobody_there_nobody_speaking_and_nobody_trusted_are_three_things() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (silent, stranger) = (Server::of("generic"), Server::of("generic"));
    silent.bmc.set_faults(Faults { silent: true, ..Faults::default() });
    let yaml = manifest("gone", &format!("redfish://{free}"), PASSWORD, None)
        + &silent.manifest("silent", "redfish", "")
        + &manifest("stranger", &format!("redfish://{}", stranger.bmc.address()), PASSWORD, None);
    let plan = Plan { patience: Duration::from_secs(1), ..plan() };
    let (rehearsal, _) = rehearse_all(&yaml, &plan).await;
    assert!(!rehearsal.good);
    for (host, part) in rehearsal.hosts.iter().zip(["no connection", "no answer within", "not trusted"]) {
        assert_eq!(those(host, CellState::Bad), [Check::Reach], "{host:#?}");
        let reach = cell(host, Check::Reach);
        assert!(reach.says.contains(part) && reach.hint.is_some(), "{reach:?}");
        assert_eq!(those(host, CellState::Skipped).len(), 6, "{host:#?}");
    }
    assert!(stranger.bmc.asked().is_empty(), "no password leaves before the certificate is known");
}

#[tokio::test]
async fn a_certificate_counts_for_nothing_where_the_host_says_so() {
    let server = Server::of("generic");
    let yaml = manifest("one", &format!("redfish://{}", server.bmc.address()), PASSWORD, None);
    let yaml = yaml.replace("\"credentialsName\"", "\"disableCertificateVerification\":true,\"credentialsName\"");
    assert!(rehearse_one(&yaml, &plan()).await.good);
}

#[tokio::test]
async fn what_cannot_be_asked_is_told_before_anybody_is() {
    let yaml = manifest("old", "irmc://192.0.2.1", PASSWORD, None);
    let host = rehearse_one(&yaml, &plan()).await;
    assert_eq!(those(&host, CellState::Bad), [Check::Reach], "{host:#?}");
    let server = Server::of("generic");
    let yaml = server.manifest("one", "redfish", "").replace("one-bmc", "its-bmc").replacen("its-bmc", "other", 1);
    let host = rehearse_one(&yaml.replace("disable", ""), &plan()).await;
    assert!(cell(&host, Check::Credentials).says.contains("no Secret `its-bmc`"), "{host:#?}");
}

/// The controller would take the first of them, and refuse the second.
#[tokio::test]
async fn two_hosts_with_one_bmc_are_not_both_good() {
    let server = Server::of("generic");
    let yaml = server.manifest("one", "redfish", "") + &server.manifest("two", "redfish", "");
    let (rehearsal, _) = rehearse_all(&yaml, &plan()).await;
    assert!(!rehearsal.good && rehearsal.hosts[0].good, "{rehearsal:#?}");
    assert_eq!(those(&rehearsal.hosts[1], CellState::Bad), [Check::Reach], "{rehearsal:#?}");
    assert!(cell(&rehearsal.hosts[1], Check::Reach).says.contains("`metal/one`"), "{rehearsal:#?}");
}

#[tokio::test]
async fn all_are_asked_at_once_and_one_that_hangs_holds_up_nobody() {
    let servers: Vec<Server> = (0..6).map(|_| Server::of("generic")).collect();
    servers[0].bmc.set_faults(Faults { silent: true, ..Faults::default() });
    servers[1..].iter().for_each(|server| server.bmc.set_faults(Faults { delay_ms: 300, ..Faults::default() }));
    let numbered = servers.iter().enumerate();
    let yaml: String = numbered.map(|(number, server)| server.manifest(&format!("h{number}"), "redfish", "")).collect();
    let plan = Plan { patience: Duration::from_secs(2), ..plan() };
    let begun = Instant::now();
    let (rehearsal, _) = rehearse_all(&yaml, &plan).await;
    let took = begun.elapsed();
    let sum: f64 = rehearsal.hosts.iter().map(|host| host.secs).sum();
    assert!(took.as_secs_f64() < sum / 2.0, "{took:?} for {sum} s");
    let names: Vec<_> = rehearsal.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["h0", "h1", "h2", "h3", "h4", "h5"], "in the order given");
    assert_eq!(rehearsal.hosts.iter().filter(|host| host.good).count(), 5);
}
