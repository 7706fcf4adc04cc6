//! Looks after a cluster that runs: the status tells which nodes do not run, and when they run again; certificates that end
//! soon are renewed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use agent_api::clusters::provisioning::{Cni, NodePhase, NodeRole, NodeStatus, Provisioning};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::ListParams;
use kube::config::Kubeconfig;

use super::act::kubeconfig_name;
use super::controller::Controller;
use super::ready::missing;
use super::tell::{Told, What};
use crate::cluster::follow::client_of;
use crate::cluster::pki;
use crate::host::clock;
use crate::http::client;
use crate::node::renewal::is_due;
use crate::operators::kit::{Object as _, ObjectError};

/// A cluster that takes longer than this to answer counts as one that does not answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Key of the kubeconfig in its Secret, as Cluster API has it.
const KEY: &str = "value";
/// Where the API server of a master is.
const API_PORT: u16 = 6443;

/// What is to be done for a cluster that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The Secret with its kubeconfig is gone; the work makes it again.
    Kubeconfig,
    /// A certificate ends soon: that of the kubeconfig, or one by which a master is known. kubeadm makes all of a master at
    /// one time, and masters may be years apart.
    Renewal,
}

/// The result of a look at a cluster.
pub(super) struct Look {
    /// Its nodes as it says they are, or why it says nothing.
    pub nodes: Result<Vec<NodeStatus>, String>,
    pub due: Option<Due>,
}

impl Controller {
    /// Looks at a cluster that is as its spec asks for, and writes the status unless there is something to do.
    pub(super) async fn watch(&self, object: &Provisioning) -> Result<Option<Due>, ObjectError> {
        let look = self.look(object).await?;
        if look.due.is_none() {
            let told = look.nodes.map_or_else(|why| Told::new(What::Degraded, why), whole);
            self.tell(object, told).await?;
        }
        Ok(look.due)
    }

    /// Asks the cluster for its nodes.
    pub(super) async fn look(&self, object: &Provisioning) -> Result<Look, ObjectError> {
        let (namespace, _) = object.key();
        let Some(secret) = self.common.base.objects.secret(&namespace, &kubeconfig_name(object)).await? else {
            let nodes = Err("nothing is known of its nodes without its kubeconfig".to_owned());
            return Ok(Look { nodes, due: Some(Due::Kubeconfig) });
        };
        let kubeconfig = kubeconfig_of(&secret);
        // Who installed the cluster makes its certificates anew.
        let by_box = object.spec.installer.is_none();
        let now = clock::now_secs();
        let of_kubeconfig = kubeconfig.as_ref().is_ok_and(|kubeconfig| ends_soon(kubeconfig, now));
        let asked = tokio::time::timeout(ANSWER, nodes_of(kubeconfig));
        let (asked, of_masters) = futures_util::join!(asked, served_until(object));
        let ends = by_box && (of_kubeconfig || of_masters.iter().any(|end| is_due(*end, now)));
        let answer = asked.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {} s", ANSWER.as_secs())));
        let before = object.status.as_ref().map(|status| status.nodes.clone()).unwrap_or_default();
        let cni = object.spec.kubernetes.as_ref().and_then(|kubernetes| kubernetes.cni).unwrap_or_default();
        let nodes = answer
            .map(|found| seen(before, &found, cni != Cni::None))
            .map_err(|error| format!("the API of the cluster does not answer: {error:#}"));
        Ok(Look { nodes, due: ends.then_some(Due::Renewal) })
    }
}

fn kubeconfig_of(secret: &Secret) -> anyhow::Result<Kubeconfig> {
    let text = secret.data.as_ref().and_then(|data| data.get(KEY)).map(|value| value.0.as_slice()).unwrap_or_default();
    Ok(Kubeconfig::from_yaml(&String::from_utf8_lossy(text))?)
}

/// Whether the client's certificate in a kubeconfig ends soon, or has ended. One without a certificate never does.
fn ends_soon(kubeconfig: &Kubeconfig, now: u64) -> bool {
    let certificate = kubeconfig.auth_infos.iter().find_map(|user| {
        let text = user.auth_info.as_ref()?.client_certificate_data.as_ref()?;
        pki::inspect(&String::from_utf8(STANDARD.decode(text).ok()?).ok()?)
    });
    certificate.is_some_and(|certificate| is_due(certificate.not_after, now))
}

/// When the certificates end with which the API servers of the masters answer, in seconds since 1970. Masters that do not
/// answer are left out: what is wrong with them is told elsewhere.
async fn served_until(object: &Provisioning) -> Vec<u64> {
    let nodes = object.status.iter().flat_map(|status| &status.nodes);
    let masters = nodes.filter(|node| node.phase == NodePhase::Installed && node.roles.contains(&NodeRole::Master));
    let addresses = masters.filter_map(|node| node.ip.parse::<IpAddr>().ok());
    let asked = addresses.map(|address| client::served_certificate(SocketAddr::new(address, API_PORT), ANSWER));
    let answers = futures_util::future::join_all(asked).await;
    answers.iter().flatten().filter_map(|der| pki::inspect_der(der)).map(|found| found.not_after).collect()
}

async fn nodes_of(kubeconfig: anyhow::Result<Kubeconfig>) -> anyhow::Result<Vec<Node>> {
    let client = client_of(kubeconfig?).await?;
    Ok(Api::<Node>::all(client).list(&ListParams::default()).await?.items)
}

/// Each node that was installed with what the cluster says of it now.
fn seen(mut nodes: Vec<NodeStatus>, found: &[Node], network: bool) -> Vec<NodeStatus> {
    for node in nodes.iter_mut().filter(|node| node.phase == NodePhase::Installed) {
        node.error = missing([node.name.as_str()], found, network);
    }
    nodes
}

/// A cluster that was made, with nodes that run or say why not.
pub(super) fn whole(nodes: Vec<NodeStatus>) -> Told {
    let failing: Vec<&str> = nodes.iter().filter_map(|node| node.error.as_deref()).collect();
    let what = if failing.is_empty() { What::Ready } else { What::Degraded };
    Told { why: failing.join("\n"), nodes: Some(nodes), ..Told::new(what, "") }
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeStatus;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::super::tell::What;
    use base64::Engine as _;

    use super::{Kubeconfig, STANDARD, ends_soon, seen, whole};

    #[test]
    fn certificates_are_renewed_two_months_before_their_end() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2027, 6, 1);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let user = json!({"client-certificate-data": STANDARD.encode(pem)});
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "admin", "user": user}]});
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).expect("a kubeconfig");
        let seconds = |day: &str| {
            let time: jiff::Timestamp = day.parse().expect("a time");
            u64::try_from(time.as_second()).expect("after 1970")
        };
        let ends = |day: &str| ends_soon(&kubeconfig, seconds(day));
        assert!(!ends("2027-03-01T00:00:00Z"));
        assert!(ends("2027-04-10T00:00:00Z") && ends("2027-07-01T00:00:00Z"));
        assert!(!ends_soon(&Kubeconfig::default(), seconds("2027-07-01T00:00:00Z")));
    }

    #[test]
    fn a_node_that_stops_is_told_until_it_runs_again() {
        let node = |name| json!({"name": name, "roles": ["worker"], "host": "metal3/h", "macAddress": "", "ip": "", "phase": "Installed"});
        let status: Vec<NodeStatus> = serde_json::from_value(json!([node("m"), node("w")])).expect("a status");
        let found = |ready: &str| -> Vec<Node> {
            let node = |name: &str, status: &str| {
                json!({"metadata": {"name": name}, "status": {"conditions": [
                    {"type": "Ready", "status": status, "message": "Kubelet stopped posting node status."}]}})
            };
            serde_json::from_value(json!([node("m", "True"), node("w", ready)])).expect("nodes")
        };
        let stopped = whole(seen(status.clone(), &found("Unknown"), true));
        assert_eq!((stopped.what, &*stopped.why), (What::Degraded, "node w: Kubelet stopped posting node status."));
        let nodes = stopped.nodes.expect("nodes");
        assert_eq!((&nodes[0].error, nodes[1].error.as_deref()), (&None, Some(&*stopped.why)));
        let back = whole(seen(nodes, &found("True"), true));
        assert_eq!((back.what, &*back.why), (What::Ready, ""));
        assert!(back.nodes.expect("nodes").iter().all(|node| node.error.is_none()));
        let lost = whole(seen(status, &found("True")[..1], true));
        assert_eq!((lost.what, &*lost.why), (What::Degraded, "node w: the cluster does not know it"));
    }
}
