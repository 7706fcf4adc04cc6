//! The Job that runs Helm, the Secret that it reads, and its report.

use agent_api::clusters::release::ClusterRelease;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::controller::Controller;
use super::decide::job_name;
use crate::helm::command::Deed;
use crate::helm::{GRACE, ReleasePlan, Report};
use crate::operators::kit::{Object as _, ObjectError, doing};
use crate::operators::kpa::run::MANAGER;
use crate::services::deployed::USER;

/// What the Job is for.
const ATTEMPT: &str = "kpa.foothold.dev/attempt";
/// What the release says while the Job runs.
const SAYS: &str = "kpa.foothold.dev/says";
/// How much longer than Helm the pod may take to end, in seconds.
const REPORTS: u64 = 30;

/// What the Job of a release is to do.
pub(super) struct Work<'a> {
    pub deed: Deed,
    /// Its name among all that Jobs of this release ever do.
    pub attempt: &'a str,
    /// What the release says meanwhile.
    pub says: &'a str,
    pub plan: &'a ReleasePlan,
    pub kubeconfig: &'a str,
}

/// The Job of a release. There is no second one.
#[derive(Debug, PartialEq)]
pub(super) enum OwnJob {
    /// It does not exist, and no pod of it.
    Absent,
    /// It is that of the attempt.
    This(Box<Job>),
    /// It is of another attempt, and its pod may still run.
    Ends,
}

/// The state of the Job.
pub(super) enum JobState {
    /// It runs: what the release says meanwhile, and if something holds it up, what.
    Runs(String),
    /// It has ended.
    Ended(Report),
}

impl Controller {
    /// The Job of this attempt. One of any other attempt is ended, and is there until its pod is gone.
    pub(super) async fn own_job(&self, object: &ClusterRelease, attempt: Option<&str>) -> Result<OwnJob, ObjectError> {
        let ((namespace, _), name) = (object.key(), job_name(object));
        let Some(job) = self.base.objects.get::<Job>(&namespace, &name).await? else { return Ok(OwnJob::Absent) };
        if job.leaves() {
            return Ok(OwnJob::Ends);
        }
        if is_of(&job, attempt) {
            return Ok(OwnJob::This(Box::new(job)));
        }
        let jobs = self.base.objects.api::<Job>(&namespace);
        match jobs
            .delete(&name, &DeleteParams::foreground())
            .await
            .map_err(doing(format!("ending Job `{namespace}/{name}`")))
        {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
        self.base.objects.delete::<Secret>(&namespace, &name).await?;
        Ok(OwnJob::Ends)
    }

    /// Starts the Job. There must be none.
    pub(super) async fn start(&self, object: &ClusterRelease, work: &Work<'_>) -> Result<(), ObjectError> {
        let (namespace, _) = object.key();
        let (secret, job) = made(object, work, &self.settings.helm);
        self.base.objects.apply(&secret, MANAGER).await?;
        // Not applied: a Job of this name that came meanwhile is a conflict.
        let created = self.base.objects.api::<Job>(&namespace).create(&PostParams::default(), &job).await;
        created.map(drop).map_err(doing(format!("creating Job `{namespace}/{}`", job.name_any())))
    }

    /// The state of the Job.
    pub(super) async fn state_of(&self, job: &Job) -> Result<JobState, ObjectError> {
        let look = self.base.objects.look_at(job).await?;
        let Some(ended) = look.ended.clone() else {
            let says = job.annotations().get(SAYS).cloned().unwrap_or_default();
            let held_up = look.held_up().map(|why| format!(": {why}")).unwrap_or_default();
            return Ok(JobState::Runs(format!("{says}{held_up}")));
        };
        let terminated = look.terminated();
        let report = terminated["message"].as_str().and_then(|message| serde_json::from_str(message).ok());
        Ok(JobState::Ended(report.unwrap_or_else(|| {
            let why = look.held_up().unwrap_or_else(|| ended.message.clone());
            let said = terminated["reason"].as_str().unwrap_or("no report");
            Report {
                error: Some(format!("the pod of Helm ended without a report ({said}): {why}")),
                ..Report::default()
            }
        })))
    }

    /// Removes a Job that has ended, its pod and its Secret.
    pub(super) async fn clear(&self, object: &ClusterRelease) -> Result<(), ObjectError> {
        let ((namespace, _), name) = (object.key(), job_name(object));
        self.base.objects.delete::<Job>(&namespace, &name).await?;
        self.base.objects.delete::<Secret>(&namespace, &name).await
    }
}

/// Whether a Job is that of the attempt.
fn is_of(job: &Job, attempt: Option<&str>) -> bool {
    attempt.is_some() && job.annotations().get(ATTEMPT).map(String::as_str) == attempt
}

/// The Secret and the Job.
fn made(object: &ClusterRelease, work: &Work<'_>, image: &str) -> (Secret, Job) {
    let ((namespace, _), name) = (object.key(), job_name(object));
    let metadata = json!({
        "name": name, "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": MANAGER},
        "annotations": {ATTEMPT: work.attempt, SAYS: work.says},
        "ownerReferences": object.controller_owner_ref(&()).map(|owner| vec![owner]),
    });
    let secret = json!({"metadata": metadata, "type": "Opaque", "stringData": {
        "plan.json": serde_json::to_string(work.plan).unwrap_or_default(), "kubeconfig": work.kubeconfig}});
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let job = json!({"metadata": metadata, "spec": {
        "backoffLimit": 0,
        "activeDeadlineSeconds": work.plan.pod_limit(work.deed).as_secs(),
        "template": {"metadata": {"labels": {"app.kubernetes.io/managed-by": MANAGER}}, "spec": {
            "restartPolicy": "Never",
            // Helm is asked to end, records how far it came, and the report says so.
            "terminationGracePeriodSeconds": GRACE.as_secs() + REPORTS,
            // As the box itself: clusters know its address, and firewalls of theirs let it in.
            "hostNetwork": true,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "helm", "image": image, "imagePullPolicy": "IfNotPresent",
                "args": ["release", work.deed.word()],
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
                // Helm keeps what it knows of registries at home.
                "volumeMounts": [mount("plan", "/plan"), mount("home", "/root"), mount("tmp", "/tmp")],
            }],
            "volumes": [
                {"name": "plan", "secret": {"secretName": name, "defaultMode": 0o440}},
                {"name": "home", "emptyDir": {"sizeLimit": "64Mi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
            ],
        }},
    }});
    let read = |value: Value| serde_json::from_value(value);
    // What is written here is what the types say; a test makes them.
    (read(secret).unwrap_or_default(), serde_json::from_value(job).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::release::ReleaseSpec;
    use serde_json::Map;

    use super::super::decide::plan;
    use super::*;

    #[test]
    fn the_pod_has_no_rights_and_nothing_secret_in_its_words() {
        let spec: ReleaseSpec =
            serde_json::from_value(json!({"clusterRef": {"name": "one"}, "manifests": ["files/a.yaml"]}))
                .expect("a spec");
        let mut object = ClusterRelease::new("web", spec);
        object.metadata.namespace = Some("site".to_owned());
        object.metadata.uid = Some("u".to_owned());
        let plan = plan(&object, Map::from_iter([("password".to_owned(), json!("p4ss"))]), [10, 0, 0, 1].into());
        let work = Work {
            deed: Deed::Remove,
            attempt: "remove-1",
            says: "Helm removes it",
            plan: &plan,
            kubeconfig: "KUBECONFIG",
        };
        let (secret, job) = made(&object, &work, "helm:1");
        // Whoever needs another Job sees that this is not his.
        assert!(is_of(&job, Some("remove-1")) && !is_of(&job, Some("apply-1")) && !is_of(&job, None));
        assert!(!is_of(&Job::default(), Some("remove-1")) && !is_of(&Job::default(), None));
        let (secret, job) = (json!(secret), json!(job));
        assert!(secret["stringData"]["plan.json"].as_str().expect("a plan").contains("p4ss"));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(
            (&job["metadata"]["name"], &pod["volumes"][0]["secret"]["secretName"]),
            (&json!("release-u"), &json!("release-u"))
        );
        assert_eq!(
            (&job["spec"]["activeDeadlineSeconds"], &pod["terminationGracePeriodSeconds"]),
            (&json!(1320), &json!(90))
        );
        assert_eq!(pod["containers"][0]["args"], json!(["release", "remove"]));
        assert_eq!(
            (&pod["automountServiceAccountToken"], &pod["securityContext"]["runAsUser"]),
            (&json!(false), &json!(USER))
        );
        assert!(!job.to_string().contains("p4ss") && !job.to_string().contains("KUBECONFIG"), "{job}");
        assert_eq!(job["metadata"]["ownerReferences"][0]["name"], "web");
    }
}
