//! The serial console of a host, opened at its BMC.
//!
//! ```text
//! address, credentials ─┬► Redfish: the system's `SerialConsole.SSH` ─► way (pure) ─► SSH to the BMC: a shell,
//!                       │                                                             `ConsoleEntryCommand` typed into it
//!                       └► IPMI: Serial-over-LAN
//! ```
//! By DMTF's DSP2046 ("Redfish Resource and Schema Guide"), `ComputerSystem.SerialConsole`, and by [`super::ipmi`].

use std::time::Duration;

use agent_api::metal3::bmc_address::Credentials;
use reqwest::Url;
use russh::ChannelStream;
use russh::client::Msg;
use serde_json::Value;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio_util::either::Either;

use super::address::{Address, AddressError, resolve};
use super::ipmi::{self, IpmiError, LineError, Login, SerialLine};
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
    /// No session of IPMI.
    #[error("asking its BMC by IPMI")]
    Ipmi(#[from] IpmiError),
    /// No serial line of IPMI.
    #[error("its BMC's Serial-over-LAN")]
    Line(#[from] LineError),
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

/// An open console. Dropping it ends it, [`Self::close`] properly.
pub enum Console {
    /// A shell of the BMC, or what its command leads to.
    Ssh(Box<Terminal>),
    /// Serial-over-LAN.
    Ipmi(SerialLine),
}

impl Console {
    /// What is written is typed, what is read is shown.
    pub fn line(&mut self) -> Either<&mut ChannelStream<Msg>, &mut DuplexStream> {
        match self {
            Self::Ssh(terminal) => Either::Left(&mut terminal.stream),
            Self::Ipmi(line) => Either::Right(&mut line.stream),
        }
    }

    /// The key that the BMC's SSH server showed.
    pub fn host_key(&self) -> Option<&str> {
        match self {
            Self::Ssh(terminal) => Some(terminal.session.host_key()),
            Self::Ipmi(_) => None,
        }
    }

    /// Ends it properly, as far as the BMC answers.
    pub async fn close(self) {
        match self {
            Self::Ssh(terminal) => terminal.session.close().await,
            Self::Ipmi(line) => line.close().await,
        }
    }
}

/// Opens the console.
///
/// # Errors
/// Why there is none, for whoever asked.
pub async fn open(access: &Access) -> Result<Console, ConsoleError> {
    match Address::parse(&access.address)? {
        Address::Redfish { base, system, .. } => {
            Ok(Console::Ssh(Box::new(by_ssh(access, &base, system.as_deref()).await?)))
        }
        Address::Ipmi { host, port, privilege } => {
            let address = resolve(&host, port).await.map_err(ConsoleError::Name)?;
            let Credentials { username: user, password } = access.credentials.clone();
            let client = ipmi::Client::open(address, &Login { user, password, privilege }, PATIENCE).await?;
            Ok(Console::Ipmi(SerialLine::of(client).await?))
        }
    }
}

async fn by_ssh(access: &Access, base: &str, system: Option<&str>) -> Result<Terminal, ConsoleError> {
    let trust = Trust::of_host(access.unverified, access.authority.as_deref(), Trust::System)?;
    let redfish = Redfish::new(base, Some(access.credentials.clone()), &trust, PATIENCE)?;
    let document = document(&redfish, system).await;
    redfish.close().await;
    let Way { port, command } = way(&document?).map_err(ConsoleError::Offer)?;
    let target = target(base, port, access).await?;
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
}
