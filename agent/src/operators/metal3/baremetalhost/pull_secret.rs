//! The login for the registry of an `oci://` image, out of a Secret as kubectl, docker and podman make it, in the form
//! that Ironic takes.
//!
//! ```text
//! .dockerconfigjson  { "auths": { PLACE: { auth | username, password } } } ─┐
//! .dockercfg         { PLACE: ... }                                         ┼─► the most exact PLACE ─► user:password
//! oci://REGISTRY/REPOSITORY ────────────────────────────────────────────────┘
//! PLACE  registry.example, registry.example:5000/team, *.registry.example, https://index.docker.io/v1/
//! ```
//! Ironic cuts what it is given at the first colon, as metal3 has it; without a colon it is a token, which has no user.
//! Older ones, Debian's 29 among them, take the whole for such a token.

use agent_api::image;
use agent_api::metal3::Image;
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};

/// What Docker Hub is called in image names, in logins, and by its servers.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
/// Keys of a Secret of the types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`.
const KEYS: [&str; 2] = [".dockerconfigjson", ".dockercfg"];
/// How such a Secret is made.
const HINT: &str = "hint: `kubectl create secret docker-registry NAME --docker-server=REGISTRY ...` makes one";
/// Base64 with or without its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `user:password`, or a token alone.
///
/// # Errors
/// What is wrong with the Secret, in words that follow its name.
pub fn login(secret: &Secret, url: &str) -> Result<String, String> {
    let data = secret.data.as_ref();
    let found = KEYS.iter().find_map(|key| Some((*key, data?.get(*key)?)));
    let Some((key, bytes)) = found else {
        return Err(format!("has neither the key `{}` nor `{}`; {HINT}", KEYS[0], KEYS[1]));
    };
    let config: Value =
        serde_json::from_slice(&bytes.0).map_err(|error| format!("has no JSON under `{key}`: {error}"))?;
    let logins = match (config.get("auths"), key == KEYS[1]) {
        (Some(Value::Object(auths)), _) => auths,
        (None, true) => config.as_object().ok_or_else(|| format!("has no JSON object under `{key}`"))?,
        (Some(_), _) | (None, false) => {
            let helper = ["credsStore", "credHelpers"].iter().find(|name| config.get(**name).is_some());
            return Err(helper.map_or_else(
                || format!("has no `auths` under `{key}`; {HINT}"),
                |helper| format!("leaves its logins to a program (`{helper}`), which is not here; {HINT}"),
            ));
        }
    };
    let image = Place::of(url);
    let best = logins.iter().filter_map(|(place, entry)| Some((Place::of(place).fits(&image)?, place, entry)));
    let Some((_, place, entry)) = best.max_by_key(|(exactness, ..)| *exactness) else {
        let names: Vec<String> = logins.keys().map(|name| format!("`{name}`")).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("has no login for the registry `{}`, but for {has}", image.host));
    };
    of_entry(entry).map_err(|why| format!("has a login for `{place}` that cannot be used: {why}"))
}

/// What may be behind a failure that a registry's refusal led to.
pub fn hint(image: Option<&Image>, why: &str) -> &'static str {
    let secret = image.is_some_and(|image| image.oci_auth_secret_name.as_ref().is_some_and(|name| !name.is_empty()));
    let refused = ["401", "403", "nauthorized", "uthentication", "orbidden"].iter().any(|word| why.contains(word));
    if secret && refused {
        "; hint: Ironic 29 sends what it is given as a password without a user, which few registries take: an image that \
         needs no login (`content.osImages` of the box, for one) is had by any"
    } else {
        ""
    }
}

fn of_entry(entry: &Value) -> Result<String, String> {
    let empty = Map::new();
    let entry = entry.as_object().unwrap_or(&empty);
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let (user, password) = if let Some(auth) = text("auth") {
        let plain = BASE64.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let plain = plain.as_deref().map(|plain| plain.trim_end_matches(['\0', '\n', '\r']));
        let both = plain.and_then(|plain| plain.split_once(':'));
        let (user, password) = both.ok_or("its `auth` is not the base64 of `user:password`")?;
        (user.to_owned(), password.to_owned())
    } else {
        let [user, password] = ["username", "password"].map(|name| text(name).unwrap_or_default().to_owned());
        (user, password)
    };
    match (user.as_str(), password.as_str()) {
        (_, "") if text("identitytoken").is_some() => {
            Err("it is an identity token, which Ironic cannot exchange; a user with a password is needed".to_owned())
        }
        (_, "") => Err("it has neither `auth` nor `username` and `password`".to_owned()),
        ("" | "<token>", token) => Ok(token.to_owned()),
        (user, password) => Ok(format!("{user}:{password}")),
    }
}

/// A registry, and a part of its repositories.
struct Place {
    host: String,
    path: Vec<String>,
}

impl Place {
    /// Of a URL, or of a name as logins have it.
    fn of(text: &str) -> Self {
        let text = text.trim();
        let bare = text.split_once("://").map_or(text, |(_, bare)| bare);
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix(":443").unwrap_or(&host);
        let host = if DOCKER_HUB.contains(&host) { DOCKER_HUB[0] } else { host };
        let path = path.trim_matches('/');
        // The version of the registry's API.
        let path = if ["v1", "v2"].contains(&path) { "" } else { path };
        // Without tag and digest.
        let path = path.split('@').next().unwrap_or_default();
        let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
        let parts = above.split('/').chain(last.split(':').next());
        Self { host: host.to_owned(), path: parts.filter(|part| !part.is_empty()).map(str::to_owned).collect() }
    }

    /// How exactly this place names an image: by the length of its path, then by its host.
    fn fits(&self, image: &Self) -> Option<(usize, bool)> {
        let exact = self.host == image.host;
        let wild = || {
            let (ours, theirs) = (self.host.split('.'), image.host.split('.'));
            ours.clone().count() == theirs.clone().count()
                && ours.zip(theirs).all(|(ours, theirs)| image::matches(ours, theirs))
        };
        let within = image.path.len() >= self.path.len() && image.path[..self.path.len()] == self.path[..];
        (within && (exact || wild())).then_some((self.path.len(), exact))
    }
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::Image;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::{hint, login};

    fn secret(key: &str, bytes: &[u8]) -> Secret {
        Secret { data: Some([(key.to_owned(), ByteString(bytes.to_vec()))].into()), ..Secret::default() }
    }

    fn json(config: &Value) -> Secret {
        secret(".dockerconfigjson", config.to_string().as_bytes())
    }

    const AUTH: &str = "dTpw";

    #[rstest]
    #[case::kubectls_docker_hub("https://index.docker.io/v1/", "oci://docker.io/library/os:1")]
    #[case::podmans_docker_hub("docker.io", "oci://registry-1.docker.io/library/os:1")]
    #[case::version_two("https://index.docker.io/v2", "oci://index.docker.io/library/os:1")]
    #[case::a_host("quay.io", "oci://quay.io/org/os:1")]
    #[case::a_url("https://quay.io", "oci://quay.io/org/os:1")]
    #[case::a_port("registry.site:5000", "oci://registry.site:5000/os:1")]
    #[case::the_usual_port("registry.site:443", "oci://registry.site/os:1")]
    #[case::capitals("Quay.IO", "OCI://quay.io/org/os:1")]
    #[case::a_part("quay.io/org", "oci://quay.io/org/os@sha256:00")]
    #[case::one_repository("quay.io/org/os", "oci://quay.io/org/os:1")]
    #[case::any_of_a_domain("*.azurecr.io", "oci://team.azurecr.io/os:1")]
    #[case::some_of_a_domain("reg*.site", "oci://registry.site/os:1")]
    fn a_login_is_found_by_its_place(#[case] place: &str, #[case] url: &str) {
        let whole =
            json!({"auths": {"other.site": {"auth": "eDp5"}, place: {"username": "u", "password": "p", "auth": AUTH}}});
        assert_eq!(login(&json(&whole), url).as_deref(), Ok("u:p"));
        let legacy = json!({place: {"auth": AUTH}});
        assert_eq!(login(&secret(".dockercfg", legacy.to_string().as_bytes()), url).as_deref(), Ok("u:p"));
    }

    #[rstest]
    #[case::auth(json!({"auth": AUTH}), "u:p")]
    #[case::auth_without_its_end(json!({"auth": "dXNlcjpwdw"}), "user:pw")]
    #[case::colons(json!({"auth": "dTpwOnE="}), "u:p:q")]
    #[case::both_fields(json!({"username": "u", "password": "p"}), "u:p")]
    #[case::a_token_without_a_user(json!({"username": "", "password": "t"}), "t")]
    #[case::a_token_as_docker_writes_it(json!({"username": "<token>", "password": "t"}), "t")]
    #[case::auth_without_a_user(json!({"auth": "OnQ="}), "t")]
    fn a_login_is_told_as_ironic_cuts_it(#[case] entry: Value, #[case] expected: &str) {
        assert_eq!(login(&json(&json!({"auths": {"a.test": entry}})), "oci://a.test/os:1").as_deref(), Ok(expected));
    }

    #[test]
    fn the_most_exact_place_is_taken() {
        let auth = |user: &str| json!({"username": user, "password": "p"});
        let config = json!({"auths": {"*.test": auth("wild"), "a.test": auth("host"), "a.test/org": auth("part"),
            "a.test/organ": auth("other")}});
        let user = |url: &str| login(&json(&config), url).expect("a login").split(':').next().map(str::to_owned);
        assert_eq!(user("oci://a.test/org/os:1").as_deref(), Some("part"));
        assert_eq!(user("oci://a.test/organs/os:1").as_deref(), Some("host"));
        assert_eq!(user("oci://b.test/org/os:1").as_deref(), Some("wild"));
    }

    #[test]
    fn a_registry_that_refuses_is_told_of_where_there_is_a_login() {
        let image = |secret: Option<&str>| Image {
            url: "oci://a.test/os:1".into(),
            oci_auth_secret_name: secret.map(str::to_owned),
            ..Image::default()
        };
        assert!(hint(Some(&image(Some("s"))), "401 Client Error: Unauthorized for url").contains("hint: Ironic 29"));
        assert_eq!(hint(Some(&image(Some("s"))), "no such disk"), "");
        assert_eq!(hint(Some(&image(None)), "401 Client Error: Unauthorized for url"), "");
        assert_eq!(hint(None, "401"), "");
    }

    #[rstest]
    #[case::no_key(secret("config.json", b"{}"), "has neither the key `.dockerconfigjson` nor `.dockercfg`")]
    #[case::no_json(secret(".dockerconfigjson", b"\x1f\x8b"), "has no JSON under `.dockerconfigjson`: ")]
    #[case::no_auths(json(&json!({})), "has no `auths` under `.dockerconfigjson`")]
    #[case::a_helper(json(&json!({"credsStore": "osxkeychain"})), "leaves its logins to a program (`credsStore`)")]
    #[case::another_registry(
        json(&json!({"auths": {"b.test": {"auth": AUTH}}})), "has no login for the registry `a.test`, but for `b.test`"
    )]
    #[case::none(json(&json!({"auths": {}})), "has no login for the registry `a.test`, but for none")]
    #[case::no_base64(
        json(&json!({"auths": {"a.test": {"auth": "u:p"}}})),
        "has a login for `a.test` that cannot be used: its `auth` is not the base64 of `user:password`"
    )]
    #[case::an_identity(
        json(&json!({"auths": {"a.test": {"identitytoken": "t"}}})),
        "has a login for `a.test` that cannot be used: it is an identity token"
    )]
    #[case::nothing(
        json(&json!({"auths": {"a.test": {}}})),
        "has a login for `a.test` that cannot be used: it has neither `auth` nor `username` and `password`"
    )]
    fn what_is_wrong_is_said(#[case] secret: Secret, #[case] expected: &str) {
        let said = login(&secret, "oci://a.test/os:1").expect_err("no login");
        assert!(said.starts_with(expected), "{said}");
    }
}
