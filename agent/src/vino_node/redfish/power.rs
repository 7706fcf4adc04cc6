//! The machine behind Redfish: a domain of libvirt.
//!
//! A start is `virsh create` of the domain's own document, with boot order and medium added: the definition stays as the
//! builder made it, and counts again after the next stop.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use foothold_qemu::bmc::{Act, Boot, Kept, Power, PowerError, SerialLine};
use serde::{Deserialize, Serialize};

use super::{boot, console};
use crate::host::files;
use crate::vino_node::Paths;
use crate::vino_node::virsh::Virsh;
use crate::vino_node::xml::Element;

/// How often a machine is looked at after it was asked to shut down.
const LOOK: Duration = Duration::from_millis(500);

/// A domain.
#[derive(Debug)]
pub struct LibvirtPower {
    virsh: Virsh,
    paths: Paths,
    name: String,
    /// How long its operating system may take to shut down.
    patience: Duration,
}

/// What is kept of it in a file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Saved {
    kept: Option<Kept>,
    /// The image in its drive, as libvirt calls it.
    medium: Option<PathBuf>,
}

impl LibvirtPower {
    /// The domain of that name.
    pub const fn new(virsh: Virsh, paths: Paths, name: String, patience: Duration) -> Self {
        Self { virsh, paths, name, patience }
    }

    fn saved(&self) -> Saved {
        saved(&self.paths.redfish(&self.name))
    }

    fn save(&self, saved: &Saved) -> Result<(), PowerError> {
        let path = self.paths.redfish(&self.name);
        let text = serde_json::to_vec(saved).map_err(|error| failed("keeping what Redfish was told", error))?;
        files::replace_below(&self.paths.state, &path, &text)
            .map_err(|error| failed("keeping what Redfish was told", error))
    }

    fn run(&self, doing: &'static str, arguments: &[&str]) -> Result<String, PowerError> {
        self.virsh.run(arguments).map_err(|error| failed(doing, error))
    }

    fn on(&self, boot: Boot) -> Result<(), PowerError> {
        let doing = "switching the machine on";
        let own = self.run(doing, &["dumpxml", "--inactive", "--security-info", &self.name])?;
        let medium = self.saved().medium.and_then(|path| path.to_str().map(str::to_owned));
        let text = boot::document(&own, boot, medium.as_deref()).map_err(|error| failed(doing, error))?;
        self.virsh.with_file(&["create", "/dev/stdin"], &text).map(drop).map_err(|error| failed(doing, error))
    }

    /// Asks the operating system to shut down, and waits. A system that ignores this stays on.
    fn shut_down(&self) -> Result<(), PowerError> {
        self.run("pressing the power button", &["shutdown", &self.name])?;
        let until = Instant::now() + self.patience;
        while self.is_on() && Instant::now() < until {
            #[expect(
                clippy::disallowed_methods,
                reason = "calls of `Power` may block for as long as the machine takes"
            )]
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The drive of a machine that runs, as libvirt calls it.
    fn drive(&self) -> Result<Option<String>, PowerError> {
        let live = self.run("changing the medium", &["dumpxml", &self.name])?;
        let live = Element::parse(&live).map_err(|error| failed("changing the medium", error))?;
        let mut disks = live.child("devices").into_iter().flat_map(Element::elements);
        let drive = disks.find(|element| element.name == "disk" && element.get("device") == Some("cdrom"));
        Ok(drive.and_then(|drive| drive.of_child("target", "dev")).map(str::to_owned))
    }
}

/// Forgets what is kept of a domain that is gone, and the image in its drive.
pub fn forget(paths: &Paths, name: &str) -> std::io::Result<()> {
    if let Some(medium) = saved(&paths.redfish(name)).medium {
        files::remove(&paths.of_node(&medium))?;
    }
    files::remove(&paths.redfish(name))
}

/// Removes images that are in no drive: those of domains that are gone, and incomplete ones.
pub fn sweep(paths: &Paths) -> std::io::Result<()> {
    let mut used = Vec::new();
    for entry in fs_err::read_dir(paths.state.join("vino-redfish")).into_iter().flatten() {
        used.extend(saved(&entry?.path()).medium.map(|medium| paths.of_node(&medium)));
    }
    for entry in fs_err::read_dir(paths.media())? {
        let path = entry?.path();
        if !used.contains(&path) {
            files::remove(&path)?;
        }
    }
    Ok(())
}

fn saved(path: &Path) -> Saved {
    serde_json::from_slice(&fs_err::read(path).unwrap_or_default()).unwrap_or_default()
}

impl Power for LibvirtPower {
    fn is_on(&self) -> bool {
        let state = self.virsh.run(&["domstate", &self.name]);
        state.is_ok_and(|state| !matches!(state.trim(), "shut off" | "crashed"))
    }

    fn act(&self, act: Act, boot: Boot) -> Result<(), PowerError> {
        match (act, self.is_on()) {
            (Act::On, true) | (Act::Off | Act::ShutDown | Act::Interrupt, false) => Ok(()),
            (Act::On, false) => self.on(boot),
            (Act::Off, true) => self.run("switching the machine off", &["destroy", &self.name]).map(drop),
            (Act::ShutDown, true) => self.shut_down(),
            (Act::Interrupt, true) => self.run("an NMI", &["inject-nmi", &self.name]).map(drop),
            (Act::Reset, on) => {
                if on {
                    self.run("switching the machine off", &["destroy", &self.name])?;
                }
                self.on(boot)
            }
        }
    }

    fn insert(&self, image: Option<&Path>) -> Result<(), PowerError> {
        let mut saved = self.saved();
        let below = image.map(|image| image.strip_prefix(&self.paths.root).unwrap_or(image));
        let medium = below.map(|path| Path::new("/").join(path));
        if self.is_on() {
            let doing = "changing the medium";
            match (self.drive()?, medium.as_ref().and_then(|path| path.to_str())) {
                (Some(drive), Some(path)) => {
                    self.run(doing, &["change-media", &self.name, &drive, path, "--update", "--live"])?;
                }
                (Some(drive), None) => {
                    // An empty drive is as good as one that was emptied.
                    let _ = self.run(doing, &["change-media", &self.name, &drive, "--eject", "--live", "--force"]);
                }
                // It has the drive from its next start on.
                (None, _) => {}
            }
        }
        let before = std::mem::replace(&mut saved.medium, medium);
        self.save(&saved)?;
        if let Some(before) = before.filter(|before| saved.medium.as_ref() != Some(before)) {
            files::remove(&self.paths.of_node(&before))
                .map_err(|error| failed("removing the image of before", error))?;
        }
        Ok(())
    }

    fn serial(&self) -> Result<Option<Box<dyn SerialLine>>, PowerError> {
        Ok(Some(console::open(&self.name).map_err(|error| failed("opening the serial console", error))?))
    }

    fn keep(&self, kept: &Kept) -> Result<(), PowerError> {
        let mut saved = self.saved();
        if saved.kept.as_ref() == Some(kept) {
            return Ok(());
        }
        saved.kept = Some(kept.clone());
        self.save(&saved)
    }

    fn kept(&self) -> Option<Kept> {
        self.saved().kept
    }
}

fn failed(doing: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> PowerError {
    PowerError { doing, source: Box::new(error) }
}
