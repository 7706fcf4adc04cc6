//! Whether a BMC answers now: one question in its own right, while something else waits for it.

use std::time::Duration;

use agent_api::metal3::bmc_address::Credentials;
use agent_api::rehearsal::{Cell, CellState};
use serde_json::Value;
use tokio::time::timeout;

use super::{judge, resolve};
use crate::bmc::address::Address;
use crate::bmc::ipmi;
use crate::bmc::redfish::{Redfish, RedfishError};
use crate::bmc::trust::Trust;

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct Target {
    /// `spec.bmc.address`.
    pub address: String,
    /// From the host's Secret.
    pub credentials: Credentials,
    /// Which certificates it may have.
    pub trust: Trust,
}

/// Why a BMC does not do what it is told, as far as a question shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word: `BMCAway`, `BMCRefuses`.
    pub word: &'static str,
    /// In words that stay the same as long as it does.
    pub says: String,
    /// What to do about it.
    pub hint: String,
}

impl Trouble {
    /// Whether the BMC answers, and lets nobody in.
    pub fn is_refusal(&self) -> bool {
        self.word == REFUSES
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.word == AWAY { "its BMC does not answer" } else { "its BMC does not let anybody in" };
        write!(f, "{what}: {}; hint: {}", self.says, self.hint)
    }
}

/// Word of a BMC that says nothing.
const AWAY: &str = "BMCAway";
/// Word of one that says no.
const REFUSES: &str = "BMCRefuses";

/// Asks for the power state, as whom the credentials say. Nothing where that says nothing about what Ironic sees: an
/// address that is none, a certificate that Ironic may trust and we do not know, TLS that we do not have. `patience`: for
/// each answer; the whole takes at most four of it.
pub async fn pulse(target: &Target, patience: Duration) -> Option<Result<(), Trouble>> {
    let asked = async {
        match Address::parse(&target.address).ok()? {
            Address::Redfish { base, system, .. } => by_redfish(target, &base, system.as_deref(), patience).await,
            Address::Ipmi { host, port, privilege } => {
                let Credentials { username: user, password } = target.credentials.clone();
                let login = ipmi::Login { user, password, privilege };
                Some(by_ipmi((&host, port), &login, patience).await)
            }
        }
    };
    let late = || {
        let says = format!("it took longer than {} s", patience.as_secs() * 4);
        Some(Err(Trouble { word: AWAY, says, hint: "restart the BMC".to_owned() }))
    };
    timeout(patience * 4, asked).await.unwrap_or_else(|_| late())
}

fn trouble(word: &'static str, cell: Cell) -> Trouble {
    Trouble { word, says: cell.says, hint: cell.hint.unwrap_or_default() }
}

async fn by_redfish(
    target: &Target,
    base: &str,
    system: Option<&str>,
    patience: Duration,
) -> Option<Result<(), Trouble>> {
    let redfish = Redfish::new(base, Some(target.credentials.clone()), &target.trust, patience).ok()?;
    let root = match redfish.root().await {
        Ok(root) => root.body,
        Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403)) => Value::Null,
        Err(RedfishError::Untrusted { .. } | RedfishError::Client(_) | RedfishError::Authorities(_)) => return None,
        Err(error) => {
            let cell = judge::unreached(&error);
            return (cell.state == CellState::Bad).then(|| Err(trouble(AWAY, cell)));
        }
    };
    let refused = redfish.open(&root).await.err();
    let systems = || root["Systems"]["@odata.id"].as_str().unwrap_or("/redfish/v1/Systems").to_owned();
    let asked = redfish.get(&system.map_or_else(systems, str::to_owned)).await;
    redfish.close().await;
    Some(match asked {
        Ok(_) => Ok(()),
        Err(error) if error.is_final() => Err(trouble(AWAY, judge::unreached(&error))),
        Err(error) => Err(trouble(REFUSES, judge::closed(&error, refused.as_ref()))),
    })
}

async fn by_ipmi((name, port): (&str, u16), login: &ipmi::Login, patience: Duration) -> Result<(), Trouble> {
    let ipmi = |error: &ipmi::IpmiError| {
        let word = match error {
            ipmi::IpmiError::Silent { .. } | ipmi::IpmiError::Network { .. } => AWAY,
            _ => REFUSES,
        };
        trouble(word, judge::ipmi(error))
    };
    let address = resolve(name, port).await.map_err(|says| {
        let hint = "check the name in `spec.bmc.address`, and this machine's name servers".to_owned();
        Trouble { word: AWAY, says, hint }
    })?;
    let mut session = ipmi::Client::open(address, login, patience).await.map_err(|error| ipmi(&error))?;
    let status = session.chassis_status().await;
    let _ = session.close().await;
    status.map(drop).map_err(|error| ipmi(&error))
}
