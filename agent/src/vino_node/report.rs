//! The report of a pass: what is there, and why something is not as it is asked for. Pure.

use std::collections::BTreeMap;

use agent_api::vino::values::{Accelerator, DomainReport, DomainState, NetworkReport, NodeReport};

use super::ledger::Ledger;
use super::plan::About;
use super::there::There;
use super::wanted::Wanted;

/// The report. `there`: after the pass.
pub fn report(
    hash: &str,
    accelerator: Accelerator,
    there: &There,
    wanted: &Wanted,
    ledger: &Ledger,
    wrong: &BTreeMap<About, String>,
) -> NodeReport {
    let names = ledger.domains.keys().chain(wanted.domains.keys()).collect::<std::collections::BTreeSet<_>>();
    let domains = names.into_iter().map(|name| {
        let entry = ledger.domains.get(name);
        // A domain of somebody else is not ours to tell of, but for why ours is not there.
        let state = entry.and_then(|_| there.domains.get(name)).copied().unwrap_or(DomainState::Absent);
        DomainReport {
            name: name.clone(),
            state,
            restart_pending: entry.is_some_and(|entry| entry.pending.is_some()),
            error: wrong.get(&About::Domain(name.clone())).cloned(),
        }
    });
    let names = ledger.networks.keys().chain(wanted.networks.keys()).collect::<std::collections::BTreeSet<_>>();
    let networks = names
        .into_iter()
        .map(|name| NetworkReport { name: name.clone(), error: wrong.get(&About::Network(name.clone())).cloned() });
    let pools = wrong.iter().filter_map(|(about, error)| match about {
        About::Pool(name) => Some(format!("pool `{name}`: {error}")),
        About::Network(_) | About::Domain(_) => None,
    });
    NodeReport {
        hash: hash.to_owned(),
        accelerator: Some(accelerator),
        domains: domains.collect(),
        networks: networks.collect(),
        errors: wanted.errors.iter().cloned().chain(pools).collect(),
    }
}
