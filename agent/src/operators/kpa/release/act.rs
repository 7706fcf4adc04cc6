//! The Job that runs Helm, the Secret that it reads, and its report.

use agent_api::clusters::release::ClusterRelease;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use serde_json::{Value, json};

use super::controller::Controller;
use crate::helm::command::Deed;
use crate::helm::{ReleasePlan, Report};
use crate::operators::kit::{Object as _, ObjectError};
use crate::operators::kpa::run::MANAGER;
use crate::services::deployed::USER;

/// How much longer than Helm the pod may take.
const MORE: u64 = 300;

/// The state of the Job.
pub(super) enum JobState {
    /// It runs. If something holds it up, the text says what, after a colon.
    Runs(String),
    /// It has ended.
    Ended(Report),
}

impl Controller {
    /// The state of the Job of this name, which is created if it does not exist.
    pub(super) async fn job(
        &self,
        object: &ClusterRelease,
        name: &str,
        deed: Deed,
        plan: &ReleasePlan,
        kubeconfig: &str,
    ) -> Result<JobState, ObjectError> {
        let (namespace, _) = object.key();
        let Some(job) = self.base.objects.get::<Job>(&namespace, name).await? else {
            let (secret, job) = made(object, name, deed, plan, kubeconfig, &self.settings.helm);
            self.base.objects.apply(&secret, MANAGER).await?;
            self.base.objects.apply(&job, MANAGER).await?;
            return Ok(JobState::Runs(String::new()));
        };
        let look = self.base.objects.look_at(&job).await?;
        let Some(ended) = look.ended.clone() else {
            return Ok(JobState::Runs(look.held_up().map(|why| format!(": {why}")).unwrap_or_default()));
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

    /// Removes the Job, its pod and its Secret.
    pub(super) async fn clear(&self, object: &ClusterRelease, name: &str) -> Result<(), ObjectError> {
        let (namespace, _) = object.key();
        self.base.objects.delete::<Job>(&namespace, name).await?;
        self.base.objects.delete::<Secret>(&namespace, name).await
    }
}

/// The Secret and the Job.
fn made(
    object: &ClusterRelease,
    name: &str,
    deed: Deed,
    plan: &ReleasePlan,
    kubeconfig: &str,
    image: &str,
) -> (Secret, Job) {
    let (namespace, _) = object.key();
    let metadata = json!({
        "name": name, "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": MANAGER},
        "ownerReferences": object.controller_owner_ref(&()).map(|owner| vec![owner]),
    });
    let secret = json!({"metadata": metadata, "type": "Opaque", "stringData": {
        "plan.json": serde_json::to_string(plan).unwrap_or_default(), "kubeconfig": kubeconfig}});
    let word = match deed {
        Deed::Apply => "apply",
        Deed::Remove => "remove",
    };
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let job = json!({"metadata": metadata, "spec": {
        "backoffLimit": 0,
        "activeDeadlineSeconds": plan.timeout.as_secs() * 2 + MORE,
        "template": {"metadata": {"labels": {"app.kubernetes.io/managed-by": MANAGER}}, "spec": {
            "restartPolicy": "Never",
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
                "args": ["release", word],
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
        let (secret, job) = made(&object, "release-u", Deed::Remove, &plan, "KUBECONFIG", "helm:1");
        let (secret, job) = (json!(secret), json!(job));
        assert!(secret["stringData"]["plan.json"].as_str().expect("a plan").contains("p4ss"));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["args"], json!(["release", "remove"]));
        assert_eq!(
            (&pod["automountServiceAccountToken"], &pod["securityContext"]["runAsUser"]),
            (&json!(false), &json!(USER))
        );
        assert!(!job.to_string().contains("p4ss") && !job.to_string().contains("KUBECONFIG"), "{job}");
        assert_eq!(job["metadata"]["ownerReferences"][0]["name"], "web");
    }
}
