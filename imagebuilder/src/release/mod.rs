//! The release: initrd, manifest, signature.
//!
//! ```text
//! agent + modules + public key --> initrd ┐
//! layers, kernel, images, packages -------┴--> release.json --minisign--> release.json.minisig
//!                                         └--> sbom.spdx.json, signed on its own
//! ```

pub mod initrd;
pub use agent_api::openpgp;
pub mod sbom;
pub mod sign;
#[cfg(test)]
pub(crate) mod testbench;
