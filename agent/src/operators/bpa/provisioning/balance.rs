//! The virtual address of a control plane: `HAProxy` and keepalived as static pods on every master, as kubeadm's document on
//! high availability lays them out. Pure.
//!
//! ```text
//! VIP:8443 ─► the master that has the address (keepalived, VRRP) ─► HAProxy ─► 6443 of a master whose /readyz is good
//! ```

use std::fmt::Write as _;
use std::net::IpAddr;

use agent_api::clusters::provisioning::NodeRole;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::decide::Chosen;
use super::wishes::Wanted;
use crate::node::plan::{INTERFACE, KEEPALIVED_CONF, NodeFile, PREFIX};

/// Where the API answers at the virtual address.
pub const PORT: u16 = 8443;
/// Images, of which the box has the versions that its release names.
const HAPROXY: &str = "foothold.dev/haproxy:3.0.11";
const KEEPALIVED: &str = "foothold.dev/keepalived:2.3.3";
const HAPROXY_CFG: &str = "/etc/haproxy/haproxy.cfg";
/// How `HAProxy` looks after an API server: seldom, because each look costs all of them a handshake; more often as soon as a
/// request meets one that does not answer.
const CHECKED: &str =
    "inter 10s fastinter 2s downinter 5s fall 3 rise 1 observe layer4 error-limit 1 on-error fastinter";
/// Priority of the first master; each other one has one less.
const PRIORITY: usize = 150;
/// What the priority loses while the check fails: more than there can be masters.
const WEIGHT: usize = 50;

/// The files of a master; none where the cluster has no virtual address.
pub fn files(wanted: &Wanted, all: &[Chosen], own: &Chosen) -> Vec<NodeFile> {
    let Some(address) = wanted.virtual_ip else { return Vec::new() };
    if !own.roles.contains(&NodeRole::Master) {
        return Vec::new();
    }
    let masters: Vec<&Chosen> = all.iter().filter(|node| node.roles.contains(&NodeRole::Master)).collect();
    let (haproxy, keepalived) = (haproxy(address, &masters), keepalived(address, &masters, own));
    let pods = [
        ("haproxy", pod("haproxy", HAPROXY, &["-W", "-db", "-f", HAPROXY_CFG], HAPROXY_CFG, &haproxy, &[])),
        (
            "keepalived",
            pod(
                "keepalived",
                KEEPALIVED,
                &["--dont-fork", "--log-console", "--use-file", KEEPALIVED_CONF],
                KEEPALIVED_CONF,
                &keepalived,
                // `SETGID`: keepalived gives up its groups before it runs the check. A check that it cannot run because of
                // that counts as good.
                &["NET_ADMIN", "NET_BROADCAST", "NET_RAW", "SETGID"],
            ),
        ),
    ];
    let file = |path: String, text: String| NodeFile { path, text };
    let mut files = vec![file(HAPROXY_CFG.to_owned(), haproxy), file(KEEPALIVED_CONF.to_owned(), keepalived)];
    files.extend(pods.map(|(name, pod)| file(format!("/etc/kubernetes/manifests/{name}.yaml"), format!("{pod:#}\n"))));
    files
}

fn haproxy(address: IpAddr, masters: &[&Chosen]) -> String {
    // A server that was booted with `ipv6.disable=1` has no socket of IPv6.
    let bind = if address.is_ipv4() { format!("*:{PORT}") } else { format!(":::{PORT} v4v6") };
    let mut text = format!(
        "global\n  log stdout format raw local0\n\ndefaults\n  mode tcp\n  log global\n  option tcplog\n  option dontlognull\n  \
         timeout connect 2s\n  timeout client 1h\n  timeout server 1h\n  timeout check 10s\n\nfrontend api\n  bind {bind}\n  \
         default_backend masters\n\nbackend masters\n  balance roundrobin\n  option httpchk GET /readyz\n  \
         http-check expect status 200\n  retries 3\n  option redispatch 1\n"
    );
    for master in masters {
        let at = std::net::SocketAddr::new(master.ip, 6443);
        // The check is of this health alone: who asks the API checks its certificate himself.
        let _ = writeln!(text, "  server {} {at} check check-ssl verify none {CHECKED}", master.name);
    }
    // When no master answers in time, all of them may just be busy: then the own one is as good as any.
    text.push_str("  server own 127.0.0.1:6443 backup\n");
    text
}

/// A master whose check fails has a lower priority than one whose check does not. It keeps the address if no other one is
/// better: a busy master is better than none.
fn keepalived(address: IpAddr, masters: &[&Chosen], own: &Chosen) -> String {
    let place = masters.iter().position(|master| master.name == own.name).unwrap_or_default();
    // One number for each address: two clusters of a network do not hear each other.
    let router = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let others = masters.iter().filter(|master| master.name != own.name);
    let mut peers = others.fold(String::new(), |mut text, master| {
        let _ = writeln!(text, "    {}", master.ip);
        text
    });
    // A master without others has nobody to tell.
    if !peers.is_empty() {
        peers = format!("  unicast_src_ip {}\n  unicast_peer {{\n{peers}  }}\n", own.ip);
    }
    format!(
        "global_defs {{\n  router_id {name}\n  script_user root\n  enable_script_security\n}}\n\n\
         vrrp_script api {{\n  script \"/usr/bin/foothold-agent node answers 127.0.0.1:{PORT}\"\n  interval 10\n  timeout 9\n  \
         fall 2\n  rise 1\n  weight -{WEIGHT}\n}}\n\n\
         vrrp_instance api {{\n  state BACKUP\n  interface {INTERFACE}\n  virtual_router_id {router}\n  priority {priority}\n  \
         advert_int 1\n{peers}  virtual_ipaddress {{\n    {address}/{PREFIX}\n  }}\n  \
         track_script {{\n    api\n  }}\n}}\n",
        name = own.name,
        router = router.max(1),
        priority = PRIORITY.saturating_sub(place),
    )
}

/// A static pod on the master's own network. It changes with its configuration, so that the kubelet restarts it.
fn pod(name: &str, image: &str, args: &[&str], file: &str, config: &str, capabilities: &[&str]) -> Value {
    let digest = hex::encode(Sha256::digest(config.as_bytes()));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"component": name},
            "annotations": {"foothold.dev/config": digest}},
        "spec": {
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "containers": [{
                "name": name, "image": image, "args": args,
                "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"], "add": capabilities}},
                "volumeMounts": [{"name": "config", "mountPath": file, "readOnly": true}],
            }],
            "volumes": [{"name": "config", "hostPath": {"path": file, "type": "File"}}],
        },
    })
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeRole::{Master, Worker};

    use super::super::decide::tests::chosen;
    use super::super::kubeadm::tests::wanted;
    use super::*;

    #[test]
    fn every_master_and_nobody_else_carries_the_address() {
        let master = |name: &str, ip: u8| chosen(name, ip, &[Master]);
        let all = [master("m-0", 10), master("m-1", 11), master("m-2", 12), chosen("w", 13, &[Worker])];
        let mut wanted = wanted(None);
        assert!(files(&wanted, &all, &all[0]).is_empty());
        wanted.virtual_ip = Some([172, 22, 0, 250].into());
        assert!(files(&wanted, &all, &all[3]).is_empty());
        let of = |own: usize| files(&wanted, &all, &all[own]);
        let second = of(1);
        let text =
            |path: &str| second.iter().find(|file| file.path == path).map(|file| file.text.clone()).expect("a file");
        insta::assert_snapshot!("haproxy_cfg", text(HAPROXY_CFG));
        // `tests/tests/virtual_address.rs` has the real one run these.
        insta::assert_snapshot!("keepalived_conf", text(KEEPALIVED_CONF));
        insta::assert_snapshot!("keepalived_pod", text("/etc/kubernetes/manifests/keepalived.yaml"));
        let of_ipv6 = Wanted { virtual_ip: Some("fd00::250".parse().expect("an address")), ..wanted.clone() };
        let of_ipv6 = files(&of_ipv6, &all, &all[1]);
        assert!(of_ipv6.iter().any(|file| file.path == HAPROXY_CFG && file.text.contains("  bind :::8443 v4v6\n")));
        let lone = files(&wanted, &all[..1], &all[0]);
        assert!(lone.iter().any(|file| file.path == KEEPALIVED_CONF && !file.text.contains("unicast")), "{lone:?}");
        // The first one's peers and priority are others, and so is its pod.
        let first = of(0);
        assert!(first.iter().zip(&second).any(|(one, other)| one.path == KEEPALIVED_CONF && one.text != other.text));
        assert_eq!(first[0], second[0], "HAProxy is the same everywhere");
    }

    /// The recipes say which versions there are.
    #[test]
    fn the_pods_run_the_images_that_the_box_carries() {
        for (name, image) in [("haproxy", HAPROXY), ("keepalived", KEEPALIVED)] {
            let path = format!("{}/../images/{name}/image.yaml", env!("CARGO_MANIFEST_DIR"));
            let recipe = fs_err::read_to_string(path).expect("a recipe");
            assert!(recipe.contains(&format!("reference: {image}\n")), "{name}: {recipe}");
        }
    }
}
