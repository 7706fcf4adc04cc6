//! Real `HAProxy` and OpenSSH, out of the images that the builder makes, with what the controller of tenant clusters has them
//! run.

use agent_api::release::Sip;
use foothold::config::{Clusters, Provisioning, Services};
use foothold_tests::fixture::kept_by_agent;
use foothold_tests::service_image::ServiceImage;

fn services() -> Services {
    Services {
        provisioning: Some(Provisioning::default()),
        clusters: Some(Clusters::default()),
        sip: Some(Sip::default()),
        ..Services::default()
    }
}

/// What the controller's templates render.
fn rendered(name: &str) -> String {
    kept_by_agent("operators/sip/cluster/infra", &format!("tests__{name}"))
}

/// SIP-7, with the version that pods run.
#[test]
fn real_haproxy_takes_what_the_templates_render_and_refuses_what_is_wrong() {
    let image = ServiceImage::of_packages(&services(), "haproxy").expect("an image");
    for name in ["control_plane", "worker"] {
        image.check_haproxy(&rendered(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let error = image.check_haproxy(&format!("{}  nonsense\n", rendered("worker"))).expect_err("refused");
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
    image.run(&["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/host_key"]).expect("a key");
    let config = rendered("sshd_config").replace("/etc/opt/sip/ssh_host_ed25519_key", "/etc/host_key");
    fs_err::write(at("etc/sshd_config"), &config).expect("written");
    // Only root, who checks here, needs the folder; `sh` is what `host` on the jump host runs in.
    let check = || image.run(&["/usr/bin/sh", "-c", "mkdir /run/sshd && exec /usr/sbin/sshd -t -f /etc/sshd_config"]);
    check().expect("a configuration");
    fs_err::write(at("etc/sshd_config"), config + "Nonsense yes\n").expect("written");
    let error = check().expect_err("refused");
    assert!(error.contains("Nonsense"), "{error}");
}
