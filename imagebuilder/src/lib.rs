//! The `foothold` command: one file in, bootable images out.

pub mod boot;
pub mod cli;
pub mod commands;
pub mod config;
pub mod content;
pub mod disk;
pub mod error;
pub mod format;
pub mod host;
pub mod kubernetes;
pub mod layer;
pub mod lint;
pub mod lock;
pub mod medium;
pub mod oci;
pub mod osimage;
pub mod pipeline;
pub mod ramdisk;
pub mod release;
pub mod report;
pub mod rootfs;
pub mod signals;
pub mod store;
pub mod toolbox;
