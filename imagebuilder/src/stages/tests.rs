//! How a build ends when a part of it cannot be made.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::builder::{AgentProfile, Builder, workspace};
use crate::config;
use crate::lock::Lock;
use crate::lock::fetch::Network;
use crate::report::Report;
use crate::report::text::Text;
use crate::stages::{Site, all_programs, make, system};
use crate::store::Cache;
use crate::toolbox::Toolbox;

fn offline(cache: &Path, report: Report) -> Builder {
    Builder {
        cache: Cache::open(cache).expect("a cache"),
        workspace: workspace().expect("the sources"),
        helper: "foothold".into(),
        network: Network { offline: true, ..Network::default() },
        agent: AgentProfile::Site,
        report,
    }
}

/// What `fetch` makes, so that a build needs no network.
#[test]
fn all_programs_are_those_that_the_definition_asks_for_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = offline(dir.path(), Report::to_writers(Box::new(io::sink()), Box::new(io::sink())));
    let toolbox = Toolbox::at(Path::new("nowhere"), Path::new("nowhere"));
    fs_err::create_dir(dir.path().join("web")).expect("a folder");
    fs_err::write(dir.path().join("web/Chart.yaml"), "apiVersion: v2\nname: web\nversion: 1.0.0\n").expect("written");
    let made = |more: &str| -> Vec<String> {
        let text =
            format!("apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: edge, version: 1.4.0 }}\n{more}");
        let appliance =
            config::check(&dir.path().join("appliance.yaml"), text).appliance.unwrap_or_else(|| panic!("{more}"));
        let site = Site::new(&at, &appliance, None, (&toolbox, "key"), None).expect("the recipes");
        all_programs(&site).expect("stages").into_iter().map(|stage| stage.name).collect()
    };
    let of_every_box = made("");
    let beside =
        |more: &str| -> Vec<String> { made(more).into_iter().filter(|name| !of_every_box.contains(name)).collect() };
    let provisioning = "provisioning: { interface: { name: ens4 } }";
    assert_eq!(beside("content: { charts: [ { name: web, namespace: web, chart: ./web } ] }\n"), ["helm"]);
    let clusters = ["helm", "flannel", "cri-tools", "runc", "cni-flannel"];
    assert_eq!(beside(&format!("services: {{ {provisioning}, clusters: {{}} }}\n")), clusters);
    let versions = format!("services: {{ {provisioning}, clusters: {{ versions: [ {{ version: v1.35.8 }} ] }} }}\n");
    assert_eq!(beside(&versions), [&clusters[..], &["kubernetes v1.35.8"]].concat());
    let both = format!(
        "content: {{ charts: [ {{ name: web, namespace: web, chart: ./web }} ] }}\nservices: {{ {provisioning}, clusters: {{}} }}\n"
    );
    assert_eq!(beside(&both), clusters);
}

#[test]
fn a_part_that_cannot_be_made_ends_the_others_and_is_the_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let events = Text::default();
    let at = offline(dir.path(), Report::to_writers(Box::new(events.clone()), Box::new(io::sink())));
    let appliance = config::load(&at.workspace.join("images/appliance/appliance.yaml")).expect("a definition");
    // The lock names nothing: neither packages nor modules. Only the agent could be made, which takes minutes.
    let toolbox = Toolbox::at(Path::new("nowhere"), Path::new("nowhere"));
    let started = Instant::now();
    let lock = Lock::new(1);
    let site = Site::new(&at, &appliance, Some(&lock), (&toolbox, "key"), None).expect("the recipes");
    let error = make(&at, &system(&site).expect("stages")).expect_err("it cannot be made");
    assert!(started.elapsed() < Duration::from_secs(60), "it compiled the agent");
    assert!(error.to_string().starts_with("the lock "), "{error:#}");
    let events = events.json();
    let agent = events.iter().rfind(|event| event["step"] == "agent").expect("the agent's last event");
    assert_eq!(agent["state"], "failed");
    assert_eq!(agent["detail"]["cause"], "stopped: another part of the build has failed");
}
