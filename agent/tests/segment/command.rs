//! The commands as a user calls them.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use foothold_agent::bmc::manifests;
use foothold_agent::host::{RunError, Runner, System};
use nix::sys::signal::Signal;

use super::site::{AGENT, OURS, Site};
use super::{PATIENCE, STRANGER};

/// A machine may ask a few times.
const A_FEW: Duration = Duration::from_secs(6);

fn agent(arguments: &[&str]) -> Result<String, RunError> {
    let argv: Vec<&str> = [AGENT].into_iter().chain(arguments.iter().copied()).collect();
    System::new().run(&argv, b"", Duration::from_secs(60)).map(|output| output.text())
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/import/icn/fixtures").join(name).display().to_string()
}

#[test]
fn hosts_prints_what_kubectl_and_the_rehearsal_take_or_nothing() {
    let good = agent(&["hosts", &fixture("nodes.json"), &fixture("user_config.sh")]).expect("good files");
    let hosts = manifests::read(&good).expect("hosts");
    assert_eq!(hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["node1", "node2"]);
    assert!(good.contains("http://172.22.0.1:6180/images/debian-node.qcow2"), "{good}");
    let RunError::Failed { code, stderr, .. } = agent(&["hosts", &fixture("user_config.sh")]).expect_err("no host")
    else {
        panic!("it ends by itself");
    };
    assert_eq!(code, Some(1));
    assert!(stderr.contains("user_config.sh: found no host, expected `nodes`"), "{stderr}");
}

#[test]
fn dhcp_reads_changed_hosts_and_takes_dnsmasq_with_it_however_it_ends() {
    let site = Site::new();
    let dir = tempfile::tempdir().expect("a folder");
    let hosts = dir.path().join("hosts.yaml");
    fs_err::write(&hosts, "").expect("written");
    let mut command = site.start_command("known", &hosts);
    assert_eq!(site.client.all(STRANGER, A_FEW), [], "not known yet");
    let host = format!(
        "apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {{ name: node9 }}\nspec: {{ online: true, \
         bootMACAddress: '{STRANGER}' }}\n"
    );
    fs_err::write(&hosts, host).expect("written");
    site.client.ask(STRANGER, PATIENCE, |answer| answer.server == OURS).expect("known now");
    assert_eq!(command.end(Signal::SIGTERM).code(), Some(0));
    assert_eq!(site.client.all(STRANGER, A_FEW), [], "nobody is left");

    let mut command = site.start_command("known", &hosts);
    site.client.ask(STRANGER, PATIENCE, |answer| answer.server == OURS).expect("known still");
    assert_eq!(command.end(Signal::SIGKILL).signal(), Some(9));
    assert_eq!(site.client.all(STRANGER, A_FEW), [], "nobody is left");
}
