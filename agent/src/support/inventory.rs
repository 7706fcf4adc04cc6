//! What the machine is made of, as the kernel and the firmware tell it.

use std::collections::BTreeSet;
use std::path::Path;

use agent_api::report::{Cpu, Disk, Firmware, Inventory, Machine, Nic};

use crate::host::block;

/// Collects it below `root`. What cannot be read stays empty.
pub fn collect(root: &Path) -> Inventory {
    let read = |path: &str| text(&root.join(path));
    let dmi = |name: &str| read(&format!("sys/class/dmi/id/{name}"));
    Inventory {
        machine: Machine {
            vendor: dmi("sys_vendor"),
            product: dmi("product_name"),
            serial: dmi("product_serial"),
            uuid: dmi("product_uuid"),
            board_serial: dmi("board_serial"),
            chassis_serial: dmi("chassis_serial"),
        },
        firmware: Firmware {
            kind: if root.join("sys/firmware/efi").exists() { "uefi" } else { "bios" }.to_owned(),
            vendor: dmi("bios_vendor"),
            version: dmi("bios_version"),
            date: dmi("bios_date"),
        },
        cpu: cpu(&read("proc/cpuinfo")),
        memory_mib: crate::vitals::memory_of(&read("proc/meminfo")).total_mib,
        disks: block::list(&root.join("sys/block")).unwrap_or_default().into_iter().map(disk).collect(),
        nics: nics(&root.join("sys/class/net")),
    }
}

fn disk(disk: block::Disk) -> Disk {
    let block::Disk { name, bytes, bus, serial, model, removable, .. } = disk;
    Disk { name, bytes, bus, serial, model, removable }
}

fn cpu(cpuinfo: &str) -> Cpu {
    let values = |key: &str| -> Vec<&str> {
        let line = |line: &'_ str| line.split_once(':').is_some_and(|(name, _)| name.trim() == key);
        let lines = cpuinfo.lines().filter(|text| line(text));
        lines.filter_map(|text| text.split_once(':').map(|(_, value)| value.trim())).collect()
    };
    let (packages, cores) = (values("physical id"), values("core id"));
    let sockets: BTreeSet<&str> = packages.iter().copied().collect();
    let pairs: BTreeSet<(&str, &str)> = packages.iter().copied().zip(cores).collect();
    let flags = values("flags");
    let has = |flag: &str| flags.first().is_some_and(|flags| flags.split(' ').any(|one| one == flag));
    Cpu {
        model: values("model name").first().copied().unwrap_or_default().to_owned(),
        sockets: sockets.len(),
        cores: pairs.len(),
        threads: values("processor").len(),
        virtualization: has("vmx") || has("svm"),
    }
}

/// Interfaces that are devices, by name: neither bridges nor those of pods.
fn nics(net: &Path) -> Vec<Nic> {
    let Ok(entries) = fs_err::read_dir(net) else { return Vec::new() };
    let mut found: Vec<Nic> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("device").exists())
        .map(|path| nic(&path))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn nic(path: &Path) -> Nic {
    let last = |link: &str| {
        let target = fs_err::canonicalize(path.join(link)).unwrap_or_default();
        target.file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    Nic {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        mac_address: text(&path.join("address")),
        driver: last("device/driver"),
        place: last("device"),
        speed_mbps: text(&path.join("speed")).parse().ok(),
        carrier: text(&path.join("carrier")) == "1",
    }
}

fn text(path: &Path) -> String {
    let bytes = fs_err::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{collect, cpu};

    #[test]
    fn processors_are_counted_once() {
        let one = |processor: u8, package: u8, core: u8| {
            format!(
                "processor\t: {processor}\nmodel name\t: Xeon 9\nphysical id\t: {package}\ncore id\t\t: {core}\nflags\t\t: fpu vmx\n\n"
            )
        };
        let text: String = (0..8).map(|n| one(n, n / 4, n % 4 / 2)).collect();
        let cpu = cpu(&text);
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads, cpu.virtualization), (2, 4, 8, true));
        assert_eq!(cpu.model, "Xeon 9");
    }

    #[test]
    fn what_is_not_there_stays_empty() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, text).expect("written");
        };
        write("sys/class/dmi/id/product_serial", "ABC123\n");
        write("sys/class/net/eth0/address", "52:54:00:12:34:56\n");
        write("sys/class/net/eth0/device/vendor", "");
        write("sys/class/net/cni0/address", "aa:bb\n");
        let inventory = collect(dir.path());
        assert_eq!(inventory.machine.serial, "ABC123");
        assert_eq!(inventory.firmware.kind, "bios");
        assert_eq!(
            inventory.nics.iter().map(|nic| nic.mac_address.as_str()).collect::<Vec<_>>(),
            ["52:54:00:12:34:56"]
        );
        assert!(inventory.disks.is_empty() && inventory.machine.vendor.is_empty());
    }
}
