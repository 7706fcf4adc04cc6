//! Helm's own commands, in order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_api::clusters::release::UnhealthyObject;
use anyhow::Context as _;
use serde_json::Value;

use super::look::Cluster;
use super::record::{documents, is_at_work};
use super::{ReleasePlan, Report, chart, images};
use crate::host::Runner;
use crate::steps::chain;

/// Longest run of a call of Helm that waits for nothing.
const CALL: Duration = Duration::from_secs(120);
/// What Helm is told about fields that somebody else changed, such as `kubectl edit` or an autoscaler: the release says how
/// they are, as it always did before Helm applied on the server. Objects that an older Helm applied itself are taken over.
const OURS: [&str; 2] = ["--server-side=true", "--force-conflicts"];
/// Objects that are named when something fails.
const NAMED: usize = 10;

/// What a pod works with.
pub struct Ground {
    /// Runs Helm.
    pub runner: Arc<dyn Runner>,
    /// The cluster.
    pub kubeconfig: PathBuf,
    /// For files of this run.
    pub work: PathBuf,
}

impl Ground {
    /// Helm's output.
    pub fn helm(&self, args: &[&str], within: Duration) -> anyhow::Result<Vec<u8>> {
        let words: Vec<&str> = [&["helm"], args].concat();
        Ok(self.runner.run(&words, b"", within)?.stdout)
    }

    /// Helm on the release, in its namespace of the cluster.
    fn on(&self, plan: &ReleasePlan, words: &[&str], more: &[&str], within: Duration) -> anyhow::Result<Vec<u8>> {
        let kubeconfig = self.kubeconfig.to_string_lossy();
        let place = ["--namespace", plan.namespace.as_str(), "--kubeconfig", &*kubeconfig];
        self.helm(&[words, &place, more].concat(), within)
    }
}

/// Installs or upgrades it, and tests it when that is asked for.
pub async fn apply(ground: &Ground, plan: &ReleasePlan) -> Report {
    let mut report = Report::default();
    if let Err(error) = try_apply(ground, plan, &mut report).await {
        report.error = Some(chain(&*error));
        report.unhealthy = unhealthy(ground, plan).await;
    }
    report
}

async fn try_apply(ground: &Ground, plan: &ReleasePlan, report: &mut Report) -> anyhow::Result<()> {
    let chart = chart::bring(ground, plan).await?;
    let chart = chart.to_string_lossy();
    let values = ground.work.join("values.json");
    // JSON is YAML.
    fs_err::write(&values, serde_json::to_vec(&plan.values)?)?;
    let values = values.to_string_lossy();
    let what = [plan.name.as_str(), &*chart, "--values", &*values];
    // As this cluster would have it: its version, and what it serves.
    let rendered =
        ground.on(plan, &[&["template"], &what[..]].concat(), &["--dry-run=server", "--include-crds"], CALL)?;
    images::check(&plan.registry, &String::from_utf8_lossy(&rendered)).await?;

    let timeout = format!("{}s", plan.timeout.as_secs());
    // Values that the spec no longer has go.
    let mut more = vec!["--reset-values", "--create-namespace", "--wait", "--timeout", &timeout, "--output", "json"];
    more.extend(OURS);
    if let Ok(before) = status(ground, plan) {
        // No other Helm runs: this is the only pod of the release.
        if is_at_work(before["info"]["status"].as_str().unwrap_or_default()) {
            cluster(ground).await?.unlock(&plan.namespace, &plan.name).await?;
        }
        // Without one before there is nothing to take back: what failed stays to be looked at.
        if plan.rollback {
            more.push("--rollback-on-failure");
        }
    }
    ground.on(plan, &[&["upgrade", "--install"], &what[..]].concat(), &more, plan.apply_limit())?;
    let status = status(ground, plan)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &status["chart"]["metadata"];
    report.chart = match metadata["name"].as_str() {
        Some(name) => format!("{name}-{}", text(&metadata["version"])),
        None => text(&status["chart"]),
    };
    report.revision = status["version"].as_i64().unwrap_or_default();
    report.objects = documents(status["manifest"].as_str().unwrap_or_default())?.len();
    if plan.test {
        let tested = ground.on(plan, &["test", &plan.name], &["--timeout", &timeout], plan.limit());
        report.tested = Some(tested.is_ok());
        tested.context("the tests of the chart")?;
    }
    Ok(())
}

/// Helm's status of the release.
fn status(ground: &Ground, plan: &ReleasePlan) -> anyhow::Result<Value> {
    let told = ground.on(plan, &["status", &plan.name], &["--output", "json"], CALL)?;
    serde_json::from_slice(&told).context("reading what `helm status` says")
}

/// The cluster.
async fn cluster(ground: &Ground) -> anyhow::Result<Cluster> {
    Cluster::of(&fs_err::read_to_string(&ground.kubeconfig)?).await
}

/// The objects that are not healthy, if the cluster answers.
async fn unhealthy(ground: &Ground, plan: &ReleasePlan) -> Vec<UnhealthyObject> {
    let asked = async {
        let cluster = cluster(ground).await?;
        match cluster.record(&plan.namespace, &plan.name).await? {
            Some(record) => cluster.unhealthy(&plan.namespace, &record).await,
            None => Ok(Vec::new()),
        }
    };
    let mut found = asked.await.unwrap_or_default();
    found.truncate(NAMED);
    found
}

/// Uninstalls it. It is no error if it is not installed.
pub fn remove(ground: &Ground, plan: &ReleasePlan) -> Report {
    let timeout = format!("{}s", plan.timeout.as_secs());
    let more = ["--ignore-not-found", "--wait", "--timeout", timeout.as_str()];
    let removed = ground.on(plan, &["uninstall", &plan.name], &more, plan.limit());
    Report { error: removed.err().map(|error| chain(&*error)), ..Report::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::command::Deed;
    use super::super::{GRACE, Source};
    use super::*;
    use crate::host::runner::FakeRunner;

    fn plan() -> ReleasePlan {
        ReleasePlan {
            name: "web".to_owned(),
            namespace: "apps".to_owned(),
            source: Source::Manifests(Vec::new()),
            values: Map::new(),
            timeout: Duration::from_secs(90),
            rollback: true,
            test: true,
            content: "http://127.0.0.1:1".to_owned(),
            registry: "127.0.0.1:1".to_owned(),
        }
    }

    fn ground(runner: &Arc<FakeRunner>, dir: &std::path::Path) -> Ground {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ground { runner: Arc::clone(runner) as _, kubeconfig: dir.join("kubeconfig"), work: dir.to_owned() }
    }

    const STATUS: &str = r#"{"name":"web","version":3,"chart":{"metadata":{"name":"web","version":"1.2.0"}},
        "manifest":"---\nkind: A\nmetadata: {name: a}\n---\nkind: B\nmetadata: {name: b}\n"}"#;

    #[tokio::test]
    async fn helm_is_asked_in_order_and_its_words_become_the_report() {
        let dir = tempfile::tempdir().expect("a folder");
        let runner = Arc::new(FakeRunner::default().answer("helm status", STATUS).answer("helm status", STATUS));
        let report = apply(&ground(&runner, dir.path()), &plan()).await;
        let expected =
            Report { chart: "web-1.2.0".to_owned(), revision: 3, objects: 2, tested: Some(true), ..Report::default() };
        assert_eq!(report, expected);
        let calls = runner.calls();
        let verbs: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').nth(1)).collect();
        assert_eq!(verbs, ["template", "status", "upgrade", "status", "test"]);
        for word in ["--rollback-on-failure", "--timeout 90s", "--server-side=true --force-conflicts", "--reset-values"]
        {
            assert!(calls[2].contains(word), "{word}: {}", calls[2]);
        }
        assert!(calls.iter().all(|call| call.contains("--namespace apps --kubeconfig")), "{calls:?}");
    }

    #[tokio::test]
    async fn a_release_that_a_helm_left_locked_is_unlocked_before_helm_is_asked_again() {
        let dir = tempfile::tempdir().expect("a folder");
        for (state, locked) in [("pending-upgrade", true), ("pending-install", true), ("failed", false)] {
            let status = STATUS.replacen('{', &format!(r#"{{"info":{{"status":"{state}"}},"#), 1);
            let runner = Arc::new(FakeRunner::default().answer("helm status", &status).answer("helm status", STATUS));
            // There is no cluster that could be asked to.
            let report = apply(&ground(&runner, dir.path()), &plan()).await;
            let tried = report.error.is_some_and(|error| error.contains("kubeconfig"));
            let went_on = runner.calls().iter().any(|call| call.starts_with("helm upgrade"));
            assert_eq!((tried, went_on), (locked, !locked), "{state}");
        }
    }

    #[test]
    fn helm_has_its_timeout_for_each_of_its_parts_and_the_pod_outlives_helm() {
        let secs = Duration::from_secs;
        let mut plan = plan();
        assert_eq!((plan.limit(), plan.apply_limit()), (secs(3 * 90 + 60), secs(2 * (3 * 90 + 60))));
        assert!(plan.pod_limit(Deed::Apply) > plan.apply_limit() + plan.limit() + 2 * GRACE);
        assert!(plan.pod_limit(Deed::Remove) > plan.limit() + GRACE);
        (plan.rollback, plan.timeout) = (false, Duration::MAX);
        assert_eq!(plan.apply_limit(), secs(7 * 24 * 3600));
    }

    #[tokio::test]
    async fn what_fails_is_told_and_what_was_never_there_is_not_taken_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let fails =
            FakeRunner::default().fail("helm status", 1, "release: not found").fail("helm upgrade", 1, "no room");
        let runner = Arc::new(fails);
        let report = apply(&ground(&runner, dir.path()), &plan()).await;
        assert!(report.error.as_ref().is_some_and(|error| error.contains("no room")), "{report:?}");
        let upgrade = runner.calls().into_iter().find(|call| call.starts_with("helm upgrade")).expect("a call");
        assert!(!upgrade.contains("--rollback-on-failure"), "{upgrade}");
        let removed = remove(&ground(&runner, dir.path()), &plan());
        assert_eq!(removed.error, None);
        assert!(runner.calls().last().expect("a call").contains("uninstall web --namespace apps"));
    }
}
