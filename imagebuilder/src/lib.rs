//! The `foothold` command: one file in, bootable images out.
//!
//! Each module may use those that stand below it.
//!
//! ```text
//! commands    what the user asks for: one module each
//! cli         the words of the command line
//! signals     signals of the process ask everything to stop
//! pipeline    the build: lock, toolbox, stages, release, outputs
//! stages      the stages of a build as data, and what makes them
//! kubespray   what kubespray downloads, out of what a release carries
//! export      a release's services for a cluster that someone else set up
//! bundle      what turns one release into the next, as one signed file
//! medium      an image or device that was written: read, checked, proved
//! content     what an image carries for its site: packages, images, files, manifests
//! ramdisk     the system that servers of the site boot while they are written
//! osimage     disk images for servers of the site
//! release     manifest, initrd, list of parts, signature
//! kubernetes  its programs and what its own tools print
//! layer       the read-only layers of an image
//! oci         container images that are made here, and their import
//! builder     what every stage may use, and the builder's own package lists
//! report      progress, results, errors, exit codes
//! format      raw, qcow2 and iso files
//! boot        boot partition, GRUB, its menu
//! rootfs      Debian trees: unpacked, trimmed, scrubbed
//! toolbox     foreign tools in a tree of their own
//! disk        file systems and partition tables, written directly
//! lock        exact versions and digests, and how they are fetched
//! config      definitions: read, checked, typed
//! problems    what is wrong with a file of the user, and how it is shown
//! running     boxes that run on this machine, and kubectl for them
//! store       the cache: blobs and stages by digest
//! host        the only door to the machine
//! error       marks on an error that decide the exit code; the flag to stop
//! fixtures    what tests of several modules begin with
//! ```

pub mod boot;
pub mod builder;
pub mod bundle;
pub mod cli;
pub mod commands;
pub mod config;
pub mod content;
pub mod disk;
pub mod error;
pub mod export;
#[cfg(test)]
mod fixtures;
pub mod format;
pub mod host;
pub mod kubernetes;
pub mod kubespray;
pub mod layer;
pub mod lock;
pub mod medium;
pub mod oci;
pub mod osimage;
pub mod pipeline;
pub mod problems;
pub mod ramdisk;
pub mod release;
pub mod report;
pub mod rootfs;
pub mod running;
pub mod signals;
pub mod stages;
pub mod store;
pub mod toolbox;
