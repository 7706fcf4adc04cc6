//! What libvirt and the kernel have now, whoever made it.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::vino::values::DomainState;
use serde::Deserialize;

use super::virsh::{Virsh, VirshError};
use super::xml::Element;

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// Pools, and whether they are active.
    pub pools: BTreeMap<String, bool>,
    /// Capacity in bytes of the volumes of active pools, by pool and name.
    pub volumes: BTreeMap<(String, String), u64>,
    /// Networks, and whether they are active.
    pub networks: BTreeMap<String, bool>,
    /// Domains.
    pub domains: BTreeMap<String, DomainState>,
    /// The number of each domain that runs; libvirt gives a new one at each start.
    pub runs: BTreeMap<String, String>,
    /// Interfaces.
    pub links: BTreeMap<String, Link>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it is a bridge.
    pub bridge: bool,
    /// The bridge that it is plugged into.
    pub master: Option<String>,
    /// Its addresses but those of the link itself.
    pub addresses: Vec<String>,
}

/// Asks libvirt and the kernel. `pools`: those whose volumes matter.
pub fn look(virsh: &Virsh, pools: &BTreeSet<String>) -> Result<There, VirshError> {
    let of = |all: &[&str], active: &[&str]| -> Result<BTreeMap<String, bool>, VirshError> {
        let active: BTreeSet<String> = virsh.lines(active)?.into_iter().collect();
        Ok(virsh.lines(all)?.into_iter().map(|name| (name.clone(), active.contains(&name))).collect())
    };
    let mut there = There {
        pools: of(&["pool-list", "--all", "--name"], &["pool-list", "--name"])?,
        networks: of(&["net-list", "--all", "--name"], &["net-list", "--name"])?,
        links: links(virsh)?,
        ..There::default()
    };
    for line in virsh.lines(&["list", "--all"])? {
        let Some((run, name, state)) = domain(&line) else { continue };
        there.domains.insert(name.clone(), state);
        there.runs.extend(run.map(|run| (name, run)));
    }
    for pool in pools.iter().filter(|pool| there.pools.get(*pool) == Some(&true)) {
        virsh.run(&["pool-refresh", pool])?;
        for line in virsh.lines(&["vol-list", pool])? {
            let Some(name) = line.split_whitespace().next() else { continue };
            let capacity = capacity(&virsh.run(&["vol-dumpxml", name, "--pool", pool])?);
            there.volumes.insert((pool.clone(), name.to_owned()), capacity.unwrap_or(0));
        }
    }
    Ok(there)
}

/// A line of `virsh list`: number, name, and state in words.
fn domain(line: &str) -> Option<(Option<String>, String, DomainState)> {
    let mut words = line.split_whitespace();
    let (run, name) = (words.next()?, words.next()?);
    let state = match words.next()? {
        "running" | "idle" | "no" => DomainState::Running,
        "shut" => DomainState::ShutOff,
        _ => DomainState::Paused,
    };
    Some((Some(run).filter(|run| *run != "-").map(str::to_owned), name.to_owned(), state))
}

fn capacity(xml: &str) -> Option<u64> {
    Element::parse(xml).ok()?.child("capacity")?.text().parse().ok()
}

#[derive(Deserialize)]
struct IpLink {
    ifname: String,
    master: Option<String>,
    #[serde(default)]
    linkinfo: Option<LinkInfo>,
    #[serde(default)]
    addr_info: Vec<IpAddress>,
}

#[derive(Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
}

#[derive(Deserialize)]
struct IpAddress {
    local: Option<String>,
    scope: Option<String>,
}

fn links(virsh: &Virsh) -> Result<BTreeMap<String, Link>, VirshError> {
    let text = virsh.ip(&["-json", "-details", "address", "show"])?;
    parse_links(&text).map_err(|error| VirshError::Refused(format!("`ip` says what is no JSON: {error}")))
}

fn parse_links(text: &str) -> serde_json::Result<BTreeMap<String, Link>> {
    let found: Vec<IpLink> = serde_json::from_str(if text.trim().is_empty() { "[]" } else { text })?;
    let link = |one: IpLink| {
        let far = one.addr_info.into_iter().filter(|address| address.scope.as_deref() != Some("link"));
        let link = Link {
            bridge: one.linkinfo.and_then(|info| info.info_kind).as_deref() == Some("bridge"),
            master: one.master,
            addresses: far.filter_map(|address| address.local).collect(),
        };
        (one.ifname, link)
    };
    Ok(found.into_iter().map(link).collect())
}

#[cfg(test)]
mod tests {
    use agent_api::vino::values::DomainState;

    use super::{capacity, domain, parse_links};

    #[test]
    fn a_domain_has_a_number_while_it_runs() {
        assert_eq!(
            domain(" 2    w-0    running"),
            Some((Some("2".to_owned()), "w-0".to_owned(), DomainState::Running))
        );
        assert_eq!(domain(" -    w-1    shut off"), Some((None, "w-1".to_owned(), DomainState::ShutOff)));
        assert_eq!(domain(" 3    w-2    paused").map(|it| it.2), Some(DomainState::Paused));
    }

    #[test]
    fn bridges_are_told_from_what_is_plugged_into_them() {
        let text = r#"[{"ifname":"lo","addr_info":[{"local":"127.0.0.1","scope":"host"}]},
            {"ifname":"br","linkinfo":{"info_kind":"bridge"},"addr_info":[{"local":"fe80::1","scope":"link"}]},
            {"ifname":"eth0","master":"br","addr_info":[]}]"#;
        let links = parse_links(text).expect("JSON");
        assert!(links["br"].bridge && links["br"].addresses.is_empty());
        assert_eq!(links["eth0"].master.as_deref(), Some("br"));
        assert_eq!(links["lo"].addresses, ["127.0.0.1"]);
    }

    #[test]
    fn a_volume_has_its_capacity_in_bytes() {
        assert_eq!(capacity("<volume><capacity unit='bytes'>1073741824</capacity></volume>"), Some(1 << 30));
        assert_eq!(capacity("nothing"), None);
    }
}
