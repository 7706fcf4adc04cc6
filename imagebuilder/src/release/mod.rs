//! The release: initrd, manifest, signature.
//!
//! ```text
//! agent + modules + public key --> initrd ┐
//! layers, kernel, images, packages -------┴--> release.json --minisign--> release.json.minisig
//! ```

pub mod initrd;
pub use agent_api::openpgp;
pub mod sign;
