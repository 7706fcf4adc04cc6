//! What a rehearsal of a site's BMCs found: `POST /api/v1/rehearsals` and `foothold-agent rehearse --json`.
//!
//! ```text
//! Rehearsal ─ hosts ─► HostRehearsal ─ cells ─► Check: Cell { state, says, hint }
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The matrix: hosts by checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// No cell is bad.
    pub good: bool,
    /// When it began, by the clock of who asked: RFC 3339, UTC.
    pub at: String,
    /// In the order in which they were given.
    pub hosts: Vec<HostRehearsal>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostRehearsal {
    /// Namespace of the `BareMetalHost`; empty when it names none.
    pub namespace: String,
    /// Name of the `BareMetalHost`.
    pub name: String,
    /// Its BMC's address, as given.
    pub address: String,
    /// Who made the BMC, by its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// What it is, by its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// No cell of this host is bad.
    pub good: bool,
    /// Seconds that its questions took.
    pub secs: f64,
    /// One cell for each check.
    pub cells: BTreeMap<Check, Cell>,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// It answers, in time, and is who it should be.
    Reach,
    /// It lets us in.
    Credentials,
    /// What it says about power, and whether that is consistent.
    Power,
    /// Whether the boot source can be overridden, and is not overridden now.
    Boot,
    /// Whether a disc can be inserted, and none is in.
    Media,
    /// How far its clock is from ours.
    Clock,
    /// Its versions.
    Firmware,
}

impl Check {
    /// All, in order.
    pub const ALL: [Self; 7] =
        [Self::Reach, Self::Credentials, Self::Power, Self::Boot, Self::Media, Self::Clock, Self::Firmware];

    /// As JSON names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reach => "reach",
            Self::Credentials => "credentials",
            Self::Power => "power",
            Self::Boot => "boot",
            Self::Media => "media",
            Self::Clock => "clock",
            Self::Firmware => "firmware",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// How it is.
    pub state: CellState,
    /// What was found, or the cause, one line.
    pub says: String,
    /// What to do about it, one line; a bad cell always has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CellState {
    /// As it should be.
    Good,
    /// It will do, but should be looked at.
    Warn,
    /// Provisioning would fail.
    Bad,
    /// Nobody asked: the way of this host needs none of it, or an earlier check failed.
    Skipped,
}

impl Cell {
    /// As it should be.
    pub fn good(says: impl Into<String>) -> Self {
        Self { state: CellState::Good, says: says.into(), hint: None }
    }

    /// It will do.
    pub fn warn(says: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: CellState::Warn, says: says.into(), hint: Some(hint.into()) }
    }

    /// It will not do.
    pub fn bad(says: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: CellState::Bad, says: says.into(), hint: Some(hint.into()) }
    }

    /// Nobody asked.
    pub fn skipped(says: impl Into<String>) -> Self {
        Self { state: CellState::Skipped, says: says.into(), hint: None }
    }
}
