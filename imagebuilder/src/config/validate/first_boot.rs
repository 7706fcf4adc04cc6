//! `firstBoot`: where DATA goes, and the disk to install on.

use std::str::FromStr;

use agent_api::release::{DataPlace, DiskSelector, InstallTarget};

use super::{LEAST_IMAGE, Validate};
use crate::config::appliance::{FirstBoot, Output};
use crate::config::input::{self, FirstBootMode, Format, Place};
use crate::config::path::KeyPath;
use crate::config::types::ByteSize;

/// etcd and logs need that much.
const LEAST_DATA: ByteSize = ByteSize::mib(512);
/// Where DATA goes on the boot disk when that much is free.
const DEFAULT_BOOT_DISK: ByteSize = ByteSize::mib(1024);
/// An empty disk that is worth being DATA.
const DEFAULT_EMPTY_DISK: ByteSize = ByteSize::mib(2048);

impl Validate<'_, '_, '_> {
    pub(super) fn first_boot(&mut self, input: &input::FirstBoot, outputs: &[Output]) -> FirstBoot {
        let path = KeyPath::of("firstBoot");
        let mode = input.mode.unwrap_or(FirstBootMode::Run);
        let target = input.target.as_ref().map(|target| self.target(target, &path.key("target")));
        let install = match (mode, target) {
            (FirstBootMode::Run, Some(_)) => {
                let hint = "write `mode: install`, or remove `target`";
                self.findings.at(
                    &path.key("target"),
                    "`target` means nothing with `mode: run`",
                    "`target` with `mode: install` only",
                    hint,
                );
                None
            }
            (FirstBootMode::Install, None) => {
                let hint = "add `target: { minSize: 64GiB }` or another selector";
                self.findings.at(
                    &path.key("mode"),
                    "`mode: install` needs a `target`",
                    "a key `target` beside it",
                    hint,
                );
                None
            }
            (FirstBootMode::Install, target) => {
                if let Some(i) = outputs.iter().position(|output| output.format == Format::Iso) {
                    let found = "an ISO has no partitions that could be copied to a disk";
                    let hint = "remove it: a raw image on a stick, or a qcow2, installs itself";
                    let expected = "no ISO with `mode: install`";
                    self.findings.at(&KeyPath::of("outputs").index(i).key("format"), found, expected, hint);
                }
                target
            }
            (FirstBootMode::Run, None) => None,
        };
        FirstBoot { install, data: self.data(input.data.as_deref(), &path.key("data")) }
    }

    pub(super) fn target(&mut self, input: &input::Target, path: &KeyPath) -> InstallTarget {
        let min_size = self.parse(&path.key("minSize"), input.min_size.as_deref(), ByteSize::from_str);
        self.at_least(&path.key("minSize"), input.min_size.as_deref(), LEAST_IMAGE, "no image fits on such a disk");
        let require_empty = input.require_empty.unwrap_or(true);
        if !require_empty && input.serial.is_none() {
            let found = "whatever is on the disk that is chosen would be overwritten, and no disk is named";
            let hint = "name the one disk that may be overwritten, or remove `requireEmpty`";
            self.findings.at(&path.key("requireEmpty"), found, "`requireEmpty: false` with `serial` only", hint);
        }
        InstallTarget {
            selector: DiskSelector {
                bus: input.bus.map(|bus| bus.name().to_owned()),
                min_bytes: min_size.map(ByteSize::bytes),
                serial: self.serial(input.serial.as_deref(), &path.key("serial")),
                prefer: input.prefer.map(|prefer| prefer.name().to_owned()),
            },
            require_empty,
        }
    }

    pub(super) fn serial(&mut self, serial: Option<&str>, path: &KeyPath) -> Option<String> {
        let serial = serial?;
        if serial.trim().is_empty() {
            self.findings.at(
                path,
                "the serial number is empty",
                "the whole serial number",
                "it is printed by `lsblk -o NAME,SERIAL`",
            );
        } else if serial.starts_with("/dev/") {
            let found = format!("`{serial}` is a device name, and those change from boot to boot");
            self.findings.at(path, &found, "the serial number of a disk", "it is printed by `lsblk -o NAME,SERIAL`");
        }
        Some(serial.to_owned())
    }

    pub(super) fn data(&mut self, input: Option<&[input::DataPlace]>, path: &KeyPath) -> Vec<DataPlace> {
        let Some(list) = input else { return default_data() };
        if list.is_empty() {
            let hint = "write `data: [{ place: bootDisk }, { place: ram }]`, or remove the key";
            self.findings.at(path, "the list of places for DATA is empty", "at least one place", hint);
        }
        let mut good = Vec::new();
        for (i, place) in list.iter().enumerate() {
            let path = path.index(i);
            if good.last() == Some(&DataPlace::Ram) {
                self.findings.at(
                    &path.key("place"),
                    "`ram` is always possible, so this place is never tried",
                    "`ram` last",
                    "put it before `ram`",
                );
            }
            good.extend(self.data_place(place, &path));
        }
        if good == [DataPlace::Ram] {
            let hint = "put `{ place: bootDisk }` before it, if that is not meant";
            self.findings.warn(path, "everything is forgotten at power-off", "a disk among the places for DATA", hint);
        }
        good
    }

    pub(super) fn data_place(&mut self, input: &input::DataPlace, path: &KeyPath) -> Option<DataPlace> {
        let min_size = self.parse(&path.key("minSize"), input.min_size.as_deref(), ByteSize::from_str);
        self.at_least(
            &path.key("minSize"),
            input.min_size.as_deref(),
            LEAST_DATA,
            "the cluster's state does not fit in it",
        );
        let serial = self.serial(input.serial.as_deref(), &path.key("serial"));
        let place = input.place?;
        let given = [("bus", input.bus.is_some()), ("serial", serial.is_some()), ("prefer", input.prefer.is_some())];
        for (key, _) in given.into_iter().filter(|(_, given)| *given && place != Place::Disk) {
            let found = format!("`{key}` selects a disk");
            self.findings.at(
                &path.key(key),
                &found,
                format!("`{key}` with `place: disk` only"),
                &format!("remove `{key}`, or write `place: disk`"),
            );
        }
        if place == Place::Ram && input.min_size.is_some() {
            self.findings.at(
                &path.key("minSize"),
                "memory is always taken, whatever its size",
                "no `minSize` with `place: ram`",
                "remove `minSize`",
            );
        }
        Some(match place {
            Place::BootDisk => DataPlace::BootDisk { min_bytes: min_size.unwrap_or(DEFAULT_BOOT_DISK).bytes() },
            Place::Disk => DataPlace::Disk {
                selector: DiskSelector {
                    bus: input.bus.map(|bus| bus.name().to_owned()),
                    min_bytes: Some(min_size.unwrap_or(DEFAULT_EMPTY_DISK).bytes()),
                    serial,
                    prefer: input.prefer.map(|prefer| prefer.name().to_owned()),
                },
            },
            Place::Ram => DataPlace::Ram,
        })
    }
}

fn default_data() -> Vec<DataPlace> {
    let selector = DiskSelector { min_bytes: Some(DEFAULT_EMPTY_DISK.bytes()), ..DiskSelector::default() };
    vec![DataPlace::BootDisk { min_bytes: DEFAULT_BOOT_DISK.bytes() }, DataPlace::Disk { selector }, DataPlace::Ram]
}
