//! The box's REST servers: routes and what they answer with. Who may ask is the [door](crate::door)'s.
//!
//! ```text
//! web      HTTPS on 8443: web page, REST, event stream
//! uploads  HTTPS on 9015: the REST of the Binary Provisioning Agent
//! ```

pub mod uploads;
pub mod web;
