//! Carries out the steps of a plan. When a step fails, the report says so for its domain, network or pool, and steps about
//! other ones go on.

use std::collections::BTreeMap;

use anyhow::Context as _;

use super::ledger::{DomainEntry, Ledger, NetworkEntry, PoolEntry};
use super::plan::{About, Step};
use super::redfish::power;
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
                self.ledger.pools.insert(name.clone(), PoolEntry { folder: folder.clone() });
                self.save()?;
                if let Some(folder) = folder {
                    fs_err::create_dir_all(self.paths.of_node(folder))?;
                }
                self.define(&["pool-define", "/dev/stdin"], xml)
            }
            Step::StartPool { name } => Ok(self.virsh.run(&["pool-start", name]).map(drop)?),
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
            Step::MakeVolume { domain, pool, name, xml } => {
                let key = (pool.clone(), name.clone());
                let entry = self.ledger.domains.entry(domain.clone()).or_default();
                if !entry.volumes.contains(&key) {
                    entry.volumes.push(key);
                }
                self.save()?;
                self.define(&["vol-create", pool, "/dev/stdin"], xml).with_context(|| format!("volume `{name}`"))
            }
            Step::GrowVolume { domain, runs, pool, name, bytes } => self.grow(domain, *runs, (pool, name), *bytes),
            Step::DefineDomain { name, xml, entry, there } => self.define_domain(name, xml, entry, *there),
            Step::RemoveVolume { pool, name, .. } => {
                Ok(self.virsh.run(&["vol-delete", name, "--pool", pool]).map(drop)?)
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

    fn start_network(&self, name: &str) -> anyhow::Result<()> {
        self.virsh.run(&["net-start", name])?;
        // Machines that ran on it before are still there, plugged into nothing.
        let bridge = self.virsh.run(&["net-dumpxml", name])?;
        let bridge = Element::parse(&bridge)?.of_child("bridge", "name").map(str::to_owned);
        let Some(bridge) = bridge else { return Ok(()) };
        self.group(&bridge, BRIDGES)?;
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

    /// Defines a domain. If libvirt refuses the definition, the volumes that were made for it are removed again.
    fn define_domain(&mut self, name: &str, xml: &str, entry: &DomainEntry, there: bool) -> anyhow::Result<()> {
        self.ledger.domains.entry(name.to_owned()).or_default().cores.clone_from(&entry.cores);
        self.save()?;
        if let Err(error) = self.virsh.with_file(&["define", "/dev/stdin"], xml) {
            if !there {
                self.forget(name, entry);
            }
            return Err(error.into());
        }
        self.ledger.domains.insert(name.to_owned(), entry.clone());
        self.save()
    }

    fn forget(&mut self, name: &str, entry: &DomainEntry) {
        let gone = |(pool, volume): &(String, String)| self.virsh.run(&["vol-delete", volume, "--pool", pool]);
        let left: Vec<VirshError> = entry.volumes.iter().filter_map(|volume| gone(volume).err()).collect();
        if left.is_empty() {
            self.ledger.domains.remove(name);
        }
        for error in left {
            log::warn!("a volume of `{name}`, which was refused: {error}");
        }
        if let Err(error) = self.save() {
            log::warn!("the ledger: {error:#}");
        }
    }
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
