//! The status of releases, their conditions and events.

use agent_api::clusters::provisioning::READY;
use agent_api::clusters::release::{ClusterRelease, Installed, ReleaseStatus, TEST_SUCCESS, UnhealthyObject};
use agent_api::meta::Time;
use jiff::Timestamp;

use super::controller::Controller;
use crate::helm::Report;
use crate::operators::kit::conditions::{merge, news};
use crate::operators::kit::{NewCondition, ObjectError, Reason};

/// Drifted objects that are named.
const NAMED: usize = 5;

/// The state of a release: the reason of its condition and of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The spec is wrong.
    Invalid,
    /// The spec suspends it: nothing is done.
    Suspended,
    /// Something else must be there first.
    Waiting,
    /// Helm is at work.
    Working,
    /// Helm failed; it is tried again.
    Failing,
    /// The cluster does not answer.
    Unreachable,
    /// It is installed, and an object of it is not well.
    Unhealthy,
    /// It is installed, and somebody changed an object of it.
    Drifted,
    /// It is installed, and all is well.
    Installed,
    /// It is being uninstalled.
    Removing,
}

impl Reason for What {
    fn word(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidSpec",
            Self::Suspended => "Suspended",
            Self::Waiting => "DependencyNotReady",
            Self::Working => "Progressing",
            Self::Failing => "InstallFailed",
            Self::Unreachable => "ClusterUnreachable",
            Self::Unhealthy => "Unhealthy",
            Self::Drifted => "DriftDetected",
            Self::Installed => "InstallSucceeded",
            Self::Removing => "Uninstalling",
        }
    }

    fn is_warning(self) -> bool {
        matches!(self, Self::Invalid | Self::Failing | Self::Unreachable | Self::Unhealthy | Self::Drifted)
    }
}

/// Where the release is installed.
enum Place {
    /// As the status says.
    AsBefore,
    /// In this place.
    At(Installed),
    /// It is not installed any more.
    Nowhere,
}

/// What is written into the status of a release. A field that is `None` stays as it is.
pub(super) struct Told {
    what: What,
    why: String,
    chart: Option<String>,
    revision: Option<i64>,
    objects: Option<i64>,
    unhealthy: Vec<UnhealthyObject>,
    applied: Option<String>,
    tested: Option<bool>,
    failures: Option<i64>,
    looked: bool,
    place: Place,
}

impl Told {
    pub fn new(what: What, why: impl Into<String>) -> Self {
        Self {
            what,
            why: why.into(),
            chart: None,
            revision: None,
            objects: None,
            unhealthy: Vec::new(),
            applied: None,
            tested: None,
            failures: None,
            looked: false,
            place: Place::AsBefore,
        }
    }

    /// It is begun in this place. This is told before it is: what is not known to be somewhere is never uninstalled there.
    pub fn begins(why: impl Into<String>, place: &Installed) -> Self {
        Self { place: Place::At(place.clone()), ..Self::new(What::Working, why) }
    }

    /// It was uninstalled, and will be installed in another place.
    pub fn moves() -> Self {
        Self { place: Place::Nowhere, ..Self::new(What::Working, "it moves") }
    }

    /// The result of a pod of Helm. Even a failed one may have installed something.
    pub fn of_report(report: &Report, digest: &str, installed: &Installed, before: &ReleaseStatus) -> Self {
        let told = |what, why: String| Self {
            tested: report.tested,
            unhealthy: report.unhealthy.clone(),
            place: Place::At(installed.clone()),
            ..Self::new(what, why)
        };
        if let Some(error) = &report.error {
            let failures = Some(before.failures.unwrap_or_default() + 1);
            return Self { failures, ..told(What::Failing, with(error, &report.unhealthy)) };
        }
        let objects = i64::try_from(report.objects).unwrap_or(i64::MAX);
        Self {
            chart: Some(report.chart.clone()),
            revision: Some(report.revision),
            objects: Some(objects),
            applied: Some(digest.to_owned()),
            failures: Some(0),
            looked: true,
            ..told(What::Installed, format!("{} with {objects} objects, revision {}", report.chart, report.revision))
        }
    }

    /// The state of an installed release in its cluster.
    pub fn of_look(revision: i64, objects: usize, unhealthy: Vec<UnhealthyObject>, drifted: &[String]) -> Self {
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        let (what, why) = if let [first, ..] = unhealthy.as_slice() {
            let more = unhealthy.len() - 1;
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            (What::Unhealthy, format!("{}: {}{more}", first.object, first.message))
        } else if drifted.is_empty() {
            (What::Installed, format!("{objects} objects are well, revision {revision}"))
        } else {
            (What::Drifted, named(drifted))
        };
        Self { revision: Some(revision), objects: Some(objects), unhealthy, looked: true, ..Self::new(what, why) }
    }
}

/// Drifted objects in one line.
pub(super) fn named(drifted: &[String]) -> String {
    drifted.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ")
}

/// An error, and the objects that hold it up.
fn with(error: &str, unhealthy: &[UnhealthyObject]) -> String {
    let all: Vec<String> = unhealthy.iter().map(|one| format!("{}: {}", one.object, one.message)).collect();
    if all.is_empty() { error.to_owned() } else { format!("{}\n{error}", all.join("\n")) }
}

fn status(object: &ClusterRelease, told: Told, now: Timestamp) -> ReleaseStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let holds = matches!(told.what, What::Installed | What::Drifted);
    let condition =
        |kind, holds, message: String| NewCondition { kind, holds, reason: told.what.word(), message, generation };
    let tested = told.tested.map(|passed| {
        condition(TEST_SUCCESS, passed, if passed { "the tests passed" } else { "a test failed" }.to_owned())
    });
    let ready = condition(READY, holds, told.why.clone());
    ReleaseStatus {
        conditions: Some(merge(before.conditions.as_ref(), [ready].into_iter().chain(tested), now)),
        observed_generation: generation,
        chart: told.chart.or(before.chart),
        revision: told.revision.or(before.revision),
        objects: told.objects.or(before.objects),
        unhealthy: told.unhealthy,
        last_applied: told.applied.or(before.last_applied),
        installed: match told.place {
            Place::AsBefore => before.installed,
            Place::At(place) => Some(place),
            Place::Nowhere => None,
        },
        last_checked: if told.looked { Some(Time(now)) } else { before.last_checked },
        failures: told.failures.or(before.failures),
    }
}

impl Controller {
    /// Writes the status if it has changed, and an event if the reason or the text of a warning has changed.
    pub(super) async fn tell(&self, object: &ClusterRelease, told: Told) -> Result<(), ObjectError> {
        let before = object.status.clone().unwrap_or_default();
        let news = news(before.conditions.as_ref(), READY, told.what, &told.why);
        let status = status(object, told, Timestamp::now());
        self.base.report(object, (&before, &status), news).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhealthy() -> Vec<UnhealthyObject> {
        vec![UnhealthyObject { object: "Deployment a/web".to_owned(), message: "0 of 1 pods are ready".to_owned() }]
    }

    #[test]
    fn a_release_that_fails_says_which_object_and_why_and_keeps_what_worked() {
        let mut object = ClusterRelease::new("web", agent_api::clusters::release::ReleaseSpec::default());
        let now = Timestamp::UNIX_EPOCH;
        let good = Report { chart: "web-1.0.0".to_owned(), revision: 2, objects: 3, ..Report::default() };
        let installed = Installed::of(&object);
        let told = Told::of_report(&good, "d1", &installed, &ReleaseStatus::default());
        object.status = Some(status(&object, told, now));
        let bad = Report { error: Some("timed out".to_owned()), unhealthy: unhealthy(), ..Report::default() };
        let told = Told::of_report(&bad, "d2", &installed, object.status.as_ref().expect("a status"));
        let failed = status(&object, told, now);
        let ready = &failed.conditions.as_ref().expect("conditions")[0];
        assert_eq!(ready.message, "Deployment a/web: 0 of 1 pods are ready\ntimed out");
        assert_eq!((ready.reason.as_str(), failed.failures), ("InstallFailed", Some(1)));
        assert_eq!((failed.last_applied.as_deref(), failed.revision), (Some("d1"), Some(2)));
    }

    #[test]
    fn where_it_goes_is_known_before_it_goes_there() {
        let mut object = ClusterRelease::new("web", agent_api::clusters::release::ReleaseSpec::default());
        let place = Installed::of(&object);
        let now = Timestamp::UNIX_EPOCH;
        object.status = Some(status(&object, Told::begins("Helm installs it", &place), now));
        assert_eq!(object.status.as_ref().and_then(|status| status.installed.as_ref()), Some(&place));
        let works = status(&object, Told::new(What::Working, "Helm installs it"), now);
        assert_eq!((works.installed, works.last_applied), (Some(place), None));
        assert_eq!(status(&object, Told::moves(), now).installed, None);
    }

    #[test]
    fn what_the_cluster_says_is_told() {
        let what = |unhealthy, drifted: &[String]| Told::of_look(1, 3, unhealthy, drifted).what;
        assert_eq!(what(unhealthy(), &[]), What::Unhealthy);
        assert_eq!(what(Vec::new(), &["Deployment a/web was changed".to_owned()]), What::Drifted);
        assert_eq!(what(Vec::new(), &[]), What::Installed);
    }
}
