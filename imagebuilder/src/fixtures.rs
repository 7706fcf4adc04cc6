//! What tests of several modules begin with.

use agent_api::proof::{Budget, ImageFile, Machine, Proof, Start};

/// A proof of that release.
pub fn proof_of(id: &str) -> Proof {
    Proof {
        api_version: "foothold.dev/v1".to_owned(),
        kind: "Proof".to_owned(),
        release: id.to_owned(),
        builder: "0.1.0".to_owned(),
        date: "2026-03-01T12:00:05Z".to_owned(),
        machine: Machine {
            accel: "tcg".to_owned(),
            cpus: 2,
            memory_mib: 4096,
            firmware: "uefi".to_owned(),
            network: "none".to_owned(),
        },
        image: ImageFile { format: "qcow2".to_owned(), bytes: 1 << 20 },
        first_boot: Start { ready_secs: 53.2, ..Start::default() },
        reboot: Start { ready_secs: 35.1, ..Start::default() },
        budgets: vec![Budget::at_most("readyWithin", "s", 60.0, 53.2)],
    }
}
