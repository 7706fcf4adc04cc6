//! What stands before the hosts: load balancers, a jump host and a login, each a Deployment with its Service and what it
//! reads.
//!
//! ```text
//! SIPCluster, hosts with their addresses ─plan─► objects by kind (pure) ─► checked ─► applied ─► pods are told
//!                      templates of users ──┘                    what is not asked for is removed
//! ```

mod apply;
pub mod auth;
mod balancer;
mod jumphost;
mod parts;
mod ports;
pub mod requests;
pub mod template;

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_api::sip::cluster::{Role, ServiceWish, SipCluster};
use agent_api::sip::selector::wrong_labels;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role as Rights, RoleBinding};

use super::decide::Member;
use super::look::Addresses;
use crate::operators::kit::{Key, Object as _};

pub use apply::{Applied, Served};
pub use balancer::TEMPLATES;
pub use jumphost::wrong_key;

/// Label of all objects that are made for a cluster.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "sip");

/// Images for pods whose spec names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// With `HAProxy` and this program.
    pub own: String,
    /// With OpenSSH.
    pub jump_host: String,
    /// With an OIDC provider.
    pub oidc: String,
}

/// A service that a cluster may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Infra {
    /// Before the API servers.
    ControlPlane,
    /// Before the workers.
    Worker,
    /// The jump host, by which users log in.
    JumpHost,
    /// Who the users are.
    Auth,
}

impl Infra {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ControlPlane, Self::Worker, Self::JumpHost, Self::Auth];

    /// What the names of its objects begin with.
    pub const fn component(self) -> &'static str {
        match self {
            Self::ControlPlane => "loadbalancer-controlplane",
            Self::Worker => "loadbalancer-worker",
            Self::JumpHost => "jumphost",
            Self::Auth => "auth",
        }
    }

    /// Name of its objects.
    pub fn name(self, object: &SipCluster) -> String {
        let (_, name) = object.key();
        format!("{}-{name}", self.component())
    }

    /// Whether it is asked for.
    pub fn is_asked(self, object: &SipCluster) -> bool {
        let services = &object.spec.services;
        match self {
            Self::ControlPlane => !services.load_balancer_control_plane.is_empty(),
            Self::Worker => !services.load_balancer_worker.is_empty(),
            Self::JumpHost => !services.jump_host.is_empty(),
            Self::Auth => !services.auth.is_empty(),
        }
    }
}

/// A host as its services see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its role in the cluster.
    pub role: Role,
    /// The host.
    pub host: Key,
    /// Its name: the host's own, with its namespace behind it where two of the cluster are called so.
    pub name: String,
    /// Whether it stands by.
    pub standby: bool,
    /// Its addresses.
    pub addresses: Addresses,
}

impl Backend {
    /// The cluster's hosts whose addresses are known.
    pub fn all(members: &[Member], addresses: &BTreeMap<Key, Addresses>) -> Vec<Self> {
        let whole = |member: &Member| format!("{}.{}", member.host.1, member.host.0);
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for name in members.iter().flat_map(|member| [member.host.1.clone(), whole(member)]) {
            *times.entry(name).or_default() += 1;
        }
        let one = |member: &Member| {
            let name = &member.host.1;
            let alone = times.get(name) == Some(&1);
            Some(Self {
                role: member.role,
                host: member.host.clone(),
                name: if alone { name.clone() } else { whole(member) },
                standby: member.standby,
                addresses: addresses.get(&member.host)?.clone(),
            })
        };
        members.iter().filter_map(one).collect()
    }

    fn address(&self, interface: &str) -> Option<IpAddr> {
        self.addresses.get(interface).copied()
    }
}

/// All objects of a service.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// What pods read.
    pub secret: Secret,
    /// The authority of the login, which no pod reads.
    pub authority: Option<Secret>,
    /// What pods read that is no secret, and what the jump host writes.
    pub config_maps: Vec<ConfigMap>,
    /// Who the pod is, and what it may do.
    pub rights: Option<(ServiceAccount, Rights, RoleBinding)>,
    /// How it is reached.
    pub service: Service,
    /// The pod.
    pub deployment: Deployment,
    /// A configuration of `HAProxy` that must be right.
    pub config: Option<String>,
}

/// Templates and keys that lie in other objects than the `SIPCluster`.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Templates that users put in the place of ours.
    pub templates: BTreeMap<&'static str, String>,
    /// Keys of the Secret with private keys for the nodes.
    pub node_keys: Vec<String>,
    /// The jump host's own key, private and public; made the first time.
    pub host_key: (String, String),
    /// What the login is made of.
    pub auth: Option<auth::AuthGiven>,
}

/// All that is wrong with the services that are asked for.
pub fn wrong(object: &SipCluster) -> Vec<String> {
    let services = &object.spec.services;
    let mut all = Vec::new();
    let mut ports: Vec<(String, std::ops::RangeInclusive<i32>)> = Vec::new();
    let of_address = |all: &mut Vec<String>, at: &str, wish: &ServiceWish| {
        let address = wish.cluster_ip.as_deref();
        if let Some(text) = address.filter(|text| text.parse::<IpAddr>().is_err()) {
            all.push(format!("{at}.clusterIP is `{text}`, expected an address"));
        }
        all.extend(wrong_labels(&format!("{at}.nodeLabels"), &wish.node_labels));
    };
    let of_wish = |all: &mut Vec<String>, at: &str, wish: &ServiceWish| {
        of_address(all, at, wish);
        if wish.node_interface_id.is_empty() {
            all.push(format!(
                "{at}.nodeInterfaceId is missing, expected the `id` of a network of the hosts' network data"
            ));
        }
    };
    for one in &services.load_balancer_control_plane {
        of_wish(&mut all, "spec.services.loadBalancerControlPlane[0]", &one.wish);
        ports.push(("loadBalancerControlPlane[0].nodePort".to_owned(), one.node_port..=one.node_port));
    }
    for one in &services.load_balancer_worker {
        of_wish(&mut all, "spec.services.loadBalancerWorker[0]", &one.wish);
        let range = one.node_port_range;
        ports.push(("loadBalancerWorker[0].nodePortRange".to_owned(), range.start..=range.end));
    }
    for one in &services.jump_host {
        of_wish(&mut all, "spec.services.jumpHost[0]", &one.wish);
        ports.push(("jumpHost[0].nodePort".to_owned(), one.node_port..=one.node_port));
        for (number, key) in one.ssh_authorized_keys.iter().enumerate() {
            if let Some(why) = wrong_key(key) {
                all.push(format!("spec.services.jumpHost[0].sshAuthorizedKeys[{number}] is no key: {why}"));
            }
        }
    }
    for one in &services.auth {
        of_address(&mut all, "spec.services.auth[0]", &one.wish);
        ports.push(("auth[0].nodePort".to_owned(), one.node_port..=one.node_port));
        all.extend(auth::wrong(one));
    }
    for (number, (at, range)) in ports.iter().enumerate() {
        if range.is_empty() {
            all.push(format!("spec.services.{at}: the end of the range comes before its start"));
        }
        for (other, taken) in &ports[..number] {
            if range.start() <= taken.end() && taken.start() <= range.end() {
                all.push(format!("spec.services.{at} and spec.services.{other} have a port in common"));
            }
        }
    }
    all
}

/// The objects of a service; nothing where it is not asked for.
///
/// # Errors
/// A template that is wrong, in words.
pub fn plan(
    infra: Infra,
    object: &SipCluster,
    backends: &[Backend],
    given: &Given,
    images: &Images,
) -> Result<Option<Objects>, String> {
    match infra {
        Infra::ControlPlane => balancer::control_plane(object, backends, given, images),
        Infra::Worker => balancer::worker(object, backends, given, images),
        Infra::JumpHost => Ok(jumphost::objects(object, backends, given, images)),
        Infra::Auth => Ok(auth::objects(object, given, images)),
    }
}

#[cfg(test)]
mod tests;
