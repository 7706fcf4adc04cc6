//! What the initrd found and made, handed to the agent as `/run/foothold/boot.json`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::{Event, Phase, State};
use crate::release::Digest;

/// Where the initrd leaves its facts.
pub const BOOT_FACTS: &str = "/run/foothold/boot.json";
/// Events of this boot, one JSON line each.
pub const EVENTS: &str = "/run/foothold/events.jsonl";
/// Servers of the site and what was made of them, as the status tells them, in `/run`: JSON of
/// [`SiteStatus`](crate::rest::SiteStatus).
pub const SITE_STATUS: &str = "/run/foothold/site-status.json";
/// The verified release manifest of this boot.
pub const RELEASE: &str = "/run/foothold/release.json";
/// The proof of this release, when there is one and its signature is good.
pub const PROOF: &str = "/run/foothold/proof.json";
/// The public key that releases must be signed with.
pub const PUBLIC_KEY: &str = "/run/foothold/release.pub";
/// Where the medium's file system is mounted.
pub const MEDIUM: &str = "/run/foothold/medium";
/// Where each layer is mounted, by name.
pub const LAYERS: &str = "/run/foothold/layers";
/// Layer with the images that the box runs, unpacked. Of it only [`HOST`] is part of the box's root.
pub const CONTAINERS: &str = "containers";
/// Folder of [`CONTAINERS`] with programs of the box itself, laid out as in its root.
pub const HOST: &str = "host";
/// Damage of the medium, one [`MediumFailure`] a line.
pub const MEDIUM_FAILURES: &str = "/run/foothold/medium-failures.jsonl";

/// How long the authorities of a box live. A clock that is further away from the build cannot be right.
pub const CA_LIFE: Duration = Duration::from_secs(3650 * 86400);

/// Step of phase `medium` under which the reading of the whole medium, and damage of layers, is told.
pub const CHECK_STEP: &str = "check";
/// Step of phase `medium` under which damage is told that the box itself can do without.
pub const CONTENT_STEP: &str = "content";
/// What to do about a damaged medium while the box runs.
pub const DAMAGE_NEXT: &str = "the box runs on from memory as long as it can: write the image to a new medium \
                               (`foothold write`), check it (`foothold verify`), and start from it";

/// What to do about damage that the box itself can do without.
pub const CONTENT_NEXT: &str = "what is named cannot be had from this box, everything else can: write the image to a new \
                                medium (`foothold write`) and start from it";

/// How the box was asked to start (`foothold.mode=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Bring everything up.
    #[default]
    Run,
    /// Only console and REST: for looking at a box that does not come up.
    Safe,
    /// Verify every blob of the medium, say so and stop.
    Check,
}

/// Where DATA is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "on")]
pub enum DataFound {
    /// A partition.
    Partition {
        /// Kernel name, such as `vda4`.
        device: String,
        /// Whether this boot made it.
        created: bool,
    },
    /// Memory, and why nothing else was possible.
    Ram {
        /// Why.
        reason: String,
    },
}

/// `/run/foothold/boot.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootFacts {
    /// Release id, 64 hex digits.
    pub release: String,
    /// How the box was asked to start.
    pub mode: Mode,
    /// Kernel name of the device that holds the store, such as `vda3` or `sr0`.
    pub medium: String,
    /// Where DATA is.
    pub data: DataFound,
    /// Machine id, 32 hex digits.
    pub machine_id: String,
    /// Whether this is the first boot on this DATA.
    pub first_boot: bool,
    /// Whether the clock had to be set to the build time.
    pub clock_was_wrong: bool,
}

/// One damaged place of the medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MediumFailure {
    /// Layer, or blob of the content.
    pub what: String,
    /// Device.
    pub device: String,
    /// Block number, of 4096 bytes.
    pub block: u64,
    /// One line for the screen: what is damaged and what to do.
    pub message: String,
}

/// What `what` of a blob begins with.
const BLOB: &str = "blob ";

impl MediumFailure {
    /// `what` of a place that is in no layer.
    pub const NO_LAYER: &'static str = "medium";

    /// `what` of a blob of the content.
    pub fn of_blob(digest: &Digest) -> String {
        format!("{BLOB}{digest}")
    }

    /// Whether bytes are lost that the box itself needs.
    pub fn is_in_layer(&self) -> bool {
        self.what != Self::NO_LAYER && !self.is_in_content()
    }

    /// Whether an image or a file of the content is damaged.
    pub fn is_in_content(&self) -> bool {
        self.what.starts_with(BLOB)
    }

    /// The event that tells it. Damage of a layer is fatal: without another medium the box is never ready. Damage of
    /// the content leaves the box as ready as it is.
    pub fn event(&self, t: f64) -> Event {
        let (step, next) = if self.is_in_content() { (CONTENT_STEP, CONTENT_NEXT) } else { (CHECK_STEP, DAMAGE_NEXT) };
        let event = Event::of_box(t, Phase::Medium, step, State::Failed);
        let event = event.with("what", self.what.as_str()).with("device", self.device.as_str());
        let event = event.with("block", self.block).with("fatal", self.is_in_layer());
        let event = if self.is_in_layer() { event } else { event.with("workload", true) };
        event.with("cause", self.message.as_str()).with("next", next).with("log", "dmesg")
    }

    /// The damage that an event tells of, as `what` and block.
    pub fn told_by(event: &Event) -> Option<(String, u64)> {
        let told = event.phase == Phase::Medium.name() && matches!(event.step.as_str(), CHECK_STEP | CONTENT_STEP);
        let told = told && event.state == State::Failed;
        let block = event.detail.get("block")?.as_u64()?;
        event.text("what").filter(|_| told).map(|what| (what.to_owned(), block))
    }
}

#[cfg(test)]
mod tests {
    use super::MediumFailure;

    #[test]
    fn damage_of_a_layer_is_told_as_fatal_and_read_back() {
        for (what, fatal) in [("os", true), (MediumFailure::NO_LAYER, false), ("blob sha256:ab", false)] {
            let (device, message) = ("sda3".to_owned(), "gone".to_owned());
            let failure = MediumFailure { what: what.to_owned(), device, block: 7, message };
            let event = failure.event(1.0);
            assert_eq!(event.is_fatal(), fatal, "{what}");
            assert_eq!(event.detail.contains_key("workload"), !fatal, "{what}: the box stays ready");
            assert_eq!(MediumFailure::told_by(&event), Some((what.to_owned(), 7)));
        }
    }
}
