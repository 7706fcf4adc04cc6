//! Asking Ironic whether it really works: by TLS, with the password, for its drivers.

use std::time::Duration;

use reqwest::StatusCode;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::credentials::IronicCredentials;

/// How long an answer may take: Ironic handles one request after the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// How Ironic is asked.
#[derive(Clone, Debug)]
pub struct Access {
    /// Port on the loopback address.
    pub port: u16,
    /// Authority of its certificate, PEM.
    pub authority: String,
    /// Who asks.
    pub credentials: IronicCredentials,
}

/// What keeps Ironic from working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It does not answer yet, or not well.
    Other(String),
    /// Its database is gone, empty or damaged.
    DatabaseLost(String),
}

impl Trouble {
    /// In words.
    pub fn why(&self) -> &str {
        match self {
            Self::Other(why) | Self::DatabaseLost(why) => why,
        }
    }
}

/// Messages of sqlite about a database that Ironic cannot use (any more).
const LOST: [&str; 4] =
    ["no such table", "database disk image is malformed", "file is not a database", "unable to open database file"];

impl Access {
    /// Names of the drivers that Ironic serves; at least one.
    pub async fn drivers(&self) -> Result<Vec<String>, Trouble> {
        let answered = async {
            let url = format!("https://127.0.0.1:{}/v1/drivers", self.port);
            let IronicCredentials { username, password, .. } = &self.credentials;
            let answer = self.client()?.get(url).basic_auth(username, Some(password)).send().await?;
            anyhow::Ok((answer.status(), answer.bytes().await?))
        };
        let (status, body) = answered.await.map_err(|error| Trouble::Other(format!("{error:#}")))?;
        judge(status, &body)
    }

    /// A client that trusts the box's authority alone.
    pub fn client(&self) -> anyhow::Result<reqwest::Client> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().timeout(PATIENCE).build()?)
    }
}

/// What an answer means. The conductor registers in the database when it starts: a database that was made since has no
/// conductor.
fn judge(status: StatusCode, body: &[u8]) -> Result<Vec<String>, Trouble> {
    let text = String::from_utf8_lossy(body);
    if !status.is_success() {
        let why = format!("Ironic answers {status}: {}", text.chars().take(300).collect::<String>());
        let lost = LOST.iter().any(|sign| text.contains(sign));
        return Err(if lost { Trouble::DatabaseLost(why) } else { Trouble::Other(why) });
    }
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(drivers) = parsed["drivers"].as_array() else {
        return Err(Trouble::Other("Ironic answers without a list of drivers".to_owned()));
    };
    let names: Vec<String> = drivers.iter().filter_map(|driver| Some(driver["name"].as_str()?.to_owned())).collect();
    if names.is_empty() { Err(Trouble::Other("Ironic has no driver yet".to_owned())) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{Trouble, judge};

    #[test]
    fn only_drivers_are_an_answer_and_a_lost_database_is_known() {
        let good = br#"{"drivers": [{"name": "ipmi"}, {"name": "redfish"}]}"#;
        assert_eq!(judge(StatusCode::OK, good), Ok(vec!["ipmi".to_owned(), "redfish".to_owned()]));
        let table: [(StatusCode, &[u8], bool); 5] = [
            (StatusCode::OK, br#"{"drivers": []}"#, false),
            (StatusCode::OK, b"<html>", false),
            (StatusCode::UNAUTHORIZED, b"{}", false),
            (StatusCode::INTERNAL_SERVER_ERROR, b"(sqlite3.OperationalError) no such table: conductors", true),
            (StatusCode::INTERNAL_SERVER_ERROR, b"database is locked", false),
        ];
        for (status, body, lost) in table {
            let trouble = judge(status, body).expect_err("no drivers");
            assert_eq!(matches!(trouble, Trouble::DatabaseLost(_)), lost, "{trouble:?}");
        }
    }
}
