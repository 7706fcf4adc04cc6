//! Who may use which part of Ironic's API. Pure.
//!
//! Ironic asks no password for these (its API reference, "Utility"): the versions, look-ups by MAC address, which give a
//! node's id and the token of its agent, signs of life with that token, and what an inspection found. Everything else wants
//! Ironic's user and password, and is left to it.

use std::collections::BTreeSet;

use agent_api::net::MacAddress;
use reqwest::Url;
use serde_json::Value;

use super::Known;
use crate::http::decode;

/// Paths that need no password, as lists of their parts.
const OPEN: [&str; 3] = ["lookup", "heartbeat", "continue_inspection"];

/// What is done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is passed on to Ironic with this query.
    Pass(String),
    /// It is passed on if its body is about the machine that asks.
    PassReport,
    /// It is refused, for this reason.
    Refuse(String),
}

fn refuse(why: impl Into<String>) -> Verdict {
    Verdict::Refuse(why.into())
}

/// The verdict on a request for `path` with `query`, both as they were sent.
pub(super) fn verdict(known: &Known, path: &str, query: &str) -> Verdict {
    let pass = || Verdict::Pass(query.to_owned());
    if known.is_own() {
        return pass();
    }
    if !known.is_server() {
        return refuse("neither on the network of the servers, nor an address of one of them");
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] | ["v1"] | ["v1", "heartbeat", _] => pass(),
        ["v1", "lookup"] => lookup(known, query),
        ["v1", "continue_inspection"] => {
            if known.macs().is_empty() {
                refuse("no server is known by this address")
            } else {
                Verdict::PassReport
            }
        }
        // Other spellings of an open path: Ironic's router may take them for the same.
        _ if is_like_open(path) => refuse("the path is not written as Ironic's API has it"),
        _ => pass(),
    }
}

fn is_like_open(path: &str) -> bool {
    // What cannot be decoded is like anything.
    decode(path).is_none_or(|path| OPEN.iter().any(|open| path.to_lowercase().contains(open)))
}

/// A look-up by MAC address. Only MAC addresses of the machine that asks stay in it. A node's id is removed, because Ironic
/// would find the node for anybody.
fn lookup(known: &Known, query: &str) -> Verdict {
    let own = known.macs();
    let Ok(mut url) = Url::parse(&format!("http://ironic/?{query}")) else { return refuse("the query cannot be read") };
    let asked: Vec<String> = url
        .query_pairs()
        .filter(|(key, _)| key == "addresses")
        .flat_map(|(_, all)| all.split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let is_own = |text: &&String| MacAddress::from_any(text).is_some_and(|mac| own.contains(&mac));
    let allowed: Vec<&str> = asked.iter().filter(is_own).map(String::as_str).collect();
    if allowed.is_empty() {
        let told: Vec<&str> = asked.iter().map(String::as_str).take(8).collect();
        return refuse(format!("no lease, and no address that was told, is that of {}", told.join(", ")));
    }
    url.query_pairs_mut().clear().append_pair("addresses", &allowed.join(","));
    Verdict::Pass(url.query().unwrap_or_default().to_owned())
}

/// Whether the result of an inspection is about the machine that sends it: one of its cards belongs to that machine, and
/// none to another server.
pub(super) fn is_of_sender(known: &Known, report: &Value) -> Result<(), String> {
    let own = known.macs();
    let cards = report["inventory"]["interfaces"].as_array();
    let sent: BTreeSet<MacAddress> =
        cards.into_iter().flatten().filter_map(|card| MacAddress::from_any(card["mac_address"].as_str()?)).collect();
    if sent.is_disjoint(&own) {
        return Err("none of its cards is one of the sender's".to_owned());
    }
    for server in &known.servers {
        if let Some(mac) = known.cards_of(server).find(|mac| sent.contains(mac) && !own.contains(mac)) {
            return Err(format!("the card {mac} is another server's"));
        }
    }
    Ok(())
}
