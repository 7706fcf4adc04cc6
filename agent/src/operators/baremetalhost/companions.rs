//! The controllers of the smaller kinds, which run beside the one of hosts and share what it watches.

use std::pin::Pin;
use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use kube::Client;
use kube::runtime::events::Recorder;
use kube::runtime::reflector::Store;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::objects::Objects;
use super::run::Settings;
use crate::ironic;
use crate::operators::turns::{Common, Heard, Key};
use crate::operators::{dataimage, hostclaim, preprovisioning, subscription, switches};

/// What they share with the controller of hosts.
pub fn common(
    settings: &Settings,
    client: &Client,
    objects: &Objects,
    recorder: &Recorder,
    hosts: Store<BareMetalHost>,
    wake: mpsc::UnboundedSender<Key>,
) -> Result<Common, ironic::IronicError> {
    Ok(Common {
        client: client.clone(),
        namespace: settings.namespace.clone(),
        objects: objects.clone(),
        recorder: recorder.clone(),
        ironic: Arc::new(ironic::Client::new(&settings.ironic)?),
        hosts,
        heard: Heard::default(),
        wake,
        pace: settings.pace,
    })
}

/// Starts them all. They end with the set.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, common: &Common, images: preprovisioning::Settings) {
    let mut start = |companion: Pin<Box<dyn Future<Output = ()> + Send>>| {
        tasks.spawn(async move {
            companion.await;
            Ok(())
        });
    };
    start(Box::pin(subscription::run(common.clone())));
    start(Box::pin(dataimage::run(common.clone())));
    start(Box::pin(hostclaim::run(common.clone())));
    start(Box::pin(preprovisioning::run(common.clone(), images)));
    start(Box::pin(switches::run(common.clone())));
}
