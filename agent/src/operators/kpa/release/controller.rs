//! Queue and turns of releases.

use std::time::Duration;

use agent_api::clusters::release::{ClusterRelease, DriftMode, FINALIZER, Installed};
use k8s_openapi::api::batch::v1::Job;

use super::act::{JobState, OwnJob, Work};
use super::decide::{self, plan};
use super::look::Found;
use super::tell::{Told, What, named};
use crate::helm::command::Deed;
use crate::helm::look::Cluster;
use crate::operators::kit::{Base, Failures, Next, Object as _, ObjectError, Turn};
use crate::operators::kpa::Settings;
use crate::steps::chain;

/// Pause until what is missing is looked for again.
const SOON: Duration = Duration::from_secs(15);
/// Pause until a Job that runs is looked at again.
const RUNS: Duration = Duration::from_secs(2);

/// What is said while a Job of another spec, or for another deed, ends.
const BEFORE: &str = "the Helm before is ended first";

/// What a look at the cluster found.
enum Compared {
    /// What was installed.
    Same(Box<Told>),
    /// Something else, for this reason: it must be installed once more.
    Other(String),
}

/// The controller.
pub(super) struct Controller {
    pub base: Base,
    pub failures: Failures,
    pub settings: Settings,
}

/// Runs the controller of releases.
pub async fn run(base: Base, settings: &Settings) {
    let (store, changed) = base.changed::<ClusterRelease>();
    let controller = Controller { base: base.clone(), failures: Failures::default(), settings: settings.clone() };
    base.run(controller, store, vec![changed]).await;
}

impl Turn for Controller {
    type Kind = ClusterRelease;

    async fn turn(&self, object: ClusterRelease) -> Result<Next, ObjectError> {
        if object.leaves() {
            return self.leave(&object).await;
        }
        if object.spec.suspend {
            self.tell(&object, Told::new(What::Suspended, "`spec.suspend` is true")).await?;
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        let wrong = object.spec.wrong();
        if !wrong.is_empty() {
            self.tell(&object, Told::new(What::Invalid, wrong.join("\n"))).await?;
            return Ok(Next::await_change());
        }
        let found = match self.look(&object).await? {
            Ok(found) => found,
            Err(why) => {
                self.tell(&object, Told::new(What::Waiting, why)).await?;
                return Ok(Next::requeue(SOON));
            }
        };
        let object = self.base.objects.hold(&object, FINALIZER).await?;
        let wanted = Installed::of(&object);
        let installed = object.status.as_ref().and_then(|status| status.installed.clone());
        if let Some(old) = installed.filter(|old| *old != wanted)
            && !self.is_same(&object, (&old, &wanted), &found).await?
        {
            return self.move_away(&object, &old).await;
        }
        self.bring(&object, &found, &wanted).await
    }
}

impl Controller {
    /// Whether two places are one: the same cluster by another name.
    async fn is_same(
        &self,
        object: &ClusterRelease,
        (old, wanted): (&Installed, &Installed),
        found: &Found,
    ) -> Result<bool, ObjectError> {
        if (&old.namespace, &old.name) != (&wanted.namespace, &wanted.name) {
            return Ok(false);
        }
        let (namespace, _) = object.key();
        let before = self.kubeconfig(&namespace, old).await?;
        Ok(before.is_ok_and(|before| decide::one_cluster(&before, &found.kubeconfig)))
    }

    /// Installs or upgrades the release if it is not as the spec says; else looks at the cluster.
    async fn bring(&self, object: &ClusterRelease, found: &Found, wanted: &Installed) -> Result<Next, ObjectError> {
        let plan = plan(object, found.values.clone(), self.settings.address);
        let digest = decide::digest(&plan, wanted);
        let status = object.status.clone().unwrap_or_default();
        let attempt = decide::attempt(Deed::Apply, &digest, &status);
        match self.own_job(object, Some(&attempt)).await? {
            OwnJob::Absent => {}
            OwnJob::This(job) => return self.follow(object, &job, (&digest, wanted)).await,
            OwnJob::Ends => {
                self.tell(object, Told::new(What::Working, BEFORE)).await?;
                return Ok(Next::requeue(RUNS));
            }
        }
        let mut because = String::new();
        if status.last_applied.as_deref() == Some(&*digest) {
            match self.compare(object, found, wanted).await {
                Ok(Compared::Same(told)) => {
                    self.failures.none(&object.key());
                    self.tell(object, *told).await?;
                    return Ok(Next::requeue(object.spec.interval()));
                }
                Ok(Compared::Other(why)) => because = format!(", because {why}"),
                Err(error) => {
                    self.tell(object, Told::new(What::Unreachable, chain(&*error))).await?;
                    return Ok(Next::requeue(SOON));
                }
            }
        }
        let verb = if status.revision.is_some() { "upgrades" } else { "installs" };
        let says = format!("Helm {verb} it{because}");
        self.tell(object, Told::begins(&says, wanted)).await?;
        let kubeconfig = &found.kubeconfig;
        let work = Work { deed: Deed::Apply, attempt: &attempt, says: &says, plan: &plan, kubeconfig };
        self.start(object, &work).await?;
        Ok(Next::requeue(RUNS))
    }

    /// Tells how far the Job that installs or upgrades is. Once it has ended, it goes.
    async fn follow(
        &self,
        object: &ClusterRelease,
        job: &Job,
        (digest, wanted): (&str, &Installed),
    ) -> Result<Next, ObjectError> {
        match self.state_of(job).await? {
            JobState::Runs(how) => {
                self.tell(object, Told::new(What::Working, how)).await?;
                Ok(Next::requeue(RUNS))
            }
            JobState::Ended(report) => {
                let status = object.status.clone().unwrap_or_default();
                let told = Told::of_report(&report, digest, wanted, &status);
                let failed = report.error.is_some();
                self.tell(object, told).await?;
                // Only what was told is forgotten: a controller that ends in between reads the report again.
                self.clear(object).await?;
                if failed {
                    return Ok(Next::requeue(self.failures.one_more(object)));
                }
                self.failures.none(&object.key());
                Ok(Next::requeue(object.spec.interval()))
            }
        }
    }

    /// Compares the cluster with what was installed there.
    async fn compare(&self, object: &ClusterRelease, found: &Found, place: &Installed) -> anyhow::Result<Compared> {
        let cluster = Cluster::of(&found.kubeconfig).await?;
        let namespace = &place.namespace;
        let Some(record) = cluster.record(namespace, &place.name).await? else {
            return Ok(Compared::Other("somebody uninstalled it".to_owned()));
        };
        let revision = object.status.as_ref().and_then(|status| status.revision);
        if let Some(why) = record.differs(revision) {
            return Ok(Compared::Other(why));
        }
        let mode = object.spec.drift();
        let drifted = match mode {
            DriftMode::Disabled => Vec::new(),
            DriftMode::Enabled | DriftMode::Warn => cluster.drifted(namespace, &record).await?,
        };
        if mode == DriftMode::Enabled && !drifted.is_empty() {
            return Ok(Compared::Other(named(&drifted)));
        }
        let unhealthy = cluster.unhealthy(namespace, &record).await?;
        let told = Told::of_look(record.revision, record.objects.len(), unhealthy, &drifted);
        Ok(Compared::Same(Box::new(told)))
    }

    /// Uninstalls the release from the cluster or namespace that the spec named before, if that has changed.
    async fn move_away(&self, object: &ClusterRelease, old: &Installed) -> Result<Next, ObjectError> {
        if let Some(next) = self.uninstall(object, old).await? {
            return Ok(next);
        }
        self.tell(object, Told::moves()).await?;
        Ok(Next::requeue(Duration::ZERO))
    }

    /// Uninstalls it, then lets its object go.
    async fn leave(&self, object: &ClusterRelease) -> Result<Next, ObjectError> {
        if !object.held_by(FINALIZER) {
            return Ok(Next::await_change());
        }
        if object.spec.suspend {
            return self.leave_it_there(object).await;
        }
        if let Some(left) = self.failures.left(object) {
            return Ok(Next::requeue(left));
        }
        // What was never begun is nowhere.
        if let Some(installed) = object.status.as_ref().and_then(|status| status.installed.clone())
            && let Some(next) = self.uninstall(object, &installed).await?
        {
            return Ok(next);
        }
        self.failures.none(&object.key());
        self.base.objects.let_go(object, FINALIZER).await?;
        Ok(Next::await_change())
    }

    /// Lets its object go, with what is of ours, and leaves what is installed as it is.
    async fn leave_it_there(&self, object: &ClusterRelease) -> Result<Next, ObjectError> {
        self.tell(object, Told::new(What::Suspended, "`spec.suspend` is true: what is installed stays")).await?;
        if self.own_job(object, None).await? != OwnJob::Absent {
            return Ok(Next::requeue(RUNS));
        }
        self.clear(object).await?;
        self.failures.none(&object.key());
        self.base.objects.let_go(object, FINALIZER).await?;
        Ok(Next::await_change())
    }

    /// Starts Helm's removal of the release, and tells how far it is. `None`: the release is gone, or its cluster is. Else:
    /// when to look again.
    async fn uninstall(&self, object: &ClusterRelease, installed: &Installed) -> Result<Option<Next>, ObjectError> {
        let mut plan = plan(object, serde_json::Map::new(), self.settings.address);
        (plan.namespace, plan.name) = (installed.namespace.clone(), installed.name.clone());
        let status = object.status.clone().unwrap_or_default();
        let attempt = decide::attempt(Deed::Remove, &decide::digest(&plan, installed), &status);
        let how = match self.own_job(object, Some(&attempt)).await? {
            OwnJob::Ends => BEFORE.to_owned(),
            OwnJob::This(job) => match self.state_of(&job).await? {
                JobState::Runs(how) => how,
                JobState::Ended(report) => {
                    self.clear(object).await?;
                    let Some(why) = report.error else { return Ok(None) };
                    self.tell(object, Told::new(What::Removing, stuck(object, why))).await?;
                    return Ok(Some(Next::requeue(self.failures.one_more(object))));
                }
            },
            OwnJob::Absent => {
                let (namespace, _) = object.key();
                let kubeconfig = match self.kubeconfig(&namespace, installed).await? {
                    Ok(kubeconfig) => kubeconfig,
                    Err(_) if self.is_gone(&namespace, installed).await? => return Ok(None),
                    // A cluster whose kubeconfig is lost has one again soon.
                    Err(why) => {
                        self.tell(object, Told::new(What::Removing, stuck(object, why))).await?;
                        return Ok(Some(Next::requeue(SOON)));
                    }
                };
                let says = format!("Helm removes `{installed}`");
                let (attempt, kubeconfig) = (&*attempt, &*kubeconfig);
                let work = Work { deed: Deed::Remove, attempt, says: &says, plan: &plan, kubeconfig };
                self.start(object, &work).await?;
                says
            }
        };
        self.tell(object, Told::new(What::Removing, how)).await?;
        Ok(Some(Next::requeue(RUNS)))
    }
}

/// Why a release is not removed, and what helps if it never will be.
fn stuck(object: &ClusterRelease, why: String) -> String {
    if object.leaves() {
        format!("{why}\nhint: `suspend: true` lets the object go, and leaves what is installed")
    } else {
        why
    }
}
