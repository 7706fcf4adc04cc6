//! Layers: read-only squashfs files with a dm-verity tree behind the data, bottom up.
//!
//! ```text
//! os          Debian            appliance   agent, overlay/, rendered templates
//! kubernetes  kubelet, CNI, ... containers  unpacked images and containerd's metadata
//! ```

pub mod agent;
pub mod appliance;
pub mod containers;
pub mod kubernetes;
pub mod os;
pub mod seal;
pub mod squashfs;
pub mod verity;
