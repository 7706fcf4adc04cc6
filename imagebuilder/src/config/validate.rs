//! `input` to [`Appliance`]: texts to newtypes, defaults, ranges, contradictions, files that must exist.
//!
//! Each section gives `None` when it cannot be used, after saying why; the other sections are checked all the same.

use std::net::Ipv4Addr;
use std::path::{Path as FilePath, PathBuf};
use std::str::FromStr;

use agent_api::release::{DataPlace, DiskSelector};

use super::Findings;
use super::appliance::{
    Appliance, Boot, Budgets, Content, FileToCopy, Firmware, FirstBoot, Kubernetes, KubernetesSource, Output,
    Provisioning, Services, Target,
};
use super::input::{self, FirstBootMode, Format, KubernetesFrom, Place};
use super::path::Path;
use super::types::{
    ByteSize, Cidr, Console, ImageReference, KubernetesVersion, Name, SecretReference, Version, parse_duration,
};

/// The release that is built when the definition names none.
const DEFAULT_KUBERNETES: &str = "v1.36.4";
/// Minor releases whose layout this version knows.
const KUBERNETES_MINORS: [u64; 1] = [36];
const DEFAULT_POD_CIDR: &str = "10.244.0.0/16";
const DEFAULT_SERVICE_CIDR: &str = "10.96.0.0/12";
/// The cluster's own address, on every box.
const CLUSTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Nothing that boots is smaller: ESP and SITE alone take 128 MiB.
const LEAST_IMAGE: ByteSize = ByteSize::mib(192);
/// A control plane does not start in less.
const LEAST_MEMORY: ByteSize = ByteSize::mib(1024);
/// etcd and logs need that much.
const LEAST_DATA: ByteSize = ByteSize::mib(512);
/// Where DATA goes on the boot disk when that much is free.
const DEFAULT_BOOT_DISK: ByteSize = ByteSize::mib(1024);
/// An empty disk that is worth being DATA.
const DEFAULT_EMPTY_DISK: ByteSize = ByteSize::mib(2048);

/// The appliance that `input` describes; paths in it are relative to `directory`.
pub(super) fn appliance(
    input: &input::Appliance,
    directory: &FilePath,
    findings: &mut Findings<'_>,
) -> Option<Appliance> {
    let mut check = Validate { directory, findings };
    let metadata = check.metadata(input.metadata.as_ref());
    let kubernetes = check.kubernetes(&input.kubernetes);
    let outputs = check.outputs(input.outputs.as_deref());
    let boot = check.boot(&input.boot, input.outputs.as_deref());
    let first_boot = check.first_boot(&input.first_boot);
    let content = check.content(&input.content);
    let services = check.services(&input.services);
    let budgets = check.budgets(&input.budgets);
    let sign = input.sign.as_ref().and_then(|sign| check.sign(sign));
    let (name, version) = metadata?;
    Some(Appliance {
        directory: directory.to_owned(),
        name,
        version,
        kubernetes: kubernetes?,
        outputs,
        boot,
        first_boot,
        content,
        services,
        budgets,
        sign,
        site: None,
    })
}

struct Validate<'d, 'f, 't> {
    directory: &'d FilePath,
    findings: &'f mut Findings<'t>,
}

impl Validate<'_, '_, '_> {
    fn metadata(&mut self, input: Option<&input::Metadata>) -> Option<(Name, Version)> {
        let path = Path::of("metadata");
        let input = input?;
        let name = self.parse(&path.key("name"), input.name.as_deref(), Name::from_str);
        let version = self.parse(&path.key("version"), input.version.as_deref(), Version::from_str);
        Some((name?, version?))
    }

    fn kubernetes(&mut self, input: &input::Kubernetes) -> Option<Kubernetes> {
        let path = Path::of("kubernetes");
        let version = input.version.as_deref().or(Some(DEFAULT_KUBERNETES));
        let version = self.parse(&path.key("version"), version, KubernetesVersion::from_str);
        if let Some(version) = version
            .as_ref()
            .filter(|version| !KUBERNETES_MINORS.contains(&version.minor()))
        {
            let found = format!("{version} is not a release that this version of foothold knows");
            self.findings.at(
                &path.key("version"),
                &found,
                "v1.36.x",
                &format!("write `{DEFAULT_KUBERNETES}`"),
            );
        }
        let source = self.kubernetes_source(input, &path);
        let (pods, services) = (path.key("podCIDR"), path.key("serviceCIDR"));
        let pod_cidr = self.cluster_cidr(&pods, input.pod_cidr.as_deref().unwrap_or(DEFAULT_POD_CIDR), 24);
        let service_cidr = self.cluster_cidr(
            &services,
            input.service_cidr.as_deref().unwrap_or(DEFAULT_SERVICE_CIDR),
            26,
        );
        if let (Some(pod), Some(service)) = (pod_cidr, service_cidr)
            && pod.overlaps(service)
        {
            let (path, other, found) = if input.pod_cidr.is_some() {
                (&pods, "serviceCIDR", pod)
            } else {
                (&services, "podCIDR", service)
            };
            let theirs = if found == pod { service } else { pod };
            let found = format!("{found} overlaps `{other}` {theirs}");
            self.findings.at(
                path,
                &found,
                "networks that share no address",
                "choose another private network, such as `10.200.0.0/16`",
            );
        }
        Some(Kubernetes {
            version: version?,
            source: source?,
            pod_cidr: pod_cidr?,
            service_cidr: service_cidr?,
        })
    }

    fn cluster_cidr(&mut self, path: &Path, text: &str, longest: u8) -> Option<Cidr> {
        let cidr = self.parse(path, Some(text), Cidr::from_str)?;
        if cidr.contains(CLUSTER_ADDRESS) {
            let found = format!("{cidr} contains {CLUSTER_ADDRESS}, the cluster's own address on every box");
            self.findings.at(
                path,
                &found,
                "a network without that address",
                "choose a private network, such as `10.200.0.0/16`",
            );
            return None;
        }
        if cidr.prefix() > longest || cidr.prefix() < 8 {
            let found = format!("{cidr} is too {}", if cidr.prefix() < 8 { "large" } else { "small" });
            self.findings.at(
                path,
                &found,
                format!("a prefix length from 8 to {longest}"),
                "choose another prefix length",
            );
            return None;
        }
        Some(cidr)
    }

    fn kubernetes_source(&mut self, input: &input::Kubernetes, path: &Path) -> Option<KubernetesSource> {
        let from = input.from.unwrap_or(KubernetesFrom::Modules);
        let word = match from {
            KubernetesFrom::Modules => "modules",
            KubernetesFrom::Upstream => "upstream",
            KubernetesFrom::Directory => "directory",
        };
        let owners = [
            ("path", input.path.is_some(), "directory"),
            ("url", input.url.is_some(), "upstream"),
        ];
        for (key, _, owner) in owners.into_iter().filter(|(_, given, owner)| *given && *owner != word) {
            let found = format!("`{key}` means nothing with `from: {word}`");
            self.findings.at(
                &path.key(key),
                &found,
                format!("`{key}` with `from: {owner}` only"),
                &format!("write `from: {owner}`, or remove `{key}`"),
            );
        }
        match from {
            KubernetesFrom::Modules => Some(KubernetesSource::Modules),
            KubernetesFrom::Upstream => {
                let url = input.url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
                if let Some(url) = url.as_deref().filter(|url| !is_url(url)) {
                    let found = format!("`{url}` is not a URL");
                    self.findings.at(
                        &path.key("url"),
                        &found,
                        "`https://HOST/...` or `http://HOST/...`",
                        "give scheme and host",
                    );
                    return None;
                }
                Some(KubernetesSource::Upstream { url })
            }
            KubernetesFrom::Directory => {
                let Some(given) = input.path.as_deref() else {
                    let hint =
                        "add `path: DIR`, the directory that holds kubelet, kubeadm, kube-apiserver and the others";
                    self.findings.at(
                        &path.key("from"),
                        "`from: directory` needs a `path`",
                        "a key `path` beside it",
                        hint,
                    );
                    return None;
                };
                let path = self.existing(&path.key("path"), given, Exists::Directory)?;
                Some(KubernetesSource::Directory { path })
            }
        }
    }

    fn outputs(&mut self, input: Option<&[input::Output]>) -> Vec<Output> {
        let path = Path::of("outputs");
        let Some(list) = input else {
            return vec![Output {
                format: Format::Qcow2,
                size: None,
                max_size: None,
            }];
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
                self.findings.at(
                    &path.index(i).key("format"),
                    &found,
                    "each format once",
                    "remove one of the two",
                );
            }
            good.push(output);
        }
        good
    }

    fn output(&mut self, input: &input::Output, path: &Path) -> Option<Output> {
        let size = self.parse(&path.key("size"), input.size.as_deref(), ByteSize::from_str);
        let max_size = self.parse(&path.key("maxSize"), input.max_size.as_deref(), ByteSize::from_str);
        self.at_least(
            &path.key("size"),
            size,
            LEAST_IMAGE,
            "boot and cluster do not fit in it",
        );
        self.at_least(&path.key("maxSize"), max_size, LEAST_IMAGE, "no image is that small");
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
        Some(Output { format, size, max_size })
    }

    fn boot(&mut self, input: &input::Boot, outputs: Option<&[input::Output]>) -> Boot {
        let path = Path::of("boot");
        let firmware = self.firmware(input.firmware.as_deref(), outputs, &path.key("firmware"));
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
        Boot {
            firmware,
            consoles,
            kernel_parameters,
        }
    }

    fn firmware(
        &mut self,
        input: Option<&[input::Firmware]>,
        outputs: Option<&[input::Output]>,
        path: &Path,
    ) -> Firmware {
        let Some(list) = input else {
            return Firmware { bios: true, uefi: true };
        };
        let has = |wanted| list.contains(&wanted);
        let firmware = Firmware {
            bios: has(input::Firmware::Bios),
            uefi: has(input::Firmware::Uefi),
        };
        for (i, _) in list.iter().enumerate().filter(|(i, kind)| list[..*i].contains(kind)) {
            self.findings.at(
                &path.index(i),
                "this firmware is listed a second time",
                "each firmware once",
                "remove one of the two",
            );
        }
        if list.is_empty() {
            let formats: Vec<&str> = outputs
                .unwrap_or_default()
                .iter()
                .filter_map(|output| output.format)
                .map(Format::name)
                .collect();
            let what = if formats.is_empty() {
                "the image".to_owned()
            } else {
                formats.join(", ")
            };
            let found = format!("the list of firmware is empty: no machine could boot {what}");
            self.findings.at(
                path,
                &found,
                "`bios`, `uefi` or both",
                "write `firmware: [bios, uefi]`, or remove the key",
            );
        }
        firmware
    }

    fn kernel_parameter(&mut self, text: &str, path: &Path) {
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
            self.findings
                .at(path, &found, "a parameter that foothold does not set", "remove it");
        }
    }

    fn first_boot(&mut self, input: &input::FirstBoot) -> FirstBoot {
        let path = Path::of("firstBoot");
        let mode = input.mode.unwrap_or(FirstBootMode::Run);
        let target = input
            .target
            .as_ref()
            .map(|target| self.target(target, &path.key("target")));
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
            (FirstBootMode::Install, target) => target,
            (FirstBootMode::Run, None) => None,
        };
        FirstBoot {
            install,
            data: self.data(input.data.as_deref(), &path.key("data")),
        }
    }

    fn target(&mut self, input: &input::Target, path: &Path) -> Target {
        let min_size = self.parse(&path.key("minSize"), input.min_size.as_deref(), ByteSize::from_str);
        self.at_least(
            &path.key("minSize"),
            min_size,
            LEAST_IMAGE,
            "no image fits on such a disk",
        );
        Target {
            bus: input.bus,
            min_size,
            require_empty: input.require_empty.unwrap_or(true),
            prefer: input.prefer,
            serial: self.serial(input.serial.as_deref(), &path.key("serial")),
        }
    }

    fn serial(&mut self, serial: Option<&str>, path: &Path) -> Option<String> {
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
            self.findings.at(
                path,
                &found,
                "the serial number of a disk",
                "it is printed by `lsblk -o NAME,SERIAL`",
            );
        }
        Some(serial.to_owned())
    }

    fn data(&mut self, input: Option<&[input::DataPlace]>, path: &Path) -> Vec<DataPlace> {
        let Some(list) = input else { return default_data() };
        if list.is_empty() {
            let hint = "write `data: [{ place: bootDisk }, { place: ram }]`, or remove the key";
            self.findings
                .at(path, "the list of places for DATA is empty", "at least one place", hint);
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
        good
    }

    fn data_place(&mut self, input: &input::DataPlace, path: &Path) -> Option<DataPlace> {
        let min_size = self.parse(&path.key("minSize"), input.min_size.as_deref(), ByteSize::from_str);
        self.at_least(
            &path.key("minSize"),
            min_size,
            LEAST_DATA,
            "the cluster's state does not fit in it",
        );
        let serial = self.serial(input.serial.as_deref(), &path.key("serial"));
        let place = input.place?;
        let given = [
            ("bus", input.bus.is_some()),
            ("serial", serial.is_some()),
            ("prefer", input.prefer.is_some()),
        ];
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
            Place::BootDisk => DataPlace::BootDisk {
                min_bytes: min_size.unwrap_or(DEFAULT_BOOT_DISK).bytes(),
            },
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

    fn services(&mut self, input: &input::Services) -> Services {
        let path = Path::of("services");
        let registry = input
            .registry
            .as_ref()
            .and_then(|registry| registry.writable.as_deref());
        let registry_writable = self.parse(&path.key("registry").key("writable"), registry, ByteSize::from_str);
        let provisioning = input
            .provisioning
            .as_ref()
            .map(|input| self.provisioning(input, &path.key("provisioning")));
        let ntp_serve = input.ntp.as_ref().and_then(|ntp| ntp.serve).unwrap_or(true);
        Services {
            ntp_serve,
            registry_writable,
            provisioning,
        }
    }

    fn provisioning(&mut self, input: &input::Provisioning, path: &Path) -> Provisioning {
        let interface = input.interface.as_ref();
        let mac_address = interface.and_then(|interface| interface.mac_address.clone());
        if let Some(mac) = mac_address.as_deref().filter(|mac| !super::site::is_mac(mac)) {
            let found = format!("`{mac}` is not a MAC address");
            let expected = "six pairs of hex digits such as \"52:54:00:12:34:56\"";
            self.findings.at(
                &path.key("interface").key("macAddress"),
                &found,
                expected,
                "it stands on the label of the machine",
            );
        }
        let range = input.range.as_deref().and_then(|text| {
            let range = text
                .split_once('-')
                .and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
            let range = range.filter(|(first, last): &(Ipv4Addr, Ipv4Addr)| first <= last);
            if range.is_none() {
                let found = format!("`{text}` is not a range of addresses");
                self.findings.at(
                    &path.key("range"),
                    &found,
                    "first and last address",
                    "for example `172.22.0.10-172.22.0.100`",
                );
            }
            range
        });
        Provisioning {
            mac_address,
            interface: interface.and_then(|interface| interface.name.clone()),
            range,
        }
    }

    fn budgets(&mut self, input: &input::Budgets) -> Budgets {
        let path = Path::of("budgets");
        let image = self.parse(&path.key("image"), input.image.as_deref(), ByteSize::from_str);
        let memory = self.parse(&path.key("memory"), input.memory.as_deref(), ByteSize::from_str);
        let ready_within = self.parse(&path.key("readyWithin"), input.ready_within.as_deref(), parse_duration);
        self.at_least(&path.key("image"), image, LEAST_IMAGE, "no image is that small");
        self.at_least(
            &path.key("memory"),
            memory,
            LEAST_MEMORY,
            "a cluster does not start in it",
        );
        if let Some(time) = ready_within.filter(|time| !(10..=86_400).contains(&time.as_secs())) {
            let found = format!("{} s from power-on to ready", time.as_secs());
            self.findings.at(
                &path.key("readyWithin"),
                &found,
                "a time from `10s` to `24h`",
                "machines need about a minute",
            );
        }
        Budgets {
            image,
            memory,
            ready_within,
        }
    }

    fn sign(&mut self, input: &input::Sign) -> Option<SecretReference> {
        let path = Path::of("sign").key("key");
        let key = self.parse(&path, input.key.as_deref(), SecretReference::from_str)?;
        match key {
            SecretReference::File(file) => {
                let text = file.to_string_lossy().into_owned();
                self.existing(&path, &text, Exists::File).map(SecretReference::File)
            }
            SecretReference::Env(_) => Some(key),
        }
    }

    fn content(&mut self, input: &input::Content) -> Content {
        let path = Path::of("content");
        let images = self.each(&path.key("images"), input.images.as_deref(), ImageReference::from_str);
        let debian = path.key("packages").key("debian");
        let debian_packages = self.each(&debian, input.packages.debian.as_deref(), debian_package);
        let manifests = input.manifests.iter().flatten().enumerate();
        let manifests: Vec<_> = manifests
            .filter_map(|(i, text)| self.existing(&path.key("manifests").index(i), text, Exists::Any))
            .collect();
        let mut content = Content {
            images,
            debian_packages,
            manifests,
            ..Content::default()
        };
        for (i, image) in input.os_images.iter().flatten().enumerate() {
            let path = path.key("osImages").index(i);
            let name = self.parse(&path.key("name"), image.name.as_deref(), Name::from_str);
            let from = image
                .from
                .as_deref()
                .and_then(|from| self.existing(&path.key("from"), from, Exists::Any));
            content.os_images.extend(name.zip(from));
        }
        for (i, file) in input.files.iter().flatten().enumerate() {
            content.files.extend(self.file(file, &path.key("files").index(i)));
        }
        content
    }

    fn file(&mut self, input: &input::File, path: &Path) -> Option<FileToCopy> {
        let target = PathBuf::from(input.path.as_deref()?);
        if !target.is_absolute() || target.components().any(|part| part == std::path::Component::ParentDir) {
            let found = format!("`{}` is not an absolute path", target.display());
            self.findings.at(
                &path.key("path"),
                &found,
                "a path on the box, beginning with `/`, without `..`",
                "for example `/etc/motd`",
            );
        }
        let text = input.mode.as_deref().unwrap_or("0644");
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
        if mode.is_none() {
            let found = format!("`{text}` are not permissions");
            self.findings.at(
                &path.key("mode"),
                &found,
                "three or four octal digits, quoted",
                "for example \"0644\"",
            );
        }
        let from = self.existing(&path.key("from"), input.from.as_deref()?, Exists::File)?;
        Some(FileToCopy {
            path: target,
            from,
            mode: mode?,
        })
    }

    fn each<T>(
        &mut self,
        path: &Path,
        list: Option<&[String]>,
        read: impl Fn(&str) -> Result<T, super::Invalid>,
    ) -> Vec<T> {
        let list = list.unwrap_or_default().iter().enumerate();
        list.filter_map(|(i, text)| {
            let path = path.index(i);
            self.parse(&path, Some(text), &read)
        })
        .collect()
    }

    fn parse<T>(
        &mut self,
        path: &Path,
        text: Option<&str>,
        read: impl FnOnce(&str) -> Result<T, super::Invalid>,
    ) -> Option<T> {
        self.findings.parse(path, text?, read)
    }

    fn at_least(&mut self, path: &Path, size: Option<ByteSize>, least: ByteSize, why: &str) {
        if let Some(size) = size.filter(|size| *size < least) {
            self.findings.at(
                path,
                &format!("{size} is too small: {why}"),
                format!("at least {least}"),
                "give a larger size",
            );
        }
    }

    /// The path as seen from the working directory, if what must be there is there.
    fn existing(&mut self, path: &Path, text: &str, wanted: Exists) -> Option<PathBuf> {
        let file = self.directory.join(text);
        let good = match wanted {
            Exists::File => file.is_file(),
            Exists::Directory => file.is_dir(),
            Exists::Any => file.exists(),
        };
        if good && !text.is_empty() {
            return Some(file);
        }
        let found = match (file.exists(), wanted) {
            (true, Exists::File) => format!("`{text}` is not a file"),
            (true, Exists::Directory) => format!("`{text}` is not a directory"),
            (true | false, _) => format!("there is no `{text}`"),
        };
        let expected = match wanted {
            Exists::File => "a file",
            Exists::Directory => "a directory",
            Exists::Any => "a file or directory",
        };
        self.findings.at(
            path,
            &found,
            format!("{expected}, relative to this definition"),
            "correct the path, or put it there",
        );
        None
    }
}

/// What must be at a path.
#[derive(Clone, Copy)]
enum Exists {
    File,
    Directory,
    Any,
}

fn default_data() -> Vec<DataPlace> {
    let selector = DiskSelector {
        min_bytes: Some(DEFAULT_EMPTY_DISK.bytes()),
        ..DiskSelector::default()
    };
    vec![
        DataPlace::BootDisk {
            min_bytes: DEFAULT_BOOT_DISK.bytes(),
        },
        DataPlace::Disk { selector },
        DataPlace::Ram,
    ]
}

fn debian_package(text: &str) -> Result<String, super::Invalid> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    let good = text.len() >= 2 && text.bytes().all(inner) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if good {
        return Ok(text.to_owned());
    }
    Err(super::Invalid {
        expected: "the name of a Debian package".to_owned(),
        hint: "names have lower-case letters, digits, `+`, `-` and `.`; versions are kept in the lock".to_owned(),
    })
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !text.contains(char::is_whitespace))
}
