//! The pods that the box runs beside its cluster: a service each, in one list.
//!
//! ```text
//! release, Site ─of─► Services ─┬─ before the kubelet ─► Service::prepare
//!                               ├─ first boot, reboot ─► Service::start_with_kubelet, Service::start ─► events
//!                               ├─ every 15 s ─────────► Service::ask ─► what is missing
//!                               └─ all the time ───────► Service::tend
//! ```
//! [`crate::parts`] says which of them can run on a cluster that someone else set up.
//!
//! A new service needs two things beside its own module:
//! 1. `images/NAME/image.yaml`: its image, which the release then carries under the name that the module looks for;
//! 2. this file: the module's name, and its line in [`Services::of`].
//!
//! Where a definition switches it on by a new key, that key is written in `agent_api::release` and in the builder, as
//! `imagebuilder/src/config/services.rs` says.
//!
//! Its own module has a [`Step`] (the name in events, and what helps when it fails), a type that is made `of` the release
//! where that declares it, and [`Service`] for that type. A [`StaticPod`] needs no API server; a
//! [`deployed::Controller`] is a Deployment with its account and rights; whatever else belongs to a service are objects that
//! [`deployed::apply`] brings up to date.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};

use crate::cluster::Node;
use crate::cluster::api::Api;
use crate::http;
use crate::machine::Machine;
use crate::registry::Front;
use crate::steps::{Missing, Step, Steps};

pub mod clusters;
pub mod deployed;
pub mod dhcp;
pub mod ironic;
pub mod metal3;
pub mod metrics;
pub mod parts;
pub mod registry;
mod seen;
pub mod sip;
mod static_pod;
pub mod storage;
pub mod vino;
mod volumes;

pub use parts::{Mount, MountSource};
pub use static_pod::{StaticPod, hold_back};
pub use volumes::Volumes;

/// Where to read more about a pod.
pub const PODS_LOG: &str = "/var/log/pods";
/// Pause between two questions whether a service answers.
pub const EVERY: Duration = Duration::from_millis(400);

/// What services work with.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// The box.
    pub machine: &'a Machine,
    /// Whom its steps tell.
    pub steps: &'a Steps,
    /// Its node.
    pub node: &'a Node,
}

/// When [`Service::start`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Once the API server answers and the cluster's objects are applied. `ready` waits for it.
    Beside,
    /// When everything else of the cluster answers and the processors are free. `ready` waits for it.
    Last,
    /// Behind `ready`: nothing waits for it.
    Behind,
}

/// A service of the box: how it is brought up, asked and looked after.
pub trait Service: Send + Sync {
    /// Its step.
    fn step(&self) -> &'static Step;

    /// When it is started.
    fn turn(&self) -> Turn {
        Turn::Beside
    }

    /// What must be right before any pod of this boot runs.
    fn prepare<'a>(&'a self, _machine: &'a Machine) -> BoxFuture<'a, ()> {
        nothing()
    }

    /// Starts it as soon as there is a kubelet, if it needs no API server. It gets what the control plane leaves of the
    /// processors.
    fn start_with_kubelet<'a>(&'a self, _on: Ground<'a>) -> BoxFuture<'a, ()> {
        nothing()
    }

    /// Starts it in its [`Turn`], and waits until it answers.
    fn start<'a>(&'a self, _on: Ground<'a>, _api: &'a Api) -> BoxFuture<'a, ()> {
        nothing()
    }

    /// Whether it answers.
    fn ask<'a>(&'a self, machine: &'a Machine, api: &'a Api) -> BoxFuture<'a, Result<(), Missing>>;

    /// Keeps it right after `ready`.
    fn tend<'a>(&'a self, _on: Ground<'a>) -> BoxFuture<'a, ()> {
        nothing()
    }
}

fn nothing<'a>() -> BoxFuture<'a, ()> {
    Box::pin(std::future::ready(()))
}

/// The services of this box, in the order in which they are asked.
pub struct Services(Vec<Arc<dyn Service>>);

impl Services {
    /// The services that the release has, at this site.
    pub fn of(machine: &Machine, front: &Arc<Front>) -> Self {
        let ironic = ironic::Ironic::of(machine);
        let all: [Option<Arc<dyn Service>>; _] = [
            registry::Registry::of(front).map(shared),
            ironic.clone().map(|ironic| ironic as Arc<dyn Service>),
            ironic.as_ref().and_then(|ironic| metal3::Metal3::of(machine, ironic)).map(shared),
            ironic.as_ref().and_then(|ironic| dhcp::Dhcp::of(machine, ironic)).map(shared),
            ironic.as_ref().and_then(|ironic| clusters::Clusters::of(machine, ironic)).map(shared),
            metrics::Metrics::of(machine).map(shared),
            storage::Storage::of(machine).map(shared),
            sip::Sip::of(machine, ironic.as_ref()).map(shared),
            vino::Vino::of(machine).map(shared),
        ];
        Self(all.into_iter().flatten().collect())
    }

    /// Only these services.
    pub fn these(all: impl IntoIterator<Item = Arc<dyn Service>>) -> Self {
        Self(all.into_iter().collect())
    }

    /// The steps that every boot of this release comes to.
    pub fn steps(&self) -> impl Iterator<Item = &'static Step> {
        self.0.iter().filter(|service| service.turn() != Turn::Behind).map(|service| service.step())
    }

    /// Before the kubelet is started.
    pub async fn prepare(&self, machine: &Machine) {
        join_all(self.0.iter().map(|service| service.prepare(machine))).await;
    }

    /// Once the kubelet is started.
    pub async fn start_with_kubelet(&self, on: Ground<'_>) {
        join_all(self.0.iter().map(|service| service.start_with_kubelet(on))).await;
    }

    /// Starts those whose turn it is.
    pub async fn start(&self, turn: Turn, on: Ground<'_>, api: &Api) {
        join_all(self.with(&[turn]).map(|service| service.start(on, api))).await;
    }

    /// Whether those with one of these turns answer; else the first step that does not.
    pub async fn ask(&self, turns: &[Turn], machine: &Machine, api: &Api) -> Result<(), (&'static Step, Missing)> {
        for service in self.with(turns) {
            service.ask(machine, api).await.map_err(|missing| (service.step(), missing))?;
        }
        Ok(())
    }

    /// Keeps all of them right after `ready`.
    pub async fn tend(&self, on: Ground<'_>) {
        join_all(self.0.iter().map(|service| service.tend(on))).await;
    }

    fn with(&self, turns: &[Turn]) -> impl Iterator<Item = &Arc<dyn Service>> {
        self.0.iter().filter(|service| turns.contains(&service.turn()))
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|service| service.step().name)).finish()
    }
}

fn shared(service: impl Service + 'static) -> Arc<dyn Service> {
    Arc::new(service)
}

/// Asks a server of the box for that path. If the status is not one of the `good` ones, the error names `what` is missing.
pub async fn asked(port: u16, path: &str, what: &str, good: &[u16]) -> Result<(), Missing> {
    match http::ask(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path).await {
        Ok(status) if good.contains(&status) => Ok(()),
        Ok(status) => Err(Missing::new(what, format!("`{path}` on port {port} answers {status}"))),
        Err(error) => Err(Missing::new(what, format!("`{path}` on port {port}: {error:#}"))),
    }
}

#[cfg(test)]
mod tests;
