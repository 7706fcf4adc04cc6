//! The contract between builder and box, without any I/O.
//!
//! Each module uses only those below it.
//!
//! ```text
//! report   what lies on SITE afterwards      agent writes, user reads
//! bpa      uploads by REST, routes and document  agent answers; clients of Akraino ICN ask
//! rest     the box's REST: routes, bodies  agent answers; web page, `foothold run` ask
//! clusters application clusters, their software   users of Akraino ICN write, agent reads and reports
//! vino     virtual machines as hosts       users of Airship write, controller and the nodes' pods read and report
//! sip      tenant clusters: hosts, what stands before them   users of Airship write, agent reads and reports
//! openapi  what documents of REST have in common
//! rehearsal  what a site's BMCs answered    agent answers; people read
//! host_story  servers' signs of life       agent answers; controller, people read
//! metal3   resources of metal3.io         users and Cluster API write, agent reads and reports
//! meta     what objects of all groups share   conditions, times
//! boot     what the initrd found          initrd writes, agent reads
//! bundle   what turns a release into one  `foothold diff` writes, agent takes
//! image    names of container images      both read them the same way
//! oci      documents of container images  builder and agent read them out of registries and archives
//! menu     GRUB's menu                   builder writes it for an image, the box for a release that came later
//! console  consoles of the kernel         definition, recipes and menu say them the same way
//! proof    how its boot was measured      `foothold prove` writes, initrd verifies, agent reads
//! site     what is particular to a place  user writes, agent reads
//! hash     SHA-256 of bytes on their way    whoever reads or writes and wants the digest, too
//! release  what an image holds            builder writes, initrd verifies
//! servers  the network of the site's servers  user writes in definition or site, both read it
//! net      MAC addresses, subnets, ranges     definition, Site and cluster say them the same way
//! events   what happens, step by step     agent writes; console, REST, `foothold run` read
//! openpgp  signatures that apt reads           builder and agent sign their repositories
//! ports    who may be reached             agent enforces, README tells
//! encrypted  what was left encrypted        people encrypt; agent says so
//! yaml     how much of it is read at once   whoever reads files of users
//! committed  for tests: files that are made from types
//! ```

pub mod boot;
pub mod bpa;
pub mod bundle;
pub mod clusters;
#[cfg(test)]
mod committed;
pub mod console;
pub mod encrypted;
pub mod events;
pub mod hash;
pub mod host_story;
pub mod image;
pub mod menu;
pub mod meta;
pub mod metal3;
pub mod net;
pub mod oci;
mod openapi;
pub mod openpgp;
pub mod ports;
pub mod proof;
pub mod rehearsal;
pub mod release;
pub mod report;
pub mod rest;
pub mod servers;
pub mod sip;
pub mod site;
pub mod vino;
pub mod yaml;
