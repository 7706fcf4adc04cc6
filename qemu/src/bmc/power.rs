//! Power of the machine behind a BMC: a narrow trait, and a machine that is only a few flags.
//!
//! ```text
//! Reset "GracefulRestart" ─ steps(on) ─► [ShutDown, On] ─► Power::act, one after the other
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::line::SerialLine;

/// Pause between two looks for a line of a machine in memory.
const LOOK: Duration = Duration::from_millis(10);

/// Why the machine did not do it.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct PowerError {
    /// What was tried.
    pub doing: &'static str,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What a machine is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Switch on.
    On,
    /// Cut the power.
    Off,
    /// Ask the system to switch itself off (ACPI), and wait a while for it. It may not care: that is no error.
    ShutDown,
    /// Press the reset button.
    Reset,
    /// Interrupt that cannot be masked.
    Interrupt,
}

/// What the machine boots from, in the words of `ComputerSystem.Boot`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BootFrom {
    /// As its own boot order says.
    #[default]
    Normal,
    /// The network.
    Network,
    /// The CD drive.
    Cd,
    /// The disks.
    Disk,
}

/// Firmware of a boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// UEFI.
    #[default]
    Uefi,
    /// BIOS.
    Legacy,
}

/// How the next boot goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Where from.
    pub from: BootFrom,
    /// Whether the boot after that goes the normal way again.
    pub once: bool,
    /// By which firmware.
    pub mode: Mode,
}

/// A machine that a BMC switches. Calls may block for as long as the machine takes.
pub trait Power: Send + Sync + std::fmt::Debug {
    /// Whether it is on, now.
    fn is_on(&self) -> bool;

    /// Does one thing. `boot` counts for [`Act::On`] and [`Act::Reset`].
    fn act(&self, act: Act, boot: Boot) -> Result<(), PowerError>;

    /// Puts an image into the CD drive, or takes it out.
    fn insert(&self, image: Option<&Path>) -> Result<(), PowerError>;

    /// Opens the machine's serial line, in a runtime: what is written is typed, what is read is what it says from now on.
    /// `None`: it has none. Does not block.
    fn serial(&self) -> Result<Option<Box<dyn SerialLine>>, PowerError> {
        Ok(None)
    }

    /// Keeps what a BMC that is started again must know of itself. By default nothing outlives it.
    fn keep(&self, _kept: &Kept) -> Result<(), PowerError> {
        Ok(())
    }

    /// What was kept.
    fn kept(&self) -> Option<Kept> {
        None
    }
}

/// What a BMC that is started again must know of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kept {
    /// `BootSourceOverrideEnabled`.
    pub enabled: String,
    /// `BootSourceOverrideTarget`.
    pub target: String,
    /// By which firmware it boots.
    pub mode: Mode,
    /// `Image` of each drive.
    pub media: Vec<Option<String>>,
}

/// What a `ResetType` (DSP2046, `Resource.ResetType`) comes to for a machine that is on or off. `None`: nothing that
/// can be done to a machine in that state.
pub(super) fn steps(reset: &str, on: bool) -> Option<&'static [Act]> {
    let steps: &[Act] = match (reset, on) {
        ("On" | "ForceOn", true) | ("ForceOff" | "GracefulShutdown", false) => &[],
        ("On" | "ForceOn" | "PushPowerButton", false) => &[Act::On],
        ("ForceOff", true) => &[Act::Off],
        ("GracefulShutdown" | "PushPowerButton", true) => &[Act::ShutDown],
        ("ForceRestart", true) => &[Act::Reset],
        ("GracefulRestart", true) => &[Act::ShutDown, Act::On],
        ("PowerCycle", true) => &[Act::Off, Act::On],
        ("Nmi", true) => &[Act::Interrupt],
        _ => return None,
    };
    Some(steps)
}

/// A machine in memory: does at once what it is told, and remembers it. Its serial lines end at [`MemoryPower::line`].
#[derive(Debug, Default)]
pub struct MemoryPower {
    state: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    on: bool,
    boots: Vec<Boot>,
    image: Option<PathBuf>,
    lines: Vec<UnixStream>,
}

impl MemoryPower {
    /// A machine that is on, or off.
    pub fn new(on: bool) -> Self {
        Self { state: Mutex::new(Memory { on, ..Memory::default() }) }
    }

    /// The boots so far, the first one first.
    pub fn boots(&self) -> Vec<Boot> {
        self.lock().boots.clone()
    }

    /// What lies in the CD drive.
    pub fn image(&self) -> Option<PathBuf> {
        self.lock().image.clone()
    }

    /// The machine's end of the serial line that was opened last, once it is opened. Each line is given out once.
    pub async fn line(&self) -> UnixStream {
        loop {
            let line = self.lock().lines.pop();
            if let Some(line) = line {
                return line;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Power for MemoryPower {
    fn is_on(&self) -> bool {
        self.lock().on
    }

    fn act(&self, act: Act, boot: Boot) -> Result<(), PowerError> {
        let mut state = self.lock();
        match act {
            Act::On | Act::Reset => {
                state.on = true;
                state.boots.push(boot);
            }
            Act::Off | Act::ShutDown => state.on = false,
            Act::Interrupt => {}
        }
        Ok(())
    }

    fn insert(&self, image: Option<&Path>) -> Result<(), PowerError> {
        self.lock().image = image.map(Path::to_owned);
        Ok(())
    }

    fn serial(&self) -> Result<Option<Box<dyn SerialLine>>, PowerError> {
        let pair = UnixStream::pair();
        let (theirs, own) =
            pair.map_err(|error| PowerError { doing: "opening the serial line", source: error.into() })?;
        self.lock().lines.push(own);
        Ok(Some(Box::new(theirs)))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("On", true, Some(&[][..]))]
    #[case("On", false, Some(&[Act::On][..]))]
    #[case("ForceOff", false, Some(&[][..]))]
    #[case("PushPowerButton", true, Some(&[Act::ShutDown][..]))]
    #[case("PushPowerButton", false, Some(&[Act::On][..]))]
    #[case("GracefulRestart", true, Some(&[Act::ShutDown, Act::On][..]))]
    #[case("ForceRestart", false, None)]
    #[case("Nmi", false, None)]
    #[case("Explode", true, None)]
    fn a_reset_comes_to_steps_by_what_the_machine_is(
        #[case] reset: &str,
        #[case] on: bool,
        #[case] wanted: Option<&[Act]>,
    ) {
        assert_eq!(steps(reset, on), wanted);
    }
}
