//! What users ask for on the jump host, and the controller does for them.
//!
//! ```text
//! `host reboot NAME` ─► ConfigMap jumphost-SIP-requests: `NAME.reboot: TIME` ─► reboot.metal3.io on that host of the cluster
//!                  ◄── `NAME.answer: ...` in place of the request ◄──────────────────────────────┘
//! `host console NAME` ─► `NAME.ID.console: {pod, port, key}` ─► taken; the controller comes to that port (see `consoles`)
//!                   ◄── `NAME.ID.answer: ...` if it cannot ◄────────┘
//! ```

use std::collections::BTreeMap;

use agent_api::sip::cluster::SipCluster;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Backend, Infra, parts};
use crate::operators::kit::Key;

/// End of a request's key: reboot the host.
pub const REBOOT: &str = ".reboot";
/// End of a request's key: open the host's serial console.
pub const CONSOLE: &str = ".console";
/// End of the key with the answer.
pub const ANSWER: &str = ".answer";
/// What the jump host says to the controller that came to its port with the right key.
pub const READY: &[u8] = b"ready\n";

/// Name of the `ConfigMap`.
pub fn name(object: &SipCluster) -> String {
    format!("{}-requests", Infra::JumpHost.name(object))
}

/// The `ConfigMap` without data: the jump host writes the requests into it.
pub fn config_map(object: &SipCluster) -> ConfigMap {
    ConfigMap { metadata: parts::metadata(Infra::JumpHost, object, name(object)), ..ConfigMap::default() }
}

/// Where somebody on the jump host waits for a console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The pod.
    pub pod: String,
    /// Port of its loopback address.
    pub port: u16,
    /// What he who comes says first.
    pub key: String,
}

/// What the controller says of a console that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Opening {
    /// It is this host's, from here on.
    Opened(String),
    /// There is none, in words.
    Refused(String),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That the host be rebooted.
    Reboot,
    /// Its serial console; or why that cannot be read.
    Console(Result<Listener, String>),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its key.
    pub key: String,
    /// Key of the answer.
    pub answer: String,
    /// Name of the host, as the jump host calls it.
    pub name: String,
    /// The host, if it is one of the cluster.
    pub host: Option<Key>,
    /// What is asked for.
    pub wish: Wish,
}

/// Requests without an answer. They can only name hosts of the cluster.
pub fn open(data: Option<&BTreeMap<String, String>>, backends: &[Backend]) -> Vec<Request> {
    let request = |(key, text): (&String, &String)| {
        let (of, name, wish) = if let Some(name) = key.strip_suffix(REBOOT) {
            (name, name, Wish::Reboot)
        } else {
            let of = key.strip_suffix(CONSOLE)?;
            let (name, _) = of.rsplit_once('.')?;
            (of, name, Wish::Console(serde_json::from_str(text).map_err(|error| error.to_string())))
        };
        let host = backends.iter().find(|backend| backend.name == name).map(|backend| backend.host.clone());
        Some(Request { key: key.clone(), answer: format!("{of}{ANSWER}"), name: name.to_owned(), host, wish })
    };
    data.into_iter().flatten().filter_map(request).collect()
}

/// The change that answers a request; nothing is said where the answer comes by another way.
pub fn answer(request: &Request, text: Option<&str>) -> Value {
    let mut data = Map::new();
    data.insert(request.key.clone(), Value::Null);
    if let Some(text) = text {
        data.insert(request.answer.clone(), json!(text));
    }
    json!({"data": data})
}

#[cfg(test)]
mod tests {
    use agent_api::sip::cluster::Role;

    use super::*;

    fn backend() -> Backend {
        Backend {
            role: Role::Worker,
            host: ("hosts".to_owned(), "w1".to_owned()),
            name: "w1".to_owned(),
            standby: false,
            addresses: BTreeMap::new(),
        }
    }

    #[test]
    fn only_hosts_of_the_cluster_are_rebooted() {
        let data: BTreeMap<String, String> = ["w1.reboot", "other.reboot", "w1.answer", "w1"]
            .map(|key| (key.to_owned(), "2026-01-01T00:00:00Z".to_owned()))
            .into();
        let found = open(Some(&data), &[backend()]);
        let told: Vec<(&str, bool)> = found.iter().map(|it| (it.name.as_str(), it.host.is_some())).collect();
        assert_eq!(told, [("other", false), ("w1", true)]);
        let change = answer(&found[1], Some("it is rebooted"));
        assert_eq!(change, json!({"data": {"w1.reboot": null, "w1.answer": "it is rebooted"}}));
        assert!(open(None, &[]).is_empty());
    }

    #[test]
    fn each_console_that_is_asked_for_has_an_answer_of_its_own() {
        let listener = r#"{"pod": "jumphost-one-x", "port": 4000, "key": "k"}"#;
        let data: BTreeMap<String, String> = [
            ("w1.0a.console", listener),
            ("w1.1b.console", "now"),
            ("w9.2c.console", listener),
            ("w1.console", listener),
        ]
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .into();
        let found = open(Some(&data), &[backend()]);
        let told: Vec<(&str, &str, bool)> =
            found.iter().map(|it| (it.name.as_str(), it.answer.as_str(), it.host.is_some())).collect();
        assert_eq!(told, [("w1", "w1.0a.answer", true), ("w1", "w1.1b.answer", true), ("w9", "w9.2c.answer", false)]);
        let listener = Listener { pod: "jumphost-one-x".to_owned(), port: 4000, key: "k".to_owned() };
        assert_eq!(found[0].wish, Wish::Console(Ok(listener)));
        assert!(matches!(&found[1].wish, Wish::Console(Err(_))));
        assert_eq!(answer(&found[0], None), json!({"data": {"w1.0a.console": null}}));
    }
}
