#![expect(clippy::needless_pass_by_value, reason = "`json!` where it is needed reads best")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use agent_api::sip::cluster::{Role, SipCluster, SipNode};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Choice, Key, View, choose, wrong};
use crate::operators::kit::told_key;

/// A host of the namespace `hosts`, available, with labels.
fn host(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"namespace": "hosts", "name": name, "labels": labels},
        "spec": {"online": true, "bmc": {"address": "redfish://10.0.0.1/1", "credentialsName": "bmc"}},
        "status": {"provisioning": {"state": "available", "ID": ""}, "operationalStatus": "OK", "errorMessage": "",
            "errorCount": 0, "poweredOn": false, "hardware": null}})
}

/// The same, as a worker.
fn worker(name: &str, rack: &str) -> Value {
    host(name, &[("flavor", "worker"), ("rack", rack)])
}

/// A cluster `tenants/one` whose workers are asked for.
fn cluster(active: i64, standby: i64) -> SipCluster {
    spread(active, standby, None)
}

fn spread(active: i64, standby: i64, topology: Option<&str>) -> SipCluster {
    let mut worker = json!({"labelSelector": {"matchLabels": {"flavor": "worker"}},
        "count": {"active": active, "standby": standby}});
    if let Some(key) = topology {
        worker["topologyKey"] = json!(key);
    }
    asked(json!({"Worker": worker}))
}

fn asked(nodes: Value) -> SipCluster {
    let object = json!({"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
        "metadata": {"namespace": "tenants", "name": "one"}, "spec": {"nodes": nodes, "services": {}}});
    serde_json::from_value(object).expect("a SIPCluster")
}

/// Hosts, and the cluster that is written on them.
struct World {
    hosts: Vec<Value>,
    unreadable: BTreeMap<(Role, Key), String>,
}

impl World {
    fn of(hosts: impl IntoIterator<Item = Value>) -> Self {
        Self { hosts: hosts.into_iter().collect(), unreadable: BTreeMap::new() }
    }

    fn look(&self, object: &SipCluster) -> Choice {
        self.look_at(object, false)
    }

    fn look_at(&self, object: &SipCluster, tell_all: bool) -> Choice {
        let read = |host: &Value| Arc::new(serde_json::from_value::<BareMetalHost>(host.clone()).expect("a host"));
        let hosts: Vec<Arc<BareMetalHost>> = self.hosts.iter().map(read).collect();
        choose(object, &View { hosts: &hosts, unreadable: &self.unreadable, tell_all })
    }

    fn host(&mut self, key: &Key) -> &mut Value {
        let found = self.hosts.iter_mut().find(|host| {
            (host["metadata"]["namespace"].as_str(), host["metadata"]["name"].as_str())
                == (Some(&*key.0), Some(&*key.1))
        });
        found.expect("a host")
    }

    /// Chooses, and writes that on the hosts and in the status, as the controller does.
    fn pass(&mut self, object: &mut SipCluster) -> Choice {
        let choice = self.look(object);
        for (key, _) in &choice.release {
            let meta = &mut self.host(key)["metadata"];
            for label in ["cluster-namespace", "cluster-name", "node-type"] {
                let labels = meta["labels"].as_object_mut().expect("labels");
                labels.remove(&format!("sip.airshipit.org/{label}"));
            }
            meta["annotations"] = json!({});
        }
        let (namespace, name) = (object.metadata.namespace.clone(), object.metadata.name.clone());
        for member in choice.turn.iter().chain(&choice.claim) {
            let meta = &mut self.host(&member.host)["metadata"];
            meta["labels"]["sip.airshipit.org/cluster-namespace"] = json!(namespace);
            meta["labels"]["sip.airshipit.org/cluster-name"] = json!(name);
            meta["labels"]["sip.airshipit.org/node-type"] = json!(member.role.word());
            let standby = if member.standby { json!({"sip.airshipit.org/standby": "true"}) } else { json!({}) };
            meta["annotations"] = standby;
        }
        let node = |member: &super::Member| SipNode {
            role: member.role,
            host: told_key(&member.host),
            standby: member.standby,
            topology: None,
            failed: None,
            addresses: BTreeMap::new(),
        };
        let status = object.status.get_or_insert_default();
        let failed = choice.failed.iter().map(|(member, _)| member);
        status.nodes = choice.members.iter().chain(failed).map(node).collect();
        choice
    }

    /// Names of the hosts that are the cluster's, those that stand by with `*`.
    fn owned(&self, name: &str) -> Vec<String> {
        let own = self.hosts.iter().filter(|host| host["metadata"]["labels"]["sip.airshipit.org/cluster-name"] == name);
        let told = own.map(|host| {
            let star = if host["metadata"]["annotations"]["sip.airshipit.org/standby"] == "true" { "*" } else { "" };
            format!("{}{star}", host["metadata"]["name"].as_str().unwrap_or_default())
        });
        told.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

fn racks(names: &[(&str, &str)]) -> World {
    World::of(names.iter().map(|(name, rack)| worker(name, rack)))
}

/// SIP-3. Fewer hosts made the target negative there, and all that fitted were claimed.
#[test]
fn a_cluster_grows_and_shrinks_to_exact_counts_and_standbys_go_first() {
    let mut world = racks(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1")]);
    let mut object = cluster(1, 1);
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["a", "b*"]);
    object.spec = cluster(3, 1).spec;
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["a", "b*", "c", "d"], "who stands by goes on standing by");
    assert_eq!(world.pass(&mut object).claim, [], "nothing is left to do");
    object.spec = cluster(3, 0).spec;
    let shrunk = world.pass(&mut object);
    assert_eq!(shrunk.release.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(), ["b"]);
    object.spec = cluster(1, 1).spec;
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["a", "c*"]);
    let freed = world.hosts.iter().filter(|host| host["metadata"]["labels"]["sip.airshipit.org/node-type"].is_null());
    assert_eq!(freed.count(), 4, "they lose all three labels");
    object.spec = cluster(0, 0).spec;
    world.pass(&mut object);
    assert!(world.owned("one").is_empty());
}

#[test]
fn who_is_used_goes_after_who_is_not() {
    let mut world = racks(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut object = cluster(3, 0);
    world.pass(&mut object);
    for name in ["b", "c"] {
        world.host(&("hosts".to_owned(), name.to_owned()))["spec"]["consumerRef"] =
            json!({"kind": "Machine", "name": "m"});
    }
    object.spec = cluster(2, 0).spec;
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["b", "c"]);
}

/// SIP-4. There the places of hosts that the cluster had already did not count.
#[test]
fn no_two_hosts_are_in_one_place_over_all_passes() {
    let mut world = racks(&[("a", "1"), ("b", "1"), ("c", "2"), ("d", "2"), ("e", "3")]);
    let mut object = spread(1, 0, Some("rack"));
    world.pass(&mut object);
    object.spec = spread(3, 0, Some("rack")).spec;
    // A restart forgets everything but what is written.
    object = SipCluster { status: object.status.clone(), ..object };
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["a", "c", "e"]);
    object.spec = spread(4, 0, Some("rack")).spec;
    let choice = world.pass(&mut object);
    assert_eq!(world.owned("one"), ["a", "c", "e"], "nothing is claimed half");
    let why = &choice.short[0].why;
    assert!(why.contains("3 of 4 hosts can be had"), "{why}");
    assert!(why.contains("1 host: its `rack` is `1`, where Worker has hosts/a"), "{why}");
}

#[rstest]
#[case(host("x", &[("flavor", "worker")]))]
#[case(host("x", &[("flavor", "worker"), ("rack", "")]))]
fn a_host_that_does_not_say_where_it_is_is_not_chosen(#[case] host: Value) {
    let world = World::of([host]);
    let choice = world.look(&spread(1, 0, Some("rack")));
    let why = &choice.not_chosen[0].why;
    assert!(why.contains("no value in the label `rack`, which `topologyKey` names"), "{why}");
    assert_eq!(world.look(&cluster(1, 0)).claim.len(), 1, "where no place is asked for it is as good as others");
}

/// A fleet without a free host was an error there though the cluster was whole.
#[test]
fn a_whole_cluster_needs_no_free_host() {
    let mut world = racks(&[("a", "1")]);
    let mut object = cluster(1, 0);
    world.pass(&mut object);
    let choice = world.pass(&mut object);
    assert_eq!((choice.short, choice.claim, choice.members.len()), (Vec::new(), Vec::new(), 1));
}

/// There a failed host was kept, and one more claimed at each try.
#[test]
fn a_host_that_fails_is_replaced_once() {
    let mut world = racks(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let mut object = cluster(2, 0);
    world.pass(&mut object);
    let key = ("hosts".to_owned(), "a".to_owned());
    world.host(&key)["status"]["errorMessage"] = json!("no disk");
    for _ in 0..3 {
        world.pass(&mut object);
        assert_eq!(world.owned("one"), ["b", "c"]);
    }
    world.host(&key)["status"]["errorMessage"] = json!("");
    assert_eq!(world.pass(&mut object).claim, [], "who recovers is one of the free hosts");
}

#[test]
fn a_host_that_fails_stays_until_there_is_another_one_and_its_place_is_free_for_that() {
    let mut world = racks(&[("a", "1")]);
    let mut object = spread(1, 0, Some("rack"));
    world.pass(&mut object);
    world.host(&("hosts".to_owned(), "a".to_owned()))["status"]["errorMessage"] = json!("no disk");
    let choice = world.pass(&mut object);
    let failed: Vec<(String, &str)> =
        choice.failed.iter().map(|(member, why)| (told_key(&member.host), why.as_str())).collect();
    assert_eq!(failed, [("hosts/a".to_owned(), "it has an error: no disk")]);
    assert_eq!(choice.kept().len(), 1, "who has its console keeps it");
    assert_eq!(world.owned("one"), ["a"]);
    world.hosts.push(worker("b", "1"));
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["b"]);
}

/// While a role is short, nobody is claimed for the other one: so nobody of it is given back for that.
#[test]
fn a_host_that_fails_stays_while_the_other_role_is_short() {
    let both = |masters: i64| {
        asked(json!({
            "ControlPlane": {"labelSelector": {"matchLabels": {"flavor": "cp"}}, "count": {"active": masters}},
            "Worker": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "count": {"active": 1}}}))
    };
    let mut world = World::of([host("m", &[("flavor", "cp")]), worker("a", "1"), worker("b", "1")]);
    let mut object = both(1);
    world.pass(&mut object);
    object.spec = both(2).spec;
    world.host(&("hosts".to_owned(), "a".to_owned()))["status"]["errorMessage"] = json!("no disk");
    let choice = world.pass(&mut object);
    assert_eq!((choice.release.len(), choice.failed.len()), (0, 1));
    assert_eq!(world.owned("one"), ["a", "m"]);
    object.spec = both(1).spec;
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["b", "m"]);
}

/// It is the cluster's all the time, also while others are missing.
#[test]
fn a_host_that_recovers_stays_though_another_one_fails() {
    let mut world = racks(&[("a", "1"), ("b", "1")]);
    let mut object = cluster(2, 0);
    world.pass(&mut object);
    for (error, name) in [("no disk", "a"), ("", "a"), ("no disk", "b")] {
        world.host(&("hosts".to_owned(), name.to_owned()))["status"]["errorMessage"] = json!(error);
        world.pass(&mut object);
        assert_eq!(world.owned("one"), ["a", "b"]);
    }
    world.host(&("hosts".to_owned(), "a".to_owned()))["status"]["errorMessage"] = json!("no disk");
    world.pass(&mut object);
    world.host(&("hosts".to_owned(), "a".to_owned()))["status"]["errorMessage"] = json!("");
    assert_eq!(world.pass(&mut object).release, []);
}

#[test]
fn a_host_that_runs_a_system_is_not_taken_away_for_what_its_bmc_says() {
    let mut world = racks(&[("a", "1"), ("b", "1")]);
    let mut object = cluster(1, 0);
    world.pass(&mut object);
    let host = world.host(&("hosts".to_owned(), "a".to_owned()));
    host["status"]["provisioning"]["state"] = json!("provisioned");
    host["status"]["errorMessage"] = json!("the BMC does not answer");
    assert_eq!(world.pass(&mut object).release, []);
    world.host(&("hosts".to_owned(), "a".to_owned()))["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["b"]);
}

#[test]
fn a_host_that_vanished_is_replaced() {
    let mut world = racks(&[("a", "1"), ("b", "1")]);
    let mut object = cluster(1, 0);
    world.pass(&mut object);
    world.hosts.remove(0);
    world.pass(&mut object);
    assert_eq!(world.owned("one"), ["b"]);
}

/// SIP-12. There hosts were known by their names alone.
#[test]
fn hosts_of_one_name_in_two_namespaces_are_two() {
    let mut other = worker("a", "2");
    other["metadata"]["namespace"] = json!("elsewhere");
    let mut world = World::of([worker("a", "1"), other]);
    let mut object = cluster(2, 0);
    let choice = world.pass(&mut object);
    assert_eq!(
        choice.members.iter().map(|member| told_key(&member.host)).collect::<Vec<_>>(),
        ["elsewhere/a", "hosts/a"]
    );
}

#[rstest]
#[case(json!({"spec": {"consumerRef": {"kind": "Machine", "namespace": "x", "name": "m"}}}), "it is used by Machine x/m")]
#[case(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "it is being deleted")]
#[case(json!({"status": {"errorMessage": "no disk"}}), "it has an error: no disk")]
#[case(json!({"status": {"provisioning": {"state": "inspecting"}}}), "it is inspecting, and not available yet")]
#[case(json!({"status": {"provisioning": {"state": ""}}}), "nobody has looked at it yet")]
#[case(json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}), "it has the annotation")]
#[case(json!({"metadata": {"labels": {"sip.airshipit.org/cluster-namespace": "tenants",
    "sip.airshipit.org/cluster-name": "two", "sip.airshipit.org/node-type": "Worker"}}}), "it is of SIPCluster tenants/two")]
#[case(json!({"metadata": {"labels": {"sip.airshipit.org/cluster-name": "one"}}}), "it is of SIPCluster /one")]
fn a_host_that_is_not_free_or_not_fit_is_left_alone(#[case] change: Value, #[case] why: &str) {
    fn lay(over: &Value, onto: &mut Value) {
        match over {
            Value::Object(map) => map.iter().for_each(|(key, value)| lay(value, &mut onto[key])),
            other => *onto = other.clone(),
        }
    }
    let mut bad = worker("a", "1");
    lay(&change, &mut bad);
    let mut world = World::of([bad.clone()]);
    let choice = world.pass(&mut cluster(1, 0));
    assert!(choice.not_chosen[0].why.contains(why), "{:?}", choice.not_chosen);
    assert_eq!(world.hosts[0], bad, "nothing is written on it");
    let mut world = World::of([bad, worker("b", "1")]);
    assert_eq!(world.pass(&mut cluster(1, 0)).members[0].host.1, "b");
}

#[test]
fn too_few_hosts_is_said_in_airships_words_and_nothing_is_claimed_for_any_role() {
    let object = asked(json!({
        "ControlPlane": {"labelSelector": {"matchLabels": {"flavor": "cp"}}, "count": {"active": 1}},
        "Worker": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "count": {"active": 2}}}));
    let world = World::of([host("cp", &[("flavor", "cp")]), worker("a", "1")]);
    let choice = world.look(&object);
    assert_eq!((choice.claim.len(), choice.members.len(), choice.short.len()), (0, 0, 1));
    let text = "Unable to complete a schedule with a target of Worker nodes, with a label selector of \
                {map[flavor:worker] []}: 1 of 2 hosts can be had; 1 host: it has no label `flavor: worker`";
    assert_eq!(choice.short[0].why, text);
}

/// A pass that was broken off must not keep what nobody can use; what is used stays.
#[test]
fn what_was_claimed_in_a_pass_that_was_broken_off_goes_back_unless_it_is_used() {
    let mut world = racks(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut object = cluster(3, 0);
    world.pass(&mut object);
    object.status = None;
    world.hosts.remove(2);
    world.host(&("hosts".to_owned(), "a".to_owned()))["spec"]["consumerRef"] = json!({"kind": "Machine", "name": "m"});
    let choice = world.pass(&mut object);
    assert_eq!(choice.release.iter().map(|(key, _)| key.1.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(world.owned("one"), ["a"]);
    // A cluster that was whole keeps all that it had.
    let mut world = racks(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut object = cluster(3, 0);
    world.pass(&mut object);
    world.hosts.remove(2);
    assert_eq!(world.pass(&mut object).release, []);
    assert_eq!(world.owned("one"), ["a", "b"]);
}

/// SIP-10: other hosts are used; where there are none, host and Secret are named.
#[test]
fn a_host_whose_secrets_are_no_good_is_passed_over_and_named() {
    let mut world = racks(&[("a", "1"), ("b", "1")]);
    let why = "Secret `hosts/a-net` with its network data is not there".to_owned();
    world.unreadable.insert((Role::Worker, ("hosts".to_owned(), "a".to_owned())), why);
    assert_eq!(world.look(&cluster(1, 0)).claim[0].host.1, "b");
    let short = &world.look(&cluster(2, 0)).short[0].why;
    assert!(short.contains("hosts/a: Secret `hosts/a-net` with its network data is not there"), "{short}");
}

/// Each role takes first what the other cannot use.
#[test]
fn a_role_leaves_to_the_other_what_only_that_can_use() {
    let object = asked(json!({
        "ControlPlane": {"count": {"active": 1}},
        "Worker": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "count": {"active": 1}}}));
    let choice = World::of([worker("a", "1"), host("z", &[])]).look(&object);
    let names: Vec<(Role, &str)> = choice.members.iter().map(|member| (member.role, member.host.1.as_str())).collect();
    assert_eq!(names, [(Role::ControlPlane, "z"), (Role::Worker, "a")]);
}

/// Of the two racks with workers, the control plane must not take the only host of one.
#[test]
fn a_role_does_not_take_what_leaves_the_other_one_short() {
    let object = asked(json!({
        "ControlPlane": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "count": {"active": 1}},
        "Worker": {"labelSelector": {"matchLabels": {"flavor": "worker"}}, "topologyKey": "rack", "count": {"active": 2}}}));
    let choice = racks(&[("a", "1"), ("b", "2"), ("c", "2")]).look(&object);
    let names: Vec<(Role, &str)> = choice.members.iter().map(|member| (member.role, member.host.1.as_str())).collect();
    assert_eq!(names, [(Role::ControlPlane, "c"), (Role::Worker, "a"), (Role::Worker, "b")]);
    assert_eq!(choice.short, []);
}

/// A role that is not asked for any more, and a label that names no role.
#[test]
fn hosts_without_a_role_are_given_back() {
    let mut world = racks(&[("a", "1"), ("b", "1")]);
    let mut object = cluster(2, 0);
    world.pass(&mut object);
    world.host(&("hosts".to_owned(), "a".to_owned()))["metadata"]["labels"]["sip.airshipit.org/node-type"] =
        json!("Other");
    object.spec = asked(json!({})).spec;
    world.pass(&mut object);
    assert!(world.owned("one").is_empty());
}

#[test]
fn the_same_hosts_give_the_same_choice_in_whatever_order_they_come() {
    let names: Vec<(String, String)> = (0..12).map(|n| (format!("h{n:02}"), format!("r{}", n % 5))).collect();
    let mut world = World::of(names.iter().map(|(name, rack)| worker(name, rack)));
    let object = spread(3, 1, Some("rack"));
    let first = world.look(&object);
    world.hosts.reverse();
    assert_eq!(world.look(&object), first);
    assert_eq!(first.claim.len(), 4);
}

#[test]
fn a_dry_run_says_of_every_other_host_why_not() {
    let world = World::of([worker("a", "1"), worker("b", "1"), host("c", &[("flavor", "cp")])]);
    let choice = world.look_at(&spread(1, 0, Some("rack")), true);
    let told: Vec<(&str, &str)> = choice.not_chosen.iter().map(|one| (one.host.as_str(), one.why.as_str())).collect();
    assert_eq!(
        told,
        [
            ("hosts/b", "Worker: its `rack` is `1`, where Worker has hosts/a"),
            ("hosts/c", "Worker: it has no label `flavor: worker`"),
        ]
    );
}

/// A role without `count` and a host without labels were crashes there.
#[test]
fn what_lacks_is_named_and_stops_nobody() {
    assert!(wrong(&cluster(1, 1)).is_empty());
    let object = asked(json!({"Worker": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}));
    let wrong = wrong(&object);
    assert!(wrong[0].starts_with("spec.nodes.Worker.count is missing"), "{wrong:?}");
    assert!(wrong[1].starts_with("spec.nodes.Worker.labelSelector.matchExpressions[0].values"), "{wrong:?}");
    let wrong = super::wrong(&spread(1, 0, Some("a/b/c")));
    assert!(wrong.len() == 1 && wrong[0].starts_with("spec.nodes.Worker.topologyKey: found `a/b/c`"), "{wrong:?}");
    let mut bare = worker("a", "1");
    bare["metadata"].as_object_mut().expect("metadata").remove("labels");
    assert_eq!(World::of([bare]).look(&cluster(1, 0)).short.len(), 1);
}
