//! Phase `network`: the cluster's own address first, the site's interfaces beside it. Nothing here
//! waits for a cable, except when Site wants the cluster on an address of its own.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use agent_api::ports::KUBERNETES_API;
use agent_api::site::Site;
use agent_api::site::interfaces::Card;
use serde_json::json;
use tokio::time::sleep;

use super::{Machine, decide, firewall, networkd, phase};
use crate::cluster::{CLUSTER_ADDRESS, CLUSTER_INTERFACE, Node};
use crate::host::addresses;
use crate::host::files;
use crate::steps::{Missing, Outcome, Steps, blocking, done};

/// Fact of the ledger: the advertised address, decided once.
const FACT_ADVERTISE: &str = "advertise";
/// Modules that pods need and nothing else loads in time.
const MODULES: [&str; 5] = ["overlay", "br_netfilter", "nf_conntrack", "dummy", "veth"];
/// Settings of the kernel for pods: file below `/proc/sys`, value.
const SETTINGS: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    // Pods on one bridge reach each other through Service addresses only if the answer is translated back.
    ("net/bridge/bridge-nf-call-iptables", "1"),
];
/// For how many seconds a connection is attempted each second (`tcp_syn_linear_timeouts`).
const SYN_EACH_SECOND: &str = "60";
/// How often a missing address is looked for.
const LOOK: Duration = Duration::from_millis(250);
/// How often the site's networks are compared with the cluster's.
const LOOK_AT_OVERLAPS: Duration = Duration::from_secs(5);

/// Modules and settings of the kernel.
pub async fn kernel(machine: &Machine, steps: &Steps) {
    let act = || async {
        let machine = machine.clone();
        blocking(move || prepare_kernel(&machine)).await
    };
    steps.perform(&phase::KERNEL, act).await;
}

fn prepare_kernel(machine: &Machine) -> anyhow::Result<Outcome<()>> {
    let sys = machine.at("/proc/sys");
    let is_set =
        |(file, value): &(&str, &str)| fs_err::read_to_string(sys.join(file)).is_ok_and(|v| v.trim() == *value);
    if SETTINGS.iter().all(is_set) {
        return Ok(Outcome::Current(()));
    }
    let mut argv = vec!["modprobe", "-a"];
    argv.extend(MODULES);
    machine.program(&argv, b"")?;
    for (file, value) in SETTINGS {
        // A kernel without IPv6 has no such file, and no need for it.
        if sys.join(file).exists() {
            fs_err::write(sys.join(file), value)?;
        }
    }
    done(())
}

/// The dummy interface with the cluster's own address.
pub async fn cluster_address(machine: &Machine, steps: &Steps) {
    let act = || async {
        let machine = machine.clone();
        blocking(move || {
            if machine.at(&format!("/sys/class/net/{CLUSTER_INTERFACE}")).exists() {
                // A power cut cannot leave it half made, a killed agent can.
                let have = addresses()?;
                if have.iter().any(|a| a.address == IpAddr::from(CLUSTER_ADDRESS)) {
                    return Ok(Outcome::Current(()));
                }
                machine.program(&["ip", "link", "delete", CLUSTER_INTERFACE], b"")?;
            }
            let batch = decide::cluster_interface(&machine.release().kubernetes.service_cidr);
            machine.program(&["ip", "-batch", "-"], batch.as_bytes())?;
            Ok(Outcome::Done((), json!({"address": CLUSTER_ADDRESS.to_string()})))
        })
        .await
    };
    steps.perform(&phase::CLUSTER_ADDRESS, act).await;
}

/// Files of systemd-networkd for Site's fixed addresses; all others ask DHCP by a file of the image. Not waited for.
pub async fn interfaces(machine: &Machine, steps: &Steps, site: &Site) {
    let act = || async {
        let (machine, site) = (machine.clone(), site.clone());
        blocking(move || configure_interfaces(&machine, &site)).await
    };
    steps.perform(&phase::INTERFACES, act).await;
}

fn configure_interfaces(machine: &Machine, site: &Site) -> anyhow::Result<Outcome<()>> {
    let dir = machine.at("/etc/systemd/network");
    let cards = cards(&machine.at("/sys/class/net"));
    let wanted = networkd::units(&site.networks, machine.provisioning(), &cards);
    let mut changed = remove_others(machine, &dir, &wanted)?;
    for (name, text) in &wanted {
        changed |= files::write(&dir.join(name), text.as_bytes(), files::PUBLIC)?;
    }
    if !changed && wanted.is_empty() {
        return Ok(Outcome::Current(()));
    }
    // One that is starting may have read its files already, and a reload that is asked for meanwhile is merged with the
    // start: it is waited for. It is asked again when nothing is new: what had changed it before may have ended here.
    for verb in ["start", "reload"] {
        machine.program(&["systemctl", verb, "systemd-networkd.service"], b"")?;
    }
    let done = json!({"static": wanted.len()});
    Ok(if changed { Outcome::Done((), done) } else { Outcome::Current(()) })
}

/// What the kernel knows of the cards that it has found.
fn cards(net: &Path) -> Vec<Card> {
    let Ok(entries) = fs_err::read_dir(net) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("device").exists())
        .map(|path| card(&path))
        .collect()
}

fn card(path: &Path) -> Card {
    let read = |file: &str| fs_err::read_to_string(path.join(file)).unwrap_or_default();
    // A part of a bond has the address of the bond, and keeps its own here (Documentation/ABI/testing/sysfs-class-net).
    let own = read("bonding_slave/perm_hwaddr").trim().parse().or_else(|_| read("address").trim().parse());
    let driver = fs_err::canonicalize(path.join("device/driver")).ok();
    let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    Card { mac: own.ok(), name: last(path), driver: driver.as_deref().and_then(last) }
}

/// Removes files that are not wanted any more. An interface that another file made goes, too: systemd-networkd leaves it, and
/// gives it no new settings.
fn remove_others(machine: &Machine, dir: &Path, wanted: &[(String, String)]) -> anyhow::Result<bool> {
    let Ok(entries) = fs_err::read_dir(dir) else { return Ok(false) };
    let mut removed = false;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let has = |text: &str| fs_err::read_to_string(&path).is_ok_and(|found| found == text);
        if !name.contains("-site-") || wanted.iter().any(|(known, text)| *known == name && has(text)) {
            continue;
        }
        if let Some(made) = networkd::made_by(&name)
            && machine.at("/sys/class/net").join(made).exists()
        {
            machine.program(&["ip", "link", "delete", made], b"")?;
        }
        fs_err::remove_file(path)?;
        removed = true;
    }
    Ok(removed)
}

/// Tells when a network of the site, from whatever source, is one of the cluster's, and when it is not any more. Runs until
/// it is dropped.
pub async fn tell_overlaps(machine: &Machine, steps: &Steps) {
    let clusters = machine.release().kubernetes.networks();
    let mut told = Vec::new();
    loop {
        let found = decide::overlaps(&addresses().unwrap_or_default(), &clusters);
        if found != told {
            if found.is_empty() {
                steps.bus.done(phase::OVERLAP.phase, phase::OVERLAP.name);
            } else {
                steps.fail_aside(&phase::OVERLAP, &found.join("; "));
            }
            told = found;
        }
        sleep(LOOK_AT_OVERLAPS).await;
    }
}

/// The address that the cluster advertises; waits for it only if Site wants one of the site's.
pub async fn advertise(steps: &Steps, site: &Site) -> IpAddr {
    let act = || async {
        let earlier = steps.ledger.fact(FACT_ADVERTISE).and_then(|text| text.parse().ok());
        let address = match decide::advertise(earlier, site, &addresses()?) {
            Some(address) => address,
            None => wait_for_address(steps, site, earlier).await,
        };
        steps.ledger.set_fact(FACT_ADVERTISE, &address.to_string())?;
        Ok(Outcome::Done(address, json!({"address": address.to_string()})))
    };
    steps.perform(&phase::ADVERTISE, act).await
}

async fn wait_for_address(steps: &Steps, site: &Site, earlier: Option<IpAddr>) -> IpAddr {
    let what = match earlier {
        Some(earlier) => format!("{earlier}, the address that this cluster was made with"),
        None => format!("an address in {}", site.networks.control_plane.cidrs.join(", ")),
    };
    let mut found = None;
    while found.is_none() {
        steps
            .wait(&phase::ADVERTISE, LOOK, || async {
                let have = addresses().unwrap_or_default();
                let why = || format!("the interfaces have {}", list(&decide::site_addresses(&have)));
                let found = decide::advertise(earlier, site, &have);
                found.map(drop).ok_or_else(|| Missing::new(what.as_str(), why()))
            })
            .await;
        found = decide::advertise(earlier, site, &addresses().unwrap_or_default());
    }
    found.unwrap_or(CLUSTER_ADDRESS.into())
}

fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Files of the name service. It is started later, with the services of the host: nothing that must
/// become ready asks a name of the outside.
pub async fn name_service(machine: &Machine, steps: &Steps, site: &Site) {
    let act = || async {
        let mut changed = false;
        let (dns, domains) = (&site.networks.dns, &site.networks.domains);
        if !(dns.is_empty() && domains.is_empty()) {
            let drop_in = machine.at("/etc/systemd/resolved.conf.d/site.conf");
            changed |= files::write(&drop_in, decide::resolved(dns, domains).as_bytes(), files::PUBLIC)?;
        }
        // What pods with `dnsPolicy: Default` get, CoreDNS above all: it must never be empty.
        let for_pods = format!("nameserver {CLUSTER_ADDRESS}\n");
        for path in ["/etc/foothold/resolv.conf", "/etc/resolv.conf"] {
            let path = machine.at(path);
            if fs_err::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
                fs_err::remove_file(&path)?;
            }
            changed |= files::write(&path, for_pods.as_bytes(), files::PUBLIC)?;
        }
        Ok(if changed { Outcome::Done((), serde_json::Value::Null) } else { Outcome::Current(()) })
    };
    steps.perform(&phase::NAME_SERVICE, act).await;
}

/// Loads the rules in one transaction.
pub async fn firewall(machine: &Machine, steps: &Steps, site: &Site) {
    let act = || async {
        let wanted = firewall::Wanted {
            ssh: !site.access.ssh_authorized_keys.is_empty(),
            ntp: machine.release().ntp_serve,
            provisioning: machine.provisioning().is_some(),
            node_ports: machine.release().sip.is_some(),
            pod_cidr: &machine.release().kubernetes.pod_cidr,
        };
        let (machine, rules) = (machine.clone(), firewall::ruleset(&wanted));
        blocking(move || {
            machine.program(&["nft", "-f", "-"], rules.as_bytes())?;
            done(())
        })
        .await
    };
    steps.perform(&phase::FIREWALL, act).await;
}

/// Closes the way to an API server that does not answer yet; see [`firewall::gate`].
pub async fn close_gate(machine: &Machine, advertise: IpAddr) -> anyhow::Result<Outcome<()>> {
    let machine = machine.clone();
    blocking(move || {
        // Where the kernel knows it, repeated attempts stay a second apart.
        let linear = machine.at("/proc/sys/net/ipv4/tcp_syn_linear_timeouts");
        if linear.exists() {
            fs_err::write(linear, SYN_EACH_SECOND)?;
        }
        machine.program(&["nft", "-f", "-"], firewall::gate(advertise, KUBERNETES_API).as_bytes())?;
        done(())
    })
    .await
}

/// Opens it, whether it was closed or not, and lets pods reach the API server by its Service address until
/// kube-proxy does.
pub async fn open_gate(machine: &Machine, steps: &Steps, node: &Node) {
    let act = || async {
        let machine = machine.clone();
        let (service, advertise) = (node.service_address, node.advertise);
        blocking(move || {
            let rules = firewall::open_gate() + &firewall::shortcut(service, advertise, KUBERNETES_API);
            machine.program(&["nft", "-f", "-"], rules.as_bytes())?;
            done(())
        })
        .await
    };
    steps.perform(&phase::GATE_OPEN, act).await;
}

/// From here on only kube-proxy leads to Services.
pub async fn end_shortcut(machine: &Machine) -> anyhow::Result<()> {
    let machine = machine.clone();
    blocking(move || Ok(machine.program(&["nft", "-f", "-"], firewall::end_shortcut().as_bytes()).map(drop)?)).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_api::site::{Interface, Site};

    use super::{Card, cards, firewall, interfaces, name_service};
    use crate::events::Bus;
    use crate::host::runner::FakeRunner;
    use crate::machine::tests::{machine, machine_with};
    use crate::steps::{Ledger, Pace, Steps};

    fn steps(dir: &tempfile::TempDir) -> Steps {
        let ledger = Arc::new(Ledger::open(&dir.path().join("ledger.json")).expect("a ledger"));
        Steps { bus: Bus::in_memory(), ledger, stop_before: None, pace: Pace::default() }
    }

    fn with_fixed_address() -> Site {
        let mut site = Site::default();
        site.networks.interfaces.push(Interface {
            mac_address: Some("52:54:00:00:00:01".to_owned()),
            addresses: vec!["10.0.0.5/24".to_owned()],
            ..Interface::default()
        });
        site
    }

    #[tokio::test]
    async fn interfaces_are_configured_once_and_old_ones_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let (box_, steps) = (machine(dir.path(), FakeRunner::default()), steps(&dir));
        let count = || fs_err::read_dir(dir.path().join("etc/systemd/network")).expect("listing").count();
        interfaces(&box_, &steps, &with_fixed_address()).await;
        assert_eq!(count(), 1);
        interfaces(&box_, &steps, &Site::default()).await;
        assert_eq!(count(), 0);
        interfaces(&box_, &steps, &Site::default()).await;
        assert_eq!(steps.bus.since(0).1.last().expect("an event").state, agent_api::events::State::Skipped);
    }

    #[test]
    fn cards_are_known_by_their_own_address_also_as_parts_of_a_bond() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| {
            let file = dir.path().join(file);
            fs_err::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs_err::write(file, text).expect("written");
        };
        write("ens4/address", "52:54:00:00:00:01\n");
        write("ens4/bonding_slave/perm_hwaddr", "52:54:00:00:00:02\n");
        write("ens4/device/driver/x", "");
        write("bond0/address", "52:54:00:00:00:01\n");
        let (mac, name) = ("52:54:00:00:00:02".parse().ok(), Some("ens4".to_owned()));
        assert_eq!(cards(dir.path()), [Card { mac, name, driver: Some("driver".to_owned()) }]);
        assert_eq!(cards(&dir.path().join("nowhere")), []);
    }

    /// A bond that is not wanted any more, or not in this way, goes with its file.
    #[tokio::test]
    async fn what_an_old_file_made_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let runner = Arc::new(FakeRunner::default());
        let (box_, steps) = (machine_with(dir.path(), runner.clone()), steps(&dir));
        let with = |mode: &str| {
            let text = format!(
                "apiVersion: foothold.dev/v1\nkind: Site\nnetworks:\n  netdevs: [ {{ name: pair, kind: bond, bond: {{ mode: {mode} }} }} ]\n  \
                 interfaces: [ {{ macAddress: \"52:54:00:00:00:01\", bond: pair }} ]\n"
            );
            Site::parse(&text).expect("a Site")
        };
        interfaces(&box_, &steps, &with("active-backup")).await;
        fs_err::create_dir_all(dir.path().join("sys/class/net/pair")).expect("made");
        interfaces(&box_, &steps, &with("active-backup")).await;
        let deleted = || runner.calls().iter().filter(|call| *call == "ip link delete pair").count();
        assert_eq!(deleted(), 0);
        interfaces(&box_, &steps, &with("802.3ad")).await;
        assert_eq!(deleted(), 1);
        interfaces(&box_, &steps, &Site::default()).await;
        assert_eq!(
            (deleted(), fs_err::read_dir(dir.path().join("etc/systemd/network")).expect("read").count()),
            (2, 0)
        );
    }

    /// A reload that came to nothing is asked for again, though the files are there by then.
    #[tokio::test]
    async fn networkd_reads_what_was_written_once_it_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        let runner = Arc::new(FakeRunner::default().fail("systemctl reload", 1, "Unit is not active"));
        let (box_, mut steps) = (machine_with(dir.path(), runner.clone()), steps(&dir));
        steps.pace.first_pause = std::time::Duration::from_millis(1);
        interfaces(&box_, &steps, &with_fixed_address()).await;
        let [start, reload] = ["start", "reload"].map(|verb| format!("systemctl {verb} systemd-networkd.service"));
        assert_eq!(runner.calls(), [&*start, &*reload, &*start, &*reload]);
    }

    #[tokio::test]
    async fn names_and_rules_are_set() {
        let dir = tempfile::tempdir().expect("a directory");
        let (box_, steps) = (machine(dir.path(), FakeRunner::default()), steps(&dir));
        name_service(&box_, &steps, &Site::default()).await;
        let text = fs_err::read_to_string(dir.path().join("etc/foothold/resolv.conf")).expect("read");
        assert_eq!(text, "nameserver 198.18.0.1\n");
        firewall(&box_, &steps, &Site::default()).await;
        assert_eq!(steps.bus.now().failed().count(), 0);
    }
}
