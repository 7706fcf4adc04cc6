use std::collections::BTreeSet;

use agent_api::events::Phase;

use super::{clusters, dhcp, ironic, metal3, metrics, registry, sip, storage, vino};

#[test]
fn each_step_has_a_name_of_its_own_in_its_phase() {
    let own = [&registry::STEP, &ironic::STEP, &metal3::STEP, &dhcp::STEP, &metrics::STEP, &storage::STEP];
    let steps = own.into_iter().chain([&clusters::STEP, &sip::STEP, &vino::STEP]).collect::<Vec<_>>();
    assert!(steps.iter().all(|step| step.phase.name() == Phase::Services.name()));
    assert_eq!(steps.iter().map(|step| step.name).collect::<BTreeSet<_>>().len(), steps.len());
}
