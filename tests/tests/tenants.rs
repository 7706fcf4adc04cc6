//! Real `HAProxy` and OpenSSH, out of the images that the builder makes, with what the controller of tenant clusters has them
//! run.

use std::path::Path;

use agent_api::release::{Clusters, Sip};
use foothold::config::{Provisioning, Services};
use foothold::rootfs::trim;
use foothold_tests::service_image::ServiceImage;

/// What the controller's templates render, as its own tests keep it.
const RENDERED: &str = "../agent/src/operators/sip/cluster/infra/snapshots";

fn services() -> Services {
    Services {
        provisioning: Some(Provisioning::default()),
        clusters: Some(Clusters::default()),
        sip: Some(Sip::default()),
        ..Services::default()
    }
}

/// Runs a program in an image; what it says where it fails.
fn run(image: &ServiceImage, argv: &[&str]) -> Result<(), String> {
    let argv: Vec<String> = argv.iter().map(|argument| (*argument).to_owned()).collect();
    let empty = tempfile::tempdir().expect("a folder");
    trim::run(image.tree.path(), &image.helper, &argv, empty.path(), 1).map_err(|error| format!("{error:#}"))
}

fn rendered(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RENDERED);
    let path = path.join(format!("foothold_agent__operators__sip__cluster__infra__tests__{name}.snap"));
    let text = fs_err::read_to_string(path).expect("a snapshot");
    text.splitn(3, "---\n").nth(2).expect("what was rendered").to_owned()
}

/// SIP-7, with the version that pods run.
#[test]
fn real_haproxy_takes_what_the_templates_render_and_refuses_what_is_wrong() {
    let image = ServiceImage::of_packages(&services(), "haproxy").expect("an image");
    let file = image.tree.path().join("etc/haproxy.cfg");
    let check = |config: String| {
        fs_err::write(&file, config).expect("written");
        run(&image, &["/usr/sbin/haproxy", "-c", "-f", "/etc/haproxy.cfg"])
    };
    for name in ["control_plane", "worker"] {
        check(rendered(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let error = check(format!("{}  nonsense\n", rendered("worker"))).expect_err("refused");
    assert!(error.contains("nonsense"), "{error}");
}

/// SIP-9: its libraries are there, and its options are those of that version.
#[test]
fn real_openssh_takes_the_configuration_of_a_jump_host() {
    let image = ServiceImage::of_packages(&services(), "jumphost").expect("an image");
    let at = |path: &str| image.tree.path().join(path);
    for program in ["usr/bin/bash", "usr/bin/sh", "usr/bin/ssh", "usr/sbin/sshd"] {
        assert!(at(program).symlink_metadata().is_ok(), "{program}");
    }
    let passwd = fs_err::read_to_string(at("etc/passwd")).expect("a file");
    assert!(passwd.contains("ubuntu:x:1000:1000::/home/ubuntu:/bin/bash"), "{passwd}");
    run(&image, &["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/host_key"]).expect("a key");
    let config = rendered("sshd_config").replace("/etc/opt/sip/ssh_host_ed25519_key", "/etc/host_key");
    fs_err::write(at("etc/sshd_config"), &config).expect("written");
    // Only root, who checks here, needs the folder; `sh` is what `host` on the jump host runs in.
    let check = || run(&image, &["/usr/bin/sh", "-c", "mkdir /run/sshd && exec /usr/sbin/sshd -t -f /etc/sshd_config"]);
    check().expect("a configuration");
    fs_err::write(at("etc/sshd_config"), config + "Nonsense yes\n").expect("written");
    let error = check().expect_err("refused");
    assert!(error.contains("Nonsense"), "{error}");
}
