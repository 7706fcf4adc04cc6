//! The status of clusters, their conditions and events.

use std::collections::BTreeMap;

use agent_api::sip::auth::AuthStatus;
use agent_api::sip::cluster::{READY, Role, SipCluster, SipClusterStatus, SipNode};
use jiff::Timestamp;

use super::controller::Controller;
use super::decide::{Choice, Member};
use super::look::{Addresses, Found};
use crate::operators::kit::conditions::{merge, news};
use crate::operators::kit::{Key, NewCondition, ObjectError, Reason, told_key};

/// Reason of a role's condition that holds.
const SCHEDULED: &str = "Scheduled";

/// The state of a cluster: the reason of its condition and of its event. The words are Airship's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is being worked on.
    Progressing,
    /// There are too few hosts, or something of theirs is missing.
    Unschedulable,
    /// What stands before the hosts cannot be made.
    InfraServiceFailure,
    /// Hosts cannot be claimed.
    UnableToApplyLabels,
    /// It cannot be let go.
    UnableToDecommission,
    /// All is well.
    Succeeded,
}

impl Reason for What {
    fn word(self) -> &'static str {
        match self {
            Self::Progressing => "Progressing",
            Self::Unschedulable => "Unschedulable",
            Self::InfraServiceFailure => "InfraServiceFailure",
            Self::UnableToApplyLabels => "UnableToApplyLabels",
            Self::UnableToDecommission => "UnableToDecommission",
            Self::Succeeded => "ReconciliationSucceeded",
        }
    }

    fn is_warning(self) -> bool {
        !matches!(self, Self::Progressing | Self::Succeeded)
    }
}

/// What is known of the hosts.
#[derive(Clone, Debug, Default)]
struct Hosts {
    choice: Choice,
    addresses: BTreeMap<Key, Addresses>,
    /// The choice was not written on the hosts: it is a dry run, or another writer changed a host first.
    only_would: bool,
}

/// What is written into the status of a cluster. Without `hosts`, the hosts in the status stay.
pub(super) struct Told {
    what: What,
    why: String,
    hosts: Option<Hosts>,
    auth: Option<AuthStatus>,
}

impl Told {
    pub fn new(what: What, why: impl Into<String>) -> Self {
        Self { what, why: why.into(), hosts: None, auth: None }
    }

    /// The same, with the hosts that the cluster has.
    #[must_use]
    pub fn with(self, found: &Found) -> Self {
        let hosts = Hosts { choice: found.choice.clone(), addresses: found.addresses.clone(), only_would: false };
        Self { hosts: Some(hosts), ..self }
    }

    /// The same, with what API servers must be told. Without it, what was told of it stays.
    #[must_use]
    pub fn trusting(self, auth: Option<AuthStatus>) -> Self {
        Self { auth, ..self }
    }

    /// What would be done.
    pub fn dry_run(found: &Found) -> Self {
        let told =
            Self::new(What::Progressing, "dry run: nothing is done; hint: remove the annotation to have it done");
        let told = told.with(found);
        Self { hosts: told.hosts.map(|hosts| Hosts { only_would: true, ..hosts }), ..told }
    }
}

fn nodes(hosts: &Hosts) -> Vec<SipNode> {
    let texts = |addresses: &Addresses| addresses.iter().map(|(id, ip)| (id.clone(), ip.to_string())).collect();
    let node = |member: &Member, failed: Option<&String>| SipNode {
        role: member.role,
        host: told_key(&member.host),
        standby: member.standby,
        topology: member.topology.clone(),
        failed: failed.cloned(),
        addresses: hosts.addresses.get(&member.host).map(texts).unwrap_or_default(),
    };
    let members = hosts.choice.members.iter().map(|member| node(member, None));
    members.chain(hosts.choice.failed.iter().map(|(member, why)| node(member, Some(why)))).collect()
}

fn count(object: &SipCluster, role: Role, nodes: &[SipNode]) -> Option<(usize, usize)> {
    let (active, standby) = object.spec.nodes.of(role)?.target();
    let good = nodes.iter().filter(|node| node.role == role && node.failed.is_none());
    Some((good.count(), active + standby))
}

fn summary(object: &SipCluster, nodes: &[SipNode]) -> String {
    let roles = Role::ALL.into_iter().filter_map(|role| Some((role, count(object, role, nodes)?)));
    roles.map(|(role, (has, wanted))| format!("{role} {has}/{wanted}")).collect::<Vec<_>>().join(", ")
}

fn line(nodes: &[SipNode]) -> Option<String> {
    let named = nodes.iter().map(|node| match (&node.failed, node.standby) {
        (Some(_), _) => format!("{} (failed)", node.host),
        (None, true) => format!("{} (standby)", node.host),
        (None, false) => node.host.clone(),
    });
    let line = named.collect::<Vec<_>>().join(", ");
    (!line.is_empty()).then_some(line)
}

/// A condition for each role that is asked for.
fn scheduled(object: &SipCluster, hosts: &Hosts, nodes: &[SipNode]) -> Vec<NewCondition> {
    let one = |role: Role| {
        let (has, wanted) = count(object, role, nodes)?;
        let short = hosts.choice.short.iter().find(|short| short.role == role);
        let verb = if hosts.only_would { "would be" } else { "are" };
        let holds = short.is_none() && has >= wanted;
        let mut message = format!("{has} of {wanted} hosts {verb} there");
        if let Some(short) = short {
            message.clone_from(&short.why);
        } else if !holds {
            message.push_str(": there are others, and none is claimed while the other role has too few");
        }
        Some(NewCondition {
            kind: role.condition(),
            holds,
            reason: if holds { SCHEDULED } else { What::Unschedulable.word() },
            message,
            generation: object.metadata.generation,
        })
    };
    Role::ALL.into_iter().filter_map(one).collect()
}

fn status(object: &SipCluster, told: &Told, now: Timestamp) -> SipClusterStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let ready = NewCondition {
        kind: READY,
        holds: told.what == What::Succeeded,
        reason: told.what.word(),
        message: told.why.clone(),
        generation,
    };
    let auth = told.auth.clone().or(before.auth.clone()).filter(|_| !object.spec.services.auth.is_empty());
    let Some(hosts) = &told.hosts else {
        let conditions = Some(merge(before.conditions.as_ref(), [ready], now));
        return SipClusterStatus { conditions, observed_generation: generation, auth, ..before };
    };
    let nodes = nodes(hosts);
    let roles = scheduled(object, hosts, &nodes);
    let mut conditions = merge(before.conditions.as_ref(), [ready].into_iter().chain(roles), now);
    // A role that is not asked for any more has no condition.
    let asked =
        |kind: &str| Role::ALL.iter().all(|role| role.condition() != kind || object.spec.nodes.of(*role).is_some());
    conditions.retain(|condition| asked(&condition.kind));
    SipClusterStatus {
        conditions: Some(conditions),
        observed_generation: generation,
        summary: Some(summary(object, &nodes)),
        hosts: line(&nodes),
        not_chosen: hosts.choice.not_chosen.clone(),
        nodes: if hosts.only_would { before.nodes } else { nodes.clone() },
        would_choose: if hosts.only_would { nodes } else { Vec::new() },
        auth,
    }
}

impl Controller {
    /// Writes the status if it has changed, and an event if the reason or the text of a warning has changed.
    pub(super) async fn tell(&self, object: &SipCluster, told: Told) -> Result<(), ObjectError> {
        let before = object.status.clone().unwrap_or_default();
        let status = status(object, &told, Timestamp::now());
        let news = news(before.conditions.as_ref(), READY, told.what, &told.why);
        self.base.report(object, (&before, &status), news).await
    }
}

#[cfg(test)]
mod tests {
    use agent_api::meta::ConditionStatus;
    use agent_api::sip::cluster::{NodeCount, NodeSet, NodeSets, SipClusterSpec};

    use super::super::decide::Short;
    use super::*;

    fn object() -> SipCluster {
        let set = |active| Some(NodeSet { count: Some(NodeCount { active, standby: 1 }), ..NodeSet::default() });
        let nodes = NodeSets { control_plane: set(1), worker: None };
        SipCluster::new("one", SipClusterSpec { nodes, ..SipClusterSpec::default() })
    }

    fn member(name: &str, standby: bool) -> Member {
        Member {
            role: Role::ControlPlane,
            host: ("hosts".to_owned(), name.to_owned()),
            standby,
            topology: Some("r1".to_owned()),
        }
    }

    #[test]
    fn a_cluster_says_which_hosts_it_has_and_a_dry_run_which_it_would_have() {
        let mut object = object();
        let failed = vec![(member("c", false), "no disk".to_owned())];
        let choice = Choice { members: vec![member("a", false), member("b", true)], failed, ..Choice::default() };
        let addresses = [(("hosts".to_owned(), "a".to_owned()), [("oam".to_owned(), [10, 0, 0, 1].into())].into())];
        let found = Found { choice, hosts: Vec::new(), addresses: addresses.into(), broken: Vec::new() };
        let would = status(&object, &Told::dry_run(&found), Timestamp::UNIX_EPOCH);
        assert!(would.nodes.is_empty() && would.would_choose.len() == 3);
        assert_eq!(would.hosts.as_deref(), Some("hosts/a, hosts/b (standby), hosts/c (failed)"));
        let told = Told::new(What::Succeeded, "all is well").with(&found);
        object.status = Some(would);
        let has = status(&object, &told, Timestamp::UNIX_EPOCH);
        assert_eq!((has.nodes.len(), has.would_choose.len()), (3, 0));
        assert_eq!(has.summary.as_deref(), Some("ControlPlane 2/2"));
        assert_eq!(has.nodes[0].addresses["oam"], "10.0.0.1");
        let conditions = has.conditions.expect("conditions");
        let kinds: Vec<&str> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready", "ControlPlaneScheduled"], "a role that is not asked for has none");
        assert!(conditions.iter().all(|condition| condition.status == ConditionStatus::True));
        assert_eq!(conditions[0].reason, "ReconciliationSucceeded");
    }

    #[test]
    fn a_role_that_is_short_says_so_in_its_own_condition() {
        let why = "Unable to complete a schedule".to_owned();
        let choice = Choice { short: vec![Short { role: Role::ControlPlane, why: why.clone() }], ..Choice::default() };
        let found = Found { choice, hosts: Vec::new(), addresses: BTreeMap::new(), broken: Vec::new() };
        let told = Told::new(What::Unschedulable, why.clone()).with(&found);
        let conditions = status(&object(), &told, Timestamp::UNIX_EPOCH).conditions.expect("conditions");
        let said: Vec<(&str, &str)> =
            conditions.iter().map(|condition| (condition.reason.as_str(), condition.message.as_str())).collect();
        assert_eq!(said, [("Unschedulable", why.as_str()); 2]);
    }

    #[test]
    fn a_role_for_which_nobody_is_claimed_is_not_told_as_scheduled() {
        let mut object = object();
        object.spec.nodes.worker = object.spec.nodes.control_plane.clone();
        let choice =
            Choice { short: vec![Short { role: Role::ControlPlane, why: "too few".to_owned() }], ..Choice::default() };
        let found = Found { choice, hosts: Vec::new(), addresses: BTreeMap::new(), broken: Vec::new() };
        let told = Told::new(What::Unschedulable, "too few").with(&found);
        let conditions = status(&object, &told, Timestamp::UNIX_EPOCH).conditions.expect("conditions");
        let worker = conditions.iter().find(|condition| condition.kind == "WorkerScheduled").expect("told");
        assert_eq!((worker.status, worker.reason.as_str()), (ConditionStatus::False, "Unschedulable"));
        assert!(worker.message.starts_with("0 of 2 hosts are there: there are others"), "{}", worker.message);
    }
}
