//! Services that are a Deployment: their objects are applied, and the Deployment is asked.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Container, HTTPGetAction, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ServiceAccount, Toleration,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};

use super::parts::{Mount, default_seccomp, resources, restricted};
use super::{EVERY, Ground};
use crate::cluster::api::Api;
use crate::cluster::objects::{self, ObjectsError, Placed};
use crate::cluster::probes;
use crate::steps::{Missing, Outcome, Step};

/// Where the box's services live.
pub const NAMESPACE: &str = "kube-system";
/// User and group of controllers.
pub const USER: i64 = 65532;
/// Annotation of a pod: the digest of what it reads when it starts.
pub const GENERATION: &str = "foothold.dev/generation";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A controller of the cluster's resources: one pod at a time, on the box's own network, with an account and rights of its
/// name.
#[derive(Debug, Default)]
pub struct Controller {
    /// Name of all its objects.
    pub name: &'static str,
    /// Image, which the release has.
    pub image: String,
    /// Arguments of the image's program.
    pub args: Vec<String>,
    /// What it may do in the whole cluster.
    pub rules: Vec<PolicyRule>,
    /// Port of `/healthz` and `/readyz` on the loopback address.
    pub health_port: u16,
    /// Memory that it is killed above.
    pub memory_limit: Option<&'static str>,
    /// What it sees of box and cluster.
    pub mounts: Vec<Mount>,
    /// Digest of what it only reads when it starts. When it changes, the pod is replaced.
    pub generation: String,
}

impl Controller {
    /// Path of its Deployment.
    pub fn path(name: &str) -> String {
        format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
    }

    /// Its account, its role, and the binding of the two.
    pub fn rights(&self) -> Result<[Placed; 3], ObjectsError> {
        let name = self.name.to_owned();
        let account = ServiceAccount { metadata: self.metadata(), ..ServiceAccount::default() };
        let cluster_wide = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let role =
            ClusterRole { metadata: cluster_wide.clone(), rules: Some(self.rules.clone()), ..ClusterRole::default() };
        let binding = ClusterRoleBinding {
            metadata: cluster_wide,
            role_ref: RoleRef { api_group: Some(RBAC.to_owned()), kind: "ClusterRole".to_owned(), name: name.clone() },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: Some(NAMESPACE.to_owned()),
                ..Subject::default()
            }]),
        };
        Ok([place(&account)?, place(&role)?, place(&binding)?])
    }

    /// Its Deployment.
    pub fn deployment(&self) -> Result<Placed, ObjectsError> {
        let deployment = Deployment {
            metadata: ObjectMeta { labels: Some(self.labels()), ..self.metadata() },
            spec: DeploymentSpec {
                replicas: Some(1),
                strategy: Some(DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }),
                selector: LabelSelector { match_labels: Some(self.labels()), ..LabelSelector::default() },
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(self.labels()),
                        annotations: Some(one(GENERATION, &self.generation)),
                        ..ObjectMeta::default()
                    }),
                    spec: Some(self.pod()),
                },
                ..DeploymentSpec::default()
            },
            status: None,
        };
        let mut placed = place(&deployment)?;
        // A Deployment that rolled before keeps what it said about that, which `Recreate` is refused with.
        placed.object["spec"]["strategy"]["rollingUpdate"] = Value::Null;
        Ok(placed)
    }

    fn pod(&self) -> PodSpec {
        PodSpec {
            host_network: Some(true),
            dns_policy: Some("ClusterFirstWithHostNet".to_owned()),
            priority_class_name: Some("system-cluster-critical".to_owned()),
            service_account_name: Some(self.name.to_owned()),
            tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                fs_group: Some(USER),
                seccomp_profile: Some(default_seccomp()),
                ..PodSecurityContext::default()
            }),
            containers: vec![Container {
                name: "operator".to_owned(),
                image: Some(self.image.clone()),
                image_pull_policy: Some("Never".to_owned()),
                args: Some(self.args.clone()),
                resources: Some(resources(("20m", "32Mi"), self.memory_limit)),
                liveness_probe: Some(probes::of_life(self.probe("/healthz", 10))),
                // `ready` waits for it.
                readiness_probe: Some(probes::of_readiness(self.probe("/readyz", 3))),
                security_context: Some(restricted(&[])),
                volume_mounts: Some(self.mounts.iter().map(Mount::mount).collect()),
                ..Container::default()
            }],
            volumes: Some(self.mounts.iter().map(Mount::volume).collect()),
            ..PodSpec::default()
        }
    }

    fn probe(&self, path: &str, period_secs: i32) -> Probe {
        Probe {
            http_get: Some(HTTPGetAction {
                host: Some("127.0.0.1".to_owned()),
                port: IntOrString::Int(self.health_port.into()),
                path: Some(path.to_owned()),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(period_secs),
            ..Probe::default()
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.to_owned()), namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        one("app.kubernetes.io/name", self.name)
    }
}

/// A rule: what may be done with these resources of these groups.
pub fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(words(groups)),
        resources: Some(words(resources)),
        verbs: words(verbs),
        ..PolicyRule::default()
    }
}

/// A typed object, and where it belongs.
pub fn place(object: &impl Serialize) -> Result<Placed, ObjectsError> {
    objects::place(serde_json::to_value(object)?)
}

fn one(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

/// Brings these objects up to date, in this order. Returns how many are new.
pub async fn apply(api: &Api, wanted: &[Placed]) -> anyhow::Result<usize> {
    let mut made = 0;
    for placed in wanted {
        made += usize::from(objects::apply(api, placed).await?);
    }
    Ok(made)
}

/// Performs a step that has `place` bring objects up to date, which returns how many are new, and waits until they are there.
pub async fn bring_up<P, T>(on: Ground<'_>, step: &'static Step, place: impl Fn() -> P, is_there: impl Fn() -> T)
where
    P: Future<Output = anyhow::Result<usize>>,
    T: Future<Output = Result<(), Missing>>,
{
    let act = || async {
        let made = place().await?;
        on.steps.wait(step, EVERY, &is_there).await;
        Ok(if made > 0 { Outcome::Done((), json!({"objects": made})) } else { Outcome::Current(()) })
    };
    on.steps.perform(step, act).await;
}

/// Whether the Deployment at that path has a pod that is ready; `what` it is for a user.
pub async fn ask(api: &Api, path: &str, what: &str) -> Result<(), Missing> {
    let found = api.get(path).await.map_err(|error| Missing::new("the API server", error.to_string()))?;
    available(found.as_ref(), what)
}

/// Whether the Deployment of the API server's answer has a pod that is ready.
fn available(deployment: Option<&Value>, what: &str) -> Result<(), Missing> {
    let missing = |why: &str| Err(Missing::new(what, why));
    let Some(deployment) = deployment else { return missing("its Deployment is not there") };
    if deployment["status"]["availableReplicas"].as_u64().unwrap_or_default() > 0 {
        return Ok(());
    }
    let conditions = deployment["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let why = conditions.iter().find(|condition| condition["status"] == "False");
    missing(why.and_then(|condition| condition["message"].as_str()).unwrap_or("its pod is being started"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Controller, available};

    #[test]
    fn a_slow_answer_ends_no_operator() {
        let controller = Controller { name: "slow", image: "i".to_owned(), health_port: 1, ..Controller::default() };
        let container = &controller.pod().containers[0];
        let (life, readiness) = (container.liveness_probe.clone(), container.readiness_probe.clone());
        let life = life.expect("a probe");
        assert_eq!((life.timeout_seconds, life.failure_threshold), (Some(15), Some(8)));
        assert_eq!(readiness.expect("a probe").timeout_seconds, Some(15));
    }

    #[test]
    fn a_controller_that_is_not_available_is_told_with_the_reason() {
        assert!(available(Some(&json!({"status": {"availableReplicas": 1}})), "it").is_ok());
        assert_eq!(available(None, "it").expect_err("missing").why, "its Deployment is not there");
        let waiting = json!({"status": {"conditions": [
            {"type": "Progressing", "status": "True", "message": "x"},
            {"type": "Available", "status": "False", "message": "Deployment does not have minimum availability."},
        ]}});
        let missing = available(Some(&waiting), "it").expect_err("missing");
        assert_eq!(missing.why, "Deployment does not have minimum availability.");
    }
}
