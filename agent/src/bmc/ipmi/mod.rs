//! IPMI 2.0 over LAN, as much as reading and serial lines take: RMCP+ with RAKP, HMAC-SHA256 or -SHA1, AES-CBC-128.
//!
//! ```text
//! client: UDP, tries, deadline
//!    │  Get Channel Authentication Capabilities ─► does anybody answer, is it IPMI 2.0
//!    │  Open Session, RAKP 1-4 ─────────────────► handshake ─► Keys       is the password right
//!    ├─ sealed commands ────────────────────────► command  ─► wire::Keys::seal / open
//!    └─ Activate Payload: a serial line ────────► sol
//! ```
//!
//! By "Intelligent Platform Management Interface Specification", second generation, v2.0, revision 1.1; numbers in
//! comments are its sections. Codecs (`wire`, `handshake`, `command`) do no I/O. Of all commands only those that read
//! exist here, those that open, raise and close our own session, and those of its serial line.
//!
//! It is written by hand because the crate `ipmi-rs` is synchronous, and says of a refused session only that it failed: who
//! rehearses must know which of user, password, cipher suite and privilege was refused.

mod client;
mod command;
mod handshake;
mod sol;
mod wire;

pub(super) use client::RMCP_PORT;
pub use client::{Client, IpmiError, Login};
pub use command::{BootOptions, ChassisStatus, DeviceId, Privilege};
pub use handshake::Refused;
pub use sol::{LineError, SerialLine};
pub use wire::WireError;
