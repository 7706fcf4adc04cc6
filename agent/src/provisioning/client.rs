//! Asking Ironic whether it really works: by TLS, with the password, for its drivers.

use std::time::Duration;

use super::credentials::IronicCredentials;
use crate::ironic::{Client, IronicError, Settings};

/// How long an answer may take: Ironic handles one request after the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// Name of the file with [`Access::media`], beside those with user and password, where a controller reads them.
pub const MEDIA: &str = "external-http-url";

/// How Ironic is asked.
#[derive(Clone, Debug)]
pub struct Access {
    /// Port on the loopback address.
    pub port: u16,
    /// Authority of its certificate, PEM.
    pub authority: String,
    /// Who asks.
    pub credentials: IronicCredentials,
    /// Where BMCs fetch virtual media ([`super::config::media_url`]).
    pub media: String,
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
        let answered = async { Client::patient(&self.settings(), PATIENCE)?.drivers().await };
        judge(answered.await)
    }

    /// The same for a client of Ironic: it trusts the box's authority alone.
    pub fn settings(&self) -> Settings {
        let IronicCredentials { username, password, .. } = &self.credentials;
        let user = Some((username.clone(), password.clone()));
        Settings { url: format!("https://127.0.0.1:{}", self.port), ca: Some(self.authority.clone()), user }
    }
}

/// What an answer means. The conductor registers in the database when it starts: a database that was made since has no
/// conductor.
fn judge(answer: Result<Vec<String>, IronicError>) -> Result<Vec<String>, Trouble> {
    match answer {
        Ok(names) if names.is_empty() => Err(Trouble::Other("Ironic has no driver yet".to_owned())),
        Ok(names) => Ok(names),
        Err(IronicError::Refused { status, message }) => {
            let why = format!("Ironic answers {status}: {}", message.chars().take(300).collect::<String>());
            let lost = LOST.iter().any(|sign| message.contains(sign));
            Err(if lost { Trouble::DatabaseLost(why) } else { Trouble::Other(why) })
        }
        Err(error) => Err(Trouble::Other(crate::steps::chain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{Trouble, judge};
    use crate::ironic::drivers;

    #[test]
    fn only_drivers_are_an_answer_and_a_lost_database_is_known() {
        let good = br#"{"drivers": [{"name": "ipmi"}, {"name": "redfish"}]}"#;
        assert_eq!(judge(drivers(StatusCode::OK, good)), Ok(vec!["ipmi".to_owned(), "redfish".to_owned()]));
        let table: [(StatusCode, &[u8], bool); 5] = [
            (StatusCode::OK, br#"{"drivers": []}"#, false),
            (StatusCode::OK, b"<html>", false),
            (StatusCode::UNAUTHORIZED, b"{}", false),
            (StatusCode::INTERNAL_SERVER_ERROR, b"(sqlite3.OperationalError) no such table: conductors", true),
            (StatusCode::INTERNAL_SERVER_ERROR, b"database is locked", false),
        ];
        for (status, body, lost) in table {
            let trouble = judge(drivers(status, body)).expect_err("no drivers");
            assert_eq!(matches!(trouble, Trouble::DatabaseLost(_)), lost, "{trouble:?}");
        }
    }
}
