//! BIOS settings and firmware of the fake servers: written by steps, told as Ironic tells them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What the fake servers have, and what was done with it.
#[derive(Debug, Default)]
pub struct Firmware {
    /// Steps that were begun: the target they were begun by, and the steps.
    pub steps: Vec<(String, Value)>,
    /// Times that settings were asked for.
    pub reads: u64,
    /// Servicing fails.
    pub fails: bool,
    /// Settings are written, and the server keeps its own.
    pub stubborn: bool,
    /// The BMC did not answer when settings were read: none are known before a cleaning.
    pub unread: bool,
    servers: BTreeMap<String, Server>,
    begun: BTreeMap<String, Value>,
}

#[derive(Clone, Debug)]
struct Server {
    bios: Vec<Value>,
    components: Vec<Value>,
}

impl Default for Server {
    fn default() -> Self {
        let none = json!({"allowable_values": null, "lower_bound": null, "upper_bound": null, "min_length": null,
            "max_length": null, "read_only": false, "reset_required": null, "unique": null, "links": []});
        let setting = |fields: Value| {
            let mut setting = none.clone();
            setting.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
            setting
        };
        let choice = ["Enabled", "Disabled"];
        let component = |name: &str| {
            json!({"component": name, "initial_version": "1.0", "current_version": "1.0",
                "last_version_flashed": null, "created_at": "2026-03-01T10:00:00+00:00", "updated_at": null})
        };
        Self {
            bios: vec![
                setting(
                    json!({"name": "ProcTurboMode", "value": "Enabled", "attribute_type": "Enumeration", "allowable_values": choice}),
                ),
                setting(
                    json!({"name": "BootRetries", "value": "5", "attribute_type": "Integer", "lower_bound": 0, "upper_bound": 9}),
                ),
                setting(
                    json!({"name": "SerialNumber", "value": "X1", "attribute_type": "String", "read_only": true, "unique": true}),
                ),
                setting(json!({"name": "SysPassword", "value": "hidden", "attribute_type": "Password"})),
            ],
            components: vec![component("bios"), component("bmc"), component("psu")],
        }
    }
}

impl Firmware {
    /// Answer to `GET bios?detail=true`.
    pub fn bios(&mut self, uuid: &str) -> Value {
        self.reads += 1;
        if self.unread {
            return json!({"bios": []});
        }
        json!({"bios": self.servers.entry(uuid.to_owned()).or_default().bios})
    }

    /// Answer to `GET firmware`.
    pub fn components(&mut self, uuid: &str) -> Value {
        json!({"firmware": self.servers.entry(uuid.to_owned()).or_default().components})
    }

    /// Steps are begun by `target`.
    pub fn begin(&mut self, uuid: &str, target: &str, steps: &Value) {
        self.unread = false;
        self.steps.push((target.to_owned(), steps.clone()));
        self.begun.insert(uuid.to_owned(), steps.clone());
    }

    /// The steps are done.
    pub fn finish(&mut self, uuid: &str) {
        let steps = self.begun.remove(uuid).unwrap_or_default();
        let server = self.servers.entry(uuid.to_owned()).or_default();
        for step in steps.as_array().into_iter().flatten() {
            for wanted in step["args"]["settings"].as_array().into_iter().flatten() {
                match (step["interface"].as_str(), step["step"].as_str()) {
                    (Some("bios"), Some("apply_configuration")) if !self.stubborn => server.set(wanted),
                    (Some("firmware"), Some("update")) => server.flash(wanted),
                    _ => {}
                }
            }
        }
    }
}

impl Server {
    fn set(&mut self, wanted: &Value) {
        let setting = self.bios.iter_mut().find(|setting| setting["name"] == wanted["name"]).expect("a setting");
        // A BMC takes a number only as a number.
        assert!(setting["attribute_type"] != "Integer" || wanted["value"].is_i64(), "{wanted}");
        let value = &wanted["value"];
        setting["value"] = json!(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }

    fn flash(&mut self, wanted: &Value) {
        let found = self.components.iter_mut().find(|one| one["component"] == wanted["component"]);
        let component = found.expect("a component");
        component["current_version"] = json!("2.0");
        component["last_version_flashed"] = json!("2.0");
        component["updated_at"] = json!("2026-03-02T10:00:00+00:00");
    }
}
