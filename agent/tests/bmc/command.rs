//! `foothold-agent rehearse` as a process, and the same by REST.

use std::process::Output;

use agent_api::rehearsal::{CellState, Check, Rehearsal};
use foothold_qemu::bmc::{Faults, PowerFault};
use tempfile::TempDir;

use super::site::{PASSWORD, Server};

/// Runs to the end. BMCs of this process answer meanwhile: their runtime has threads of its own.
async fn run(dir: &TempDir, yaml: &str, options: &[&str]) -> Output {
    let file = dir.path().join("site.yaml");
    fs_err::write(&file, yaml).expect("written");
    #[expect(clippy::disallowed_methods, reason = "the exit code is what is tested")]
    let mut command = tokio::process::Command::from(std::process::Command::new(env!("CARGO_BIN_EXE_foothold-agent")));
    command.arg("rehearse").arg(file).args(options).kill_on_drop(true).output().await.expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_says_whether_all_are_good_and_stdout_has_the_matrix() {
    let (good, lying) = (Server::of("idrac"), Server::of("generic"));
    let dir = tempfile::tempdir().expect("a folder");
    let one = good.manifest("one", "idrac-virtualmedia", "");
    let told = run(&dir, &one, &["--timeout", "20"]).await;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success() && told.stderr.is_empty(), "{told:?}");
    assert!(text.contains("metal/one") && text.ends_with("all 1 BMCs are good\n"), "{text}");

    lying.bmc.set_faults(Faults { power: PowerFault::Inverted, ..Faults::default() });
    let export = dir.path().join("answers");
    let options = ["--json", "--timeout", "20", "--export", export.to_str().expect("UTF-8")];
    let told = run(&dir, &(one + &lying.manifest("two", "redfish", "")), &options).await;
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let rehearsal: Rehearsal = serde_json::from_slice(&told.stdout).expect("JSON and nothing else");
    assert_eq!(rehearsal.hosts[1].cells[&Check::Power].state, CellState::Bad);
    assert!(rehearsal.hosts[0].good && !rehearsal.good);
    assert!(export.join("metal-two.json").exists(), "{told:?}");
    let all = [told.stdout, told.stderr].concat();
    assert!(!String::from_utf8_lossy(&all).contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_names_no_hosts_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let told = run(&dir, "kind: ConfigMap\n", &[]).await;
    assert_eq!(told.status.code(), Some(1));
    let error = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(error.contains("no BareMetalHost") && told.stdout.is_empty(), "{error}");
}
