//! `foothold init`: a definition to start from.

use std::fs::Permissions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

use crate::cli::Init;
use crate::error::WrongUsage;
use crate::report::{CommandError, Outcome, Report};

/// The definition that is written; `NAME` becomes the name of the directory.
const TEMPLATE: &str = include_str!("init.yaml");

/// Writes `appliance.yaml` into the directory. What is there already is never overwritten.
pub fn run(args: &Init, _report: &Report) -> Result<Outcome, CommandError> {
    let directory = &args.directory;
    fs_err::create_dir_all(directory)?;
    let file = directory.join("appliance.yaml");
    let text = TEMPLATE.replace("NAME", &name(directory));
    let at = || format!("writing `{}`", file.display());
    // A disk that is full leaves no half of it, which would have to be deleted by hand.
    let mut partial = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(directory)?;
    partial.write_all(text.as_bytes()).with_context(at)?;
    match partial.persist_noclobber(&file).map_err(|error| error.error) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("`{}` is there already", file.display());
            return Err(WrongUsage { message, hint: "name another directory, or edit it".to_owned() }.into());
        }
        written => drop(written.with_context(at)?),
    }
    Ok(Outcome::Initialised { file })
}

/// The directory's name as a DNS label.
fn name(directory: &Path) -> String {
    let absolute = fs_err::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let name = absolute.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let label: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let label = label.trim_matches('-');
    if label.is_empty() { "appliance".to_owned() } else { label.to_owned() }
}
