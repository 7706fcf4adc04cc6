//! When nodes and their cluster will be done, by what earlier runs took here.
//!
//! ```text
//! History (a file) ─┐
//!                   ├─ estimate (pure) ─► `eta` in the status of the cluster and of each node
//! Schedule, now ────┘
//! ```
//! What was never seen to its end has no estimate, and neither has what comes after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_api::clusters::provisioning::{NodeRole, NodeStatus};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::decide::Chosen;
use crate::operators::kit::told_key;

/// Name of the file beside the clusters' folders. No cluster has such a name.
const FILE: &str = ".durations.json";
/// So many of the last runs count.
const KEPT: usize = 5;
/// Estimates are whole multiples of this, in seconds: the status changes no more often when the work is late.
const GRAIN: i64 = 10;
/// The only step of a part that has no steps.
const WHOLE: &str = "";

/// A part of the work on a cluster, in the order of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Part {
    /// Servers are reached and checked.
    Check,
    /// A node is upgraded: drained, and what the server says.
    Upgrade,
    /// The first node.
    Init,
    /// One more master.
    JoinMaster,
    /// One more worker.
    JoinWorker,
    /// A node is drained and reset.
    Remove,
    /// Nodes and the cluster's own pods become Ready.
    Ready,
    /// What is never recorded.
    Unknown,
}

/// What steps took in earlier runs.
#[derive(Debug, Default)]
pub(super) struct History {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Known {
    #[serde(default)]
    parts: BTreeMap<Part, Seen>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// Whether the part was seen to its end: then all of its steps are known.
    #[serde(default)]
    ended: bool,
    /// Seconds that each step took, the newest last.
    #[serde(default)]
    steps: BTreeMap<String, Vec<f64>>,
}

impl History {
    /// Reads what is known in the folder of the clusters. A file that cannot be read is as good as none: it is only
    /// about estimates.
    pub fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let read = || -> anyhow::Result<Known> {
            if !path.exists() {
                return Ok(Known::default());
            }
            Ok(serde_json::from_slice(&fs_err::read(&path)?)?)
        };
        let known = read().unwrap_or_else(|error| {
            log::warn!("`{}`: {error:#}; estimates begin anew", path.display());
            Known::default()
        });
        Self { path, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is whole: a panic elsewhere leaves it valid.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known();
        change(&mut known);
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let text = serde_json::to_vec(&*known).unwrap_or_default();
        if let Err(error) = crate::host::files::replace_below(folder, &self.path, &text) {
            log::warn!("{error}");
        }
    }

    fn took(&self, part: Part, step: &str, secs: f64) {
        self.change(|known| {
            let all = known.parts.entry(part).or_default().steps.entry(step.to_owned()).or_default();
            all.push(secs);
            all.drain(..all.len().saturating_sub(KEPT));
        });
    }

    fn ended(&self, part: Part) {
        self.change(|known| known.parts.entry(part).or_default().ended = true);
    }
}

/// What is to be done: groups, one after the other. The nodes of a group are worked on at the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    groups: Vec<Vec<Item>>,
}

/// One part of one node; of the whole cluster when the name is empty.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    part: Part,
    node: String,
    run: Option<Run>,
}

/// An item that was begun.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    done: BTreeSet<String>,
    step: Option<(String, Timestamp)>,
    ended: bool,
}

/// Estimates.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Estimate {
    /// When the cluster will be Ready.
    pub cluster: Option<Timestamp>,
    /// When nodes that are not done will be.
    pub nodes: BTreeMap<String, Timestamp>,
}

impl Schedule {
    /// What a cluster with these nodes needs. `before`: the status of nodes that were installed.
    pub fn of(chosen: &[Chosen], before: &[NodeStatus]) -> Self {
        let installed = |one: &Chosen| {
            let same = |node: &&NodeStatus| node.name == one.name && node.host == told_key(&one.host);
            before.iter().find(same).is_some_and(|node| node.installed_at.is_some())
        };
        let master = |one: &&Chosen| one.roles.contains(&NodeRole::Master);
        let item = |part, one: &Chosen| Item { part, node: one.name.clone(), run: None };
        let mut first = !chosen.iter().any(|one| installed(one) && master(&one));
        let mut groups = vec![vec![Item { part: Part::Check, node: String::new(), run: None }]];
        for one in chosen.iter().filter(master).filter(|one| !installed(one)) {
            groups.push(vec![item(if first { Part::Init } else { Part::JoinMaster }, one)]);
            first = false;
        }
        let workers = chosen.iter().filter(|one| !master(one) && !installed(one));
        groups.push(workers.map(|one| item(Part::JoinWorker, one)).collect());
        groups.push(vec![Item { part: Part::Ready, node: String::new(), run: None }]);
        Self { groups }
    }

    /// What nobody can estimate.
    pub fn unknown() -> Self {
        Self { groups: vec![vec![Item { part: Part::Unknown, node: String::new(), run: None }]] }
    }

    /// Puts one part of each of these nodes, one after the other, before what comes later in the work.
    pub fn insert(&mut self, part: Part, nodes: impl IntoIterator<Item = String>) {
        let is_later = |group: &Vec<Item>| group.iter().any(|item| item.part > part);
        let at = self.groups.iter().position(is_later).unwrap_or(self.groups.len());
        let group = |node| vec![Item { part, node, run: None }];
        self.groups.splice(at..at, nodes.into_iter().map(group));
    }

    /// The item of a node that has not ended. A node that becomes something else than was thought has its item changed.
    fn open(&mut self, part: Part, node: &str) -> Option<&mut Item> {
        let joins = |part| matches!(part, Part::Init | Part::JoinMaster | Part::JoinWorker);
        let same = |item: &&mut Item| {
            item.node == node
                && (item.part == part || joins(item.part) && joins(part))
                && !item.run.as_ref().is_some_and(|run| run.ended)
        };
        let item = self.groups.iter_mut().flatten().find(same)?;
        item.part = part;
        Some(item)
    }

    /// A part begins. One that has only one step is that step.
    pub fn begin(&mut self, part: Part, node: &str, now: Timestamp) {
        if let Some(item) = self.open(part, node) {
            item.run = Some(Run { step: Some((WHOLE.to_owned(), now)), ..Run::default() });
        }
    }

    /// A node's next step begins, or begins again. With the first one ends what came before it.
    pub fn step(&mut self, part: Part, node: &str, step: &str, now: Timestamp, history: &History) {
        let current = |item: &mut Item| item.run.as_ref().and_then(|run| run.step.clone());
        match self.open(part, node).and_then(current) {
            Some((same, _)) if same == step => return,
            Some((before, _)) if before == WHOLE => self.done(part, node, true, now, history),
            _ => {}
        }
        if let Some(item) = self.open(part, node) {
            item.run.get_or_insert_default().step = Some((step.to_owned(), now));
        }
    }

    /// A step was done. One that had nothing to do says nothing of others.
    pub fn done(&mut self, part: Part, node: &str, worked: bool, now: Timestamp, history: &History) {
        let Some(run) = self.open(part, node).and_then(|item| item.run.as_mut()) else { return };
        let Some((step, since)) = run.step.take() else { return };
        if worked {
            history.took(part, &step, (now - since).total(jiff::Unit::Second).unwrap_or_default());
        }
        run.done.insert(step);
    }

    /// A part came to its end.
    pub fn end(&mut self, part: Part, node: &str, now: Timestamp, history: &History) {
        if self.open(part, node).and_then(|item| item.run.as_ref()).is_some_and(|run| run.step.is_some()) {
            self.done(part, node, true, now, history);
        }
        let Some(item) = self.open(part, node) else { return };
        item.run.get_or_insert_default().ended = true;
        history.ended(part);
    }

    /// There was nothing to do.
    pub fn skip(&mut self, part: Part, node: &str) {
        if let Some(item) = self.open(part, node) {
            item.run.get_or_insert_default().ended = true;
        }
    }

    /// When all of it will be done.
    pub fn estimate(&self, now: Timestamp, history: &History) -> Estimate {
        let known = history.known();
        let mut found = Estimate::default();
        // Seconds from now until a group begins, as long as everything before it is known.
        let mut at = Some(0.0_f64);
        for group in &self.groups {
            let mut ends = at;
            for item in group.iter().filter(|item| !item.run.as_ref().is_some_and(|run| run.ended)) {
                let end = at.and_then(|at| Some(at + known.left(item, now)?));
                if let Some(end) = end.filter(|_| !item.node.is_empty()) {
                    found.nodes.insert(item.node.clone(), after(now, end));
                }
                ends = ends.zip(end).map(|(one, other)| one.max(other));
            }
            at = ends;
        }
        found.cluster = at.map(|at| after(now, at));
        found
    }
}

impl Known {
    /// Seconds that an item still takes. `None`: nobody knows.
    fn left(&self, item: &Item, now: Timestamp) -> Option<f64> {
        let seen = self.parts.get(&item.part).filter(|seen| seen.ended)?;
        let run = item.run.clone().unwrap_or_default();
        let to_do = seen.steps.iter().filter(|(step, _)| !run.done.contains(*step));
        let left = to_do.map(|(step, all)| match &run.step {
            Some((current, since)) if current == step => {
                let passed = (now - *since).total(jiff::Unit::Second).unwrap_or_default();
                (median(all) - passed).max(0.0)
            }
            _ => median(all),
        });
        Some(left.sum())
    }
}

/// The middle one; of an even number the longer of the two.
fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// So many seconds after now, rounded up to the grain.
fn after(now: Timestamp, secs: f64) -> Timestamp {
    let then = now.saturating_add(SignedDuration::from_secs_f64(secs)).unwrap_or(now);
    let grains = then.as_millisecond().div_euclid(GRAIN * 1000) + 1;
    Timestamp::from_second(grains * GRAIN).unwrap_or(then)
}

#[cfg(test)]
mod tests {
    use super::super::decide::tests::chosen;
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + secs).expect("a time")
    }

    /// Three masters and two workers.
    fn nodes() -> Vec<Chosen> {
        let master = |name, last| chosen(name, last, &[NodeRole::Master]);
        let worker = |name, last| chosen(name, last, &[NodeRole::Worker]);
        vec![master("m-0", 20), worker("w-0", 30), master("m-1", 21), worker("w-1", 31)]
    }

    /// An item that takes so long, from its begin to its end.
    fn run(schedule: &mut Schedule, history: &History, part: Part, node: &str, begin: i64, steps: &[(&str, i64)]) {
        schedule.begin(part, node, at(begin));
        let mut now = begin;
        for (step, secs) in steps {
            schedule.step(part, node, step, at(now), history);
            now += secs;
            schedule.done(part, node, true, at(now), history);
        }
        schedule.end(part, node, at(now), history);
    }

    fn whole(history: &History) {
        let mut first = Schedule::of(&nodes(), &[]);
        let init = [("system/programs", 40), ("kubernetes/member", 100)];
        let join = [("system/programs", 40), ("kubernetes/member", 60)];
        schedule_check(&mut first, history, 0, 10);
        run(&mut first, history, Part::Init, "m-0", 10, &init);
        run(&mut first, history, Part::JoinMaster, "m-1", 150, &join);
        run(&mut first, history, Part::JoinWorker, "w-0", 250, &join);
        run(&mut first, history, Part::JoinWorker, "w-1", 250, &join);
        first.begin(Part::Ready, "", at(350));
        first.end(Part::Ready, "", at(380), history);
        assert_eq!(first.estimate(at(380), history).nodes, BTreeMap::new(), "all is done");
    }

    fn schedule_check(schedule: &mut Schedule, history: &History, begin: i64, end: i64) {
        schedule.begin(Part::Check, "", at(begin));
        schedule.end(Part::Check, "", at(end), history);
    }

    #[test]
    fn the_first_cluster_has_no_estimate_and_the_second_one_takes_as_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        let fresh = Schedule::of(&nodes(), &[]);
        assert_eq!(fresh.estimate(at(0), &history), Estimate::default());
        whole(&history);
        // Read again, as by an operator that was started anew.
        let history = History::open(folder.path());
        let found = Schedule::of(&nodes(), &[]).estimate(at(1000), &history);
        let rounded = |secs| after(at(0), f64::from(secs));
        let names: Vec<(&str, Timestamp)> = found.nodes.iter().map(|(name, at)| (&**name, *at)).collect();
        let workers = rounded(1000 + 350);
        assert_eq!(names, [("m-0", rounded(1150)), ("m-1", rounded(1250)), ("w-0", workers), ("w-1", workers)]);
        assert_eq!(found.cluster, Some(rounded(1380)));
    }

    #[test]
    fn an_estimate_stays_while_steps_take_as_long_as_before_and_moves_when_they_are_late() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        whole(&history);
        let mut schedule = Schedule::of(&nodes(), &[]);
        schedule_check(&mut schedule, &history, 1000, 1010);
        schedule.begin(Part::Init, "m-0", at(1010));
        schedule.step(Part::Init, "m-0", "system/programs", at(1010), &history);
        let cluster = |schedule: &Schedule, now| schedule.estimate(at(now), &history).cluster;
        let first = cluster(&schedule, 1010).expect("an estimate");
        assert_eq!(cluster(&schedule, 1045), Some(first));
        // 20 s late.
        assert_eq!(
            cluster(&schedule, 1070),
            Some(first.saturating_add(SignedDuration::from_secs(20)).expect("a time"))
        );
        // A step that begins again, after a failure, goes on from its first begin.
        schedule.step(Part::Init, "m-0", "system/programs", at(1065), &history);
        schedule.done(Part::Init, "m-0", true, at(1070), &history);
        assert_eq!(history.known().parts[&Part::Init].steps["system/programs"], [40.0, 60.0]);
    }

    #[test]
    fn only_new_nodes_count_and_what_was_never_seen_has_no_estimate() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        whole(&history);
        let status = |node: &Chosen| -> NodeStatus {
            serde_json::from_value(serde_json::json!({"name": node.name, "roles": [], "host": told_key(&node.host),
                "macAddress": "", "ip": "", "phase": "Installed", "installedAt": "2026-01-01T00:00:00Z"}))
            .expect("a status")
        };
        let all = nodes();
        let before: Vec<NodeStatus> = all[..3].iter().map(status).collect();
        let mut schedule = Schedule::of(&all, &before);
        let found = schedule.estimate(at(0), &history);
        assert_eq!(found.nodes.keys().collect::<Vec<_>>(), ["w-1"]);
        assert_eq!(found.cluster, Some(after(at(0), 140.0)));
        // Nobody has seen how long it takes to remove a node: what comes before is known still.
        schedule.insert(Part::Remove, ["w-9".to_owned()]);
        let found = schedule.estimate(at(0), &history);
        assert_eq!((found.nodes.keys().map(|name| &**name).collect::<Vec<_>>(), found.cluster), (vec!["w-1"], None));
        // It is gone already.
        schedule.skip(Part::Remove, "w-9");
        assert!(schedule.estimate(at(0), &history).cluster.is_some());
        // An upgrade is drained first: that counts, too.
        let mut upgrade = Schedule::of(&all, &all.iter().map(status).collect::<Vec<_>>());
        upgrade.insert(Part::Upgrade, ["m-0".to_owned(), "m-1".to_owned()]);
        schedule_check(&mut upgrade, &history, 0, 10);
        upgrade.begin(Part::Upgrade, "m-0", at(10));
        upgrade.step(Part::Upgrade, "m-0", "upgrade/kubeadm", at(40), &history);
        upgrade.done(Part::Upgrade, "m-0", true, at(100), &history);
        upgrade.end(Part::Upgrade, "m-0", at(100), &history);
        assert_eq!(upgrade.estimate(at(100), &history).nodes["m-1"], after(at(100), 90.0));
        assert_eq!(Schedule::unknown().estimate(at(0), &history), Estimate::default());
    }

    #[test]
    fn a_file_that_cannot_be_read_begins_anew_and_few_runs_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        fs_err::write(folder.path().join(FILE), "{\"parts\": ").expect("written");
        let history = History::open(folder.path());
        for secs in 1..=9 {
            history.took(Part::Check, WHOLE, f64::from(secs));
        }
        let history = History::open(folder.path());
        assert_eq!(history.known().parts[&Part::Check].steps[WHOLE], [5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!((median(&[3.0, 9.0, 1.0]), median(&[2.0, 4.0]), median(&[])), (3.0, 4.0, 0.0));
    }
}
