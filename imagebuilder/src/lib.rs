//! The `foothold` command: one file in, bootable images out.

pub mod boot;
pub mod cli;
pub mod commands;
pub mod config;
pub mod disk;
pub mod error;
pub mod format;
pub mod layer;
pub mod lint;
pub mod report;
pub mod signals;
pub mod host;
pub mod kubernetes;
pub mod lock;
pub mod medium;
pub mod oci;
pub mod release;
pub mod rootfs;
pub mod store;
pub mod toolbox;
pub mod pipeline;
