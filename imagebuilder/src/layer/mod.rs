//! Layers: read-only squashfs files with a dm-verity tree behind the data.

pub mod verity;
