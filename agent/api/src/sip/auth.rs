//! `spec.services.auth`: an OIDC provider for the users of a cluster.
//!
//! ```text
//! users, hashes of their passwords ─► provider ─► tokens ─► API servers, which trust `status.auth`
//! ```
//! `image`, `nodeInterfaceId`, `nodePort` and `caSecret` are those of Airship's operator; the rest is what it left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::ServiceWish;

/// The client that `kubectl` is, where no other one is asked for.
pub const CLIENT: &str = "kubernetes";
/// Where `kubectl oidc-login` waits for the browser.
pub const REDIRECTS: [&str; 2] = ["http://localhost:8000", "http://localhost:18000"];

/// An OIDC provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// What all services have. An image whose name ends in `dex` is Dex. It reaches no host: `nodeInterfaceId` means nothing.
    #[serde(flatten)]
    pub wish: ServiceWish,
    /// Port of all nodes at which it answers.
    #[schemars(range(min = 30000, max = 32767))]
    pub node_port: i32,
    /// Name or address at which API servers and users reach that port: part of the issuer. The box's address on the servers'
    /// network when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// Secret of this namespace with an authority (`tls.crt`, `tls.key`) that signs its certificate; one of its own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_secret: Option<String>,
    /// Name of the client that `kubectl` is; `kubernetes` when absent. It has no secret.
    #[serde(rename = "clientID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub client_id: Option<String>,
    /// Where a login may lead back to; those of `kubectl oidc-login` when there are none.
    #[serde(rename = "redirectURIs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 512), regex(pattern = "^[a-z][a-z0-9+.-]*:[!-~]+$")))]
    pub redirect_uris: Vec<String>,
    /// Its users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub users: Vec<AuthUser>,
    /// Secret of this namespace: key is the name of a user, value the hash of his password. There is no password by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub password_hashes: Option<String>,
    /// Who else knows users, beside those here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
}

impl Auth {
    /// Name of the client.
    pub fn client(&self) -> &str {
        self.client_id.as_deref().unwrap_or(CLIENT)
    }

    /// Where a login may lead back to.
    pub fn redirects(&self) -> Vec<&str> {
        if self.redirect_uris.is_empty() {
            return REDIRECTS.to_vec();
        }
        self.redirect_uris.iter().map(String::as_str).collect()
    }
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthUser {
    /// His name: of the login, and in the Secret.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$"))]
    pub name: String,
    /// His address: what the cluster calls him, behind `oidc:`.
    #[schemars(
        length(min = 3, max = 254),
        regex(pattern = "^[A-Za-z0-9.!#$%&*+/=?^_{|}~-]+@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")
    )]
    pub email: String,
    /// His groups: the cluster puts `oidc:` before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/-]*$")))]
    pub groups: Vec<String>,
}

/// Who else knows users: one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Upstream {
    /// A provider of `OpenID` Connect, to which Dex leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcUpstream>,
    /// A directory, which the box's own provider asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ldap: Option<LdapUpstream>,
}

impl Upstream {
    /// The Secret with what it is asked by, and where the spec names it.
    pub fn secret(&self) -> Option<(&'static str, &str)> {
        let oidc = self.oidc.as_ref().map(|oidc| ("oidc.clientSecret", &*oidc.client_secret));
        oidc.or_else(|| self.ldap.as_ref().map(|ldap| ("ldap.bindSecret", &*ldap.bind_secret)))
    }
}

/// A directory. Its users are those that have an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LdapUpstream {
    /// Where it is: `ldaps://HOST` or `ldaps://HOST:PORT`.
    #[schemars(length(min = 9, max = 512), regex(pattern = "^ldaps://[A-Za-z0-9.:\\[\\]-]+$"))]
    pub url: String,
    /// Secret of this namespace with `dn` and `password` of who may search there, and `ca.crt`, the authority of its certificate.
    #[schemars(length(min = 1, max = 253))]
    pub bind_secret: String,
    /// Entry below which users are.
    #[schemars(length(min = 1, max = 512))]
    pub base: String,
    /// Which entries there are users; `(objectClass=inetOrgPerson)` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 1024), regex(pattern = "^\\(.+\\)$"))]
    pub filter: Option<String>,
    /// Attribute with the name of the login; `uid` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z][A-Za-z0-9-]*$"))]
    pub name_attribute: Option<String>,
    /// Attribute with the address; `mail` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z][A-Za-z0-9-]*$"))]
    pub email_attribute: Option<String>,
    /// Attribute whose values are groups; `memberOf` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z][A-Za-z0-9-]*$"))]
    pub group_attribute: Option<String>,
}

/// A provider of `OpenID` Connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcUpstream {
    /// What the login page calls it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its issuer.
    #[schemars(length(min = 9, max = 512), regex(pattern = "^https://[!-~]+$"))]
    pub issuer: String,
    /// Secret of this namespace with `clientID` and `clientSecret` of the client that Dex is there.
    #[schemars(length(min = 1, max = 253))]
    pub client_secret: String,
    /// Whether it tells groups, by the scope `groups`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub groups: bool,
}

/// What an API server must be told to trust the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthStatus {
    /// `--oidc-issuer-url`.
    pub issuer: String,
    /// `--oidc-client-id`.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// `--oidc-username-claim`.
    pub username_claim: String,
    /// `--oidc-groups-claim`.
    pub groups_claim: String,
    /// `--oidc-username-prefix` and `--oidc-groups-prefix`: nobody here is a user or a group of Kubernetes' own.
    pub prefix: String,
    /// `--oidc-signing-algs`.
    pub signing_algorithm: String,
    /// Certificates of the authority, PEM: the file of `--oidc-ca-file`.
    pub ca: String,
}

impl AuthStatus {
    /// Flags of an API server that finds the authority's certificates at a path: name and value.
    pub fn flags(&self, ca_file: &str) -> [(&'static str, String); 8] {
        [
            ("oidc-issuer-url", self.issuer.clone()),
            ("oidc-client-id", self.client_id.clone()),
            ("oidc-username-claim", self.username_claim.clone()),
            ("oidc-username-prefix", self.prefix.clone()),
            ("oidc-groups-claim", self.groups_claim.clone()),
            ("oidc-groups-prefix", self.prefix.clone()),
            ("oidc-signing-algs", self.signing_algorithm.clone()),
            ("oidc-ca-file", ca_file.to_owned()),
        ]
    }
}
