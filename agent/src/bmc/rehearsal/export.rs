//! Answers of vendors that are not known yet, for a report or a simulator's data file.
//!
//! ```text
//! DIR/NAMESPACE-NAME.json  { vendor, product, answers: [ { path, status, body } ] }
//! ```
//! Without credentials, addresses, and what names the one machine: serial numbers, UUIDs, tags, host names. Serial
//! numbers and the like stay in when somebody asks for them.

use serde_json::{Map, Value, json};

use super::Outcome;

/// What stands in place of something that was taken out.
const REDACTED: &str = "REDACTED";
/// Vendors whose answers are known, by the beginning of their names.
const KNOWN: [&str; 4] = ["Dell", "HPE", "Hewlett Packard Enterprise", "Supermicro"];
/// Parts of names of properties that name the one machine.
const ONE_MACHINE: [&str; 8] = ["serial", "uuid", "guid", "assettag", "servicetag", "sku", "hostname", "fqdn"];
/// Parts of names of properties that are nobody's business.
const SECRETS: [&str; 11] =
    ["password", "secret", "token", "username", "credential", "key", "mac", "ipv4", "ipv6", "nameserver", "image"];

/// Whether the answers of this vendor are known.
pub fn is_known(vendor: &str) -> bool {
    KNOWN.iter().any(|known| vendor.starts_with(known))
}

/// The file for a host, by name, if its vendor is not known.
pub fn file(outcome: &Outcome, keep_serials: bool) -> Option<(String, String)> {
    let host = &outcome.host;
    if outcome.exchanges.is_empty() || host.vendor.as_deref().is_some_and(is_known) {
        return None;
    }
    let answers: Vec<Value> = outcome
        .exchanges
        .iter()
        .map(|exchange| {
            let mut body = exchange.body.clone();
            redact(&mut body, keep_serials, &outcome.secrets);
            json!({ "path": exchange.path, "status": exchange.status, "body": body })
        })
        .collect();
    let told = json!({ "vendor": host.vendor, "product": host.product, "answers": answers });
    let part = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' }).collect()
    };
    let namespace = if host.namespace.is_empty() { "default" } else { &host.namespace };
    let name = format!("{}-{}.json", part(namespace), part(&host.name));
    serde_json::to_string_pretty(&told).ok().map(|text| (name, text + "\n"))
}

/// Takes out what must not leave the site. `secrets`: texts that must not stand anywhere.
fn redact(value: &mut Value, keep_serials: bool, secrets: &[String]) {
    match value {
        Value::Object(map) => redact_object(map, keep_serials, secrets),
        Value::Array(list) => list.iter_mut().for_each(|value| redact(value, keep_serials, secrets)),
        Value::String(text) => {
            for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
                if text.contains(secret.as_str()) {
                    *text = text.replace(secret.as_str(), REDACTED);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn redact_object(map: &mut Map<String, Value>, keep_serials: bool, secrets: &[String]) {
    for (name, value) in map {
        let lower = name.to_lowercase();
        let any = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let annotation = name.contains('@') || name.contains('#');
        let hidden = !annotation && (any(&SECRETS) || (!keep_serials && any(&ONE_MACHINE)));
        match value {
            Value::String(text) if hidden && !text.is_empty() => REDACTED.clone_into(text),
            Value::Array(list) if hidden && list.iter().all(Value::is_string) => {
                for value in list {
                    *value = REDACTED.into();
                }
            }
            value => redact(value, keep_serials, secrets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_names_the_machine_or_its_users_is_left() {
        let mut body = json!({
            "@odata.id": "/redfish/v1/Systems/1",
            "SerialNumber": "SN1", "UUID": "u", "SKU": "tag", "HostName": "db1", "PowerState": "On",
            "Oem": { "X": { "ChassisServiceTag": "tag", "Note": "login as root-user" } },
            "HostWatchdogTimer": true, "MACAddress": "52:54:00:00:00:01", "NameServers": ["192.0.2.1"],
            "Members": [{ "UserName": "root-user", "Password": null }],
        });
        let mut kept = body.clone();
        redact(&mut body, false, &["root-user".to_owned()]);
        let text = body.to_string();
        for gone in ["SN1", "\"u\"", "tag", "db1", "root-user", "52:54", "192.0.2.1"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert_eq!((&body["PowerState"], &body["@odata.id"]), (&json!("On"), &json!("/redfish/v1/Systems/1")));
        redact(&mut kept, true, &[]);
        assert_eq!((&kept["SerialNumber"], &kept["MACAddress"]), (&json!("SN1"), &json!(REDACTED)));
    }
}
