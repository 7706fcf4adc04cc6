//! Runs an image in a virtual machine, and lets go of everything when the handle is dropped.
//!
//! Modules, each of which uses only those below it:
//!
//! ```text
//! site      servers behind BMCs on a network of their own
//! bmc       an emulated BMC before a machine: Redfish, or IPMI over LAN
//! builder   VmBuilder: what machine, checked and started
//! vm        Vm: the running machine
//! argv      validated machine -> command line (pure)
//! journal   events, serial output, and waiting for them
//! qmp       the machine protocol: codec and client
//! accel     KVM or software emulation, found out by booting
//! disk      disks and CDs that are plugged in
//! network   cards that are plugged in
//! tap       cards of this host's own network
//! firmware  SeaBIOS, OVMF, OVMF with Secure Boot
//! tools     QEMU, qemu-img and firmware of the toolbox tree, run without chroot
//! host      the one door to processes, scratch folders and ports
//! ```
//!
//! ```text
//!  toolbox tree ──Tools──┐
//!  "does KVM run?" ─Accel┤
//!                        ▼
//!  VmBuilder ──check──► Machine ──argv──► qemu-system-x86_64 (PDEATHSIG, own process group)
//!   disks, nics,         files,            │ QMP        ─► Qmp      power, keys, screen, cables
//!   firmware, clock      ports, fds        │ ttyS0      ─► Journal  serial text
//!                                          │ org.foothold.events ─► Journal  one JSON object a line
//!                                          │ stderr     ─► Journal  what QEMU itself complains about
//!                                          ▼
//!                                         Vm: wait_until, screenshot, kill, reset, keep; Drop ends it
//! ```
//!
//! QEMU talks over socket pairs it inherits, and every scratch file is unlinked as soon as QEMU has
//! opened it: a runner that is killed leaves no process, no socket and no file behind.
//!
//! ```no_run
//! use std::time::Duration;
//! use foothold_qemu::{Disk, Firmware, Nic, Patience, Tools, VmBuilder};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tools = Tools::locate()?;
//! let builder = VmBuilder::new(&tools, "box")
//!     .firmware(Firmware::Uefi)
//!     .boot(Disk::open("box.qcow2")?.grow_to(16 << 30))
//!     .nic(Nic::user(&[8443, 6443]));
//! let mut vm = builder.start()?;
//! let patience = Patience::stall(Duration::from_secs(60));
//! vm.wait_until(patience, "every service to answer", |event| event["phase"] == "ready" && event["state"] == "done")?;
//! let web = vm.forwarded(8443);
//! # let _ = web;
//! # Ok(())
//! # }
//! ```

pub mod accel;
mod argv;
pub mod bmc;
pub mod builder;
pub mod disk;
pub mod firmware;
mod host;
pub mod journal;
pub mod network;
pub mod qmp;
pub mod site;
pub mod tap;
pub mod tools;
pub mod vm;

pub use accel::Accel;
pub use argv::BootSource;
pub use builder::{Serial, StartError, VmBuilder};
pub use disk::{Bus, Disk, Format, Writes};
pub use firmware::Firmware;
pub use host::in_network_of_process;
pub use journal::{EventLine, Mirror, Patience, WaitError};
pub use network::{Nic, NicModel, Segment, Tap};
pub use tap::TapDevice;
pub use tools::Tools;
pub use vm::{Events, Vm, VmError};
