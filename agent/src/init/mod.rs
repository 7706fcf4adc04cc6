//! The initrd: from the kernel's first process to systemd on the verified root.
//!
//! ```text
//! parameters -> loader -> medium (release, layers) -> [install] -> root -> disk (DATA) -> switch -> systemd
//!                            \ fatal: framed message on every console, fatal event, then stay
//! ```
//! What decides is pure (`parameters`, `kmod`, `kmsg`, and what [`crate::disk`] decides); what acts goes through
//! [`crate::host`].

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use agent_api::boot::{self, BootFacts, CA_LIFE, Mode};
use agent_api::events::Phase;
use agent_api::proof::PROOF;
use agent_api::release::{InitrdConfig, InstallTarget, MEDIUM_ROOT, Release};
use rustix::mount::MountFlags;

use crate::containerd;
use crate::disk::decide::DataChoice;
use crate::host::clock;
use crate::host::mount::{self, MountOptions};
use crate::host::uevent::Uevents;

mod blobs;
mod check;
mod data;
mod data_disk;
pub mod fatal;
pub mod guard;
mod in_file;
mod install;
mod kmod;
mod kmsg;
mod layers;
mod loader;
mod medium;
mod parameters;
mod preread;
mod release;
mod report;
mod switch;

use fatal::Fatal;
use kmod::Modules;
use layers::SYSROOT;
use loader::Loader;
use medium::{Finder, Medium};
use parameters::{OnFailure, Parameters};
use report::Report;

/// File systems and targets between a disk and the root, loaded while drivers look for devices.
const FOR_THE_ROOT: [&str; 6] = ["ext4", "loop", "dm_verity", "squashfs", "overlay", "sha256_ssse3"];
/// What carries events to the host of a virtual machine.
const FOR_THE_HOST: [&str; 2] = ["virtio_pci", "virtio_console"];
/// The public key that the release must be signed with.
const KEY: &str = "/etc/foothold/release.pub";
/// What the agent mounts SITE with, loaded beside everything else.
const FOR_LATER: [&str; 3] = ["vfat", "nls_cp437", "nls_ascii"];

/// Whether this process is the first one of the initrd: the kernel starts it as `/init`.
pub fn is_wanted() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    std::process::id() == 1 && Path::new(&name).file_name().is_some_and(|name| name == "init")
}

/// Runs the initrd. Never returns as process 1.
pub fn main() -> ExitCode {
    if let Err(error) = mount_kernel_file_systems() {
        // Nothing to tell it on but the kernel's own console.
        let _ = fs_err::write("/dev/console", format!("foothold: {error}\n"));
        stay();
    }
    let report: &'static Report = Box::leak(Box::new(Report::open()));
    show_panics(report);
    let parameters = Parameters::parse(&fs_err::read_to_string("/proc/cmdline").unwrap_or_default());
    let config = match whole_initrd().and_then(|()| read_config()) {
        Ok(config) => config,
        Err(fatal) => give_up(report, &parameters, "Foothold cannot start", &fatal),
    };
    let what = if parameters.mode == Mode::Check { ": check of the medium" } else { " cannot start" };
    let title = format!("Foothold {} {}{what}", config.name, config.version);
    match start(report, &parameters, &config, &title) {
        Ok(never) => match never {},
        Err(fatal) => give_up(report, &parameters, &title, &fatal),
    }
}

/// Nothing: `start` ends in systemd or in a [`Fatal`].
enum Never {}

fn start(report: &Report, parameters: &Parameters, config: &InitrdConfig, title: &str) -> Result<Never, Fatal> {
    report.line(&format!("Foothold {} {}", config.name, config.version));
    for word in &parameters.unknown {
        report.line(&format!("kernel parameter `{word}` means nothing and is ignored"));
    }
    let clock_was_wrong = set_clock_right(config.built);
    let loader = Loader::new(Modules::read(&modules_folder()), names(&FOR_THE_ROOT));
    let uevents = Uevents::open().map_err(|error| {
        Fatal::medium("find", format!("no device announcements: {error}"), "a kernel with netlink", "report it")
    })?;
    // Drivers that look for disks may take seconds: only what needs such a disk waits for them.
    std::thread::scope(|scope| {
        scope.spawn(|| loader.load_all(&names(&FOR_THE_ROOT)));
        scope.spawn(|| loader.first_round());
        let boot = Boot { report, parameters, loader: &loader, uevents: &uevents, title };
        let medium = boot.find_medium(None)?;
        if parameters.mode == Mode::Check {
            check_medium(report, parameters, &medium)?;
        }
        let medium = boot.install(medium)?;
        scope.spawn(|| loader.load_all(&names(&FOR_LATER)));
        boot.make_root(&medium).map(|facts| (facts, guard_task(&medium, config)))
    })
    .and_then(|(facts, guard)| leave(report, &BootFacts { clock_was_wrong, ..facts }, &guard))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// What every later step may need.
struct Boot<'a> {
    report: &'a Report,
    parameters: &'a Parameters,
    loader: &'a Loader,
    uevents: &'a Uevents,
    title: &'a str,
}

impl Boot<'_> {
    /// Finds the medium, on that disk only if one is given; its layers are open, unless it is to be installed first.
    fn find_medium(&self, only: Option<&str>) -> Result<Medium, Fatal> {
        let parameters = self.parameters;
        let key_text = fs_err::read_to_string(KEY).unwrap_or_default();
        let key = release::public_key(&key_text)?;
        let id = parameters.release.as_deref().filter(|id| id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()));
        let id = id.ok_or_else(|| {
            let found =
                format!("kernel parameter foothold.release={}", parameters.release.as_deref().unwrap_or_default());
            Fatal::medium("find", found, "the release id, 64 hex digits", "start the unchanged entry of the boot menu")
        })?;
        let open_layers =
            |release: &Release| parameters.mode != Mode::Check && (only.is_some() || self.target(release).is_none());
        let finder = Finder {
            report: self.report,
            loader: self.loader,
            uevents: self.uevents,
            key: &key,
            id,
            only,
            open_layers: &open_layers,
            cannot_start: &|fatal| self.cannot_start(fatal),
        };
        Ok(finder.find())
    }

    fn cannot_start(&self, fatal: &Fatal) {
        self.report.failed(fatal, self.title);
        if self.parameters.on_failure == OnFailure::PowerOff {
            power_off();
        }
    }

    /// The disk that a release is to be installed on. With DATA in memory nothing is written to any disk.
    fn target<'r>(&self, release: &'r Release) -> Option<&'r InstallTarget> {
        release.install.as_ref().filter(|_| self.parameters.data != DataChoice::Ram)
    }

    /// Brings the medium to the disk that its release wants, and goes on from there.
    fn install(&self, medium: Medium) -> Result<Medium, Fatal> {
        let Some(target) = self.target(&medium.release) else { return Ok(medium) };
        let settle = || data_disk::settle(self.uevents, self.loader);
        let disk = install::prepare(self.report, &medium, target, &settle, &|fatal| self.cannot_start(fatal))?;
        medium.close().map_err(|error| {
            Fatal::medium("install", error.to_string(), "a medium that can be let go", "start the box again")
        })?;
        self.find_medium(Some(&disk))
    }

    /// From the open layers to a root with DATA in it.
    fn make_root(&self, medium: &Medium) -> Result<BootFacts, Fatal> {
        let (report, parameters) = (self.report, self.parameters);
        let step = report.started(Phase::Medium, "root");
        layers::mount_root(&medium.layers)?;
        report.done(step, "root mounted");
        let _ = fs_err::write(boot::RELEASE, &medium.manifest);
        hand_over_proof(parameters.release.as_deref().unwrap_or_default());
        bind_devices()?;
        let (vital, data) = std::thread::scope(|scope| {
            let vital = scope.spawn(|| read_vital_files(report, medium));
            let data =
                data_disk::prepare(report, medium, parameters.data, &|| data_disk::settle(self.uevents, self.loader));
            (vital.join(), data)
        });
        // A thread that panicked has shown why and does not come back.
        vital.unwrap_or(Ok(()))?;
        let data = data?;
        let step = report.started(Phase::Disk, "var");
        let (machine_id, first_boot) = fill_data().map_err(|error| {
            let next = "make room on DATA, or start with foothold.data=ram";
            Fatal::disk("var", error.to_string(), "a DATA that can be written", next)
        })?;
        report.done(step, if first_boot { "first boot" } else { "state of an earlier boot found" });
        if parameters.mode == Mode::Run {
            prepare_containerd(report, &medium.release);
        }
        Ok(BootFacts {
            release: parameters.release.clone().unwrap_or_default(),
            mode: parameters.mode,
            medium: medium.device.clone(),
            data,
            machine_id,
            first_boot,
            clock_was_wrong: false,
        })
    }
}

/// containerd's state for systemd to start it with. What does not succeed here, the agent tries again, and tells.
fn prepare_containerd(report: &Report, release: &Release) {
    let Some(layer) = release.layer(boot::CONTAINERS) else { return };
    let var = Path::new(SYSROOT).join("var");
    if containerd::is_current(&var, &layer.root_hash) {
        return;
    }
    if let Err(error) = containerd::make(&var, Path::new(boot::LAYERS), &layer.root_hash) {
        report.line(&format!("containerd: {error:#}"));
    }
}

/// Leaves the key and the proof for the agent. A box starts without them, too.
fn hand_over_proof(id: &str) {
    let Ok(text) = fs_err::read_to_string(KEY) else { return };
    let _ = fs_err::write(boot::PUBLIC_KEY, &text);
    let path = Path::new(boot::MEDIUM).join(MEDIUM_ROOT).join("releases").join(id).join(PROOF);
    let (Ok(key), Ok(place)) = (release::public_key(&text), fs_err::read(path)) else { return };
    if let Some(json) = release::proof(id, &place, &key) {
        let _ = fs_err::write(boot::PROOF, json);
    }
}

/// Ends with the message that the medium is good; it stays on the screen.
fn check_medium(report: &Report, parameters: &Parameters, medium: &Medium) -> Result<(), Fatal> {
    let message = check::run(report, medium, Path::new(boot::MEDIUM))?;
    report.message(&message);
    if parameters.on_failure == OnFailure::PowerOff {
        power_off();
    }
    stay()
}

fn read_vital_files(report: &Report, medium: &Medium) -> Result<(), Fatal> {
    let step = report.started(Phase::Medium, "vital-files");
    let bytes = preread::read_vital_files(&medium.layers)?;
    report.done(step, &format!("systemd and its libraries read, {} MiB", bytes >> 20));
    Ok(())
}

fn guard_task(medium: &Medium, config: &InitrdConfig) -> guard::GuardTask {
    let part = medium.disk.partitions.iter().find(|part| part.name == medium.device);
    guard::GuardTask {
        layers: medium.layers.clone(),
        disk: medium.disk.name.clone(),
        start: part.map_or(0, |part| part.start),
        bytes: part.map_or(medium.disk.bytes, |part| part.bytes),
        title: format!("Foothold {} {}: the medium is damaged", config.name, config.version),
    }
}

fn leave(report: &Report, facts: &BootFacts, guard: &guard::GuardTask) -> Result<Never, Fatal> {
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        Fatal::disk("switch-root", format!("{what}: {error}"), "a root to switch to", "report it")
    };
    let step = report.started(Phase::Disk, "switch-root");
    let text = serde_json::to_vec_pretty(facts).map_err(|error| fail("boot facts", &error))?;
    fs_err::write(boot::BOOT_FACTS, text).map_err(|error| fail("boot facts", &error))?;
    fs_err::write(format!("{SYSROOT}/etc/machine-id"), format!("{}\n", facts.machine_id))
        .map_err(|error| fail("machine id", &error))?;
    switch::enter_root().map_err(|error| fail("moving the root", &error))?;
    if let Err(error) = guard::start(guard) {
        report.line(&format!("medium: damage will not be reported, the guard does not start: {error}"));
    }
    report.done(step, "systemd starts");
    Err(fail(switch::SYSTEMD, &switch::exec_systemd()))
}

/// mke2fs and e2fsck run in the new root and need to see the disks.
fn bind_devices() -> Result<(), Fatal> {
    mount::bind(Path::new("/dev"), &Path::new(SYSROOT).join("dev"))
        .map_err(|error| Fatal::medium("root", error.to_string(), "a root with /dev", release::WRITE_AGAIN))
}

fn fill_data() -> io::Result<(String, bool)> {
    let var = Path::new(SYSROOT).join("var");
    data::skeleton(&var)?;
    data::machine_id(&var)
}

fn mount_kernel_file_systems() -> io::Result<()> {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for (kind, target, flags, data) in [
        ("proc", "/proc", safe, ""),
        ("sysfs", "/sys", safe, ""),
        ("devtmpfs", "/dev", MountFlags::NOSUID, "mode=0755"),
        ("tmpfs", "/run", MountFlags::NOSUID | MountFlags::NODEV, "mode=0755,size=20%"),
    ] {
        mount::mount(kind, kind, Path::new(target), MountOptions::new(flags, data)).map_err(io::Error::other)?;
    }
    fs_err::create_dir_all(boot::LAYERS)
}

/// The kernel says that an initrd is damaged and goes on with what it could unpack: a program or a module that is not
/// as it was built. Nothing of that may be trusted to look for a medium.
fn whole_initrd() -> Result<(), Fatal> {
    let Some(problem) = kmsg::initrd_problem_of_this_boot() else { return Ok(()) };
    let found = format!("the initrd on the medium that this machine was started from is damaged: {problem}");
    Err(Fatal::medium("initrd", found, "the initrd that belongs to the release, whole", release::WRITE_AGAIN))
}

fn read_config() -> Result<InitrdConfig, Fatal> {
    let text = fs_err::read_to_string("/etc/foothold/initrd.json");
    let read = text
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    read.map_err(|error| {
        Fatal::medium("find", format!("/etc/foothold/initrd.json: {error}"), "a whole initrd", release::WRITE_AGAIN)
    })
}

fn modules_folder() -> std::path::PathBuf {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    Path::new("/lib/modules").join(release)
}

/// Sets the clock to the build time when it cannot be right; tells whether it did. systemd takes one that is 15 years ahead
/// of its own build for wrong, and sets it to that build's time (systemd, `clock_apply_epoch()`): to before ours, when
/// nothing that is made here is valid yet.
fn set_clock_right(built: u64) -> bool {
    !is_plausible(clock::now_secs(), built) && clock::set_secs(built).is_ok()
}

/// From the build on, as long as an authority lives that was made then.
fn is_plausible(now: u64, built: u64) -> bool {
    (built..=built.saturating_add(CA_LIFE.as_secs())).contains(&now)
}

fn give_up(report: &Report, parameters: &Parameters, title: &str, fatal: &Fatal) -> ! {
    loop {
        report.failed(fatal, title);
        reach_the_host(report);
        if parameters.on_failure == OnFailure::PowerOff {
            power_off();
        }
        clock::pause(Duration::from_secs(60));
    }
}

/// The host of a virtual machine waits for the event. So early its driver may not be loaded yet.
fn reach_the_host(report: &Report) {
    let loader = Loader::new(Modules::read(&modules_folder()), Vec::new());
    loader.load_all(&names(&FOR_THE_HOST));
    for _ in 0..20 {
        if report.send_waiting() {
            return;
        }
        clock::pause(Duration::from_millis(100));
    }
}

/// A mistake of ours must not end in a kernel panic: it is shown, and the machine stays as it is.
fn show_panics(report: &'static Report) {
    std::panic::set_hook(Box::new(move |panic| {
        let found = format!("a mistake in the program: {panic}");
        let next = "start again; if it comes again, report it with this screen";
        let fatal = Fatal::medium("init", found, "none", next);
        loop {
            report.failed(&fatal, "Foothold cannot start");
            clock::pause(Duration::from_secs(60));
        }
    }));
}

fn power_off() {
    clock::pause(Duration::from_secs(1));
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}

fn stay() -> ! {
    loop {
        clock::pause(Duration::from_secs(3600));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::is_plausible;

    /// 1 November 2026.
    const BUILT: u64 = 1_793_491_200;

    #[rstest]
    #[case::empty_battery(0, false)]
    #[case::a_second_before(BUILT - 1, false)]
    #[case::as_it_was_built(BUILT, true)]
    #[case::nine_years_on(BUILT + 9 * 365 * 86_400, true)]
    #[case::in_2090(3_786_912_000, false)]
    fn a_clock_is_believed_from_the_build_on_as_long_as_authorities_live(#[case] now: u64, #[case] believed: bool) {
        assert_eq!(is_plausible(now, BUILT), believed);
    }
}
