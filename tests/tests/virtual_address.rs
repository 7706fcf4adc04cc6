//! Real keepalived and `HAProxy`, out of the images that the builder makes, as the static pods of a cluster's masters run
//! them: the virtual address is with a master that answers.

use std::time::Duration;

use agent_api::release::Clusters;
use foothold::config::{Provisioning, Services};
use foothold_tests::fixture::kept_by_agent;
use foothold_tests::pods::{Pod, wait_for};
use foothold_tests::service_image::ServiceImage;
use serde_json::Value;

const VIRTUAL: &str = "172.22.0.250";
/// Stands for the agent in the image: tells what it was asked, and whether the master answers.
const ASKED: &str = "#!/usr/bin/sh\necho \"$@\" > /run/asked\ntest -e /run/answers\n";
/// Two failures in a row at intervals of five seconds, on a busy host.
const PATIENCE: Duration = Duration::from_secs(90);

/// A pod's manifest or configuration, as the controller of clusters writes it.
fn written(name: &str) -> String {
    kept_by_agent("operators/bpa/provisioning", &format!("balance__tests__{name}"))
}

fn image(name: &str) -> ServiceImage {
    let clusters = Some(Clusters::default());
    let services = Services { provisioning: Some(Provisioning::default()), clusters, ..Services::default() };
    ServiceImage::of_packages(&services, name).expect("an image")
}

/// A master: keepalived in its image.
struct Master {
    image: ServiceImage,
    pod: Pod,
}

impl Master {
    /// That whose configuration this is, of those at `.10` and `.11`.
    fn start(own: &str, config: &str) -> Self {
        let image = image("keepalived");
        let root = image.tree.path();
        let pod: Value = serde_json::from_str(&written("keepalived_pod")).expect("a pod");
        let container = &pod["spec"]["containers"][0];
        let words = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).expect("words") };
        let path = container["volumeMounts"][0]["mountPath"].as_str().expect("a path").trim_start_matches('/');
        fs_err::write(root.join(path), config.replace("{interface}", "eth0").replace("{prefix}", "24"))
            .expect("written");
        fs_err::write(root.join("usr/bin/foothold-agent"), ASKED).expect("written");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs_err::set_permissions(root.join("usr/bin/foothold-agent"), open).expect("a program");
        let capabilities = words(&container["securityContext"]["capabilities"]["add"]);
        let capabilities: Vec<&str> = capabilities.iter().map(String::as_str).collect();
        let told = words(&container["args"]);
        let argv: Vec<&str> = ["/usr/sbin/keepalived"].into_iter().chain(told.iter().map(String::as_str)).collect();
        let log = root.join("keepalived.log");
        let pod = Pod::start(root, &format!("{own}/24"), &capabilities, &argv, &log);
        Self { image, pod }
    }

    fn answers(&self, whether: bool) {
        let flag = self.image.tree.path().join("run/answers");
        let done = if whether { fs_err::write(flag, "") } else { fs_err::remove_file(flag) };
        done.expect("changed");
    }

    fn has_the_address(&self) -> bool {
        self.pod.ip(&["-brief", "address", "show", "dev", "eth0"]).contains(&format!("{VIRTUAL}/24"))
    }

    /// How often it has found that the master does not answer.
    fn failures(&self) -> usize {
        self.said().matches("VRRP_Script(api) failed").count()
    }

    fn said(&self) -> String {
        fs_err::read_to_string(self.image.tree.path().join("keepalived.log")).unwrap_or_default()
    }
}

impl Drop for Master {
    #[expect(clippy::print_stderr, reason = "for who reads why it failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

#[test]
fn the_virtual_address_is_with_a_master_that_answers() {
    let second = written("keepalived_conf");
    let first = second.replace("172.22.0.11", "?").replace("172.22.0.10", "172.22.0.11").replace('?', "172.22.0.10");
    let first = first.replace("router_id m-1", "router_id m-0").replace("priority 149", "priority 150");
    let mut masters = [Master::start("172.22.0.10", &first), Master::start("172.22.0.11", &second)];
    let [first, second] = &masters;
    let with = |holder: &Master, other: Option<&Master>, why: &str| {
        wait_for(why, PATIENCE, || {
            let alone = other.is_none_or(|other| !other.has_the_address());
            (alone && holder.has_the_address()).then_some(())
        });
    };
    first.answers(true);
    second.answers(true);
    first.pod.join(&second.pod);
    with(first, Some(second), "the first master to have the address");
    let asked = fs_err::read_to_string(first.image.tree.path().join("run/asked")).expect("it was asked");
    assert_eq!(asked, "node answers 127.0.0.1:8443\n");
    first.answers(false);
    with(second, Some(first), "the second one to have it, because the first does not answer");
    first.answers(true);
    with(first, Some(second), "the first one to have it again");
    // Nobody is better than a master that is busy.
    let before = [first, second].map(Master::failures);
    first.answers(false);
    second.answers(false);
    wait_for("both to say that they do not answer", PATIENCE, || {
        let now = [first, second].map(Master::failures);
        (now[0] > before[0] && now[1] > before[1]).then_some(())
    });
    with(first, Some(second), "the first one to have it still, or again");
    first.answers(true);
    second.answers(true);
    let said = [first, second].map(Master::said).join("\n");
    assert!(!["Unable", "Couldn't", "Error", "exited due"].iter().any(|word| said.contains(word)), "{said}");
    let [first, second] = &mut masters;
    first.pod.kill();
    with(second, None, "the second one to have it, because the first lost its power");
}

#[test]
fn real_haproxy_takes_what_shares_the_api_among_the_masters() {
    let image = image("haproxy");
    let config = written("haproxy_cfg");
    image.check_haproxy(&config).unwrap_or_else(|error| panic!("{error}"));
    let error = image.check_haproxy(&config.replace("redispatch", "nonsense")).expect_err("refused");
    assert!(error.contains("nonsense"), "{error}");
}
