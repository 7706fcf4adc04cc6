//! containerd, with the box as the mirror of every registry, and the kubelet's unit.

use std::time::Duration;

use super::{SHORT, Server};

/// Longest start of containerd: a slow disk reads its images first.
const START: Duration = Duration::from_secs(300);

/// Files that every node has: path, text, whether one that is there already is left alone.
const FILES: [(&str, &str, bool); 5] = [
    (
        "/etc/containerd/config.toml",
        include_str!("../../../images/os/debian-node/overlay/etc/containerd/config.toml"),
        false,
    ),
    (
        "/etc/systemd/system/containerd.service",
        include_str!("../../../images/os/debian-node/overlay/etc/systemd/system/containerd.service"),
        true,
    ),
    (
        "/etc/systemd/system/containerd.service.d/10-power-cut.conf",
        include_str!(
            "../../../images/os/debian-node/overlay/etc/systemd/system/containerd.service.d/10-power-cut.conf"
        ),
        false,
    ),
    (
        "/etc/systemd/system/kubelet.service",
        include_str!("../../../images/os/debian-node/overlay/etc/systemd/system/kubelet.service"),
        true,
    ),
    (
        "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
        include_str!("../../../images/os/debian-node/overlay/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"),
        false,
    ),
];
/// Name of containerd among programs that may not have read their newest files.
pub const CONTAINERD: &str = "containerd";
const MIRROR: &str = "/etc/containerd/certs.d/_default/hosts.toml";

/// Writes what is missing, and starts containerd. Returns whether anything changed.
pub fn set_up(server: &Server, hosts_toml: &str, renewed: bool) -> anyhow::Result<bool> {
    let mut changed = server.may_lag(CONTAINERD)? || renewed;
    for (path, text, keep) in FILES {
        if !(keep && server.has(path)) {
            changed |= server.write(path, text, 0o644)?;
        }
    }
    // containerd reads it at each pull: no restart for it.
    let mirror = server.write(MIRROR, hosts_toml, 0o644)?;
    server.call(&["systemctl", "daemon-reload"], SHORT)?;
    server.call(&["systemctl", "enable", "--quiet", "containerd.service", "kubelet.service"], SHORT)?;
    let start = if changed { "restart" } else { "start" };
    server.call(&["systemctl", start, "containerd.service"], START)?;
    server.call(&["ctr", "version"], START)?;
    server.has_read(CONTAINERD)?;
    Ok(changed || mirror)
}
