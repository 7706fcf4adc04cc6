//! What a cluster stands on: the hosts as they are, and what their Secrets say of them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use agent_api::metal3::BareMetalHost;
use agent_api::sip::cluster::{Role, SipCluster};
use agent_api::yaml;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::Value;

use super::controller::Controller;
use super::decide::{Choice, Member, View, choose};
use crate::operators::kit::{Key, Object as _, ObjectError, told_key};
use crate::ramdisk::network_data::NetworkData;

/// Key of a Secret with a host's network data.
const NETWORK_DATA: &str = "networkData";
/// Keys of a Secret with the credentials of a BMC.
const CREDENTIALS: [&str; 2] = ["username", "password"];

/// Addresses of a host, by the `id` of their network.
pub type Addresses = BTreeMap<String, IpAddr>;

/// Hosts that were changed here and whose change the watch has not told yet: by name, the version that the watch had, and
/// the host after the change.
#[derive(Debug, Default)]
pub struct Ahead(HashMap<Key, (Option<String>, Arc<BareMetalHost>)>);

impl Ahead {
    /// Notes that a host was changed here from `before` to `now`.
    pub fn changed(&mut self, before: &BareMetalHost, now: BareMetalHost) {
        let seen = self.0.remove(&before.key()).map_or_else(|| before.resource_version(), |(seen, _)| seen);
        self.0.insert(before.key(), (seen, Arc::new(now)));
    }

    /// The hosts in their newest known state. A change of ours is only written on the version that the watch had. So when
    /// the watch has any other version by now, that one is newer.
    fn over(&mut self, watched: Vec<Arc<BareMetalHost>>) -> Vec<Arc<BareMetalHost>> {
        let known: BTreeSet<Key> = watched.iter().map(|host| host.key()).collect();
        self.0.retain(|key, _| known.contains(key));
        let newer = |host: Arc<BareMetalHost>| match self.0.get(&host.key()) {
            Some((seen, now)) if *seen == host.resource_version() => Arc::clone(now),
            Some(_) => {
                self.0.remove(&host.key());
                host
            }
            None => host,
        };
        watched.into_iter().map(newer).collect()
    }
}

/// What was found out about hosts for a cluster.
pub struct Found {
    /// The choice.
    pub choice: Choice,
    /// All hosts as they were chosen from.
    pub hosts: Vec<Arc<BareMetalHost>>,
    /// Addresses of the cluster's hosts.
    pub addresses: BTreeMap<Key, Addresses>,
    /// What is wrong with Secrets of hosts that it has.
    pub broken: Vec<String>,
}

/// Addresses of hosts in their roles, or why they are not known.
type Known = BTreeMap<(Role, Key), Result<Addresses, String>>;

/// Secrets as they are in one turn. Each is read once, so that hosts that share one are judged alike.
type Secrets = BTreeMap<Key, Option<Secret>>;

impl Controller {
    /// Chooses among the hosts as they are now. Secrets are read only of hosts that would be chosen, and of those that the
    /// cluster has. A host with bad Secrets is passed over and another one is chosen, until all chosen hosts are good.
    pub(super) async fn look(&self, object: &SipCluster, ahead: &mut Ahead) -> Result<Found, ObjectError> {
        let hosts = ahead.over(self.hosts.state());
        let by_key: HashMap<Key, &BareMetalHost> = hosts.iter().map(|host| (host.key(), &**host)).collect();
        let mut unreadable: BTreeMap<(Role, Key), String> = BTreeMap::new();
        let (mut known, mut secrets) = (Known::new(), Secrets::new());
        let (choice, wrong) = loop {
            let view = View { hosts: &hosts, unreadable: &unreadable, tell_all: object.is_dry_run() };
            let choice = choose(object, &view);
            for member in &choice.members {
                let at = (member.role, member.host.clone());
                if let (false, Some(host)) = (known.contains_key(&at), by_key.get(&member.host)) {
                    known.insert(at, self.facts(object, member.role, host, &mut secrets).await?);
                }
            }
            let wrong = wrong(&choice, &known);
            let news = wrong.iter().filter(|(member, _)| choice.claim.contains(member));
            let news: Vec<_> = news.map(|(member, why)| ((member.role, member.host.clone()), why.clone())).collect();
            if news.is_empty() {
                break (choice, wrong);
            }
            unreadable.extend(news);
        };
        let found = |member: &Member| {
            let addresses = known.get(&(member.role, member.host.clone()))?.as_ref().ok()?;
            Some((member.host.clone(), addresses.clone()))
        };
        let addresses = choice.members.iter().filter_map(found).collect();
        let broken = wrong.into_iter().map(|(member, why)| format!("{}: {why}", told_key(&member.host))).collect();
        drop(by_key);
        Ok(Found { choice, hosts, addresses, broken })
    }

    /// Addresses of a host for the services of its role. An error text when they cannot be found, or when the BMC's Secret
    /// is not usable.
    async fn facts(
        &self,
        object: &SipCluster,
        role: Role,
        host: &BareMetalHost,
        secrets: &mut Secrets,
    ) -> Result<Result<Addresses, String>, ObjectError> {
        let (namespace, _) = host.key();
        if let Some(bmc) = host.spec.bmc.as_ref().filter(|bmc| !bmc.credentials_name.is_empty()) {
            let name = &bmc.credentials_name;
            let secret = self.secret(secrets, &namespace, name).await?;
            if let Err(why) = credentials(secret) {
                return Ok(Err(format!("Secret `{namespace}/{name}` with the credentials of its BMC {why}")));
            }
        }
        let services = &object.spec.services;
        let wanted = services.interfaces(role);
        let all: BTreeSet<&str> = Role::ALL.into_iter().flat_map(|role| services.interfaces(role)).collect();
        if all.is_empty() {
            return Ok(Ok(Addresses::new()));
        }
        let Some(reference) = &host.spec.network_data else {
            let why = "it has no `networkData`, which services need its address from".to_owned();
            return Ok(if wanted.is_empty() { Ok(Addresses::new()) } else { Err(why) });
        };
        let namespace = reference.namespace.clone().filter(|it| !it.is_empty()).unwrap_or(namespace);
        let secret = match reference.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => self.secret(secrets, &namespace, name).await?,
            None if wanted.is_empty() => return Ok(Ok(Addresses::new())),
            None => return Ok(Err("its `networkData` names no Secret".to_owned())),
        };
        let name = reference.name.as_deref().unwrap_or_default();
        let told = |why: String| format!("Secret `{namespace}/{name}` with its network data {why}");
        Ok(addresses(secret, &all, &wanted).map_err(told))
    }

    async fn secret<'s>(
        &self,
        read: &'s mut Secrets,
        namespace: &str,
        name: &str,
    ) -> Result<Option<&'s Secret>, ObjectError> {
        let key = (namespace.to_owned(), name.to_owned());
        let secret = match read.entry(key) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(self.base.objects.secret(namespace, name).await?),
        };
        Ok(secret.as_ref())
    }
}

/// Members that cannot be served: what is wrong with their Secrets, or that another one has their address. Of two with one
/// address, a host that the cluster has already is good.
fn wrong(choice: &Choice, known: &Known) -> Vec<(Member, String)> {
    let mut members: Vec<&Member> = choice.members.iter().collect();
    members.sort_by_cached_key(|member| choice.claim.contains(member));
    let mut owners: BTreeMap<(&str, IpAddr), &Key> = BTreeMap::new();
    let mut wrong = Vec::new();
    for member in members {
        match known.get(&(member.role, member.host.clone())) {
            Some(Ok(addresses)) => {
                let own = || addresses.iter().map(|(id, address)| (id.as_str(), *address));
                if let Some((at, other)) = own().find_map(|at| Some((at, owners.get(&at)?))) {
                    let ((id, address), other) = (at, told_key(other));
                    wrong.push((
                        member.clone(),
                        format!("its address {address} in the network `{id}` is that of {other}, too"),
                    ));
                } else {
                    owners.extend(own().map(|at| (at, &member.host)));
                }
            }
            Some(Err(why)) => wrong.push((member.clone(), why.clone())),
            None => {}
        }
    }
    wrong
}

/// Checks that a Secret has a user name and a password for the BMC.
fn credentials(secret: Option<&Secret>) -> Result<(), String> {
    let Some(secret) = secret else { return Err("is not there".to_owned()) };
    let has = |key: &&str| secret.data.as_ref().and_then(|data| data.get(*key)).is_some_and(|text| !text.0.is_empty());
    match CREDENTIALS.iter().find(|key| !has(key)) {
        Some(key) => Err(format!("has no `{key}`")),
        None => Ok(()),
    }
}

/// The addresses of the host in these networks. Each of the `needed` networks must have one. Of the other networks only
/// those addresses are told that the host has: they serve other roles of the cluster.
fn addresses(secret: Option<&Secret>, all: &BTreeSet<&str>, needed: &[&str]) -> Result<Addresses, String> {
    let data = match network_data(secret) {
        Err(_) if needed.is_empty() => return Ok(Addresses::new()),
        read => read?,
    };
    let mut found = Addresses::new();
    for id in all {
        match address(&data, id) {
            Ok(address) => drop(found.insert((*id).to_owned(), address)),
            Err(why) if needed.contains(id) => return Err(why),
            Err(_) => {}
        }
    }
    Ok(found)
}

fn network_data(secret: Option<&Secret>) -> Result<NetworkData, String> {
    let Some(secret) = secret else { return Err("is not there".to_owned()) };
    let bytes = secret.data.as_ref().and_then(|data| data.get(NETWORK_DATA));
    let bytes = bytes.ok_or_else(|| format!("has no `{NETWORK_DATA}`"))?;
    let text = String::from_utf8(bytes.0.clone()).map_err(|_| "is no text".to_owned())?;
    let value: Value = yaml::read(&text).map_err(|error| format!("cannot be read: {error}"))?;
    NetworkData::read(&value).map_err(|error| format!("cannot be read: {error}"))
}

/// The address of the host in one network.
fn address(data: &NetworkData, id: &str) -> Result<IpAddr, String> {
    let networks = || data.networks.iter().filter(|network| network.id == id);
    if networks().next().is_none() {
        let ids: Vec<&str> = data.networks.iter().map(|network| network.id.as_str()).collect();
        return Err(format!("has no network `{id}`, only [{}]", ids.join(", ")));
    }
    let text = networks().find_map(|network| network.ip_address.as_deref());
    let text = text.ok_or_else(|| format!("has no `ip_address` in the network `{id}`"))?;
    let address: Option<IpAddr> = text.split('/').next().unwrap_or_default().trim().parse().ok();
    let is_of_a_host = |it: &IpAddr| !(it.is_unspecified() || it.is_loopback() || it.is_multicast());
    address.filter(is_of_a_host).ok_or_else(|| {
        format!("has `{text}` as address in the network `{id}`, expected one at which others reach the host")
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    /// Addresses in networks that are all needed.
    fn network(secret: Option<&Secret>, needed: &[&str]) -> Result<Addresses, String> {
        addresses(secret, &needed.iter().copied().collect(), needed)
    }

    fn secret(key: &str, text: &str) -> Secret {
        Secret { data: Some([(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into()), ..Secret::default() }
    }

    const DATA: &str = r#"{"links": [{"id": "eno4", "type": "phy", "mtu": 1500}], "networks": [
        {"id": "oam-ipv6", "type": "ipv6", "link": "eno4", "ip_address": "2001:db8::139/64"},
        {"id": "oam-ipv4", "type": "ipv4", "link": "eno4", "ip_address": "192.0.2.139", "netmask": "255.255.255.128",
         "dns_nameservers": ["192.0.2.1"], "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.129"}]},
        {"id": "pxe", "type": "ipv4_dhcp", "link": "eno4"}]}"#;

    /// JSON and YAML, as both are called `networkData`.
    #[test]
    fn addresses_are_those_of_the_networks_that_services_name() {
        let found = network(Some(&secret(NETWORK_DATA, DATA)), &["oam-ipv4", "oam-ipv6"]).expect("addresses");
        assert_eq!(found["oam-ipv4"], IpAddr::from([192, 0, 2, 139]));
        assert_eq!(found["oam-ipv6"].to_string(), "2001:db8::139");
        let yaml = "links: []\nnetworks:\n- { id: oam, link: a, type: ipv4, ip_address: 10.0.0.1/24 }\n";
        let found = network(Some(&secret(NETWORK_DATA, yaml)), &["oam"]).expect("addresses");
        assert_eq!(found["oam"], IpAddr::from([10, 0, 0, 1]));
    }

    #[test]
    fn what_is_wrong_with_network_data_is_said() {
        let good = secret(NETWORK_DATA, DATA);
        for (secret, id, words) in [
            (None, "oam-ipv4", "is not there"),
            (Some(secret("other", DATA)), "oam-ipv4", "has no `networkData`"),
            (Some(secret(NETWORK_DATA, "[")), "oam-ipv4", "cannot be read"),
            (Some(secret(NETWORK_DATA, "version: 2\nethernets: {}\n")), "oam-ipv4", "netplan"),
            (Some(good.clone()), "storage", "has no network `storage`, only [oam-ipv6, oam-ipv4, pxe]"),
            (Some(good), "pxe", "has no `ip_address` in the network `pxe`"),
            (
                Some(secret(NETWORK_DATA, &DATA.replace("192.0.2.139", "127.0.0.1"))),
                "oam-ipv4",
                "has `127.0.0.1` as address",
            ),
        ] {
            let why = network(secret.as_ref(), &[id]).expect_err("refused");
            assert!(why.contains(words), "{why}");
        }
    }

    /// A load balancer would ask one host twice, and the other one never.
    #[test]
    fn of_two_hosts_with_one_address_the_second_is_wrong() {
        let member = |name: &str| {
            let host = ("hosts".to_owned(), name.to_owned());
            Member { role: Role::Worker, host, standby: false, topology: None }
        };
        let members: Vec<Member> = ["a", "b", "c"].map(member).into();
        let addresses = |last| Ok([("oam".to_owned(), IpAddr::from([10, 0, 0, last]))].into());
        let known = members.iter().zip([1, 1, 2]).map(|(it, last)| ((it.role, it.host.clone()), addresses(last)));
        let known = known.collect();
        let choice = Choice { claim: vec![members[0].clone()], members, ..Choice::default() };
        let told: Vec<(String, String)> =
            wrong(&choice, &known).into_iter().map(|(member, why)| (member.host.1, why)).collect();
        let why = "its address 10.0.0.1 in the network `oam` is that of hosts/b, too".to_owned();
        assert_eq!(told, [("a".to_owned(), why)], "the cluster has `b` already");
    }

    /// There an address that was found for one service counted as found for all others.
    #[test]
    fn each_service_needs_an_address_of_its_own_network() {
        let both = network(Some(&secret(NETWORK_DATA, DATA)), &["oam-ipv4", "storage"]);
        assert!(both.expect_err("refused").contains("has no network `storage`"));
    }

    #[test]
    fn credentials_are_both_there_or_what_lacks_is_named() {
        let both = json!({"data": {"username": "YQ==", "password": "Yg=="}});
        assert_eq!(credentials(Some(&serde_json::from_value(both).expect("a Secret"))), Ok(()));
        assert_eq!(credentials(None), Err("is not there".to_owned()));
        assert_eq!(credentials(Some(&secret("username", "a"))), Err("has no `password`".to_owned()));
    }

    fn host(version: &str) -> BareMetalHost {
        serde_json::from_value(json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata":
            {"namespace": "a", "name": "h", "resourceVersion": version}, "spec": {"online": true}}))
        .expect("a host")
    }

    #[test]
    fn what_was_written_counts_until_the_watch_has_something_newer() {
        let version = |hosts: Vec<Arc<BareMetalHost>>| hosts[0].resource_version().expect("a version");
        let mut ahead = Ahead::default();
        ahead.changed(&host("1"), host("2"));
        // Written on what was ahead already.
        ahead.changed(&host("2"), host("3"));
        assert_eq!(version(ahead.over(vec![Arc::new(host("1"))])), "3");
        assert_eq!(version(ahead.over(vec![Arc::new(host("2"))])), "2", "the watch comes to it");
        assert_eq!(version(ahead.over(vec![Arc::new(host("4"))])), "4");
        ahead.changed(&host("4"), host("5"));
        assert!(ahead.over(Vec::new()).is_empty());
        assert_eq!(version(ahead.over(vec![Arc::new(host("4"))])), "4", "one that is gone is forgotten");
    }
}
