//! What kubeadm expects of a system: kernel modules, settings, no swap. Written as files, so that it holds after a restart.

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

/// Sets all of it, now and for every boot.
pub fn set_up(server: &Server) -> anyhow::Result<bool> {
    let changed = server.write(MODULES, &(WANTED.join("\n") + "\n"), 0o644)?;
    for module in WANTED {
        server.call(&["modprobe", module], SHORT)?;
    }
    let changed = server.write(SETTINGS, VALUES, 0o644)? || changed;
    server.call(&["sysctl", "--quiet", "--load", SETTINGS], SHORT)?;
    Ok(changed)
}
