//! Jobs that do an operator's work, and their pods.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use serde_json::{Value, json};

use super::objects::{Object as _, ObjectError, Objects, doing};

/// A Job, and the pod that does its work.
pub struct JobLook {
    /// How it ended, once it has.
    pub ended: Option<JobEnd>,
    /// The pod; `null` before there is one.
    pod: Value,
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Its work is done.
    pub complete: bool,
    /// What Kubernetes says of it.
    pub message: String,
}

impl JobLook {
    fn new(job: &Job, pod: Value) -> Self {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is = |kind: &str| ["Complete", "Failed"].contains(&kind);
        let ended = conditions.clone().find(|condition| is(&condition.type_) && condition.status == "True");
        let ended = ended.map(|condition| JobEnd {
            complete: condition.type_ == "Complete",
            message: condition.message.clone().unwrap_or_default(),
        });
        Self { ended, pod }
    }

    /// Why the pod does not run, if something holds it up.
    pub fn held_up(&self) -> Option<String> {
        let waiting = &self.pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let conditions = self.pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let refused =
            conditions.iter().find(|condition| condition["status"] == "False" && condition["type"] == "PodScheduled");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        text(&waiting["message"]).or_else(|| refused.and_then(|condition| text(&condition["message"])))
    }

    /// How its container ended (`ContainerStateTerminated`); `null` before that.
    pub fn terminated(&self) -> &Value {
        &self.pod["status"]["containerStatuses"][0]["state"]["terminated"]
    }

    /// Its name, once there is one.
    fn pod_name(&self) -> Option<&str> {
        self.pod["metadata"]["name"].as_str()
    }
}

impl Objects {
    /// Looks how a Job is.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn look_at(&self, job: &Job) -> Result<JobLook, ObjectError> {
        let (namespace, name) = job.key();
        let own = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let pods = self.api::<Pod>(&namespace).list(&own).await;
        let pods = pods.map_err(doing(format!("listing the pods of Job `{namespace}/{name}`")))?;
        Ok(JobLook::new(job, pods.items.first().map(|pod| json!(pod)).unwrap_or_default()))
    }

    /// The last lines that the pod of a Job wrote; none when it has none yet.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn log_of(&self, namespace: &str, look: &JobLook, lines: i64) -> Result<String, ObjectError> {
        let Some(pod) = look.pod_name() else { return Ok(String::new()) };
        let wanted = LogParams { tail_lines: Some(lines), ..LogParams::default() };
        let log = self.api::<Pod>(namespace).logs(pod, &wanted).await;
        log.map_err(doing(format!("reading the log of Pod `{namespace}/{pod}`")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{JobEnd, JobLook};

    fn look(job: &serde_json::Value, pod: serde_json::Value) -> JobLook {
        JobLook::new(&serde_json::from_value(json!({"metadata": {}, "status": job})).expect("a Job"), pod)
    }

    #[test]
    fn a_job_has_ended_when_it_is_told_complete_or_failed() {
        let ended = |kind: &str, status: &str| {
            look(&json!({"conditions": [{"type": kind, "status": status, "message": "why"}]}), json!(null)).ended
        };
        let told = |complete| Some(JobEnd { complete, message: "why".to_owned() });
        assert_eq!((ended("Complete", "True"), ended("Failed", "True")), (told(true), told(false)));
        for running in
            [ended("Complete", "False"), ended("SuccessCriteriaMet", "True"), look(&json!({}), json!(null)).ended]
        {
            assert_eq!(running, None);
        }
    }

    #[test]
    fn what_holds_a_pod_up_is_told() {
        let pod = |status: serde_json::Value| look(&json!({}), json!({"status": status})).held_up();
        let waits = json!({"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "not in the release"}}}]});
        assert_eq!(pod(waits).as_deref(), Some("not in the release"));
        let refused =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node has 4 processors"}]});
        assert_eq!(pod(refused).as_deref(), Some("no node has 4 processors"));
        assert_eq!((pod(json!({})), look(&json!({}), json!(null)).held_up()), (None, None));
    }
}
