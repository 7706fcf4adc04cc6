//! Takes a server out of a cluster: `kubeadm reset`, and what that leaves on purpose.

use std::time::Duration;

use super::plan::{ResetPlan, SERVICES_DROP_IN, SERVICES_INTERFACE};
use super::run::CLUSTER;
use super::system::RESOLVED_DROP_IN;
use super::{LEDGER, SHORT, Server, kubernetes};
use crate::cluster::local_path;
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
    for path in LEFT {
        let path = server.path(path);
        if path.exists() {
            fs_err::remove_dir_all(path)?;
        }
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
pub fn forget(server: &Server) -> anyhow::Result<()> {
    let ledger = server.path(super::LEDGER);
    if ledger.exists() {
        fs_err::remove_file(ledger)?;
    }
    Ok(())
}
