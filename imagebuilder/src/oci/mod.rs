//! Container images that the builder makes, and containerd's state in which they are already unpacked.
//!
//! ```text
//! images/<name>/image.yaml --recipe--> tree --tar--> OCI layout --containerd import, once--> two bolt databases
//! ```

pub mod bolt;
pub mod import;
pub mod layout;
pub mod recipe;
pub mod service;
pub mod tarball;
