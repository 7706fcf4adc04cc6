//! Queues and turns.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use agent_api::vino::spec::{CR_NAME, FINALIZER, Vino};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::Api;
use kube::api::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::pools::Pools;
use super::tell::{Part, Told};
use super::{decide, look};
use crate::operators::kit::objects::key_of;
use crate::operators::kit::turns::{refs, related_by_metadata};
use crate::operators::kit::{Base, Failures, Next, Object as _, ObjectError, Queue, Turn};
use crate::operators::vino::Settings;

/// Pause until everything is looked at again. Changes are noticed at once.
const SEARCH: Duration = Duration::from_secs(300);
/// Pause while another `Vino` has what this one asks for: a change of that one does not start a turn of this one.
const CONFLICT: Duration = Duration::from_secs(10);

/// The controller.
pub(super) struct Controller {
    pub base: Base,
    pub failures: Failures,
    /// All `Vino`s, as they are watched.
    pub all: Store<Vino>,
    pub pools: Pools,
    pub settings: Settings,
}

/// Runs the controller.
pub async fn run(base: Base, settings: &Settings) {
    let (store, changed) = base.changed::<Vino>();
    let others = queues(&base, &store, &settings.ground.namespace);
    let controller = Controller {
        base: base.clone(),
        failures: Failures::default(),
        all: store.clone(),
        pools: Pools::new(base.client.clone(), &settings.ground.namespace),
        settings: settings.clone(),
    };
    base.run(controller, store, [changed].into_iter().chain(others).collect()).await;
}

/// The `Vino` that an object was made for.
fn owner(meta: &ObjectMeta) -> Vec<ObjectRef<Vino>> {
    let owner = meta.labels.as_ref().and_then(decide::owner);
    owner.map(|(namespace, name)| ObjectRef::new(&name).within(&namespace)).into_iter().collect()
}

/// Changes of nodes that matter to a `Vino`. The sign of life that a node writes every few seconds does not.
fn of_nodes(base: &Base, all: &Store<Vino>) -> Queue<Vino> {
    let all = all.clone();
    let mut seen = BTreeMap::new();
    let events = watcher(Api::<Node>::all(base.client.clone()), watcher::Config::default()).default_backoff();
    let changed = events.try_filter_map(move |event| {
        let is_news = is_news(&mut seen, &event);
        std::future::ready(Ok(is_news.then(|| refs(&all.state()))))
    });
    changed.map_ok(|refs| stream::iter(refs.into_iter().map(Ok))).try_flatten().boxed()
}

/// Whether an event of a node matters. `seen`: digests of the nodes that are there.
fn is_news(seen: &mut BTreeMap<String, u64>, event: &watcher::Event<Node>) -> bool {
    let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
    match event {
        watcher::Event::Apply(node) | watcher::Event::InitApply(node) => {
            let now = digest(node);
            seen.insert(name(node), now) != Some(now)
        }
        watcher::Event::Delete(node) => seen.remove(&name(node)).is_some(),
        watcher::Event::Init | watcher::Event::InitDone => false,
    }
}

/// A digest of the fields of a node that matter.
fn digest(node: &Node) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    (&node.metadata.labels, &node.metadata.annotations).hash(&mut hasher);
    node.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    for address in node.status.iter().flat_map(|status| status.addresses.iter().flatten()) {
        (&address.type_, &address.address).hash(&mut hasher);
    }
    hasher.finish()
}

/// Changes of all objects that a `Vino` makes or reads.
fn queues(base: &Base, all: &Store<Vino>, runtime: &str) -> Vec<Queue<Vino>> {
    let ours = || watcher::Config::default().labels(CR_NAME);
    let client = || base.client.clone();
    let (of_secrets, of_maps, within) = (all.clone(), all.clone(), runtime.to_owned());
    let secrets = related_by_metadata::<Secret, _>(Api::all(client()), watcher::Config::default(), move |meta| {
        let named = of_secrets.state_filter(|object: &Vino| look::secrets(object).contains(&key_of(meta)));
        refs(&named).into_iter().chain(owner(meta)).collect()
    });
    let maps = related_by_metadata::<ConfigMap, _>(Api::all(client()), watcher::Config::default(), move |meta| {
        let named = of_maps.state_filter(|object: &Vino| look::config_maps(object, &within).contains(&key_of(meta)));
        refs(&named).into_iter().chain(owner(meta)).collect()
    });
    vec![
        of_nodes(base, all),
        secrets,
        maps,
        related_by_metadata::<Pod, _>(Api::namespaced(client(), runtime), ours(), owner),
        related_by_metadata::<DaemonSet, _>(Api::namespaced(client(), runtime), ours(), owner),
        related_by_metadata::<BareMetalHost, _>(Api::namespaced(client(), runtime), ours(), owner),
    ]
}

impl Turn for Controller {
    type Kind = Vino;

    async fn turn(&self, object: Vino) -> Result<Next, ObjectError> {
        if object.leaves() {
            return Box::pin(self.leave(&object)).await;
        }
        if !object.held_by(FINALIZER) {
            self.base.objects.hold(&object, FINALIZER).await?;
            return Ok(Next::await_change());
        }
        if let Some(left) = self.failures.left(&object) {
            return Ok(Next::requeue(left));
        }
        let wrong = decide::wrong(&object);
        if !wrong.is_empty() {
            self.tell(&object, Told::all(&Part::Fails(wrong.join("\n")))).await?;
            return Ok(Next::await_change());
        }
        // Without all of them it is not known what is another one's. A watch that ends here ends the controller, too.
        drop(self.all.wait_until_ready().await);
        let others = self.all.state();
        let conflicts = decide::conflicts(&object, others.iter().map(|other| &**other));
        if !conflicts.is_empty() {
            self.tell(&object, Told::all(&Part::Fails(conflicts.join("\n")))).await?;
            return Ok(Next::requeue(CONFLICT));
        }
        Box::pin(self.conclude(&object)).await?;
        Ok(Next::requeue(SEARCH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_goes_is_news_and_its_signs_of_life_are_not() {
        let node = |label: &str| -> Node {
            let meta = serde_json::json!({"name": "n", "labels": {"pool": label}});
            serde_json::from_value(serde_json::json!({"metadata": meta})).expect("a node")
        };
        let mut seen = BTreeMap::new();
        let mut news = |event| is_news(&mut seen, &event);
        assert!(news(watcher::Event::InitApply(node("a"))));
        assert!(!news(watcher::Event::Apply(node("a"))));
        assert!(news(watcher::Event::Apply(node("b"))));
        assert!(news(watcher::Event::Delete(node("b"))));
        assert!(news(watcher::Event::Apply(node("b"))), "it is there again");
    }
}
