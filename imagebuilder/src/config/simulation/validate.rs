//! `input` to [`Simulation`]: defaults, ranges, and what must not be there twice.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use agent_api::metal3::bmc_address::BmcAddress;
use agent_api::net::{InterfaceAddress, MacAddress};
use foothold_qemu::bmc::{self, Profile};

use super::input::{self, Driver};
use super::{Application, Awaited, BoxImage, SimulatedBox, SimulatedServer, Simulation};
use crate::config::findings::Findings;
use crate::config::path::KeyPath;
use crate::config::types::Ipv4Network;
use crate::config::{ByteSize, Name, parse_duration};

const ADDRESS: &str = "172.22.0.254/24";
/// Firmware alone takes half of it.
const LEAST_MEMORY: ByteSize = ByteSize::mib(128);
const MOST_MEMORY: ByteSize = ByteSize::mib(1 << 20);
const MOST_CPUS: u32 = 64;

pub(super) fn simulation(
    input: &input::Simulation,
    directory: &Path,
    findings: &mut Findings<'_>,
) -> Option<Simulation> {
    let network = network(input.network.address.as_deref(), findings);
    let mut check = Validate { directory, network, findings, seen: HashMap::new() };
    let namespace = input.namespace.as_deref().unwrap_or("metal3");
    let namespace = check.findings.parse(&KeyPath::of("namespace"), namespace, Name::from_str);
    let appliance = input.appliance.as_ref().map(|input| check.appliance(input));
    let servers = input.servers.as_deref().unwrap_or_default().iter().enumerate();
    let servers: Vec<_> = servers.map(|(i, input)| check.server(input, &KeyPath::of("servers").index(i))).collect();
    let until = input.until.as_deref().unwrap_or_default().iter().enumerate();
    let until: Vec<_> = until.map(|(i, input)| check.awaited(input, &KeyPath::of("until").index(i))).collect();
    let names: Vec<&str> = input.until.iter().flatten().map(|it| it.name.as_deref().unwrap_or_default()).collect();
    let apply = input.apply.as_deref().unwrap_or_default().iter().enumerate();
    let apply: Vec<_> =
        apply.map(|(i, input)| check.application(input, &names, &KeyPath::of("apply").index(i))).collect();
    if input.appliance.is_none() {
        for key in ["apply", "until"]
            .into_iter()
            .filter(|key| if *key == "apply" { !apply.is_empty() } else { !until.is_empty() })
        {
            check.findings.at(&KeyPath::of(key), "there is no box", "a `box`", "add `box: { definition: ... }`");
        }
    }
    let (address, network) = network?;
    Some(Simulation {
        address,
        prefix: network.prefix(),
        namespace: namespace?,
        appliance: match appliance {
            None => None,
            Some(appliance) => Some(appliance?),
        },
        servers: servers.into_iter().collect::<Option<_>>()?,
        apply: apply.into_iter().collect::<Option<_>>()?,
        until: until.into_iter().collect::<Option<_>>()?,
    })
}

/// This machine's address, and the network that it is in.
fn network(text: Option<&str>, findings: &mut Findings<'_>) -> Option<(Ipv4Addr, Ipv4Network)> {
    let path = KeyPath::of("network").key("address");
    let text = text.unwrap_or(ADDRESS);
    let read = || {
        let own: InterfaceAddress = text.parse().ok()?;
        let network = Ipv4Network::from(own);
        let fits = (8..=29).contains(&own.prefix) && network.reserved().is_none() && is_host(network, own.address);
        fits.then_some((own.address, network))
    };
    let read = read();
    if read.is_none() {
        let expected = "the address of a host with a prefix length of 8 to 29, such as `172.22.0.254/24`";
        findings.at(&path, &format!("`{text}` is not valid"), expected, "take one from a private network");
    }
    read
}

/// Whether it is neither the network itself nor its broadcast.
fn is_host(network: Ipv4Network, address: Ipv4Addr) -> bool {
    let hosts = u32::MAX >> network.prefix();
    let own = u32::from(address) & hosts;
    network.contains(address) && own != 0 && own != hosts
}

/// `KIND` or `KIND/NAME`, which nobody takes for a flag.
fn is_object(text: &str) -> bool {
    let words = |c: char| c.is_ascii_alphanumeric() || "-./".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(words) && text.matches('/').count() <= 1
}

/// What `kubectl wait --for=` takes.
fn is_condition(text: &str) -> bool {
    let named = text.strip_prefix("condition=").is_some_and(|name| !name.is_empty());
    let path = text.strip_prefix("jsonpath=").is_some_and(|path| path.starts_with('{') && path.contains('}'));
    named || path || ["create", "delete"].contains(&text)
}

struct Validate<'d, 'f, 't> {
    directory: &'d Path,
    network: Option<(Ipv4Addr, Ipv4Network)>,
    findings: &'f mut Findings<'t>,
    /// What must be there once, and where it was first.
    seen: HashMap<String, String>,
}

impl Validate<'_, '_, '_> {
    fn appliance(&mut self, input: &input::Appliance) -> Option<SimulatedBox> {
        let path = KeyPath::of("box");
        let image = match (&input.image, &input.definition) {
            (Some(image), None) => self.file(&path.key("image"), Some(image)).map(BoxImage::File),
            (None, Some(definition)) => self.file(&path.key("definition"), Some(definition)).map(BoxImage::Definition),
            (both, _) => {
                let found = if both.is_some() { "`image` and `definition` are there" } else { "`image` is missing" };
                let hint = "`image` is built already, `definition` is built when it is needed";
                self.findings.at(&path, found, "`image` or `definition`", hint);
                None
            }
        };
        let mac = self.mac(&path.key("macAddress"), input.mac_address.as_deref());
        let site = input.site.as_deref().map(|site| self.file(&path.key("site"), Some(site)));
        let memory = self.size(&path.key("memory"), input.memory.as_deref().unwrap_or("4GiB"));
        let cpus = self.cpus(&path.key("cpus"), input.cpus);
        Some(SimulatedBox {
            image: image?,
            mac: mac?,
            site: match site {
                None => None,
                Some(site) => Some(site?),
            },
            memory: memory?,
            cpus: cpus?,
            firmware: input.firmware.unwrap_or_default(),
        })
    }

    fn server(&mut self, input: &input::Server, path: &KeyPath) -> Option<SimulatedServer> {
        let key = path.key("name");
        let name = input.name.as_deref().and_then(|name| self.findings.parse(&key, name, Name::from_str));
        if let Some(name) = &name {
            self.once(&key, format!("the name `{}`", name.as_str()));
        }
        let mac = self.mac(&path.key("macAddress"), input.mac_address.as_deref());
        let memory = self.size(&path.key("memory"), input.memory.as_deref().unwrap_or("2560MiB"));
        let cpus = self.cpus(&path.key("cpus"), input.cpus);
        let disk = input.disk.as_deref().unwrap_or("8GiB");
        let disk = self.findings.parse(&path.key("disk"), disk, ByteSize::from_str);
        let image = self.name(&path.key("image"), input.image.as_deref());
        let (path, input, server) = (path.key("bmc"), input.bmc.as_ref()?, input);
        let driver = input.driver;
        let listen = self.listen(&path, input);
        let account = self.account(&path, input);
        let profile = self.profile(&path.key("profile"), input);
        let faults = self.faults(&path.key("faults"), input);
        let (user, password) = account?;
        Some(SimulatedServer {
            name: name?,
            mac: mac?,
            firmware: server.firmware.unwrap_or_default(),
            memory_mib: u32::try_from(memory?.bytes() >> 20).ok()?,
            cpus: cpus?,
            disk: disk?,
            image: image?,
            driver: driver?,
            listen: listen?,
            user,
            password,
            profile: profile?,
            faults: faults?,
        })
    }

    /// A name that may be left out. `None`: it is wrong.
    #[expect(clippy::option_option, reason = "left out is right, and wrong is told")]
    fn name(&mut self, path: &KeyPath, text: Option<&str>) -> Option<Option<Name>> {
        text.map_or(Some(None), |text| self.findings.parse(path, text, Name::from_str).map(Some))
    }

    fn application(&mut self, input: &input::Apply, names: &[&str], path: &KeyPath) -> Option<Application> {
        let file = self.file(&path.key("file"), input.file.as_deref());
        let cluster = self.name(&path.key("cluster"), input.cluster.as_deref());
        let after = match &input.after {
            None => Some(None),
            Some(name) => {
                let at = names.iter().position(|known| known == name);
                if at.is_none() {
                    let found = format!("no condition is named `{name}`");
                    let expected = format!("one of {}", names.join(", "));
                    self.findings.at(&path.key("after"), &found, expected, "name one of `until`");
                }
                at.map(Some)
            }
        };
        let delete = input.delete.unwrap_or_default();
        Some(Application { file: file?, after: after?, cluster: cluster?, delete })
    }

    fn awaited(&mut self, input: &input::Condition, path: &KeyPath) -> Option<Awaited> {
        let key = path.key("name");
        let name = input.name.as_deref().and_then(|name| self.findings.parse(&key, name, Name::from_str));
        if let Some(name) = &name {
            self.once(&key, format!("the condition `{}`", name.as_str()));
        }
        let namespace = input.namespace.as_deref().unwrap_or("default");
        let namespace = self.findings.parse(&path.key("namespace"), namespace, Name::from_str);
        let cluster = self.name(&path.key("cluster"), input.cluster.as_deref());
        let object = input.object.as_deref().filter(|object| is_object(object));
        if object.is_none() {
            let found = format!("`{}` is no object", input.object.as_deref().unwrap_or_default());
            self.findings.at(&path.key("object"), &found, "`KIND/NAME` or `KIND`", "write `provisioning/one`");
        }
        let holds = input.holds.as_deref().filter(|holds| is_condition(holds));
        if holds.is_none() {
            let found = format!("`{}` cannot be waited for", input.holds.as_deref().unwrap_or_default());
            let expected = "`condition=NAME`, `jsonpath={PATH}`, `jsonpath={PATH}=VALUE`, `create` or `delete`";
            self.findings.at(&path.key("for"), &found, expected, "`kubectl wait --help` explains them");
        }
        let within = input.within.as_deref().unwrap_or("60m");
        let within = self.findings.parse(&path.key("within"), within, parse_duration);
        Some(Awaited {
            name: name?,
            object: object?.to_owned(),
            namespace: namespace?,
            holds: holds?.to_owned(),
            cluster: cluster?,
            within: within?,
        })
    }

    fn listen(&mut self, path: &KeyPath, input: &input::Bmc) -> Option<SocketAddrV4> {
        let key = path.key("address");
        let text = input.address.as_deref()?;
        let (own, network) = self.network?;
        let address = text.parse().ok().filter(|address| is_host(network, *address));
        let Some(address) = address else {
            let expected = format!("an address in {network}");
            self.findings.at(&key, &format!("`{text}` is not valid"), expected, "the network is `network.address`");
            return None;
        };
        let ipmi = input.driver == Some(Driver::Ipmi);
        let port = input.port.unwrap_or(if ipmi { 623 } else { 443 });
        let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
            let hint = "remove the key to get the default";
            self.findings.at(&path.key("port"), &format!("{port} is no port"), "1 to 65535", hint);
            return None;
        };
        let listen = SocketAddrV4::new(address, port);
        if own == address && input.port.is_none() {
            let hint = "give the BMC another address, or a port of its own";
            self.findings.at(&key, "this is this machine's own address", "another one", hint);
            return None;
        }
        self.once(&key, format!("a BMC at {listen}"));
        Some(listen)
    }

    fn account(&mut self, path: &KeyPath, input: &input::Bmc) -> Option<(String, String)> {
        let user = input.user.clone().unwrap_or_else(|| "admin".to_owned());
        let password = input.password.clone()?;
        let ipmi = input.driver == Some(Driver::Ipmi);
        let (named, known, expected) = if ipmi {
            let expected = "1 to 16 characters of ASCII without blanks, quotes and backslashes";
            (bmc::is_ipmi_name(&user), bmc::is_ipmi_name(&password), expected)
        } else {
            // Basic authentication ends the name with the first colon (RFC 7617, 2).
            (!user.is_empty() && !user.contains(':'), !password.is_empty(), "a text; a name has no `:`")
        };
        if !named {
            self.findings.at(&path.key("user"), &format!("`{user}` is not valid"), expected, "give another name");
        }
        if !known {
            let hint = "it is for this simulation only: make one up";
            self.findings.at_secret(&path.key("password"), "the password is not valid", expected, hint);
        }
        (named && known).then_some((user, password))
    }

    fn profile(&mut self, path: &KeyPath, input: &input::Bmc) -> Option<Profile> {
        let text = input.profile.as_deref().unwrap_or("generic");
        if input.driver == Some(Driver::Ipmi) && input.profile.is_some() {
            self.findings.at(path, "IPMI has no profiles", "no profile", "remove the key");
        }
        let read = if Profile::names().contains(&text) {
            Profile::known(text)
        } else if text.contains(['/', '.']) {
            let file = self.file(path, Some(text))?;
            match fs_err::read_to_string(file) {
                Ok(yaml) => Profile::parse(&yaml),
                Err(error) => {
                    self.findings.at(path, &error.to_string(), "a file that can be read", "make it readable");
                    return None;
                }
            }
        } else {
            Profile::known(text)
        };
        let expected = format!("one of {}, or a file", Profile::names().join(", "));
        let profile = match read {
            Ok(profile) => profile,
            Err(error) => {
                let found = error.to_string();
                let found = found.split("\nhint: ").next().unwrap_or_default();
                self.findings.at(path, found, expected, "those that come along are in qemu/src/bmc/profiles");
                return None;
            }
        };
        if input.driver == Some(Driver::RedfishVirtualmedia) && profile.media.drives.is_empty() {
            let found = format!("BMCs of `{}` have no virtual media", profile.name);
            self.findings.at(path, &found, "a profile with drives", "or write `type: redfish`");
        }
        for scheme in [&profile.schemes.network, &profile.schemes.media] {
            if format!("{scheme}+https://127.0.0.1").parse::<BmcAddress>().is_err() {
                let found = format!("no BMC address of a `BareMetalHost` begins with `{scheme}`");
                let expected = "a scheme of Redfish such as `redfish` or `idrac-virtualmedia`";
                self.findings.at(path, &found, expected, "mend `schemes` of that profile");
            }
        }
        Some(profile)
    }

    fn faults(&mut self, path: &KeyPath, input: &input::Bmc) -> Option<bmc::Faults> {
        let faults = &input.faults;
        let flaps = match &faults.flaps {
            None => None,
            Some(_) if input.driver == Some(Driver::Ipmi) => {
                self.findings.at(&path.key("flaps"), "IPMI does not flap", "no `flaps`", "`silent` is what it can be");
                return None;
            }
            Some(flaps) => Some(bmc::Flaps { answered: flaps.answered?, dropped: flaps.dropped? }),
        };
        Some(bmc::Faults {
            delay_ms: faults.delay_ms.unwrap_or_default(),
            flaps,
            silent: faults.silent.unwrap_or_default(),
            refuse_credentials: faults.refuse_credentials.unwrap_or_default(),
            power: match faults.power.unwrap_or(input::PowerFault::Honest) {
                input::PowerFault::Honest => bmc::PowerFault::Honest,
                input::PowerFault::Inverted => bmc::PowerFault::Inverted,
                input::PowerFault::Wavering => bmc::PowerFault::Wavering,
                input::PowerFault::Deaf => bmc::PowerFault::Deaf,
            },
            ..bmc::Faults::default()
        })
    }

    /// Lower-case; of one interface, and given once.
    fn mac(&mut self, path: &KeyPath, text: Option<&str>) -> Option<String> {
        let text = text?;
        let Some(mac) = text.parse().ok().filter(|mac: &MacAddress| !mac.is_group()) else {
            let expected = "six pairs of hex digits such as \"52:54:00:22:00:01\", of one interface";
            self.findings.at(path, &format!("`{text}` is not valid"), expected, "begin with 52:54:00");
            return None;
        };
        let mac = mac.to_string();
        self.once(path, format!("the MAC address {mac}"));
        Some(mac)
    }

    fn size(&mut self, path: &KeyPath, text: &str) -> Option<ByteSize> {
        let size = self.findings.parse(path, text, ByteSize::from_str)?;
        if (LEAST_MEMORY..=MOST_MEMORY).contains(&size) {
            return Some(size);
        }
        let expected = format!("{LEAST_MEMORY} to {MOST_MEMORY}");
        self.findings.at(path, &format!("{size} of memory"), expected, "the ramdisk that installs needs 2560MiB");
        None
    }

    fn cpus(&mut self, path: &KeyPath, cpus: Option<i64>) -> Option<u32> {
        let cpus = cpus.unwrap_or(2);
        let fits = u32::try_from(cpus).ok().filter(|cpus| (1..=MOST_CPUS).contains(cpus));
        if fits.is_none() {
            self.findings.at(path, &format!("{cpus} processors"), format!("1 to {MOST_CPUS}"), "2 are enough");
        }
        fits
    }

    fn file(&mut self, path: &KeyPath, text: Option<&str>) -> Option<PathBuf> {
        let text = text?;
        let file = self.directory.join(text);
        if file.is_file() {
            return Some(file);
        }
        let expected = "a file, relative to this one";
        self.findings.at(path, &format!("there is no file `{text}`"), expected, "correct the path, or put it there");
        None
    }

    /// An error where `what` is there already.
    fn once(&mut self, path: &KeyPath, what: String) {
        if let Some(first) = self.seen.get(&what) {
            let found = format!("{what} is given a second time");
            self.findings.at(path, &found, "each of them once", &format!("it was given first in `{first}`"));
        } else {
            self.seen.insert(what, path.to_string());
        }
    }
}
