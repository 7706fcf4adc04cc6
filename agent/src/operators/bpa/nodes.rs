//! Nodes of a cluster, by the kubectl of a master.

use serde_json::Value;

use crate::ssh::{Session, SshError};

/// Annotation of a node that was drained for work on it, with the word for the work: behind it the node takes pods again.
pub const DRAINED: &str = "foothold.dev/drained";

/// Whether a node was drained for this work.
pub fn is_drained_for(node: &Value, work: &str) -> bool {
    node["metadata"]["annotations"][DRAINED] == work
}

/// Runs kubectl on a master as the cluster's administrator. Returns what it prints.
pub async fn kubectl(master: &Session, words: &[&str]) -> Result<Vec<u8>, SshError> {
    let kubectl = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"];
    Ok(master.output(&[&kubectl[..], words].concat(), b"").await?.stdout)
}

/// Notes on a node that it is drained for this work.
pub async fn mark(master: &Session, node: &str, work: &str) -> Result<(), SshError> {
    kubectl(master, &["annotate", "node", node, &format!("{DRAINED}={work}"), "--overwrite"]).await.map(drop)
}

/// Drains a node: its pods go to other nodes as `PodDisruptionBudget`s allow it.
pub async fn drain(master: &Session, node: &str) -> Result<(), SshError> {
    let words = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=600s"];
    kubectl(master, &words).await.map(drop)
}

/// Waits until a node is Ready.
pub async fn until_ready(master: &Session, node: &str) -> Result<(), SshError> {
    kubectl(master, &["wait", "--for=condition=Ready", &format!("node/{node}"), "--timeout=300s"]).await.map(drop)
}

/// Lets a node that was drained have pods again.
pub async fn take_pods_again(master: &Session, node: &str) -> Result<(), SshError> {
    kubectl(master, &["uncordon", node]).await?;
    kubectl(master, &["annotate", "node", node, &format!("{DRAINED}-")]).await.map(drop)
}
