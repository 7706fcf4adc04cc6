//! The registry on port 5000: what the release carries, read in place, and what was uploaded since.
//!
//! ```text
//! release.json ─► catalog ─► tree: folders and links in memory ─┐ lower        pod: `distribution`, on a socket
//!                    │       DATA: uploads ─────────────────────┴ upper ─────► of the box that only root reaches
//!                    │                                                            ▲
//! site, containerd ──┴─► front: blobs and manifests of the release, the rest ─────┘ proxy (who may write, how much)
//!                                └─► pulls: what was asked for, and what is not there
//! collect: uploads that nothing names any more, away from the upper tree while nobody pushes
//! ```
//! An image is there twice: under its whole name (`docker.io/library/nginx`), which is what containerd asks for when
//! this box stands in for every registry (`?ns=docker.io`), and under its path alone (`library/nginx`).

pub mod catalog;
pub mod collect;
pub mod front;
mod login;
mod manifest;
pub mod pod;
mod proxy;
pub mod storage;
pub mod tree;

pub use front::Front;
pub use storage::RegistryStorage;
