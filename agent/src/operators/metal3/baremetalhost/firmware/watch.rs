//! What is watched, and what is kept of it.

use std::collections::HashMap;
use std::sync::Arc;

use agent_api::metal3::{BareMetalHost, Condition, HostFirmwareComponents, HostFirmwareSettings, HostUpdatePolicy};
use futures_util::{StreamExt as _, TryStreamExt as _, future};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};

use super::condition::pending;
use super::due::Seen;
use super::sync::Firmware;
use crate::operators::kit::{Base, Object, Queue};

/// Starts to watch: what is known of firmware, and the hosts whose objects were changed by somebody, made or deleted.
pub fn watch(base: &Base) -> (Arc<Firmware>, Vec<Queue<BareMetalHost>>) {
    let (settings, settings_writer) = reflector::store::<HostFirmwareSettings>();
    let (components, components_writer) = reflector::store::<HostFirmwareComponents>();
    let (policies, policy_writer) = reflector::store::<HostUpdatePolicy>();
    let firmware = Arc::new(Firmware::new(base.objects.clone(), settings, components, policies));
    let queues = vec![
        of(base.watched(), settings_writer, firmware.clone(), |object: &mut HostFirmwareSettings| {
            object.spec.settings.clear();
            if let Some(status) = &mut object.status {
                status.settings.clear();
            }
        }),
        of(base.watched(), components_writer, firmware.clone(), |object: &mut HostFirmwareComponents| {
            object.spec.updates.clear();
            if let Some(status) = &mut object.status {
                (status.updates, status.components) = (None, None);
            }
        }),
        of(base.watched(), policy_writer, firmware.clone(), |_: &mut HostUpdatePolicy| {}),
    ];
    (firmware, queues)
}

/// The host of each object that another one is known of now: what is written here changes no generation.
fn of<K: Object>(
    api: Api<K>,
    writer: reflector::store::Writer<K>,
    firmware: Arc<Firmware>,
    trim: impl Fn(&mut K) + Send + 'static,
) -> Queue<BareMetalHost> {
    let events = watcher(api, watcher::Config::default()).default_backoff().modify(move |object: &mut K| {
        object.meta_mut().managed_fields = None;
        trim(object);
    });
    let mut told: HashMap<ObjectRef<BareMetalHost>, (Option<String>, Option<i64>)> = HashMap::new();
    let hosts = events.reflect(writer).try_filter_map(move |event| {
        let changed = match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                let (host, now) = (host(&object), (object.uid(), object.meta().generation));
                (told.insert(host.clone(), now.clone()) != Some(now)).then_some(host)
            }
            watcher::Event::Delete(object) => {
                let host = host(&object);
                told.remove(&host);
                firmware.forget(&(object.namespace().unwrap_or_default(), object.name_any()));
                Some(host)
            }
            watcher::Event::Init | watcher::Event::InitDone => None,
        };
        future::ok(changed)
    });
    hosts.boxed()
}

fn host<K: Object>(object: &K) -> ObjectRef<BareMetalHost> {
    ObjectRef::new(&object.name_any()).within(&object.namespace().unwrap_or_default())
}

/// What the copy of an object tells.
pub(super) fn seen<K: Object>(
    store: &Store<K>,
    namespace: &str,
    name: &str,
    conditions: impl Fn(&K) -> Option<&Vec<Condition>>,
) -> Option<Seen> {
    let object = store.get(&ObjectRef::new(name).within(namespace))?;
    let generation = object.meta().generation;
    Some(Seen { generation: generation.unwrap_or_default(), pending: pending(conditions(&object), generation) })
}
