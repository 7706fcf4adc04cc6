//! What etcd holds when a new cluster has settled, in a form that every box can make its own.
//!
//! ```text
//! etcd's keys and values --left_out--> --placeholders, order--> cluster-state.json --(box)--> one transaction
//! ```
//! Everything particular to one run is replaced: UIDs, times, authorities, random suffixes of names.
//! Equal programs and equal templates give equal bytes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::render::CA;

/// Name of the file in the templates.
pub const FILE: &str = "cluster-state.json";
/// Stands for the time at which the box makes the state its own (RFC 3339, seconds).
const TIME: &str = "foothold-time";
/// Stands for the cluster's authority in PEM.
const CA_PEM: &str = "foothold-ca-pem";
/// Stands, with a number, for the UID of an object.
const UID: &str = "foothold-uid-";
/// etcd refuses larger requests (`--max-request-bytes`, 1.5 MiB); the rest is room for addresses and authorities.
const MOST_BYTES: usize = 1_400_000;

/// What belongs to one run and is made anew by the box itself: its Node, what leads and lives there, where its
/// API server listens, whom it trusts, what has happened.
const LEFT_OUT: &[&str] = &[
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
    "/registry/csinodes/",
    "/registry/endpointslices/",
    "/registry/events/",
    "/registry/leases/",
    "/registry/masterleases/",
    "/registry/minions/",
    "/registry/peerserverleases/",
    "/registry/services/endpoints/",
];

/// One key of etcd and its object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// `/registry/...`.
    pub key: String,
    /// The object.
    pub value: Value,
}

/// What `etcdctl get -w json` prints.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    value: String,
}

/// The entries of an answer of `etcdctl get /registry/ --prefix -w json` that a new cluster begins with.
pub fn read(answer: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = read_all(answer)?;
    entries.retain(|entry| !LEFT_OUT.iter().any(|prefix| entry.key.starts_with(prefix)));
    Ok(entries)
}

/// All entries of such an answer.
pub fn read_all(answer: &[u8]) -> Result<Vec<Entry>> {
    let answer: Answer = serde_json::from_slice(answer).context("reading etcdctl's answer")?;
    let mut entries = Vec::new();
    for KeyValue { key, value } in answer.kvs {
        let key = String::from_utf8(STANDARD.decode(key)?).context("a key that is no text")?;
        let value = serde_json::from_slice(&STANDARD.decode(value)?).with_context(|| format!("`{key}` is no JSON"))?;
        entries.push(Entry { key, value });
    }
    Ok(entries)
}

/// How many pods are bound to a node.
pub fn bound_pods(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| is_pod(entry) && entry.value["spec"]["nodeName"].is_string()).count()
}

fn is_pod(entry: &Entry) -> bool {
    entry.key.starts_with("/registry/pods/")
}

/// [`settled`], checked: it holds no secret, and etcd will take it.
pub fn canonical(entries: &[Entry], ca: &str) -> Result<String> {
    let text = settled(entries, ca)?;
    for secret in ["BEGIN CERTIFICATE", "PRIVATE KEY", "/registry/secrets/"] {
        ensure!(!text.contains(secret), "`{secret}` is left in the state of the new cluster");
    }
    ensure!(text.len() < MOST_BYTES, "the state of the new cluster has {} bytes: too many for etcd", text.len());
    Ok(text)
}

/// The state without anything of the run it comes from, one entry a line. `ca` is the run's authority in PEM.
pub fn settled(entries: &[Entry], ca: &str) -> Result<String> {
    let mut entries = entries.to_vec();
    for entry in &mut entries {
        order_managers(&mut entry.value);
        replace_times(&mut entry.value);
    }
    let mut lines: Vec<String> = entries.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    rename_pods(&entries, &mut lines);
    // Names have changed: only now is the order of the keys the same each time.
    lines.sort_unstable();
    let mut text = lines.join(",\n");
    for (number, uid) in uids(&lines)?.iter().enumerate() {
        text = text.replace(uid, &format!("{UID}{number:04}"));
    }
    let quoted = serde_json::to_string(ca)?;
    text = text.replace(quoted.trim_matches('"'), CA_PEM).replace(&STANDARD.encode(ca), CA);
    Ok(format!("[\n{text}\n]\n"))
}

/// Managers of fields are kept in the order of their times, which is another each time.
fn order_managers(object: &mut Value) {
    if let Some(managers) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        managers.sort_by_key(|one| (word(one, "manager"), word(one, "operation"), word(one, "subresource")));
    }
}

fn replace_times(value: &mut Value) {
    match value {
        Value::String(text) if text.len() == 20 && text.parse::<jiff::Timestamp>().is_ok() => TIME.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(replace_times),
        Value::Object(map) => map.values_mut().for_each(replace_times),
        _ => {}
    }
}

/// Gives pods, and their volumes for credentials, names that are the same each time.
fn rename_pods(entries: &[Entry], lines: &mut [String]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (entry, line) in entries.iter().zip(lines).filter(|(entry, _)| is_pod(entry)) {
        let metadata = &entry.value["metadata"];
        let (Some(name), Some(stem)) = (metadata["name"].as_str(), metadata["generateName"].as_str()) else { continue };
        let count = counts.entry(stem).or_default();
        *line = line.replace(name, &format!("{stem}{}", suffix(stem, *count)));
        *count += 1;
        let volumes = entry.value["spec"]["volumes"].as_array().into_iter().flatten();
        let names = volumes.filter_map(|volume| volume["name"].as_str());
        if let Some(volume) = names.into_iter().find(|name| name.starts_with("kube-api-access-")) {
            *line = line.replace(volume, &format!("kube-api-access-{}", suffix(stem, *count)));
        }
    }
}

/// Five letters as Kubernetes makes them (`k8s.io/apimachinery/pkg/util/rand`); in order of `count`.
fn suffix(stem: &str, count: usize) -> String {
    const LETTERS: &[u8] = b"2456789bcdfghjklmnpqrstvwxz";
    let letter = |index: usize| char::from(LETTERS[index % LETTERS.len()]);
    let hash = Sha256::digest(stem);
    hash[..4].iter().map(|&byte| letter(byte.into())).chain([letter(count)]).collect()
}

/// The UIDs of all objects, in the order of the lines.
fn uids(lines: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for line in lines {
        let entry: Entry = serde_json::from_str(line)?;
        match entry.value.pointer("/metadata/uid") {
            Some(Value::String(uid)) if uid.len() == 36 => found.push(uid.clone()),
            // Allocators of addresses are no objects of the API.
            None => {}
            Some(other) => bail!("`{}` has the UID {other}", entry.key),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::{bound_pods, canonical, read};

    const CA: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

    /// An answer of etcdctl for one run: its UIDs, its time, its random letters.
    fn answer(run: char, time: &str, letters: [&str; 2]) -> Vec<u8> {
        let uid = |n: u32| format!("{run}000000{n}-0000-4000-8000-000000000000");
        let pod = |name: &str, n: u32| {
            let manager = |name: &str| json!({"manager": name, "operation": "Update", "time": time});
            let managers = if run == 'a' { [manager("a"), manager("b")] } else { [manager("b"), manager("a")] };
            let object = json!({
                "kind": "Pod",
                "metadata": {
                    "name": name, "generateName": "coredns-", "uid": uid(n), "creationTimestamp": time,
                    "ownerReferences": [{"uid": uid(1)}], "managedFields": managers,
                },
                "spec": {"nodeName": "foothold-node-name", "volumes": [{"name": format!("kube-api-access-{run}{n}")}]},
            });
            (format!("/registry/pods/kube-system/{name}"), object)
        };
        let mut all = vec![
            ("/registry/replicasets/kube-system/coredns".to_owned(), json!({"metadata": {"uid": uid(1)}})),
            ("/registry/ranges/serviceips".to_owned(), json!({"range": "10.96.0.0/12"})),
            ("/registry/events/default/x".to_owned(), json!({"metadata": {"uid": uid(8)}})),
            ("/registry/minions/foothold-node-name".to_owned(), json!({"metadata": {"uid": uid(9)}})),
            (
                "/registry/configmaps/default/kube-root-ca.crt".to_owned(),
                json!({"metadata": {"uid": uid(4)}, "data": {"ca.crt": CA}}),
            ),
            (
                "/registry/configmaps/kube-public/cluster-info".to_owned(),
                json!({"metadata": {"uid": uid(5)}, "data": {"kubeconfig": format!("authority: {}", STANDARD.encode(CA))}}),
            ),
        ];
        all.extend([pod(&format!("coredns-{}", letters[0]), 2), pod(&format!("coredns-{}", letters[1]), 3)]);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let kvs: Vec<Value> = all
            .iter()
            .map(|(key, value)| json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value.to_string())}))
            .collect();
        serde_json::to_vec(&json!({"kvs": kvs})).expect("JSON")
    }

    #[test]
    fn two_runs_give_the_same_state_and_nothing_of_either_is_left() {
        let one = read(&answer('a', "2026-01-02T03:04:05Z", ["bbbbb", "zzzzz"])).expect("entries");
        let two = read(&answer('b', "2031-01-02T03:04:05Z", ["ccccc", "ddddd"])).expect("entries");
        assert_eq!(bound_pods(&one), 2);
        let text = canonical(&one, CA).expect("a state");
        assert_eq!(text, canonical(&two, CA).expect("a state"));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_secret_is_not_carried() {
        let secret =
            json!({"kvs": [{"key": STANDARD.encode("/registry/secrets/default/x"), "value": STANDARD.encode("{}")}]});
        let entries = read(secret.to_string().as_bytes()).expect("entries");
        let error = canonical(&entries, CA).expect_err("a secret").to_string();
        assert!(error.contains("/registry/secrets/"), "{error}");
    }

    #[test]
    fn values_that_are_not_json_are_named() {
        let kvs = json!({"kvs": [{"key": STANDARD.encode("/registry/pods/a"), "value": STANDARD.encode("k8s\0")}]});
        let error = read(kvs.to_string().as_bytes()).expect_err("protobuf").to_string();
        assert_eq!(error, "`/registry/pods/a` is no JSON");
    }
}
