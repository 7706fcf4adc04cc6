//! The configuration by which the API server asks a controller's webhook. It exists as long as such a controller runs: it
//! is owned, renewed and removed.
//!
//! ```text
//! each RENEW ─┬─► own configuration: with its owner and the time ─► applied ─► told
//!             └─► all of this controller's kind ─► left_behind (pure) ─► deleted
//! ```
//!
//! With a configuration whose controller is gone, every write is refused. So each controller renews its own, and removes
//! those that are not renewed: at once if they name its own address, because nobody else can answer there, else when they
//! have not changed for a while. Clocks are not compared. A configuration is also deleted with the namespace or the
//! ClusterRole that owns it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

/// When a configuration was renewed.
const RENEWED: &str = "foothold.dev/renewed";
/// After so many missed renewals another controller counts as gone.
const MISSED: u32 = 3;

/// The owner: the configuration is deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The only namespace whose objects are checked.
    Namespace(String),
    /// The rights that the controller has.
    ClusterRole(String),
}

/// How often things are done.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Pause between two renewals.
    pub renew: Duration,
    /// Pause after a try that failed.
    pub again: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { renew: Duration::from_secs(30), again: Duration::from_secs(2) }
    }
}

/// A webhook's configuration, and the field manager that writes it.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Field manager: configurations that it made are this controller's, or those of another one of its kind.
    pub manager: &'static str,
    /// Name and object; without it, only what others left behind is removed.
    pub own: Option<(String, Value)>,
    /// Address at which only this process answers.
    pub bound: Option<SocketAddr>,
    /// With whom it goes.
    pub owner: Option<Owner>,
    /// How often.
    pub pace: Pace,
}

/// A configuration of a controller of this kind, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    name: String,
    uid: String,
    version: String,
    /// Whether its controller renews it: older ones did not.
    renewed: bool,
    /// The address that the API server asks.
    asks: Vec<String>,
}

impl Found {
    /// `None` where somebody else made it.
    fn of(object: &ValidatingWebhookConfiguration, manager: &str) -> Option<Self> {
        let fields = object.metadata.managed_fields.iter().flatten();
        fields.filter_map(|it| it.manager.as_deref()).find(|one| *one == manager)?;
        let webhooks = object.webhooks.iter().flatten();
        Some(Self {
            name: object.name_any(),
            uid: object.metadata.uid.clone()?,
            version: object.metadata.resource_version.clone()?,
            renewed: object.annotations().contains_key(RENEWED),
            asks: webhooks.map(|it| it.client_config.url.clone().unwrap_or_default()).collect(),
        })
    }

    /// Whether the API server asks only at this address.
    fn asks_only(&self, address: SocketAddr) -> bool {
        let there = format!("https://{address}/");
        !self.asks.is_empty() && self.asks.iter().all(|url| url.starts_with(&there))
    }
}

/// Since when each configuration of another controller has been as it is.
type Unchanged = HashMap<String, (String, Instant)>;

/// Those whose controller is gone.
fn left_behind(found: Vec<Found>, of: &Registration, unchanged: &mut Unchanged, now: Instant) -> Vec<Found> {
    let own = of.own.as_ref().map(|(name, _)| name.as_str());
    let others: Vec<Found> = found.into_iter().filter(|one| Some(one.name.as_str()) != own).collect();
    unchanged.retain(|name, _| others.iter().any(|one| one.name == *name));
    let mut gone = |one: &Found| {
        if of.bound.is_some_and(|address| one.asks_only(address)) {
            return true;
        }
        let seen = unchanged.entry(one.name.clone()).or_insert_with(|| (one.version.clone(), now));
        if seen.0 != one.version {
            *seen = (one.version.clone(), now);
        }
        one.renewed && now.duration_since(seen.1) > of.pace.renew * MISSED
    };
    others.into_iter().filter(|one| gone(one)).collect()
}

impl Registration {
    /// Tells, renews and removes until it is dropped. `told` turns true once the API server knows.
    pub async fn keep(self, client: Client, told: watch::Sender<bool>) {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let (mut unchanged, mut said) = (Unchanged::new(), String::new());
        loop {
            if let Err(error) = self.renew(&client, &api).await {
                log::warn!("the API server does not know yet that it is to ask what is admitted: {error}");
                tokio::time::sleep(self.pace.again).await;
                continue;
            }
            let _ = told.send(true);
            if let Err(error) = self.sweep(&api, &mut unchanged).await {
                let saying = error.to_string();
                // Without the right to list them this is so each time.
                if saying != said {
                    log::warn!("looking for webhooks that controllers before left behind: {saying}");
                    said = saying;
                }
            }
            tokio::time::sleep(self.pace.renew).await;
        }
    }

    async fn renew(&self, client: &Client, api: &Api<ValidatingWebhookConfiguration>) -> Result<(), kube::Error> {
        let Some((name, object)) = &self.own else { return Ok(()) };
        let mut object = object.clone();
        object["metadata"]["annotations"] = json!({RENEWED: jiff::Timestamp::now().to_string()});
        if let Some(owner) = self.owner_reference(client).await? {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        api.patch(name, &PatchParams::apply(self.manager).force(), &Patch::Apply(&object)).await.map(drop)
    }

    /// The owner, if it is there.
    async fn owner_reference(&self, client: &Client) -> Result<Option<Value>, kube::Error> {
        let reference = |version: &str, kind: &str, name: &str, uid: Option<String>| {
            uid.map(|uid| json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid}))
        };
        Ok(match &self.owner {
            None => None,
            Some(Owner::Namespace(name)) => {
                let found = Api::<Namespace>::all(client.clone()).get_opt(name).await?;
                found.and_then(|it| reference("v1", "Namespace", name, it.metadata.uid))
            }
            Some(Owner::ClusterRole(name)) => {
                let found = Api::<ClusterRole>::all(client.clone()).get_opt(name).await?;
                found.and_then(|it| reference("rbac.authorization.k8s.io/v1", "ClusterRole", name, it.metadata.uid))
            }
        })
    }

    async fn sweep(
        &self,
        api: &Api<ValidatingWebhookConfiguration>,
        unchanged: &mut Unchanged,
    ) -> Result<(), kube::Error> {
        let all = api.list(&ListParams::default()).await?;
        let found = all.items.iter().filter_map(|object| Found::of(object, self.manager)).collect();
        for one in left_behind(found, self, unchanged, Instant::now()) {
            // One that was renewed in between is somebody's.
            let preconditions = Preconditions { resource_version: Some(one.version), uid: Some(one.uid) };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match api.delete(&one.name, &params).await {
                Ok(_) => log::info!("the webhook `{}` is removed: its controller is gone", one.name),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
