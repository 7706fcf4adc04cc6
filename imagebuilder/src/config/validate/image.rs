//! `outputs` and `boot`: what is made and how it starts.

use std::str::FromStr;

use agent_api::menu::{Menu, MenuEntry, MenuError};

use super::{LEAST_IMAGE, Validate};
use crate::config::appliance::{Boot, Firmware, Output};
use crate::config::input::{self, Compression, Format};
use crate::config::path::KeyPath;
use crate::config::types::{ByteSize, Console};

/// The virtual disk of a qcow2 that names no size: DATA needs free space on it, and unused space costs nothing.
const QCOW2_DISK: ByteSize = ByteSize::mib(16 * 1024);

impl Validate<'_, '_, '_> {
    pub(super) fn outputs(&mut self, input: Option<&[input::Output]>) -> Vec<Output> {
        let path = KeyPath::of("outputs");
        let Some(list) = input else {
            return vec![Output::of(Format::Qcow2)];
        };
        if list.is_empty() {
            self.findings.at(
                &path,
                "the list of outputs is empty",
                "at least one output",
                "write `outputs: [{ format: qcow2 }]`, or remove the key",
            );
        }
        let mut good: Vec<Output> = Vec::new();
        for (i, output) in list.iter().enumerate() {
            let Some(output) = self.output(output, &path.index(i)) else {
                continue;
            };
            if good.iter().any(|earlier| earlier.format == output.format) {
                let found = format!("`{}` is asked for a second time", output.format.name());
                self.findings.at(&path.index(i).key("format"), &found, "each format once", "remove one of the two");
            }
            good.push(output);
        }
        good
    }

    pub(super) fn output(&mut self, input: &input::Output, path: &KeyPath) -> Option<Output> {
        let size = self.parse(&path.key("size"), input.size.as_deref(), ByteSize::from_str);
        let max_size = self.parse(&path.key("maxSize"), input.max_size.as_deref(), ByteSize::from_str);
        self.at_least(&path.key("size"), input.size.as_deref(), LEAST_IMAGE, "boot and cluster do not fit in it");
        self.at_least(&path.key("maxSize"), input.max_size.as_deref(), LEAST_IMAGE, "no image is that small");
        let format = input.format?;
        if format == Format::Iso && input.size.is_some() {
            self.findings.at(
                &path.key("size"),
                "an ISO has the size of its content",
                "no `size` for an ISO",
                "remove `size`; `maxSize` limits it",
            );
        }
        if let (Some(size), Some(most), Format::Raw) = (size, max_size, format)
            && size > most
        {
            let found = format!("the disk of {size} is larger than `maxSize` {most}");
            self.findings.at(
                &path.key("size"),
                &found,
                format!("at most {most}"),
                "make `size` smaller or `maxSize` larger",
            );
        }
        let size = size.or((format == Format::Qcow2).then_some(QCOW2_DISK));
        if format != Format::Qcow2 && input.compression.is_some() {
            let found = format!("a {} image is not compressed as a whole", format.name());
            self.findings.at(&path.key("compression"), &found, "`compression` only for a qcow2", "remove it");
        }
        let compression = (format == Format::Qcow2).then(|| input.compression.unwrap_or(Compression::Zstd));
        Some(Output { format, size, max_size, compression })
    }

    pub(super) fn boot(&mut self, input: &input::Boot) -> Boot {
        let path = KeyPath::of("boot");
        let firmware = self.firmware(input.firmware.as_deref(), &path.key("firmware"));
        let default = || vec!["tty0".to_owned(), "ttyS0".to_owned()];
        let given = input.consoles.clone().unwrap_or_else(default);
        let consoles_path = path.key("consoles");
        if given.is_empty() {
            self.findings.at(
                &consoles_path,
                "the list of consoles is empty",
                "at least one console",
                "write `consoles: [tty0, ttyS0]`, or remove the key",
            );
        }
        let mut consoles: Vec<Console> = Vec::new();
        for (i, text) in given.iter().enumerate() {
            let path = consoles_path.index(i);
            let Some(console) = self.parse(&path, Some(text), Console::from_str) else {
                continue;
            };
            if consoles.iter().any(|earlier| earlier.device() == console.device()) {
                self.findings.at(
                    &path,
                    &format!("`{}` is listed a second time", console.device()),
                    "each console once",
                    "remove one of the two",
                );
            }
            consoles.push(console);
        }
        let kernel_parameters = input.kernel_parameters.clone().unwrap_or_default();
        for (i, parameter) in kernel_parameters.iter().enumerate() {
            self.kernel_parameter(parameter, &path.key("kernelParameters").index(i));
        }
        let boot = Boot { firmware, consoles, kernel_parameters };
        self.menu(&boot, &path);
        boot
    }

    /// GRUB's menu is written when the image is: what it cannot say is found here already.
    fn menu(&mut self, boot: &Boot, path: &KeyPath) {
        let parameters = boot.command_line();
        let current = MenuEntry { release_id: "0".repeat(64), title: "the image".to_owned(), parameters };
        let consoles = boot.consoles.iter().map(ToString::to_string).collect();
        let found = match (Menu { current, previous: None, consoles }).grub_cfg() {
            Err(MenuError::TooLong { found, most, .. }) => {
                format!("the kernel would be given {found} bytes of parameters, {most} are possible")
            }
            // Each parameter and console was looked at by itself.
            Err(MenuError::Text { .. } | MenuError::Console(_)) | Ok(_) => return,
        };
        let expected = "parameters that the kernel reads to their end";
        self.findings.at(&path.key("kernelParameters"), &found, expected, "leave out what is not needed");
    }

    pub(super) fn firmware(&mut self, input: Option<&[input::Firmware]>, path: &KeyPath) -> Firmware {
        let Some(list) = input else {
            return Firmware { bios: true, uefi: true };
        };
        let has = |wanted| list.contains(&wanted);
        let firmware = Firmware { bios: has(input::Firmware::Bios), uefi: has(input::Firmware::Uefi) };
        for (i, _) in list.iter().enumerate().filter(|(i, kind)| list[..*i].contains(kind)) {
            self.findings.at(
                &path.index(i),
                "this firmware is listed a second time",
                "each firmware once",
                "remove one of the two",
            );
        }
        if list.is_empty() {
            let found = "the list of firmware is empty: no machine could boot the image";
            self.findings.at(
                path,
                found,
                "`bios`, `uefi` or both",
                "write `firmware: [bios, uefi]`, or remove the key",
            );
        }
        firmware
    }

    pub(super) fn kernel_parameter(&mut self, text: &str, path: &KeyPath) {
        let name = text.split('=').next().unwrap_or_default();
        let ours = ["root", "init", "rdinit", "initrd", "ro", "rw", "BOOT_IMAGE"];
        if name.is_empty()
            || text
                .contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '$' | '\\' | ';'))
        {
            let found = format!("`{text}` is not one kernel parameter");
            self.findings.at(
                path,
                &found,
                "`name` or `name=value` without blanks and quotes",
                "give each parameter as an item of its own",
            );
        } else if name == "console" {
            self.findings.at(
                path,
                "consoles are not set here",
                "a parameter of the kernel other than `console`",
                "add it to `boot.consoles`",
            );
        } else if ours.contains(&name) || name.starts_with("foothold.") {
            let found = format!("`{name}` is set by foothold itself");
            self.findings.at(path, &found, "a parameter that foothold does not set", "remove it");
        }
    }
}
