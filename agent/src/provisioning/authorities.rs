//! The certificate authorities that Ironic trusts at BMCs: `ca.crt` of all hosts' Secrets in one file. Ironic reads the file
//! for each connection.
//!
//! ```text
//! Secrets with username, password, ca.crt ─of_secret──► certificates ─┐
//! the box's own authority ────────────────────────────────────────────┴─text─► RUN/FILE ─► `redfish_verify_ca`
//! ```

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

/// The file, in [`super::RUN`]. It is never empty: Ironic takes no host without one.
pub const FILE: &str = "bmc.crt";

/// Certificates in DER.
pub type Certificates = BTreeSet<Vec<u8>>;

/// The certificates that the Secret of a BMC names. `None` for other Secrets, and for those without `ca.crt`. An error
/// says in words what is wrong with `ca.crt`.
pub fn of_secret(secret: &Value) -> Option<Result<Certificates, String>> {
    let text = |key: &str| STANDARD.decode(secret["data"][key].as_str()?).ok();
    let (Some(_), Some(_), Some(pem)) = (text("username"), text("password"), text("ca.crt")) else { return None };
    Some(certificates(&pem).map_err(|why| {
        let text = |key: &str| secret["metadata"][key].as_str().unwrap_or_default();
        format!("Secret `{}/{}`: `ca.crt`: {why}", text("namespace"), text("name"))
    }))
}

/// What a PEM text holds: at least one certificate that can be an authority.
fn certificates(pem: &[u8]) -> Result<Certificates, String> {
    let mut found = Certificates::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        RootCertStore::empty().add(certificate.clone()).map_err(|error| error.to_string())?;
        found.insert(certificate.to_vec());
    }
    if found.is_empty() { Err("found no certificate, expected at least one in PEM".to_owned()) } else { Ok(found) }
}

/// The file: the box's own authority (PEM), then the others, in the same order each time.
pub fn text(own: &str, others: &Certificates) -> String {
    let mut text = own.trim_end().to_owned() + "\n";
    for certificate in others {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            text.extend(line.iter().map(|letter| char::from(*letter)));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::{Certificates, certificates, of_secret, text};

    fn authority(name: &str) -> String {
        rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate").cert.pem()
    }

    fn secret(name: &str, data: &[(&str, &str)]) -> Value {
        let data: serde_json::Map<String, Value> =
            data.iter().map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text)))).collect();
        json!({"metadata": {"name": name, "namespace": "metal3"}, "data": data})
    }

    #[test]
    fn authorities_are_those_of_bmcs_each_once() {
        let (first, second) = (authority("a"), authority("b"));
        let both = format!("# of the site\n{first}{second}");
        let login = [("username", "admin"), ("password", "secret")];
        let with = |name: &str, pem: &str| secret(name, &[login[0], login[1], ("ca.crt", pem)]);
        let found = |secret: Value| of_secret(&secret).expect("a BMC's").expect("authorities");
        let all: Certificates = found(with("one", &first)).into_iter().chain(found(with("two", &both))).collect();
        assert_eq!(all.len(), 2);
        let odd = of_secret(&with("odd", "no PEM")).expect("a BMC's");
        let why = "Secret `metal3/odd`: `ca.crt`: found no certificate, expected at least one in PEM";
        assert_eq!(odd, Err(why.to_owned()));
        assert!(of_secret(&with("cut", &first.replace('A', "B"))).expect("a BMC's").is_err());
        assert_eq!(of_secret(&secret("ironic", &[("ca.crt", &first)])), None);
        assert_eq!(of_secret(&secret("none", &login)), None);
        let own = authority("box");
        let text = text(&own, &all);
        assert!(text.starts_with(own.trim_end()));
        let read = certificates(text.as_bytes()).expect("certificates");
        assert!(read.len() == 3 && read.is_superset(&all));
    }
}
