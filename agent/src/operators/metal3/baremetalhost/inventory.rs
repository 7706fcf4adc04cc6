//! What inspection found, as the resource has it: the same JSON that metal3's operator makes of the same inventory.

use agent_api::metal3::{Bios, Cpu, DiskType, Firmware, HardwareDetails, Lldp, Nic, Storage, SystemVendor, Vlan};
use serde_json::Value;

/// Of the answer to `GET /v1/nodes/{uuid}/inventory`: `inventory` from the ramdisk or the BMC, `plugin_data` from
/// Ironic's inspection hooks. What is missing is left out.
pub fn hardware(found: &Value) -> HardwareDetails {
    let (inventory, plugins) = (&found["inventory"], &found["plugin_data"]);
    let vendor = &inventory["system_vendor"];
    let firmware = &vendor["firmware"];
    HardwareDetails {
        system_vendor: Some(SystemVendor {
            manufacturer: text(&vendor["manufacturer"]),
            product_name: text(&vendor["product_name"]),
            serial_number: text(&vendor["serial_number"]),
        }),
        firmware: Some(Firmware {
            bios: Some(Bios {
                date: text(&firmware["build_date"]),
                vendor: text(&firmware["vendor"]),
                version: text(&firmware["version"]),
            }),
        }),
        ram_mebibytes: number(&inventory["memory"]["physical_mb"]),
        nics: Some(list(&inventory["interfaces"]).iter().flat_map(|one| nics(one, plugins)).collect()),
        storage: Some(list(&inventory["disks"]).iter().map(disk).collect()),
        cpu: Some(cpu(&inventory["cpu"])),
        hostname: text(&inventory["hostname"]),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text that is not empty.
fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A number that is not 0.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().filter(|number| *number != 0)
}

/// `true`, or nothing.
fn flag(value: &Value) -> Option<bool> {
    value.as_bool().filter(|flag| *flag)
}

/// One for each address of an interface, and one for an interface without any.
fn nics(interface: &Value, plugins: &Value) -> Vec<Nic> {
    let name = interface["name"].as_str().unwrap_or_default();
    let lldp = &plugins["parsed_lldp"][name];
    let ids = [&interface["vendor"], &interface["product"]].map(|id| id.as_str().unwrap_or_default());
    let model = ids.join(" ").trim_start().to_owned();
    let vlans: Vec<Vlan> = list(&lldp["switch_port_vlans"]).iter().map(vlan).collect();
    let nic = |ip| Nic {
        name: text(&interface["name"]),
        model: Some(model.clone()).filter(|model| !model.is_empty()),
        mac: text(&interface["mac_address"]),
        ip,
        speed_gbps: interface["speed_mbps"].as_i64().map(|mbps| mbps / 1000).filter(|gbps| *gbps != 0),
        vlans: Some(vlans.clone()).filter(|vlans| !vlans.is_empty()),
        vlan_id: vlan_id(&lldp["switch_port_untagged_vlan_id"]),
        pxe: flag(&plugins["all_interfaces"][name]["pxe_enabled"]),
        lldp: switch(lldp),
        pci_address: text(&interface["pci_address"]),
    };
    let addresses = [&interface["ipv4_address"], &interface["ipv6_address"]].map(text);
    let found: Vec<Nic> = addresses.into_iter().flatten().map(|ip| nic(Some(ip))).collect();
    if found.is_empty() { vec![nic(None)] } else { found }
}

fn vlan(value: &Value) -> Vlan {
    Vlan { id: vlan_id(&value["id"]), name: text(&value["name"]) }
}

fn vlan_id(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| (1..=4094).contains(id))
}

fn switch(lldp: &Value) -> Option<Lldp> {
    let found = Lldp {
        switch_id: text(&lldp["switch_chassis_id"]),
        port_id: text(&lldp["switch_port_id"]),
        switch_system_name: text(&lldp["switch_system_name"]),
    };
    (found != Lldp::default()).then_some(found)
}

fn disk(disk: &Value) -> Storage {
    let name = disk["name"].as_str().unwrap_or_default();
    let by_path = text(&disk["by_path"]);
    let rotational = flag(&disk["rotational"]);
    let kind = match rotational {
        Some(_) => DiskType::Hdd,
        None if name.starts_with("/dev/nvme") => DiskType::Nvme,
        None => DiskType::Ssd,
    };
    let mut names = vec![name.to_owned()];
    names.extend(by_path.clone());
    Storage {
        name: by_path.or_else(|| text(&disk["name"])),
        alternate_names: Some(names),
        rotational,
        kind: Some(kind),
        size_bytes: number(&disk["size"]),
        vendor: text(&disk["vendor"]),
        model: text(&disk["model"]),
        serial_number: text(&disk["serial"]),
        wwn: text(&disk["wwn"]),
        wwn_vendor_extension: text(&disk["wwn_vendor_extension"]),
        wwn_with_extension: text(&disk["wwn_with_extension"]),
        hctl: text(&disk["hctl"]),
    }
}

fn cpu(cpu: &Value) -> Cpu {
    let mut flags: Vec<String> = list(&cpu["flags"]).iter().filter_map(text).collect();
    flags.sort();
    // A text with a fraction from the ramdisk, such as `2100.084`.
    let clock = cpu["frequency"].as_f64().or_else(|| cpu["frequency"].as_str()?.trim().parse().ok());
    Cpu {
        arch: text(&cpu["architecture"]),
        model: text(&cpu["model_name"]),
        clock_megahertz: clock.map(f64::round).filter(|clock| clock.is_normal()),
        flags: Some(flags).filter(|flags| !flags.is_empty()),
        count: number(&cpu["count"]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::{Value, json};

    use super::hardware;

    /// A server's inventory with everything that is read of it.
    fn whole() -> Value {
        json!({
            "inventory": {
                "hostname": "node-0", "bmc_address": "192.168.111.1",
                "cpu": {"architecture": "x86_64", "count": 2, "frequency": "2099.998", "flags": ["vme", "fpu"],
                    "model_name": "Intel Xeon"},
                "memory": {"physical_mb": 4096, "total": 4_294_967_296_u64},
                "system_vendor": {"manufacturer": "QEMU", "product_name": "Standard PC", "serial_number": "",
                    "firmware": {"vendor": "EDK II", "version": "1.0", "build_date": "02/06/2015"}},
                "disks": [
                    {"name": "/dev/sda", "by_path": "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", "size": 10_737_418_240_u64,
                        "rotational": true, "vendor": "ATA", "model": "QEMU", "serial": "1", "hctl": "0:0:0:0",
                        "wwn": "0x5000", "wwn_with_extension": null},
                    {"name": "/dev/nvme0n1", "by_path": null, "size": 5, "rotational": false}],
                "interfaces": [
                    {"name": "eth0", "mac_address": "00:5c:52:31:3a:9c", "ipv4_address": "172.22.0.10",
                        "ipv6_address": "fd00::10", "vendor": "0x1af4", "product": "0x0001", "speed_mbps": 25_000,
                        "pci_address": "0000:00:02.0"},
                    {"name": "eth1", "mac_address": "00:5c:52:31:3a:9d", "ipv4_address": null, "product": "0x2"}]},
            "plugin_data": {
                "all_interfaces": {"eth0": {"pxe_enabled": true}, "eth1": {"pxe_enabled": false}},
                "parsed_lldp": {"eth0": {"switch_chassis_id": "aa:bb", "switch_port_id": "7",
                    "switch_port_untagged_vlan_id": 5, "switch_port_vlans": [{"id": 10, "name": "ten"}]}}},
        })
    }

    /// BMO-18.
    #[test]
    fn an_inventory_becomes_what_upstream_makes_of_it() {
        let first = |ip: &str| {
            json!({"name": "eth0", "model": "0x1af4 0x0001", "mac": "00:5c:52:31:3a:9c", "ip": ip, "speedGbps": 25,
                "vlans": [{"id": 10, "name": "ten"}], "vlanId": 5, "pxe": true,
                "lldp": {"switchID": "aa:bb", "portID": "7"}, "pciAddress": "0000:00:02.0"})
        };
        let wanted = json!({
            "systemVendor": {"manufacturer": "QEMU", "productName": "Standard PC"},
            "firmware": {"bios": {"date": "02/06/2015", "vendor": "EDK II", "version": "1.0"}},
            "ramMebibytes": 4096,
            "nics": [first("172.22.0.10"), first("fd00::10"),
                {"name": "eth1", "model": "0x2", "mac": "00:5c:52:31:3a:9d"}],
            "storage": [
                {"name": "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
                    "alternateNames": ["/dev/sda", "/dev/disk/by-path/pci-0000:00:1f.2-ata-1"],
                    "rotational": true, "type": "HDD", "sizeBytes": 10_737_418_240_u64, "vendor": "ATA", "model": "QEMU",
                    "serialNumber": "1", "wwn": "0x5000", "hctl": "0:0:0:0"},
                {"name": "/dev/nvme0n1", "alternateNames": ["/dev/nvme0n1"], "type": "NVME", "sizeBytes": 5}],
            "cpu": {"arch": "x86_64", "model": "Intel Xeon", "clockMegahertz": 2100.0, "flags": ["fpu", "vme"], "count": 2},
            "hostname": "node-0",
        });
        assert_eq!(json!(hardware(&whole())), wanted);
    }

    #[test]
    fn an_inventory_without_anything_is_no_panic() {
        let empty = json!({"systemVendor": {}, "firmware": {"bios": {}}, "nics": [], "storage": [], "cpu": {}});
        for found in [json!({}), json!(null), json!({"inventory": {"disks": 3, "interfaces": "x"}})] {
            assert_eq!(json!(hardware(&found)), empty);
        }
    }

    /// Puts `odd` in the place of the value that is reached when `left` others were passed.
    fn put(value: &mut Value, left: &mut usize, odd: &Value) {
        if *left == 0 {
            *value = odd.clone();
        }
        *left = left.wrapping_sub(1);
        match value {
            Value::Array(all) => all.iter_mut().for_each(|one| put(one, left, odd)),
            Value::Object(all) => all.values_mut().for_each(|one| put(one, left, odd)),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn an_inventory_with_one_odd_value_is_no_panic(
            place in 0..70_usize, text in any::<String>(), number in any::<f64>(), whole_number in any::<i64>(),
        ) {
            for odd in [json!(text), json!(number), json!(whole_number), json!([text]), json!({text.as_str(): number})] {
                let (mut found, mut left) = (whole(), place);
                put(&mut found, &mut left, &odd);
                let _ = hardware(&found);
            }
        }

        #[test]
        fn inventories_that_are_none_are_no_panic(text in any::<String>(), number in any::<f64>()) {
            for odd in [json!(text), json!(number), json!([text]), json!({"name": number})] {
                let found: Value = json!({"inventory": {"cpu": {"frequency": odd, "flags": odd}, "memory": odd,
                    "disks": [odd, {"name": odd}], "interfaces": [odd, {"name": text, "mac_address": odd}]},
                    "plugin_data": {"parsed_lldp": {text.clone(): odd}}});
                let _ = hardware(&found);
            }
        }
    }
}
