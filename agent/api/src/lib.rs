//! The contract between builder and box, without any I/O.
//!
//! ```text
//! release  what an image holds            builder writes, initrd verifies
//! site     what is particular to a place  user writes, agent reads
//! boot     what the initrd found          initrd writes, agent reads
//! events   what happens, step by step     agent writes; console, REST, `foothold run` read
//! report   what lies on SITE afterwards      agent writes, user reads
//! rest     bodies of the box's REST       agent answers; web page, `foothold run` ask
//! ports    who may be reached             agent enforces, README tells
//! ```

pub mod boot;
pub mod events;
pub mod ports;
pub mod release;
pub mod report;
pub mod rest;
pub mod site;
