//! Queue and turns of releases.

use std::time::Duration;

use agent_api::clusters::release::{ClusterRelease, DriftMode, FINALIZER, Installed};

use super::act::JobState;
use super::decide::{self, plan};
use super::look::Found;
use super::tell::{Told, What};
use crate::helm::command::Deed;
use crate::helm::look::Cluster;
use crate::operators::kit::{Base, Failures, Next, Object as _, ObjectError, Turn};
use crate::operators::kpa::Settings;
use crate::steps::chain;

/// Pause until what is missing is looked for again.
const SOON: Duration = Duration::from_secs(15);
/// Pause until a Job that runs is looked at again.
const RUNS: Duration = Duration::from_secs(2);

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
        if let Some(old) = installed.filter(|old| *old != wanted) {
            return self.move_away(&object, &old).await;
        }
        self.bring(&object, &found, &wanted).await
    }
}

impl Controller {
    /// Installs or upgrades the release if it is not as the spec says; else looks at the cluster.
    async fn bring(&self, object: &ClusterRelease, found: &Found, wanted: &Installed) -> Result<Next, ObjectError> {
        let plan = plan(object, found.values.clone(), self.settings.address);
        let digest = decide::digest(&plan, wanted);
        let status = object.status.clone().unwrap_or_default();
        if status.last_applied.as_deref() == Some(&*digest) {
            match self.compare(object, found, &plan.namespace, &plan.name).await {
                Ok(Some(told)) => {
                    self.failures.none(&object.key());
                    self.tell(object, told).await?;
                    return Ok(Next::requeue(object.spec.interval()));
                }
                Ok(None) => {}
                Err(error) => {
                    self.tell(object, Told::new(What::Unreachable, chain(&*error))).await?;
                    return Ok(Next::requeue(SOON));
                }
            }
        }
        let job = decide::job_name(object, &digest, &status);
        match self.job(object, &job, Deed::Apply, &plan, &found.kubeconfig).await? {
            JobState::Runs(how) => {
                let verb = if status.revision.is_some() { "upgrades" } else { "installs" };
                self.tell(object, Told::new(What::Working, format!("Helm {verb} it{how}"))).await?;
                Ok(Next::requeue(RUNS))
            }
            JobState::Ended(report) => {
                let told = Told::of_report(&report, &digest, wanted, &status);
                let failed = report.error.is_some();
                self.tell(object, told).await?;
                // Only what was told is forgotten: a controller that ends in between reads the report again.
                self.clear(object, &job).await?;
                if failed {
                    return Ok(Next::requeue(self.failures.one_more(object)));
                }
                self.failures.none(&object.key());
                Ok(Next::requeue(object.spec.interval()))
            }
        }
    }

    /// Tells the state of the installed release. `None`: it must be installed once more.
    async fn compare(
        &self,
        object: &ClusterRelease,
        found: &Found,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<Option<Told>> {
        let cluster = Cluster::of(&found.kubeconfig).await?;
        let Some(record) = cluster.record(namespace, name).await? else { return Ok(None) };
        let mode = object.spec.drift();
        let drifted = match mode {
            DriftMode::Disabled => Vec::new(),
            DriftMode::Enabled | DriftMode::Warn => cluster.drifted(namespace, &record).await?,
        };
        if mode == DriftMode::Enabled && !drifted.is_empty() {
            return Ok(None);
        }
        let unhealthy = cluster.unhealthy(namespace, &record).await?;
        Ok(Some(Told::of_look(record.revision, record.objects.len(), unhealthy, &drifted)))
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
        if let Some(left) = self.failures.left(object) {
            return Ok(Next::requeue(left));
        }
        // What never came to a report may have begun.
        let installed = object.status.as_ref().and_then(|status| status.installed.clone());
        let installed = installed.unwrap_or_else(|| Installed::of(object));
        if let Some(next) = self.uninstall(object, &installed).await? {
            return Ok(next);
        }
        self.failures.none(&object.key());
        self.base.objects.let_go(object, FINALIZER).await?;
        Ok(Next::await_change())
    }

    /// Starts Helm's removal of the release, and tells how far it is. `None`: the release is gone, or its cluster is. Else:
    /// when to look again.
    async fn uninstall(&self, object: &ClusterRelease, installed: &Installed) -> Result<Option<Next>, ObjectError> {
        let (namespace, _) = object.key();
        let Ok(kubeconfig) = self.kubeconfig(&namespace, installed).await? else { return Ok(None) };
        let mut plan = plan(object, serde_json::Map::new(), self.settings.address);
        (plan.namespace, plan.name) = (installed.namespace.clone(), installed.name.clone());
        let status = object.status.clone().unwrap_or_default();
        let job = decide::job_name(object, &decide::digest(&plan, installed), &status);
        match self.job(object, &job, Deed::Remove, &plan, &kubeconfig).await? {
            JobState::Runs(how) => {
                self.tell(object, Told::new(What::Removing, format!("Helm removes `{installed}`{how}"))).await?;
                Ok(Some(Next::requeue(RUNS)))
            }
            JobState::Ended(report) => {
                self.clear(object, &job).await?;
                let Some(why) = report.error else { return Ok(None) };
                self.tell(object, Told::new(What::Removing, why)).await?;
                Ok(Some(Next::requeue(self.failures.one_more(object))))
            }
        }
    }
}
