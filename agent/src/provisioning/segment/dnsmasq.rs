//! dnsmasq's files: one interface, network boot, leases on DATA.
//!
//! ```text
//! client                 gets
//! iPXE (option 175)      http://BOX:6180/provisioning/boot.ipxe, which Ironic writes
//! x86-64 UEFI (7, 9)     snponly.efi by TFTP
//! arm64 UEFI (11)        ipxe-arm64.efi by TFTP
//! UEFI HTTP (16, 19)     the same two by HTTP, and `HTTPClient`, without which firmware ignores the offer
//! anything else (BIOS)   undionly.kpxe by TFTP
//! ```

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use agent_api::ports::CONTENT;

use super::guard::Serving;
use super::settings::{LeasedRange, Reservation, Settings};
use crate::provisioning::config::HTTP_PATH;
use agent_api::net::MacAddress;

/// Where Debian's package `ipxe` has the loaders.
pub const LOADERS: &str = "/usr/lib/ipxe";
/// Leases, in the state folder.
pub const LEASES: &str = "dnsmasq.leases";
/// The configuration, in the state folder.
pub const CONFIG: &str = "dnsmasq.conf";
/// Machines that may be answered, in the state folder.
pub const HOSTS: &str = "dnsmasq.hosts";

/// Loader of x86-64 UEFI.
const X86_64: &str = "snponly.efi";
/// Loader of arm64 UEFI.
const ARM64: &str = "ipxe-arm64.efi";
/// Loader of BIOS.
const BIOS: &str = "undionly.kpxe";

/// Client architectures (RFC 4578 and IANA's list after it), the tag they get here, and their loader.
const TFTP_CLIENTS: [(u16, &str, &str); 3] = [(7, "efi64", X86_64), (9, "efi64", X86_64), (11, "efiarm", ARM64)];
const HTTP_CLIENTS: [(u16, &str, &str); 2] = [(16, "http64", X86_64), (19, "httparm", ARM64)];

/// The configuration. It does not depend on which machines are known: those are in [`hosts`].
pub fn config(settings: &Settings, interface: &str, state_dir: &Path, loaders: &Path, everyone: bool) -> String {
    let mut text = String::new();
    let file = |name: &str| state_dir.join(name).display().to_string();
    for line in [
        "# Written by foothold-agent; changes do not stay.",
        "port=0",
        "keep-in-foreground",
        "log-facility=-",
        "log-dhcp",
        "# No other user or group: a change would let it outlive the agent (prctl(2), PR_SET_PDEATHSIG).",
        "user",
        "group",
        "pid-file",
        "no-resolv",
        "no-hosts",
        "# This interface and no other.",
        &format!("interface={interface}"),
        "except-interface=lo",
        "bind-dynamic",
        "# Addresses in order: two machines with like hashes would wait for each other.",
        "dhcp-sequential-ip",
        "# As many as there are addresses.",
        &format!("dhcp-lease-max={}", addresses(settings)),
        &format!("dhcp-leasefile={}", file(LEASES)),
        &format!("dhcp-hostsfile={}", file(HOSTS)),
    ] {
        let _ = writeln!(text, "{line}");
    }
    if !everyone {
        // By itself, a machine whose address is of another subnet is known only there.
        text.push_str(
            "# Who is not in the hosts file gets no answer at all.\ndhcp-ignore=tag:!known,tag:!known-othernet\n",
        );
    }
    for range in &settings.ranges {
        self::range(&mut text, "segment", range, settings.lease_secs);
    }
    for (index, range) in settings.relayed.iter().enumerate() {
        self::range(&mut text, &format!("relayed{index}"), range, settings.lease_secs);
    }
    options(&mut text, settings);
    boot(&mut text, settings, loaders, interface);
    text
}

/// How many addresses there are to give away.
fn addresses(settings: &Settings) -> u64 {
    let ranges = settings.ranges.iter().chain(&settings.relayed);
    let count = |range: &LeasedRange| u64::from(u32::from(range.end).saturating_sub(u32::from(range.start))) + 1;
    ranges.map(count).sum()
}

fn range(text: &mut String, tag: &str, range: &LeasedRange, lease: u32) {
    let mask = range.netmask.map(|mask| format!(",{mask}")).unwrap_or_default();
    let _ = writeln!(text, "dhcp-range=set:{tag},{},{}{mask},{lease}", range.start, range.end);
    if let Some(router) = range.router {
        let _ = writeln!(text, "dhcp-option=tag:{tag},option:router,{router}");
    }
}

/// An option without a value is not sent; without a line, dnsmasq sends itself.
fn options(text: &mut String, settings: &Settings) {
    let list = |addresses: &[std::net::Ipv4Addr]| {
        addresses.iter().fold(String::new(), |text, address| format!("{text},{address}"))
    };
    let router = settings.options.router.map(|router| format!(",{router}")).unwrap_or_default();
    let _ = writeln!(text, "dhcp-option=option:router{router}");
    let _ = writeln!(text, "dhcp-option=option:dns-server{}", list(&settings.options.dns));
    let _ = writeln!(text, "dhcp-option=option:ntp-server{}", list(&settings.options.ntp));
}

fn boot(text: &mut String, settings: &Settings, loaders: &Path, interface: &str) {
    let server = settings.server;
    let http = format!("http://{server}:{CONTENT}/{HTTP_PATH}");
    let _ = writeln!(text, "enable-tftp={interface}\ntftp-root={}", loaders.display());
    text.push_str("# Answers from port 69, which is the only one that the firewall knows.\ntftp-single-port\n");
    text.push_str("dhcp-match=set:ipxe,175\n");
    for (architecture, tag, _) in TFTP_CLIENTS.iter().chain(&HTTP_CLIENTS) {
        let _ = writeln!(text, "dhcp-match=set:{tag},option:client-arch,{architecture}");
    }
    let _ = writeln!(text, "dhcp-boot=tag:ipxe,{http}/boot.ipxe");
    for (tag, loader) in [("efi64", X86_64), ("efiarm", ARM64)] {
        let _ = writeln!(text, "dhcp-boot=tag:!ipxe,tag:{tag},{loader},,{server}");
    }
    for (_, tag, loader) in HTTP_CLIENTS {
        let _ = writeln!(text, "dhcp-boot=tag:!ipxe,tag:{tag},{http}/{loader}");
        let _ = writeln!(text, "dhcp-option-force=tag:!ipxe,tag:{tag},60,HTTPClient");
    }
    let _ = writeln!(text, "dhcp-boot=tag:!ipxe,tag:!efi64,tag:!efiarm,tag:!http64,tag:!httparm,{BIOS},,{server}");
}

/// Machines that are answered: known ones, and those that the guard lets in. dnsmasq reads it again on SIGHUP.
///
/// The client identifier is ignored: firmware, iPXE and ramdisk of one machine have three, and would get three addresses.
pub fn hosts(known: &[Reservation], serving: &Serving) -> String {
    let mut text = String::new();
    for one in known {
        let address = one.address.map(|address| format!(",{address}")).unwrap_or_default();
        let name = one.hostname.as_deref().map(|name| format!(",{name}")).unwrap_or_default();
        let _ = writeln!(text, "{},id:*{address}{name}", one.mac_address);
    }
    let has: BTreeSet<MacAddress> = known.iter().map(|one| one.mac_address).collect();
    if let Serving::KnownAnd(admitted) = serving {
        for mac in admitted.difference(&has) {
            let _ = writeln!(text, "{mac},id:*");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Serving, Settings, config, hosts};
    use std::path::Path;

    const SETTINGS: &str = "
server: 172.22.0.1
ranges: [ { start: 172.22.0.10, end: 172.22.0.100 } ]
relayed: [ { start: 10.1.0.10, end: 10.1.0.99, netmask: 255.255.255.0, router: 10.1.0.1 } ]
options: { ntp: [ 172.22.0.1 ] }
reservations:
- { macAddress: '52:54:00:00:00:01', address: 172.22.0.50, hostname: node1 }
- { macAddress: '52:54:00:00:00:02' }
";

    #[test]
    fn only_what_is_set_is_told_and_only_who_is_known_is_answered() {
        let settings = Settings::parse(SETTINGS).expect("good");
        insta::assert_snapshot!(config(&settings, "prov0", Path::new("/data/dhcp"), Path::new(super::LOADERS), false));
        let open = config(&settings, "prov0", Path::new("/data/dhcp"), Path::new(super::LOADERS), true);
        assert!(!open.contains("dhcp-ignore"));
    }

    #[test]
    fn who_is_let_in_stands_beside_who_is_known() {
        let settings = Settings::parse(SETTINGS).expect("good");
        let stranger = "52:54:00:00:00:09".parse().expect("a MAC");
        let serving = Serving::KnownAnd([stranger, settings.reservations[0].mac_address].into());
        assert_eq!(
            hosts(&settings.reservations, &serving),
            "52:54:00:00:00:01,id:*,172.22.0.50,node1\n52:54:00:00:00:02,id:*\n52:54:00:00:00:09,id:*\n"
        );
        let known = hosts(&settings.reservations, &Serving::Known);
        assert!(!known.contains("00:09"), "{known}");
    }
}
