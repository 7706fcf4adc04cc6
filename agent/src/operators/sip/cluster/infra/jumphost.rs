//! The jump host: OpenSSH, keys only. It holds no BMC's password: what it wants of hosts it writes into a `ConfigMap` of its
//! own, which is all that it may do, and the controller does it (see [`super::requests`]). Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr as _;

use agent_api::sip::cluster::{JumpHost, SipCluster};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, ConfigMapVolumeSource, Container, ContainerPort, HostAlias, KeyToPath,
    PodSecurityContext, PodSpec, ProjectedVolumeSource, SecretProjection, ServiceAccount, Sysctl, Volume,
    VolumeProjection,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role as Rights, RoleBinding, RoleRef, Subject};
use russh::keys::ssh_key::authorized_keys::Entry;
use serde_json::json;

use super::{Backend, Given, Images, Infra, Objects, parts, requests};
use crate::cluster::probes;
use crate::operators::kit::Object as _;

/// Where the pod reads its files: the paths are Airship's.
const DATA: &str = "/etc/opt/sip";
const SCRIPTS: &str = "/opt/sip/bin";
const NODE_KEYS: &str = "ssh-private-keys";
const HOME_SSH: &str = "/home/ubuntu/.ssh";
/// Where it may write.
const RUN: &str = "/run/jumphost";
/// Keys of Secret and `ConfigMap`.
const HOSTS: &str = "hosts";
const SSH_CONFIG: &str = "ssh_config";
pub const HOST_KEY: &str = "ssh_host_ed25519_key";
pub const HOST_KEY_PUBLIC: &str = "ssh_host_ed25519_key.pub";
const AUTHORIZED: &str = "authorized-keys";
const SSHD_CONFIG: &str = "sshd_config";
/// User id of `ubuntu` in the image.
const USER: i64 = 1000;
const SSH: i32 = 22;

/// What is wrong with a line of `authorized_keys`, if anything.
pub fn wrong_key(line: &str) -> Option<String> {
    let line = line.trim();
    if line.contains(['\n', '\r']) {
        return Some("it has several lines".to_owned());
    }
    Entry::from_str(line).err().map(|error| error.to_string())
}

pub fn objects(object: &SipCluster, backends: &[Backend], given: &Given, images: &Images) -> Option<Objects> {
    let wish = object.spec.services.jump_host.first()?;
    let infra = Infra::JumpHost;
    let (private, public) = given.host_key.clone();
    let data = [
        (HOSTS, hosts(backends, &wish.wish.node_interface_id)),
        (SSH_CONFIG, ssh_config(backends, wish, &given.node_keys)),
        (HOST_KEY, private),
        (HOST_KEY_PUBLIC, public),
    ];
    let ports = [("ssh".to_owned(), SSH, wish.node_port)];
    Some(Objects {
        secret: parts::secret(infra, object, data),
        config_maps: vec![config_map(object, wish), requests::config_map(object)],
        rights: Some(rights(object)),
        service: parts::service(infra, object, &wish.wish, ports),
        deployment: parts::deployment(infra, object, pod(object, backends, given, images)?),
        ..Objects::default()
    })
}

/// The list of hosts for the command `host`. It holds no credentials.
fn hosts(backends: &[Backend], interface: &str) -> String {
    let one = |backend: &Backend| {
        json!({"name": backend.name, "host": format!("{}/{}", backend.host.0, backend.host.1), "role": backend.role,
            "standby": backend.standby, "ip": backend.address(interface)})
    };
    let all: Vec<_> = backends.iter().map(one).collect();
    format!("{:#}\n", json!(all))
}

/// The SSH configuration for logging in to the nodes.
fn ssh_config(backends: &[Backend], wish: &JumpHost, keys: &[String]) -> String {
    let mut text = String::new();
    for backend in backends {
        if let Some(ip) = backend.address(&wish.wish.node_interface_id) {
            let _ = writeln!(text, "Host {}\n  HostName {ip}", backend.name);
        }
    }
    let _ = writeln!(text, "Host *\n  UserKnownHostsFile {RUN}/known_hosts\n  StrictHostKeyChecking accept-new");
    for key in keys {
        let _ = writeln!(text, "  IdentityFile {DATA}/{NODE_KEYS}/{key}");
    }
    text
}

fn config_map(object: &SipCluster, wish: &JumpHost) -> ConfigMap {
    let infra = Infra::JumpHost;
    let (namespace, _) = object.key();
    let authorized = wish.ssh_authorized_keys.iter().fold(String::new(), |text, line| text + line.trim() + "\n");
    let requests = requests::name(object);
    let script = format!(
        "#!/bin/sh\nexec {} operator sip host --hosts {DATA}/{HOSTS} --requests {namespace}/{requests} \"$@\"\n",
        parts::AGENT
    );
    // Not root: it is entered as the one who runs it. Files of a pod's volumes are root's, which `StrictModes` does not like.
    let sshd = format!(
        "Port {SSH}\nHostKey {DATA}/{HOST_KEY}\nAuthorizedKeysFile {HOME_SSH}/authorized_keys\nPidFile none\nStrictModes no\n\
         PubkeyAuthentication yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin no\n\
         UsePAM no\nX11Forwarding no\nPrintMotd no\nClientAliveInterval 60\n\
         SetEnv PATH={SCRIPTS}:/usr/local/bin:/usr/bin:/bin\nSubsystem sftp internal-sftp\n"
    );
    let data = [(AUTHORIZED, authorized), ("host", script), (SSHD_CONFIG, sshd)];
    ConfigMap {
        metadata: parts::metadata(infra, object, infra.name(object)),
        data: Some(data.into_iter().map(|(key, text)| (key.to_owned(), text)).collect()),
        ..ConfigMap::default()
    }
}

/// Its account and rights: it may write its `ConfigMap` of requests, and nothing else.
fn rights(object: &SipCluster) -> (ServiceAccount, Rights, RoleBinding) {
    let infra = Infra::JumpHost;
    let name = infra.name(object);
    let (namespace, _) = object.key();
    let metadata = || parts::metadata(infra, object, name.clone());
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".to_owned()]),
        resource_names: Some(vec![requests::name(object)]),
        verbs: vec!["get".to_owned(), "patch".to_owned()],
        ..PolicyRule::default()
    };
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.clone(),
        namespace: Some(namespace),
        ..Subject::default()
    };
    let api_group = "rbac.authorization.k8s.io".to_owned();
    (
        ServiceAccount { metadata: metadata(), ..ServiceAccount::default() },
        Rights { metadata: metadata(), rules: Some(vec![rule]) },
        RoleBinding {
            metadata: metadata(),
            role_ref: RoleRef { api_group: Some(api_group), kind: "Role".to_owned(), name: name.clone() },
            subjects: Some(vec![subject]),
        },
    )
}

fn pod(object: &SipCluster, backends: &[Backend], given: &Given, images: &Images) -> Option<PodSpec> {
    let wish = object.spec.services.jump_host.first()?;
    // An image of the user's has its own way to start sshd, and its own user.
    let ours = wish.wish.image.is_none();
    let sshd = ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/opt/sip-sshd/sshd_config"];
    let container = Container {
        name: Infra::JumpHost.component().to_owned(),
        image: Some(wish.wish.image.clone().unwrap_or_else(|| images.jump_host.clone())),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: ours.then(|| sshd.map(str::to_owned).to_vec()),
        ports: Some(vec![ContainerPort {
            name: Some("ssh".to_owned()),
            container_port: SSH,
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(probes::of_life(parts::answers(SSH, 15, 10))),
        readiness_probe: Some(probes::of_readiness(parts::answers(SSH, 1, 5))),
        resources: Some(parts::resources("10m", "32Mi")),
        security_context: ours.then(parts::restricted),
        volume_mounts: Some(vec![
            parts::mount("sip", "/sip", true),
            parts::mount("run", RUN, false),
            parts::mount("data", DATA, true),
            parts::mount("scripts", SCRIPTS, true),
            parts::mount("sshd", "/etc/opt/sip-sshd", true),
            parts::mount("ssh", HOME_SSH, true),
        ]),
        ..Container::default()
    };
    let alias = |backend: &Backend| {
        let ip = backend.address(&wish.wish.node_interface_id)?.to_string();
        Some(HostAlias { ip, hostnames: Some(vec![backend.name.clone()]) })
    };
    let security = if ours {
        // Port 22 for who is not root: one of the settings that every cluster admits.
        let low = Sysctl { name: "net.ipv4.ip_unprivileged_port_start".to_owned(), value: "0".to_owned() };
        PodSecurityContext { sysctls: Some(vec![low]), ..parts::nobody(USER) }
    } else {
        PodSecurityContext { fs_group: Some(USER), ..PodSecurityContext::default() }
    };
    let labels: BTreeMap<String, String> = wish.wish.node_labels.clone();
    Some(PodSpec {
        service_account_name: Some(Infra::JumpHost.name(object)),
        init_containers: Some(vec![parts::bring(&images.own)]),
        containers: vec![container],
        host_aliases: Some(backends.iter().filter_map(alias).collect()),
        node_selector: (!labels.is_empty()).then_some(labels),
        security_context: Some(security),
        volumes: Some(volumes(object, wish, &given.node_keys)),
        ..PodSpec::default()
    })
}

/// The volumes. The kubelet updates mounted folders but not single mounted files, so each volume joins several objects in
/// one folder.
fn volumes(object: &SipCluster, wish: &JumpHost, node_keys: &[String]) -> Vec<Volume> {
    let name = Infra::JumpHost.name(object);
    let map = |volume: &str, key: &str, mode: i32| Volume {
        name: volume.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: name.clone(),
            default_mode: Some(mode),
            items: Some(vec![path(key, key)]),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let secret = |secret: &str, items: Vec<KeyToPath>| {
        let source = SecretProjection { name: secret.to_owned(), items: Some(items), ..SecretProjection::default() };
        VolumeProjection { secret: Some(source), ..VolumeProjection::default() }
    };
    let projected = |volume: &str, sources, mode: i32| Volume {
        name: volume.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(sources),
            default_mode: Some(mode),
            ..ProjectedVolumeSource::default()
        }),
        ..Volume::default()
    };
    let own = [HOSTS, HOST_KEY, HOST_KEY_PUBLIC].map(|key| path(key, key)).to_vec();
    let nodes = node_keys.iter().map(|key| path(key, &format!("{NODE_KEYS}/{key}"))).collect();
    let authorized = ConfigMapProjection {
        name: name.clone(),
        items: Some(vec![path(AUTHORIZED, "authorized_keys")]),
        ..ConfigMapProjection::default()
    };
    let ssh = vec![
        secret(&name, vec![path(SSH_CONFIG, "config")]),
        VolumeProjection { config_map: Some(authorized), ..VolumeProjection::default() },
    ];
    vec![
        parts::empty("sip"),
        parts::empty("run"),
        projected("data", vec![secret(&name, own), secret(&wish.node_ssh_private_keys, nodes)], 0o440),
        map("scripts", "host", 0o555),
        map("sshd", SSHD_CONFIG, 0o444),
        projected("ssh", ssh, 0o444),
    ]
}

fn path(key: &str, path: &str) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: path.to_owned(), ..KeyToPath::default() }
}
