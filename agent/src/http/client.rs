//! HTTP within the site, without TLS.

use reqwest::{Certificate, Client, ClientBuilder};

/// A client of the box's own HTTP services. No authority is trusted, and so none need be there: pods have no certificates of
/// their system, without which a client that trusts those is not even made.
pub fn plain() -> ClientBuilder {
    Client::builder().tls_certs_only(std::iter::empty::<Certificate>()).no_proxy()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_client_is_made_without_any_authority() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        super::plain().build().expect("a client");
        super::plain().tls_danger_accept_invalid_certs(true).build().expect("a client that takes any certificate");
    }
}
