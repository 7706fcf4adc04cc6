//! The file of `foothold simulate`: `YAML -> tree -> input -> Simulation`, by the stages of definitions.

mod input;
mod validate;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use foothold_qemu::bmc::{Faults, Profile};

pub use self::input::{Driver, Firmware};

use super::findings::Findings;
use super::path::KeyPath;
use super::{ByteSize, LoadError, Name, kind_of, read, read_text, schema, shape};
use crate::host::files::directory_of;
use crate::problems::Problems;

/// A site on this machine.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// This machine's address on the network.
    pub address: Ipv4Addr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// Namespace of the hosts.
    pub namespace: Name,
    /// The box, if there is one.
    pub appliance: Option<SimulatedBox>,
    /// The servers.
    pub servers: Vec<SimulatedServer>,
    /// What is applied, in order.
    pub apply: Vec<Application>,
    /// What is waited for, in order.
    pub until: Vec<Awaited>,
}

/// Objects that a cluster gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The file.
    pub file: PathBuf,
    /// The condition that must be met before: its place in `until`.
    pub after: Option<usize>,
    /// The cluster of servers; the box's own when not given.
    pub cluster: Option<Name>,
    /// Whether the objects are deleted instead.
    pub delete: bool,
}

/// What is waited for, in the words of `kubectl wait`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Its name.
    pub name: Name,
    /// The object, or a kind for all of its objects.
    pub object: String,
    /// The namespace.
    pub namespace: Name,
    /// What `--for=` gets.
    pub holds: String,
    /// The cluster of servers; the box's own when not given.
    pub cluster: Option<Name>,
    /// How long it may take.
    pub within: Duration,
}

/// Where a box's image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoxImage {
    /// It is there.
    File(PathBuf),
    /// It is built from this definition.
    Definition(PathBuf),
}

/// The box.
#[derive(Clone, Debug)]
pub struct SimulatedBox {
    /// Its image.
    pub image: BoxImage,
    /// Hardware address of its card on the network.
    pub mac: String,
    /// A Site for it.
    pub site: Option<PathBuf>,
    /// Memory.
    pub memory: ByteSize,
    /// Processors.
    pub cpus: u32,
    /// Firmware.
    pub firmware: Firmware,
}

/// A server and its BMC.
#[derive(Clone, Debug)]
pub struct SimulatedServer {
    /// Name.
    pub name: Name,
    /// Hardware address of its only card.
    pub mac: String,
    /// Firmware.
    pub firmware: Firmware,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// Size of its disk.
    pub disk: ByteSize,
    /// The OS image that its host asks for.
    pub image: Option<Name>,
    /// What its BMC speaks.
    pub driver: Driver,
    /// Where its BMC listens.
    pub listen: SocketAddrV4,
    /// The BMC's account.
    pub user: String,
    /// The account's password.
    pub password: String,
    /// The vendor's way; not of IPMI.
    pub profile: Profile,
    /// What is wrong with the BMC.
    pub faults: Faults,
}

/// The schema that `foothold schema --of simulation` prints and editors use.
pub fn json_schema() -> serde_json::Value {
    schema::of::<input::Simulation>()
}

/// Reads and checks a simulation.
///
/// # Errors
/// All problems of the file at once, or why it cannot be read.
pub fn load(file: &Path) -> Result<Simulation, LoadError> {
    let text = read_text(file, "README.md shows a simulation to start from")?;
    check(file, text).map_err(LoadError::Problems)
}

/// Checks the text of a simulation; paths in it are relative to the directory of `file`.
///
/// # Errors
/// All problems at once.
pub fn check(file: &Path, text: String) -> Result<Simulation, Problems> {
    let (simulation, problems) = checked(file, text);
    simulation.filter(|_| !problems.has_errors()).ok_or(problems)
}

/// The simulation as far as it is understood, and all that is to be said about its text.
pub(super) fn checked(file: &Path, text: String) -> (Option<Simulation>, Problems) {
    let (documents, broken, mut findings) = read(&text);
    let documents: Vec<_> = documents.iter().filter(|document| !document.is_null()).collect();
    let simulation = match documents.as_slice() {
        [document] => {
            findings.enter(document);
            if let Some(other @ ("Appliance" | "Site")) = kind_of(document) {
                let found = format!("`{other}` is no simulation");
                let hint = "qemu/README.md shows one; `foothold up FILE` builds an appliance and runs it";
                findings.at(&KeyPath::of("kind"), &found, "`Simulation`", hint);
                return (None, Problems { file: file.to_owned(), list: findings.into_list(), text });
            }
            shape::check(document, &json_schema(), &mut findings)
                .and_then(|input| input_of(input, &mut findings))
                .and_then(|input| validate::simulation(&input, directory_of(file), &mut findings))
        }
        [] if broken => None,
        [] | [_, _, ..] => {
            let found = format!("the file has {} documents", documents.len());
            let start = documents.get(1).map_or(0, |document| document.span.start);
            findings.add(start..start, &KeyPath::default(), &found, "one document of `kind: Simulation`", "keep one");
            None
        }
    };
    let list = findings.into_list();
    (simulation, Problems { file: file.to_owned(), text, list })
}

/// Of the part of a document that fits the schema: a number may be too large for what it is.
fn input_of(fits: serde_json::Value, findings: &mut Findings<'_>) -> Option<input::Simulation> {
    let read = serde_json::from_value(fits);
    if let Err(error) = &read {
        let found = format!("the document cannot be read: {error}");
        let hint = "compare it with `foothold schema --of simulation`";
        findings.at(&KeyPath::default(), &found, "a document of `kind: Simulation`", hint);
    }
    read.ok()
}

#[cfg(test)]
mod tests;
