//! The box's one static binary.
//!
//! A module imports from those below it, never from one above:
//! ```text
//! cli         the commands: who is called as init, as the daemon, as an operator
//! parts       services of the box on a node that someone else set up
//! daemon      the service on the booted box: owns all tasks
//! first_boot  after it: observe, decide, act, record, phase by phase until ready
//! init        in the initrd: finds the medium, verifies it, makes DATA, switches root
//! console     what somebody in front of the box sees: tty1 and serial lines
//! rest        HTTPS on 8443: web page, REST, event stream; on 9015: uploads by REST
//! vino_node   virtual machines of a node that are hosts of a site: libvirt, Redfish before it, and who makes them
//! operators   controllers of the cluster's resources
//! support     report, inventory and support bundle: by REST, and on the SITE partition
//! services    the pods that the box runs beside its cluster: one service each, in one list
//! signs       signs of life of servers that are provisioned, and what is waited for
//! import      what other systems know of a site, as objects of the box: Akraino ICN's hosts
//! ramdisk     network of a server, in the deploy ramdisk and in an OS image
//! provisioning  Ironic: its configuration, database, credentials; DHCP, TFTP and network boot, guarded
//! bmc         BMCs of the site: Redfish and IPMI, rehearsal
//! ironic      Ironic's API, as much as the operators need of it
//! helm        charts on an application cluster, by Helm
//! node        a server's part in an application cluster: containerd, kubeadm
//! ssh         servers over SSH: programs, files
//! registry    images for the box and its site, on port 5000
//! uploads     what was uploaded, on DATA, and who may need it
//! releases    what was sent to run next: taken, verified, kept
//! content     what the box holds for its site, by path
//! door        who may come in, TLS, limits: for all of the box's servers
//! machine     the box as its steps and services see it
//! cluster     keys, kubeconfigs, static pods and objects, as kubeadm lays them out
//! steps       the engine of steps, and the ledger of what was done, across power cuts
//! http        files over HTTP/1.1, with sendfile
//! listen      sockets that listen, and how many may connect
//! pulls       images that the box asks for, recorded
//! medium      damage of the medium, as the guard finds it, told on the bus
//! usage       memory and disk, now and at most
//! vitals      memory, addresses, medium: facts that are no events
//! containerd  its state with every image of the box, out of the layer that has them
//! eta         when it will be ready, by the release's proof
//! events      what happens, step by step, and the status that follows
//! disk        disks of the box: what they hold, where DATA goes, how a medium gets on one
//! tarball     members of tar archives, within bounds
//! terminal    what a command prints
//! fixtures    what tests of several modules begin with
//! host        the only door to the machine: programs, mounts, devices, modules, clock
//! ```

pub mod bmc;
pub mod cli;
pub mod cluster;
pub mod console;
pub mod containerd;
pub mod content;
pub mod daemon;
pub mod disk;
pub mod door;
pub mod eta;
pub mod events;
pub mod first_boot;
#[cfg(test)]
pub mod fixtures;
pub mod helm;
pub mod host;
pub mod http;
pub mod import;
pub mod init;
pub mod ironic;
pub mod listen;
pub mod machine;
pub mod medium;
pub mod node;
pub mod operators;
pub mod parts;
pub mod provisioning;
pub mod pulls;
pub mod ramdisk;
pub mod registry;
pub mod releases;
pub mod rest;
pub mod services;
pub mod signs;
pub mod ssh;
pub mod steps;
pub mod support;
pub mod tarball;
pub mod terminal;
pub mod uploads;
pub mod usage;
pub mod vino_node;
pub mod vitals;
