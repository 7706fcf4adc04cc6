//! HTTP within the site, without authorities that would be trusted.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::tls::TlsInfo;
use reqwest::{Certificate, Client, ClientBuilder};

/// A client of the box's own HTTP services. No authority is trusted, and so none need be there: pods have no certificates of
/// their system, without which a client that trusts those is not even made.
pub fn plain() -> ClientBuilder {
    Client::builder().tls_certs_only(std::iter::empty::<Certificate>()).no_proxy()
}

/// The certificate with which a server answers at an address, as DER. It is not checked. `None` if nobody answers in time.
pub async fn served_certificate(at: SocketAddr, within: Duration) -> Option<Vec<u8>> {
    let client = plain().timeout(within).tls_info(true).tls_danger_accept_invalid_certs(true).build().ok()?;
    let answer = client.get(format!("https://{at}/livez")).send().await.ok()?;
    Some(answer.extensions().get::<TlsInfo>()?.peer_certificate()?.to_vec())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_client_is_made_without_any_authority() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        plain().build().expect("a client");
        plain().tls_danger_accept_invalid_certs(true).build().expect("a client that takes any certificate");
    }

    #[tokio::test]
    async fn a_certificate_is_seen_as_it_is_served() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate");
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![own.der().clone()], secret).expect("a configuration");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("its address");
        let server = async {
            let (stream, _) = listener.accept().await.expect("a client");
            let mut stream = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("TLS");
            stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.expect("answered");
            stream.shutdown().await.expect("closed");
        };
        let (seen, ()) = tokio::join!(served_certificate(at, Duration::from_secs(20)), server);
        assert_eq!(seen.as_deref(), Some(own.der().as_ref()));
        drop(listener);
        assert_eq!(served_certificate(at, Duration::from_secs(20)).await, None, "nobody listens");
    }
}
