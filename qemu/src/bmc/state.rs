//! What a BMC knows, apart from its machine.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::power::{Boot, BootFrom, Kept, Mode};
use super::profile::Profile;

/// Dell's name of the virtual CD drive, which is no target of the override that Redfish knows.
pub(super) const VIRTUAL_CD: &str = "VCD-DVD";

/// The machine, as the BMC describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the host.
    pub name: String,
    /// UUID.
    pub uuid: String,
    /// Serial number.
    pub serial: String,
    /// Hardware addresses of its network cards.
    pub macs: Vec<String>,
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// The firmware that it boots by, as long as nobody overrides that.
    pub firmware: Mode,
    /// Whether it has a serial line, which its console is joined to.
    pub serial_line: bool,
}

impl Default for Machine {
    /// One processor, 2 GiB, one card, UEFI.
    fn default() -> Self {
        Self {
            name: "server".to_owned(),
            uuid: "8d5a6fd2-0a5b-8c3e-9c11-2f0a54d4b001".to_owned(),
            serial: "SN0001".to_owned(),
            macs: vec!["52:54:00:00:00:01".to_owned()],
            cpus: 1,
            memory_mib: 2048,
            firmware: Mode::Uefi,
            serial_line: false,
        }
    }
}

/// A medium in a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Medium {
    pub image: String,
    pub write_protected: bool,
}

/// The boot override (DSP2046, `ComputerSystem.Boot`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Override {
    pub enabled: Enabled,
    pub target: String,
    pub mode: Mode,
}

/// For how long the override counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enabled {
    Disabled,
    Once,
    Continuous,
}

impl Enabled {
    pub const ALL: [(&'static str, Self); 3] =
        [("Disabled", Self::Disabled), ("Once", Self::Once), ("Continuous", Self::Continuous)];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("Disabled", |(name, _)| name)
    }
}

/// A session that somebody opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub user: String,
    pub token: String,
}

/// A subscription to events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub destination: String,
    pub context: String,
    pub headers: Vec<(String, String)>,
}

/// All that changes.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub boot: Override,
    /// By the profile's drives.
    pub media: Vec<Option<Medium>>,
    pub bios: Map<String, Value>,
    /// Settings that count from the next boot on.
    pub pending: Map<String, Value>,
    pub asset_tag: String,
    /// How far the clock is ahead.
    pub skew: SignedDuration,
    pub sessions: BTreeMap<String, Session>,
    pub subscriptions: BTreeMap<String, Subscription>,
    /// What was done, by its task's id.
    pub tasks: BTreeMap<String, &'static str>,
    /// Last number given to a session, subscription or event.
    pub last: u64,
}

impl State {
    pub fn new(profile: &Profile, mode: Mode, skew: SignedDuration) -> Self {
        Self {
            boot: Override { enabled: Enabled::Disabled, target: "None".to_owned(), mode },
            media: profile.media.drives.iter().map(|_| None).collect(),
            bios: profile.bios.clone(),
            pending: Map::new(),
            asset_tag: String::new(),
            skew,
            sessions: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            tasks: BTreeMap::new(),
            last: 0,
        }
    }

    /// What must outlive the service.
    pub fn kept(&self) -> Kept {
        Kept {
            enabled: self.boot.enabled.name().to_owned(),
            target: self.boot.target.clone(),
            mode: self.boot.mode,
            media: self.media.iter().map(|medium| medium.as_ref().map(|medium| medium.image.clone())).collect(),
        }
    }

    /// As it was when it was kept.
    pub fn restore(&mut self, kept: Kept) {
        if let Some((_, enabled)) = Enabled::ALL.iter().find(|(name, _)| *name == kept.enabled) {
            self.boot = Override { enabled: *enabled, target: kept.target, mode: kept.mode };
        }
        for (drive, image) in self.media.iter_mut().zip(kept.media) {
            *drive = image.map(|image| Medium { image, write_protected: true });
        }
    }

    /// A number that was never given before.
    pub fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// How the machine boots next.
    pub fn next_boot(&self) -> Boot {
        if self.boot.enabled == Enabled::Disabled {
            return Boot { mode: self.boot.mode, ..Boot::default() };
        }
        let from = match self.boot.target.as_str() {
            "Pxe" | "UefiHttp" => BootFrom::Network,
            "Cd" | "UsbCd" | VIRTUAL_CD => BootFrom::Cd,
            "Hdd" => BootFrom::Disk,
            _ => BootFrom::Normal,
        };
        Boot { from, once: self.boot.enabled == Enabled::Once, mode: self.boot.mode }
    }

    /// The machine has begun to boot: an override for once is used up, pending settings count.
    pub fn booted(&mut self) {
        if self.boot.enabled == Enabled::Once {
            self.boot.enabled = Enabled::Disabled;
            "None".clone_into(&mut self.boot.target);
        }
        let pending = std::mem::take(&mut self.pending);
        self.bios.extend(pending);
    }
}
