//! Nodes that are lost: the server's OS was written again, or the server is gone for good. They are removed from the
//! cluster, so that a server can join under the same name.

use agent_api::clusters::provisioning::NodeRole;
use agent_api::net::before_port;
use anyhow::Context as _;
use serde_json::{Value, json};

use super::act::ABANDON;
use super::decide::Chosen;
use super::install::Order;
use super::reach::Server;
use crate::operators::bpa::servers;

/// Removes those wanted nodes from the cluster that it still lists although their servers are not nodes any more.
pub(super) async fn forget_all(order: &Order, servers: &[Server<'_>], first: &Server<'_>) -> anyhow::Result<()> {
    if !order.existed {
        return Ok(());
    }
    let known = first.kubectl(&["get", "nodes", "--output=jsonpath={.items[*].metadata.name}"]).await?;
    let known = String::from_utf8_lossy(&known).into_owned();
    let is_known = |name: &str| known.split_whitespace().any(|one| one == name);
    for server in servers {
        let name = server.node.name.as_str();
        if name != first.node.name && !server.facts.member && is_known(name) {
            forget(first, name, server.is_master().then_some(&*server.node.ip.to_string())).await?;
        }
    }
    Ok(())
}

/// Before another master joins, those that do not answer must have left: etcd takes no new member while one of its members is
/// away (etcd's `--strict-reconfig-check`). `away`: nodes that are wanted and do not answer, each with the reason.
///
/// # Errors
/// A master does not answer, and nobody said that it is gone for good.
pub(super) async fn make_room(
    order: &Order,
    all: &[Server<'_>],
    away: &[(&Chosen, String)],
    first: &Server<'_>,
) -> anyhow::Result<()> {
    if !all.iter().any(|server| server.is_master() && !server.facts.member) {
        return Ok(());
    }
    let mut silent = Vec::new();
    for leaving in order.leaving.iter().filter(|leaving| leaving.is_master()) {
        let node = &leaving.node;
        // A server with nothing of the node on it does not come back as its member of etcd.
        if !leaving.stands {
            forget(first, &node.name, Some(&node.ip)).await?;
            continue;
        }
        match servers::connect(&order.login, node).await {
            Ok(session) => session.close().await,
            Err(error) => silent.push((node.name.as_str(), format!("{error:#}"))),
        }
    }
    let masters = away.iter().filter(|(node, _)| node.roles.contains(&NodeRole::Master));
    let wanted: Vec<(&str, String)> = masters.map(|(node, why)| (node.name.as_str(), why.clone())).collect();
    let gone = gone(&wanted, &silent, order.abandon)?;
    let nodes = order.leaving.iter().filter(|leaving| leaving.is_master()).map(|leaving| &leaving.node);
    for node in nodes.filter(|node| gone.contains(&node.name.as_str())) {
        log::warn!("{} does not answer; it leaves the cluster as it is", node.name);
        forget(first, &node.name, Some(&node.ip)).await?;
    }
    Ok(())
}

/// Hint for a node that shall leave and does not answer.
pub(super) fn leave_as_it_is() -> String {
    format!("the annotation `{ABANDON}` of the Provisioning has it leave as it is")
}

/// Which of the masters that do not answer leave. Pure. `wanted` shall stay, `leaving` shall not; each has its reason.
fn gone<'a>(wanted: &[(&str, String)], leaving: &[(&'a str, String)], abandon: bool) -> anyhow::Result<Vec<&'a str>> {
    let stays = if abandon { &[][..] } else { leaving };
    let of = |(name, why): &(&str, String), hint: &str| {
        format!("{name}: {why}: no other master can join before it answers or leaves, because of etcd; hint: {hint}")
    };
    let out = format!("take it out of the spec, and give the Provisioning the annotation `{ABANDON}`");
    let leave = leave_as_it_is();
    let problems: Vec<String> =
        wanted.iter().map(|node| of(node, &out)).chain(stays.iter().map(|node| of(node, &leave))).collect();
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(leaving.iter().map(|(name, _)| *name).collect())
}

/// Removes a node from the cluster and its member from etcd. `master_at`: its address, if it is a master.
pub(super) async fn forget(first: &Server<'_>, name: &str, master_at: Option<&str>) -> anyhow::Result<()> {
    if let Some(address) = master_at {
        let listed = etcdctl(first, &["member", "list", "--write-out=json"]).await?;
        let list = serde_json::from_slice(&listed).context("reading etcd's list of members")?;
        if let Some(id) = member(&list, name, address) {
            etcdctl(first, &["member", "remove", &id]).await?;
        }
    }
    first.kubectl(&["delete", "node", name, "--ignore-not-found"]).await?;
    Ok(())
}

/// Runs etcd's client on the first master. Returns what it prints.
pub(super) async fn etcdctl(first: &Server<'_>, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let pod = format!("etcd-{}", first.node.name);
    let start = ["--namespace", "kube-system", "exec", &pod, "--", "etcdctl", "--endpoints=https://127.0.0.1:2379"];
    let keys = [
        "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
        "--cert=/etc/kubernetes/pki/etcd/server.crt",
        "--key=/etc/kubernetes/pki/etcd/server.key",
    ];
    Ok(first.kubectl(&[&start[..], &keys, words].concat()).await?)
}

/// The id of a member in the form that `etcdctl member remove` takes. One that never began has no name yet, only the URL at
/// which it would be, and while it is listed no other one is taken.
fn member(list: &Value, name: &str, address: &str) -> Option<String> {
    let members = list["members"].as_array()?;
    let at = json!(format!("https://{}:2380", before_port(address)));
    let has_no_name = |member: &&Value| member["name"].as_str().is_none_or(str::is_empty);
    let would_be = |member: &Value| member["peerURLs"].as_array().is_some_and(|urls| urls.contains(&at));
    let found = members.iter().find(|member| member["name"] == name);
    let found = found.or_else(|| members.iter().filter(has_no_name).find(|member| would_be(member)))?;
    Some(format!("{:x}", found["ID"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{gone, member};

    #[test]
    fn a_master_that_does_not_answer_leaves_before_another_one_joins_only_if_that_was_said() {
        let silent = |name: &'static str| (name, "no answer in 10 s".to_owned());
        assert_eq!(gone(&[], &[], false).expect("nothing"), Vec::<&str>::new());
        assert_eq!(gone(&[], &[silent("m-0")], true).expect("said"), ["m-0"]);
        let error = gone(&[], &[silent("m-0")], false).expect_err("not said").to_string();
        assert!(error.contains("m-0: no answer in 10 s") && error.contains("has it leave as it is"), "{error}");
        let error = gone(&[silent("m-1")], &[silent("m-0")], true).expect_err("m-1 is wanted").to_string();
        assert!(error.contains("m-1: ") && error.contains("out of the spec") && !error.contains("m-0"), "{error}");
    }

    #[test]
    fn a_member_is_found_by_the_name_of_its_node() {
        let list =
            json!({"members": [{"ID": 10_276_657_743_932_975_437_u64, "name": "m-0"}, {"ID": 17, "name": "m-1"}]});
        assert_eq!(member(&list, "m-0", "172.22.0.10").as_deref(), Some("8e9e05c52164694d"));
        assert_eq!(member(&list, "m-1", "172.22.0.11").as_deref(), Some("11"));
        assert_eq!(member(&list, "m-2", "172.22.0.12"), None);
    }

    /// A join that was cut off behind kubeadm's `member add`, as etcd lists it.
    #[test]
    fn a_member_that_never_began_is_found_by_its_address() {
        let list = json!({"members": [{"ID": 17, "name": "m-0", "peerURLs": ["https://172.22.0.10:2380"]},
            {"ID": 18, "peerURLs": ["https://172.22.0.11:2380"], "isLearner": true},
            {"ID": 19, "name": "", "peerURLs": ["https://[fd00::2]:2380"]}]});
        for (name, address, id) in [
            ("m-1", "172.22.0.11", Some("12")),
            ("m-2", "fd00::2", Some("13")),
            // A server that got the address of a member that runs.
            ("m-3", "172.22.0.10", None),
        ] {
            assert_eq!(member(&list, name, address).as_deref(), id, "{name}");
        }
    }
}
