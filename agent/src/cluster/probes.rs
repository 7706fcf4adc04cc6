//! How patient the kubelet is with the pods of the box: as kubeadm has it with the control plane. Kubernetes' own default, one
//! second, ends programs of a machine that is only slow.

use k8s_openapi::api::core::v1::Probe;

/// Seconds within which an answer counts.
pub const TIMEOUT_SECS: i32 = 15;
/// Failures in a row after which a program is ended.
pub const FAILURES: i32 = 8;

/// A probe that ends the program.
pub fn of_life(probe: Probe) -> Probe {
    Probe { timeout_seconds: Some(TIMEOUT_SECS), failure_threshold: Some(FAILURES), ..probe }
}

/// A probe on which others wait.
pub fn of_readiness(probe: Probe) -> Probe {
    Probe { timeout_seconds: Some(TIMEOUT_SECS), ..probe }
}
