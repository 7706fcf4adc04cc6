//! Which hosts a cluster keeps, gets and gives back. Pure: hosts and what is wrong with their Secrets in, a choice with its
//! reasons out.
//!
//! ```text
//! hosts with its labels ─┬─ good ──► as many as are asked for stay; of the others standbys go first
//!                        └─ failed ► go when another host is there for them, and not before
//! free hosts that fit ───► for each that is missing the first by namespace and name, no two in one place
//! ```
//! A choice that cannot be made whole claims nothing. Hosts that were claimed for one that was broken off are given back,
//! unless somebody uses them by now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_api::metal3::annotations::{DETACHED, PAUSED};
use agent_api::metal3::{BareMetalHost, ProvisioningState};
use agent_api::sip::cluster::{
    CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE, NodeSet, NotChosenHost, Role, STANDBY, SipCluster, cluster_of,
};
use agent_api::sip::selector::wrong_label_name;
use kube::ResourceExt as _;

use crate::operators::kit::{Key, Object as _, told_key};

/// Hosts that are named in a status with the reason why they were not chosen.
const MOST_NAMED: usize = 100;
/// Reasons that a message has, and hosts that it names for Secrets.
const MOST_SAID: usize = 8;

/// A host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its role in the cluster.
    pub role: Role,
    /// The host.
    pub host: Key,
    /// Whether it stands by.
    pub standby: bool,
    /// Its place (a rack, for example), if the role spreads hosts over places.
    pub topology: Option<String>,
}

/// A role that has too few hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The role.
    pub role: Role,
    /// What is said: Airship's text first.
    pub why: String,
}

/// What came of choosing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The cluster's hosts afterwards, by role and name. Failed ones that nobody replaces are not among them.
    pub members: Vec<Member>,
    /// Those of `members` that the cluster does not have yet.
    pub claim: Vec<Member>,
    /// Those of `members` that the cluster has and that begin or cease to stand by.
    pub turn: Vec<Member>,
    /// Hosts that it gives back, and why.
    pub release: Vec<(Key, String)>,
    /// Hosts that failed and that it keeps until there are others.
    pub failed: Vec<(Member, String)>,
    /// Roles with too few hosts.
    pub short: Vec<Short>,
    /// Hosts that were not chosen, nearest first.
    pub not_chosen: Vec<NotChosenHost>,
}

impl Choice {
    /// Hosts that are the cluster's once the choice is written, also those that failed.
    pub fn kept(&self) -> Vec<Key> {
        let failed = self.failed.iter().map(|(member, _)| member);
        self.members.iter().chain(failed).map(|member| member.host.clone()).collect()
    }
}

/// What is chosen from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// All hosts.
    pub hosts: &'a [Arc<BareMetalHost>],
    /// Why free hosts cannot have a role: their Secrets, in words.
    pub unreadable: &'a BTreeMap<(Role, Key), String>,
    /// Whether hosts that are not chosen are told even if no host is missing.
    pub tell_all: bool,
}

/// Whether the host belongs to the cluster.
pub fn is_of(host: &BareMetalHost, object: &SipCluster) -> bool {
    let (namespace, name) = object.key();
    cluster_of(host.labels()) == Some((&namespace, &name))
}

fn stands_by(host: &BareMetalHost) -> bool {
    host.annotations().get(STANDBY).is_some_and(|value| value == "true")
}

/// Whether an operating system is installed on it.
fn has_system(host: &BareMetalHost) -> bool {
    let installed = matches!(host.state(), ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned);
    installed || !host.spec.has_bmc()
}

/// Whether nobody uses it: no consumer, no image.
fn is_idle(host: &BareMetalHost) -> bool {
    host.spec.consumer_ref.is_none()
        && host.spec.image.is_none()
        && !matches!(host.state(), ProvisioningState::Provisioned)
}

fn error_of(host: &BareMetalHost) -> Option<&str> {
    host.status.as_ref().map(|status| status.error_message.trim()).filter(|message| !message.is_empty())
}

/// Why a host of the cluster does not count any more. A host with an installed system is not taken away because of errors
/// of its BMC.
fn failure(host: &BareMetalHost) -> Option<String> {
    if host.leaves() {
        return Some("it is being deleted".to_owned());
    }
    error_of(host).filter(|_| !has_system(host)).map(|error| format!("it has an error: {error}"))
}

/// Why a host cannot have any role: it is not free, or not fit.
fn unfit(host: &BareMetalHost) -> Option<String> {
    if host.leaves() {
        return Some("it is being deleted".to_owned());
    }
    let labels = host.labels();
    if labels.contains_key(CLUSTER_NAME) || labels.contains_key(CLUSTER_NAMESPACE) {
        let text = |label: &str| labels.get(label).map_or("", String::as_str);
        return Some(format!("it is of SIPCluster {}/{}", text(CLUSTER_NAMESPACE), text(CLUSTER_NAME)));
    }
    if let Some(by) = &host.spec.consumer_ref {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return Some(format!("it is used by {} {}/{}", text(&by.kind), text(&by.namespace), text(&by.name)));
    }
    if let Some(annotation) = [PAUSED, DETACHED].into_iter().find(|name| host.annotations().contains_key(*name)) {
        return Some(format!("it has the annotation `{annotation}`"));
    }
    if let Some(error) = error_of(host) {
        return Some(format!("it has an error: {error}"));
    }
    let waits = matches!(host.state(), ProvisioningState::Available | ProvisioningState::Ready);
    match host.state() {
        _ if waits || has_system(host) => None,
        ProvisioningState::None => Some("nobody has looked at it yet".to_owned()),
        state => Some(format!("it is {state}, and not available yet")),
    }
}

/// One role while it is being chosen for.
#[derive(Clone)]
struct Roll<'a> {
    role: Role,
    set: NodeSet,
    /// Hosts that it has and keeps.
    good: Vec<&'a BareMetalHost>,
    failed: Vec<(&'a BareMetalHost, String)>,
    /// Hosts that it would get.
    fresh: Vec<&'a BareMetalHost>,
}

impl<'a> Roll<'a> {
    /// The hosts that the cluster has already. Those that are too many are added to `release`.
    fn of(object: &SipCluster, role: Role, hosts: &[&'a BareMetalHost], release: &mut Vec<(Key, String)>) -> Self {
        let set = object.spec.nodes.of(role).cloned().unwrap_or_default();
        let own = hosts.iter().filter(|host| is_of(host, object));
        let own = own.filter(|host| host.labels().get(NODE_TYPE).is_some_and(|word| word == role.word()));
        let (mut good, mut failed) = (Vec::new(), Vec::new());
        for host in own {
            match failure(host) {
                Some(why) => failed.push((*host, why)),
                None => good.push(*host),
            }
        }
        let (active, standby) = set.target();
        let surplus = good.len().saturating_sub(active + standby);
        if surplus > 0 {
            let mut order = good.clone();
            // Standbys first, then those that nobody uses, then the last by name: sorted the other way round, from the end.
            order.sort_by_key(|host| (stands_by(host), host.spec.consumer_ref.is_none(), host.key()));
            let going: BTreeSet<Key> = order.iter().rev().take(surplus).map(|host| host.key()).collect();
            good.retain(|host| !going.contains(&host.key()));
            release.extend(going.into_iter().map(|key| (key, format!("the cluster wants fewer {role} hosts"))));
        }
        Self { role, set, good, failed, fresh: Vec::new() }
    }

    fn target(&self) -> usize {
        let (active, standby) = self.set.target();
        active + standby
    }

    fn has(&self) -> usize {
        self.good.len() + self.fresh.len()
    }

    /// The place of a host; `None` when the role does not ask where hosts are.
    fn place(&self, host: &BareMetalHost) -> Option<String> {
        let key = self.set.topology()?;
        host.labels().get(key).filter(|value| !value.is_empty()).cloned()
    }

    /// Why a free host that fits cannot have this role.
    fn refusal(&self, host: &BareMetalHost, view: &View<'_>) -> Option<String> {
        if let Some(why) = self.set.label_selector.lacks(host.labels()) {
            return Some(why);
        }
        if let Some(key) = self.set.topology() {
            let Some(place) = self.place(host) else {
                return Some(format!(
                    "it has no value in the label `{key}`, which `topologyKey` names: nobody knows where it is"
                ));
            };
            let there = self.good.iter().chain(&self.fresh).find(|other| self.place(other).as_ref() == Some(&place));
            if let Some(other) = there {
                let other = told_key(&other.key());
                return Some(format!("its `{key}` is `{place}`, where {} has {other}", self.role));
            }
        }
        view.unreadable.get(&(self.role, host.key())).cloned()
    }

    /// Adds free hosts until the role has enough. Hosts that no other role could use come first.
    fn fill(&mut self, hosts: &[&'a BareMetalHost], taken: &BTreeSet<Key>, view: &View<'_>, others: &[NodeSet]) {
        let wanted_elsewhere = |host: &BareMetalHost| {
            others.iter().any(|set| set.target() != (0, 0) && set.label_selector.lacks(host.labels()).is_none())
        };
        let mut free: Vec<&BareMetalHost> =
            hosts.iter().copied().filter(|host| !taken.contains(&host.key()) && unfit(host).is_none()).collect();
        free.sort_by_cached_key(|host| (wanted_elsewhere(host), host.key()));
        for host in free {
            if self.has() >= self.target() {
                return;
            }
            if self.refusal(host, view).is_none() {
                self.fresh.push(host);
            }
        }
    }

    fn member(&self, host: &BareMetalHost, standby: bool) -> Member {
        Member { role: self.role, host: host.key(), standby, topology: self.place(host) }
    }

    /// Its hosts, and which of them stand by. This stays as it was as far as the counts allow.
    fn members(&self) -> Vec<Member> {
        let (active, standby) = self.set.target();
        let wanted = self.has().saturating_sub(active).min(standby);
        let all: Vec<&BareMetalHost> = self.good.iter().chain(&self.fresh).copied().collect();
        let mut order = all.clone();
        // Who stands by already stays so; else new ones, then those that nobody uses; of equal ones the last by name.
        let fresh = |host: &BareMetalHost| self.fresh.iter().any(|other| other.key() == host.key());
        order.sort_by_cached_key(|host| {
            let before = stands_by(host) && !fresh(host);
            (before, fresh(host), host.spec.consumer_ref.is_none(), host.key())
        });
        let standing: BTreeSet<Key> = order.iter().rev().take(wanted).map(|host| host.key()).collect();
        let mut members: Vec<Member> =
            all.iter().map(|host| self.member(host, standing.contains(&host.key()))).collect();
        members.sort();
        members
    }
}

/// The roles with free hosts. What the first role takes may be all that the second one could have had: then the second one is
/// asked first.
fn filled<'a>(has: [Roll<'a>; 2], hosts: &[&'a BareMetalHost], view: &View<'_>) -> [Roll<'a>; 2] {
    let fill = |mut rolls: [Roll<'a>; 2], [first, second]: [usize; 2]| {
        let other = rolls[second].set.clone();
        rolls[first].fill(hosts, &BTreeSet::new(), view, &[other]);
        let taken = rolls[first].fresh.iter().map(|host| host.key()).collect();
        rolls[second].fill(hosts, &taken, view, &[]);
        rolls
    };
    let is_whole = |rolls: &[Roll<'_>; 2]| rolls.iter().all(|roll| roll.has() >= roll.target());
    let rolls = fill(has.clone(), [0, 1]);
    if is_whole(&rolls) {
        return rolls;
    }
    Some(fill(has, [1, 0])).filter(is_whole).unwrap_or(rolls)
}

/// Chooses.
pub fn choose(object: &SipCluster, view: &View<'_>) -> Choice {
    let mut hosts: Vec<&BareMetalHost> = view.hosts.iter().map(AsRef::as_ref).collect();
    hosts.sort_by_key(|host| host.key());
    let mut choice = Choice::default();
    let has = Role::ALL.map(|role| Roll::of(object, role, &hosts, &mut choice.release));
    let mut rolls = filled(has, &hosts, view);
    // Before anything is given up: these reasons are about the hosts as they were looked at.
    let short: Vec<Role> = rolls.iter().filter(|roll| roll.has() < roll.target()).map(|roll| roll.role).collect();
    if !short.is_empty() || view.tell_all {
        choice.not_chosen = not_chosen(object, &hosts, &rolls, view, &short);
    }
    choice.short =
        rolls.iter().filter(|roll| short.contains(&roll.role)).map(|roll| shortage(roll, &hosts, view)).collect();
    let asked = |host: &BareMetalHost| {
        host.labels().get(NODE_TYPE).is_some_and(|word| Role::ALL.iter().any(|role| role.word() == word))
    };
    let strangers = hosts.iter().filter(|host| is_of(host, object) && !asked(host));
    choice.release.extend(strangers.map(|host| (host.key(), "it has no role in the cluster".to_owned())));
    if !short.is_empty() {
        give_up(object, &mut rolls, &mut choice.release);
    }
    for roll in &rolls {
        // Also where the other role is short, and nobody is claimed for them.
        if roll.has() < roll.target() {
            let kept = roll.failed.iter().map(|(host, why)| (roll.member(host, stands_by(host)), why.clone()));
            choice.failed.extend(kept);
        } else {
            choice.release.extend(roll.failed.iter().map(|(host, why)| (host.key(), why.clone())));
        }
        let members = roll.members();
        let is_fresh = |member: &&Member| roll.fresh.iter().any(|host| host.key() == member.host);
        choice.claim.extend(members.iter().filter(is_fresh).cloned());
        let turns = |member: &&Member| {
            roll.good.iter().any(|host| host.key() == member.host && stands_by(host) != member.standby)
        };
        choice.turn.extend(members.iter().filter(turns).cloned());
        choice.members.extend(members);
    }
    choice
}

/// Claims nothing. Hosts that an earlier, broken off pass has claimed are given back.
fn give_up(object: &SipCluster, rolls: &mut [Roll<'_>], release: &mut Vec<(Key, String)>) {
    let known: BTreeSet<&str> =
        object.status.iter().flat_map(|status| &status.nodes).map(|node| node.host.as_str()).collect();
    for roll in rolls {
        roll.fresh.clear();
        let unfinished = |host: &BareMetalHost| is_idle(host) && !known.contains(told_key(&host.key()).as_str());
        let back = roll.good.iter().filter(|host| unfinished(host)).map(|host| host.key());
        release.extend(back.map(|key| (key, "there are too few others to go with it".to_owned())));
        roll.good.retain(|host| !unfinished(host));
    }
}

/// The hosts that have none of these roles, each with the reason.
fn not_chosen(
    object: &SipCluster,
    hosts: &[&BareMetalHost],
    rolls: &[Roll<'_>],
    view: &View<'_>,
    short: &[Role],
) -> Vec<NotChosenHost> {
    let asked = |roll: &&Roll<'_>| if short.is_empty() { roll.target() > 0 } else { short.contains(&roll.role) };
    let mut all = Vec::new();
    for host in hosts {
        let chosen = rolls.iter().any(|roll| roll.good.iter().chain(&roll.fresh).any(|one| one.key() == host.key()));
        if chosen || is_of(host, object) {
            continue;
        }
        let near = rolls.iter().filter(asked).any(|roll| roll.set.label_selector.lacks(host.labels()).is_none());
        let why = unfit(host).unwrap_or_else(|| {
            let reasons: BTreeSet<String> = rolls
                .iter()
                .filter(asked)
                .map(|roll| match roll.refusal(host, view) {
                    Some(why) => format!("{}: {why}", roll.role),
                    None => format!("{}: enough others come before it", roll.role),
                })
                .collect();
            reasons.into_iter().collect::<Vec<_>>().join("; ")
        });
        all.push((!near, NotChosenHost { host: told_key(&host.key()), why }));
    }
    // A stable sort: by name within.
    all.sort_by_key(|(far, _)| *far);
    all.into_iter().map(|(_, one)| one).take(MOST_NAMED).collect()
}

/// The message about a role that has too few hosts.
fn shortage(roll: &Roll<'_>, hosts: &[&BareMetalHost], view: &View<'_>) -> Short {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut named = Vec::new();
    for host in hosts {
        if roll.good.iter().chain(&roll.fresh).any(|one| one.key() == host.key()) {
            continue;
        }
        if let Some(why) = view.unreadable.get(&(roll.role, host.key())) {
            named.push(format!("{}: {why}", told_key(&host.key())));
            continue;
        }
        let why = roll.set.label_selector.lacks(host.labels()).or_else(|| unfit(host));
        let why = why.or_else(|| roll.refusal(host, view));
        *reasons.entry(why.unwrap_or_else(|| "another role has it".to_owned())).or_default() += 1;
    }
    let mut counted: Vec<(usize, String)> = reasons.into_iter().map(|(why, count)| (count, why)).collect();
    counted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let counted = counted
        .into_iter()
        .map(|(count, why)| if count == 1 { format!("1 host: {why}") } else { format!("{count} hosts: {why}") });
    let mut parts: Vec<String> = named.into_iter().take(MOST_SAID).collect();
    parts.extend(counted.take(MOST_SAID));
    let (has, wanted) = (roll.has(), roll.target());
    let others = if parts.is_empty() { "there is no other host".to_owned() } else { parts.join("; ") };
    let why = format!(
        "Unable to complete a schedule with a target of {} nodes, with a label selector of {}: {has} of {wanted} hosts \
         can be had; {others}",
        roll.role, roll.set.label_selector
    );
    Short { role: roll.role, why }
}

/// All errors of the spec that make it impossible to choose hosts.
pub fn wrong(object: &SipCluster) -> Vec<String> {
    let mut all = Vec::new();
    for role in Role::ALL {
        let Some(set) = object.spec.nodes.of(role) else { continue };
        let at = format!("spec.nodes.{role}");
        match set.count {
            None => all.push(format!("{at}.count is missing, expected such as `{{ active: 1, standby: 0 }}`")),
            Some(count) if count.active < 0 || count.standby < 0 => {
                all.push(format!("{at}.count has a number below 0"));
            }
            Some(_) => {}
        }
        all.extend(set.label_selector.wrong(&format!("{at}.labelSelector")));
        all.extend(set.topology().and_then(|key| wrong_label_name(&format!("{at}.topologyKey"), key)));
    }
    all
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
