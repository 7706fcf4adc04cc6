//! The contract between builder and box, without any I/O.
//!
//! ```text
//! release  what an image holds            builder writes, initrd verifies
//! site     what is particular to a place  user writes, agent reads
//! image    names of container images      both read them the same way
//! boot     what the initrd found          initrd writes, agent reads
//! events   what happens, step by step     agent writes; console, REST, `foothold run` read
//! rest     bodies of the box's REST       agent answers; web page, `foothold run` ask
//! ports    who may be reached             agent enforces, README tells
//! ```

pub mod boot;
pub mod events;
pub mod image;
pub mod ports;
pub mod release;
pub mod rest;
pub mod site;
