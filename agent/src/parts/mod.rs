//! The box's services on a node that someone else set up with kubeadm, as `foothold export` hands them out.
//!
//! ```text
//! builder:  release ─print─► objects of each part, with a chart's values ─► Helm chart
//! node:     chart ─► operators as Deployments, their folders by `folder`
//!                └─► one pod on the control plane: `node` ─► Ironic, DHCP, registry as on the box: laid out, followed,
//!                                                           static pods of the kubelet, ports 5000, 6180, 6385, 9015
//! ```
//! Nothing of a service is written twice: the objects are those of [`crate::services`], and the same code runs. The
//! differences: images come from a registry, the namespace is the chart's, and a Site names network and access.

pub mod command;
mod node;
mod print;

pub use node::{NodeSettings, run};
pub use print::{Part, print};
