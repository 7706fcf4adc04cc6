//! Kubernetes: its programs and what kubeadm renders.

pub mod binaries;
pub mod modules;
pub mod render;
pub mod templates;
