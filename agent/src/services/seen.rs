//! What the screen, the web page, REST and `foothold-agent status` tell of the site: servers, clusters with their nodes,
//! packages, releases, tenant clusters. Followed by watches, reduced to what is told, kept on the bus and in `/run`.

use agent_api::boot::SITE_STATUS;
use agent_api::clusters::provisioning::Provisioning;
use agent_api::clusters::release::ClusterRelease;
use agent_api::clusters::software::Software;
use agent_api::metal3::BareMetalHost;
use agent_api::rest::{SiteNode, SiteObject, SiteStatus};
use agent_api::sip::cluster::SipCluster;
use agent_api::vino::Vino;
use futures_util::future::join;
use kube::Resource;
use kube::api::ApiResource;
use serde_json::Value;

use super::Ground;
use crate::cluster::follow::Kept;
use crate::host::files;

/// State of a server that has an error.
const ERROR: &str = "error";

/// Follows servers. Ends only when it is dropped.
pub(super) async fn follow_servers(on: Ground<'_>) {
    follow::<BareMetalHost>(on, server).await;
}

/// Follows clusters, packages and releases. Ends only when it is dropped.
pub(super) async fn follow_clusters(on: Ground<'_>) {
    let others = join(follow::<Software>(on, software), follow::<ClusterRelease>(on, release));
    join(follow::<Provisioning>(on, cluster), others).await;
}

/// Follows tenant clusters. Ends only when it is dropped.
pub(super) async fn follow_tenants(on: Ground<'_>) {
    follow::<SipCluster>(on, by_condition).await;
}

/// Follows virtual machines. Ends only when it is dropped.
pub(super) async fn follow_machines(on: Ground<'_>) {
    follow::<Vino>(on, by_condition).await;
}

async fn follow<K: Resource<DynamicType = ()>>(on: Ground<'_>, of: fn(&Value) -> SiteObject) {
    let resource = ApiResource::erase::<K>(&());
    let kind = resource.kind.as_str();
    let keep = |object: &Value| {
        let text = |at: &str| object["metadata"][at].as_str().unwrap_or_default().to_owned();
        Some(SiteObject { kind: kind.to_owned(), namespace: text("namespace"), name: text("name"), ..of(object) })
    };
    let tell = |known: &Kept<SiteObject>| {
        let news = on.steps.bus.change_site(|site| put(site, kind, known.values()));
        let text = news.then(|| serde_json::to_vec(&*on.steps.bus.site()));
        let path = on.machine.at(SITE_STATUS);
        async move {
            if let Some(text) = text {
                files::write(&path, &text?, files::PUBLIC)?;
            }
            Ok(())
        }
    };
    on.machine.follow(&resource, "the status tells nothing new of the site", keep, tell).await;
}

/// Replaces all objects of a kind. Servers are counted; only those with an error are told by name.
fn put<'a>(site: &mut SiteStatus, kind: &str, all: impl Iterator<Item = &'a SiteObject> + Clone) {
    let servers = kind == "BareMetalHost";
    site.objects.retain(|object| object.kind != kind);
    site.objects.extend(all.clone().filter(|object| !servers || object.state == ERROR).cloned());
    site.objects.sort();
    if servers {
        site.servers.clear();
        for server in all {
            *site.servers.entry(server.state.clone()).or_default() += 1;
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The first text, or the other one if the first is empty.
fn or(first: &Value, other: &str) -> String {
    first.as_str().filter(|text| !text.is_empty()).unwrap_or(other).to_owned()
}

fn server(object: &Value) -> SiteObject {
    let status = &object["status"];
    let error = text(&status["errorMessage"]);
    let state = if error.is_empty() { or(&status["provisioning"]["state"], "new") } else { ERROR.to_owned() };
    SiteObject { ready: error.is_empty(), state, message: error, ..SiteObject::default() }
}

/// What the condition `Ready` says; its reason is the state.
fn by_condition(object: &Value) -> SiteObject {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(ready) = all.iter().find(|condition| condition["type"] == "Ready") else {
        return SiteObject { state: "new".to_owned(), ..SiteObject::default() };
    };
    SiteObject {
        ready: ready["status"] == "True",
        state: text(&ready["reason"]),
        message: text(&ready["message"]),
        since: ready["lastTransitionTime"].as_str().map(str::to_owned),
        ..SiteObject::default()
    }
}

fn nodes(object: &Value, one: impl Fn(&Value) -> SiteNode) -> Vec<SiteNode> {
    object["status"]["nodes"].as_array().into_iter().flatten().map(one).collect()
}

fn cluster(object: &Value) -> SiteObject {
    let node = |node: &Value| SiteNode {
        name: text(&node["name"]),
        state: or(&node["step"], node["phase"].as_str().unwrap_or_default()),
        ip: text(&node["ip"]),
        message: text(&node["error"]),
        eta: node["eta"].as_str().map(str::to_owned),
    };
    let told = by_condition(object);
    let eta = object["status"]["eta"].as_str().map(str::to_owned);
    let kubeconfig = object["status"]["kubeconfigSecret"].is_string();
    SiteObject {
        state: or(&object["status"]["phase"], &told.state),
        eta,
        kubeconfig,
        nodes: nodes(object, node),
        ..told
    }
}

fn software(object: &Value) -> SiteObject {
    let node = |node: &Value| {
        let reboot = node["rebootRequired"] == true;
        let packages = match node["installed"].as_array().map_or(0, Vec::len) {
            1 => "1 package".to_owned(),
            count => format!("{count} packages"),
        };
        SiteNode {
            name: text(&node["node"]),
            state: format!("{packages}{}", if reboot { ", wants to be restarted" } else { "" }),
            message: text(&node["error"]),
            ..SiteNode::default()
        }
    };
    SiteObject { nodes: nodes(object, node), ..by_condition(object) }
}

fn release(object: &Value) -> SiteObject {
    by_condition(object)
}

#[cfg(test)]
mod tests {
    use agent_api::rest::{SiteObject, SiteStatus};
    use serde_json::{Value, json};

    use super::{cluster, put, release, server, software};

    fn named(name: &str, kind: &str, object: SiteObject) -> SiteObject {
        SiteObject { kind: kind.to_owned(), name: name.to_owned(), ..object }
    }

    #[test]
    fn servers_are_counted_and_those_with_an_error_are_named() {
        let host = |state: &str, error: &str| {
            server(&json!({"status": {"provisioning": {"state": state}, "errorMessage": error}}))
        };
        let all = [
            named("a", "BareMetalHost", host("provisioned", "")),
            named("b", "BareMetalHost", host("provisioned", "")),
            named("c", "BareMetalHost", host("inspecting", "no answer of the BMC")),
            named("d", "BareMetalHost", server(&json!({}))),
        ];
        let mut site = SiteStatus::default();
        put(&mut site, "Release", [named("r", "Release", release(&json!({})))].iter());
        put(&mut site, "BareMetalHost", all.iter());
        assert_eq!(json!(site.servers), json!({"provisioned": 2, "error": 1, "new": 1}));
        let names: Vec<(&str, &str)> = site.objects.iter().map(|one| (&*one.name, &*one.message)).collect();
        assert_eq!(names, [("c", "no answer of the BMC"), ("r", "")]);
        put(&mut site, "BareMetalHost", [].iter());
        put(&mut site, "Release", [].iter());
        assert!(site.is_empty());
    }

    #[test]
    fn a_cluster_is_told_with_the_step_of_each_node_and_packages_with_what_each_has() {
        let ready = |status: &str, reason: &str, message: &str| -> Value {
            json!([{"type": "HostsChosen", "status": "True"}, {"type": "Ready", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-03-01T12:00:00Z"}])
        };
        let told = cluster(
            &json!({"status": {"phase": "Installing", "conditions": ready("False", "Installing", "w-0 joins"),
            "nodes": [{"name": "m-0", "phase": "Installed", "ip": "192.0.2.10"},
                {"name": "w-0", "phase": "Failing", "step": "kubernetes/join (7 of 9)", "ip": "192.0.2.11", "error": "no answer"}]}}),
        );
        assert_eq!((told.ready, &*told.state, &*told.message), (false, "Installing", "w-0 joins"));
        assert!(!told.kubeconfig);
        let degraded = cluster(&json!({"status": {"phase": "Degraded", "kubeconfigSecret": "one-kubeconfig",
            "conditions": ready("False", "NodesNotReady", "node w-0: Kubelet stopped posting node status.")}}));
        assert!(degraded.kubeconfig && !degraded.ready, "one who mends it needs it most");
        assert_eq!(told.since.as_deref(), Some("2026-03-01T12:00:00Z"));
        assert_eq!((&*told.nodes[0].state, &*told.nodes[0].ip), ("Installed", "192.0.2.10"));
        assert_eq!((&*told.nodes[1].state, &*told.nodes[1].message), ("kubernetes/join (7 of 9)", "no answer"));
        let told = software(&json!({"status": {"conditions": ready("True", "Installed", ""),
            "nodes": [{"node": "w-0", "installed": ["jq=1.7"], "rebootRequired": true}]}}));
        assert!(told.ready);
        assert_eq!(told.nodes[0].state, "1 package, wants to be restarted");
    }
}
