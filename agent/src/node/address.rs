//! The address that the box leased to a server becomes the server's own: without the box nobody would lease it again, after
//! a restart or when the lease ends, and a node that loses its address is lost to its cluster.
//!
//! systemd-networkd gets a drop-in (systemd.network(5)) for the file that configures the interface, with what DHCP said: address,
//! routes, name servers, time servers. Other programs that configure networks are left alone; the step says so.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::json;

use super::{SHORT, Server};
use crate::host::InterfaceAddress;
use crate::steps::Outcome;

/// Drop-ins for networks are in folders below this one.
const NETWORKS: &str = "/etc/systemd/network";
/// Name of ours.
const DROP_IN: &str = "50-foothold-address.conf";
/// What systemd-networkd knows of each interface, a file with the interface's index as its name (sd-network's `network-util.c`).
const LINKS: &str = "/run/systemd/netif/links";
/// Waits until an interface is configured.
const ONLINE: &str = "/usr/lib/systemd/systemd-networkd-wait-online";

/// A route, as `ip -json route` prints it.
#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    gateway: Option<String>,
    metric: Option<u32>,
}

/// What DHCP said of the interface, and the file that configures it.
struct Leased<'a> {
    /// Text of that file.
    network: &'a str,
    /// Text of networkd's file of the interface.
    link: &'a str,
    routes: &'a [Route],
    own: &'a InterfaceAddress,
}

/// Makes the address the server's own.
pub fn keep(server: &Server, own: &InterfaceAddress) -> anyhow::Result<Outcome<()>> {
    let Some((file, link)) = configured_by(server, &own.interface)? else {
        let why = format!(
            "systemd-networkd does not configure {}: without the box the server loses its leased address; hint: give it a static one",
            own.interface
        );
        return Ok(Outcome::Done((), json!({"kept": false, "warning": why})));
    };
    let name = file.file_name().and_then(|name| name.to_str()).context("a file of a network has a name")?;
    let path = format!("{NETWORKS}/{name}.d/{DROP_IN}");
    // With it, the interface has no lease to read more from. Who wrote it may have been killed before networkd read it, and to
    // read what is in force already changes nothing.
    if server.has(&path) {
        return in_force(server, own).map(Outcome::Current);
    }
    let listed = server.call(&["ip", "-json", "route", "show", "proto", "dhcp", "dev", &own.interface], SHORT)?;
    let routes: Vec<Route> = if listed.trim().is_empty() { Vec::new() } else { serde_json::from_str(&listed)? };
    let network = fs_err::read_to_string(server.path(&file.display().to_string()))?;
    let text = drop_in(&Leased { network: &network, link: &link, routes: &routes, own });
    server.write(&path, &text, 0o644)?;
    in_force(server, own)?;
    Ok(Outcome::Done((), json!({"kept": true, "file": path})))
}

/// Has networkd read the file, and waits until the interface is as it says.
fn in_force(server: &Server, own: &InterfaceAddress) -> anyhow::Result<()> {
    take_over(server)?;
    server.call(&[ONLINE, "--interface", &own.interface, "--timeout", "60"], SHORT).map(drop)
}

/// DHCP gives the server its address again. Where networkd runs, it reads its files also when none of ours is there: who removed
/// it may have been killed before.
pub fn give_back(server: &Server) -> anyhow::Result<()> {
    let folder = server.path(NETWORKS);
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path().join(DROP_IN);
        if path.exists() {
            fs_err::remove_file(path)?;
        }
    }
    if server.path(LINKS).exists() { take_over(server) } else { Ok(()) }
}

fn take_over(server: &Server) -> anyhow::Result<()> {
    server.call(&["networkctl", "reload"], SHORT).map(drop)
}

/// The file with which networkd configures the interface, and what it knows of it. `None` when it does not.
fn configured_by(server: &Server, interface: &str) -> anyhow::Result<Option<(PathBuf, String)>> {
    let index = fs_err::read_to_string(server.path(&format!("/sys/class/net/{interface}/ifindex")))?;
    let link = server.path(&format!("{LINKS}/{}", index.trim()));
    if !link.exists() {
        return Ok(None);
    }
    let link = fs_err::read_to_string(link)?;
    let file = value(&link, "NETWORK_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    Ok(file.map(|file| (file, link)))
}

/// The last value of a key, in either kind of file.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.trim().strip_prefix(key)?.trim_start().strip_prefix('=');
    text.lines().filter_map(of).next_back().map(str::trim)
}

fn drop_in(leased: &Leased<'_>) -> String {
    let Leased { network, link, routes, own } = leased;
    // DHCP for IPv6 is not the box's.
    let dhcp = match value(network, "DHCP").unwrap_or_default() {
        "yes" | "true" | "on" | "1" | "both" | "ipv6" | "v6" => "ipv6",
        _ => "no",
    };
    let mut text = format!(
        "# The box leased this address. The server keeps it as long as it is a node of a cluster, with the box or without it.\n\
         [Network]\nDHCP={dhcp}\nAddress={}/{}\n",
        own.address, own.prefix
    );
    for key in ["DNS", "NTP"] {
        for server in value(link, key).unwrap_or_default().split_whitespace() {
            let _ = writeln!(text, "{key}={server}");
        }
    }
    for route in *routes {
        // Without a gateway it is the interface's own subnet, or a part of it.
        let Some(gateway) = &route.gateway else { continue };
        let _ = write!(text, "\n[Route]\nGateway={gateway}\n");
        if route.dst != "default" {
            let _ = writeln!(text, "Destination={}", route.dst);
        }
        if let Some(metric) = route.metric {
            let _ = writeln!(text, "Metric={metric}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{DROP_IN, Leased, drop_in, give_back, keep};
    use crate::host::InterfaceAddress;
    use crate::host::runner::FakeRunner;
    use crate::node::tests::Bench;
    use crate::steps::Outcome;

    const LINK: &str = "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-netplan-ens3.network\n\
                        DNS=172.22.0.1 2001:db8::1\nNTP=\nDOMAINS=\n";
    const ROUTES: &str = r#"[{"dst":"default","gateway":"172.22.0.254","dev":"ens3","protocol":"dhcp","metric":1024},
        {"dst":"172.22.0.1","dev":"ens3","protocol":"dhcp","scope":"link","metric":1024},
        {"dst":"10.9.0.0/16","gateway":"172.22.0.253","dev":"ens3","protocol":"dhcp"}]"#;

    fn own() -> InterfaceAddress {
        InterfaceAddress { interface: "ens3".to_owned(), address: [172, 22, 0, 10].into(), prefix: 24 }
    }

    #[test]
    fn what_dhcp_said_is_written_down() {
        let routes: Vec<super::Route> = serde_json::from_str(ROUTES).expect("routes");
        let of = |network: &str| drop_in(&Leased { network, link: LINK, routes: &routes, own: &own() });
        let text = of("[Match]\nName=ens3\n[Network]\nDHCP = ipv4\n");
        let (_, meant) = text.split_once('\n').expect("a comment");
        assert_eq!(
            meant,
            "[Network]\nDHCP=no\nAddress=172.22.0.10/24\nDNS=172.22.0.1\nDNS=2001:db8::1\n\n[Route]\nGateway=172.22.0.254\n\
             Metric=1024\n\n[Route]\nGateway=172.22.0.253\nDestination=10.9.0.0/16\n"
        );
        // IPv6 may come from somebody else.
        assert!(of("[Network]\nDHCP=yes\n").contains("\nDHCP=ipv6\n"));
    }

    #[test]
    fn it_is_written_once_and_given_back() {
        let runner = FakeRunner::default().answer("ip -json route show proto dhcp dev ens3", ROUTES);
        let bench = Bench::new(runner);
        bench.put("sys/class/net/ens3/ifindex", "2\n");
        bench.put("run/systemd/netif/links/2", LINK);
        bench.put("run/systemd/network/10-netplan-ens3.network", "[Network]\nDHCP=ipv4\n");
        let path = format!("etc/systemd/network/10-netplan-ens3.network.d/{DROP_IN}");
        assert!(matches!(keep(&bench.server, &own()).expect("kept"), Outcome::Done((), _)));
        assert!(bench.text(&path).contains("\nGateway=172.22.0.254\n"));
        // Killed before networkd had read it: the next run has it read.
        assert!(matches!(keep(&bench.server, &own()).expect("kept"), Outcome::Current(())));
        assert_eq!(bench.called("networkctl reload"), 2);
        for reloads in [3, 4] {
            give_back(&bench.server).expect("given back");
            assert_eq!((bench.text(&path).as_str(), bench.called("networkctl reload")), ("", reloads));
        }
    }

    #[test]
    fn who_configures_networks_otherwise_is_left_alone_and_told() {
        let bench = Bench::new(FakeRunner::default());
        bench.put("sys/class/net/ens3/ifindex", "2\n");
        let Outcome::Done((), told) = keep(&bench.server, &own()).expect("left alone") else { panic!("it is told") };
        assert!(told["warning"].as_str().is_some_and(|why| why.contains("give it a static one")), "{told}");
        assert_eq!(bench.runner.calls(), [""; 0]);
    }
}
