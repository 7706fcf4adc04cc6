//! A host's objects, made and kept as Ironic tells.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_api::metal3::{
    BareMetalHost, FirmwareUpdate, HostFirmwareComponents, HostFirmwareSettings, HostUpdatePolicy,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value};

use super::super::decide::Standing;
use super::super::objects::namespace;
use super::super::tell::{HostEvent, HostReason};
use super::due::{Allowed, Due, Generations, Known, Seen, due};
use super::objects::FirmwareObjects;
use super::schema::Bios;
use super::watch::seen;
use super::{components, settings};
use crate::ironic::{FirmwareComponent, Node};
use crate::operators::kit::{Key, Object as _, ObjectError, Objects};
use crate::operators::metal3::common::ActError;
use crate::steps::chain;

/// Tries to write what somebody else is writing too.
const TRIES: usize = 3;
/// Until the watches have listed what there is; without them hosts are worked on as if nobody asked for anything.
const LISTED: Duration = Duration::from_secs(10);
/// At most so many problems become events.
const EVENTS: usize = 10;

/// What is to be written into a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// BIOS settings by name.
    pub settings: Map<String, Value>,
    /// Firmware.
    pub updates: Vec<FirmwareUpdate>,
    /// Settings are asked for, and Ironic knows none: it is to read them first.
    pub unread: bool,
}

/// What came of looking at a host's objects.
#[derive(Debug, Default)]
pub struct Look {
    /// What a decision needs.
    pub standing: Standing,
    /// Events, each with the object that it is about.
    pub told: Vec<(ObjectReference, HostEvent)>,
    /// Ironic was asked.
    pub asked: bool,
}

/// What is known of firmware.
pub struct Firmware {
    objects: FirmwareObjects,
    settings: Store<HostFirmwareSettings>,
    components: Store<HostFirmwareComponents>,
    policies: Store<HostUpdatePolicy>,
    known: Mutex<HashMap<Key, Known>>,
    /// What the user is to be told with the host's next turn.
    untold: Mutex<HashMap<Key, Vec<(ObjectReference, HostEvent)>>>,
    /// The watches did not list in time; that is waited for once.
    unlisted: AtomicBool,
}

/// Two objects, as they were judged.
struct Judged {
    wanted: Wanted,
    /// Whether any settings are asked for.
    asks: bool,
    generations: Generations,
    told: Vec<(ObjectReference, HostEvent)>,
}

impl Firmware {
    /// Nothing is known yet.
    pub(super) fn new(
        objects: Objects,
        settings: Store<HostFirmwareSettings>,
        components: Store<HostFirmwareComponents>,
        policies: Store<HostUpdatePolicy>,
    ) -> Self {
        let (known, untold, unlisted) = (Mutex::default(), Mutex::default(), AtomicBool::default());
        Self { objects: FirmwareObjects::new(objects), settings, components, policies, known, untold, unlisted }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, HashMap<Key, Vec<(ObjectReference, HostEvent)>>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host, or one of its objects, is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
        self.untold().remove(key);
    }

    /// What is asked for now could not be had: another wish ends the wait for the next try.
    pub fn failed(&self, host: &BareMetalHost) {
        if let Some(known) = self.known().get_mut(&host.key()) {
            known.failed = Some(known.judged);
        }
    }

    /// What may be changed on the host while it is in use.
    pub fn allowed(&self, host: &BareMetalHost) -> Allowed {
        Allowed::by(self.policy(host).as_deref())
    }

    fn policy(&self, host: &BareMetalHost) -> Option<std::sync::Arc<HostUpdatePolicy>> {
        self.policies.get(&ObjectRef::new(&host.name_any()).within(namespace(host)))
    }

    fn seen(&self, host: &BareMetalHost) -> (Option<Seen>, Option<Seen>) {
        let (namespace, name) = (namespace(host), host.name_any());
        let settings = seen(&self.settings, namespace, &name, |object| object.status.as_ref()?.conditions.as_ref());
        let components = seen(&self.components, namespace, &name, |object| object.status.as_ref()?.conditions.as_ref());
        (settings, components)
    }

    async fn is_listed(&self) -> bool {
        let patience = if self.unlisted.load(Ordering::Relaxed) { Duration::ZERO } else { LISTED };
        let all = async {
            self.settings.wait_until_ready().await.is_ok()
                && self.components.wait_until_ready().await.is_ok()
                && self.policies.wait_until_ready().await.is_ok()
        };
        let listed = tokio::time::timeout(patience, all).await.unwrap_or(false);
        if !listed && !self.unlisted.swap(true, Ordering::Relaxed) {
            log::warn!("the kinds of firmware cannot be watched: no host's firmware is changed");
        }
        listed
    }

    /// Brings the objects of a host up to date where that is due. `chance`, from 0 to 1, spreads what is done again.
    pub async fn look(
        &self,
        ironic: &crate::ironic::Client,
        host: &BareMetalHost,
        node: &Node,
        (now, chance): (Timestamp, f64),
    ) -> Result<Look, ObjectError> {
        if !self.is_listed().await {
            return Ok(Look::default());
        }
        let (key, seen) = (host.key(), self.seen(host));
        let known = self.known().get(&key).cloned();
        let known = known.or_else(|| Known::recalled(host.state(), node, seen, now, chance));
        let mut look = Look::default();
        match due(host.state(), node, known.as_ref(), seen, now) {
            Due::Nothing => {
                if let Some(known) = known {
                    self.known().entry(key.clone()).or_insert(known);
                }
            }
            Due::Create => {
                self.objects.settings(host).await?;
                self.objects.components(host).await?;
                self.known().insert(key.clone(), Known::default());
            }
            Due::Ask => {
                look.asked = true;
                match self.sync(ironic, host, node, (now, chance)).await {
                    Ok(_) => {}
                    Err(ActError::Object(error)) => return Err(error),
                    Err(ActError::Ironic(error)) => {
                        log::warn!("firmware of BareMetalHost `{}/{}`: {}", key.0, key.1, chain(&error));
                        self.known().entry(key.clone()).or_default().later(now);
                    }
                }
            }
        }
        look.told = self.untold().remove(&key).unwrap_or_default();
        let policy = self.policy(host);
        if let Some(policy) = policy.as_deref() {
            self.claim(host, policy).await?;
        }
        look.standing = self.known().get(&key).map(|known| known.standing(policy.as_deref(), seen)).unwrap_or_default();
        Ok(look)
    }

    async fn claim(&self, host: &BareMetalHost, policy: &HostUpdatePolicy) -> Result<(), ObjectError> {
        let done = self.known().get(&host.key()).is_none_or(|known| known.policy == policy.uid());
        if !done {
            self.objects.claim(host, policy).await?;
            self.known().entry(host.key()).or_default().policy = policy.uid();
        }
        Ok(())
    }

    /// Asks Ironic and brings the objects of a host up to date: what is to be written into the host now. The user
    /// is told with the next look.
    pub async fn sync(
        &self,
        ironic: &crate::ironic::Client,
        host: &BareMetalHost,
        node: &Node,
        (now, chance): (Timestamp, f64),
    ) -> Result<Wanted, ActError> {
        if !self.is_listed().await {
            return Ok(Wanted::default());
        }
        let bios = Bios::of(&ironic.bios(&node.uuid).await?);
        let found = ironic.firmware(&node.uuid).await?;
        let before = self.known().get(&host.key()).cloned().unwrap_or_default();
        let owned = before.schema.as_ref() == Some(&bios.name);
        let mut tries = 1;
        let done = loop {
            match self.judge(host, &bios, &found, owned, now).await {
                Err(error) if error.is_stale() && tries < TRIES => tries += 1,
                done => break done?,
            }
        };
        let unknown = done.asks && bios.settings.is_empty();
        let unread = unknown && before.may_read(done.generations.settings, node, now);
        let reading = before.next_reading(done.generations.settings, now).filter(|_| unknown);
        let known = Known {
            judged: done.generations,
            settings: unread || !done.wanted.settings.is_empty(),
            updates: !done.wanted.updates.is_empty(),
            inspected: node.inspection_finished_at.clone(),
            next: reading.or_else(|| Known::holds_until(now, chance, !bios.schema.is_empty())),
            retry: None,
            schema: (!bios.schema.is_empty()).then_some(bios.name),
            ..before
        };
        self.known().insert(host.key(), known);
        if !done.told.is_empty() {
            self.untold().insert(host.key(), done.told);
        }
        Ok(Wanted { unread, ..done.wanted })
    }

    /// Ironic is made to read the host's settings.
    pub fn reads(&self, host: &BareMetalHost, now: Timestamp) {
        self.known().entry(host.key()).or_default().reads(now);
    }

    async fn judge(
        &self,
        host: &BareMetalHost,
        bios: &Bios,
        found: &[FirmwareComponent],
        owned: bool,
        now: Timestamp,
    ) -> Result<Judged, ObjectError> {
        let mut told = Vec::new();
        let mut object = self.objects.settings(host).await?;
        if !owned && !bios.schema.is_empty() {
            self.objects.schema(host, &object, bios).await?;
        }
        let (settings, asks) = (settings::judge(&object, bios, now), !object.spec.settings.is_empty());
        let mut generations = Generations { settings: object.metadata.generation.unwrap_or_default(), components: 0 };
        if object.status.as_ref() != Some(&settings.status) {
            object.status = Some(settings.status);
            self.objects.write_status(&object).await?;
            // Nothing to hold against it before Ironic has told of any.
            if !bios.settings.is_empty() {
                told.extend(warnings(&object.object_ref(&()), "Invalid BIOS setting", &settings.problems));
            }
        }
        let mut object = self.objects.components(host).await?;
        let components = components::judge(&object, Some(found), now);
        generations.components = object.metadata.generation.unwrap_or_default();
        if object.status.as_ref() != Some(&components.status) {
            object.status = Some(components.status);
            self.objects.write_status(&object).await?;
            told.extend(warnings(&object.object_ref(&()), "Invalid Firmware Components", &components.problems));
        }
        let wanted = Wanted { settings: settings.changes, updates: components.updates, unread: false };
        Ok(Judged { wanted, asks, generations, told })
    }

    /// Keeps what has come of the host's updates.
    pub async fn mark(
        &self,
        host: &BareMetalHost,
        mark: components::Mark<'_>,
        now: Timestamp,
    ) -> Result<(), ObjectError> {
        let mut tries = 1;
        while self.is_listed().await {
            let mut object = self.objects.components(host).await?;
            let status = components::marked(&object, mark, now);
            if object.status.as_ref() == Some(&status) {
                return Ok(());
            }
            object.status = Some(status);
            match self.objects.write_status(&object).await {
                Err(error) if error.is_stale() && tries < TRIES => tries += 1,
                written => return written,
            }
        }
        Ok(())
    }
}

fn warnings(about: &ObjectReference, what: &str, problems: &[String]) -> Vec<(ObjectReference, HostEvent)> {
    let told =
        |problem: &String| (about.clone(), HostEvent::new(HostReason::ValidationFailed, format!("{what}: {problem}")));
    problems.iter().take(EVENTS).map(told).collect()
}
