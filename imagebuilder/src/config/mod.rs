//! The definition of an appliance: `YAML -> tree -> input -> Appliance`.
//!
//! ```text
//! tree      text as a tree that knows its bytes; repeated keys, anchors and tags are refused
//! shape     the tree against the schema of the input types: unknown and missing keys, wrong kinds
//! input     serde types, the only description of the format (JSON Schema comes from them)
//! validate  texts to newtypes, ranges, contradictions, files that must exist -> Appliance
//! services  the same for the keys of `services`, in one file
//! ```
//! Every stage collects, so that one run shows all problems, each with line, column and key path.

mod appliance;
mod findings;
pub mod input;
mod path;
mod schema;
mod services;
mod shape;
pub mod simulation;
mod site;
mod tree;
mod types;
mod validate;

use std::path::{Path, PathBuf};

pub use agent_api::servers::Provisioning;

pub use self::appliance::{
    Appliance, Boot, Budgets, CarriedImage, Chart, ChartOrigin, Content, Firmware, FirstBoot, Kubernetes,
    KubernetesSource, Origin, OsImage, OsImageSource, Output, RegistryAccess, ServedFile,
};
pub use self::input::{Closure, Compression, DiskFormat, Format};
pub use self::schema::json_schema;
pub use self::services::{ClusterVersion, Clusters, ServiceName, Services};
pub use self::types::{
    ByteSize, Console, ImageReference, Invalid, Ipv4Network, KubernetesVersion, Name, SecretReference, Version,
    parse_duration,
};
pub use self::validate::is_loopback;

use self::findings::Findings;
use self::path::KeyPath;
use self::tree::Node;
use crate::host::files::directory_of;
use crate::problems::Problems;

/// The version of all documents.
pub const API_VERSION: &str = "foothold.dev/v1";

/// Kinds of a definition's documents, for messages.
const KINDS: &str = "`Appliance` or `Site`";
/// Largest definition that is read, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Why there is no [`Appliance`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The definition has errors; this lists all of them.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// The definition cannot be read at all.
    #[error("reading the definition `{file}`\nhint: {hint}")]
    Unreadable {
        /// The file, as given.
        file: String,
        /// What to do.
        hint: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// What came of reading a definition.
#[derive(Debug)]
pub struct Checked {
    /// The appliance, if there are no errors.
    pub appliance: Option<Appliance>,
    /// Errors and warnings; may hold warnings beside an appliance.
    pub problems: Problems,
}

/// Reads and checks the definition in `file` (a directory stands for its `appliance.yaml`).
pub fn load(file: &Path) -> Result<Appliance, LoadError> {
    let checked = check_file(file)?;
    checked.appliance.ok_or_else(|| checked.problems.into())
}

/// Reads the definition and everything that is to be said about it.
pub fn check_file(file: &Path) -> Result<Checked, LoadError> {
    let (path, text) = read_definition(file)?;
    Ok(check(&path, text))
}

/// What is to be said about a file of any kind of ours: a definition, a Site alone (for a stick, or for REST), a simulation.
pub fn lint(file: &Path) -> Result<Checked, LoadError> {
    let (path, text) = read_definition(file)?;
    let (documents, broken, mut findings) = read(&text);
    if documents.iter().any(|document| kind_of(document) == Some("Simulation")) {
        return Ok(Checked { appliance: None, problems: simulation::checked(&path, text).1 });
    }
    let appliance = check_documents(&documents, directory_of(&path), broken, true, &mut findings);
    let list = findings.into_list();
    Ok(Checked { appliance, problems: Problems { file: path, text, list } })
}

/// The text of a definition and where it is: a folder stands for its `appliance.yaml`.
fn read_definition(file: &Path) -> Result<(PathBuf, String), LoadError> {
    let path = if file.is_dir() { file.join("appliance.yaml") } else { file.to_owned() };
    let text = read_text(&path, "`foothold init` writes a definition to start from")?;
    Ok((path, text))
}

/// The kind of a document, in its own words.
fn kind_of(document: &Node) -> Option<&str> {
    document.get("kind").and_then(|entry| entry.value.text())
}

/// The text of a file that is of a sensible size. `absent`: what to do when it is not there.
fn read_text(path: &Path, absent: &'static str) -> Result<String, LoadError> {
    let unreadable = |hint| move |source| LoadError::Unreadable { file: path.display().to_string(), hint, source };
    let size = path.metadata().map_err(unreadable(absent))?.len();
    if size > MOST_BYTES {
        let source = std::io::Error::other(format!("{size} bytes, at most {MOST_BYTES} are read"));
        return Err(unreadable("is this the right file?")(source));
    }
    let bytes = fs_err::read(path).map_err(unreadable("make it readable"))?;
    String::from_utf8(bytes).map_err(|error| unreadable("save it as UTF-8")(std::io::Error::other(error)))
}

/// Checks the text of a definition; paths in it are relative to the directory of `file`.
pub fn check(file: &Path, text: String) -> Checked {
    let (documents, broken, mut findings) = read(&text);
    let appliance = check_documents(&documents, directory_of(file), broken, false, &mut findings);
    let list = findings.into_list();
    let problems = Problems { file: file.to_owned(), text, list };
    let appliance = appliance.filter(|_| !problems.has_errors());
    Checked { appliance, problems }
}

/// The documents of a text, whether parts of it were refused, and the findings about those.
fn read(text: &str) -> (Vec<Node>, bool, Findings<'_>) {
    let (documents, refused) = tree::read(text);
    let broken = !refused.is_empty();
    let mut findings = Findings::new(text);
    for part in refused {
        findings.refused(part);
    }
    (documents, broken, findings)
}

/// `broken`: parts of the text were refused. `alone`: a Site needs no appliance beside it.
fn check_documents(
    documents: &[Node],
    directory: &Path,
    broken: bool,
    alone: bool,
    findings: &mut Findings<'_>,
) -> Option<Appliance> {
    let mut appliance = None;
    let mut site = None;
    let mut seen = (0, 0);
    for document in documents.iter().filter(|document| !document.is_null()) {
        findings.enter(document);
        match kind_of(document).unwrap_or("Appliance") {
            "Site" => {
                seen.1 += 1;
                site = site::check(document, findings).map(|site| (site, document));
                again(document, seen.1, "Site", findings);
            }
            "Appliance" => {
                seen.0 += 1;
                appliance = appliance_of(document, directory, findings);
                again(document, seen.0, "Appliance", findings);
            }
            "Simulation" => {
                seen.0 += 1;
                let found = "a simulation is no definition";
                findings.at(&KeyPath::of("kind"), found, KINDS, "`foothold simulate FILE` runs it");
            }
            other => {
                seen.0 += 1;
                unknown(document, other, findings);
            }
        }
    }
    let lacking = match seen {
        _ if broken => None,
        (0, 0) => Some(("the file is empty", "`foothold init` writes a definition to start from")),
        (0, _) if !alone => Some((
            "there is a Site but no Appliance",
            "add one, separated by `---`; `foothold lint` takes a Site alone, `foothold run IMAGE --site FILE` uses it",
        )),
        _ => None,
    };
    if let Some((found, hint)) = lacking {
        findings.add(0..0, &KeyPath::default(), found, "a document of `kind: Appliance`", hint);
    }
    let mut appliance = appliance?;
    if let Some((site, document)) = site {
        findings.enter(document);
        site::against(&site, &appliance, findings);
        appliance.site = Some(site);
    }
    Some(appliance)
}

/// A document of another kind: a word that is misspelt, or an object for a cluster.
fn unknown(document: &Node, kind: &str, findings: &mut Findings<'_>) {
    let path = KeyPath::of("kind");
    let version = document.get("apiVersion").and_then(|entry| entry.value.text());
    let ours = |version: &str| version.split('/').next() == API_VERSION.split('/').next();
    if let Some(version) = version.filter(|version| !ours(version)) {
        let found = format!("`{kind}` of `{version}` is an object for a cluster");
        let hint = "`foothold kubectl apply --filename FILE` gives it to a box that runs; a definition carries it in `content.manifests`";
        findings.at(&path, &found, KINDS, hint);
    } else {
        let near = shape::nearest(kind, &["Appliance", "Site", "Simulation"]).unwrap_or("Appliance");
        let found = format!("`{kind}` is not a kind of ours");
        findings.at(&path, &found, KINDS, &format!("write `kind: {near}`"));
    }
}

fn appliance_of(document: &Node, directory: &Path, findings: &mut Findings<'_>) -> Option<Appliance> {
    let input = shape::check(document, &schema::of::<input::Appliance>(), findings)?;
    match serde_json::from_value::<input::Appliance>(input) {
        Ok(input) => {
            let appliance = validate::appliance(&input, directory, findings)?;
            site::servers_against(&appliance, findings);
            Some(appliance)
        }
        Err(error) => {
            let found = format!("the document cannot be read: {error}");
            findings.at(
                &KeyPath::default(),
                &found,
                "a document of `kind: Appliance`",
                "compare it with `foothold schema`",
            );
            None
        }
    }
}

fn again(document: &Node, count: usize, kind: &str, findings: &mut Findings<'_>) {
    if count > 1 {
        let found = format!("this is the second `{kind}` of the file");
        let start = document.span.start;
        findings.add(start..start, &KeyPath::default(), &found, "one of each kind", "move it to a file of its own");
    }
}
