//! What the host must have, and how it gets it.

use std::path::{Path, PathBuf};

use super::command::Run;
use super::flock;
use crate::error::HostLacks;

/// A program that the host must have, and the Debian package that brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("apt-get", "apt"),
    ("mmdebstrap", "mmdebstrap"),
    ("unshare", "util-linux"),
    ("dpkg-deb", "dpkg"),
    ("cc", "gcc libc6-dev"),
];

/// Where Debian's archive keys are on an apt host.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Builds of all users that may install packages take turns: apt refuses a second one at once.
const LOCK: &str = "/run/lock/foothold-packages.lock";

/// Path of a program in `PATH` or the usual system folders.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Whether we are root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Debian packages that are missing on this host.
fn missing() -> Vec<&'static str> {
    let mut packages: Vec<_> =
        PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    if !PathBuf::from(KEYRING).exists() {
        packages.push("debian-archive-keyring");
    }
    if !is_root() && find("newuidmap").is_none() {
        packages.push("uidmap");
    }
    packages.into_iter().flat_map(str::split_whitespace).collect()
}

/// Makes sure that the host has what it needs: installs it where we are root on an apt host, otherwise
/// names it in one line that can be pasted.
pub fn ensure(say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    // What another build is installing right now is not there before that one has ended.
    let _held = is_root().then(|| install_lock(say)).transpose()?;
    let packages = missing();
    if !packages.is_empty() {
        let list = packages.join(" ");
        let lacks = || HostLacks {
            what: list.clone(),
            hint: format!("sudo apt-get update && sudo apt-get install --yes {list}"),
        };
        if !is_root() || find("apt-get").is_none() {
            return Err(lacks().into());
        }
        say(&format!("installing {list}"));
        let apt = |args: &[&str]| Run::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").output();
        apt(&["update"]).map_err(|error| anyhow::Error::new(error).context(lacks()))?;
        // Somebody else's apt or dpkg is waited for, ten minutes at most.
        let mut install = vec!["install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"];
        install.extend(&packages);
        apt(&install).map_err(|error| anyhow::Error::new(error).context(lacks()))?;
    }
    check_subordinate_ids()
}

/// Whether programs may be run in trees of their own: in most containers root may not.
pub fn may_enter() -> anyhow::Result<()> {
    if !is_root() {
        // A user namespace gives what it takes.
        return Ok(());
    }
    let tried =
        Run::new("unshare").args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "true"]).output();
    tried.map(drop).map_err(|error| anyhow::Error::new(error).context(no_namespaces()))
}

fn no_namespaces() -> HostLacks {
    HostLacks {
        what: "mounts and processes of its own: this is a container that may not make them".into(),
        hint: "start the container with `--privileged`, or run foothold outside of it".into(),
    }
}

fn install_lock(say: &mut dyn FnMut(&str)) -> anyhow::Result<flock::Held> {
    let lock = Path::new(LOCK);
    fs_err::create_dir_all(lock.parent().unwrap_or(lock))?;
    flock::lock(lock, &mut || say("another build is installing packages"))
}

/// Without root, a range of subordinate ids must be there (subuid(5)).
fn check_subordinate_ids() -> anyhow::Result<()> {
    if is_root() {
        return Ok(());
    }
    let uid = nix::unistd::getuid();
    let name = nix::unistd::User::from_uid(uid)?.map_or_else(|| uid.to_string(), |user| user.name);
    for file in ["/etc/subuid", "/etc/subgid"] {
        let text = fs_err::read_to_string(file).unwrap_or_default();
        if !has_range(&text, &name, uid.as_raw()) {
            return Err(HostLacks {
                what: format!("a range of 65536 ids for `{name}` in {file}"),
                hint: format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"),
            }
            .into());
        }
    }
    Ok(())
}

fn has_range(text: &str, name: &str, uid: u32) -> bool {
    text.lines().any(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [who, _, count] = fields[..] else { return false };
        (who == name || who == uid.to_string()) && count.parse::<u64>().is_ok_and(|count| count >= 65536)
    })
}

#[cfg(test)]
mod tests {
    use super::has_range;

    #[test]
    fn a_range_counts_when_it_is_ours_and_large_enough() {
        assert!(has_range("ada:100000:65536\n", "ada", 1000));
        assert!(has_range("1000:100000:65536\n", "ada", 1000));
        assert!(!has_range("ada:100000:1000\n", "ada", 1000));
        assert!(!has_range("eve:100000:65536\n", "ada", 1000));
    }
}
