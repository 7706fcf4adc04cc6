//! What is wrong with a definition, as data: where, what was found, what was expected, what to do.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The definition cannot be built.
    Error,
    /// It can be built, but probably not as meant.
    Warning,
}

/// One wrong place of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Key path, such as `outputs[1].maxSize`; empty for the document itself.
    pub key: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Bytes of the text that the problem is about.
    #[serde(skip)]
    pub span: Range<usize>,
    /// Whether the text there must not be shown.
    #[serde(skip)]
    pub secret: bool,
    /// What was found.
    pub found: String,
    /// What was expected there.
    pub expected: String,
    /// What to do about it.
    pub hint: String,
}

/// Everything that is wrong with one file. Its `Display` is the rendering without colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file, as the user named it.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// The problems in the order of the text.
    pub list: Vec<Problem>,
}

impl Problems {
    /// Whether the definition cannot be built.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// Number of errors.
    pub fn errors(&self) -> usize {
        self.list.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// Number of warnings.
    pub fn warnings(&self) -> usize {
        self.list.len() - self.errors()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::render(self, false))
    }
}

impl std::error::Error for Problems {}

/// Line and column, both from 1, of a byte of `text`.
pub(crate) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
