//! What kubeadm expects of a system: kernel modules, settings, a name server. Written as files, so that it holds after a restart.

use std::net::IpAddr;

use super::{SHORT, Server};

const MODULES: &str = "/etc/modules-load.d/kubernetes.conf";
const SETTINGS: &str = "/etc/sysctl.d/60-kubernetes.conf";
/// Modules that kubeadm's documents ask for, and flannel's VXLAN.
const WANTED: [&str; 3] = ["br_netfilter", "overlay", "vxlan"];
const VALUES: &str = "\
net.ipv4.ip_forward = 1
net.ipv6.conf.all.forwarding = 1
net.bridge.bridge-nf-call-iptables = 1
net.bridge.bridge-nf-call-ip6tables = 1
fs.inotify.max_user_instances = 8192
fs.inotify.max_user_watches = 524288
";

/// What systemd-resolved uses where no network names a server.
pub const RESOLVED_DROP_IN: &str = "/etc/systemd/resolved.conf.d/50-kubernetes.conf";
/// Its list of servers for programs that ask them directly. kubeadm points the kubelet to this file.
const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
/// The file that the kubelet reads if systemd-resolved does not run.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Sets all of it, now and for every boot. `own`: the server's address.
pub fn set_up(server: &Server, own: IpAddr) -> anyhow::Result<bool> {
    let changed = server.write(MODULES, &(WANTED.join("\n") + "\n"), 0o644)?;
    for module in WANTED {
        server.call(&["modprobe", module], SHORT)?;
    }
    let changed = server.write(SETTINGS, VALUES, 0o644)? || changed;
    server.call(&["sysctl", "--quiet", "--load", SETTINGS], SHORT)?;
    Ok(name_server(server, own)? || changed)
}

/// Makes sure that the node's `resolv.conf` names a server: without one, as on a site without a name server, `CoreDNS` does
/// not start. Then the node's own address is named. Nobody answers there, so that questions for outside names fail at once.
/// A server that the network names later replaces it.
fn name_server(server: &Server, own: IpAddr) -> anyhow::Result<bool> {
    if server.has(RESOLVED) {
        let unread = server.may_lag("systemd-resolved")?;
        let changed = server.write(RESOLVED_DROP_IN, &format!("[Resolve]\nFallbackDNS={own}\n"), 0o644)? || unread;
        if changed {
            server.call(&["systemctl", "reload-or-restart", "systemd-resolved.service"], SHORT)?;
        }
        server.has_read("systemd-resolved")?;
        return Ok(changed);
    }
    let path = server.path(RESOLV_CONF);
    let text = if path.exists() { fs_err::read_to_string(path)? } else { String::new() };
    if text.lines().any(|line| line.split_whitespace().next() == Some("nameserver")) {
        return Ok(false);
    }
    server.write(RESOLV_CONF, &format!("{text}nameserver {own}\n"), 0o644)
}
