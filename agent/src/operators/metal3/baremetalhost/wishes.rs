//! What a host means for Ironic: the node, the changes of it, what is cleaned, deployed and put on the config drive.

use std::collections::BTreeMap;

use agent_api::metal3::annotations::{BY_HTTP, VIRTUAL_MEDIA};
use agent_api::metal3::bmc_address::{BmcAddress, Credentials, Driver};
use agent_api::metal3::{
    AutomatedCleaningMode, BareMetalHost, BootMode, ChecksumType, DiskFormat, Image, RootDeviceHints,
};
use agent_api::yaml;
use serde_json::{Map, Value, json};

use crate::ironic::{Node, Patch, Version};
use crate::operators::metal3::common::{Ramdisk, node_name};
use crate::provisioning::config::UNCHECKED;
use crate::ramdisk::network_data::NetworkData;

/// What Ironic shall know about a host.
#[derive(Clone, Debug)]
pub struct Registration {
    fields: Map<String, Value>,
    /// Told with the driver only: inspecting and preparing change them.
    once: Map<String, Value>,
    driver_info: Map<String, Value>,
    properties: Map<String, Value>,
    /// The ramdisk that the node has is left as it is.
    any_ramdisk: bool,
    /// So is its network.
    any_network: bool,
}

impl Registration {
    /// Of a host. `ramdisk`: the one that the node has stays when `None`. `network_data`: of the ramdisk.
    pub fn of(
        host: &BareMetalHost,
        bmc: &BmcAddress,
        credentials: &Credentials,
        ramdisk: Option<&Ramdisk>,
        network_data: Option<Value>,
    ) -> Self {
        let spec = &host.spec;
        let any_certificate = spec.bmc.as_ref().and_then(|it| it.disable_certificate_verification).unwrap_or_default();
        let mut driver_info = bmc.driver_info(credentials, any_certificate);
        let parts = match ramdisk {
            Some(Ramdisk { iso: Some(iso), .. }) if bmc.driver.boots_iso() => vec![("deploy_iso", iso.clone())],
            Some(Ramdisk { kernel: Some(kernel), initrd: Some(initrd), .. }) => {
                vec![("deploy_kernel", kernel.clone()), ("deploy_ramdisk", initrd.clone())]
            }
            Some(Ramdisk { .. }) | None => Vec::new(),
        };
        let params = ramdisk.and_then(|ramdisk| ramdisk.kernel_params.as_ref());
        let params = params.map(|params| (PARAMS, format!("%default% {params}")));
        let parts = parts.into_iter().chain(params);
        driver_info.extend(parts.map(|(name, value)| (name.to_owned(), json!(value))));
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("name", json!(node_name(host)));
        set("driver", json!(bmc.driver.hardware_type()));
        set("boot_interface", json!(bmc.driver.boot_interface()));
        set("automated_clean", json!(spec.automated_cleaning_mode != Some(AutomatedCleaningMode::Disabled)));
        if spec.disable_power_off == Some(true) {
            set("disable_power_off", json!(true));
        }
        if let Some(vendor) = bmc.driver.vendor_interfaces() {
            for interface in ["bios_interface", "management_interface", "power_interface", "vendor_interface"] {
                set(interface, json!(vendor));
            }
        }
        if let Some(data) = network_data {
            set("network_data", data);
        }
        let mut properties = Map::new();
        properties.insert("capabilities".into(), json!(capabilities(None, spec.boot_mode)));
        properties.extend(spec.architecture.as_ref().map(|arch| ("cpu_arch".to_owned(), json!(arch))));
        let once = [
            ("inspect_interface", Some("agent")),
            ("raid_interface", Some(bmc.driver.raid_interface())),
            ("firmware_interface", bmc.driver.firmware_interface()),
        ];
        let once = once.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect();
        Self { fields, once, driver_info, properties, any_ramdisk: ramdisk.is_none(), any_network: false }
    }

    /// Leaves the node the network data that it has.
    #[must_use]
    pub fn with_any_network(mut self, any: bool) -> Self {
        self.any_network = any;
        self
    }

    /// Checks the certificate of a BMC that speaks Redfish against a file on Ironic's machine, unless it shall not be checked.
    #[must_use]
    pub fn trusting(mut self, authorities: Option<&str>) -> Self {
        let redfish = self.driver_info.contains_key("redfish_address");
        if let Some(file) = authorities.filter(|_| redfish) {
            self.driver_info.entry("redfish_verify_ca").or_insert_with(|| json!(file));
        }
        self
    }

    /// Has the BMC fetch virtual media below that URL of the box's Ironic, unless the host says that it can fetch them by plain
    /// HTTP only. UEFI, which has no way to trust the box, always does so; nor does a ramdisk that it started find the box's
    /// authority.
    #[must_use]
    pub fn media_from(mut self, host: &BareMetalHost, driver: Driver, url: Option<&str>) -> Self {
        let Some(url) = url else { return self };
        if driver == Driver::RedfishUefihttp {
            let params = self.driver_info.get(PARAMS).and_then(Value::as_str).unwrap_or("%default%");
            self.driver_info.insert(PARAMS.to_owned(), json!(format!("{params} {UNCHECKED}")));
        } else if driver.uses_virtual_media() && host.annotation(VIRTUAL_MEDIA) != Some(BY_HTTP) {
            self.driver_info.insert(MEDIA.to_owned(), json!(url));
        }
        self
    }

    /// Why this Ironic must not have the host; nothing when it may.
    pub fn refused(&self, version: Version) -> Option<String> {
        let needs = self.fields.contains_key("disable_power_off") && version < Version::NEWEST;
        needs.then(|| "current ironic version does not support DisablePowerOff, refusing to manage node".to_owned())
    }

    /// The whole, for a node that is not there yet.
    pub fn whole(&self) -> Value {
        let mut node = self.fields.clone();
        node.extend(self.once.clone());
        node.insert("driver_info".into(), Value::Object(self.driver_info.clone()));
        node.insert("properties".into(), Value::Object(self.properties.clone()));
        Value::Object(node)
    }

    /// What must change about a node for it to be as told. `credentials`: they are told anew, since Ironic masks what it has.
    pub fn changes(&self, node: &Node, credentials: bool) -> Vec<Patch> {
        let mut changes = Vec::new();
        let is = |name: &str| -> Value {
            match name {
                "name" => json!(node.name),
                "driver" => json!(node.driver),
                "boot_interface" => json!(node.boot_interface),
                "automated_clean" => json!(node.automated_clean),
                "disable_power_off" => json!(node.disable_power_off),
                "network_data" => json!(node.network_data),
                // Told once: they follow from the driver.
                _ => self.fields.get(name).cloned().unwrap_or_default(),
            }
        };
        let driver = node.driver != self.fields["driver"];
        for (name, value) in &self.fields {
            if is(name) != *value || driver && name.ends_with("_interface") {
                changes.push(Patch::add(format!("/{name}"), value.clone()));
            }
        }
        if driver {
            changes.extend(self.once.iter().map(|(name, value)| Patch::add(format!("/{name}"), value.clone())));
        }
        // What is not asked for any more.
        if node.disable_power_off == Some(true) && !self.fields.contains_key("disable_power_off") {
            changes.push(Patch::add("/disable_power_off", false));
        }
        let has_network = node.network_data.as_ref().and_then(Value::as_object).is_some_and(|data| !data.is_empty());
        if has_network && !self.any_network && !self.fields.contains_key("network_data") {
            changes.push(Patch::remove("/network_data"));
        }
        let mut wanted = self.driver_info.clone();
        if self.any_ramdisk {
            let there = node.driver_info.iter().filter(|(name, _)| RAMDISK.contains(&name.as_str()));
            wanted.extend(there.map(|(name, value)| (name.clone(), value.clone())));
        }
        let mut told = wanted.iter().filter(|(name, _)| !name.ends_with("_password"));
        let same = told.all(|(name, value)| node.driver_info.get(name) == Some(value))
            && !ours(node).any(|name| !wanted.contains_key(name));
        if !same || credentials {
            changes.push(Patch::add("/driver_info", Value::Object(wanted)));
        }
        // Ironic's hooks write others beside it.
        let has = node.properties.get("capabilities").and_then(Value::as_str);
        let wanted = self.properties["capabilities"].as_str().unwrap_or_default();
        if !has.unwrap_or_default().split(',').any(|one| one == wanted) {
            changes.push(Patch::add("/properties/capabilities", merged(has, wanted)));
        }
        if let Some(arch) =
            self.properties.get("cpu_arch").filter(|arch| node.properties.get("cpu_arch") != Some(*arch))
        {
            changes.push(Patch::add("/properties/cpu_arch", arch.clone()));
        }
        changes
    }
}

/// The ramdisk's kernel parameters in `driver_info`.
const PARAMS: &str = "kernel_append_params";
/// Names in `driver_info` that tell a node its ramdisk.
const RAMDISK: [&str; 4] = ["deploy_iso", "deploy_kernel", "deploy_ramdisk", PARAMS];
/// Where the BMC fetches virtual media, in `driver_info`.
const MEDIA: &str = "external_http_url";

/// Names in `driver_info` that are ours to set or not.
fn ours(node: &Node) -> impl Iterator<Item = &String> {
    let all = node.driver_info.iter().filter(|(name, value)| {
        // Parameters that are not put after Ironic's own were set by somebody else.
        let foreign = *name == PARAMS && !value.as_str().is_some_and(|it| it.starts_with("%default% "));
        let of_boot = name.as_str() == MEDIA || RAMDISK.contains(&name.as_str()) && !foreign;
        of_boot || name.starts_with("redfish_") || name.starts_with("ipmi_")
    });
    all.map(|(name, _)| name)
}

/// `boot_mode:...`, and `secure_boot:true` where the instance shall have it.
fn capabilities(instance: Option<()>, mode: Option<BootMode>) -> String {
    let boot = match mode.unwrap_or_default() {
        BootMode::Uefi | BootMode::UefiSecureBoot => "boot_mode:uefi",
        BootMode::Legacy => "boot_mode:bios",
    };
    let secure = instance.is_some() && mode == Some(BootMode::UefiSecureBoot);
    if secure { format!("{boot},secure_boot:true") } else { boot.to_owned() }
}

/// Capabilities with another boot mode.
fn merged(has: Option<&str>, boot: &str) -> String {
    let others = has.unwrap_or_default().split(',').filter(|one| !one.is_empty() && !one.starts_with("boot_mode:"));
    others.chain([boot]).collect::<Vec<_>>().join(",")
}

/// Root device hints in Ironic's words ("Specifying the disk for deployment").
pub fn hints(hints: &RootDeviceHints) -> Map<String, Value> {
    let exactly = |text: &Option<String>| text.as_ref().map(|text| format!("s== {text}"));
    let part = |text: &Option<String>| text.as_ref().map(|text| format!("<in> {text}"));
    let by_path = hints.device_name.as_ref().is_some_and(|name| name.starts_with("/dev/disk/by-path/"));
    let all = [
        (if by_path { "by_path" } else { "name" }, exactly(&hints.device_name)),
        ("hctl", exactly(&hints.hctl)),
        ("model", part(&hints.model)),
        ("vendor", part(&hints.vendor)),
        ("serial", exactly(&hints.serial_number)),
        ("size", hints.min_size_gigabytes.filter(|size| *size > 0).map(|size| format!(">= {size}"))),
        ("wwn", exactly(&hints.wwn)),
        ("wwn_with_extension", exactly(&hints.wwn_with_extension)),
        ("wwn_vendor_extension", exactly(&hints.wwn_vendor_extension)),
        ("rotational", hints.rotational.map(|rotates| rotates.to_string())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

/// The changes that give a node an instance: image, disk, owner, deploy interface. `pull_secret`: of the image's registry.
pub fn instance(host: &BareMetalHost, node: &Node, image: Option<&Image>, pull_secret: Option<String>) -> Vec<Patch> {
    let custom = !host.spec.custom_method().is_empty();
    let live = image.is_some_and(|image| image.format == Some(DiskFormat::LiveIso));
    let mut info = Map::new();
    info.insert("capabilities".into(), json!(instance_capabilities(host)));
    let status = host.status.as_ref().map(|status| &status.provisioning);
    let disk = status.and_then(|it| it.root_device_hints.as_ref()).or(host.spec.root_device_hints.as_ref());
    if let Some(disk) = disk.map(hints).filter(|disk| !disk.is_empty()) {
        info.insert("root_device".into(), Value::Object(disk));
    }
    if let Some(image) = image.filter(|image| !image.url.is_empty()) {
        if live {
            info.insert("boot_iso".into(), json!(image.url));
        } else {
            info.insert("image_source".into(), json!(image.url));
            info.extend(checksum(image));
            if let Some(format) = image.format {
                info.insert("image_disk_format".into(), json!(format));
            }
        }
        info.extend(pull_secret.map(|secret| ("image_pull_secret".to_owned(), json!(secret))));
    }
    let mut changes = vec![Patch::add("/instance_info", Value::Object(info))];
    if let Some(uid) = &host.metadata.uid {
        changes.push(Patch::add("/instance_uuid", uid.clone()));
    }
    let deploy = if live { Some("ramdisk") } else { custom.then_some("custom-agent") };
    match deploy {
        Some(deploy) if node.deploy_interface.as_deref() != Some(deploy) => {
            changes.push(Patch::add("/deploy_interface", deploy));
        }
        // Back to Ironic's default.
        None if matches!(node.deploy_interface.as_deref(), Some("ramdisk" | "custom-agent")) => {
            changes.push(Patch::remove("/deploy_interface"));
        }
        Some(_) | None => {}
    }
    changes
}

fn instance_capabilities(host: &BareMetalHost) -> BTreeMap<String, String> {
    let text = capabilities(Some(()), host.spec.boot_mode);
    text.split(',').filter_map(|one| one.split_once(':')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// Ironic finds out the kind of a checksum by its length where the user does not name it.
fn checksum(image: &Image) -> Vec<(String, Value)> {
    let Some(checksum) = image.checksum.as_ref().filter(|checksum| !checksum.is_empty()) else { return Vec::new() };
    match image.checksum_type {
        None | Some(ChecksumType::Auto) => vec![("image_checksum".to_owned(), json!(checksum))],
        Some(kind @ (ChecksumType::Md5 | ChecksumType::Sha256 | ChecksumType::Sha512)) => {
            vec![("image_os_hash_algo".to_owned(), json!(kind)), ("image_os_hash_value".to_owned(), json!(checksum))]
        }
    }
}

/// Why an image cannot be written, before anything is done for it.
pub fn image_problem(image: &Image) -> Option<String> {
    let needless = image.format == Some(DiskFormat::LiveIso) || image.url.to_ascii_lowercase().starts_with("oci://");
    let missing = image.checksum.as_deref().unwrap_or_default().is_empty() && !needless;
    missing.then(|| "checksum is required for normal images".to_owned())
}

/// Steps of a deployment of one's own.
pub fn deploy_steps(host: &BareMetalHost) -> Option<Value> {
    let method = host.spec.custom_method();
    (!method.is_empty()).then(|| json!([{"interface": "deploy", "step": method, "args": {}, "priority": 80}]))
}

/// Texts of the Secrets that a host names for its config drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudData {
    /// As it is.
    pub user: Option<String>,
    /// YAML or JSON.
    pub network: Option<String>,
    /// YAML or JSON.
    pub meta: Option<String>,
}

/// The config drive. Names that the host's metadata does not have are made up.
///
/// # Errors
/// Which of the texts is no YAML.
pub fn config_drive(host: &BareMetalHost, data: &CloudData) -> Result<Value, String> {
    let name = host.metadata.name.as_deref().unwrap_or_default();
    let mut meta = Map::new();
    for (field, value) in [
        ("uuid", host.metadata.uid.as_deref().unwrap_or_default()),
        ("metal3-namespace", host.metadata.namespace.as_deref().unwrap_or_default()),
        ("metal3-name", name),
        ("local-hostname", name),
        ("local_hostname", name),
        ("name", name),
    ] {
        meta.insert(field.to_owned(), json!(value));
    }
    if let Some(text) = data.meta.as_ref().filter(|text| !text.trim().is_empty()) {
        let told = yaml::read::<Map<String, Value>>(text);
        meta.extend(told.map_err(|error| format!("the metadata is no YAML object: {error}"))?);
    }
    let mut drive = json!({"meta_data": meta});
    if let Some(user) = data.user.as_ref().filter(|user| !user.is_empty()) {
        drive["user_data"] = json!(user);
    }
    if let Some(text) = data.network.as_ref().filter(|text| !text.is_empty()) {
        drive["network_data"] = network_data(text)?;
    }
    Ok(drive)
}

/// Network data as an object. What neither ramdisk nor OS image could make anything of is refused here, where somebody
/// reads it.
///
/// # Errors
/// Why the text cannot be used as network data.
pub fn network_data(text: &str) -> Result<Value, String> {
    let data = yaml::read::<Map<String, Value>>(text);
    let data = Value::Object(data.map_err(|error| format!("the network data is no YAML object: {error}"))?);
    let units = NetworkData::read(&data).and_then(|data| data.units(""));
    units.map_err(|error| format!("the network data cannot be used: {error}"))?;
    Ok(data)
}

/// What preparing does about firmware: nothing when it is empty. `bios`: settings that differ.
pub fn firmware_steps(bios: &Map<String, Value>, firmware: &[Value]) -> Vec<Value> {
    let mut steps = Vec::new();
    if !firmware.is_empty() {
        steps.push(json!({"interface": "firmware", "step": "update", "args": {"settings": firmware}}));
    }
    if !bios.is_empty() {
        let settings: Vec<Value> = bios.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        steps.push(json!({"interface": "bios", "step": "apply_configuration", "args": {"settings": settings}}));
    }
    steps
}

#[cfg(test)]
#[path = "wishes_tests.rs"]
mod tests;
