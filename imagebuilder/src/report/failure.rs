//! How a command ends when it does not end well: the exit code, the chain of causes, the hint.
//!
//! The marks of [`error`](crate::error) decide the exit code wherever they stand in a chain; a definition's
//! [`Problems`] count as wrong usage.

use std::fmt;

use crate::config::LoadError;
use crate::error::{Cancel, Exit, HostLacks, Interrupted, WrongUsage};
use crate::problems::{Damaged, Problems};

/// Why a command did not end well. Made by `?` from any error.
pub struct CommandError {
    exit: Exit,
    cause: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        let cause = error.into();
        Self { exit: exit_of(&cause), cause }
    }
}

/// A marker may be the error itself, a context of it, or a source somewhere below.
fn exit_of(error: &anyhow::Error) -> Exit {
    fn has<T: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> bool {
        error.downcast_ref::<T>().is_some() || error.chain().any(<dyn std::error::Error>::is::<T>)
    }
    if has::<Interrupted>(error) {
        Exit::Interrupted
    } else if has::<HostLacks>(error) {
        Exit::HostLacks
    } else if has::<WrongUsage>(error) || has::<Problems>(error) || has::<LoadError>(error) {
        Exit::Wrong
    } else {
        Exit::Failed
    }
}

impl CommandError {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// The same error, as an interruption if the user has asked to stop: whatever failed, failed because of that.
    #[must_use]
    pub fn interrupted_if(self, cancel: &Cancel) -> Self {
        if cancel.is_cancelled() { Self { exit: Exit::Interrupted, ..self } } else { self }
    }

    /// The problems of a definition, if that is why.
    pub fn problems(&self) -> Option<&Problems> {
        self.cause.chain().find_map(|cause| cause.downcast_ref::<Problems>()).or_else(|| {
            match self.cause.downcast_ref::<LoadError>() {
                Some(LoadError::Problems(problems)) => Some(problems),
                Some(LoadError::Unreadable { .. }) | None => None,
            }
        })
    }

    /// What is wrong with an image, if that is why.
    pub fn damaged(&self) -> Option<&Damaged> {
        self.cause.downcast_ref()
    }

    /// The causes, outermost first, without their hints; a cause that only repeats the one above is left out.
    pub fn message(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for cause in self.cause.chain() {
            let text = split_hint(&cause.to_string()).0;
            if !text.is_empty() && parts.last().is_none_or(|above| !above.ends_with(&text)) {
                parts.push(text);
            }
        }
        parts.join(": ")
    }

    /// What to do about it: the hint nearest to the root of the trouble. A full disk is the root of any other.
    pub fn hint(&self) -> Option<String> {
        if self.cause.chain().any(|cause| is_full_disk(&cause.to_string())) {
            return Some(FULL_DISK.to_owned());
        }
        self.cause.chain().filter_map(|cause| split_hint(&cause.to_string()).1).last()
    }
}

impl fmt::Debug for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:#}", self.exit, self.cause)
    }
}

/// What helps on a full disk.
const FULL_DISK: &str = "make room (`df -h` says where); the builder's cache, `foothold` in `$XDG_CACHE_HOME` or `~/.cache`, may be \
                         deleted at any time, and is made again as it is needed";

/// Whether that is the words of ENOSPC, as this program, C's and Go's have them.
fn is_full_disk(text: &str) -> bool {
    text.to_ascii_lowercase().contains("no space left on device")
}

/// A message and the hint in its last lines.
fn split_hint(text: &str) -> (String, Option<String>) {
    match text.split_once("\nhint: ") {
        Some((message, hint)) => (message.trim_end().to_owned(), Some(hint.trim().to_owned())),
        None => (text.trim_end().to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::CommandError;
    use crate::error::{Exit, HostLacks, Interrupted};

    fn lacks() -> HostLacks {
        HostLacks { what: "`mmdebstrap`".into(), hint: "apt-get install mmdebstrap".into() }
    }

    #[test]
    fn a_marker_decides_the_exit_code_wherever_it_stands() {
        let outside = anyhow::Error::from(lacks()).context("making the toolbox").context("building `edge`");
        let inside = Err::<(), _>(std::io::Error::other(Interrupted)).context("reading").expect_err("an error");
        let context = anyhow::anyhow!("no such file").context(lacks());
        assert_eq!(CommandError::from(outside).exit(), Exit::HostLacks);
        assert_eq!(CommandError::from(inside).exit(), Exit::Failed, "io::Error hides what it wraps from the chain");
        assert_eq!(CommandError::from(context).exit(), Exit::HostLacks);
        assert_eq!(CommandError::from(Interrupted).exit(), Exit::Interrupted);
        assert_eq!(CommandError::from(anyhow::anyhow!("full")).exit(), Exit::Failed);
    }

    #[test]
    fn a_full_disk_is_told_with_what_may_be_deleted_whatever_else_failed_for_it() {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let own = anyhow::Error::from(full).context("writing").context(lacks());
        let of_go = anyhow::anyhow!("write /tmp/go-build1/a.o: no space left on device\nhint: look at the log");
        for error in [own, of_go] {
            let hint = CommandError::from(error).hint().expect("a hint");
            assert!(hint.starts_with("make room") && hint.contains("~/.cache"), "{hint}");
        }
    }

    #[test]
    fn the_chain_is_one_line_and_the_hint_stands_alone() {
        let error = CommandError::from(anyhow::Error::from(lacks()).context("making the toolbox"));
        assert_eq!(error.message(), "making the toolbox: this host lacks `mmdebstrap`");
        assert_eq!(error.hint().as_deref(), Some("apt-get install mmdebstrap"));
    }
}
