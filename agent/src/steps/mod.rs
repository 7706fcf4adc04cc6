//! The engine of steps: on the box it brings up what [`crate::first_boot`] lists; it fits any list of steps on any server.
//!
//! ```text
//! Step (phase, name, what helps) ─► Steps::perform ─► act ─► Outcome ─► events of the Bus
//!                                        └ Steps::wait ─► Missing         └─ Key ─► Ledger (DATA)
//! ```
//! A step brings the word for its phase: neither engine nor events need a list of all phases.

use agent_api::events::PhaseWord;

mod engine;
pub mod ledger;
mod missing;

pub use engine::{Outcome, Pace, Steps, blocking, done};
pub use ledger::{Key, Ledger};
pub use missing::{Missing, chain};

/// A step, and what its failure tells the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Its phase.
    pub phase: PhaseWord,
    /// Its name, kebab-case.
    pub name: &'static str,
    /// What to do about a failure, or what happens by itself.
    pub next: &'static str,
    /// Where to read more.
    pub log: &'static str,
}

impl Step {
    /// `phase/step`: what the ledger and `foothold.stop=` call it.
    pub fn path(&self) -> String {
        format!("{}/{}", self.phase, self.name)
    }
}
