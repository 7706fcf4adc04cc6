//! The release: initrd, manifest, signature.
//!
//! ```text
//! agent + modules + public key --> initrd ┐
//! layers, kernel, images, packages -------┴--> release.json --minisign--> release.json.minisig
//!                                         └--> sbom.spdx.json, signed on its own
//! release A, release B ------------------------> bundle: what turns A into B, signed
//! ```

pub mod bundle;
pub mod initrd;
pub use agent_api::openpgp;
pub mod sbom;
pub mod sign;
