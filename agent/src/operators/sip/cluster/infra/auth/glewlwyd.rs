//! Glewlwyd, as Debian has it: its configuration, and what is put into its database. Pure.
//!
//! Nobody administers it: the database has no user of that kind, and the one that the package's schema brings is deleted.
//! Nor does it renew tokens: what it gives for a refresh token has no ID token, which is what `kubectl` needs.
//! Sources: Glewlwyd's `docs/INSTALL.md` (configuration), `docs/OIDC.md` (the plugin), `docs/database/init.sqlite3.sql` (tables),
//! `src/user/database.c` (how hashes are kept),
//! `docs/USER_LDAP.md` (directories).

use std::fmt::Write as _;

use agent_api::sip::auth::{Auth, LdapUpstream};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use serde_json::{Value, json};

use super::{
    AuthGiven, Bound, CERTIFICATE, DATA, GROUPS_CLAIM, KEY, PORT, RUN, TOKEN_SECS, answering, base, container, issuer,
};

/// Path of the issuer: its API, and the name of the plugin.
pub const PATH: &str = "/api/oidc";
/// Keys of the Secret.
const SETTINGS: &str = "glewlwyd.conf";
const SEED: &str = "seed.sql";
/// The authority of a directory.
const DIRECTORY: &str = "directory.crt";
/// Its tables, as the package has them.
const SCHEMA: &str = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3";
/// What clients may ask for; those of Dex, too, so that a login is written down the same way.
const SCOPES: [&str; 5] = ["openid", "email", "groups", "profile", "offline_access"];
/// How long a browser stays logged in.
const SESSION_SECS: i64 = 12 * 3600;
/// Files of its pages.
const TYPES: [(&str, &str); 8] = [
    (".css", "text/css"),
    (".html", "text/html"),
    (".ico", "image/x-icon"),
    (".js", "application/javascript"),
    (".json", "application/json"),
    (".png", "image/png"),
    (".ttf", "font/ttf"),
    (".woff2", "font/woff2"),
];

/// What the pod reads beside certificate and keys.
pub fn texts(auth: &Auth, given: &AuthGiven) -> Vec<(&'static str, String)> {
    let authority = given.upstream.as_ref().and_then(|bound| bound.authority.clone());
    let texts = vec![(SETTINGS, settings(auth, given)), (SEED, seed(auth, given))];
    texts.into_iter().chain(authority.map(|authority| (DIRECTORY, authority))).collect()
}

fn directory(auth: &Auth) -> Option<&LdapUpstream> {
    auth.upstream.as_ref()?.ldap.as_ref()
}

/// The database is made anew whenever the pod is begun.
pub fn make_database() -> Vec<String> {
    let open = format!(".open --new {RUN}/glewlwyd.db");
    let (schema, seed) = (format!(".read {SCHEMA}"), format!(".read {DATA}/{SEED}"));
    ["/usr/bin/sqlite3", "-bail", ":memory:", &open, &schema, &seed].map(str::to_owned).to_vec()
}

/// How it is run.
pub fn serve() -> Vec<String> {
    ["/usr/bin/glewlwyd".to_owned(), format!("--config-file={DATA}/{SETTINGS}")].to_vec()
}

pub fn pod(auth: &Auth, image: &str) -> PodSpec {
    let trusted = directory(auth).map(|_| {
        let (name, value) = ("LDAPTLS_CACERT".to_owned(), Some(format!("{DATA}/{DIRECTORY}")));
        vec![EnvVar { name, value, ..EnvVar::default() }]
    });
    PodSpec {
        init_containers: Some(vec![container("database", image, make_database())]),
        containers: vec![Container { env: trusted, ..answering("glewlwyd", image, serve()) }],
        ..PodSpec::default()
    }
}

/// In the language of libconfig. Nothing of the user's is in it but the host, which is a name or an address.
fn settings(auth: &Auth, given: &AuthGiven) -> String {
    let url = base(auth, &given.host);
    let mut text = format!(
        "port={PORT}\nexternal_url=\"{url}\"\nlogin_url=\"login.html\"\napi_prefix=\"api\"\n\
         static_files_path=\"/usr/share/glewlwyd/webapp/\"\nlog_mode=\"console\"\nlog_level=\"INFO\"\n\
         cookie_domain=\"\"\ncookie_secure=1\ncookie_same_site=\"lax\"\nsession_expiration={SESSION_SECS}\n\
         allow_multiple_user_per_session=false\nadd_x_frame_option_header_deny=true\n"
    );
    for (key, folder) in [
        ("user_module_path", "user"),
        ("user_middleware_module_path", "user_middleware"),
        ("client_module_path", "client"),
        ("user_auth_scheme_module_path", "scheme"),
        ("plugin_module_path", "plugin"),
    ] {
        let _ = writeln!(text, "{key}=\"/usr/lib/glewlwyd/{folder}\"");
    }
    let _ = write!(
        text,
        "use_secure_connection=true\nsecure_connection_key_file=\"{DATA}/{KEY}\"\n\
         secure_connection_pem_file=\"{DATA}/{CERTIFICATE}\"\nhash_algorithm=\"SHA512\"\n\
         database = {{ type = \"sqlite3\"; path = \"{RUN}/glewlwyd.db\"; }};\nstatic_files_mime_types = (\n"
    );
    let of = |(extension, kind): &(&str, &str)| {
        format!("  {{ extension = \"{extension}\"; mime_type = \"{kind}\"; compress = 0; }}")
    };
    text + &TYPES.iter().map(of).collect::<Vec<_>>().join(",\n") + "\n);\n"
}

/// A text of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Users, client and plugin. What the package's schema brings of these goes: with it, the administrator whose password
/// everybody knows.
fn seed(auth: &Auth, given: &AuthGiven) -> String {
    let mut lines = vec!["BEGIN;".to_owned()];
    for table in [
        "g_user_password",
        "g_user_scope_user",
        "g_user_scope",
        "g_user_property",
        "g_user",
        "g_scope",
        "g_user_module_instance",
        "g_client_module_instance",
        "g_plugin_module_instance",
    ] {
        lines.push(format!("DELETE FROM {table};"));
    }
    lines.extend(modules(auth, given));
    for scope in SCOPES.map(quoted) {
        lines.push(format!("INSERT INTO g_scope (gs_name, gs_display_name) VALUES ({scope}, {scope});"));
        lines.push(format!("INSERT INTO g_user_scope (gus_name) VALUES ({scope});"));
        lines.push(format!("INSERT INTO g_client_scope (gcs_name) VALUES ({scope});"));
    }
    for user in &auth.users {
        let (name, email) = (quoted(&user.name), quoted(&user.email));
        let id = format!("(SELECT gu_id FROM g_user WHERE gu_username = {name})");
        lines.push(format!("INSERT INTO g_user (gu_username, gu_name, gu_email) VALUES ({name}, {name}, {email});"));
        let hash = quoted(given.hashes.get(&user.name).map_or("", String::as_str));
        lines.push(format!("INSERT INTO g_user_password (gu_id, guw_password) VALUES ({id}, {hash});"));
        for group in user.groups.iter().map(|group| quoted(group)) {
            let key = quoted(GROUPS_CLAIM);
            lines.push(format!(
                "INSERT INTO g_user_property (gu_id, gup_name, gup_value) VALUES ({id}, {key}, {group});"
            ));
        }
    }
    lines.push(
        "INSERT INTO g_user_scope_user (gu_id, gus_id) SELECT gu_id, gus_id FROM g_user, g_user_scope;".to_owned(),
    );
    lines.extend(client(auth));
    lines.push("COMMIT;".to_owned());
    lines.join("\n") + "\n"
}

/// Where users and clients are, and what answers.
fn modules(auth: &Auth, given: &AuthGiven) -> Vec<String> {
    let field = |multiple: bool| json!({"multiple": multiple, "read": true, "write": false});
    let users = json!({"use-glewlwyd-connection": true, "data-format": {GROUPS_CLAIM: field(true)}});
    let clients = json!({"use-glewlwyd-connection": true, "data-format": {
        "redirect_uri": field(true), "authorization_type": field(true), "token_endpoint_auth_method": field(true)}});
    let module = |kind: &str, module: &str, order: u8, parameters: &Value| {
        let short = if kind == "user" { "gumi" } else { "gcmi" };
        format!(
            "INSERT INTO g_{kind}_module_instance ({short}_module, {short}_order, {short}_name, {short}_parameters, \
             {short}_readonly) VALUES ('{module}', {order}, '{module}', {}, 1);",
            quoted(&parameters.to_string())
        )
    };
    let plugin = format!(
        "INSERT INTO g_plugin_module_instance (gpmi_module, gpmi_name, gpmi_parameters) VALUES ('oidc', 'oidc', {});",
        quoted(&plugin(auth, given).to_string())
    );
    let mut lines = vec![module("user", "database", 0, &users), module("client", "database", 0, &clients), plugin];
    // Who is named here comes first.
    let directory = directory(auth).zip(given.upstream.as_ref());
    lines.extend(directory.map(|(ldap, bound)| module("user", "ldap", 1, &of_directory(ldap, bound))));
    lines
}

/// How a directory is asked. Who has an address there may come in.
fn of_directory(ldap: &LdapUpstream, bound: &Bound) -> Value {
    let filter = ldap.filter.as_deref().unwrap_or("(objectClass=inetOrgPerson)");
    // Glewlwyd puts these two around it again.
    let filter = filter.strip_prefix('(').and_then(|filter| filter.strip_suffix(')')).unwrap_or(filter);
    let name = ldap.name_attribute.as_deref().unwrap_or("uid");
    let email = ldap.email_attribute.as_deref().unwrap_or("mail");
    let group = ldap.group_attribute.as_deref().unwrap_or("memberOf");
    json!({
        "uri": ldap.url,
        "bind-dn": bound.name,
        "bind-password": bound.secret,
        "base-search": ldap.base,
        "search-scope": "subtree",
        "filter": filter,
        "username-property": name,
        "name-property": name,
        "email-property": email,
        "scope-property": email,
        "scope-property-match": "contains",
        "scope-property-match-correspondence": {"openid": "@"},
        "data-format": {GROUPS_CLAIM: {"property": group, "multiple": true, "read": true, "write": false}},
    })
}

/// Codes, and nothing else.
fn plugin(auth: &Auth, given: &AuthGiven) -> Value {
    json!({
        "iss": issuer(auth, &given.host),
        "jwt-type": "ecdsa",
        "jwt-key-size": "256",
        "key": given.material.signing_key,
        "cert": given.material.signing_public,
        "access-token-duration": TOKEN_SECS,
        "code-duration": 60,
        "allow-non-oidc": false,
        "auth-type-code-enabled": true,
        "auth-type-code-revoke-replayed": true,
        "auth-type-token-enabled": false,
        "auth-type-none-enabled": false,
        "auth-type-password-enabled": false,
        "auth-type-client-enabled": false,
        "auth-type-device-enabled": false,
        "auth-type-refresh-enabled": false,
        "subject-type": "public",
        "allowed-scope": SCOPES,
        "email-claim": "mandatory",
        "name-claim": "no",
        "scope-claim": "no",
        "claims": [
            {"name": GROUPS_CLAIM, "user-property": GROUPS_CLAIM, "type": "string", "mandatory": true, "on-demand": false},
            {"name": "preferred_username", "user-property": "username", "type": "string", "mandatory": true,
                "on-demand": false},
        ],
        "pkce-allowed": true,
        "pkce-method-plain-allowed": false,
        "pkce-required-public-client": true,
        "jwks-show": true,
    })
}

/// The client without a secret that `kubectl` is. No user is asked whether he lets it in: there is no other one.
fn client(auth: &Auth) -> Vec<String> {
    let name = quoted(auth.client());
    let mut lines = vec![
        format!("INSERT INTO g_client (gc_client_id, gc_name, gc_confidential) VALUES ({name}, {name}, 0);"),
        "INSERT INTO g_client_scope_client (gc_id, gcs_id) SELECT gc_id, gcs_id FROM g_client, g_client_scope;"
            .to_owned(),
    ];
    let redirects = auth.redirects().into_iter().map(|uri| ("redirect_uri", uri));
    let rest = [("authorization_type", "code"), ("token_endpoint_auth_method", "none")];
    for (key, value) in redirects.chain(rest) {
        let (key, value) = (quoted(key), quoted(value));
        lines.push(format!(
            "INSERT INTO g_client_property (gc_id, gcp_name, gcp_value) SELECT gc_id, {key}, {value} FROM g_client;"
        ));
    }
    lines.push(
        "INSERT INTO g_client_user_scope (gs_id, gcus_username, gcus_client_id) SELECT gs_id, gu_username, gc_client_id FROM \
         g_scope, g_user, g_client;"
            .to_owned(),
    );
    lines
}
