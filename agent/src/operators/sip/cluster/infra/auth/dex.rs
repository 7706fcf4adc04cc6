//! Dex, out of an image of the user's: its configuration. Pure.
//!
//! Sources: Dex's `cmd/dex/config.go`, `examples/config-dev.yaml`, and `connector/oidc/oidc.go`.

use agent_api::sip::auth::{Auth, AuthUser, OidcUpstream};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use serde_json::{Value, json};

use super::{AuthGiven, Bound, CERTIFICATE, DATA, KEY, PORT, RUN, TOKEN_SECS, answering, issuer};

/// Key of the Secret.
const CONFIG: &str = "config.yaml";
/// How long a token may be renewed without a password.
const RENEWAL_SECS: i64 = 86_400;
/// Where Dex's images have it.
const PROGRAM: &str = "/usr/local/bin/dex";

/// What the pod reads beside its certificate.
pub fn texts(auth: &Auth, given: &AuthGiven) -> [(&'static str, String); 1] {
    // JSON is YAML.
    [(CONFIG, format!("{:#}\n", config(auth, given)))]
}

fn config(auth: &Auth, given: &AuthGiven) -> Value {
    let issuer = issuer(auth, &given.host);
    // The same user is the same subject, whatever becomes of the pod.
    let password = |user: &AuthUser| {
        json!({"email": user.email, "hash": given.hashes.get(&user.name), "username": user.name, "userID": user.name,
            "groups": user.groups})
    };
    let connector = |(upstream, bound): (&OidcUpstream, &Bound)| {
        let OidcUpstream { name, issuer: theirs, groups, .. } = upstream;
        let scopes: Vec<&str> = ["profile", "email"].into_iter().chain(groups.then_some("groups")).collect();
        json!({"type": "oidc", "id": "upstream", "name": name, "config": {
            "issuer": theirs, "clientID": bound.name, "clientSecret": bound.secret,
            "redirectURI": format!("{issuer}/callback"), "scopes": scopes, "insecureEnableGroups": groups}})
    };
    let upstream = auth.upstream.as_ref().and_then(|upstream| upstream.oidc.as_ref());
    let connectors: Vec<Value> = upstream.into_iter().zip(&given.upstream).map(connector).collect();
    json!({
        "issuer": issuer,
        "storage": {"type": "sqlite3", "config": {"file": format!("{RUN}/dex.db")}},
        "web": {
            "https": format!("0.0.0.0:{PORT}"),
            "tlsCert": format!("{DATA}/{CERTIFICATE}"),
            "tlsKey": format!("{DATA}/{KEY}"),
        },
        "oauth2": {"responseTypes": ["code"], "skipApprovalScreen": true},
        "expiry": {
            "idTokens": format!("{TOKEN_SECS}s"),
            "refreshTokens": {"absoluteLifetime": format!("{RENEWAL_SECS}s")},
        },
        "staticClients": [
            {"id": auth.client(), "name": auth.client(), "public": true, "redirectURIs": auth.redirects()},
        ],
        "enablePasswordDB": !auth.users.is_empty(),
        "staticPasswords": auth.users.iter().map(password).collect::<Vec<_>>(),
        "connectors": connectors,
    })
}

pub fn pod(image: &str) -> PodSpec {
    // A secret may have a `$`, which Dex would take for a variable.
    let plain = EnvVar { name: "DEX_EXPAND_ENV".to_owned(), value: Some("false".to_owned()), ..EnvVar::default() };
    let command = vec![PROGRAM.to_owned(), "serve".to_owned(), format!("{DATA}/{CONFIG}")];
    let container = Container { env: Some(vec![plain]), ..answering("dex", image, command) };
    PodSpec { containers: vec![container], ..PodSpec::default() }
}
