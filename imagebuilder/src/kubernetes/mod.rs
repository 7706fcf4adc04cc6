//! Kubernetes: its programs and what kubeadm renders.

pub mod binaries;
pub mod modules;
pub mod rehearsal;
pub mod render;
pub mod state;
pub mod templates;
