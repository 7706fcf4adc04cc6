//! What to ask: `BareMetalHost`s and their `Secret`s, in the YAML that users have for metal3 already.
//!
//! ```text
//! YAML, many documents ─► BareMetalHost: spec.bmc { address, credentialsName, disableCertificateVerification }
//!                         Secret of that name in the same namespace: username, password, ca.crt (optional)
//! ```
//! `kubectl get -o yaml` gives lists: they are taken apart. Every other kind is passed over. JSON is taken, too, also many
//! objects after one another. How many there are does not count: see [`agent_api::yaml`].

use std::collections::BTreeMap;

use agent_api::metal3::bmc_address::Credentials;
use agent_api::{encrypted, yaml};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Kinds that are looked at.
const HOST: &str = "BareMetalHost";
const SECRET: &str = "Secret";

/// A text that names no hosts.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is no YAML.
    #[error("reading the YAML: {0}")]
    Yaml(String),
    /// There is nothing to ask.
    #[error("there is no BareMetalHost in it")]
    NoHosts,
    /// An object has no name.
    #[error("a {0} has no `metadata.name`")]
    NoName(String),
}

/// A host, as its manifests say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Namespace; empty when it names none.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Address of its BMC.
    pub address: String,
    /// The card that it boots from, as it is written.
    pub boot_mac: Option<String>,
    /// What its Secret says, or what is wrong with it, in words.
    pub credentials: Result<Credentials, String>,
    /// The BMC's certificate is not checked.
    pub unverified: bool,
    /// Certificates (PEM) that its Secret says to trust.
    pub authority: Option<String>,
}

/// All objects of a text, in order.
///
/// # Errors
/// What is no YAML, or a list without items, in words.
pub fn objects(text: &str) -> Result<Vec<Value>, String> {
    if text.len() > yaml::MOST_BYTES {
        let (found, most) = (text.len() >> 20, yaml::MOST_BYTES >> 20);
        return Err(format!("found {found} MiB, expected at most {most}; hint: ask a part of the hosts at a time"));
    }
    let json = serde_json::Deserializer::from_str(text).into_iter::<Value>().collect::<Result<Vec<_>, _>>();
    let documents = match json {
        Ok(documents) => documents,
        // Without quotes `yes` is true, as kubectl has it.
        Err(_) => {
            serde_saphyr::from_multiple_with_options(text, yaml::options(text)).map_err(|error| yaml::told(&error))?
        }
    };
    let mut objects = Vec::new();
    for document in documents {
        take(document, &mut objects)?;
    }
    Ok(objects)
}

/// The hosts of a text, in order.
pub fn read(text: &str) -> Result<Vec<Host>, ManifestError> {
    let objects = objects(text).map_err(ManifestError::Yaml)?;
    let mut secrets = BTreeMap::new();
    for object in objects.iter().filter(|object| object["kind"] == SECRET) {
        secrets.insert(name_of(object)?, object);
    }
    let hosts: Vec<Host> = objects
        .iter()
        .filter(|object| object["kind"] == HOST)
        .map(|object| host(object, &secrets))
        .collect::<Result<_, _>>()?;
    if hosts.is_empty() { Err(ManifestError::NoHosts) } else { Ok(hosts) }
}

/// Lists are known by their items, whatever they call themselves.
fn take(document: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    match document {
        Value::Object(mut map) if map.contains_key("items") => match map.remove("items") {
            Some(Value::Array(items)) => items.into_iter().try_for_each(|item| take(item, objects)),
            _ => Err("`items` is no list".into()),
        },
        Value::Object(_) => {
            objects.push(document);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Namespace and name.
fn name_of(object: &Value) -> Result<(String, String), ManifestError> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    if name.is_empty() {
        return Err(ManifestError::NoName(object["kind"].as_str().unwrap_or_default().to_owned()));
    }
    Ok((text("namespace"), name))
}

fn host(object: &Value, secrets: &BTreeMap<(String, String), &Value>) -> Result<Host, ManifestError> {
    let (namespace, name) = name_of(object)?;
    let bmc = &object["spec"]["bmc"];
    let text = |key: &str| bmc[key].as_str().unwrap_or_default();
    let wanted = text("credentialsName");
    let secret = secrets.get(&(namespace.clone(), wanted.to_owned()));
    let unverified = &bmc["disableCertificateVerification"];
    let encrypted = encrypted::told(text("address"));
    let credentials = match secret {
        _ if !(unverified.is_boolean() || unverified.is_null()) => Err(format!(
            "its `spec.bmc.disableCertificateVerification` is {unverified}, expected `true` or `false` without quotes"
        )),
        _ if encrypted.is_some() => Err(format!("its `spec.bmc.address` {}", encrypted.unwrap_or_default())),
        _ if wanted.is_empty() => Err("the host names no Secret in `spec.bmc.credentialsName`".to_owned()),
        None if namespace.is_empty() => {
            Err(format!("there is no Secret `{wanted}` without a namespace, like the host"))
        }
        None => Err(format!("there is no Secret `{wanted}` in the host's namespace `{namespace}`")),
        Some(secret) => credentials(secret).map_err(|why| format!("Secret `{wanted}`: {why}")),
    };
    Ok(Host {
        address: text("address").to_owned(),
        boot_mac: object["spec"]["bootMACAddress"].as_str().filter(|mac| !mac.is_empty()).map(str::to_owned),
        unverified: unverified.as_bool().unwrap_or(false),
        authority: secret.and_then(|secret| value(secret, "ca.crt")?.ok()),
        credentials,
        namespace,
        name,
    })
}

fn credentials(secret: &Value) -> Result<Credentials, String> {
    let field = |name: &str| -> Result<String, String> {
        let text = value(secret, name).ok_or_else(|| format!("it has no `{name}`"))??;
        let text = text.trim().to_owned();
        if text.is_empty() { Err(format!("its `{name}` is empty")) } else { Ok(text) }
    };
    Ok(Credentials { username: field("username")?, password: field("password")? })
}

/// A value of a Secret: `stringData` as it is, `data` in base64; or why the API server would take neither.
fn value(secret: &Value, name: &str) -> Option<Result<String, String>> {
    let (field, found) = ["stringData", "data"].into_iter().find_map(|field| {
        let found = &secret[field][name];
        (!found.is_null()).then_some((field, found))
    })?;
    Some(text_of(field, name, found))
}

fn text_of(field: &str, name: &str, found: &Value) -> Result<String, String> {
    let Value::String(text) = found else {
        let kind = match found {
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Array(_) => "a list",
            Value::Null | Value::Object(_) | Value::String(_) => "an object",
        };
        return Err(format!("its `{field}.{name}` is {kind}, which the API server refuses; hint: put it in quotes"));
    };
    let plain = if field == "stringData" || encrypted::told(text).is_some() {
        Some(text.clone())
    } else {
        STANDARD.decode(text.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let plain = plain.ok_or_else(|| format!("`{field}.{name}` is not the base64 of a text"))?;
    match encrypted::told(&plain) {
        Some(told) => Err(format!("its `{field}.{name}` {told}")),
        None => Ok(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "
apiVersion: v1
kind: Secret
metadata: { name: one-bmc, namespace: metal }
data: { username: YWRtaW4K, password: c2VjcmV0 }
---
apiVersion: v1
kind: List
items:
- apiVersion: metal3.io/v1alpha1
  kind: BareMetalHost
  metadata: { name: one, namespace: metal }
  spec:
    online: true
    bmc: { address: 'redfish://192.0.2.1', credentialsName: one-bmc, disableCertificateVerification: true }
---
kind: ConfigMap
metadata: { name: other }
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: { name: two }
spec: { online: false, bmc: { address: 192.0.2.2, credentialsName: one-bmc } }
";

    #[test]
    fn hosts_come_with_the_secrets_of_their_own_namespace() {
        let hosts = read(SITE).expect("hosts");
        let one = &hosts[0];
        assert_eq!((one.namespace.as_str(), one.name.as_str(), one.unverified), ("metal", "one", true));
        let wanted = Credentials { username: "admin".into(), password: "secret".into() };
        assert_eq!(one.credentials, Ok(wanted), "white space around is no part of them");
        let missing = hosts[1].credentials.as_ref().expect_err("none");
        assert!(missing.contains("`one-bmc`"), "{missing}");
        assert!(!format!("{one:?}").contains("secret"));
    }

    /// As kubectl reads them; what the API server would refuse is said.
    #[test]
    fn a_file_is_read_as_kubectl_reads_it_or_refused_in_words() {
        let whole = |unverified: &str, secret: &str| {
            format!(
                "kind: Secret\nmetadata: {{ name: s }}\n{secret}\n---\nkind: BareMetalHost\nmetadata: {{ name: a }}\n\
                 spec: {{ bmc: {{ address: 192.0.2.1, credentialsName: s, disableCertificateVerification: {unverified} }} }}\n"
            )
        };
        let good = "stringData: { username: admin, password: secret }";
        for (written, expected) in
            [("yes", true), ("On", true), ("true", true), ("no", false), ("off", false), ("~", false)]
        {
            let hosts = read(&whole(written, good)).expect("hosts");
            assert_eq!((hosts[0].unverified, hosts[0].credentials.is_ok()), (expected, true), "{written}");
        }
        let encrypted = "ENC[AES256_GCM,data:eA==,iv:aQ==,tag:dA==,type:str]";
        let table = [
            ("\"yes\"", good.to_owned(), "its `spec.bmc.disableCertificateVerification` is \"yes\", expected `true`"),
            ("1", good.to_owned(), "its `spec.bmc.disableCertificateVerification` is 1, expected `true`"),
            (
                "no",
                "stringData: { username: admin, password: 12345678 }".to_owned(),
                "its `stringData.password` is a number, which the API server refuses; hint: put it in quotes",
            ),
            (
                "no",
                "stringData: { username: yes, password: a }".to_owned(),
                "its `stringData.username` is true or false, which",
            ),
            ("no", "data: { username: YWRtaW4=, password: 1234 }".to_owned(), "its `data.password` is a number, which"),
            (
                "no",
                format!("stringData: {{ username: admin, password: '{encrypted}' }}"),
                "its `stringData.password` is still encrypted by sops; hint: ",
            ),
            (
                "no",
                format!("data: {{ username: YWRtaW4=, password: '{encrypted}' }}"),
                "its `data.password` is still encrypted by sops; hint: ",
            ),
        ];
        for (unverified, secret, expected) in table {
            let hosts = read(&whole(unverified, &secret)).expect("hosts");
            let said = hosts[0].credentials.as_ref().expect_err("no credentials");
            assert!(said.contains(expected), "{said}");
        }
        let quoted = read(&whole("no", "stringData: { username: admin, password: \"12345678\" }")).expect("hosts");
        assert!(quoted[0].credentials.is_ok());
    }

    /// Each host has a Secret of its own, as in files that are applied; or its whole inventory, as `kubectl get` prints it; or
    /// all have one Secret's credentials by an alias.
    #[test]
    fn a_site_of_any_size_is_one_file() {
        let with_secrets: Vec<String> = (0..1500)
            .map(|number| {
                format!(
                    "---\napiVersion: v1\nkind: Secret\nmetadata: {{ name: h{number}-bmc, namespace: metal }}\n\
                     stringData: {{ username: admin, password: p{number} }}\n---\napiVersion: metal3.io/v1alpha1\n\
                     kind: BareMetalHost\nmetadata: {{ name: h{number}, namespace: metal }}\nspec: {{ online: true, \
                     bmc: {{ address: 'ipmi://10.0.0.1:{number}', credentialsName: h{number}-bmc }} }}\n"
                )
            })
            .collect();
        let hosts = read(&with_secrets.concat()).expect("hosts");
        assert!(hosts.len() == 1500 && hosts.iter().all(|host| host.credentials.is_ok()));

        let nic = "      - { name: eno1, model: '0x8086 0x1572', mac: '52:54:00:00:00:01', ip: 10.0.0.1, speedGbps: 10, vlanId: 0, pxe: true }\n";
        let flags = "        - avx512\n".repeat(120);
        let inventories: Vec<String> = (0..600)
            .map(|number| {
                format!(
                    "- apiVersion: metal3.io/v1alpha1\n  kind: BareMetalHost\n  metadata: {{ name: h{number}, namespace: metal }}\n  \
                     spec:\n    bmc: {{ address: 10.0.0.1, credentialsName: s }}\n  status:\n    hardware:\n      cpu:\n        flags:\n\
                     {flags}      nics:\n{}",
                    nic.repeat(60)
                )
            })
            .collect();
        let listed = format!("apiVersion: v1\nitems:\n{}kind: List\n", inventories.concat());
        assert_eq!(read(&listed).expect("hosts").len(), 600);

        let aliases: Vec<String> = (0..1500)
            .map(|number| {
                format!("- {{ kind: BareMetalHost, metadata: {{ name: h{number} }}, spec: {{ bmc: *bmc }} }}\n")
            })
            .collect();
        let shared = format!(
            "bmc: &bmc {{ address: 10.0.0.1, credentialsName: s }}\nitems:\n\
             - {{ kind: Secret, metadata: {{ name: s }}, stringData: {{ username: a, password: b }} }}\n{}",
            aliases.concat()
        );
        let hosts = read(&shared).expect("hosts");
        assert!(hosts.len() == 1500 && hosts[1499].credentials.is_ok());

        let objects = "{\"kind\": \"BareMetalHost\", \"metadata\": {\"name\": \"a\"}}\n".repeat(3);
        assert_eq!(read(&objects).expect("hosts").len(), 3, "JSON after JSON");
    }

    /// Neither the line with the mistake nor those around it: passwords and keys stand there.
    #[test]
    fn an_error_shows_nothing_of_the_text() {
        let text = |line: &str| {
            let lines = ["kind: Secret", "metadata: { name: a }", "stringData:", "  username: hunter2"];
            format!("{}\n  {line}\n  other: hunter2\n", lines.join("\n"))
        };
        for wrong in ["password: [hunter2", "password: hunter2: hunter2", "password: *hunter2", "hunter2", "\thunter2"]
        {
            let said = read(&text(wrong)).expect_err("no YAML").to_string();
            assert!(said.contains("line ") && !said.contains("hunter2"), "{wrong}: {said}");
        }
        assert!(matches!(read(&text("password: hunter2")), Err(ManifestError::NoHosts)));
    }

    #[test]
    fn what_names_no_host_is_an_error() {
        assert!(matches!(read("kind: ConfigMap\n"), Err(ManifestError::NoHosts)));
        assert!(matches!(read("kind: BareMetalHost\n"), Err(ManifestError::NoName(_))));
        assert!(matches!(read("a: [\n"), Err(ManifestError::Yaml(_))));
    }
}
