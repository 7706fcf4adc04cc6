//! Nodes that are lost: the server's OS was written again, or the server is gone for good. They are removed from the
//! cluster, so that a server can join under the same name.

use anyhow::Context as _;
use serde_json::Value;

use super::install::Order;
use super::reach::Server;

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
            forget(first, name, server.is_master()).await?;
        }
    }
    Ok(())
}

/// Removes a node from the cluster and its member from etcd.
pub(super) async fn forget(first: &Server<'_>, name: &str, is_master: bool) -> anyhow::Result<()> {
    if is_master {
        let listed = etcdctl(first, &["member", "list", "--write-out=json"]).await?;
        if let Some(id) = member(&serde_json::from_slice(&listed).context("reading etcd's list of members")?, name) {
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

/// The id of a member in the form that `etcdctl member remove` takes.
fn member(list: &Value, name: &str) -> Option<String> {
    let members = list["members"].as_array()?;
    let id = members.iter().find(|member| member["name"] == name)?["ID"].as_u64()?;
    Some(format!("{id:x}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::member;

    #[test]
    fn a_member_is_found_by_the_name_of_its_node() {
        let list =
            json!({"members": [{"ID": 10_276_657_743_932_975_437_u64, "name": "m-0"}, {"ID": 17, "name": "m-1"}]});
        assert_eq!(member(&list, "m-0").as_deref(), Some("8e9e05c52164694d"));
        assert_eq!(member(&list, "m-1").as_deref(), Some("11"));
        assert_eq!(member(&list, "m-2"), None);
    }
}
