//! Every fault: which cells are bad, what they say, and that nothing was changed.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use agent_api::rehearsal::{CellState, Check};
use foothold_agent::bmc::rehearsal::Plan;
use foothold_qemu::bmc::{Faults, Flaps, PowerFault};
use rstest::rstest;

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
    assert_eq!(server.bmc.asked().len(), 2, "one try each: accounts are locked after a few");
    assert_eq!(server.changes(), NOBODY);
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
