use std::collections::BTreeMap;

use agent_api::sip::auth::{Auth, AuthUser, LdapUpstream, OidcUpstream, Upstream};
use agent_api::sip::cluster::{SipCluster, SipClusterSpec};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rstest::rstest;
use serde_json::{Value, json};

use super::material::Authority;
use super::{AuthGiven, Bound, CERTIFICATE, KEY, Material, Program, SIGNING_KEY, SIGNING_PUBLIC, status, wrong};
use crate::operators::sip::cluster::infra::{self, Given, Images, Infra, Objects};

const DAY: u64 = 86_400;

fn auth() -> Auth {
    let user = |name: &str, groups: &[&str]| AuthUser {
        name: name.to_owned(),
        email: format!("{name}@example.org"),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    };
    let users = vec![user("alice", &["operators", "readers"]), user("o'brien", &[])];
    Auth { node_port: 30005, users, password_hashes: Some("hashes".to_owned()), ..Auth::default() }
}

fn dex() -> Auth {
    let mut auth = auth();
    auth.wish.image = Some("mirror.example/dexidp/dex:v2.45.1@sha256:ab".to_owned());
    let oidc = OidcUpstream {
        name: "Our company".to_owned(),
        issuer: "https://login.example.org".to_owned(),
        client_secret: "upstream".to_owned(),
        groups: true,
    };
    auth.upstream = Some(Upstream { oidc: Some(oidc), ldap: None });
    auth
}

fn directory() -> Auth {
    let ldap = LdapUpstream {
        url: "ldaps://ldap.example.org".to_owned(),
        bind_secret: "upstream".to_owned(),
        base: "ou=people,dc=example,dc=org".to_owned(),
        filter: Some("(&(objectClass=person)(!(disabled=yes)))".to_owned()),
        ..LdapUpstream::default()
    };
    Auth { upstream: Some(Upstream { oidc: None, ldap: Some(ldap) }), ..auth() }
}

fn object(auth: Auth) -> SipCluster {
    let mut object = SipCluster::new("one", SipClusterSpec::default());
    object.metadata.namespace = Some("tenants".to_owned());
    object.metadata.uid = Some("0a1b2c3d".to_owned());
    object.spec.services.auth.push(auth);
    object
}

fn given(hash: &str) -> Given {
    let text = |what: &str| format!("-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n");
    let material = Material {
        authority: text("AUTHORITY"),
        authority_key: Some(text("AUTHORITY KEY")),
        certificate: text("CERTIFICATE"),
        key: text("KEY"),
        signing_key: text("SIGNING KEY"),
        signing_public: text("PUBLIC KEY"),
    };
    let hashes = ["alice", "o'brien"].map(|name| (name.to_owned(), hash.to_owned())).into();
    let authority = Some(text("DIRECTORY"));
    let upstream = Some(Bound { name: "box".to_owned(), secret: "a$ecret".to_owned(), authority });
    Given { auth: Some(AuthGiven { host: "172.22.0.1".to_owned(), hashes, upstream, material }), ..Given::default() }
}

fn made(auth: Auth) -> Objects {
    let images = Images { oidc: "foothold.dev/oidc:1".to_owned(), ..Images::default() };
    let plan = infra::plan(Infra::Auth, &object(auth), &[], &given("HASH"), &images);
    plan.expect("a plan").expect("asked for")
}

fn texts(objects: &Objects) -> BTreeMap<String, String> {
    let data = objects.secret.data.clone().unwrap_or_default();
    data.into_iter().map(|(key, bytes)| (key, String::from_utf8(bytes.0).expect("text"))).collect()
}

#[test]
fn glewlwyd_is_told_its_users_and_loses_its_administrator() {
    let texts = texts(&made(auth()));
    insta::assert_snapshot!("settings", texts["glewlwyd.conf"]);
    insta::assert_snapshot!("seed", texts["seed.sql"]);
    assert!(texts["seed.sql"].contains("DELETE FROM g_user;") && !texts["seed.sql"].contains("g_admin"));
}

#[test]
fn dex_is_told_the_same_and_where_else_users_are() {
    let objects = made(dex());
    insta::assert_snapshot!("dex", texts(&objects)["config.yaml"]);
    let pod = json!(objects.deployment.spec.template.spec);
    assert_eq!(pod["containers"][0]["image"], "mirror.example/dexidp/dex:v2.45.1@sha256:ab");
    assert_eq!(pod["containers"][0]["env"], json!([{"name": "DEX_EXPAND_ENV", "value": "false"}]));
    assert_eq!(pod["initContainers"], Value::Null);
}

#[test]
fn a_directory_is_asked_after_the_users_that_are_named() {
    let objects = made(directory());
    let texts = texts(&objects);
    let lines: Vec<&str> = texts["seed.sql"].lines().filter(|line| line.contains("'ldap'")).collect();
    insta::assert_snapshot!("directory", lines.join("\n"));
    assert!(texts["directory.crt"].contains("BEGIN DIRECTORY"));
    let pod = json!(objects.deployment.spec.template.spec);
    let env = json!([{"name": "LDAPTLS_CACERT", "value": "/etc/oidc/directory.crt"}]);
    assert_eq!(pod["containers"][0]["env"], env);
    let without = made(auth());
    assert_eq!(json!(without.deployment.spec.template.spec)["containers"][0]["env"], Value::Null);
    assert!(wrong(&directory()).is_empty() && wrong(&dex()).is_empty());
}

#[test]
fn an_image_that_is_called_dex_is_dex() {
    for (image, program) in [
        (None, Program::Glewlwyd),
        (Some("ghcr.io/dexidp/dex"), Program::Dex),
        (Some("box:5000/dex:v2.28.1"), Program::Dex),
        (Some("box:5000/dexter:1"), Program::Glewlwyd),
        (Some("dex/oidc:1"), Program::Glewlwyd),
    ] {
        let mut auth = auth();
        auth.wish.image = image.map(str::to_owned);
        assert_eq!(Program::of(&auth), program, "{image:?}");
    }
}

#[test]
fn the_pod_is_another_one_when_what_it_reads_is() {
    let digest = |auth: Auth| {
        let template = made(auth).deployment.spec.template;
        template.metadata.and_then(|it| it.annotations).expect("annotations")["foothold.dev/config"].clone()
    };
    let mut other = auth();
    other.users[0].groups.pop();
    assert_eq!(digest(auth()), digest(auth()));
    assert_ne!(digest(auth()), digest(other));
    let pod = json!(made(auth()).deployment.spec.template.spec);
    assert_eq!(pod["volumes"][1]["emptyDir"]["medium"], "Memory");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["initContainers"][0]["command"][0], "/usr/bin/sqlite3");
}

#[test]
fn api_servers_are_told_in_the_status_and_others_in_a_config_map() {
    let objects = made(auth());
    let told = status(&object(auth()), &given("HASH")).expect("a status");
    assert_eq!((&*told.issuer, &*told.signing_algorithm), ("https://172.22.0.1:30005/api/oidc", "ES256"));
    let map = objects.config_maps[0].data.clone().expect("data");
    assert_eq!((&map["issuer"], &map["ca.crt"]), (&told.issuer, &told.ca));
    let told = status(&object(dex()), &given("HASH")).expect("a status");
    assert_eq!((&*told.issuer, &*told.signing_algorithm), ("https://172.22.0.1:30005/dex", "RS256"));
    // The authority's key is in a Secret of its own, which no pod reads.
    let authority = objects.authority.expect("a Secret");
    assert_eq!(authority.metadata.name.as_deref(), Some("auth-one-ca"));
    assert!(!json!(objects.deployment).to_string().contains("auth-one-ca"));
    let service = json!(objects.service.spec);
    assert_eq!(service["ports"][0]["nodePort"], 30005);
}

#[rstest]
#[case(json!({"nodePort": 30005, "image": "quay.io/dexidp/dex:v2.28.1", "nodeInterfaceId": "oam-ipv4"}), "users is empty")]
#[case(json!({"nodePort": 30005, "users": [{"name": "a", "email": "a@b"}]}), "passwordHashes is missing: there is no password by default")]
#[case(
    json!({"nodePort": 30005, "passwordHashes": "h", "users": [{"name": "a", "email": "a@b"}, {"name": "b", "email": "A@b"}]}),
    "users[1].email is `A@b`, which another user has, too"
)]
#[case(json!({"nodePort": 30005, "host": "a:1", "passwordHashes": "h", "users": [{"name": "a", "email": "a@b"}]}), "host is `a:1`")]
#[case(
    json!({"nodePort": 30005, "upstream": {"oidc": {"name": "o", "issuer": "https://o", "clientSecret": "s"}}}),
    "upstream.oidc is for Dex"
)]
#[case(
    json!({"nodePort": 30005, "image": "dex", "upstream": {"ldap": {"url": "ldaps://a", "bindSecret": "s", "base": "dc=a"}}}),
    "upstream.ldap is for the box's own provider"
)]
#[case(json!({"nodePort": 30005, "upstream": {}}), "upstream has not one of `oidc` and `ldap`")]
fn what_is_wrong_is_said(#[case] auth: Value, #[case] words: &str) {
    let wrong = wrong(&serde_json::from_value(auth).expect("read"));
    assert!(
        wrong.len() == 1 && wrong[0].starts_with("spec.services.auth[0].") && wrong[0].contains(words),
        "{wrong:?}"
    );
}

fn kept(material: &Material) -> Secret {
    let data = [
        (CERTIFICATE, &material.certificate),
        (KEY, &material.key),
        (SIGNING_KEY, &material.signing_key),
        (SIGNING_PUBLIC, &material.signing_public),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
    Secret { data: Some(data.into()), ..Secret::default() }
}

#[test]
fn certificates_are_kept_while_they_are_good_and_keys_of_tokens_for_ever() {
    let authority = Authority::new("auth-one of tenants").expect("an authority");
    let names = ["172.22.0.1".to_owned(), "auth-one.tenants.svc".to_owned()];
    let make = |authority: &Authority, before: Option<&Material>, names: &[String], now: u64| {
        Material::make(authority, before.map(kept).as_ref(), names, now).expect("made")
    };
    let now = 20_000 * DAY;
    let first = make(&authority, None, &names, now);
    assert_eq!(make(&authority, Some(&first), &names, now + 366 * DAY), first);
    let later = make(&authority, Some(&first), &names, now + 368 * DAY);
    assert_ne!(later.certificate, first.certificate, "it ends soon");
    assert_eq!(later.signing_key, first.signing_key, "tokens go on to be good");
    let moved = make(&authority, Some(&first), &["172.22.0.2".to_owned()], now);
    assert_ne!(moved.certificate, first.certificate, "another address");
    let another = Authority::new("another").expect("an authority");
    assert_ne!(make(&another, Some(&first), &names, now).certificate, first.certificate, "another authority");
    // What is kept is read again, and what is no authority is refused.
    let secret = first.own_authority(&object(auth())).expect("a Secret");
    let again = Authority::of(&secret, true).expect("read");
    assert_eq!(make(&again, Some(&first), &names, now), first);
    let why = Authority::of(&kept(&first), false).err().expect("refused");
    assert_eq!(why, "`tls.crt` is no authority: it may sign no certificates");
    let mut other = secret;
    other.data.as_mut().expect("data").remove(KEY);
    assert_eq!(Authority::of(&other, true).err().as_deref(), Some("has no `tls.key`"));
}
