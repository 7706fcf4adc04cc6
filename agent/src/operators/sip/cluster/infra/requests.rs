//! What users ask for on the jump host, and the controller does for them.
//!
//! ```text
//! `host reboot NAME` ─► ConfigMap jumphost-SIP-requests: `NAME.reboot: TIME` ─► reboot.metal3.io on that host of the cluster
//!                  ◄── `NAME.answer: ...` in place of the request ◄──────────────────────────────┘
//! ```

use std::collections::BTreeMap;

use agent_api::sip::cluster::SipCluster;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};

use super::{Backend, Infra, parts};
use crate::operators::kit::Key;

/// End of a request's key: reboot the host.
pub const REBOOT: &str = ".reboot";
/// End of the key with the answer.
pub const ANSWER: &str = ".answer";

/// Name of the `ConfigMap`.
pub fn name(object: &SipCluster) -> String {
    format!("{}-requests", Infra::JumpHost.name(object))
}

/// The `ConfigMap` without data: the jump host writes the requests into it.
pub fn config_map(object: &SipCluster) -> ConfigMap {
    ConfigMap { metadata: parts::metadata(Infra::JumpHost, object, name(object)), ..ConfigMap::default() }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its key.
    pub key: String,
    /// Name of the host, as the jump host calls it.
    pub name: String,
    /// The host, if it is one of the cluster.
    pub host: Option<Key>,
}

/// Requests without an answer. They can only name hosts of the cluster.
pub fn open(data: Option<&BTreeMap<String, String>>, backends: &[Backend]) -> Vec<Request> {
    let names = data.into_iter().flatten().filter_map(|(key, _)| Some((key, key.strip_suffix(REBOOT)?)));
    let request = |(key, name): (&String, &str)| Request {
        key: key.clone(),
        name: name.to_owned(),
        host: backends.iter().find(|backend| backend.name == name).map(|backend| backend.host.clone()),
    };
    names.map(request).collect()
}

/// The change that answers a request.
pub fn answer(request: &Request, text: &str) -> Value {
    let mut data = Map::new();
    data.insert(request.key.clone(), Value::Null);
    data.insert(format!("{}{ANSWER}", request.name), json!(text));
    json!({"data": data})
}

#[cfg(test)]
mod tests {
    use agent_api::sip::cluster::Role;

    use super::*;

    #[test]
    fn only_hosts_of_the_cluster_are_rebooted() {
        let backend = Backend {
            role: Role::Worker,
            host: ("hosts".to_owned(), "w1".to_owned()),
            name: "w1".to_owned(),
            standby: false,
            addresses: BTreeMap::new(),
        };
        let data: BTreeMap<String, String> = ["w1.reboot", "other.reboot", "w1.answer", "w1"]
            .map(|key| (key.to_owned(), "2026-01-01T00:00:00Z".to_owned()))
            .into();
        let found = open(Some(&data), &[backend]);
        let told: Vec<(&str, bool)> = found.iter().map(|it| (it.name.as_str(), it.host.is_some())).collect();
        assert_eq!(told, [("other", false), ("w1", true)]);
        let change = answer(&found[1], "it is rebooted");
        assert_eq!(change, json!({"data": {"w1.reboot": null, "w1.answer": "it is rebooted"}}));
        assert!(open(None, &[]).is_empty());
    }
}
