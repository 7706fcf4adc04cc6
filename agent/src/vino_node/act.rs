//! Carries out the steps of a plan. When a step fails, the report says so for its domain, network or pool, and steps about
//! other ones go on.

use std::collections::BTreeMap;

use anyhow::Context as _;

use super::ledger::{DomainEntry, Ledger, NetworkEntry, PoolEntry};
use super::plan::{About, Step};
use super::redfish::power;
use super::there::There;
use super::virsh::{Virsh, VirshError};
use super::xml::Element;
use super::{BRIDGES, Paths};

/// What carries out the steps.
#[derive(Debug)]
pub struct Act<'a> {
    /// libvirt.
    pub virsh: &'a Virsh,
    /// Paths.
    pub paths: &'a Paths,
    /// The objects of libvirt that were made here.
    pub ledger: &'a mut Ledger,
}

impl Act<'_> {
    /// Carries out the steps, except those about something in `wrong`. What fails on the way is added to `wrong`.
    pub fn all(&mut self, steps: &[Step], wrong: &mut BTreeMap<About, String>) {
        for step in steps {
            let about = step.about();
            if wrong.contains_key(&about) {
                continue;
            }
            log::info!("{}", told(step));
            if let Err(error) = self.step(step) {
                let words = format!("{error:#}");
                log::warn!("{about:?}: {words}");
                wrong.insert(about, words);
            }
        }
    }

    fn save(&self) -> anyhow::Result<()> {
        self.ledger.write(&self.paths.ledger())
    }

    fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::RemoveDomain { name, there, runs, volumes } => self.remove_domain(name, *there, *runs, volumes),
            Step::RemoveNetwork { name, there, bridge } => self.remove_network(name, *there, bridge.as_deref()),
            Step::RemovePool { name, there, folder } => {
                if *there == Some(true) {
                    self.virsh.run(&["pool-destroy", name])?;
                }
                if there.is_some() {
                    self.virsh.run(&["pool-undefine", name])?;
                }
                if let Some(folder) = folder {
                    // What others put there stays, and the folder with it.
                    let _ = fs_err::remove_dir(self.paths.of_node(folder));
                }
                self.ledger.pools.remove(name);
                self.save()
            }
            Step::DefinePool { name, xml, folder } => {
                let entry = PoolEntry { folder: folder.clone(), xml: xml.clone() };
                self.ledger.pools.insert(name.clone(), entry.clone());
                self.save()?;
                define_pool(self.virsh, self.paths, &entry)
            }
            Step::StartPool { name } => Ok(self.virsh.run(&["pool-start", name]).map(drop)?),
            Step::RemoveBridge { network, bridge } => {
                self.virsh.ip(&["link", "delete", "dev", bridge])?;
                self.network(network).of_libvirt = None;
                self.save()
            }
            Step::MakeBridge { network, bridge, mac, address } => self.make_bridge(network, bridge, mac, address),
            Step::DefineNetwork { name, xml, hash, active } => self.define_network(name, xml, hash, *active),
            Step::StartNetwork { name } => self.start_network(name),
            Step::Plug { network, bridge, interface } => {
                self.network(network).plugged = Some(interface.clone());
                self.save()?;
                self.virsh.ip(&["link", "set", "dev", interface, "master", bridge])?;
                Ok(self.virsh.ip(&["link", "set", "dev", interface, "up"]).map(drop)?)
            }
            Step::Unplug { network, interface } => {
                self.virsh.ip(&["link", "set", "dev", interface, "nomaster"])?;
                self.network(network).plugged = None;
                self.save()
            }
            // The ledger has it with its domain.
            Step::MakeVolume { pool, name, xml, .. } => {
                self.define(&["vol-create", pool, "/dev/stdin"], xml).with_context(|| format!("volume `{name}`"))
            }
            Step::GrowVolume { domain, runs, pool, name, bytes } => self.grow(domain, *runs, (pool, name), *bytes),
            Step::DefineDomain { name, xml, entry } => self.define_domain(name, xml, entry),
            Step::RemoveVolume { domain, pool, name, there } => {
                if *there {
                    self.virsh.run(&["vol-delete", name, "--pool", pool])?;
                }
                let entry = self.ledger.domains.entry(domain.clone()).or_default();
                entry.volumes.retain(|(in_pool, volume)| (in_pool, volume) != (pool, name));
                self.save()
            }
        }
    }

    fn define(&self, arguments: &[&str], xml: &str) -> anyhow::Result<()> {
        Ok(self.virsh.with_file(arguments, xml).map(drop)?)
    }

    fn network(&mut self, name: &str) -> &mut NetworkEntry {
        self.ledger.networks.entry(name.to_owned()).or_default()
    }

    fn remove_domain(
        &mut self,
        name: &str,
        there: bool,
        runs: bool,
        volumes: &[(String, String)],
    ) -> anyhow::Result<()> {
        if runs {
            self.virsh.run(&["destroy", name])?;
        }
        if there {
            self.virsh.run(&[
                "undefine",
                name,
                "--nvram",
                "--managed-save",
                "--snapshots-metadata",
                "--checkpoints-metadata",
            ])?;
        }
        for (pool, volume) in volumes {
            self.virsh.run(&["vol-delete", volume, "--pool", pool])?;
        }
        power::forget(self.paths, name)?;
        self.ledger.domains.remove(name);
        self.save()
    }

    fn remove_network(&mut self, name: &str, there: Option<bool>, bridge: Option<&str>) -> anyhow::Result<()> {
        let document = there.map(|_| self.virsh.run(&["net-dumpxml", name])).transpose()?;
        let used = document.and_then(|text| Some(Element::parse(&text).ok()?.of_child("bridge", "name")?.to_owned()));
        if there == Some(true) {
            self.virsh.run(&["net-destroy", name])?;
        }
        if there.is_some() {
            self.virsh.run(&["net-undefine", name])?;
        }
        if let Some(bridge) = bridge {
            self.virsh.ip(&["link", "delete", "dev", bridge])?;
        } else if let Some(bridge) = used {
            // Libvirt's own bridge has gone with the network; the node's own is as it was before.
            let _ = self.group(&bridge, 0);
        }
        self.ledger.networks.remove(name);
        self.save()
    }

    /// Makes a bridge without a spanning tree, so that packets of a plugged interface pass at once.
    fn make_bridge(&mut self, network: &str, bridge: &str, mac: &str, address: &str) -> anyhow::Result<()> {
        self.network(network).bridge = Some(bridge.to_owned());
        self.save()?;
        let kind = ["type", "bridge", "stp_state", "0", "forward_delay", "0"];
        let mac: &[&str] = if mac.is_empty() { &[] } else { &["address", mac] };
        let argv: Vec<&str> = ["link", "add", "name", bridge].iter().chain(mac).chain(&kind).copied().collect();
        self.virsh.ip(&argv)?;
        if !address.is_empty() {
            self.virsh.ip(&["address", "add", address, "dev", bridge])?;
        }
        Ok(self.virsh.ip(&["link", "set", "dev", bridge, "up"]).map(drop)?)
    }

    fn define_network(&mut self, name: &str, xml: &str, hash: &str, active: bool) -> anyhow::Result<()> {
        // The ledger knows the name; the hash only when it is true.
        self.network(name).hash = None;
        self.save()?;
        self.define(&["net-define", "/dev/stdin"], xml)?;
        if active {
            self.virsh.run(&["net-destroy", name])?;
        }
        self.network(name).hash = Some(hash.to_owned());
        self.save()
    }

    fn group(&self, bridge: &str, group: u32) -> Result<(), VirshError> {
        self.virsh.ip(&["link", "set", "dev", bridge, "group", &group.to_string()]).map(drop)
    }

    fn start_network(&mut self, name: &str) -> anyhow::Result<()> {
        self.virsh.run(&["net-start", name])?;
        let document = Element::parse(&self.virsh.run(&["net-dumpxml", name])?)?;
        let Some(bridge) = document.of_child("bridge", "name").map(str::to_owned) else { return Ok(()) };
        // One that leads to a bridge of others has none of its own.
        let is_own = document.of_child("forward", "mode") != Some("bridge");
        self.network(name).of_libvirt = Some(bridge.clone()).filter(|_| is_own);
        self.save()?;
        self.group(&bridge, BRIDGES)?;
        // Machines that ran on it before are still there, plugged into nothing.
        for domain in self.virsh.lines(&["list", "--name"])? {
            for line in self.virsh.lines(&["domiflist", &domain])? {
                let words: Vec<&str> = line.split_whitespace().collect();
                if let [tap, "network", source, ..] = words[..]
                    && source == name
                    && tap != "-"
                {
                    self.virsh.ip(&["link", "set", "dev", tap, "master", &bridge])?;
                }
            }
        }
        Ok(())
    }

    /// Makes a volume larger. A machine that runs is told of its larger disk; one that is off finds it at its next start.
    fn grow(&self, domain: &str, runs: bool, (pool, name): (&str, &str), bytes: u64) -> anyhow::Result<()> {
        let size = format!("{bytes}b");
        if !runs {
            return Ok(self.virsh.run(&["vol-resize", name, &size, "--pool", pool]).map(drop)?);
        }
        let path = self.virsh.run(&["vol-path", name, "--pool", pool])?;
        Ok(self.virsh.run(&["blockresize", domain, path.trim(), &size]).map(drop)?)
    }

    /// Defines a domain. One that libvirt refuses keeps what it has: after a restart of the pod it is not there, but its volumes
    /// are.
    fn define_domain(&mut self, name: &str, xml: &str, entry: &DomainEntry) -> anyhow::Result<()> {
        let is_new = !self.ledger.domains.contains_key(name);
        self.ledger.domains.entry(name.to_owned()).or_default().cores.clone_from(&entry.cores);
        self.save()?;
        if let Err(error) = self.define(&["define", "/dev/stdin"], xml) {
            if is_new {
                self.ledger.domains.remove(name);
                self.save()?;
            }
            return Err(error);
        }
        self.ledger.domains.insert(name.to_owned(), entry.clone());
        self.save()
    }
}

/// Brings pools back that were made here and that libvirt does not know any more, or that are not active: what volumes there
/// are is not known without them. Returns whether there were any.
pub fn restore_pools(virsh: &Virsh, paths: &Paths, ledger: &Ledger, there: &There) -> anyhow::Result<bool> {
    let lost = |(name, entry): &(&String, &PoolEntry)| there.pools.get(*name) != Some(&true) && !entry.xml.is_empty();
    let lost: Vec<_> = ledger.pools.iter().filter(lost).collect();
    for (name, entry) in &lost {
        let doing = || format!("bringing back pool `{name}`");
        if !there.pools.contains_key(*name) {
            define_pool(virsh, paths, entry).with_context(doing)?;
        }
        virsh.run(&["pool-start", name]).with_context(doing)?;
    }
    Ok(!lost.is_empty())
}

fn define_pool(virsh: &Virsh, paths: &Paths, entry: &PoolEntry) -> anyhow::Result<()> {
    if let Some(folder) = &entry.folder {
        fs_err::create_dir_all(paths.of_node(folder))?;
    }
    Ok(virsh.with_file(&["pool-define", "/dev/stdin"], &entry.xml).map(drop)?)
}

/// A step as a line of the log. It leaves out documents, which may hold passwords.
fn told(step: &Step) -> String {
    let what = serde_json::to_value(step).unwrap_or_default();
    let (kind, mut fields) = what
        .as_object()
        .and_then(|map| map.iter().next())
        .map(|(kind, fields)| (kind.clone(), fields.clone()))
        .unwrap_or_default();
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| !["xml", "hash", "entry"].contains(&name.as_str()));
    }
    format!("{kind} {fields}")
}
