//! What metal3's controllers share: its hosts, and Ironic.

use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use jiff::SignedDuration;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::mpsc;

use crate::ironic::{self, IronicError, Node};
use crate::operators::kit::{Base, Changes, Key, Object, ObjectError, Queue, Turn};
use crate::signs::SILENCE;

/// Ironic's own waits inside a state that it works in end within seconds, or hold its lock.
const ABANDONED: SignedDuration = SignedDuration::from_mins(5);

/// How often Ironic is asked how far it is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When it is busy, or takes seconds.
    pub short: Duration,
    /// When it takes minutes.
    pub long: Duration,
    /// How long a ramdisk may say nothing that was booted before this controller ran.
    pub silence: SignedDuration,
    /// How long Ironic may have nobody at work with a node that it works with.
    pub abandoned: SignedDuration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { short: Duration::from_secs(3), long: Duration::from_secs(10), silence: SILENCE, abandoned: ABANDONED }
    }
}

/// Where the ramdisk is, when Ironic shall not use its own: of the whole controller, or of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ramdisk {
    /// URL of the kernel.
    pub kernel: Option<String>,
    /// URL of the initial ramdisk.
    pub initrd: Option<String>,
    /// URL of the ISO image, for hosts that can boot one.
    pub iso: Option<String>,
    /// What is added to the kernel's command line.
    pub kernel_params: Option<String>,
}

/// Why an action came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Ironic.
    #[error(transparent)]
    Ironic(#[from] IronicError),
    /// The API server.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// Ironic's name of a host.
pub fn node_name(host: &BareMetalHost) -> String {
    let (namespace, name) = host.key();
    format!("{namespace}~{name}")
}

/// A host's node, by its UUID, or by its name where that UUID is not known any more.
pub async fn node(ironic: &ironic::Client, host: &BareMetalHost) -> Result<Option<Node>, IronicError> {
    let id = host.status.as_ref().map(|status| status.provisioning.id.as_str()).filter(|id| !id.is_empty());
    if let Some(id) = id
        && let Some(node) = ironic.node(id).await?
    {
        return Ok(Some(node));
    }
    ironic.node(&node_name(host)).await
}

/// What the controllers have in common.
#[derive(Clone)]
pub struct Common {
    /// The cluster.
    pub base: Base,
    /// Ironic.
    pub ironic: Arc<ironic::Client>,
    /// The hosts as they are watched.
    pub hosts: Store<BareMetalHost>,
    /// Which hosts change.
    pub host_changes: Changes,
    /// Hosts that are to be looked at.
    pub wake: mpsc::UnboundedSender<Key>,
    /// How often Ironic is asked.
    pub pace: Pace,
}

impl Common {
    /// Objects that a change of a host matters to.
    pub fn of_hosts<K: Object>(&self, of: impl Fn(&Key) -> Vec<ObjectRef<K>> + Send + 'static) -> Queue<K> {
        self.host_changes.queue(of)
    }

    /// Has a host looked at.
    pub fn wake(&self, host: &Key) {
        // Nobody is left to wake when the controller ends.
        let _ = self.wake.send(host.clone());
    }

    /// A host as it is now.
    pub async fn host(&self, namespace: &str, name: &str) -> Result<Option<BareMetalHost>, ObjectError> {
        self.base.objects.get(namespace, name).await
    }

    /// Takes turns with the objects of the queues, once the hosts are listed. Does not end.
    pub async fn run<T: Turn>(&self, controller: T, store: Store<T::Kind>, queues: Vec<Queue<T::Kind>>) {
        self.host_changes.until_listed().await;
        self.base.run(controller, store, queues).await;
    }
}
