//! The report as text, for somebody who opens the stick on a laptop.

use std::fmt::Write as _;

use agent_api::report::{Inventory, Report};

/// Plain text with DOS line ends: every editor shows it.
pub fn text(report: &Report, inventory: &Inventory) -> String {
    let mut out = String::new();
    write(&mut out, report, inventory);
    out.replace('\n', "\r\n")
}

fn write(out: &mut String, report: &Report, inventory: &Inventory) {
    let status = &report.status;
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("{} {}, host {}", status.name, status.version, status.hostname));
    line(format!("written {} because {}", report.written, report.because));
    line(match (status.status.ready, status.ready_at) {
        (true, Some(at)) => format!("READY since {at:.1} s after power-on, up {:.0} s", status.uptime_secs),
        _ => format!(
            "NOT READY, up {:.0} s, {} of {} steps",
            status.uptime_secs, status.progress.done, status.progress.total
        ),
    });
    line(format!("release {}", status.release));
    line(String::new());
    for step in status.status.failed() {
        line(format!("FAILED {}/{}", step.phase, step.step));
        for key in ["cause", "next", "log"] {
            if let Some(text) = step.detail.get(key).and_then(serde_json::Value::as_str) {
                line(format!("  {key}: {text}"));
            }
        }
    }
    for failure in &status.medium.failures {
        line(format!("DAMAGED {}", failure.message));
    }
    for object in status.objects.iter().filter(|object| !object.healthy) {
        line(format!("UNHEALTHY {}: {}", object.title(), object.message));
    }
    for pull in &status.status.pulls {
        line(format!("MISSING image {}", pull.image));
    }
    line(String::new());
    let machine = &inventory.machine;
    line(format!("machine   {} {}, serial {}", machine.vendor, machine.product, machine.serial));
    line(format!("firmware  {} {} {}", inventory.firmware.kind, inventory.firmware.vendor, inventory.firmware.version));
    line(format!(
        "processor {}, {} cores, {} threads",
        inventory.cpu.model, inventory.cpu.cores, inventory.cpu.threads
    ));
    line(format!("memory    {} MiB, {} MiB in use", inventory.memory_mib, status.memory.used_mib));
    for disk in &inventory.disks {
        line(format!("disk      {} {} MiB {} {} {}", disk.name, disk.bytes >> 20, disk.bus, disk.model, disk.serial));
    }
    for nic in &inventory.nics {
        let carrier = if nic.carrier { "cable in" } else { "no cable" };
        line(format!("network   {} {} {} {carrier}", nic.name, nic.mac_address, nic.driver));
    }
    for address in &status.status.addresses {
        line(format!("address   {address}"));
    }
    line(String::new());
    line("More: report.json, inventory.json, support-bundle.tar.gz".to_owned());
}
