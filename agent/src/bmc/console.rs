//! The serial console of a host, opened at its BMC.
//!
//! ```text
//! address, credentials ─► Redfish: the system's `SerialConsole.SSH` ─► way (pure) ─► SSH to the BMC: a shell,
//!                                                                                    `ConsoleEntryCommand` typed into it
//! ```
//! By DMTF's DSP2046 ("Redfish Resource and Schema Guide"), `ComputerSystem.SerialConsole`. Serial-over-LAN of IPMI is not
//! spoken: its payloads (IPMI 2.0, 15) have a sequence and a retransmission of their own, which our client that only reads
//! has nothing of.

use std::time::Duration;

use agent_api::metal3::bmc_address::Credentials;
use reqwest::Url;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::address::{Address, AddressError, resolve};
use super::redfish::{Redfish, RedfishError, members, systems};
use super::trust::{AuthorityError, Trust};
use crate::ssh::{Identity, Session, SshError, Target, Terminal};

/// What a BMC has for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where SSH is when the BMC names no port.
const SSH_PORT: u16 = 22;

/// What it takes to get to a host's BMC. It is never printed.
#[derive(Clone)]
pub struct Access {
    /// `spec.bmc.address`.
    pub address: String,
    /// Whether its certificate is trusted, whoever signed it.
    pub unverified: bool,
    /// `ca.crt` of the Secret.
    pub authority: Option<String>,
    /// Who logs in.
    pub credentials: Credentials,
    /// The key of its SSH server as it is known; nothing: it is told back by the session.
    pub host_key: Option<String>,
}

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The address cannot be used.
    #[error("reading its BMC's address")]
    Address(#[from] AddressError),
    /// Its certificate authority cannot be read.
    #[error("`ca.crt` of its BMC's Secret")]
    Authority(#[from] AuthorityError),
    /// IPMI.
    #[error(
        "its BMC is addressed by IPMI, whose Serial-over-LAN is not spoken here; hint: write its Redfish address in \
         `spec.bmc.address`, if it has Redfish"
    )]
    Ipmi,
    /// It cannot be asked.
    #[error("asking its BMC by Redfish")]
    Redfish(#[from] RedfishError),
    /// It has several systems, or none, and the address names none.
    #[error("its BMC has {0} systems; hint: put the path of one behind the host in `spec.bmc.address`")]
    Systems(usize),
    /// No console is offered.
    #[error("its BMC offers no serial console over SSH: {0}")]
    Offer(Offer),
    /// Its name leads nowhere.
    #[error("{0}")]
    Name(String),
    /// SSH.
    #[error("its BMC over SSH")]
    Ssh(#[from] SshError),
    /// The command could not be sent.
    #[error("asking its BMC for the console")]
    Command(#[source] std::io::Error),
}

/// What is wrong with what a BMC offers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Offer {
    /// Nothing is said.
    #[error("its system has no `SerialConsole.SSH`; hint: newer firmware may have it (Redfish 2020.4)")]
    None,
    /// It is switched off.
    #[error("`SerialConsole.SSH.ServiceEnabled` is false; hint: switch it on at the BMC")]
    Off,
    /// The port is none.
    #[error("`SerialConsole.SSH.Port` is {0}, expected a number from 1 to 65535")]
    Port(String),
    /// The command is none.
    #[error("`SerialConsole.SSH.ConsoleEntryCommand` is {0}, expected a text of one line")]
    Command(String),
}

/// How a console is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    port: u16,
    /// What is typed into the BMC's own shell.
    command: Option<String>,
}

/// How a system's document says that its console is reached.
fn way(system: &Value) -> Result<Way, Offer> {
    let ssh = &system["SerialConsole"]["SSH"];
    if !ssh.is_object() {
        return Err(Offer::None);
    }
    if ssh["ServiceEnabled"] == Value::Bool(false) {
        return Err(Offer::Off);
    }
    let port = match &ssh["Port"] {
        Value::Null => SSH_PORT,
        port => {
            let number = port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            number.ok_or_else(|| Offer::Port(port.to_string()))?
        }
    };
    let command = match &ssh["ConsoleEntryCommand"] {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) if !text.contains(char::is_control) => Some(text.clone()),
        other => return Err(Offer::Command(other.to_string())),
    };
    Ok(Way { port, command })
}

/// Opens the console.
///
/// # Errors
/// Why there is none, for whoever asked.
pub async fn open(access: &Access) -> Result<Terminal, ConsoleError> {
    let Address::Redfish { base, system, .. } = Address::parse(&access.address)? else {
        return Err(ConsoleError::Ipmi);
    };
    let trust = Trust::of_host(access.unverified, access.authority.as_deref(), Trust::System)?;
    let redfish = Redfish::new(&base, Some(access.credentials.clone()), &trust, PATIENCE)?;
    let document = document(&redfish, system.as_deref()).await;
    redfish.close().await;
    let Way { port, command } = way(&document?).map_err(ConsoleError::Offer)?;
    let target = target(&base, port, access).await?;
    let identity = Identity { keys: Vec::new(), password: Some(access.credentials.password.clone()) };
    let session = Session::connect(&target, &identity, PATIENCE).await?;
    let mut terminal = session.terminal().await?;
    if let Some(command) = command {
        terminal.stream.write_all(format!("{command}\r").as_bytes()).await.map_err(ConsoleError::Command)?;
    }
    Ok(terminal)
}

/// The system's document.
async fn document(redfish: &Redfish, named: Option<&str>) -> Result<Value, ConsoleError> {
    let root = redfish.root().await?.body;
    if let Err(error) = redfish.open(&root).await {
        if error.is_final() {
            return Err(error.into());
        }
        log::debug!("no session, so basic authentication: {error}");
    }
    let path = if let Some(path) = named {
        path.to_owned()
    } else {
        let found = members(&redfish.get(&systems(&root)).await?.body);
        match found.as_slice() {
            [only] => only.clone(),
            several => return Err(ConsoleError::Systems(several.len())),
        }
    };
    Ok(redfish.get(&path).await?.body)
}

/// The BMC's SSH server. It is where its Redfish is.
async fn target(base: &str, port: u16, access: &Access) -> Result<Target, ConsoleError> {
    let url = Url::parse(base).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or(base);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = resolve(&host, port).await.map_err(ConsoleError::Name)?.ip();
    let user = access.credentials.username.clone();
    Ok(Target { address, port, user, host_key: access.host_key.clone() })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn found(port: u16, command: Option<&str>) -> Way {
        Way { port, command: command.map(str::to_owned) }
    }

    #[rstest]
    #[case(json!({}), Err(Offer::None))]
    #[case(json!({"SerialConsole": {"IPMI": {"ServiceEnabled": true}}}), Err(Offer::None))]
    #[case(json!({"SerialConsole": {"SSH": {}}}), Ok(found(22, None)))]
    #[case(json!({"SerialConsole": {"SSH": {"ServiceEnabled": true, "Port": 2200}}}), Ok(found(2200, None)))]
    #[case(json!({"SerialConsole": {"SSH": {"ConsoleEntryCommand": "console com2"}}}), Ok(found(22, Some("console com2"))))]
    #[case(json!({"SerialConsole": {"SSH": {"ConsoleEntryCommand": ""}}}), Ok(found(22, None)))]
    #[case(json!({"SerialConsole": {"SSH": {"ServiceEnabled": false}}}), Err(Offer::Off))]
    #[case(json!({"SerialConsole": {"SSH": {"Port": 0}}}), Err(Offer::Port("0".to_owned())))]
    #[case(json!({"SerialConsole": {"SSH": {"Port": "22"}}}), Err(Offer::Port("\"22\"".to_owned())))]
    #[case(json!({"SerialConsole": {"SSH": {"ConsoleEntryCommand": "a\nb"}}}), Err(Offer::Command("\"a\\nb\"".to_owned())))]
    fn a_console_is_reached_as_the_system_says(#[case] system: Value, #[case] wanted: Result<Way, Offer>) {
        assert_eq!(way(&system), wanted);
    }

    #[tokio::test]
    async fn ipmi_has_no_console_here_and_it_is_said() {
        let credentials = Credentials { username: "a".to_owned(), password: "b".to_owned() };
        let address = "ipmi://192.0.2.1".to_owned();
        let access = Access { address, unverified: false, authority: None, credentials, host_key: None };
        let error = open(&access).await.err().expect("none").to_string();
        assert!(error.contains("Serial-over-LAN is not spoken here"), "{error}");
    }
}
