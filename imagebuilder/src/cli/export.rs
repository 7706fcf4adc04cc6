//! Words of what is written for clusters that someone else set up.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Definition, Sources};
use crate::export::Part;

/// `foothold export`
#[derive(Debug, Args)]
pub struct Export {
    /// The definition
    #[command(flatten)]
    pub definition: Definition,
    /// The folder to write, where nothing is yet
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
    /// Only these parts; may be given several times [default: all that the definition declares]
    #[arg(long, value_name = "PART", value_enum)]
    pub part: Vec<Part>,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold offline-bundle`
#[derive(Debug, Args)]
pub struct OfflineBundle {
    /// The definition
    #[command(flatten)]
    pub definition: Definition,
    /// The folder to write, where nothing is yet
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
    /// URL that will serve its `offline-files` [default: the variables ask for it]
    #[arg(long, value_name = "URL", value_parser = files_repo)]
    pub files_repo: Option<String>,
    /// Registry that its images will be pushed to, as `HOST` or `HOST:PORT` [default: the variables ask for it]
    #[arg(long, value_name = "HOST", value_parser = registry_host)]
    pub registry_host: Option<String>,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

impl ValueEnum for Part {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(self.name().into())
    }
}

/// kubespray puts paths behind it.
fn files_repo(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !text.contains(['"', '\\', ' ', '?', '#']) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(format!("`{text}` is not a URL such as `http://files.example:8080`")),
    }
}

/// kubespray puts names of images behind it: a scheme or a path would break them.
fn registry_host(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if !text.is_empty() && text.bytes().all(good) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not a host such as `registry.example:5000`: it has no scheme and no path"))
}

#[cfg(test)]
mod tests {
    use super::{files_repo, registry_host};

    #[test]
    fn addresses_of_the_site_are_those_that_kubespray_can_use() {
        assert_eq!(files_repo("http://files.example:8080/").as_deref(), Ok("http://files.example:8080"));
        for wrong in ["files.example", "http://", "ftp://files.example", "http://a\"b"] {
            assert!(files_repo(wrong).is_err(), "{wrong}");
        }
        assert_eq!(registry_host("r.example:5000").as_deref(), Ok("r.example:5000"));
        for wrong in ["", "http://r.example", "r.example/path"] {
            assert!(registry_host(wrong).is_err(), "{wrong}");
        }
    }
}
