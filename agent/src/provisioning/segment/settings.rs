//! Settings of the provisioning segment: a YAML file.

use std::net::Ipv4Addr;
use std::time::Duration;

use agent_api::net::MacAddress;
pub use agent_api::servers::DhcpPolicy;
use agent_api::yaml;
use serde::{Deserialize, Serialize};

use super::place::Ground;

/// Addresses to give away, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeasedRange {
    /// First address.
    pub start: Ipv4Addr,
    /// Last address.
    pub end: Ipv4Addr,
    /// The mask. It must be given for a relayed subnet; the segment itself has that of the interface.
    #[serde(default)]
    pub netmask: Option<Ipv4Addr>,
    /// Router of a relayed subnet, through which its machines reach the box.
    #[serde(default)]
    pub router: Option<Ipv4Addr>,
}

/// DHCP options that clients get beside their address. By default none: a provisioning network has no way out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Options {
    /// Default router of the segment.
    #[serde(default)]
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    #[serde(default)]
    pub dns: Vec<Ipv4Addr>,
    /// Time servers.
    #[serde(default)]
    pub ntp: Vec<Ipv4Addr>,
}

/// A known machine: it is answered whatever other servers are on the segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reservation {
    /// The interface that it boots from.
    pub mac_address: MacAddress,
    /// Its address; any of the range when absent.
    #[serde(default)]
    pub address: Option<Ipv4Addr>,
    /// Its name.
    #[serde(default)]
    pub hostname: Option<String>,
}

/// How the guard looks for other servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Probing {
    /// Seconds between two rounds while nobody asks.
    pub every_secs: u32,
    /// Seconds that a round waits for answers. Servers that ping an address before they offer it take three.
    pub wait_secs: u32,
    /// Seconds after which a server that was not heard again is forgotten.
    pub forget_secs: u32,
    /// Seconds in which an unknown machine that was let in may finish; meanwhile rounds follow each other.
    pub admit_secs: u32,
}

impl Default for Probing {
    fn default() -> Self {
        Self { every_secs: 30, wait_secs: 5, forget_secs: 300, admit_secs: 60 }
    }
}

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Which machines DHCP answers.
    #[serde(default)]
    pub policy: DhcpPolicy,
    /// The box's address on the segment: TFTP, and HTTP on port 6180.
    pub server: Ipv4Addr,
    /// Addresses of the segment.
    pub ranges: Vec<LeasedRange>,
    /// Addresses of subnets whose relays send their clients' packets here.
    #[serde(default)]
    pub relayed: Vec<LeasedRange>,
    /// Length of a lease, seconds.
    #[serde(default = "an_hour")]
    pub lease_secs: u32,
    /// DHCP options that clients get beside their address.
    #[serde(default)]
    pub options: Options,
    /// Known machines beside the `BareMetalHost`s.
    #[serde(default)]
    pub reservations: Vec<Reservation>,
    /// How the guard looks for other servers.
    #[serde(default)]
    pub probing: Probing,
}

const fn an_hour() -> u32 {
    3600
}

/// Why a text cannot be used as settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Not YAML of the right shape; the message has line and column.
    #[error("{0}")]
    Shape(String),
    /// Values that cannot be used, a line each.
    #[error("{}", .0.join("\n"))]
    Values(Vec<String>),
}

impl Settings {
    /// Reads and checks.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut options = yaml::options(text);
        options.strict_booleans = true;
        let settings: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| SettingsError::Shape(yaml::told_with_lines(&error)))?;
        let problems = settings.problems();
        if problems.is_empty() { Ok(settings) } else { Err(SettingsError::Values(problems)) }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.ranges.is_empty() && self.relayed.is_empty() {
            problems.push("`ranges`: found no range, expected at least one".into());
        }
        let own = self.ranges.iter().map(|range| ("ranges", range));
        let relayed = self.relayed.iter().map(|range| ("relayed", range));
        for (key, range) in own.chain(relayed) {
            let LeasedRange { start, end, netmask, router } = range;
            let mut wrong = |found: String, expected: &str| {
                problems.push(format!("`{key}`: found {found}, expected {expected}"));
            };
            if start > end {
                wrong(format!("`{start}` to `{end}`"), "the lower address first");
            }
            match netmask.map(u32::from) {
                None if key == "relayed" => wrong(format!("no `netmask` of `{start}`"), "the subnet's"),
                Some(mask) if mask.leading_ones() + mask.trailing_zeros() != 32 => {
                    wrong(format!("`netmask: {}`", Ipv4Addr::from(mask)), "a mask such as `255.255.255.0`");
                }
                Some(mask) if (u32::from(*start) ^ u32::from(*end)) & mask != 0 => {
                    wrong(format!("`{start}` to `{end}`"), "both in one subnet of the `netmask`");
                }
                _ => {}
            }
            if let Some(router) = router.filter(|_| key == "ranges") {
                wrong(format!("`router: {router}`"), "it in `options`");
            }
        }
        self.reserved(&mut problems);
        let Probing { every_secs, wait_secs, forget_secs, admit_secs } = self.probing;
        if wait_secs == 0 || every_secs <= wait_secs || forget_secs < 2 * every_secs.saturating_add(wait_secs) {
            problems.push(
                "`probing`: found no room for two rounds in `forgetSecs`, expected 0 < waitSecs < everySecs and 2 * \
                 (everySecs + waitSecs) <= forgetSecs"
                    .into(),
            );
        }
        if admit_secs < 5 {
            problems.push(format!("`probing.admitSecs`: found {admit_secs}, expected at least 5"));
        }
        if self.lease_secs < 120 {
            problems.push(format!("`leaseSecs`: found {}, expected at least 120", self.lease_secs));
        }
        problems
    }

    /// What is wrong with the machines that it names. Subnets without a mask are known where the interface is.
    fn reserved(&self, problems: &mut Vec<String>) {
        let ground = Ground::of(self, &[]);
        for (index, one) in self.reservations.iter().enumerate() {
            let name = one.hostname.as_deref().unwrap_or("a");
            let letters = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
            if !(1..=63).contains(&name.len()) || !name.bytes().all(letters) {
                problems.push(format!("`reservations[{index}].hostname`: found `{name}`, expected a host name"));
            }
            if self.reservations[..index].iter().any(|other| other.mac_address == one.mac_address) {
                let mac = one.mac_address;
                problems.push(format!("`reservations[{index}].macAddress`: found `{mac}` again, expected it once"));
            }
            let taken =
                |address: &Ipv4Addr| self.reservations[..index].iter().any(|other| other.address == Some(*address));
            if let Some(address) = one.address.filter(taken) {
                problems.push(format!("`reservations[{index}].address`: found `{address}` again, expected it once"));
            }
            let wrong = one.address.and_then(|address| Some((address, ground.wrong(address)?)));
            if let Some((address, why)) = wrong {
                let expected = "an address of a machine in the subnet of a range";
                problems.push(format!(
                    "`reservations[{index}].address`: found `{address}`, which {why}, expected {expected}"
                ));
            }
        }
    }
}

/// Seconds as a duration.
pub(super) const fn secs(count: u32) -> Duration {
    Duration::from_secs(count as u64)
}

#[cfg(test)]
mod tests {
    use super::{DhcpPolicy, MacAddress, Settings};

    #[test]
    fn a_short_file_is_enough_and_guards() {
        let text = "server: 172.22.0.1\nranges: [ { start: 172.22.0.10, end: 172.22.0.100 } ]\n";
        let settings = Settings::parse(text).expect("good");
        assert_eq!((settings.policy, settings.lease_secs), (DhcpPolicy::Guard, 3600));
    }

    #[test]
    fn all_bad_values_are_told_at_once() {
        let text = "server: 172.22.0.1\nranges: [ { start: 172.22.0.100, end: 172.22.0.10, router: 172.22.0.1 } ]\n\
                    relayed: [ { start: 10.0.0.1, end: 10.0.1.1 }, { start: 10.0.0.1, end: 10.0.1.1, netmask: 255.255.255.0 }, \
                    { start: 10.0.0.1, end: 10.0.0.1, netmask: 255.0.255.0 } ]\nleaseSecs: 1\n\
                    probing: { everySecs: 5, waitSecs: 5, admitSecs: 1 }\n\
                    reservations: [ { macAddress: \"52:54:00:00:00:01\", hostname: a.b, address: 10.0.0.2 }, \
                    { macAddress: \"52:54:00:00:00:01\", address: 10.0.0.2 } ]\n";
        insta::assert_snapshot!(Settings::parse(text).expect_err("bad").to_string());
        let unknown = Settings::parse("server: 172.22.0.1\nranges: []\nrangs: []\n").expect_err("unknown key");
        assert!(unknown.to_string().contains("rangs"), "{unknown}");
    }

    #[test]
    fn an_address_that_no_machine_can_have_is_told() {
        let read = |mask: &str, address: &str| {
            Settings::parse(&format!(
                "server: 172.22.0.1\nranges: [ {{ start: 172.22.0.10, end: 172.22.0.100{mask} }} ]\n\
                 reservations: [ {{ macAddress: \"52:54:00:00:00:01\", address: {address} }} ]\n"
            ))
        };
        let mask = ", netmask: 255.255.255.0";
        for (mask, address) in [(mask, "172.22.0.50"), (mask, "172.22.0.200"), ("", "10.99.0.5")] {
            read(mask, address).expect(address);
        }
        for (mask, address, why) in [
            (mask, "10.99.0.5", "is in no subnet that is served"),
            (mask, "172.22.0.255", "is no address of one machine"),
            ("", "127.0.0.1", "is no address of one machine"),
            ("", "172.22.0.1", "is the box's own"),
        ] {
            let told = read(mask, address).expect_err(address).to_string();
            assert!(told.starts_with(&format!("`reservations[0].address`: found `{address}`, which {why}")), "{told}");
        }
    }

    #[test]
    fn a_mac_is_six_bytes() {
        let mac: MacAddress = "52:54:00:AB:cd:01".parse().expect("a MAC");
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:01");
        for bad in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "52-54-00-ab-cd-01", "+2:54:00:ab:cd:01"] {
            bad.parse::<MacAddress>().expect_err(bad);
        }
    }
}
