//! What the initrd found and made, handed to the agent as `/run/foothold/boot.json`.

use serde::{Deserialize, Serialize};

use crate::events::{Event, Phase, State};

/// Where the initrd leaves its facts.
pub const BOOT_FACTS: &str = "/run/foothold/boot.json";
/// Events of this boot, one JSON line each.
pub const EVENTS: &str = "/run/foothold/events.jsonl";
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
/// Damage of the medium, one [`MediumFailure`] a line.
pub const MEDIUM_FAILURES: &str = "/run/foothold/medium-failures.jsonl";

/// Step of phase `medium` under which the reading of all layers, and what it finds, is told.
pub const CHECK_STEP: &str = "check";
/// What to do about a damaged medium while the box runs.
pub const DAMAGE_NEXT: &str = "the box runs on from memory as long as it can: write the image to a new medium \
                               (`foothold write`), check it (`foothold verify`), and start from it";

/// How the box was asked to start (`foothold.mode=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub clock_was_before_build: bool,
}

/// One damaged place of the medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediumFailure {
    /// Layer, or blob.
    pub what: String,
    /// Device.
    pub device: String,
    /// Block number, of 4096 bytes.
    pub block: u64,
    /// One line for the screen: what is damaged and what to do.
    pub message: String,
}

impl MediumFailure {
    /// `what` of a place that is in no layer.
    pub const NO_LAYER: &'static str = "medium";

    /// Whether bytes are lost that the release needs.
    pub fn is_in_layer(&self) -> bool {
        self.what != Self::NO_LAYER
    }

    /// The event that tells it. Damage of a layer is fatal: without another medium the box is never ready.
    pub fn event(&self, t: f64) -> Event {
        let event = Event::of_box(t, Phase::Medium, CHECK_STEP, State::Failed);
        let event = event.with("what", self.what.as_str()).with("device", self.device.as_str());
        let event = event.with("block", self.block).with("fatal", self.is_in_layer());
        event.with("cause", self.message.as_str()).with("next", DAMAGE_NEXT).with("log", "dmesg")
    }

    /// The damage that an event tells of, as `what` and block.
    pub fn told_by(event: &Event) -> Option<(String, u64)> {
        let told = event.phase == Phase::Medium.name() && event.step == CHECK_STEP && event.state == State::Failed;
        let block = event.detail.get("block")?.as_u64()?;
        event.text("what").filter(|_| told).map(|what| (what.to_owned(), block))
    }
}

#[cfg(test)]
mod tests {
    use super::MediumFailure;

    #[test]
    fn damage_of_a_layer_is_told_as_fatal_and_read_back() {
        for (what, fatal) in [("os", true), (MediumFailure::NO_LAYER, false)] {
            let (device, message) = ("sda3".to_owned(), "gone".to_owned());
            let failure = MediumFailure { what: what.to_owned(), device, block: 7, message };
            let event = failure.event(1.0);
            assert_eq!(event.is_fatal(), fatal, "{what}");
            assert_eq!(MediumFailure::told_by(&event), Some((what.to_owned(), 7)));
        }
    }
}
