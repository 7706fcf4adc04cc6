//! The document that a domain is started from: its own one, with the boot order, firmware and medium that clients of
//! Redfish have set. Pure.

use foothold_qemu::bmc::{Boot, BootFrom, Mode};

use crate::vino_node::xml::{Element, XmlError};

/// The firmware that a domain's document has.
pub fn mode(domain: &Element) -> Mode {
    let Some(os) = domain.child("os") else { return Mode::Legacy };
    let efi = os.get("firmware") == Some("efi") || os.of_child("loader", "type") == Some("pflash");
    if efi { Mode::Uefi } else { Mode::Legacy }
}

/// The document for a start. `medium`: the image in the CD drive.
pub fn document(xml: &str, boot: Boot, medium: Option<&str>) -> Result<String, XmlError> {
    let mut domain = Element::parse(xml)?;
    if mode(&domain) != boot.mode
        && let Some(os) = domain.child_mut("os")
    {
        set_mode(os, boot.mode);
    }
    let i440fx = domain
        .child("os")
        .and_then(|os| os.of_child("type", "machine"))
        .is_some_and(|machine| machine.starts_with("pc-i440fx"));
    if let Some(devices) = domain.child_mut("devices") {
        insert(devices, medium, i440fx);
    }
    if boot.from != BootFrom::Normal {
        if let Some(os) = domain.child_mut("os") {
            os.remove("boot");
        }
        if let Some(devices) = domain.child_mut("devices") {
            order(devices, boot.from);
        }
    }
    Ok(domain.write())
}

fn set_mode(os: &mut Element, mode: Mode) {
    for child in ["loader", "nvram", "firmware"] {
        os.remove(child);
    }
    match mode {
        Mode::Legacy => os.unset("firmware"),
        Mode::Uefi => {
            os.set("firmware", "efi");
            let mut features = Element::new("firmware");
            for name in ["secure-boot", "enrolled-keys"] {
                features.add(Element::new("feature").with("enabled", "no").with("name", name));
            }
            os.add(features);
        }
    }
}

/// Puts the image into the first CD drive, which is made when the template has none.
fn insert(devices: &mut Element, medium: Option<&str>, i440fx: bool) {
    let is_drive = |element: &Element| element.name == "disk" && element.get("device") == Some("cdrom");
    if medium.is_some() && !devices.elements().any(is_drive) {
        let (dev, bus) = if i440fx { ("hdc", "ide") } else { ("sdf", "sata") };
        let mut drive = Element::new("disk").with("type", "file").with("device", "cdrom");
        drive.add(Element::new("target").with("dev", dev).with("bus", bus));
        drive.add(Element::new("readonly"));
        devices.add(drive);
    }
    let Some(drive) = devices.elements_mut().find(|element| is_drive(element)) else { return };
    let Some(image) = medium else { return };
    drive.remove("source");
    drive.set("type", "file");
    drive.add(Element::new("source").with("file", image));
}

/// Numbers disks, drives and cards for booting. The kind that is asked for comes first. Within a kind the order is that of
/// its numbers in the template, then that of the document.
fn order(devices: &mut Element, from: BootFrom) {
    let kind = |element: &Element| match (element.name.as_str(), element.get("device").unwrap_or("disk")) {
        ("disk", "cdrom") => Some(BootFrom::Cd),
        ("disk", "disk") => Some(BootFrom::Disk),
        ("interface", _) => Some(BootFrom::Network),
        _ => None,
    };
    let kinds: &[BootFrom] = match from {
        BootFrom::Network => &[BootFrom::Network, BootFrom::Disk],
        BootFrom::Cd => &[BootFrom::Cd, BootFrom::Disk, BootFrom::Network],
        BootFrom::Disk | BootFrom::Normal => &[BootFrom::Disk, BootFrom::Network],
    };
    let own = |element: &Element| element.of_child("boot", "order").and_then(|order| order.parse::<u32>().ok());
    let mut found: Vec<(usize, u32, usize)> = Vec::new();
    for (index, element) in devices.elements().enumerate() {
        let place = kind(element).and_then(|kind| kinds.iter().position(|wanted| *wanted == kind));
        found.extend(place.map(|place| (place, own(element).unwrap_or(u32::MAX), index)));
    }
    found.sort_unstable();
    let numbers: Vec<usize> = found.into_iter().map(|(_, _, index)| index).collect();
    for (index, element) in devices.elements_mut().enumerate() {
        element.remove("boot");
        if let Some(number) = numbers.iter().position(|wanted| *wanted == index) {
            element.add(Element::new("boot").with("order", (number + 1).to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use foothold_qemu::bmc::{Boot, BootFrom, Mode};

    use super::{document, mode};
    use crate::vino_node::xml::Element;

    const DOMAIN: &str = "<domain><os firmware='efi'><type machine='pc-q35-10.0'>hvm</type><boot dev='hd'/><loader type='pflash'/></os><devices>\
        <disk device='disk'><target dev='vda'/></disk><disk device='cdrom'><target dev='sda'/></disk>\
        <interface><mac address='a'/></interface><interface><mac address='b'/><boot order='1'/></interface></devices></domain>";

    fn orders(boot: Boot, medium: Option<&str>) -> Vec<(String, Option<String>)> {
        let text = document(DOMAIN, boot, medium).expect("a document");
        let root = Element::parse(&text).expect("XML");
        let devices = root.child("devices").expect("devices");
        let name = |element: &Element| {
            element
                .of_child("target", "dev")
                .or_else(|| element.of_child("mac", "address"))
                .unwrap_or_default()
                .to_owned()
        };
        devices
            .elements()
            .map(|element| (name(element), element.of_child("boot", "order").map(str::to_owned)))
            .collect()
    }

    #[test]
    fn what_is_asked_for_comes_first_and_cards_keep_their_own_order() {
        let boot = |from| Boot { from, once: false, mode: Mode::Uefi };
        let told = |from| {
            orders(boot(from), None).into_iter().filter_map(|(name, order)| Some(order? + &name)).collect::<Vec<_>>()
        };
        assert_eq!(told(BootFrom::Network), ["3vda", "2a", "1b"]);
        assert_eq!(told(BootFrom::Cd), ["2vda", "1sda", "4a", "3b"]);
        assert_eq!(told(BootFrom::Disk), ["1vda", "3a", "2b"]);
        assert_eq!(told(BootFrom::Normal), ["1b"], "as it stands");
    }

    #[test]
    fn a_medium_goes_into_the_drive_and_one_is_made_where_there_is_none() {
        let text = document(DOMAIN, Boot { mode: Mode::Uefi, ..Boot::default() }, Some("/a.iso")).expect("a document");
        assert!(text.contains("<target dev=\"sda\"/><source file=\"/a.iso\"/>"), "{text}");
        let bare = "<domain><os><type machine='pc-i440fx-10.0'/></os><devices/></domain>";
        let text = document(bare, Boot { mode: Mode::Legacy, ..Boot::default() }, Some("/a.iso")).expect("a document");
        assert!(text.contains("<target dev=\"hdc\" bus=\"ide\"/>"), "{text}");
    }

    #[test]
    fn firmware_is_another_one_when_that_is_asked_for() {
        let legacy = document(DOMAIN, Boot { mode: Mode::Legacy, ..Boot::default() }, None).expect("a document");
        let legacy = Element::parse(&legacy).expect("XML");
        assert_eq!(mode(&legacy), Mode::Legacy);
        let back = document(&legacy.write(), Boot { mode: Mode::Uefi, ..Boot::default() }, None).expect("a document");
        assert_eq!(mode(&Element::parse(&back).expect("XML")), Mode::Uefi);
    }
}
