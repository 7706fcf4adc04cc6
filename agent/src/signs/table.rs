//! What the box heard and served, for all servers, and what of it is a host's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use agent_api::host_story::{DhcpSign, HttpSign};
use agent_api::metal3::bmc_address::BmcAddress;
use agent_api::metal3::{BareMetalHost, Nic};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::content::fetches::Fetches;
use crate::provisioning::dhcp::STATE;
use crate::provisioning::segment::{leases, leases_in, signs};
use crate::provisioning::wire::node_of;
use agent_api::net::MacAddress;

/// Paths that only servers fetch which are provisioned, and their BMCs.
const THEIRS: [&str; 2] = ["/provisioning/", "/netboot/"];

/// All signs of life that the box has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// By MAC address.
    pub dhcp: Vec<DhcpSign>,
    /// By address of the client.
    pub http: Vec<HttpSign>,
}

impl Table {
    /// What is known now on the box at `root`. A file that is not there, or not whole, says nothing.
    pub fn gather(root: &Path, fetches: &Fetches, now: Timestamp) -> Self {
        let state = root.join(STATE.trim_start_matches('/'));
        let heard = fs_err::read(state.join(signs::SIGNS)).ok().and_then(|bytes| signs::read(&bytes).ok());
        let lent = leases_in(&state).unwrap_or_default();
        let mut dhcp = heard.unwrap_or_default();
        for sign in &mut dhcp {
            let mac: Option<MacAddress> = sign.mac.parse().ok();
            sign.lease = mac.and_then(|mac| leases::address_of(&lent, mac, now).ok());
        }
        Self { dhcp, http: fetches.all() }
    }

    /// The same without fetches of those who are no servers, as far as that is seen.
    #[must_use]
    pub fn of_servers(mut self) -> Self {
        let lent: BTreeSet<IpAddr> = self.dhcp.iter().flat_map(addresses).collect();
        let theirs = |path: &str| THEIRS.iter().any(|folder| path.starts_with(folder));
        self.http.retain(|fetch| lent.contains(&fetch.client) || theirs(&fetch.path));
        self
    }

    /// DHCP of a host: of its interfaces, the one that was heard last.
    pub fn dhcp_of(&self, host: &BareMetalHost) -> Option<DhcpSign> {
        self.own_dhcp(host).max_by_key(|sign| sign.last()).cloned()
    }

    /// Without what was heard before the host was made: that is of another one, with the same cards.
    fn own_dhcp(&self, host: &BareMetalHost) -> impl Iterator<Item = &DhcpSign> {
        let (macs, made) = (macs(host), made(host));
        self.dhcp.iter().filter(move |sign| {
            let before = sign.last().zip(made).is_some_and(|(last, made)| last.0 < made);
            macs.contains(&sign.mac) && !before
        })
    }

    /// What a host, its ramdisk at `agent` or its BMC fetched last. A BMC may be that of several servers: what is made for
    /// one of them names its node.
    pub fn http_of(&self, host: &BareMetalHost, agent: Option<&str>) -> Option<HttpSign> {
        let mut own: BTreeSet<IpAddr> = BTreeSet::new();
        own.extend(self.own_dhcp(host).flat_map(addresses));
        own.extend(agent.and_then(host_of));
        let bmc = host.spec.bmc.as_ref().and_then(|bmc| bmc.address.parse::<BmcAddress>().ok());
        own.extend(bmc.and_then(|bmc| bmc.hostname.parse::<IpAddr>().ok()));
        let node = host.status.as_ref().map_or("", |status| status.provisioning.id.as_str());
        let theirs = |fetch: &&HttpSign| {
            let before = made(host).is_some_and(|made| fetch.at.0 < made);
            let other = node_of(&fetch.path).is_some_and(|named| named != node);
            own.contains(&fetch.client) && !before && !other
        };
        self.http.iter().filter(theirs).max_by_key(|fetch| fetch.at).cloned()
    }
}

/// When a host was made.
fn made(host: &BareMetalHost) -> Option<Timestamp> {
    host.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn addresses(sign: &DhcpSign) -> impl Iterator<Item = IpAddr> + use<> {
    let answered = sign.answered.as_ref().and_then(|answered| answered.address);
    [sign.lease, answered].into_iter().flatten().map(IpAddr::from)
}

/// MAC addresses by which a host is known: that of its spec, and those of cards that inspection found.
fn macs(host: &BareMetalHost) -> BTreeSet<String> {
    let nics = host.status.as_ref().and_then(|status| status.hardware.as_ref()?.nics.as_deref()).unwrap_or_default();
    // A BMC out of band tells no ids at all.
    let has_ids = nics.iter().any(Nic::has_id);
    let own = nics.iter().filter(|nic| nic.has_id() || !has_ids || nic.pxe == Some(true));
    let found = own.filter_map(|nic| nic.mac.as_ref());
    found.chain(&host.spec.boot_mac_address).map(|mac| mac.to_lowercase()).collect()
}

/// The IP address of a URL that names one.
fn host_of(url: &str) -> Option<IpAddr> {
    let uri: axum::http::Uri = url.parse().ok()?;
    uri.host()?.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use agent_api::metal3::BareMetalHost;
    use jiff::Timestamp;
    use serde_json::json;

    use super::{STATE, Table, host_of, signs};
    use crate::content::fetches::Fetches;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn host(bmc: &str) -> BareMetalHost {
        serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a"},
            "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:0A", "bmc": {"address": bmc, "credentialsName": "s"}},
        }))
        .expect("a host")
    }

    fn fetched(clients: &[(&str, &str)]) -> Fetches {
        let fetches = Fetches::default();
        for (second, (client, path)) in (0..).zip(clients) {
            fetches.began(client.parse().expect("an address"), path, at(second));
        }
        fetches
    }

    #[test]
    fn files_of_the_guard_and_of_dnsmasq_are_put_together() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(Table::gather(dir.path(), &Fetches::default(), at(0)), Table::default());
        let state = dir.path().join(STATE.trim_start_matches('/'));
        fs_err::create_dir_all(&state).expect("a folder");
        let heard = r#"[{"mac":"52:54:00:00:00:0a"},{"mac":"52:54:00:00:00:0b"}]"#;
        fs_err::write(state.join(signs::SIGNS), heard).expect("written");
        fs_err::write(state.join("dnsmasq.leases"), "1800000060 52:54:00:00:00:0a 172.22.0.50 a *\n").expect("written");
        let fetches = fetched(&[
            ("172.22.0.50", "/images/a.raw"),
            ("192.0.2.9", "/files/a"),
            ("10.0.0.1", "/provisioning/a.iso"),
        ]);
        let table = Table::gather(dir.path(), &fetches, at(0));
        let leases: Vec<_> = table.dhcp.iter().map(|sign| sign.lease).collect();
        assert_eq!(leases, [Some([172, 22, 0, 50].into()), None]);
        assert_eq!(table.http.len(), 3);
        let servers: Vec<IpAddr> = table.clone().of_servers().http.iter().map(|fetch| fetch.client).collect();
        assert_eq!(servers, ["10.0.0.1", "172.22.0.50"].map(|ip| ip.parse::<IpAddr>().expect("an address")));
        let later = Table::gather(dir.path(), &fetches, at(61));
        assert_eq!(later.dhcp[0].lease, None, "the lease is over");
    }

    /// Blades, and emulators: one BMC for several servers.
    #[test]
    fn what_a_bmc_of_several_servers_fetched_is_the_one_servers_that_it_is_for() {
        let (ours, other) = ("1be26c0b-03f2-4d2e-ae87-c02d7f33c123", "2be26c0b-03f2-4d2e-ae87-c02d7f33c123");
        let mut host = host("redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1");
        host.status = serde_json::from_value(json!({"operationalStatus": "OK", "errorMessage": "", "poweredOn": true,
            "errorCount": 0, "provisioning": {"state": "inspecting", "ID": ours}}))
        .expect("a status");
        for (path, theirs) in [
            (format!("/provisioning/redfish/boot-{ours}-abc.iso"), true),
            (format!("/provisioning/redfish/boot-{other}-abc.iso"), false),
            ("/netboot/ironic-python-agent.iso".to_owned(), true),
            (format!("/provisioning/{}", &other[..35]), true),
        ] {
            let table = Table { http: fetched(&[("10.0.0.1", &path)]).all(), ..Table::default() };
            assert_eq!(table.http_of(&host, None).is_some(), theirs, "{path}");
        }
    }

    /// A BMC's virtual card has one address in every server.
    #[test]
    fn what_a_virtual_card_asks_is_no_sign_of_a_host() {
        let mut host = host("redfish-virtualmedia://10.0.0.1");
        let with = |host: &mut BareMetalHost, usb: serde_json::Value| {
            host.status =
                serde_json::from_value(json!({"operationalStatus": "OK", "errorMessage": "", "poweredOn": true,
                "errorCount": 0, "provisioning": {"state": "inspecting", "ID": ""},
                "hardware": {"nics": [{"mac": "52:54:00:00:00:0a", "model": "0x1 0x2"}, usb]}}))
                .expect("a status");
        };
        let sign = |mac: &str| agent_api::host_story::DhcpSign { mac: mac.into(), ..Default::default() };
        let table = Table { dhcp: vec![sign("0a:00:00:00:00:01")], ..Table::default() };
        with(&mut host, json!({"mac": "0A:00:00:00:00:01"}));
        assert_eq!(table.dhcp_of(&host), None);
        for own in
            [json!({"mac": "0A:00:00:00:00:01", "model": "0x1"}), json!({"mac": "0a:00:00:00:00:01", "pxe": true})]
        {
            with(&mut host, own);
            assert!(table.dhcp_of(&host).is_some());
        }
    }

    #[test]
    fn a_host_that_is_made_anew_has_no_signs_of_its_forerunner() {
        let mut host = host("redfish-virtualmedia://10.0.0.1");
        let asked = |seconds: i64| agent_api::host_story::DhcpSign {
            mac: "52:54:00:00:00:0a".into(),
            asked: Some(agent_api::host_story::DhcpAsked {
                at: agent_api::metal3::Time(at(seconds)),
                message: "request".into(),
                client: agent_api::host_story::DhcpClient::Pxe,
                architecture: None,
            }),
            lease: Some([172, 22, 0, 50].into()),
            ..Default::default()
        };
        let http = fetched(&[("172.22.0.50", "/a"), ("10.0.0.1", "/b")]).all();
        let mut table = Table { dhcp: vec![asked(0)], http };
        assert!(table.dhcp_of(&host).is_some() && table.http_of(&host, None).is_some());
        host.metadata.creation_timestamp = serde_json::from_value(json!(at(60).to_string())).expect("a time");
        assert_eq!((table.dhcp_of(&host), table.http_of(&host, None)), (None, None));
        table.dhcp = vec![asked(61)];
        assert!(table.dhcp_of(&host).is_some(), "it has asked since then");
    }

    #[test]
    fn a_fetch_is_a_hosts_by_its_lease_its_ramdisk_or_its_bmc() {
        let mut table = Table::default();
        table.dhcp.push(agent_api::host_story::DhcpSign {
            mac: "52:54:00:00:00:0a".into(),
            lease: Some([172, 22, 0, 50].into()),
            ..Default::default()
        });
        let last = |table: &Table, agent| {
            table.http_of(&host("redfish-virtualmedia://10.0.0.1"), agent).map(|fetch| fetch.client.to_string())
        };
        table.http = fetched(&[("172.22.0.51", "/a")]).all();
        assert_eq!(last(&table, None), None);
        assert_eq!(last(&table, Some("https://172.22.0.51:9999")).as_deref(), Some("172.22.0.51"));
        table.http = fetched(&[("10.0.0.1", "/a"), ("172.22.0.50", "/b")]).all();
        assert_eq!(last(&table, None).as_deref(), Some("172.22.0.50"));
        table.http = fetched(&[("172.22.0.50", "/b"), ("10.0.0.1", "/a")]).all();
        assert_eq!(last(&table, None).as_deref(), Some("10.0.0.1"), "its BMC");
        assert_eq!(table.dhcp_of(&host("ipmi://bmc")).expect("heard").mac, "52:54:00:00:00:0a");
        assert_eq!(host_of("https://[fd00::5]:9999"), "fd00::5".parse().ok());
        assert_eq!(host_of("nowhere"), None);
    }
}
