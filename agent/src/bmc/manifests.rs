//! What to ask: `BareMetalHost`s and their `Secret`s, in the YAML that users have for metal3 already.
//!
//! ```text
//! YAML, many documents ─► BareMetalHost: spec.bmc { address, credentialsName, disableCertificateVerification }
//!                         Secret of that name in the same namespace: username, password, ca.crt (optional)
//! ```
//! `kubectl get -o yaml` gives lists: they are taken apart. Every other kind is passed over.

use std::collections::BTreeMap;

use agent_api::metal3::bmc_address::Credentials;
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
    // JSON is read at any length, which YAML is not.
    let documents = if let Ok(document) = serde_json::from_str::<Value>(text) {
        vec![document]
    } else {
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?
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
    let credentials = match secret {
        _ if wanted.is_empty() => Err("the host names no Secret in `spec.bmc.credentialsName`".to_owned()),
        None if namespace.is_empty() => {
            Err(format!("there is no Secret `{wanted}` without a namespace, like the host"))
        }
        None => Err(format!("there is no Secret `{wanted}` in the host's namespace `{namespace}`")),
        Some(secret) => credentials(secret).map_err(|why| format!("Secret `{wanted}`: {why}")),
    };
    Ok(Host {
        address: text("address").to_owned(),
        unverified: bmc["disableCertificateVerification"].as_bool().unwrap_or(false),
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

/// A value of a Secret: `stringData` as it is, `data` in base64.
fn value(secret: &Value, name: &str) -> Option<Result<String, String>> {
    if let Some(text) = secret["stringData"][name].as_str() {
        return Some(Ok(text.to_owned()));
    }
    let coded = secret["data"][name].as_str()?;
    let bytes = STANDARD.decode(coded.trim()).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    Some(text.ok_or_else(|| format!("`data.{name}` is not the base64 of a text")))
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

    #[test]
    fn what_names_no_host_is_an_error() {
        assert!(matches!(read("kind: ConfigMap\n"), Err(ManifestError::NoHosts)));
        assert!(matches!(read("kind: BareMetalHost\n"), Err(ManifestError::NoName(_))));
        assert!(matches!(read("a: [\n"), Err(ManifestError::Yaml(_))));
    }
}
