//! Who the users of a cluster are: an OIDC provider. Glewlwyd of Debian where no image is named, Dex where one is named that
//! is called so.
//!
//! ```text
//! Secrets ─given─► hashes, authority ─material─► certificate, keys ─┬─ glewlwyd (pure) ─┬─► Objects
//! users, client, upstream ──────────────────────────────────────────┴─ dex      (pure) ─┘
//!                                                                      status ─► what API servers must be told
//! ```
//! Glewlwyd keeps its configuration in a database: an init container makes it out of the package's own schema and what is
//! rendered here. So a pod knows what its Secret says, and another Secret is another pod, beside the old one until it answers.

mod dex;
mod given;
mod glewlwyd;
mod hashes;
mod material;

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_api::net::before_port;
use agent_api::sip::auth::{Auth, AuthStatus};
use agent_api::sip::cluster::SipCluster;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Container, ContainerPort, PodSpec, Secret, SecretVolumeSource, Volume};
use sha2::{Digest as _, Sha256};

pub use given::secrets;
pub use material::Material;

use super::{Given, Images, Infra, Objects, parts};
use crate::cluster::probes;
use crate::operators::kit;

/// Keys of the Secret: its certificate and key, as Secrets of TLS have them, and the keys that sign tokens.
pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";
pub const SIGNING_KEY: &str = "sign.key";
pub const SIGNING_PUBLIC: &str = "sign.pub";
/// Where pods see it.
pub const DATA: &str = "/etc/oidc";
/// Where they write.
pub const RUN: &str = "/run/oidc";
/// Port of the pods.
pub const PORT: i32 = 8443;
/// Who runs them.
const USER: i64 = 65532;
/// What the cluster calls users by.
const USERNAME_CLAIM: &str = "email";
const GROUPS_CLAIM: &str = "groups";
/// Before all names: `system:masters` is no group of a provider's.
const PREFIX: &str = "oidc:";
/// How long a token is good for.
const TOKEN_SECS: i64 = 3600;
/// Annotation of pods: another configuration is another pod.
const CONFIG: &str = "foothold.dev/config";

/// What the cluster has for its provider beside the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthGiven {
    /// Name or address at which it is reached.
    pub host: String,
    /// Hash of each user's password, as its program takes it.
    pub hashes: BTreeMap<String, String>,
    /// Who the provider is at the upstream.
    pub upstream: Option<Bound>,
    /// Its certificate and keys.
    pub material: Material,
}

/// Who the provider is at the upstream, out of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// `clientID`, or `dn`.
    pub name: String,
    /// `clientSecret`, or `password`.
    pub secret: String,
    /// `ca.crt` of a directory.
    pub authority: Option<String>,
}

/// The program that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// That of our image.
    Glewlwyd,
    /// Dex, of the user's image.
    Dex,
}

impl Program {
    /// An image whose name is `dex` has Dex, wherever it comes from.
    pub fn of(auth: &Auth) -> Self {
        let image = auth.wish.image.as_deref().unwrap_or_default();
        let image = image.split('@').next().unwrap_or_default();
        let name = image.rsplit('/').next().unwrap_or_default();
        if name.split(':').next() == Some("dex") { Self::Dex } else { Self::Glewlwyd }
    }

    /// Path of its issuer.
    const fn path(self) -> &'static str {
        match self {
            Self::Glewlwyd => glewlwyd::PATH,
            Self::Dex => "/dex",
        }
    }

    /// How it signs.
    const fn algorithm(self) -> &'static str {
        match self {
            Self::Glewlwyd => "ES256",
            Self::Dex => "RS256",
        }
    }
}

/// Name of the Secret with the authority that is made here.
pub fn authority_name(object: &SipCluster) -> String {
    format!("{}-ca", Infra::Auth.name(object))
}

/// `https://HOST:PORT`, as users and API servers have it.
fn base(auth: &Auth, host: &str) -> String {
    format!("https://{}:{}", before_port(host), auth.node_port)
}

fn issuer(auth: &Auth, host: &str) -> String {
    base(auth, host) + Program::of(auth).path()
}

/// Names of its certificate.
fn names(object: &SipCluster, host: &str) -> Vec<String> {
    let (name, namespace) = (Infra::Auth.name(object), object.metadata.namespace.clone().unwrap_or_default());
    vec![host.to_owned(), format!("{name}.{namespace}.svc")]
}

/// What API servers must be told.
pub fn status(object: &SipCluster, given: &Given) -> Option<AuthStatus> {
    let (auth, given) = (object.spec.services.auth.first()?, given.auth.as_ref()?);
    Some(AuthStatus {
        issuer: issuer(auth, &given.host),
        client_id: auth.client().to_owned(),
        username_claim: USERNAME_CLAIM.to_owned(),
        groups_claim: GROUPS_CLAIM.to_owned(),
        prefix: PREFIX.to_owned(),
        signing_algorithm: Program::of(auth).algorithm().to_owned(),
        ca: given.material.authority.clone(),
    })
}

/// All that is wrong with it, but for what is in Secrets.
pub fn wrong(auth: &Auth) -> Vec<String> {
    const AT: &str = "spec.services.auth[0]";
    let mut all = Vec::new();
    if let Some(host) = auth.host.as_deref().filter(|host| !is_host(host)) {
        all.push(format!("{AT}.host is `{host}`, expected a name or an address, without a port"));
    }
    if auth.users.is_empty() && auth.upstream.is_none() {
        all.push(format!("{AT}.users is empty, and there is no `upstream`: nobody could come in; hint: name users"));
    }
    if !auth.users.is_empty() && auth.password_hashes.is_none() {
        all.push(format!(
            "{AT}.passwordHashes is missing: there is no password by default; hint: name a Secret that has the hash of each \
             user's password under his name"
        ));
    }
    for (number, user) in auth.users.iter().enumerate() {
        let others = &auth.users[..number];
        if others.iter().any(|other| other.name == user.name) {
            all.push(format!("{AT}.users[{number}].name is `{}`, which another user is called, too", user.name));
        }
        if others.iter().any(|other| other.email.eq_ignore_ascii_case(&user.email)) {
            all.push(format!("{AT}.users[{number}].email is `{}`, which another user has, too", user.email));
        }
    }
    let upstream = auth.upstream.as_ref().map(|upstream| (Program::of(auth), &upstream.oidc, &upstream.ldap));
    match upstream {
        None | Some((Program::Glewlwyd, None, Some(_)) | (Program::Dex, Some(_), None)) => {}
        Some((_, None, None) | (_, Some(_), Some(_))) => {
            all.push(format!("{AT}.upstream has not one of `oidc` and `ldap`"));
        }
        Some((Program::Glewlwyd, Some(_), None)) => all.push(format!(
            "{AT}.upstream.oidc is for Dex, and the provider of this image leads to no other one; hint: carry Dex's image and \
             name it in `image`, or ask a directory by `ldap`"
        )),
        Some((Program::Dex, None, Some(_))) => all.push(format!(
            "{AT}.upstream.ldap is for the box's own provider, and nobody writes Dex's configuration of a directory; hint: leave \
             `image` out"
        )),
    }
    all
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty() && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    text.parse::<IpAddr>().is_ok() || text.split('.').all(label)
}

/// All objects of the provider.
pub fn objects(object: &SipCluster, given: &Given, images: &Images) -> Option<Objects> {
    let (auth, own) = (object.spec.services.auth.first()?, given.auth.as_ref()?);
    let infra = Infra::Auth;
    let Material { certificate, key, signing_key, signing_public, .. } = &own.material;
    let mut texts = BTreeMap::from([(CERTIFICATE, certificate.clone()), (KEY, key.clone())]);
    texts.insert(SIGNING_KEY, signing_key.clone());
    texts.insert(SIGNING_PUBLIC, signing_public.clone());
    let mut pod = match Program::of(auth) {
        Program::Glewlwyd => {
            texts.extend(glewlwyd::texts(auth, own));
            glewlwyd::pod(auth, auth.wish.image.as_deref().unwrap_or(&images.oidc))
        }
        Program::Dex => {
            texts.extend(dex::texts(auth, own));
            dex::pod(auth.wish.image.as_deref().unwrap_or_default())
        }
    };
    place(&mut pod, object, auth);
    let digest = texts.iter().fold(Sha256::new(), |digest, (key, text)| digest.chain_update(key).chain_update(text));
    let mut deployment = parts::deployment(infra, object, pod);
    if let Some(metadata) = &mut deployment.spec.template.metadata {
        metadata.annotations = Some([(CONFIG.to_owned(), hex::encode(digest.finalize()))].into());
    }
    let mut secret = parts::secret(infra, object, []);
    secret.data = Some(texts.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect());
    Some(Objects {
        secret,
        authority: own.material.own_authority(object),
        config_maps: vec![config_map(object, given)],
        service: parts::service(infra, object, &auth.wish, [("https".to_owned(), PORT, auth.node_port)]),
        deployment,
        ..Objects::default()
    })
}

/// A container as both programs have it.
fn container(name: &str, image: &str, command: Vec<String>) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(command),
        resources: Some(parts::resources("20m", "64Mi")),
        security_context: Some(parts::restricted()),
        volume_mounts: Some(vec![parts::mount("data", DATA, true), parts::mount("run", RUN, false)]),
        ..Container::default()
    }
}

/// The container that answers.
fn answering(name: &str, image: &str, command: Vec<String>) -> Container {
    let port = ContainerPort { name: Some("https".to_owned()), container_port: PORT, ..ContainerPort::default() };
    Container {
        ports: Some(vec![port]),
        readiness_probe: Some(probes::of_readiness(parts::answers(PORT, 1, 5))),
        liveness_probe: Some(probes::of_life(parts::answers(PORT, 30, 20))),
        ..container(name, image, command)
    }
}

/// What the pods of both programs have in common.
fn place(pod: &mut PodSpec, object: &SipCluster, auth: &Auth) {
    let secret = SecretVolumeSource {
        secret_name: Some(Infra::Auth.name(object)),
        default_mode: Some(0o440),
        ..SecretVolumeSource::default()
    };
    let data = Volume { name: "data".to_owned(), secret: Some(secret), ..Volume::default() };
    let mut run = parts::empty("run");
    // Keys and hashes are in it.
    if let Some(medium) = &mut run.empty_dir {
        medium.medium = Some("Memory".to_owned());
    }
    pod.volumes = Some(vec![data, run]);
    pod.automount_service_account_token = Some(false);
    pod.security_context = Some(parts::nobody(USER));
    if !auth.wish.node_labels.is_empty() {
        pod.node_selector = Some(auth.wish.node_labels.clone());
    }
}

/// What others must be told, for who forms clusters otherwise.
fn config_map(object: &SipCluster, given: &Given) -> ConfigMap {
    let status = status(object, given).unwrap_or_default();
    let data = [
        ("issuer", status.issuer),
        ("client-id", status.client_id),
        ("username-claim", status.username_claim),
        ("groups-claim", status.groups_claim),
        ("prefix", status.prefix),
        ("signing-algorithm", status.signing_algorithm),
        ("ca.crt", status.ca),
    ];
    ConfigMap {
        metadata: parts::metadata(Infra::Auth, object, Infra::Auth.name(object)),
        data: Some(data.map(|(key, text)| (key.to_owned(), text)).into()),
        ..ConfigMap::default()
    }
}

/// A text of a Secret that says something.
pub(super) fn text_of(secret: &Secret, key: &str) -> Option<String> {
    kit::text_of(secret, key).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
