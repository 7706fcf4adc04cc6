//! Looks after a cluster that runs while its spec cannot be met: a server is missing, the box has not the version, a line
//! is wrong. Its nodes are asked for, its certificates renewed, and a lost kubeconfig made again, all as the cluster is.

use agent_api::clusters::provisioning::{
    ADDRESS_ANNOTATION, NodePhase, NodeRole, NodeStatus, Provisioning, ProvisioningStatus,
};
use agent_api::net::MacAddress;
use kube::ResourceExt as _;

use super::act::kubeconfig_name;
use super::controller::{AGAIN, Controller};
use super::decide::Chosen;
use super::install::{Made, Order, Work};
use super::kubeadm;
use super::reach::{check, first_master, reach};
use super::tell::{Told, What};
use super::upgrade::renew;
use super::watch::Due;
use super::wishes::Wanted;
use crate::operators::kit::{Next, Object as _, ObjectError, told_key};

/// What work on the servers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The cluster becomes what its spec asks for.
    Spec,
    /// The cluster stays as it is: its version, its nodes.
    Upkeep,
}

/// Does the work: renews certificates if the order says so, and reads the kubeconfig.
pub(super) async fn keep_up(order: &Order, work: &Work) -> anyhow::Result<Made> {
    let mut reached = reach(order, work).await?;
    check(order, work, &mut reached.servers).await?;
    let first = &reached.servers[first_master(order, &reached)?];
    let undone = if order.renew { renew(order, work, &reached.servers, &reached.away).await? } else { Vec::new() };
    let kubeconfig = first.kubectl(&["config", "view", "--raw"]).await?;
    let endpoint = kubeadm::endpoint(&order.wanted, first.node);
    for server in reached.servers {
        server.session.close().await;
    }
    let kubeconfig = String::from_utf8(kubeconfig)?;
    // Nothing of what the cluster is has changed.
    let made = Made { kubeconfig, version: order.version.clone(), endpoint, networks: None };
    work.has_made(&made);
    anyhow::ensure!(undone.is_empty(), "{}", undone.join("\n"));
    Ok(made)
}

/// Whether the cluster was made: it has a kubeconfig, and had all of its nodes once.
pub(super) fn stands(object: &Provisioning) -> bool {
    let made = |status: &ProvisioningStatus| status.finished_at.is_some() && status.kubeconfig_secret.is_some();
    object.status.as_ref().is_some_and(made)
}

impl Controller {
    /// Tells why the spec cannot be met. A cluster that runs is looked after meanwhile. `wanted`: the spec, if it can be
    /// read.
    pub(super) async fn unmet(
        &self,
        object: &Provisioning,
        wanted: Option<&Wanted>,
        mut told: Told,
    ) -> Result<(), ObjectError> {
        if !stands(object) {
            return self.tell(object, told).await;
        }
        let look = self.look(object).await?;
        let mut why = vec![told.why];
        match look.nodes {
            Ok(nodes) => {
                why.extend(nodes.iter().filter_map(|node| node.error.clone()));
                told.nodes = Some(nodes);
            }
            Err(error) => why.push(error),
        }
        if let Some(due) = look.due {
            let renew = due == Due::Renewal;
            match self.begin_upkeep(object, wanted, renew).await? {
                Ok(()) => return Ok(()),
                Err(error) => why.push(match due {
                    Due::Renewal => format!("its certificates end soon and cannot be renewed: {error}"),
                    Due::Kubeconfig => {
                        format!("the Secret `{}` is gone and cannot be made again: {error}", kubeconfig_name(object))
                    }
                }),
            }
        }
        self.tell(object, Told { why: why.join("\n"), stands: true, ..told }).await
    }

    /// Takes the result of that work. The next turn tells why the spec cannot be met.
    pub(super) async fn kept_up(
        &self,
        object: &Provisioning,
        ended: Result<Made, String>,
    ) -> Result<Next, ObjectError> {
        match ended {
            Ok(made) => {
                let nodes = object.status.as_ref().map(|status| status.nodes.as_slice()).unwrap_or_default();
                self.keep(object, nodes, &made).await?;
                self.failures.none(&object.key());
            }
            Err(why) => {
                self.failures.one_more(object);
                self.tell(object, Told { stands: true, ..Told::new(What::Failing, why) }).await?;
            }
        }
        self.forget_work(&object.key());
        Ok(Next::requeue(AGAIN))
    }

    /// Starts work on the nodes that the cluster has. The inner error says why it could not begin.
    async fn begin_upkeep(
        &self,
        object: &Provisioning,
        wanted: Option<&Wanted>,
        renew: bool,
    ) -> Result<Result<(), String>, ObjectError> {
        if object.spec.installer.is_some() {
            return Ok(Err("whoever installed the cluster does that".to_owned()));
        }
        let Some(wanted) = wanted else {
            return Ok(Err("the spec must be right first".to_owned()));
        };
        if self.failures.left(object).is_some() {
            return Ok(Err("it has failed, and is tried again".to_owned()));
        }
        let nodes = object.status.as_ref().map(|status| status.nodes.as_slice()).unwrap_or_default();
        let chosen: Vec<Chosen> = nodes.iter().filter_map(|node| self.member(node)).collect();
        if !chosen.iter().any(|node| node.roles.contains(&NodeRole::Master)) {
            return Ok(Err("none of its masters has a server".to_owned()));
        }
        let begun = self.begin(object, wanted, chosen, Aim::Upkeep, renew).await?;
        if begun.is_err() {
            self.failures.one_more(object);
        }
        Ok(begun)
    }

    /// A node that the cluster has, as it was chosen. `None` if it is not installed.
    fn member(&self, node: &NodeStatus) -> Option<Chosen> {
        let (namespace, name) = node.host.split_once('/')?;
        let hosts = self.common.hosts.state();
        let host = hosts.iter().find(|host| told_key(&host.key()) == node.host)?;
        Some(Chosen {
            name: node.name.clone(),
            roles: node.roles.clone(),
            host: (namespace.to_owned(), name.to_owned()),
            mac: MacAddress::from_any(&node.mac_address)?,
            ip: node.ip.parse().ok()?,
            leased: host.annotations().get(ADDRESS_ANNOTATION) == Some(&node.ip),
        })
        .filter(|_| node.phase == NodePhase::Installed && !self.is_written_anew(node))
    }
}
