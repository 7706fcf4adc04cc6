//! What the values ask for: documents for libvirt, rendered from the templates. Nothing is read from the system here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use agent_api::net::Cidr;
use agent_api::vino::values::{Accelerator, DiskValues, DomainValues, NetworkValues, NodeValues};
use minijinja::Value;
use serde_json::{Map, json};
use sha2::{Digest as _, Sha256};

use super::cores;
use super::ledger::Ledger;
use super::templates::{Template, Templates};
use super::there::Link;
use super::xml::Element;

/// Bytes of libvirt's unit `G`.
const GIB: u64 = 1 << 30;
/// Most characters of an interface's name.
const IFNAME: usize = 15;

/// What is known of the node.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its address.
    pub node_ip: String,
    /// Whether domains run with KVM.
    pub accelerator: Accelerator,
    /// Its cores, by NUMA node.
    pub numa: Vec<BTreeSet<u32>>,
    /// Huge pages of 1 GiB that it has, used or not.
    pub huge_pages: u32,
    /// The interface for networks that name none.
    pub interface: Option<String>,
    /// Its interfaces.
    pub links: BTreeMap<String, Link>,
    /// Passwords of screens, by Secret and key.
    pub passwords: BTreeMap<(String, String), String>,
}

/// What shall be there. What cannot be made is an error text in its place.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Pools, in their order.
    pub pools: Vec<WantedPool>,
    /// Networks.
    pub networks: BTreeMap<String, Result<WantedNetwork, String>>,
    /// Domains.
    pub domains: BTreeMap<String, Result<WantedDomain, String>>,
    /// Errors that belong to none of them.
    pub errors: Vec<String>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPool {
    /// Its name.
    pub name: String,
    /// Its document.
    pub xml: String,
    /// Its folder.
    pub folder: Option<PathBuf>,
}

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedNetwork {
    /// Its document.
    pub xml: String,
    /// Hash of it.
    pub hash: String,
    /// Its bridge.
    pub bridge: Option<String>,
    /// Set if libvirt does not make the bridge: the builder makes it, with this MAC address and this address, unless it
    /// exists.
    pub foreign: Option<(String, String)>,
    /// What is plugged into the bridge.
    pub plug: Option<String>,
}

/// A domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedDomain {
    /// Its document.
    pub xml: String,
    /// Hash of it and of its volumes.
    pub hash: String,
    /// Its volumes.
    pub volumes: Vec<WantedVolume>,
    /// The cores that it is pinned to.
    pub cores: Vec<u32>,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedVolume {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its document.
    pub xml: String,
    /// Its size.
    pub bytes: u64,
}

/// Renders what the values ask for.
pub fn wanted(values: &NodeValues, templates: &Templates, facts: &Facts, ledger: &Ledger) -> Wanted {
    let mut wanted = Wanted::default();
    if values.domains.is_empty() && values.networks.is_empty() {
        return wanted;
    }
    let base = base(values, facts);
    for (name, template) in templates.pools() {
        match pool(&name, &template, &base) {
            Ok(pool) => wanted.pools.push(pool),
            Err(error) => wanted.errors.push(error),
        }
    }
    let mut plugged: BTreeMap<String, &str> = BTreeMap::new();
    for one in &values.networks {
        let made = network(one, templates, &base, facts, ledger).and_then(|made| {
            let other = made.plug.clone().and_then(|interface| Some((plugged.get(&interface).copied()?, interface)));
            match other {
                Some((other, interface)) => Err(plugged_twice(&interface, other)),
                None => Ok(made),
            }
        });
        plugged.extend(made.iter().filter_map(|made| Some((made.plug.clone()?, one.name.as_str()))));
        wanted.networks.insert(one.name.clone(), made);
    }
    let chosen = values.networks.iter().flat_map(|one| [Some(one.name.as_str()), one.libvirt_template.as_deref()]);
    for (name, template) in templates.networks_beside(&chosen.flatten().collect::<Vec<_>>()) {
        let made =
            template.render(&Value::from_serialize(&base)).and_then(|text| network_of(&name, &text, &template.name));
        wanted.networks.insert(name, made);
    }
    let cores = match pinned(values, facts, ledger) {
        Ok(cores) => cores,
        Err(error) => {
            // Domains that are there stay: they are still asked for.
            let all = values.domains.iter().map(|one| (one.name.clone(), Err(error.clone())));
            wanted.domains.extend(all);
            return wanted;
        }
    };
    let pool = wanted.pools.first().map(|pool| pool.name.clone());
    let mut pages = facts.huge_pages;
    for one in &values.domains {
        let of = Of { values: one, templates, facts, base: &base, pool: pool.as_deref(), cores: &cores };
        let made = of.make().and_then(|made| {
            if one.flavor.hugepages {
                let needed = one.flavor.memory;
                pages = pages.checked_sub(needed).ok_or_else(|| {
                    format!("it needs {needed} huge pages of 1 GiB, {pages} are left of the node's {}; hint: `hugepagesz=1G hugepages=N` \
                             on the node's kernel command line, or `hugepages: false` in the flavour", facts.huge_pages)
                })?;
            }
            Ok(made)
        });
        wanted.domains.insert(one.name.clone(), made);
    }
    wanted
}

/// What every template knows.
fn base(values: &NodeValues, facts: &Facts) -> Map<String, serde_json::Value> {
    let flavors: Map<String, serde_json::Value> =
        values.domains.iter().map(|one| (one.role.clone(), json!(one.flavor))).collect();
    let mut base = Map::new();
    base.insert("flavors".into(), json!(flavors));
    base.insert("nodeCount".into(), json!(values.node_count));
    base.insert("domains".into(), json!(values.domains));
    base.insert("networks".into(), json!(values.networks));
    base.insert("omit".into(), json!(""));
    base.insert("ansible_default_ipv4".into(), json!({ "address": facts.node_ip }));
    // Another day must not be another machine.
    base.insert("ansible_date_time".into(), json!({ "date": "" }));
    if let Some(host) = &values.pxe_boot_image_host {
        base.insert("pxeBootImageHost".into(), json!(host));
    }
    if let Some(port) = values.pxe_boot_image_host_port {
        base.insert("pxeBootImageHostPort".into(), json!(port));
    }
    base
}

fn with(
    base: &Map<String, serde_json::Value>,
    more: impl IntoIterator<Item = (&'static str, serde_json::Value)>,
) -> Value {
    let mut all = base.clone();
    all.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::from_serialize(&all)
}

fn pool(name: &str, template: &Template, base: &Map<String, serde_json::Value>) -> Result<WantedPool, String> {
    let text = template.render(&Value::from_serialize(base))?;
    let root = document(&text, "pool", name, &template.name)?;
    let folder = root.child("target").and_then(|target| target.child("path")).map(|path| PathBuf::from(path.text()));
    Ok(WantedPool {
        name: name.to_owned(),
        xml: root.write(),
        folder: folder.filter(|_| root.get("type") == Some("dir")),
    })
}

/// Reads a rendered document, and checks that it describes the right object.
fn document(text: &str, root: &str, name: &str, template: &str) -> Result<Element, String> {
    let element = Element::parse(text).map_err(|error| format!("{template} comes to what is no XML: {error}"))?;
    if element.name != root {
        return Err(format!("{template} comes to `<{}>`, expected `<{root}>`", element.name));
    }
    let found = element.child("name").map(Element::text).unwrap_or_default();
    if found != name {
        return Err(format!("{template} comes to the name `{found}`, expected `{name}`"));
    }
    Ok(element)
}

fn network(
    values: &NetworkValues,
    templates: &Templates,
    base: &Map<String, serde_json::Value>,
    facts: &Facts,
    ledger: &Ledger,
) -> Result<WantedNetwork, String> {
    let template = templates.network(&[values.libvirt_template.as_deref().unwrap_or_default(), &values.name]);
    let plug = values.physical_interface.clone().or_else(|| facts.interface.clone());
    let host_bridge = plug.as_ref().filter(|name| facts.links.get(*name).is_some_and(|link| link.bridge));
    let (family, prefix) = subnet(values)?;
    let mut network = json!(values);
    network["family"] = json!(family);
    network["prefix"] = json!(prefix);
    network["bridgeName"] = json!(bridge_name(values)?);
    if let Some(bridge) = host_bridge {
        network["hostBridge"] = json!(bridge);
    }
    let range = values.range.as_ref();
    let instances: Vec<&str> = range.iter().flat_map(|range| [range.start.as_str(), range.stop.as_str()]).collect();
    let ipam =
        json!({ "bridge_subnet_netmask": values.netmask, "bridge_ip": values.bridge_ip, "instance_ips": instances });
    let text = template.render(&with(base, [("network", network), ("ipam", ipam)]))?;
    let mut made = network_of(&values.name, &text, &template.name)?;
    if host_bridge.is_none()
        && let Some(name) = plug
    {
        plugs(&name, facts, ledger)?;
        made.plug = Some(name);
    }
    if let Some(foreign) = &mut made.foreign {
        let address =
            if values.bridge_ip.is_empty() { String::new() } else { format!("{}/{prefix}", values.bridge_ip) };
        *foreign = (values.bridge_mac.clone(), address);
    }
    Ok(made)
}

fn plugged_twice(interface: &str, other: &str) -> String {
    format!(
        "the interface `{interface}` is for network `{other}` already, and it can be in one bridge only; hint: name another \
         `physicalInterface`, or a bridge of the node, which several networks may use"
    )
}

/// Whether an interface may be plugged into a bridge: one with addresses would lose them, and one that is part of another's
/// bridge or bond would be taken out of that; the node could be cut off by either.
fn plugs(name: &str, facts: &Facts, ledger: &Ledger) -> Result<(), String> {
    let Some(link) = facts.links.get(name) else {
        return Err(format!("the node has no interface `{name}`, which `physicalInterface` names"));
    };
    let is_ours = ledger.networks.values().any(|entry| entry.plugged.as_deref() == Some(name));
    if let Some(master) = link.master.as_ref().filter(|_| !is_ours) {
        return Err(format!(
            "the interface `{name}` is part of `{master}`, which ViNO did not put it into; hint: name `{master}` if it is a \
             bridge, or an interface that is part of nothing"
        ));
    }
    if link.addresses.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the interface `{name}` has the address {}, which it would lose in a bridge; hint: name a bridge that has `{name}` and its \
         addresses (Site can make one), or an interface without addresses",
        link.addresses.join(", ")
    ))
}

/// A network's document for libvirt, with the delay of the spanning tree set to none.
fn network_of(name: &str, text: &str, template: &str) -> Result<WantedNetwork, String> {
    let mut root = document(text, "network", name, template)?;
    let foreign = root.of_child("forward", "mode") == Some("bridge");
    let mut bridge = None;
    if let Some(element) = root.child_mut("bridge") {
        bridge = element.get("name").map(str::to_owned);
        if !foreign {
            element.set("stp", "off");
            element.set("delay", "0");
        }
    }
    let xml = root.write();
    let hash = hash([xml.as_str()]);
    let foreign = (foreign && bridge.is_some()).then(|| (String::new(), String::new()));
    Ok(WantedNetwork { xml, hash, bridge, foreign, plug: None })
}

fn subnet(values: &NetworkValues) -> Result<(&'static str, u8), String> {
    let wrong = || format!("`subnet` is `{}`, expected an address and a prefix length", values.subnet);
    let Cidr { address, prefix } = Cidr::parse(&values.subnet).ok_or_else(wrong)?;
    Ok((if address.is_ipv4() { "ipv4" } else { "ipv6" }, prefix))
}

/// The name of a network's bridge: as users name it, else the network's name if an interface can have it.
fn bridge_name(values: &NetworkValues) -> Result<String, String> {
    let fits = |name: &str| {
        (1..=IFNAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match &values.bridge_name {
        Some(name) if fits(name) => Ok(name.clone()),
        Some(name) => Err(format!(
            "`bridgeName` is `{name}`, which no interface can be called: up to {IFNAME} letters, digits, `-`, `_`, `.`"
        )),
        None if fits(&values.name) => Ok(values.name.clone()),
        None => Ok(format!("vino{}", &hash([values.name.as_str()])[..8])),
    }
}

fn pinned(
    values: &NodeValues,
    facts: &Facts,
    ledger: &Ledger,
) -> Result<BTreeMap<String, Result<Vec<u32>, String>>, String> {
    let Some(exclude) = &values.configuration.cpu_exclude else { return Ok(BTreeMap::new()) };
    let exclude = cores::parse(exclude).map_err(|error| format!("`cpuExclude`: {error}"))?;
    let domains: Vec<(String, u32)> = values.domains.iter().map(|one| (one.name.clone(), one.flavor.vcpus)).collect();
    let before = ledger.domains.iter().map(|(name, entry)| (name.clone(), entry.cores.clone())).collect();
    Ok(cores::assign(&facts.numa, &exclude, &domains, &before))
}

/// A domain that is being rendered.
struct Of<'a> {
    values: &'a DomainValues,
    templates: &'a Templates,
    facts: &'a Facts,
    base: &'a Map<String, serde_json::Value>,
    pool: Option<&'a str>,
    cores: &'a BTreeMap<String, Result<Vec<u32>, String>>,
}

impl Of<'_> {
    fn make(&self) -> Result<WantedDomain, String> {
        let name = &self.values.name;
        let pool = self.pool.ok_or("there is no pool for its volumes")?;
        let cores = self.cores.get(name).cloned().transpose()?.unwrap_or_default();
        let map: Map<String, serde_json::Value> =
            self.cores.iter().filter_map(|(name, cores)| Some((name.clone(), json!(cores.as_ref().ok()?)))).collect();
        let mut domain = json!(self.values);
        domain["enable_vnc"] = json!(self.values.enable_vnc);
        let flavor = json!(self.values.flavor);
        let more = |domain: &serde_json::Value| {
            with(self.base, [("domain", domain.clone()), ("flavor", flavor.clone()), ("node_core_map", json!(map))])
        };
        let template = self.templates.volume(&self.values.role);
        let first = self.first_volume(pool, &template.render(&more(&domain))?, &template.name)?;
        let (volumes, disks) = self.disks(pool, first)?;
        domain["disks"] = json!(disks);
        let template = self.templates.domain(&self.values.role);
        let root = document(&template.render(&more(&domain))?, "domain", name, &template.name)?;
        let xml = self.finish(root)?.write();
        let hash = hash(std::iter::once(xml.as_str()).chain(volumes.iter().map(|volume| volume.xml.as_str())));
        Ok(WantedDomain { xml, hash, volumes, cores })
    }

    /// The first volume, with the size of a disk `root` where there is one.
    fn first_volume(&self, pool: &str, text: &str, template: &str) -> Result<WantedVolume, String> {
        let mut root = Element::parse(text).map_err(|error| format!("{template} comes to what is no XML: {error}"))?;
        if root.name != "volume" {
            return Err(format!("{template} comes to `<{}>`, expected `<volume>`", root.name));
        }
        let name = root.child("name").map(Element::text).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("{template} comes to a volume without a name"))?;
        let given = self.values.disk_drives.iter().find(|disk| disk.name == "root").and_then(|disk| disk.size_gb);
        let bytes = u64::from(given.unwrap_or(self.values.flavor.root_size)) * GIB;
        if let Some(capacity) = root.child_mut("capacity").filter(|_| given.is_some()) {
            capacity.set("unit", "bytes");
            capacity.set_text(&bytes.to_string());
        }
        Ok(WantedVolume { pool: pool.to_owned(), name, xml: root.write(), bytes })
    }

    /// All volumes, and the disks as templates see them.
    fn disks(&self, pool: &str, first: WantedVolume) -> Result<(Vec<WantedVolume>, Vec<serde_json::Value>), String> {
        let scsi = self.values.root_device_name.starts_with("/dev/sd");
        let (letters, bus) = if scsi { ("sd", "scsi") } else { ("vd", "virtio") };
        let target = |index: usize| {
            let letter = u8::try_from(index).ok().filter(|index| *index < 26).map(|index| char::from(b'a' + index));
            letter.map(|letter| format!("{letters}{letter}")).ok_or_else(|| "it has more than 26 disks".to_owned())
        };
        let format =
            |root: &str| Element::parse(root).ok()?.child("target")?.of_child("format", "type").map(str::to_owned);
        let mut disks = vec![json!({
            "name": "root", "type": "volume", "pool": first.pool, "volume": first.name,
            "format": format(&first.xml).unwrap_or_else(|| "raw".to_owned()), "target": target(0)?, "bus": bus,
        })];
        let mut volumes = vec![first];
        for disk in self.values.disk_drives.iter().filter(|disk| disk.name != "root") {
            let format = disk.kind.as_deref().unwrap_or("qcow2");
            if !["qcow2", "raw"].contains(&format) {
                return Err(format!("the disk `{}` has the type `{format}`, expected `qcow2` or `raw`", disk.name));
            }
            let mut told = json!({ "name": disk.name, "format": format, "target": target(disks.len())?, "bus": bus });
            if let Some(path) = &disk.path {
                told["type"] = json!(if path.starts_with("/dev/") { "block" } else { "file" });
                told["path"] = json!(path);
                if path.starts_with("/dev/") {
                    told["format"] = json!("raw");
                }
            } else {
                let volume = self.volume(pool, disk, format)?;
                told["type"] = json!("volume");
                told["pool"] = json!(volume.pool);
                told["volume"] = json!(volume.name);
                volumes.push(volume);
            }
            disks.push(told);
        }
        Ok((volumes, disks))
    }

    fn volume(&self, pool: &str, disk: &DiskValues, format: &str) -> Result<WantedVolume, String> {
        let size = disk.size_gb.ok_or_else(|| format!("the disk `{}` has neither `sizeGb` nor `path`", disk.name))?;
        let (name, bytes) = (format!("{}-{}", self.values.name, disk.name), u64::from(size) * GIB);
        let mut root = Element::new("volume");
        for (child, text) in [("name", name.clone()), ("capacity", bytes.to_string())] {
            let mut element = Element::new(child);
            element.set_text(&text);
            root.add(element);
        }
        let mut allocation = Element::new("allocation");
        allocation.set_text(&if disk.sparse { 0 } else { bytes }.to_string());
        root.add(allocation);
        let mut target = Element::new("target");
        target.add(Element::new("format").with("type", format));
        root.add(target);
        Ok(WantedVolume { pool: pool.to_owned(), name, xml: root.write(), bytes })
    }

    /// What is set in the document of any template: KVM or emulation, and the password of its screen.
    fn finish(&self, mut root: Element) -> Result<Element, String> {
        if self.facts.accelerator == Accelerator::Tcg {
            root.set("type", "qemu");
            if let Some(cpu) = root.child_mut("cpu")
                && matches!(cpu.get("mode"), Some("host-passthrough" | "host-model"))
            {
                cpu.set("mode", "maximum");
                cpu.unset("migratable");
            }
        }
        if !self.values.enable_vnc {
            return Ok(root);
        }
        let Some(vnc) = &self.values.vnc else {
            return Err("`enableVNC` without a password: the values name no Secret for its screen".to_owned());
        };
        let password = self.facts.passwords.get(&(vnc.secret.clone(), vnc.key.clone()));
        let password = password.ok_or_else(|| {
            format!("the Secret `{}` has no key `{}` with the password of its screen", vnc.secret, vnc.key)
        })?;
        let devices = root.child_mut("devices").ok_or("its document has no `<devices>`")?;
        let is_vnc = |element: &Element| element.name == "graphics" && element.get("type") == Some("vnc");
        if !devices.elements().any(is_vnc) {
            devices.add(Element::new("graphics").with("type", "vnc").with("autoport", "yes").with("listen", "0.0.0.0"));
        }
        devices.elements_mut().filter(|element| is_vnc(element)).for_each(|screen| screen.set("passwd", password));
        Ok(root)
    }
}

fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut all = Sha256::new();
    for text in texts {
        all.update(text.len().to_be_bytes());
        all.update(text);
    }
    hex::encode(all.finalize())
}
