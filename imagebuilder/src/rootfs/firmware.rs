//! Firmware files: what a driver asks the kernel for by name when it finds its device (kernel documentation,
//! driver-api/firmware). Without it, many servers' network cards and storage controllers stay silent.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::{INSIDE, inside, kernel};
use crate::store::WorkDir;
use crate::toolbox::Toolbox;

/// Where packages have it, and where the kernel looks for it.
const DIR: &str = "usr/lib/firmware";

/// Puts those files of `unpacked` packages into the tree `<work>/<name>` that a module of this kernel release, which is
/// there already, asks for.
pub fn install(toolbox: &Toolbox, work: &WorkDir, name: &str, unpacked: &Path, release: &str) -> Result<()> {
    let tree = work.path().join(name);
    let modules = Path::new("usr/lib/modules").join(release);
    // There are thousands: more than a command line takes.
    let list = kernel::modules_in(&tree.join(&modules))?;
    let list = list.iter().flat_map(|module| [module.as_os_str().as_bytes(), b"\0"]).collect::<Vec<_>>().concat();
    let tool = toolbox.tool("xargs").args(["--null", "modinfo", "-F", "firmware"]).stdin(list);
    let tool = tool.cwd(&Path::new(INSIDE).join(name).join(modules).join("kernel"));
    let asked = tool.bind(work.path(), Path::new(INSIDE), false).run();
    let asked = asked.context("asking the kernel's modules for the firmware that they load")?;
    take(&unpacked.join(DIR), &names(&String::from_utf8_lossy(&asked)), &tree.join(DIR))
}

/// The names in the answer of `modinfo -F firmware`, one a line. Some are patterns: those of devices that no server has.
fn names(answer: &str) -> BTreeSet<&str> {
    let names = answer.lines().map(str::trim).filter(|name| !name.is_empty() && !name.contains('*'));
    names.filter(|name| inside(Path::new(name))).collect()
}

/// Copies what is there of `names`; a link becomes what it leads to. What no package has, its driver does without, or
/// its devices are not those of servers.
fn take(from: &Path, names: &BTreeSet<&str>, into: &Path) -> Result<()> {
    for name in names {
        let file = from.join(name);
        if file.is_file() {
            let target = into.join(name);
            fs_err::create_dir_all(target.parent().context("a file lies in a folder")?)?;
            fs_err::copy(file, target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{names, take};

    #[test]
    fn what_a_module_names_is_taken_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let (from, into) = (dir.path().join("from"), dir.path().join("into"));
        fs_err::create_dir_all(from.join("intel/ddp")).expect("made");
        for file in ["bnx2x.fw", "sound.bin", "intel/ddp/ice-1.pkg"] {
            fs_err::write(from.join(file), file).expect("written");
        }
        symlink("ice-1.pkg", from.join("intel/ddp/ice.pkg")).expect("linked");
        let asked = names("bnx2x.fw\nintel/ddp/ice.pkg\nnobody/has.it\nish_*.bin\n\n../from/sound.bin\nbnx2x.fw\n");
        assert_eq!(asked.iter().copied().collect::<Vec<_>>(), ["bnx2x.fw", "intel/ddp/ice.pkg", "nobody/has.it"]);
        take(&from, &asked, &into).expect("taken");
        let mut taken: Vec<_> = walkdir::WalkDir::new(&into)
            .into_iter()
            .map(|entry| entry.expect("read"))
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| entry.path().strip_prefix(&into).expect("below").to_owned())
            .collect();
        taken.sort();
        assert_eq!(taken, ["bnx2x.fw", "intel/ddp/ice.pkg"].map(std::path::PathBuf::from));
        assert_eq!(fs_err::read_to_string(into.join("intel/ddp/ice.pkg")).expect("read"), "intel/ddp/ice-1.pkg");
    }
}
