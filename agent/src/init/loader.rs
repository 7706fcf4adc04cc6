//! Loads modules: those that fit the devices there are, and those that we need anyway.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::kmod::Modules;
use crate::host::module;

/// Every device on a bus has a folder here; walking all of `/sys/devices` takes ten times as long.
const BUSES: &str = "/sys/bus";
/// Processor features are listed here and on no bus.
const PROCESSOR: &str = "/sys/devices/system/cpu/modalias";

/// Loads each module once, from several threads at a time.
#[derive(Debug)]
pub struct Loader {
    modules: Modules,
    /// Modules that must not wait for the probing of disks.
    first: Vec<String>,
    load: fn(&Path) -> io::Result<()>,
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// `true` once the kernel has answered.
    files: HashMap<PathBuf, bool>,
    aliases: BTreeSet<String>,
    /// Whether everything that fits the devices present at the start has been loaded.
    settled: bool,
    problems: Vec<String>,
}

impl Loader {
    /// A loader of the modules that `modules` knows; those named `first` go before any that probes
    /// for disks, since the kernel lets every module wait for the probing of all others.
    pub fn new(modules: Modules, first: Vec<String>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        Self {
            modules,
            first,
            load: |path| module::load(path, ""),
            threads,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Loads a module and what it needs. One that is not in the initrd is built into the kernel, or is missing: then
    /// the step that needs it fails and says so.
    pub fn load(&self, name: &str) {
        for path in self.modules.order(name).unwrap_or_default() {
            self.load_file(&path);
        }
    }

    /// The modules that go before all others.
    pub fn first(&self) -> &[String] {
        &self.first
    }

    /// Loads several, side by side.
    pub fn load_all(&self, names: &[String]) {
        let queue = Mutex::new(names.iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(name) = next() {
                self.load(name);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(names.len()) {
                scope.spawn(work);
            }
            work();
        });
    }

    /// Loads what fits these devices, as far as that has not been done.
    pub fn load_for(&self, modaliases: &[String]) {
        let mut names = BTreeSet::new();
        for modalias in modaliases {
            if self.lock().aliases.insert(modalias.clone()) {
                names.extend(self.modules.matching(modalias).into_iter().map(str::to_owned));
            }
        }
        let (slow, quick): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| self.probes_disks(name));
        self.load_all(&quick);
        if !slow.is_empty() {
            self.load_all(&self.first);
            self.load_all(&slow);
        }
    }

    /// ATA and SCSI hosts probe their ports in the background.
    fn probes_disks(&self, name: &str) -> bool {
        let files = self.modules.order(name).unwrap_or_default();
        let probes = |path: &PathBuf| {
            ["/drivers/ata/", "/drivers/scsi/"].iter().any(|part| path.to_string_lossy().contains(part))
        };
        files.iter().any(probes)
    }

    /// Loads what fits the devices that are there now.
    pub fn load_for_present(&self) {
        self.load_for(&present(Path::new(BUSES)));
    }

    /// The first round over all devices; [`Self::wait_for_first_round`] waits for its end.
    pub fn first_round(&self) {
        self.load_for_present();
        self.lock().settled = true;
        self.changed.notify_all();
    }

    /// Waits until everything that fits the devices present at the start has been loaded.
    pub fn wait_for_first_round(&self) {
        let mut state = self.lock();
        while !state.settled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Modules that would not load, and why.
    pub fn problems(&self) -> Vec<String> {
        self.lock().problems.clone()
    }

    fn load_file(&self, path: &Path) {
        let mut state = self.lock();
        loop {
            match state.files.get(path) {
                Some(true) => return,
                // Another thread is at it.
                Some(false) => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                None => break,
            }
        }
        state.files.insert(path.to_owned(), false);
        drop(state);
        let result = (self.load)(path);
        let mut state = self.lock();
        state.files.insert(path.to_owned(), true);
        // No such device: the module looked and found nothing to drive.
        match result {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                state.problems.push(format!("{}: {error}", path.display()));
            }
            Ok(()) | Err(_) => {}
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What drivers would match on, of all devices on all buses.
fn present(buses: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs_err::read_to_string(PROCESSOR).into_iter().collect();
    for bus in fs_err::read_dir(buses).into_iter().flatten().filter_map(Result::ok) {
        let devices = fs_err::read_dir(bus.path().join("devices"));
        for device in devices.into_iter().flatten().filter_map(Result::ok) {
            found.extend(fs_err::read_to_string(device.path().join("modalias")));
        }
    }
    let mut found: Vec<String> = found.into_iter().map(|text| text.trim().to_owned()).collect();
    found.retain(|modalias| !modalias.is_empty());
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::{Loader, present};
    use crate::init::kmod::Modules;

    static LOADED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn each_file_is_loaded_once_and_after_what_it_needs() {
        let folder = tempfile::tempdir().expect("a folder");
        let dep = "a.ko: c.ko\nb.ko: c.ko\nc.ko:\n";
        fs_err::write(folder.path().join("modules.dep"), dep).expect("a table");
        fs_err::write(folder.path().join("modules.alias"), "alias pci:v1* a\nalias pci:v1* b\n").expect("a table");
        let mut loader = Loader::new(Modules::read(folder.path()), Vec::new());
        loader.threads = 3;
        loader.load = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            LOADED.lock().expect("no panic before").extend(name);
            Ok(())
        };
        loader.load_for(&["pci:v1".to_owned(), "pci:v12".to_owned()]);
        loader.load_for(&["pci:v1".to_owned()]);
        let mut order = LOADED.lock().expect("no panic before").clone();
        assert_eq!(order.remove(0), "c.ko");
        order.sort();
        assert_eq!(order, ["a.ko", "b.ko"]);
        assert!(loader.problems().is_empty());
    }

    #[test]
    fn devices_are_found_on_their_buses() {
        let sys = tempfile::tempdir().expect("a folder");
        for (device, modalias) in [("pci/devices/0", "pci:v1\n"), ("usb/devices/1", "usb:v2\n"), ("usb/devices/2", "")]
        {
            let folder = sys.path().join(device);
            fs_err::create_dir_all(&folder).expect("folders");
            fs_err::write(folder.join("modalias"), modalias).expect("a file");
        }
        let found = present(sys.path());
        assert!(found.contains(&"pci:v1".to_owned()) && found.contains(&"usb:v2".to_owned()), "{found:?}");
        assert!(!found.contains(&String::new()));
    }
}
