//! Files of leases: dnsmasq's, and ISC dhcpd's, in which the last entry of a machine counts.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use agent_api::net::MacAddress;

/// A lease of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The machine that has it.
    pub mac: MacAddress,
    /// The address.
    pub address: Ipv4Addr,
    /// Its beginning; dnsmasq does not write it.
    pub starts: Option<Timestamp>,
    /// Its end; `None` for a lease without end.
    pub ends: Option<Timestamp>,
    /// Whether it is neither given back nor taken away.
    pub bound: bool,
    /// The name that the machine said.
    pub hostname: Option<String>,
}

impl Lease {
    /// Whether it is valid at that time.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.bound && self.ends.is_none_or(|ends| now < ends)
    }
}

/// No lease of the machine is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No active ip address lease found for MAC address {0}")]
pub struct NoActiveLease(pub MacAddress);

/// The address that a machine has: that of its newest valid lease.
pub fn address_of(leases: &[Lease], mac: MacAddress, now: Timestamp) -> Result<Ipv4Addr, NoActiveLease> {
    let mut newest: Option<&Lease> = None;
    for lease in leases.iter().filter(|lease| lease.mac == mac && lease.is_active(now)) {
        let age = |lease: &Lease| (lease.starts, lease.ends.unwrap_or(Timestamp::MAX));
        if newest.is_none_or(|best| age(best) <= age(lease)) {
            newest = Some(lease);
        }
    }
    newest.map(|lease| lease.address).ok_or(NoActiveLease(mac))
}

/// Leases of a file of either program. Lines that are not leases of IPv4 over Ethernet are passed over: a file may be read
/// while it is written.
pub fn read(text: &str) -> Vec<Lease> {
    let isc = text.lines().any(|line| line.trim_start().starts_with("lease ") && line.trim_end().ends_with('{'));
    if isc { isc_dhcpd(text) } else { dnsmasq(text) }
}

/// `EXPIRY MAC ADDRESS NAME CLIENT-ID` a line; expiry 0 is never, name `*` is none (dnsmasq's `lease.c`). The time of a
/// build without a clock is a duration, which Debian's is not.
fn dnsmasq(text: &str) -> Vec<Lease> {
    text.lines().filter_map(dnsmasq_lease).collect()
}

fn dnsmasq_lease(line: &str) -> Option<Lease> {
    let mut fields = line.split(' ');
    let expiry: i64 = fields.next()?.parse().ok()?;
    // Other hardware than Ethernet has its type before it, `20-...`.
    let mac = fields.next()?.parse().ok()?;
    let address = fields.next()?.parse().ok()?;
    let hostname = fields.next().filter(|name| *name != "*" && !name.is_empty()).map(str::to_owned);
    let ends = if expiry == 0 { None } else { Some(Timestamp::from_second(expiry).ok()?) };
    Some(Lease { mac, address, starts: None, ends, bound: true, hostname })
}

/// `lease ADDRESS { ... }` with statements that end in `;` (dhcpd.leases(5)).
fn isc_dhcpd(text: &str) -> Vec<Lease> {
    let mut leases = Vec::new();
    let mut open: Option<Draft> = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("lease ") {
            let address = rest.strip_suffix('{').and_then(|it| it.trim().parse().ok());
            open = Some(Draft { address, ..Draft::default() });
        } else if line == "}" {
            leases.extend(open.take().and_then(Draft::done));
        } else if let (Some(draft), Some(statement)) = (&mut open, line.strip_suffix(';')) {
            draft.take(statement);
        }
    }
    leases
}

#[derive(Default)]
struct Draft {
    address: Option<Ipv4Addr>,
    mac: Option<MacAddress>,
    starts: Option<Timestamp>,
    ends: Option<Timestamp>,
    unreadable: bool,
    state: Option<String>,
    hostname: Option<String>,
}

impl Draft {
    fn take(&mut self, statement: &str) {
        let mut time = |text: &str| {
            let read = time(text);
            self.unreadable |= read.is_err();
            read.unwrap_or_default()
        };
        if let Some(text) = statement.strip_prefix("starts ") {
            self.starts = time(text);
        } else if let Some(text) = statement.strip_prefix("ends ") {
            self.ends = time(text);
        } else if let Some(text) = statement.strip_prefix("hardware ethernet ") {
            self.mac = text.parse().ok();
        } else if let Some(text) = statement.strip_prefix("binding state ") {
            self.state = Some(text.to_owned());
        } else if let Some(text) = statement.strip_prefix("client-hostname ") {
            self.hostname = Some(text.trim_matches('"').to_owned());
        }
    }

    fn done(self) -> Option<Lease> {
        // Before failover there was no state: every lease was bound.
        let bound = self.state.is_none_or(|state| state == "active") && !self.unreadable;
        let (mac, address, starts, ends) = (self.mac?, self.address?, self.starts, self.ends);
        Some(Lease { mac, address, starts, ends, bound, hostname: self.hostname })
    }
}

/// A text that is not a time.
#[derive(Debug)]
struct NoTime;

/// `never`, `epoch SECONDS`, or weekday, date and time in UTC.
fn time(text: &str) -> Result<Option<Timestamp>, NoTime> {
    if text == "never" { Ok(None) } else { moment(text).map(Some).ok_or(NoTime) }
}

fn moment(text: &str) -> Option<Timestamp> {
    let (first, rest) = text.split_once(' ')?;
    if first == "epoch" {
        let seconds = rest.split([' ', ';']).next()?.parse().ok()?;
        return Timestamp::from_second(seconds).ok();
    }
    let stamp = DateTime::strptime("%Y/%m/%d %H:%M:%S", rest).ok()?;
    Some(stamp.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::{Lease, address_of, read};
    use jiff::Timestamp;
    use proptest::prelude::{any, proptest};

    /// As dnsmasq 2.91 writes it: three clients, one over `InfiniBand`, one of IPv6; the last line is being written.
    const DNSMASQ: &str = "1800003600 52:54:00:00:00:01 172.22.0.10 node1 01:52:54:00:00:00:01\n\
                           1800007200 52:54:00:00:00:02 172.22.0.11 * *\n\
                           0 52:54:00:00:00:03 172.22.0.12 * *\n\
                           1800003600 20-a0:00:02:20:fe:80 172.22.0.13 * *\n\
                           duid 00:01:00:01:2d:aa:bb:cc:52:54:00:00:00:01\n\
                           1800003600 1 fd00::10 node1 00:01\n1800";

    const ISC: &str = "# The format of this file is documented in the dhcpd.leases(5) manual page.\n\
authoring-byte-order little-endian;

lease 172.31.1.10 {
  starts 2 2027/01/12 08:00:00;
  ends 2 2027/01/12 08:10:00;
  cltt 2 2027/01/12 08:00:00;
  binding state active;
  next binding state free;
  rewind binding state free;
  hardware ethernet 00:1e:67:fe:f4:19;
  uid \"\\001\\000\\036g\\376\\364\\031\";
  client-hostname \"node1\";
}
lease 172.31.1.11 {
  starts epoch 1800000000; # Fri Jan 15 08:00:00 2027
  ends never;
  binding state active;
  hardware ethernet 00:1e:67:fe:f4:19;
}
lease 172.31.1.12 {
  starts 5 2027/01/15 09:00:00;
  ends 5 2027/01/15 21:00:00;
  binding state free;
  hardware ethernet 00:1e:67:fe:f4:20;
}
lease 172.31.1.13 {
  starts 5 2027/01/15";

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_003_700).expect("a time")
    }

    fn ask(leases: &[Lease], mac: &str) -> String {
        let found = address_of(leases, mac.parse().expect("a MAC"), now());
        found.map_or_else(|error| error.to_string(), |address| address.to_string())
    }

    #[test]
    fn dnsmasq_says_until_when() {
        let leases = read(DNSMASQ);
        assert_eq!(leases.len(), 3, "{leases:#?}");
        assert_eq!(leases[0].hostname.as_deref(), Some("node1"));
        let none = "No active ip address lease found for MAC address 52:54:00:00:00:01";
        assert_eq!(ask(&leases, "52:54:00:00:00:01"), none, "it is over");
        assert_eq!(ask(&leases, "52:54:00:00:00:02"), "172.22.0.11");
        assert_eq!(ask(&leases, "52:54:00:00:00:03"), "172.22.0.12", "it never ends");
    }

    #[test]
    fn of_dhcpd_the_newest_that_holds_wins() {
        let leases = read(ISC);
        assert_eq!(leases.len(), 3, "half a lease is none: {leases:#?}");
        assert_eq!(ask(&leases, "00:1E:67:FE:F4:19"), "172.31.1.11");
        let none = "No active ip address lease found for MAC address 00:1e:67:fe:f4:20";
        assert_eq!(ask(&leases, "00:1e:67:fe:f4:20"), none, "it was given back");
        let older = Timestamp::from_second(1_799_741_100).expect("a time");
        assert!(leases[0].is_active(older), "{:?}", leases[0]);
    }

    proptest! {
        #[test]
        fn any_file_is_read_without_a_panic(noise in any::<String>(), cut in 0..900_usize) {
            let _ = read(&noise);
            for whole in [DNSMASQ, ISC] {
                let at = cut.min(whole.len());
                let _ = read(&format!("{}{noise}{}", &whole[..at], &whole[at..]));
            }
        }
    }
}
