//! What a vendor's BMC does in its own way, from a data file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The files that come along, by name.
const KNOWN: [(&str, &str); 4] = [
    ("generic", include_str!("profiles/generic.yaml")),
    ("idrac", include_str!("profiles/idrac.yaml")),
    ("ilo", include_str!("profiles/ilo.yaml")),
    ("supermicro", include_str!("profiles/supermicro.yaml")),
];

/// What is wrong with a data file.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is no such file.
    #[error("no BMC profile `{0}`\nhint: one of {known}", known = Profile::names().join(", "))]
    Unknown(String),
    /// It is not of the form.
    #[error("reading a BMC profile: {0}")]
    Form(String),
    /// It contradicts itself.
    #[error("BMC profile `{name}`: {problem}")]
    Invalid {
        /// The profile.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// A vendor's BMC. Documents are made by DMTF's DSP2046, then [`Profile::changes`] are merged in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "habits of vendors that have nothing to do with each other")]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Merged into the service root: `Vendor`, `Product`, `RedfishVersion`.
    pub root: Map<String, Value>,
    /// How a `BareMetalHost` names such a BMC.
    #[serde(default)]
    pub schemes: Schemes,
    /// Ids of the resources.
    pub ids: Ids,
    /// Merged into the computer system.
    pub system: Map<String, Value>,
    /// Merged into the manager.
    pub manager: Map<String, Value>,
    /// Virtual media.
    pub media: Media,
    /// Whether the manager also takes a piece of a server configuration profile, by which Ironic's `idrac` boots virtual
    /// media (Dell, "iDRAC9 Redfish API Guide": `OemManager.ImportSystemConfiguration`).
    #[serde(default)]
    pub imports_configuration: bool,
    /// What the boot override may be set to.
    pub targets: Vec<String>,
    /// Whether the override's mode (UEFI, legacy) may be set.
    #[serde(default = "yes")]
    pub mode_override: bool,
    /// What `ComputerSystem.Reset` takes.
    pub resets: Vec<String>,
    /// BIOS settings and their values at first.
    pub bios: Map<String, Value>,
    /// Installed firmware.
    pub firmware: Vec<Firmware>,
    /// Offset of the manager's clock from UTC, such as `-06:00`.
    #[serde(default = "utc")]
    pub utc_offset: String,
    /// Whether the manager tells its time.
    #[serde(default = "yes")]
    pub clock: bool,
    /// Whether answers have entity tags.
    #[serde(default = "yes")]
    pub etags: bool,
    /// Whether paths end in a slash; those that do not are then answered with 308.
    #[serde(default)]
    pub slashes: bool,
    /// By path (without slash at its end): a merge patch (RFC 7396) of the document; `null` takes a property away.
    #[serde(default)]
    pub changes: BTreeMap<String, Value>,
}

/// Schemes of a `BareMetalHost`'s `spec.bmc.address`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schemes {
    /// For a server that boots over the network.
    pub network: String,
    /// For one that boots from virtual media.
    pub media: String,
}

impl Default for Schemes {
    fn default() -> Self {
        Self { network: "redfish".to_owned(), media: "redfish-virtualmedia".to_owned() }
    }
}

/// Ids, as they stand in paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ids {
    /// Below `Systems`.
    pub system: String,
    /// Below `Managers`.
    pub manager: String,
    /// Below `Chassis`.
    pub chassis: String,
}

/// Virtual media of a BMC.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Media {
    /// Below which resources the collection is found.
    pub under: Vec<Owner>,
    /// How a medium gets in.
    pub insert: Insert,
    /// The drives.
    pub drives: Vec<Drive>,
}

/// Whose virtual media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// The manager's: as all had it at first.
    Manager,
    /// The system's: since Redfish 2020.4.
    System,
}

/// How a medium gets in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Insert {
    /// By the actions `InsertMedia` and `EjectMedia`.
    Action,
    /// By PATCH of `Image`.
    Patch,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Its id.
    pub id: String,
    /// What it takes: `CD`, `DVD`, `Floppy`, `USBStick`.
    pub types: Vec<String>,
}

/// An entry of the firmware inventory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Firmware {
    /// Its id.
    pub id: String,
    /// For people.
    pub name: String,
    /// Version.
    pub version: String,
}

const fn yes() -> bool {
    true
}

fn utc() -> String {
    "+00:00".to_owned()
}

impl Profile {
    /// Names of the profiles that come along.
    pub fn names() -> Vec<&'static str> {
        KNOWN.iter().map(|(name, _)| *name).collect()
    }

    /// One that comes along.
    pub fn known(name: &str) -> Result<Self, ProfileError> {
        let (_, text) =
            KNOWN.iter().find(|(known, _)| *known == name).ok_or_else(|| ProfileError::Unknown(name.to_owned()))?;
        Self::parse(text)
    }

    /// Reads a data file.
    pub fn parse(yaml: &str) -> Result<Self, ProfileError> {
        let profile: Self = serde_saphyr::from_str(yaml)
            .map_err(|error| ProfileError::Form(agent_api::yaml::told_with_lines(&error)))?;
        profile.check()?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), ProfileError> {
        let invalid = |problem| Err(ProfileError::Invalid { name: self.name.clone(), problem });
        if self.media.drives.is_empty() != self.media.under.is_empty() {
            return invalid("media drives without a place, or a place without drives");
        }
        if !self.targets.iter().any(|target| target == "None") {
            return invalid("`targets` has no `None`");
        }
        if super::clock::offset(&self.utc_offset).is_none() {
            return invalid("`utcOffset` is not like `+02:00`");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_comes_along_is_sound_and_named_as_its_file() {
        for name in Profile::names() {
            assert_eq!(Profile::known(name).unwrap_or_else(|error| panic!("{name}: {error}")).name, name);
        }
    }

    #[test]
    fn an_unknown_profile_is_told_with_the_known_ones() {
        let told = Profile::known("irmc").expect_err("unknown").to_string();
        assert!(told.contains("`irmc`") && told.contains("idrac"), "{told}");
    }

    #[test]
    fn a_profile_that_contradicts_itself_is_refused() {
        let text = include_str!("profiles/generic.yaml").replace("targets: [None,", "targets: [");
        assert!(matches!(Profile::parse(&text), Err(ProfileError::Invalid { .. })));
    }
}
