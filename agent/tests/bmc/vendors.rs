//! Every vendor's BMC, asked by every way to boot.

use agent_api::rehearsal::{CellState, Check};
use foothold_agent::bmc::rehearsal::export;
use foothold_qemu::bmc::Profile;
use jiff::SignedDuration;
use rstest::rstest;

use super::site::{Server, cell, plan, rehearse_all, rehearse_one, those};

#[rstest]
#[case::generic("generic", "redfish", "", &[])]
#[case::generic_media("generic", "redfish-virtualmedia", "/redfish/v1/Systems/1", &[])]
#[case::generic_http("generic", "redfish-uefihttp+https", "/redfish/v1/", &[])]
#[case::dell("idrac", "idrac-redfish", "/redfish/v1/Systems/System.Embedded.1", &[])]
#[case::dell_media("idrac", "idrac-virtualmedia", "/redfish/v1/Systems/System.Embedded.1", &[])]
#[case::hpe("ilo", "ilo5-redfish", "/redfish/v1/Systems/1", &[])]
#[case::hpe_media("ilo", "ilo5-virtualmedia", "/redfish/v1/Systems/1/", &[])]
// It does not list what the override takes; its clock is told by its HTTP server only.
#[case::supermicro("supermicro", "redfish-virtualmedia", "", &[Check::Boot])]
#[tokio::test]
async fn a_sound_bmc_is_good_and_nothing_of_it_is_changed(
    #[case] profile: &str,
    #[case] scheme: &str,
    #[case] path: &str,
    #[case] looks: &[Check],
) {
    let server = Server::of(profile);
    let host = rehearse_one(&server.manifest("one", scheme, path), &plan()).await;
    assert!(host.good, "{host:#?}");
    assert_eq!(those(&host, CellState::Warn), looks, "{host:#?}");
    assert_eq!(those(&host, CellState::Skipped), [], "{host:#?}");
    assert_eq!(cell(&host, Check::Power).says, "on");
    let wanted = &Profile::known(profile).expect("a profile").root["Vendor"];
    assert_eq!(host.vendor.as_deref(), wanted.as_str());
    assert_eq!(server.changes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_a_way_to_boot_needs_must_be_there() {
    let server = Server::of("idrac");
    let host = rehearse_one(&server.manifest("one", "redfish-uefihttp", ""), &plan()).await;
    assert_eq!(those(&host, CellState::Bad), [Check::Boot], "no `UefiHttp`: {host:#?}");
    let host = rehearse_one(&server.manifest("one", "redfish", "/redfish/v1/Systems/2"), &plan()).await;
    let power = cell(&host, Check::Power);
    assert!(power.says.contains("no system at `/redfish/v1/Systems/2`"), "{power:?}");
    assert!(power.hint.as_ref().is_some_and(|hint| hint.contains("System.Embedded.1")), "{power:?}");
}

/// Until version 6 of its firmware, Ironic refuses an iDRAC's virtual media by any other name than its own.
#[tokio::test]
async fn an_old_idrac_is_told_the_scheme_of_its_virtual_media() {
    let server = Server::of("idrac");
    let host = rehearse_one(&server.manifest("one", "redfish-virtualmedia", ""), &plan()).await;
    assert!(host.good, "{host:#?}");
    let server = Server::with("idrac", |options| {
        options.profile.manager.insert("FirmwareVersion".to_owned(), "5.10.50.00".into());
    });
    let host = rehearse_one(&server.manifest("one", "redfish-virtualmedia", ""), &plan()).await;
    assert_eq!(those(&host, CellState::Bad), [Check::Media], "{host:#?}");
    let hint = cell(&host, Check::Media).hint.as_deref().unwrap_or_default();
    assert!(hint.contains("`idrac-virtualmedia`"), "{hint}");
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_told_with_its_skew() {
    let server = Server::with("idrac", |options| options.skew = SignedDuration::from_hours(-2));
    let host = rehearse_one(&server.manifest("one", "redfish", ""), &plan()).await;
    let clock = cell(&host, Check::Clock);
    assert_eq!(clock.state, CellState::Bad);
    let secs: i64 = clock.says.split(' ').next().and_then(|word| word.parse().ok()).expect("seconds");
    assert!((7195..=7205).contains(&secs) && clock.says.contains("behind"), "{clock:?}");
}

#[tokio::test]
async fn only_unknown_vendors_are_exported_and_nothing_secret_is_in_it() {
    let (known, unknown) = (Server::of("idrac"), Server::of("generic"));
    let yaml = known.manifest("known", "redfish", "") + &unknown.manifest("new", "redfish", "");
    let (rehearsal, outcomes) = rehearse_all(&yaml, &plan()).await;
    assert!(rehearsal.good, "{rehearsal:#?}");
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(export(&outcomes, dir.path(), false).expect("written"), 1);
    let text = fs_err::read_to_string(dir.path().join("metal-new.json")).expect("the file");
    for gone in ["SN0001", "8d5a6fd2", super::site::PASSWORD, "52:54:00"] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
    let answers: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let paths: Vec<_> = answers["answers"].as_array().into_iter().flatten().map(|one| &one["path"]).collect();
    assert!(paths.iter().any(|path| *path == "/redfish/v1/Systems/1"), "{paths:?}");
    assert_eq!(export(&outcomes, dir.path(), true).expect("written"), 1);
    let text = fs_err::read_to_string(dir.path().join("metal-new.json")).expect("the file");
    assert!(text.contains("SN0001") && !text.contains(super::site::PASSWORD));
}
