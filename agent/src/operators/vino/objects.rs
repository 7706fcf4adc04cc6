//! The objects that are made for a `Vino`, beside its hosts' machines. Pure.

use std::collections::BTreeMap;

use agent_api::metal3::{BareMetalHost, BareMetalHostSpec, BmcDetails, RootDeviceHints, SecretReference};
use agent_api::net::before_port;
use agent_api::vino::spec::{CR_NAME, CR_NAMESPACE, DOMAIN, DaemonSetOptions, NODE, NodeSet, Vino};
use agent_api::vino::values::{CREDENTIALS, REDFISH_PORT};
use agent_api::yaml;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, EnvVarSource, ObjectFieldSelector, Secret, SecretKeySelector, ServiceAccount,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;

use super::decide::{labels, stem};
use crate::operators::kit::{Object as _, told_key};

/// The `DaemonSet` when users give no template.
const DAEMON_SET: &str = include_str!("daemonset.yaml");
/// Names of the containers.
const LIBVIRT: &str = "libvirt";
const SUSHY: &str = "sushy";
const BUILDER: &str = "vino-builder";
/// Characters of a screen's password: all that VNC takes.
const VNC_LENGTH: usize = 8;
const VNC_LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// What all pods are made with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    /// Namespace of all of it.
    pub namespace: String,
    /// Image for containers that name none.
    pub image: String,
    /// Interface of the node for networks that name none.
    pub interface: Option<String>,
}

/// Names of what is made once for a `Vino`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// `DaemonSet`, account and rights.
    pub stem: String,
    /// `ConfigMap` with templates of libvirt.
    pub libvirt: String,
    /// Secret with the credentials of Redfish.
    pub bmc: String,
    /// Secret with passwords of screens.
    pub vnc: String,
}

impl Names {
    /// The names for a `Vino`.
    pub fn of(object: &Vino) -> Self {
        let stem = stem(object);
        let with = |end: &str| format!("{stem}-{end}");
        Self { libvirt: with("libvirt"), bmc: with("bmc"), vnc: with("vnc"), stem: stem.clone() }
    }
}

/// Names of a host's Secrets.
pub fn host_secrets(host: &str) -> [String; 2] {
    [format!("{host}-credentials"), format!("{host}-network-data")]
}

fn metadata(object: &Vino, ground: &Ground, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(ground.namespace.clone()),
        labels: Some(labels(object)),
        ..ObjectMeta::default()
    }
}

/// A Secret.
pub fn secret(object: &Vino, ground: &Ground, name: &str, data: impl IntoIterator<Item = (String, String)>) -> Secret {
    let data = data.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))).collect();
    Secret {
        metadata: metadata(object, ground, name),
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// Credentials of Redfish, as Redfish and its hosts have them.
pub fn credentials(object: &Vino, ground: &Ground, name: &str) -> Secret {
    let own = &object.spec.bmc_credentials;
    let texts = [own.username.clone(), own.password.clone()];
    secret(object, ground, name, CREDENTIALS.map(str::to_owned).into_iter().zip(texts))
}

/// The Secret with the screens' passwords. Passwords that exist stay the same.
pub fn vnc(object: &Vino, ground: &Ground, hosts: &[String], had: Option<&Secret>) -> Secret {
    let old = |host: &String| {
        let text = had?.data.as_ref()?.get(host)?;
        String::from_utf8(text.0.clone()).ok().filter(|text| text.len() == VNC_LENGTH)
    };
    let passwords = hosts.iter().map(|host| (host.clone(), old(host).unwrap_or_else(new_password)));
    secret(object, ground, &Names::of(object).vnc, passwords)
}

fn new_password() -> String {
    let letter = |_| VNC_LETTERS[rand::random_range(0..VNC_LETTERS.len())] as char;
    (0..VNC_LENGTH).map(letter).collect()
}

/// Templates of libvirt for the nodes.
pub fn templates(object: &Vino, ground: &Ground, files: BTreeMap<String, String>) -> ConfigMap {
    ConfigMap {
        metadata: metadata(object, ground, &Names::of(object).libvirt),
        data: Some(files),
        ..ConfigMap::default()
    }
}

/// Who a node's pod is. It reads what is made for its `Vino`, and says on its own pod what it has.
pub fn rights(object: &Vino, ground: &Ground) -> (ServiceAccount, Role, RoleBinding) {
    let names = Names::of(object);
    let metadata = || metadata(object, ground, &names.stem);
    let rule = |resource: &str, names: Vec<String>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: (!names.is_empty()).then_some(names),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let rules = vec![
        rule("configmaps", vec![names.libvirt.clone()], &["get"]),
        rule("secrets", vec![names.bmc.clone(), names.vnc.clone()], &["get"]),
        rule("pods", Vec::new(), &["get", "patch"]),
    ];
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: names.stem.clone(),
        namespace: Some(ground.namespace.clone()),
        ..Subject::default()
    };
    let role_ref = RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "Role".to_owned(),
        name: names.stem.clone(),
    };
    (
        ServiceAccount { metadata: metadata(), ..ServiceAccount::default() },
        Role { metadata: metadata(), rules: Some(rules) },
        RoleBinding { metadata: metadata(), role_ref, subjects: Some(vec![subject]) },
    )
}

fn plain(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value), value_from: None }
}

fn field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
    let from = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(from) }
}

fn of_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    let key = SecretKeySelector { name: secret.to_owned(), key: key.to_owned(), optional: None };
    let from = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(from) }
}

fn environment(object: &Vino, ground: &Ground) -> Vec<EnvVar> {
    let bmc = Names::of(object).bmc;
    let mut all = vec![
        field("NODE_NAME", "spec.nodeName"),
        field("NODE_IP", "status.hostIP"),
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        plain("RUNTIME_NAMESPACE", ground.namespace.clone()),
        plain("VINO", told_key(&object.key())),
        of_secret("BASIC_AUTH_USERNAME", &bmc, CREDENTIALS[0]),
        of_secret("BASIC_AUTH_PASSWORD", &bmc, CREDENTIALS[1]),
    ];
    all.extend(ground.interface.clone().map(|interface| plain("VM_BRIDGE_INTERFACE", interface)));
    all
}

fn image_of<'a>(options: Option<&'a DaemonSetOptions>, container: &str) -> Option<&'a String> {
    let options = options?;
    let image = match container {
        LIBVIRT => options.libvirt_image.as_ref(),
        SUSHY => options.sushy_image.as_ref(),
        BUILDER => options.vino_builder_image.as_ref(),
        _ => None,
    };
    image.filter(|image| !image.is_empty())
}

fn fill(container: &mut Container, object: &Vino, ground: &Ground) {
    if let Some(image) = image_of(object.spec.daemon_set_options.as_ref(), &container.name) {
        container.image = Some(image.clone());
    } else if container.image.as_ref().is_none_or(String::is_empty) {
        container.image = Some(ground.image.clone());
        // On a box it is on the node with the release; elsewhere it may come from a registry.
        container.image_pull_policy = Some("IfNotPresent".to_owned());
    }
    let env = container.env.get_or_insert_default();
    for own in environment(object, ground) {
        env.retain(|it| it.name != own.name);
        env.push(own);
    }
}

/// The pods of nodes, by a template of users or our own.
///
/// # Errors
/// What is wrong with the template.
pub fn daemon_set(object: &Vino, ground: &Ground, template: Option<&str>) -> Result<DaemonSet, String> {
    let text = template.unwrap_or(DAEMON_SET);
    let value: Value = yaml::read(text).map_err(|error| format!("is no DaemonSet: {error}"))?;
    let containers = value.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        return Err("is no DaemonSet: it has no `spec.template.spec.containers`".to_owned());
    }
    let mut made: DaemonSet = serde_json::from_value(value).map_err(|error| format!("is no DaemonSet: {error}"))?;
    let spec = &mut made.spec;
    let pod = spec.template.spec.get_or_insert_default();
    for container in pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten()) {
        fill(container, object, ground);
    }
    let selected = object.spec.node_selector.as_ref().map(|selector| selector.match_labels.clone());
    pod.node_selector = selected.filter(|labels| !labels.is_empty());
    let names = Names::of(object);
    pod.service_account_name = Some(names.stem.clone());
    let own = labels(object);
    spec.selector.match_labels.get_or_insert_default().extend(own.clone());
    spec.template.metadata.get_or_insert_default().labels.get_or_insert_default().extend(own.clone());
    let mut all = made.metadata.labels.take().unwrap_or_default();
    all.extend(own);
    made.metadata = ObjectMeta {
        labels: Some(all),
        annotations: made.metadata.annotations.take(),
        ..metadata(object, ground, &names.stem)
    };
    made.status = None;
    Ok(made)
}

/// Where Redfish finds a machine.
pub fn bmc_address(node_ip: &str, domain: &str) -> String {
    format!("redfish+http://{}:{REDFISH_PORT}/redfish/v1/Systems/{domain}", before_port(node_ip))
}

/// A machine as a host.
#[derive(Clone, Debug)]
pub struct HostWish<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its node.
    pub node: &'a str,
    /// The node's address.
    pub node_ip: &'a str,
    /// Its machine.
    pub domain: &'a str,
    /// What it boots from.
    pub boot_mac: &'a str,
    /// What is asked for.
    pub set: &'a NodeSet,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// It has network data.
    pub has_network_data: bool,
}

/// A host. Its user decides whether it is powered on: `spec.online` of a host that exists is not changed.
pub fn host(ground: &Ground, wish: &HostWish<'_>, had: Option<&BareMetalHost>) -> BareMetalHost {
    let [credentials, network_data] = host_secrets(wish.name);
    let annotations = [(NODE.to_owned(), wish.node.to_owned()), (DOMAIN.to_owned(), wish.domain.to_owned())];
    let reference = SecretReference { name: Some(network_data), namespace: Some(ground.namespace.clone()) };
    BareMetalHost {
        metadata: ObjectMeta {
            name: Some(wish.name.to_owned()),
            namespace: Some(ground.namespace.clone()),
            labels: Some(wish.labels.clone()),
            annotations: Some(annotations.into()),
            resource_version: had.and_then(ResourceExt::resource_version),
            ..ObjectMeta::default()
        },
        spec: BareMetalHostSpec {
            online: had.is_none_or(|had| had.spec.online),
            bmc: Some(BmcDetails {
                address: bmc_address(wish.node_ip, wish.domain),
                credentials_name: credentials,
                disable_certificate_verification: Some(true),
            }),
            boot_mac_address: (!wish.boot_mac.is_empty()).then(|| wish.boot_mac.to_owned()),
            root_device_hints: Some(RootDeviceHints {
                device_name: Some(wish.set.root_device().to_owned()),
                ..RootDeviceHints::default()
            }),
            network_data: wish.has_network_data.then_some(reference),
            ..BareMetalHostSpec::default()
        },
        status: None,
    }
}

/// Selector of all that was made for a `Vino`.
pub fn selector(object: &Vino) -> String {
    let (namespace, name) = object.key();
    format!("{CR_NAMESPACE}={namespace},{CR_NAME}={name}")
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
