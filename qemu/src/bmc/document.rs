//! The documents of the resources. Pure.
//!
//! Property names and their values: DMTF DSP2046 ("Redfish Resource and Schema Guide"), by schema; annotations:
//! DSP0266 and its `@odata.id`, `@odata.type`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clock;
use super::console::Offer;
use super::place::{IMPORT_CONFIGURATION, Place, ROOT};
use super::power::Mode;
use super::profile::{Insert, Owner, Profile};
use super::state::{Machine, State, VIRTUAL_CD};

/// What documents are made of.
pub(super) struct Facts<'a> {
    pub profile: &'a Profile,
    pub machine: &'a Machine,
    pub console: Option<&'a Offer>,
    pub state: &'a State,
    /// What the BMC says about power: the system's, and the chassis's.
    pub on: (bool, bool),
    pub now: Timestamp,
}

impl Facts<'_> {
    /// The document at a place, in the vendor's way; `None` for what cannot be read.
    pub fn document(&self, place: &Place) -> Option<Value> {
        let mut document = self.plain(place)?;
        let own = document["@odata.id"].as_str().unwrap_or_default().to_owned();
        let patch = match place {
            Place::Root => Some(&self.profile.root),
            Place::System => Some(&self.profile.system),
            Place::Manager => Some(&self.profile.manager),
            _ => None,
        };
        for (name, value) in patch.into_iter().flatten() {
            merge(&mut document[name.as_str()], value);
        }
        if let Some(change) = self.profile.changes.get(own.trim_end_matches('/')) {
            merge(&mut document, change);
        }
        without_nulls(&mut document, matches!(place, Place::Root | Place::System | Place::Manager));
        if self.profile.slashes {
            with_slashes(&mut document);
        }
        Some(document)
    }

    fn system(&self) -> String {
        format!("{ROOT}/Systems/{}", self.profile.ids.system)
    }

    fn manager(&self) -> String {
        format!("{ROOT}/Managers/{}", self.profile.ids.manager)
    }

    fn chassis(&self) -> String {
        format!("{ROOT}/Chassis/{}", self.profile.ids.chassis)
    }

    /// Where the virtual media of an owner are.
    pub fn media(&self, owner: Owner) -> String {
        match owner {
            Owner::Manager => format!("{}/VirtualMedia", self.manager()),
            Owner::System => format!("{}/VirtualMedia", self.system()),
        }
    }

    fn plain(&self, place: &Place) -> Option<Value> {
        let document = match place {
            Place::Versions => json!({ "v1": format!("{ROOT}/") }),
            Place::Root => self.root(),
            Place::Systems => collection("ComputerSystem", &format!("{ROOT}/Systems"), [self.system()]),
            Place::System => self.computer(),
            Place::Bios => self.bios(),
            Place::BiosSettings => self.bios_settings(),
            Place::Nics => {
                let own = format!("{}/EthernetInterfaces", self.system());
                let members = (1..=self.machine.macs.len()).map(|id| format!("{own}/{id}"));
                collection("EthernetInterface", &own, members)
            }
            Place::Nic(index) => self.nic(*index)?,
            Place::Managers => collection("Manager", &format!("{ROOT}/Managers"), [self.manager()]),
            Place::Manager => self.bmc(),
            Place::AllMedia(owner) => {
                let own = self.media(*owner);
                let members = self.profile.media.drives.iter().map(|drive| format!("{own}/{}", drive.id));
                collection("VirtualMedia", &own, members)
            }
            Place::Medium(owner, index) => self.medium(*owner, *index)?,
            Place::AllChassis => collection("Chassis", &format!("{ROOT}/Chassis"), [self.chassis()]),
            Place::Chassis => self.box_(),
            Place::SessionService => session_service(),
            Place::Sessions => {
                let own = format!("{ROOT}/SessionService/Sessions");
                collection("Session", &own, self.state.sessions.keys().map(|id| format!("{own}/{id}")))
            }
            Place::Session(id) => self.session(id)?,
            Place::EventService => event_service(),
            Place::Subscriptions => {
                let own = format!("{ROOT}/EventService/Subscriptions");
                collection("EventDestination", &own, self.state.subscriptions.keys().map(|id| format!("{own}/{id}")))
            }
            Place::Subscription(id) => self.subscription(id)?,
            Place::UpdateService => update_service(),
            Place::Inventory => {
                let own = format!("{ROOT}/UpdateService/FirmwareInventory");
                let members = self.profile.firmware.iter().map(|entry| format!("{own}/{}", entry.id));
                collection("SoftwareInventory", &own, members)
            }
            Place::Firmware(index) => self.firmware(*index)?,
            Place::TaskService => task_service(),
            Place::Tasks => {
                let own = format!("{ROOT}/TaskService/Tasks");
                collection("Task", &own, self.state.tasks.keys().map(|id| format!("{own}/{id}")))
            }
            Place::Task(id) => self.task(id)?,
            Place::Reset | Place::Insert(_) | Place::Eject(_) | Place::TestEvent | Place::ImportConfiguration => {
                return None;
            }
        };
        Some(document)
    }

    fn root(&self) -> Value {
        json!({
            "@odata.id": format!("{ROOT}/"),
            "@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot",
            "Id": "RootService",
            "Name": "Root Service",
            "UUID": self.machine.uuid,
            "Systems": link(&format!("{ROOT}/Systems")),
            "Managers": link(&format!("{ROOT}/Managers")),
            "Chassis": link(&format!("{ROOT}/Chassis")),
            "SessionService": link(&format!("{ROOT}/SessionService")),
            "EventService": link(&format!("{ROOT}/EventService")),
            "UpdateService": link(&format!("{ROOT}/UpdateService")),
            "Tasks": link(&format!("{ROOT}/TaskService")),
            "Links": { "Sessions": link(&format!("{ROOT}/SessionService/Sessions")) },
        })
    }

    fn computer(&self) -> Value {
        let own = self.system();
        let mut document = json!({
            "@odata.id": own,
            "@odata.type": "#ComputerSystem.v1_13_0.ComputerSystem",
            "Id": self.profile.ids.system,
            "Name": "System",
            "HostName": self.machine.name,
            "SystemType": "Physical",
            "SerialNumber": self.machine.serial,
            "UUID": self.machine.uuid,
            "AssetTag": self.state.asset_tag,
            "PowerState": power(self.on.0),
            "Status": { "State": if self.on.0 { "Enabled" } else { "StandbyOffline" }, "Health": "OK" },
            "ProcessorSummary": { "Count": self.machine.cpus },
            "MemorySummary": { "TotalSystemMemoryGiB": f64::from(self.machine.memory_mib) / 1024.0 },
            "Boot": self.boot(),
            "Bios": link(&format!("{own}/Bios")),
            "EthernetInterfaces": link(&format!("{own}/EthernetInterfaces")),
            "Links": { "Chassis": [link(&self.chassis())], "ManagedBy": [link(&self.manager())] },
            "Actions": { "#ComputerSystem.Reset": {
                "target": format!("{own}/Actions/ComputerSystem.Reset"),
                "ResetType@Redfish.AllowableValues": self.profile.resets,
            }},
        });
        if self.profile.media.under.contains(&Owner::System) {
            document["VirtualMedia"] = link(&self.media(Owner::System));
        }
        if let Some(console) = self.console {
            document["SerialConsole"] = console.document();
        }
        document
    }

    fn boot(&self) -> Value {
        // What Redfish has no word for is told as what it comes next to.
        let target = if self.state.boot.target == VIRTUAL_CD { "Cd" } else { &self.state.boot.target };
        let mut boot = json!({
            "BootSourceOverrideEnabled": self.state.boot.enabled.name(),
            "BootSourceOverrideTarget": target,
            "BootSourceOverrideTarget@Redfish.AllowableValues": self.profile.targets,
        });
        if self.profile.mode_override {
            let mode = match self.state.boot.mode {
                Mode::Uefi => "UEFI",
                Mode::Legacy => "Legacy",
            };
            boot["BootSourceOverrideMode"] = json!(mode);
            boot["BootSourceOverrideMode@Redfish.AllowableValues"] = json!(["UEFI", "Legacy"]);
        }
        boot
    }

    fn bios(&self) -> Value {
        let own = format!("{}/Bios", self.system());
        json!({
            "@odata.id": own,
            "@odata.type": "#Bios.v1_1_0.Bios",
            "Id": "Bios",
            "Name": "BIOS settings",
            "AttributeRegistry": "BiosAttributeRegistry.v1_0_0",
            "Attributes": self.state.bios,
            "@Redfish.Settings": {
                "@odata.type": "#Settings.v1_3_0.Settings",
                "SettingsObject": link(&format!("{own}/Settings")),
                "SupportedApplyTimes": ["OnReset"],
            },
        })
    }

    fn bios_settings(&self) -> Value {
        json!({
            "@odata.id": format!("{}/Bios/Settings", self.system()),
            "@odata.type": "#Bios.v1_1_0.Bios",
            "Id": "Settings",
            "Name": "BIOS settings from the next boot on",
            "AttributeRegistry": "BiosAttributeRegistry.v1_0_0",
            "Attributes": self.state.pending,
        })
    }

    fn nic(&self, index: usize) -> Option<Value> {
        let mac = self.machine.macs.get(index)?;
        let id = index + 1;
        Some(json!({
            "@odata.id": format!("{}/EthernetInterfaces/{id}", self.system()),
            "@odata.type": "#EthernetInterface.v1_6_0.EthernetInterface",
            "Id": id.to_string(),
            "Name": format!("Network card {id}"),
            "MACAddress": mac,
            "PermanentMACAddress": mac,
            "Status": { "State": "Enabled", "Health": "OK" },
        }))
    }

    fn bmc(&self) -> Value {
        let own = self.manager();
        let mut document = json!({
            "@odata.id": own,
            "@odata.type": "#Manager.v1_10_0.Manager",
            "Id": self.profile.ids.manager,
            "Name": "Manager",
            "ManagerType": "BMC",
            "UUID": self.machine.uuid,
            "PowerState": "On",
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": {
                "ManagerForServers": [link(&self.system())],
                "ManagerForChassis": [link(&self.chassis())],
            },
        });
        if let Some(at) = clock::offset(&self.profile.utc_offset).filter(|_| self.profile.clock) {
            document["DateTime"] = json!(clock::told(self.now, self.state.skew, at));
            document["DateTimeLocalOffset"] = json!(self.profile.utc_offset);
        }
        if self.profile.media.under.contains(&Owner::Manager) {
            document["VirtualMedia"] = link(&self.media(Owner::Manager));
        }
        if self.profile.imports_configuration {
            let target = format!("{own}/Actions/Oem/{IMPORT_CONFIGURATION}");
            document["Actions"]["Oem"]["#OemManager.ImportSystemConfiguration"] = json!({ "target": target });
        }
        document
    }

    fn medium(&self, owner: Owner, index: usize) -> Option<Value> {
        let drive = self.profile.media.drives.get(index)?;
        let own = format!("{}/{}", self.media(owner), drive.id);
        let medium = self.state.media.get(index)?.as_ref();
        let name = medium.and_then(|medium| medium.image.rsplit('/').next()).unwrap_or_default();
        let mut document = json!({
            "@odata.id": own,
            "@odata.type": "#VirtualMedia.v1_3_0.VirtualMedia",
            "Id": drive.id,
            "Name": "Virtual media",
            "MediaTypes": drive.types,
            "Image": medium.map(|medium| medium.image.clone()),
            "ImageName": name,
            "Inserted": medium.is_some(),
            "WriteProtected": medium.is_none_or(|medium| medium.write_protected),
            "ConnectedVia": if medium.is_some() { "URI" } else { "NotConnected" },
        });
        if self.profile.media.insert == Insert::Action {
            document["Actions"] = json!({
                "#VirtualMedia.InsertMedia": { "target": format!("{own}/Actions/VirtualMedia.InsertMedia") },
                "#VirtualMedia.EjectMedia": { "target": format!("{own}/Actions/VirtualMedia.EjectMedia") },
            });
        }
        Some(document)
    }

    fn box_(&self) -> Value {
        json!({
            "@odata.id": self.chassis(),
            "@odata.type": "#Chassis.v1_14_0.Chassis",
            "Id": self.profile.ids.chassis,
            "Name": "Chassis",
            "ChassisType": "RackMount",
            "SerialNumber": self.machine.serial,
            "PowerState": power(self.on.1),
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": { "ComputerSystems": [link(&self.system())], "ManagedBy": [link(&self.manager())] },
        })
    }

    fn session(&self, id: &str) -> Option<Value> {
        let session = self.state.sessions.get(id)?;
        Some(json!({
            "@odata.id": format!("{ROOT}/SessionService/Sessions/{id}"),
            "@odata.type": "#Session.v1_3_0.Session",
            "Id": id,
            "Name": "Session",
            "UserName": session.user,
        }))
    }

    fn subscription(&self, id: &str) -> Option<Value> {
        let subscription = self.state.subscriptions.get(id)?;
        Some(json!({
            "@odata.id": format!("{ROOT}/EventService/Subscriptions/{id}"),
            "@odata.type": "#EventDestination.v1_9_0.EventDestination",
            "Id": id,
            "Name": "Subscription",
            "Destination": subscription.destination,
            "Context": subscription.context,
            "Protocol": "Redfish",
            "SubscriptionType": "RedfishEvent",
            "EventFormatType": "Event",
        }))
    }

    fn task(&self, id: &str) -> Option<Value> {
        let name = self.state.tasks.get(id)?;
        Some(json!({
            "@odata.id": format!("{ROOT}/TaskService/Tasks/{id}"),
            "@odata.type": "#Task.v1_4_2.Task",
            "Id": id,
            "Name": name,
            "TaskState": "Completed",
            "TaskStatus": "OK",
            "PercentComplete": 100,
        }))
    }

    fn firmware(&self, index: usize) -> Option<Value> {
        let entry = self.profile.firmware.get(index)?;
        Some(json!({
            "@odata.id": format!("{ROOT}/UpdateService/FirmwareInventory/{}", entry.id),
            "@odata.type": "#SoftwareInventory.v1_3_0.SoftwareInventory",
            "Id": entry.id,
            "Name": entry.name,
            "Version": entry.version,
            "Updateable": true,
            "Status": { "State": "Enabled", "Health": "OK" },
        }))
    }
}

fn session_service() -> Value {
    json!({
        "@odata.id": format!("{ROOT}/SessionService"),
        "@odata.type": "#SessionService.v1_1_8.SessionService",
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": true,
        "SessionTimeout": 1800,
        "Sessions": link(&format!("{ROOT}/SessionService/Sessions")),
    })
}

fn event_service() -> Value {
    json!({
        "@odata.id": format!("{ROOT}/EventService"),
        "@odata.type": "#EventService.v1_7_0.EventService",
        "Id": "EventService",
        "Name": "Event Service",
        "ServiceEnabled": true,
        "DeliveryRetryAttempts": 3,
        "DeliveryRetryIntervalSeconds": 1,
        "EventFormatTypes": ["Event"],
        "RegistryPrefixes": ["ResourceEvent"],
        "Subscriptions": link(&format!("{ROOT}/EventService/Subscriptions")),
        "Actions": { "#EventService.SubmitTestEvent": {
            "target": format!("{ROOT}/EventService/Actions/EventService.SubmitTestEvent"),
        }},
    })
}

fn task_service() -> Value {
    json!({
        "@odata.id": format!("{ROOT}/TaskService"),
        "@odata.type": "#TaskService.v1_1_5.TaskService",
        "Id": "TaskService",
        "Name": "Task Service",
        "ServiceEnabled": true,
        "Tasks": link(&format!("{ROOT}/TaskService/Tasks")),
    })
}

fn update_service() -> Value {
    json!({
        "@odata.id": format!("{ROOT}/UpdateService"),
        "@odata.type": "#UpdateService.v1_8_0.UpdateService",
        "Id": "UpdateService",
        "Name": "Update Service",
        "ServiceEnabled": true,
        "FirmwareInventory": link(&format!("{ROOT}/UpdateService/FirmwareInventory")),
    })
}

fn link(path: &str) -> Value {
    json!({ "@odata.id": path })
}

fn power(on: bool) -> &'static str {
    if on { "On" } else { "Off" }
}

pub(super) fn collection(kind: &str, own: &str, members: impl IntoIterator<Item = String>) -> Value {
    let members: Vec<Value> = members.into_iter().map(|path| link(&path)).collect();
    json!({
        "@odata.id": own,
        "@odata.type": format!("#{kind}Collection.{kind}Collection"),
        "Name": format!("{kind} Collection"),
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

/// Merge patch (RFC 7396, 2), but a `null` stays where it is put: [`without_nulls`] takes it away.
fn merge(document: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    for (name, value) in patch {
        merge(&mut document[name.as_str()], value);
    }
}

/// Takes away what the vendor does not have. A medium's `Image` is `null` by the schema.
fn without_nulls(document: &mut Value, all: bool) {
    if let Value::Object(map) = document {
        map.retain(|name, value| !value.is_null() || (!all && name == "Image"));
        map.values_mut().for_each(|value| without_nulls(value, all));
    }
}

/// Has all links end in a slash.
fn with_slashes(document: &mut Value) {
    match document {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(path) if matches!(name.as_str(), "@odata.id" | "target") && !path.ends_with('/') => {
                        path.push('/');
                    }
                    _ => with_slashes(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(with_slashes),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_puts_in_replaces_and_takes_away() {
        let mut document = json!({ "a": { "b": 1, "c": 2 }, "Image": null });
        merge(&mut document, &json!({ "a": { "b": null, "d": [1] }, "e": "f" }));
        without_nulls(&mut document, false);
        assert_eq!(document, json!({ "a": { "c": 2, "d": [1] }, "e": "f", "Image": null }));
    }
}
