//! What the box does for the other servers of its site.

pub mod segment;
