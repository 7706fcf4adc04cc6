//! Takes a server out of a cluster: `kubeadm reset`, and what that leaves on purpose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::plan::{KEEPALIVED_CONF, ResetPlan, SERVICES_DROP_IN, SERVICES_INTERFACE};
use super::run::CLUSTER;
use super::system::RESOLVED_DROP_IN;
use super::{LEDGER, SHORT, Server, address, kubernetes};
use crate::cluster::local_path;
use crate::host::mount;
use crate::steps::Ledger;

/// kubeadm stops every pod.
const LONG: Duration = Duration::from_secs(15 * 60);
/// Where the box puts kubeadm, as the node image has it.
const KUBEADM: &str = "/usr/bin/kubeadm";
/// What kubeadm says that it leaves: networks of pods, kubeconfigs, etcd's data of a member that was cut off.
const LEFT: [&str; 7] = [
    "/etc/cni/net.d",
    "/etc/kubernetes",
    "/var/lib/cni",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/run/flannel",
    // Volumes of its pods.
    local_path::FOLDER,
];
/// Interfaces of pods' networks.
const INTERFACES: [&str; 5] = ["flannel.1", "flannel-v6.1", "cni0", "kube-ipvs0", SERVICES_INTERFACE];
/// nftables' tables of kube-proxy and flannel.
const TABLES: [(&str, &str); 4] =
    [("ip", "kube-proxy"), ("ip6", "kube-proxy"), ("ip", "flannel-ipv4"), ("ip6", "flannel-ipv6")];

/// What is mounted where.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Has the server leave its cluster, and be as it was before it came to one. A node of another cluster than the plan's is left
/// as it is.
pub fn leave(server: &Server, plan: Option<&ResetPlan>) -> anyhow::Result<()> {
    let meant = is_meant(server, plan)?;
    let others = || -> anyhow::Result<bool> {
        Ok(kubernetes::has_traces(server) || Ledger::open(&server.path(LEDGER))?.fact(CLUSTER).is_some())
    };
    if !meant && others()? {
        return Ok(());
    }
    if meant {
        reset(server)?;
    }
    // It became the server's own before the ledger names the cluster, and stays its own until the ledger is gone: DHCP leases
    // it to others when the server is given back.
    address::give_back(server)?;
    forget(server)
}

/// Whether the server is to be reset: it is a node of the plan's cluster, or was about to be one. A node of another cluster
/// is left alone; without a plan whoever asks knows what it is.
pub fn is_meant(server: &Server, plan: Option<&ResetPlan>) -> anyhow::Result<bool> {
    let Some(plan) = plan else { return Ok(true) };
    let named = Ledger::open(&server.path(LEDGER))?.fact(CLUSTER);
    let meant = named.as_deref() == Some(&*plan.cluster);
    if !meant {
        log::info!("it is no node of {}, and is left as it is", plan.cluster);
    }
    Ok(meant)
}

/// Resets the server. What is not there is as it shall be: a server that nothing of Kubernetes came to has no kubeadm.
pub fn reset(server: &Server) -> anyhow::Result<()> {
    if kubernetes::has_traces(server) || server.has(KUBEADM) {
        server
            .call(&["kubeadm", "reset", "--force", "--cri-socket", "unix:///run/containerd/containerd.sock"], LONG)?;
        match server.call(&["systemctl", "stop", "kubelet.service"], SHORT) {
            Err(error) if format!("{error:#}").contains("not loaded") => {}
            stopped => drop(stopped?),
        }
    }
    give_up_shared_address(server)?;
    for path in LEFT {
        remove(server, path)?;
    }
    for drop_in in [SERVICES_DROP_IN, RESOLVED_DROP_IN] {
        let drop_in = server.path(drop_in);
        if drop_in.exists() {
            fs_err::remove_file(drop_in)?;
        }
    }
    // What is not there is as it shall be.
    for name in INTERFACES {
        let _ = server.call(&["ip", "link", "delete", name], SHORT);
    }
    for (family, table) in TABLES {
        let _ = server.call(&["nft", "delete", "table", family, table], SHORT);
    }
    for rules in ["iptables", "ip6tables"] {
        flush(server, rules);
    }
    Ok(())
}

/// Removes a folder, and nothing of what is mounted in it, such as a user's share of a volume: it is unmounted first. A folder
/// that is itself mounted, or is somewhere else by a link, is emptied and stays.
fn remove(server: &Server, folder: &str) -> anyhow::Result<()> {
    let named = server.path(folder);
    if !named.exists() {
        return Ok(());
    }
    let real = fs_err::canonicalize(&named)?;
    let at = Path::new("/").join(real.strip_prefix(&server.root).unwrap_or(&real));
    let mounted = mounted(server)?;
    // What was mounted last lies on top.
    for point in mounted.iter().rev().filter(|point| **point != at && point.starts_with(&at)) {
        let kept = || format!("`{}` is mounted in `{folder}`, of which nothing is removed", point.display());
        server.call(&["umount", &point.to_string_lossy()], SHORT).with_context(kept)?;
    }
    if !named.is_symlink() && !mounted.contains(&at) {
        return Ok(fs_err::remove_dir_all(named)?);
    }
    for entry in fs_err::read_dir(real)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs_err::remove_dir_all(entry.path())?;
        } else {
            fs_err::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Where something is mounted, in the order in which it was.
fn mounted(server: &Server) -> anyhow::Result<Vec<PathBuf>> {
    if !server.has(MOUNTS) {
        return Ok(Vec::new());
    }
    Ok(mount::points(&fs_err::read_to_string(server.path(MOUNTS))?).collect())
}

/// Removes the masters' virtual address from the server: containerd kills what runs in a pod when kubeadm stops the pod, and so
/// keepalived cannot take its address back. Two servers would have it.
fn give_up_shared_address(server: &Server) -> anyhow::Result<()> {
    if !server.has(KEEPALIVED_CONF) {
        return Ok(());
    }
    let text = fs_err::read_to_string(server.path(KEEPALIVED_CONF))?;
    // One that calls this program is ours.
    if !text.contains("foothold-agent") {
        return Ok(());
    }
    let interface = text.lines().find_map(|line| line.trim().strip_prefix("interface "));
    let shared = text.lines().skip_while(|line| !line.contains("virtual_ipaddress {")).nth(1).map(str::trim);
    if let (Some(interface), Some(shared)) = (interface, shared) {
        // Mostly another master has it.
        let _ = server.call(&["ip", "address", "delete", shared, "dev", interface], SHORT);
    }
    Ok(fs_err::remove_file(server.path(KEEPALIVED_CONF))?)
}

/// Removes the chains of Kubernetes, flannel and the CNI plugins, and the rules that lead to them. Other rules stay.
fn flush(server: &Server, rules: &str) {
    let Ok(saved) = server.call(&[&*format!("{rules}-save")], SHORT) else { return };
    let ours =
        |word: &str| ["KUBE-", "CNI-", "FLANNEL-"].iter().any(|start| word.trim_start_matches(':').starts_with(start));
    let kept: Vec<&str> = saved.lines().filter(|line| !line.split_whitespace().any(ours)).collect();
    if kept.len() < saved.lines().count() {
        let text = kept.join("\n") + "\n";
        if let Err(error) = server.runner.run(&[&format!("{rules}-restore")], text.as_bytes(), SHORT) {
            log::warn!("{rules}: {error}");
        }
    }
}

/// Forgets which steps were done.
fn forget(server: &Server) -> anyhow::Result<()> {
    let ledger = server.path(super::LEDGER);
    if ledger.exists() {
        fs_err::remove_file(ledger)?;
    }
    Ok(())
}
