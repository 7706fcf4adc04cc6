//! Objects of a host.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use agent_api::metal3::admission;
use agent_api::metal3::bmc_address::BmcAddress;
use agent_api::metal3::{
    BareMetalHost, BareMetalHostSpec, BmcDetails, ChecksumType, Image, RootDeviceHints, SecretReference,
};
use agent_api::ports::CONTENT;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::Problem;
use super::machine::IcnMachine;
use super::node::Placed;
use super::shell::Provider;
use super::user_data::cloud_config;
use crate::bmc::address::{Address, AddressError};
use crate::ramdisk::network_data::NetworkData;

/// ICN's root disks have at least this.
const ROOT_DISK_GB: i64 = 48;

/// Where ICN's clusters look for a node's addresses.
const NODE_IP: &str = "icn.akraino.org/node-ip";

/// What the files do not say.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Namespace of all objects.
    pub namespace: String,
    /// The box, from which images come.
    pub server: IpAddr,
    /// Public ssh keys that may log in, beside those of the files.
    pub ssh_keys: Vec<String>,
}

/// All objects of all machines: namespace first, then each host after its Secrets.
pub(super) fn objects(
    machines: &[IcnMachine],
    provider: &Provider,
    choices: &Choices,
    problems: &mut Vec<Problem>,
) -> Vec<Value> {
    let namespace = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": choices.namespace },
    });
    let mut objects = vec![namespace];
    again(machines, problems);
    for machine in machines {
        match of_machine(machine, provider, choices) {
            Ok(made) => objects.extend(made),
            Err(error) => problems.push(of(machine, format!("{error:#}"), "a host".into())),
        }
        let host = host(machine, choices);
        if let Some(message) = admission::message(&admission::host_create(&host)) {
            problems.push(of(machine, message, format!("a BareMetalHost `{}` that is admitted", machine.name)));
        } else if let Err(error) = Address::parse(&machine.address.value) {
            let (found, expected) = told(&error);
            problems.push(of_place(machine, &machine.address, found, expected.into()));
        }
        if let Some(data) = &machine.network_data
            && let Err(error) = NetworkData::read(&data.value).and_then(|data| data.units(""))
        {
            let found = format!("what no server can use ({error})");
            problems.push(of_place(machine, data, found, "network data of OpenStack".into()));
        }
    }
    objects
}

/// What is wrong with the address of a BMC that is admitted: what was found, what was expected.
fn told(error: &AddressError) -> (String, &'static str) {
    match error {
        AddressError::Form(error) => (error.to_string(), "address of the BMC, such as `ipmi://10.0.0.2`"),
        AddressError::Port(port) => (format!("the port `{port}`"), "a port from 1 to 65535"),
        AddressError::Privilege(level) => (format!("the privilege level `{level}`"), "USER, OPERATOR or ADMINISTRATOR"),
    }
}

/// Reports what only one host can have.
fn again(machines: &[IcnMachine], problems: &mut Vec<Problem>) {
    let (mut names, mut bmcs, mut macs) = (HashMap::new(), HashMap::new(), HashMap::new());
    let said = |what: &str, first: &IcnMachine, line: u64| {
        format!("{what} that no other host has: {}:{line} has it", first.file)
    };
    for machine in machines {
        let first = *names.entry(machine.name.as_str()).or_insert(machine);
        if !std::ptr::eq(first, machine) {
            problems.push(of(machine, format!("`{}` again", machine.name), said("a name", first, first.line)));
        }
        if let Ok(bmc) = machine.address.value.parse::<BmcAddress>() {
            let first = *bmcs.entry(bmc.place()).or_insert(machine);
            if !std::ptr::eq(first, machine) {
                let found = format!("`{}`, the BMC of `{}`", machine.address.value, first.name);
                let expected = said("a BMC", first, first.address.line);
                problems.push(of_place(machine, &machine.address, found, expected));
            }
        }
        if let Some(mac) = &machine.boot_mac {
            let (first, line) = *macs.entry(mac.value.as_str()).or_insert((machine, mac.line));
            if !std::ptr::eq(first, machine) {
                let found = format!("`{}`, the card of `{}`", mac.value, first.name);
                problems.push(of_place(machine, mac, found, said("a MAC address", first, line)));
            }
        }
    }
}

fn of_place<T>(machine: &IcnMachine, place: &Placed<T>, found: String, expected: String) -> Problem {
    Problem { file: machine.file.clone(), line: place.line, key: place.key.clone(), found, expected }
}

fn of(machine: &IcnMachine, found: String, expected: String) -> Problem {
    Problem { file: machine.file.clone(), line: machine.line, key: String::new(), found, expected }
}

fn of_machine(machine: &IcnMachine, provider: &Provider, choices: &Choices) -> anyhow::Result<Vec<Value>> {
    let secret = |kind: &str, data: &[(&str, &str)]| {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let secret = Secret {
            metadata: metadata(machine, kind, choices),
            string_data: Some(data.iter().map(text).collect()),
            type_: Some("Opaque".into()),
            ..Secret::default()
        };
        serde_json::to_value(secret)
    };
    let mut made = vec![secret("-bmc-secret", &[("username", &machine.username), ("password", &machine.password)])?];
    if machine.has_user_data {
        let text = cloud_config(&machine.user, provider, &choices.ssh_keys)?;
        made.push(secret("-user-data", &[("userData", &text)])?);
    }
    if let Some(data) = &machine.network_data {
        made.push(secret("-network-data", &[("networkData", &serde_json::to_string_pretty(&data.value)?)])?);
    }
    made.push(serde_json::to_value(host(machine, choices))?);
    Ok(made)
}

fn metadata(machine: &IcnMachine, ending: &str, choices: &Choices) -> ObjectMeta {
    ObjectMeta {
        name: Some(format!("{}{ending}", machine.name)),
        namespace: Some(choices.namespace.clone()),
        ..ObjectMeta::default()
    }
}

fn host(machine: &IcnMachine, choices: &Choices) -> BareMetalHost {
    let reference = |ending: &str| SecretReference {
        name: Some(format!("{}{ending}", machine.name)),
        namespace: Some(choices.namespace.clone()),
    };
    let image = machine.image.as_ref().map(|name| {
        let server = std::net::SocketAddr::new(choices.server, CONTENT);
        let url = format!("http://{server}/images/{name}");
        Image {
            checksum: Some(format!("{url}.md5sum")),
            checksum_type: Some(ChecksumType::Md5),
            url,
            ..Image::default()
        }
    });
    let labels: BTreeMap<String, String> = machine.labels.iter().cloned().collect();
    let node_ip = machine.node_ip.clone();
    BareMetalHost {
        metadata: ObjectMeta {
            labels: (!labels.is_empty()).then_some(labels),
            annotations: node_ip.map(|addresses| BTreeMap::from([(NODE_IP.to_owned(), addresses)])),
            ..metadata(machine, "", choices)
        },
        spec: BareMetalHostSpec {
            online: true,
            bmc: Some(BmcDetails {
                address: machine.address.value.clone(),
                credentials_name: format!("{}-bmc-secret", machine.name),
                disable_certificate_verification: machine.unverified,
            }),
            boot_mac_address: machine.boot_mac.as_ref().map(|mac| mac.value.clone()),
            // Without an image, too: it comes later, from whoever claims the host.
            root_device_hints: Some(RootDeviceHints {
                min_size_gigabytes: Some(ROOT_DISK_GB),
                ..RootDeviceHints::default()
            }),
            image,
            user_data: machine.has_user_data.then(|| reference("-user-data")),
            network_data: machine.network_data.as_ref().map(|_| reference("-network-data")),
            ..BareMetalHostSpec::default()
        },
        status: None,
    }
}
