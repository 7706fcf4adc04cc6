//! What keeps a wait waiting, in words.

/// What is missing, and why, in words for the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is waited for.
    pub what: String,
    /// Why it is not there yet.
    pub why: String,
}

impl Missing {
    /// What, and why.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// An error with its causes, in one line: what a [`Missing`] or a log says of it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
