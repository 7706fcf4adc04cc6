//! Compares what is there with what is wanted, and decides what is done, in this order. Pure.
//!
//! ```text
//! domains that go ─► networks that go ─► pools ─► networks ─► domains, each before its volumes ─► pools that go
//! ```
//! So no volume is made for a domain that libvirt refuses. Only what the ledger names is changed or removed. A name that somebody else uses already is an error of the plan.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_api::vino::values::DomainState;
use serde::Serialize;

use super::ledger::{DomainEntry, Ledger, NetworkEntry};
use super::there::There;
use super::wanted::{Wanted, WantedDomain, WantedNetwork, WantedVolume};

/// One thing to do. Each may be done again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Step {
    /// Destroy and undefine a domain, with its volumes.
    RemoveDomain {
        /// Name.
        name: String,
        /// Whether libvirt has it.
        there: bool,
        /// Whether it runs.
        runs: bool,
        /// Its volumes that are there: pool and name.
        volumes: Vec<(String, String)>,
    },
    /// Destroy and undefine a network.
    RemoveNetwork {
        /// Name.
        name: String,
        /// Whether libvirt has it; whether it is active.
        there: Option<bool>,
        /// The bridge that is removed with it, if libvirt does not remove it.
        bridge: Option<String>,
    },
    /// Remove the bridge of a network that libvirt does not know any more: another pod made it.
    RemoveBridge {
        /// The network.
        network: String,
        /// Its bridge.
        bridge: String,
    },
    /// Destroy and undefine a pool. Its folder goes when it is empty.
    RemovePool {
        /// Name.
        name: String,
        /// Whether libvirt has it; whether it is active.
        there: Option<bool>,
        /// Its folder.
        folder: Option<PathBuf>,
    },
    /// Define a pool.
    DefinePool {
        /// Name.
        name: String,
        /// Document.
        xml: String,
        /// Its folder.
        folder: Option<PathBuf>,
    },
    /// Start a pool.
    StartPool {
        /// Name.
        name: String,
    },
    /// Make a bridge that libvirt does not make.
    MakeBridge {
        /// The network that it is for.
        network: String,
        /// Its name.
        bridge: String,
        /// Its MAC address; any if empty.
        mac: String,
        /// Its address and prefix length; none if empty.
        address: String,
    },
    /// Define a network; one that runs is started anew, and machines on it are plugged in again.
    DefineNetwork {
        /// Name.
        name: String,
        /// Document.
        xml: String,
        /// Hash of it.
        hash: String,
        /// Whether it is active.
        active: bool,
    },
    /// Start a network.
    StartNetwork {
        /// Name.
        name: String,
    },
    /// Plug an interface into a bridge.
    Plug {
        /// The network.
        network: String,
        /// Its bridge.
        bridge: String,
        /// The interface.
        interface: String,
    },
    /// Take an interface out of its bridge.
    Unplug {
        /// The network.
        network: String,
        /// The interface.
        interface: String,
    },
    /// Make a volume.
    MakeVolume {
        /// The domain.
        domain: String,
        /// The volume.
        pool: String,
        /// Its name.
        name: String,
        /// Document.
        xml: String,
    },
    /// Make a volume larger.
    GrowVolume {
        /// The domain.
        domain: String,
        /// Whether it runs: then it is told of the new size.
        runs: bool,
        /// Pool.
        pool: String,
        /// Name.
        name: String,
        /// Bytes.
        bytes: u64,
    },
    /// Define a domain, or define it anew.
    DefineDomain {
        /// Name.
        name: String,
        /// Document.
        xml: String,
        /// Its entry of the ledger afterwards.
        entry: DomainEntry,
    },
    /// Remove a volume that a domain no longer has, and forget it.
    RemoveVolume {
        /// The domain.
        domain: String,
        /// Pool.
        pool: String,
        /// Name.
        name: String,
        /// Whether it is there.
        there: bool,
    },
}

/// What a step is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A pool.
    Pool(String),
    /// A network.
    Network(String),
    /// A domain.
    Domain(String),
}

impl Step {
    /// What the step is about. After a step has failed, later steps about the same are left out.
    pub fn about(&self) -> About {
        match self {
            Self::RemovePool { name, .. } | Self::DefinePool { name, .. } | Self::StartPool { name } => {
                About::Pool(name.clone())
            }
            Self::RemoveNetwork { name, .. }
            | Self::DefineNetwork { name, .. }
            | Self::StartNetwork { name }
            | Self::RemoveBridge { network: name, .. }
            | Self::MakeBridge { network: name, .. }
            | Self::Plug { network: name, .. }
            | Self::Unplug { network: name, .. } => About::Network(name.clone()),
            Self::RemoveDomain { name, .. }
            | Self::DefineDomain { name, .. }
            | Self::MakeVolume { domain: name, .. }
            | Self::GrowVolume { domain: name, .. }
            | Self::RemoveVolume { domain: name, .. } => About::Domain(name.clone()),
        }
    }
}

/// What will be done, and what cannot be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps, in their order.
    pub steps: Vec<Step>,
    /// What is wrong.
    pub wrong: BTreeMap<About, String>,
}

/// Decides. What is wanted but cannot be made is left as it is: a domain that exists goes on.
pub fn plan(there: &There, wanted: &Wanted, ledger: &Ledger) -> Plan {
    let mut plan = Plan::default();
    for (name, entry) in ledger.domains.iter().filter(|(name, _)| !wanted.domains.contains_key(*name)) {
        plan.steps.push(removal(there, name, entry));
    }
    for (name, entry) in ledger.networks.iter().filter(|(name, _)| !wanted.networks.contains_key(*name)) {
        plan.remove_network(there, name, entry);
    }
    for pool in &wanted.pools {
        let known = ledger.pools.contains_key(&pool.name);
        let (name, xml, folder) = (pool.name.clone(), pool.xml.clone(), pool.folder.clone());
        match there.pools.get(&pool.name) {
            Some(true) if known => continue,
            Some(_) if !known => {
                plan.wrong.insert(About::Pool(name), foreign("pool"));
                continue;
            }
            Some(_) => {}
            None => plan.steps.push(Step::DefinePool { name: name.clone(), xml, folder }),
        }
        plan.steps.push(Step::StartPool { name });
    }
    for (name, network) in &wanted.networks {
        match network {
            Ok(network) => plan.network(there, name, network, ledger.networks.get(name)),
            Err(error) => drop(plan.wrong.insert(About::Network(name.clone()), error.clone())),
        }
    }
    for (name, domain) in &wanted.domains {
        match domain {
            Ok(domain) => plan.domain(there, name, domain, ledger.domains.get(name)),
            Err(error) => drop(plan.wrong.insert(About::Domain(name.clone()), error.clone())),
        }
    }
    for (name, entry) in ledger.pools.iter().filter(|(name, _)| !wanted.pools.iter().any(|pool| pool.name == **name)) {
        let used = wanted.domains.keys().any(|domain| {
            ledger.domains.get(domain).is_some_and(|entry| entry.volumes.iter().any(|(pool, _)| pool == name))
        });
        if !used && wanted.errors.is_empty() {
            let there = there.pools.get(name).copied();
            plan.steps.push(Step::RemovePool { name: name.clone(), there, folder: entry.folder.clone() });
        }
    }
    plan
}

/// The bridge that libvirt made for a network in a pod of before. This pod's libvirt knows nothing of it, and could not make it
/// again.
fn stale_bridge(there: &There, name: &str, entry: &NetworkEntry) -> Option<String> {
    let bridge = entry.of_libvirt.clone().filter(|_| !there.networks.contains_key(name))?;
    there.links.get(&bridge).is_some_and(|link| link.bridge).then_some(bridge)
}

fn foreign(kind: &str) -> String {
    format!("the node has a {kind} of that name which ViNO did not make; hint: remove it, or take another name")
}

fn removal(there: &There, name: &str, entry: &DomainEntry) -> Step {
    let state = there.domains.get(name);
    let volumes = entry.volumes.iter().filter(|volume| there.volumes.contains_key(*volume)).cloned().collect();
    let runs = state.is_some_and(|state| *state != DomainState::ShutOff);
    Step::RemoveDomain { name: name.to_owned(), there: state.is_some(), runs, volumes }
}

impl Plan {
    fn remove_network(&mut self, there: &There, name: &str, entry: &NetworkEntry) {
        if let Some(interface) = entry.plugged.as_ref().filter(|interface| there.links.contains_key(*interface)) {
            self.steps.push(Step::Unplug { network: name.to_owned(), interface: interface.clone() });
        }
        let own = entry.bridge.clone().filter(|bridge| there.links.contains_key(bridge));
        self.steps.push(Step::RemoveNetwork {
            name: name.to_owned(),
            there: there.networks.get(name).copied(),
            bridge: own.or_else(|| stale_bridge(there, name, entry)),
        });
    }

    fn network(&mut self, there: &There, name: &str, wanted: &WantedNetwork, entry: Option<&NetworkEntry>) {
        let state = there.networks.get(name).copied();
        if state.is_some() && entry.is_none() {
            self.wrong.insert(About::Network(name.to_owned()), foreign("network"));
            return;
        }
        let own = name.to_owned();
        let left_over = entry.and_then(|entry| stale_bridge(there, name, entry));
        let is_stale = left_over.is_some();
        self.steps.extend(left_over.map(|bridge| Step::RemoveBridge { network: own.clone(), bridge }));
        if let (Some(bridge), Some((mac, address))) = (&wanted.bridge, &wanted.foreign)
            && !there.links.contains_key(bridge)
        {
            let (bridge, mac, address) = (bridge.clone(), mac.clone(), address.clone());
            self.steps.push(Step::MakeBridge { network: own.clone(), bridge, mac, address });
        }
        let current = state.is_some() && entry.is_some_and(|entry| entry.hash.as_ref() == Some(&wanted.hash));
        let was_plugged = entry.and_then(|entry| entry.plugged.as_ref());
        if let Some(interface) =
            was_plugged.filter(|old| wanted.plug.as_ref() != Some(*old) && there.links.contains_key(*old))
        {
            self.steps.push(Step::Unplug { network: own.clone(), interface: interface.clone() });
        }
        if !current {
            let (xml, hash, active) = (wanted.xml.clone(), wanted.hash.clone(), state == Some(true));
            self.steps.push(Step::DefineNetwork { name: own.clone(), xml, hash, active });
        }
        if !current || state != Some(true) {
            self.steps.push(Step::StartNetwork { name: own.clone() });
        }
        if let (Some(interface), Some(bridge)) = (&wanted.plug, &wanted.bridge) {
            let in_it = there.links.get(interface).and_then(|link| link.master.as_ref()) == Some(bridge);
            if !in_it || is_stale || (!current && state == Some(true)) {
                self.steps.push(Step::Plug { network: own, bridge: bridge.clone(), interface: interface.clone() });
            }
        }
    }

    fn domain(&mut self, there: &There, name: &str, wanted: &WantedDomain, entry: Option<&DomainEntry>) {
        let state = there.domains.get(name);
        if state.is_some() && entry.is_none() {
            self.wrong.insert(About::Domain(name.to_owned()), foreign("domain"));
            return;
        }
        let runs = state.is_some_and(|state| *state != DomainState::ShutOff);
        let changes: Result<Vec<_>, _> = wanted.volumes.iter().map(|it| change(there, name, runs, it)).collect();
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => {
                self.wrong.insert(About::Domain(name.to_owned()), error);
                return;
            }
        };
        let volumes: Vec<_> = wanted.volumes.iter().map(|it| (it.pool.clone(), it.name.clone())).collect();
        let gone: Vec<_> =
            entry.iter().flat_map(|entry| &entry.volumes).filter(|old| !volumes.contains(old)).cloned().collect();
        let current = state.is_some() && entry.is_some_and(|entry| entry.hash.as_ref() == Some(&wanted.hash));
        if !current {
            let pending = there.runs.get(name).cloned();
            let entry = DomainEntry {
                hash: Some(wanted.hash.clone()),
                // Each is known until it is removed, so that none is left behind.
                volumes: volumes.into_iter().chain(gone.iter().cloned()).collect(),
                cores: wanted.cores.clone(),
                pending,
            };
            self.steps.push(Step::DefineDomain { name: name.to_owned(), xml: wanted.xml.clone(), entry });
        }
        self.steps.extend(changes.into_iter().flatten());
        // Those that a running machine still has go with its next stop.
        for (pool, volume) in gone.into_iter().filter(|_| !runs) {
            let there = there.volumes.contains_key(&(pool.clone(), volume.clone()));
            self.steps.push(Step::RemoveVolume { domain: name.to_owned(), pool, name: volume, there });
        }
    }
}

/// What is done about a volume, if anything.
fn change(there: &There, domain: &str, runs: bool, wanted: &WantedVolume) -> Result<Option<Step>, String> {
    let (pool, name, bytes) = (wanted.pool.clone(), wanted.name.clone(), wanted.bytes);
    let domain = domain.to_owned();
    match there.volumes.get(&(pool.clone(), name.clone())) {
        None => Ok(Some(Step::MakeVolume { domain, pool, name, xml: wanted.xml.clone() })),
        Some(has) if *has < bytes => Ok(Some(Step::GrowVolume { domain, runs, pool, name, bytes })),
        Some(has) if *has > bytes => Err(format!(
            "its volume `{name}` has {has} bytes, and {bytes} are asked for: a volume is never made smaller; hint: ask for at \
             least as much, or remove the machine first"
        )),
        Some(_) => Ok(None),
    }
}
