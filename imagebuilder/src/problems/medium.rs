//! What is wrong with a medium, as data: where, what was found, what needs it.

use std::fmt;

use serde::Serialize;

/// Something that is not as the release says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flaw {
    /// Where: `layer os`, `blob sha256:...`, `kernel`.
    pub place: String,
    /// What was found and what was expected.
    pub found: String,
    /// What needs it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needed_by: Vec<String>,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.found)?;
        if !self.needed_by.is_empty() {
            write!(f, "; needed by {}", self.needed_by.join(", "))?;
        }
        Ok(())
    }
}

/// What a check found when it found anything: the error of the command.
#[derive(Clone, Debug)]
pub struct Damaged {
    /// The image or device.
    pub image: String,
    /// Everything that is wrong.
    pub problems: Vec<Flaw>,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` has {}:", self.image, count(self.problems.len(), "problem"))?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        write!(f, "\nhint: `foothold write` copies an image anew, `foothold build` makes it anew")
    }
}

impl std::error::Error for Damaged {}

/// `1 problem`, `2 problems`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
