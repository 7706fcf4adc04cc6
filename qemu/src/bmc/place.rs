//! What a path means.

use super::profile::{Owner, Profile};

/// Below this lies everything (DSP0266, "Redfish-defined URIs").
pub(super) const ROOT: &str = "/redfish/v1";

/// Dell's name of the action, below the manager's `Actions/Oem`.
pub(super) const IMPORT_CONFIGURATION: &str = "EID_674_Manager.ImportSystemConfiguration";

/// A resource or an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Versions,
    Root,
    Systems,
    System,
    Reset,
    Bios,
    BiosSettings,
    Nics,
    Nic(usize),
    Managers,
    Manager,
    ImportConfiguration,
    AllMedia(Owner),
    Medium(Owner, usize),
    Insert(usize),
    Eject(usize),
    AllChassis,
    Chassis,
    Sessions,
    SessionService,
    Session(String),
    EventService,
    TestEvent,
    Subscriptions,
    Subscription(String),
    UpdateService,
    Inventory,
    Firmware(usize),
    TaskService,
    Tasks,
    Task(String),
}

impl Place {
    /// What lies at `path`, a slash at its end or not. `nics`: how many cards the system has.
    pub fn of(profile: &Profile, nics: usize, path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        if path == "/redfish" {
            return Some(Self::Versions);
        }
        let rest = path.strip_prefix(ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let parts: Vec<&str> = rest.split('/').skip(1).collect();
        match parts.as_slice() {
            [] => Some(Self::Root),
            ["Systems"] => Some(Self::Systems),
            ["Systems", id, rest @ ..] if *id == profile.ids.system => Self::of_system(profile, nics, rest),
            ["Managers"] => Some(Self::Managers),
            ["Managers", id, rest @ ..] if *id == profile.ids.manager => match rest {
                [] => Some(Self::Manager),
                ["Actions", "Oem", IMPORT_CONFIGURATION] if profile.imports_configuration => {
                    Some(Self::ImportConfiguration)
                }
                ["VirtualMedia", rest @ ..] => Self::of_media(profile, Owner::Manager, rest),
                _ => None,
            },
            ["Chassis"] => Some(Self::AllChassis),
            ["Chassis", id] if *id == profile.ids.chassis => Some(Self::Chassis),
            ["SessionService"] => Some(Self::SessionService),
            ["SessionService", "Sessions"] | ["Sessions"] => Some(Self::Sessions),
            ["SessionService", "Sessions", id] => Some(Self::Session((*id).to_owned())),
            ["EventService"] => Some(Self::EventService),
            ["EventService", "Actions", "EventService.SubmitTestEvent"] => Some(Self::TestEvent),
            ["EventService", "Subscriptions"] => Some(Self::Subscriptions),
            ["EventService", "Subscriptions", id] => Some(Self::Subscription((*id).to_owned())),
            ["UpdateService"] => Some(Self::UpdateService),
            ["UpdateService", "FirmwareInventory"] => Some(Self::Inventory),
            ["UpdateService", "FirmwareInventory", id] => {
                profile.firmware.iter().position(|entry| entry.id == *id).map(Self::Firmware)
            }
            ["TaskService"] => Some(Self::TaskService),
            ["TaskService", "Tasks"] => Some(Self::Tasks),
            ["TaskService", "Tasks", id] => Some(Self::Task((*id).to_owned())),
            _ => None,
        }
    }

    fn of_system(profile: &Profile, nics: usize, rest: &[&str]) -> Option<Self> {
        match rest {
            [] => Some(Self::System),
            ["Actions", "ComputerSystem.Reset"] => Some(Self::Reset),
            ["Bios"] => Some(Self::Bios),
            ["Bios", "Settings"] => Some(Self::BiosSettings),
            ["EthernetInterfaces"] => Some(Self::Nics),
            ["EthernetInterfaces", id] => {
                id.parse::<usize>().ok()?.checked_sub(1).filter(|index| *index < nics).map(Self::Nic)
            }
            ["VirtualMedia", rest @ ..] => Self::of_media(profile, Owner::System, rest),
            _ => None,
        }
    }

    fn of_media(profile: &Profile, owner: Owner, rest: &[&str]) -> Option<Self> {
        if !profile.media.under.contains(&owner) {
            return None;
        }
        let drive = |id: &str| profile.media.drives.iter().position(|drive| drive.id == id);
        match rest {
            [] => Some(Self::AllMedia(owner)),
            [id] => drive(id).map(|index| Self::Medium(owner, index)),
            [id, "Actions", "VirtualMedia.InsertMedia"] => drive(id).map(Self::Insert),
            [id, "Actions", "VirtualMedia.EjectMedia"] => drive(id).map(Self::Eject),
            _ => None,
        }
    }

    /// Whether it is there to be posted to only.
    pub const fn is_action(&self) -> bool {
        matches!(self, Self::Reset | Self::Insert(_) | Self::Eject(_) | Self::TestEvent | Self::ImportConfiguration)
    }

    /// Whether it may be read without credentials (DSP0266, "Authentication").
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Versions | Self::Root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_known_by_the_ids_of_the_profile_only() {
        let dell = Profile::known("idrac").expect("a profile");
        let of = |path| Place::of(&dell, 1, path);
        assert_eq!(of("/redfish/v1/"), Some(Place::Root));
        assert_eq!(of("/redfish/v1/Systems/System.Embedded.1"), Some(Place::System));
        assert_eq!(of("/redfish/v1/Systems/1"), None);
        assert_eq!(of("/redfish/v1/Managers/iDRAC.Embedded.1/VirtualMedia/CD"), Some(Place::Medium(Owner::Manager, 1)));
        assert_eq!(of("/redfish/v1/Systems/System.Embedded.1/VirtualMedia"), None);
        assert_eq!(of("/redfish/v1/Systems/System.Embedded.1/EthernetInterfaces/2"), None);
        assert_eq!(of("/redfish/v10"), None);
    }
}
