//! Status, conditions and events.

use std::collections::BTreeSet;

use agent_api::vino::spec::{
    BMH_READY, CONFIG_MAP_READY, DAEMON_SET_READY, ObjectRef, READY, Vino, VinoNode, VinoStatus,
};
use jiff::Timestamp;

use super::controller::Controller;
use super::objects::Names;
use crate::operators::kit::conditions::{merge, news};
use crate::operators::kit::{NewCondition, ObjectError, Reason};

/// Reason of a condition and of its event. The words are Airship's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It is being worked on.
    Progressing,
    /// It cannot be made.
    Failed,
    /// All is well.
    Succeeded,
}

impl Reason for What {
    fn word(self) -> &'static str {
        match self {
            Self::Progressing => "Progressing",
            Self::Failed => "ReconciliationFailed",
            Self::Succeeded => "ReconciliationSucceeded",
        }
    }

    fn is_warning(self) -> bool {
        matches!(self, Self::Failed)
    }
}

/// How far a part is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It is as it is asked for.
    Done(String),
    /// It waits for something.
    Waits(String),
    /// It cannot be made.
    Fails(String),
}

impl Default for Part {
    fn default() -> Self {
        Self::Waits("what comes before it is not there yet".to_owned())
    }
}

impl Part {
    const fn what(&self) -> What {
        match self {
            Self::Done(_) => What::Succeeded,
            Self::Waits(_) => What::Progressing,
            Self::Fails(_) => What::Failed,
        }
    }

    fn words(&self) -> &str {
        match self {
            Self::Done(words) | Self::Waits(words) | Self::Fails(words) => words,
        }
    }
}

/// What is written into the status of a `Vino`.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub config_map: Part,
    pub daemon_set: Part,
    pub hosts: Part,
    /// Whether users have a `ConfigMap` with templates.
    pub has_templates: bool,
    pub nodes: Vec<VinoNode>,
    /// How many hosts there are, and how many are asked for.
    pub has: usize,
    pub wanted: usize,
    /// One state for all parts.
    whole: Option<Part>,
}

impl Told {
    /// Nothing can be done, for this reason.
    pub fn all(part: &Part) -> Self {
        Self { whole: Some(part.clone()), ..Self::default() }
    }

    /// The first part that was not done yet fails, for this reason.
    pub fn fail(&mut self, why: &str) {
        let parts = [&mut self.config_map, &mut self.daemon_set, &mut self.hosts];
        if let Some(part) = parts.into_iter().find(|part| **part == Part::default()) {
            *part = Part::Fails(why.to_owned());
        }
    }

    fn parts(&self) -> [(&'static str, &Part); 3] {
        [(CONFIG_MAP_READY, &self.config_map), (DAEMON_SET_READY, &self.daemon_set), (BMH_READY, &self.hosts)]
    }

    /// The state of the whole: the first part that fails, else the first that waits.
    fn ready(&self) -> Part {
        if let Some(part) = &self.whole {
            return part.clone();
        }
        let parts = self.parts();
        let first = |what: What| parts.iter().find(|(_, part)| part.what() == what).map(|(_, part)| (*part).clone());
        let all = || Part::Done(self.hosts.words().to_owned());
        first(What::Failed).or_else(|| first(What::Progressing)).unwrap_or_else(all)
    }
}

fn status(object: &Vino, told: &Told, runtime: &str, now: Timestamp) -> VinoStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let condition = |kind: &'static str, part: &Part| NewCondition {
        kind,
        holds: part.what() == What::Succeeded,
        reason: part.what().word(),
        message: part.words().to_owned(),
        generation,
    };
    let ready = condition(READY, &told.ready());
    if told.whole.is_some() {
        let conditions = Some(merge(before.conditions.as_ref(), [ready], now));
        return VinoStatus { conditions, observed_generation: generation, ..before };
    }
    let parts = told.parts().map(|(kind, part)| condition(kind, part));
    let is_looked_at =
        told.hosts != Part::default() && !(told.nodes.is_empty() && matches!(told.hosts, Part::Fails(_)));
    let nodes = if is_looked_at { told.nodes.clone() } else { before.nodes };
    let accelerators: BTreeSet<&str> = nodes.iter().filter_map(|node| node.accelerator.as_deref()).collect();
    let accelerator = accelerators.into_iter().collect::<Vec<_>>().join(", ");
    let names = Names::of(object);
    VinoStatus {
        conditions: Some(merge(before.conditions.as_ref(), [ready].into_iter().chain(parts), now)),
        observed_generation: generation,
        config_map_ref: told.has_templates.then(|| ObjectRef {
            kind: "ConfigMap".to_owned(),
            namespace: runtime.to_owned(),
            name: names.libvirt,
        }),
        hosts: if is_looked_at { Some(format!("{}/{}", told.has, told.wanted)) } else { before.hosts },
        accelerator: (!accelerator.is_empty()).then_some(accelerator),
        nodes,
    }
}

impl Controller {
    /// Writes the status if it has changed, and an event if the reason or the text of a warning has changed.
    pub(super) async fn tell(&self, object: &Vino, told: Told) -> Result<(), ObjectError> {
        let before = object.status.clone().unwrap_or_default();
        let status = status(object, &told, &self.settings.ground.namespace, Timestamp::now());
        let ready = told.ready();
        let news = news(before.conditions.as_ref(), READY, ready.what(), ready.words());
        self.base.report(object, (&before, &status), news).await
    }
}

#[cfg(test)]
mod tests {
    use agent_api::meta::ConditionStatus;
    use agent_api::vino::spec::VinoSpec;

    use super::*;

    fn done(words: &str) -> Part {
        Part::Done(words.to_owned())
    }

    fn told(hosts: Part) -> Told {
        let node = |name: &str, accelerator: &str| VinoNode {
            name: name.to_owned(),
            hosts: 1,
            accelerator: Some(accelerator.to_owned()),
            why: None,
        };
        let nodes = vec![node("a", "tcg"), node("b", "kvm"), node("c", "tcg")];
        Told { config_map: done("a"), daemon_set: done("b"), hosts, nodes, has: 3, wanted: 5, ..Told::default() }
    }

    fn said(status: &VinoStatus) -> Vec<(&str, &str, bool)> {
        let all = status.conditions.iter().flatten();
        all.map(|it| (it.kind.as_str(), it.reason.as_str(), it.status == ConditionStatus::True)).collect()
    }

    #[test]
    fn all_is_ready_when_each_part_is_and_the_worst_part_says_why_not() {
        let object = Vino::new("v", VinoSpec::default());
        let status = |told: &Told| status(&object, told, "vino-system", Timestamp::UNIX_EPOCH);
        let good = status(&told(done("3 hosts are there")));
        assert_eq!(said(&good)[0], ("Ready", "ReconciliationSucceeded", true));
        assert_eq!((good.hosts.as_deref(), good.accelerator.as_deref()), (Some("3/5"), Some("kvm, tcg")));
        let waits = status(&told(Part::Waits("node `a` is at it".to_owned())));
        let expected = [
            ("Ready", "Progressing", false),
            ("ConfigMapReady", "ReconciliationSucceeded", true),
            ("DaemonSetReady", "ReconciliationSucceeded", true),
            ("BMHReady", "Progressing", false),
        ];
        assert_eq!(said(&waits), expected);
        let mut fails = told(Part::Waits("node `a` is at it".to_owned()));
        fails.daemon_set = Part::Fails("no".to_owned());
        let fails = status(&fails);
        assert_eq!(said(&fails)[0], ("Ready", "ReconciliationFailed", false));
        assert_eq!(fails.conditions.expect("conditions")[0].message, "no");
    }

    #[test]
    fn what_was_known_of_nodes_stays_while_nobody_looks_at_them() {
        let mut object = Vino::new("v", VinoSpec::default());
        object.status = Some(status(&object, &told(done("good")), "vino-system", Timestamp::UNIX_EPOCH));
        let refused = Told::all(&Part::Fails("two Vinos".to_owned()));
        let after = status(&object, &refused, "vino-system", Timestamp::UNIX_EPOCH);
        assert_eq!((after.nodes.len(), after.hosts.as_deref()), (3, Some("3/5")));
        let secret = Told { config_map: Part::Fails("no Secret".to_owned()), ..Told::default() };
        let after = status(&object, &secret, "vino-system", Timestamp::UNIX_EPOCH);
        assert_eq!((after.nodes.len(), after.hosts.as_deref()), (3, Some("3/5")));
    }
}
