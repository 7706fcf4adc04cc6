//! Kubernetes' own conformance tests on the box, or on a cluster that is named from outside. On a cluster of servers:
//! `site conforms`.

use std::path::{Path, PathBuf};

use foothold::cli::Network;
use foothold_tests::conformance::{self, Programs};
use foothold_tests::{Appliance, How};

/// The cluster, instead of a box.
const KUBECONFIG: &str = "FOOTHOLD_CONFORMANCE_KUBECONFIG";
const HOUR: u32 = 3600;

#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test conformance -- --ignored --nocapture`"]
fn kubernetes_says_that_it_is_kubernetes() {
    let dir = tempfile::tempdir().expect("a folder");
    let programs = conformance::programs();
    if let Ok(other) = std::env::var(KUBECONFIG) {
        conformance::run(&programs, Path::new(&other), dir.path(), HOUR);
        return;
    }
    let appliance = Appliance::of(&definition(dir.path(), &programs));
    let mut machine = appliance.boot(How { network: Network::User, ..How::default() });
    machine.until_ready();
    let kubeconfig = dir.path().join("kubeconfig");
    fs_err::write(&kubeconfig, machine.client().kubeconfig_file().to_string()).expect("written");
    conformance::run(&programs, &kubeconfig, dir.path(), HOUR);
}

/// A definition that carries the images, in a folder.
fn definition(dir: &Path, programs: &Programs) -> PathBuf {
    let images = conformance::images(dir, programs);
    let text = format!(
        "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: conformance, version: 1.0.0 }}\n\
         kubernetes: {{ version: v1.36.4, from: modules }}\noutputs: [{{ format: qcow2 }}]\ncontent:\n  images:\n{images}"
    );
    let path = dir.join("appliance.yaml");
    fs_err::write(&path, text).expect("written");
    path
}
