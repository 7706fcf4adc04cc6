//! libvirt, by `virsh`; interfaces, by `ip`.

use std::sync::Arc;
use std::time::Duration;

use crate::host::{RunError, Runner};

/// The first definition after a start has libvirt ask QEMU what it can do: seconds under emulation.
const PATIENCE: Duration = Duration::from_secs(120);
/// The machine's own libvirt.
pub const URI: &str = "qemu:///system";

/// Why a command failed, in the words of libvirt or the kernel.
#[derive(Debug, thiserror::Error)]
pub enum VirshError {
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// It could not be asked.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Calls `virsh` and `ip`.
#[derive(Clone, Debug)]
pub struct Virsh {
    runner: Arc<dyn Runner>,
}

impl Virsh {
    /// Calls them with this runner.
    pub const fn new(runner: Arc<dyn Runner>) -> Self {
        Self { runner }
    }

    /// Runs a command of `virsh`; what it prints.
    pub fn run(&self, arguments: &[&str]) -> Result<String, VirshError> {
        self.with_file(arguments, "")
    }

    /// The same, with what it reads from `/dev/stdin`.
    pub fn with_file(&self, arguments: &[&str], file: &str) -> Result<String, VirshError> {
        let argv: Vec<&str> =
            ["virsh", "--quiet", "--connect", URI].into_iter().chain(arguments.iter().copied()).collect();
        self.call(&argv, file)
    }

    /// Lines that a command prints.
    pub fn lines(&self, arguments: &[&str]) -> Result<Vec<String>, VirshError> {
        let text = self.run(arguments)?;
        Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Runs `ip`; what it prints.
    pub fn ip(&self, arguments: &[&str]) -> Result<String, VirshError> {
        let argv: Vec<&str> = std::iter::once("ip").chain(arguments.iter().copied()).collect();
        self.call(&argv, "")
    }

    fn call(&self, argv: &[&str], stdin: &str) -> Result<String, VirshError> {
        match self.runner.run(argv, stdin.as_bytes(), PATIENCE) {
            Ok(output) => Ok(output.text()),
            Err(RunError::Failed { stderr, .. }) if !stderr.is_empty() => Err(VirshError::Refused(words(&stderr))),
            Err(error) => Err(error.into()),
        }
    }
}

/// The text of an error of `virsh`. Its first line only says what was tried, and is left out if others follow.
fn words(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let told: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("error: ")).collect();
    let told = if told.is_empty() { lines } else { told };
    let said = if told.len() > 1 { &told[1..] } else { &told[..] };
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn libvirts_own_words_are_kept() {
        let said = "setlocale: No such file\nerror: Failed to define domain from /dev/stdin\nerror: unsupported configuration: x";
        assert_eq!(words(said), "unsupported configuration: x");
        assert_eq!(words("error: failed to connect"), "failed to connect");
        assert_eq!(words("RTNETLINK answers: File exists"), "RTNETLINK answers: File exists");
    }
}
