//! How the box lets clients in, for all of its servers: who may, under which certificate, within which limits.
//!
//! ```text
//! authority    the box's own certificate authority     certificate  what servers show: follows the box's addresses
//! access       who may come in: Site's token, or the claim code on the console
//! server       listeners, TLS, limits on connections
//! guard        before each route: the token, the time for an answer, headers
//! refusal      error answers
//! body         response bodies that are produced while they are sent
//! incoming     request bodies as a stream
//! ```
//! A server of the box brings its routes, and takes the rest from here.

mod access;
mod authority;
pub(crate) mod body;
pub mod certificate;
pub(crate) mod guard;
pub(crate) mod incoming;
pub(crate) mod refusal;
pub(crate) mod server;

pub use access::{ClaimError, Gate, Verdict, follow_site};
pub use authority::CertificateError;
pub(crate) use body::Fed;
pub use certificate::{CERTIFICATES, Certificate, certificate_at, own_certificate};
pub(crate) use refusal::Refusal;
pub use server::tls;

/// TLS for the tests of other servers.
#[cfg(test)]
pub mod testing {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::authority::{Authority, names_of};
    use super::certificate::Resolver;
    use super::server;

    /// A configuration, and the authority that a client must trust.
    pub fn tls() -> (rustls::ServerConfig, String) {
        let authority = Authority::in_memory(1_790_000_000).expect("made");
        let key = authority.serve(&names_of("", &[]), SystemTime::now()).expect("issued");
        (server::tls(Arc::new(Resolver::new(key))).expect("a configuration"), authority.pem())
    }
}
