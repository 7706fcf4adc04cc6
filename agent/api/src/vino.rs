//! Virtual machines as hosts of a site. Group, kinds, fields, labels, names and reasons of `airship.airshipit.org/v1` are those
//! of Airship's `ViNO`, so that its users' files go on working.
//!
//! ```text
//! Vino      nodes, networks, virtual machines on them    user writes, controller reports
//! IPPool    addresses of a subnet, and who has which     controller writes
//! values    what a node makes, what it says of that      controller and the node's pod, by annotations
//! ```

pub mod crds;
pub mod pool;
pub mod spec;
pub mod values;

pub use pool::{IpPool, IpPoolSpec};
pub use spec::{Vino, VinoSpec, VinoStatus};
