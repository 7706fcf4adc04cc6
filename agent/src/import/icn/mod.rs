//! Hosts of a site as Akraino ICN's files describe them, as metal3's objects.
//!
//! ```text
//! nodes.json      (R2 to R5) ─┐
//! machine values  (R6 on)    ─┼─► IcnMachine ─► Secrets (BMC, user data, network data), BareMetalHost ─► admission ─► YAML
//! user_config.sh  ─ gateway, name servers ─┘
//! ```
//! A file is read as data, whole and strictly: a key that nobody knows is an error, and all errors are reported at once, each
//! with its file, line and key, what was found and what was expected. A shell file is never run.
//!
//! What comes out is what ICN made: `NAME-bmc-secret`, `NAME-user-data`, `NAME-network-data` and the host in namespace
//! `metal3`, with the image from the box. Three things are ours: an image's checksum says that it is MD5, the host says its
//! `bootMACAddress` whenever the file has it, and user data bring up the network with systemd-networkd.

use std::fmt;

use serde_json::Value;

pub mod command;
mod keys;
mod machine;
mod make;
mod network;
mod node;
mod nodes;
mod shell;
#[cfg(test)]
mod tests;
mod user_data;

pub use make::Choices;

/// A file to read.
#[derive(Clone, Debug)]
pub struct Input {
    /// How messages name it.
    pub file: String,
    /// What is in it.
    pub text: String,
}

/// Something in a file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Line, from 1; 0 when it is the whole file.
    pub line: u64,
    /// Key path, such as `nodes[0].name`; empty when it is the whole file.
    pub key: String,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " `{}`:", self.key)?;
        }
        write!(f, " found {}, expected {}", self.found, self.expected)
    }
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Converted {
    /// Objects, in the order in which they are to be applied.
    pub objects: Vec<Value>,
    /// What stood in the files and does not concern hosts.
    pub notes: Vec<String>,
}

/// Reads all files and makes the objects of all their hosts, or returns everything that is wrong.
pub fn convert(inputs: &[Input], choices: &Choices) -> Result<Converted, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut machines = Vec::new();
    // Of the network's settings, and of what could have been hosts.
    let (mut notes, mut passed_over) = (Vec::new(), Vec::new());
    let mut provider = shell::Provider::default();
    for input in inputs {
        // Editors of Windows put a mark before UTF-8.
        let text = input.text.trim_start_matches('\u{feff}').to_owned();
        let input = &Input { file: input.file.clone(), text };
        match form(input) {
            Form::Shell => shell::read(input, &mut provider, &mut notes, &mut problems),
            Form::Json => nodes::read(input, &mut machines, &mut problems),
            Form::Yaml => machine::read(input, &mut machines, &mut passed_over, &mut problems),
        }
    }
    if machines.is_empty() && problems.is_empty() {
        problems.push(Problem {
            file: inputs.iter().map(|input| input.file.as_str()).collect::<Vec<_>>().join(", "),
            line: 0,
            key: String::new(),
            found: if passed_over.is_empty() {
                "no host".into()
            } else {
                format!("no host ({})", passed_over.join("; "))
            },
            expected: "`nodes` of a nodes.json, or a `machineName` of the machine chart's values".into(),
        });
    }
    if !agent_api::net::is_label(&choices.namespace) {
        problems.push(Problem {
            file: "--namespace".into(),
            line: 0,
            key: String::new(),
            found: format!("`{}`", node::shortened(&choices.namespace)),
            expected: "a name of a namespace (a-z, 0-9, `-`, at most 63)".into(),
        });
    }
    let objects = make::objects(&machines, &provider, choices, &mut problems);
    notes.append(&mut passed_over);
    if problems.is_empty() { Ok(Converted { objects, notes }) } else { Err(problems) }
}

/// The objects as one YAML text.
pub fn yaml(objects: &[Value]) -> Result<String, serde_saphyr::SerializeError> {
    let texts = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(texts.join("---\n"))
}

/// Keys of the machine chart's values, and of what releases it: they may be written as JSON, too.
const IN_VALUES: [&str; 3] = ["\"machineName\"", "\"machines\"", "\"apiVersion\""];

/// What a file is.
enum Form {
    Shell,
    Json,
    Yaml,
}

fn form(input: &Input) -> Form {
    let shell = std::path::Path::new(&input.file).extension().is_some_and(|ending| ending == "sh");
    if shell || input.text.starts_with("#!") {
        Form::Shell
    } else if input.text.trim_start().starts_with('{') && !IN_VALUES.iter().any(|key| input.text.contains(key)) {
        Form::Json
    } else {
        Form::Yaml
    }
}
