//! The controller of `BareMetalHost`s on the box: the kinds, its rights, its way to Ironic, and its pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_api::events::{Phase, PhaseWord};
use agent_api::metal3::crds;
use agent_api::ports;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::deployed::{self, Controller, GENERATION, NAMESPACE, place, rule};
use super::ironic::Ironic;
use super::{EVERY, Ground, Mount, PODS_LOG, Service, seen};
use crate::cluster::api::Api;
use crate::cluster::objects::{self, ObjectsError, Placed};
use crate::machine::Machine;
use crate::provisioning::client::{Access, MEDIA};
use crate::provisioning::{RUN, authorities};
use crate::signs::keep;
use crate::steps::{Missing, Step};

/// The controller of `BareMetalHost`s, with its kinds and rights.
pub const STEP: Step = Step {
    phase: PhaseWord::new(Phase::Services.name()),
    name: "baremetal-operator",
    next: "it is tried again",
    log: PODS_LOG,
};

/// What the image's name begins with.
pub const IMAGE: &str = "foothold.dev/agent:";
/// Name of all its objects but one.
const NAME: &str = "baremetal-operator";
/// What it is for a user.
const TITLE: &str = "the controller of BareMetalHosts";
/// The Secret with user, password and authority for Ironic, and with where BMCs fetch its media.
const CREDENTIALS: &str = "ironic-credentials";
/// Where the pod finds it.
const MOUNTED: &str = "/etc/ironic";
/// Where the pod finds the box's table of signs of life.
const SIGNS: &str = "/var/run/signs";
/// Metrics and health, on the loopback address: metal3's port for them.
const METRICS: u16 = 8085;
/// The webhook, on the loopback address: metal3's port for it.
const WEBHOOK: u16 = 9443;

/// The controller, and the Ironic that it works with.
#[derive(Debug)]
pub struct Metal3 {
    image: String,
    ironic: Arc<Ironic>,
}

impl Metal3 {
    /// `None` if the release has no image of it.
    pub fn of(machine: &Machine, ironic: &Arc<Ironic>) -> Option<Self> {
        let image = machine.release().image(IMAGE)?.reference.clone();
        Some(Self { image, ironic: Arc::clone(ironic) })
    }

    /// Starts it once Ironic is laid out, and waits until it is there.
    async fn bring_up(&self, on: Ground<'_>, api: &Api) {
        let place = || async {
            on.steps.wait(&STEP, EVERY, || async { self.ironic.access().await.map(drop) }).await;
            self.place(api).await
        };
        deployed::bring_up(on, &STEP, place, || is_there(api)).await;
    }

    /// Brings its objects up to date. Returns how many are new.
    async fn place(&self, api: &Api) -> anyhow::Result<usize> {
        let access = self.ironic.access().await;
        let access = access.map_err(|missing| anyhow::anyhow!("{} is not laid out yet", missing.what))?;
        deployed::apply(api, &objects(&self.image, &access)?).await
    }

    /// Writes how Ironic is asked for a controller in that namespace that was not made here, and restarts its pod.
    pub async fn tell(api: &Api, namespace: &str, access: &Access) -> anyhow::Result<()> {
        let mut secret = place(&secret(access))?;
        secret.object["metadata"]["namespace"] = namespace.into();
        secret.collection = format!("/api/v1/namespaces/{namespace}/secrets");
        objects::apply(api, &secret).await?;
        let deployment = Controller::path(NAME).replace(NAMESPACE, namespace);
        if api.get(&deployment).await?.is_some() {
            let annotations = json!({GENERATION: generation(access)});
            let change = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
            api.merge(&deployment, &change).await?;
        }
        Ok(())
    }
}

impl Service for Metal3 {
    fn step(&self) -> &'static Step {
        &STEP
    }

    fn start<'a>(&'a self, on: Ground<'a>, api: &'a Api) -> BoxFuture<'a, ()> {
        Box::pin(self.bring_up(on, api))
    }

    fn ask<'a>(&'a self, _machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>> {
        Box::pin(is_there(api))
    }

    fn tend<'a>(&'a self, on: Ground<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let tell = || async { self.place(&on.machine.api()?).await.map(drop) };
            let told = async {
                self.ironic.placed_anew().await;
                self.ironic.keep_told(TITLE, tell).await;
            };
            tokio::join!(told, seen::follow_servers(on));
        })
    }
}

/// Whether its pod is ready.
async fn is_there(api: &Api) -> Result<(), Missing> {
    deployed::ask(api, &Controller::path(NAME), TITLE).await
}

/// Kinds, rights and pod, without the Secret, which [`Metal3::tell`] writes.
pub fn without_secret(image: &str) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Placed> = crds::all().iter().map(place).collect::<Result<_, _>>()?;
    let controller = controller(image, String::new());
    objects.extend(controller.rights()?);
    objects.push(controller.deployment()?);
    Ok(objects)
}

/// All objects, in the order in which they are needed.
fn objects(image: &str, access: &Access) -> Result<Vec<Placed>, ObjectsError> {
    let mut objects: Vec<Placed> = crds::all().iter().map(place).collect::<Result<_, _>>()?;
    let secret = secret(access);
    let controller = controller(image, generation(access));
    objects.extend(controller.rights()?);
    objects.extend([place(&secret)?, controller.deployment()?]);
    Ok(objects)
}

fn data(access: &Access) -> [(&'static str, &str); 4] {
    let Access { authority, credentials, media, .. } = access;
    [("username", &credentials.username), ("password", &credentials.password), ("ca.crt", authority), (MEDIA, media)]
}

fn secret(access: &Access) -> Secret {
    let bytes = |(key, text): (&str, &str)| (key.to_owned(), ByteString(text.as_bytes().to_vec()));
    Secret {
        metadata: ObjectMeta {
            name: Some(CREDENTIALS.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data(access).map(bytes).into_iter().collect::<BTreeMap<_, _>>()),
        ..Secret::default()
    }
}

/// Changes with the Secret: the pod reads it when it starts, and has to be replaced then.
fn generation(access: &Access) -> String {
    let encoded = |(key, text): (&str, &str)| (key.to_owned(), Value::from(STANDARD.encode(text)));
    let data: Map<String, Value> = data(access).map(encoded).into_iter().collect();
    hex::encode(&Sha256::digest(Value::from(data).to_string())[..8])
}

fn controller(image: &str, generation: String) -> Controller {
    let args = [
        "operator".to_owned(),
        "baremetalhost".to_owned(),
        "--ironic".to_owned(),
        format!("https://127.0.0.1:{}", ports::IRONIC),
        "--ironic-ca".to_owned(),
        format!("{MOUNTED}/ca.crt"),
        "--ironic-auth".to_owned(),
        MOUNTED.to_owned(),
        "--bmc-authorities".to_owned(),
        format!("{RUN}/{}", authorities::FILE),
        "--webhook-address".to_owned(),
        format!("127.0.0.1:{WEBHOOK}"),
        "--webhook-owner".to_owned(),
        NAME.to_owned(),
        "--signs".to_owned(),
        format!("{SIGNS}/{}", keep::FILE),
    ];
    Controller {
        name: NAME,
        image: image.to_owned(),
        args: args.to_vec(),
        rules: vec![
            rule(&["metal3.io"], &["*"], &["*"]),
            // Secrets of claims are copied to their hosts; labels of the claims' namespaces are what policies ask for.
            rule(&[""], &["secrets"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
            rule(&[""], &["namespaces"], &["get"]),
            // Its own webhook is renewed, and those that controllers before it left behind are removed.
            rule(
                &["admissionregistration.k8s.io"],
                &["validatingwebhookconfigurations"],
                &["get", "list", "create", "patch", "delete"],
            ),
            // Its own role: the webhook goes with it.
            PolicyRule {
                resource_names: Some(vec![NAME.to_owned()]),
                ..rule(&["rbac.authorization.k8s.io"], &["clusterroles"], &["get"])
            },
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
        ],
        health_port: METRICS,
        memory_limit: Some("512Mi"),
        mounts: vec![
            Mount::secret("ironic", MOUNTED, CREDENTIALS),
            // The folder, not the file: the file is replaced by another each time.
            Mount::folder_or_new("signs", SIGNS, keep::RUN),
        ],
        generation,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Controller, NAME, objects};
    use crate::provisioning::client::{Access, MEDIA};
    use crate::provisioning::credentials::IronicCredentials;

    fn access(password: &str) -> Access {
        let dir = tempfile::tempdir().expect("a folder");
        let mut credentials = IronicCredentials::open(dir.path()).expect("credentials");
        credentials.password = password.to_owned();
        Access { port: 6385, authority: "CA".to_owned(), credentials, media: "https://172.22.0.1:6180/p".to_owned() }
    }

    #[test]
    fn kinds_come_first_and_the_pod_last() {
        let all = objects("foothold.dev/agent:1", &access("a")).expect("placed");
        assert_eq!(all.len(), 13 + 5);
        assert!(all[..13].iter().all(|placed| placed.object["kind"] == "CustomResourceDefinition"));
        assert_eq!(all[0].path(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/baremetalhosts.metal3.io");
        assert_eq!(all[17].path(), Controller::path(NAME));
        assert_eq!(all[16].object["data"][MEDIA], json!("aHR0cHM6Ly8xNzIuMjIuMC4xOjYxODAvcA=="));
    }

    #[test]
    fn the_pod_reads_the_table_where_the_agent_writes_it() {
        let all = objects("foothold.dev/agent:1", &access("a")).expect("placed");
        let pod = &all[17].object["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][1]["hostPath"]["path"], "/run/foothold/hosts");
        let mount = &pod["containers"][0]["volumeMounts"][1];
        assert_eq!((&mount["name"], &mount["mountPath"]), (&json!("signs"), &json!("/var/run/signs")));
        let args = pod["containers"][0]["args"].as_array().expect("arguments");
        assert_eq!(args[args.len() - 2..], [json!("--signs"), json!("/var/run/signs/signs.json")]);
    }

    #[test]
    fn other_credentials_are_another_pod() {
        let generation = |password: &str| {
            let all = objects("foothold.dev/agent:1", &access(password)).expect("placed");
            all[17].object["spec"]["template"]["metadata"]["annotations"].to_string()
        };
        assert_eq!(generation("a"), generation("a"));
        assert_ne!(generation("a"), generation("b"));
    }
}
