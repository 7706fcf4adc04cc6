//! The Leases by which this node's controller manager and scheduler lead (client-go's `leaderelection`).

use serde_json::{Value, json};

use crate::cluster::Node;
use crate::cluster::api::{Api, ApiError};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
/// Seconds after which the controller manager leads even if nobody hands over.
const KEPT: u32 = 300;

/// Makes ready for both, of which neither may be running. What another node leads is left alone.
///
/// What they led in this node's last life is given back: their successors would wait until it runs out. But the
/// controller manager's is kept for it until [`hand_over`]: from when it leads, it gives the API server ten seconds to
/// become healthy, then it ends; so it may start and wait, but not lead.
///
/// # Errors
/// When the API server does not take it, or somebody else was quicker.
pub async fn take(api: &Api, node: &Node) -> Result<(), ApiError> {
    let now = format!("{:.6}", jiff::Timestamp::now());
    let kept = json!({
        "holderIdentity": stand_in(node), "leaseDurationSeconds": KEPT, "acquireTime": now, "renewTime": now,
    });
    let not_led = json!({"holderIdentity": null});
    let ours = |holder: &str| holder.is_empty() || is_of(holder, node);
    if !change(api, CONTROLLER_MANAGER, ours, &kept).await? {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": CONTROLLER_MANAGER}, "spec": kept,
        });
        api.create(LEASES, &lease).await?;
    }
    change(api, SCHEDULER, |holder| is_of(holder, node), &not_led).await.map(drop)
}

/// Lets the controller manager lead, which looks every four seconds (`packages/kubernetes/kubeadm.yaml`). What somebody leads by now is left alone.
///
/// # Errors
/// When the API server does not take it, or somebody else was quicker.
pub async fn hand_over(api: &Api, node: &Node) -> Result<(), ApiError> {
    let is_kept = |holder: &str| holder == stand_in(node);
    change(api, CONTROLLER_MANAGER, is_kept, &json!({"holderIdentity": null})).await.map(drop)
}

/// Merges into the Lease's `spec`, if its holder is one of `those`. Whether there is such a Lease.
async fn change(api: &Api, name: &str, those: impl Fn(&str) -> bool, spec: &Value) -> Result<bool, ApiError> {
    let path = format!("{LEASES}/{name}");
    let Some(lease) = api.get(&path).await? else { return Ok(false) };
    if those(lease["spec"]["holderIdentity"].as_str().unwrap_or_default()) {
        let version = &lease["metadata"]["resourceVersion"];
        api.merge(&path, &json!({"metadata": {"resourceVersion": version}, "spec": spec})).await?;
    }
    Ok(true)
}

/// Whom the Lease names until [`hand_over`].
fn stand_in(node: &Node) -> String {
    format!("{}_foothold-agent", node.name)
}

/// Whether this node held it: name of the host, `_`, and a UUID of each start.
fn is_of(holder: &str, node: &Node) -> bool {
    holder.rsplit_once('_').is_some_and(|(host, _)| host == node.name)
}
