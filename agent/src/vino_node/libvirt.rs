//! The container that libvirt runs in.
//!
//! ```text
//! settings ─► does KVM run a guest? ─► libvirtd, and its init: what QEMU leaves is reaped, signals end it in good order
//! ```
//! A `/dev/kvm` that cannot run guests is hidden from libvirt. Otherwise libvirt asks QEMU about KVM at each definition,
//! and waits most of a minute each time for a guest that never starts.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::vino::values::Accelerator;
use anyhow::Context as _;
use foothold_qemu::{Accel, Tools};

use super::virsh::Virsh;
use super::{Paths, STATE};
use crate::host::{System, files, supervise};

/// The program.
const LIBVIRTD: [&str; 1] = ["/usr/sbin/libvirtd"];
/// Its settings.
const ETC: &str = "/etc/libvirt";
/// The device of KVM.
const KVM: &str = "/dev/kvm";
/// User and group of QEMU, as the image names them.
const QEMU: &str = "libvirt-qemu";
/// How long machines may take to shut down when the pod ends.
const SHUT_DOWN: Duration = Duration::from_secs(40);
/// How often they are looked at meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Only root on the node reaches the socket; nothing listens on a network.
const LIBVIRTD_CONF: &str = "auth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\nunix_sock_rw_perms = \"0700\"\n";

/// Runs libvirt until a signal ends it; its exit code.
pub fn run(paths: &Paths) -> anyhow::Result<i32> {
    let tools = Tools::from_toolbox(Path::new("/")).context("the image has no QEMU")?;
    fs_err::create_dir_all(&paths.state)?;
    let accel = Accel::detect_cached(&tools, &paths.state.join("vino-accelerator.json"));
    let (accelerator, hidden) = match accel {
        Accel::Kvm => (Accelerator::Kvm, false),
        Accel::Tcg => (Accelerator::Tcg, Path::new(KVM).exists()),
    };
    if hidden {
        let cover = paths.shared.join("no-kvm");
        fs_err::create_dir_all(&paths.shared)?;
        files::write(&cover, b"", 0o000)?;
        supervise::cover(&cover, Path::new(KVM)).context("hiding a KVM that runs nothing")?;
    }
    settings(Path::new("/"), accelerator)?;
    files::write(&paths.accelerator(), accelerator.word().as_bytes(), 0o644)?;
    log::info!("domains run by {}", accelerator.word());
    let virsh = Virsh::new(Arc::new(System::new()));
    Ok(supervise::supervise(&LIBVIRTD, || shut_down(&virsh))?)
}

/// Writes what libvirt reads, and makes the folders that it expects.
pub fn settings(root: &Path, accelerator: Accelerator) -> anyhow::Result<()> {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let state = |name: &str| PathBuf::from(STATE.trim_start_matches('/')).join(name);
    for folder in ["qemu", "images", "boot", "dnsmasq", "vino-media"] {
        let folder = root.join(state(folder));
        fs_err::create_dir_all(&folder)?;
        // QEMU is another user: it may go through.
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o711))?;
    }
    for folder in [
        "/etc/libvirt/qemu/networks",
        "/etc/libvirt/storage",
        "/run/libvirt",
        "/var/log/libvirt/qemu",
        "/var/cache/libvirt",
    ] {
        fs_err::create_dir_all(at(folder))?;
    }
    let (user, group) = match accelerator {
        Accelerator::Tcg => (QEMU.to_owned(), QEMU.to_owned()),
        Accelerator::Kvm => {
            let kvm = fs_err::metadata(at(KVM))?;
            qemu(kvm.mode(), kvm.gid())
        }
    };
    let etc = at(ETC);
    files::write(&etc.join("libvirtd.conf"), LIBVIRTD_CONF.as_bytes(), 0o644)?;
    files::write(&etc.join("qemu.conf"), qemu_conf(&user, &group).as_bytes(), 0o644)?;
    Ok(())
}

/// User and group of QEMU, such that it may use KVM: root only if nobody else may.
fn qemu(mode: u32, gid: u32) -> (String, String) {
    if mode & 0o006 == 0o006 {
        (QEMU.to_owned(), QEMU.to_owned())
    } else if mode & 0o060 == 0o060 && gid != 0 {
        (QEMU.to_owned(), format!("+{gid}"))
    } else {
        ("root".to_owned(), "root".to_owned())
    }
}

/// The settings of QEMU in libvirt. In a pod there is no daemon for the machines' output, and the kubelet owns the control
/// groups.
fn qemu_conf(user: &str, group: &str) -> String {
    format!(
        "user = \"{user}\"\ngroup = \"{group}\"\nsecurity_driver = \"none\"\nstdio_handler = \"file\"\ncgroup_controllers = []\n\
         namespaces = []\nremember_owner = 0\nmax_core = 0\n"
    )
}

/// Asks all machines to shut down, and waits a while.
fn shut_down(virsh: &Virsh) {
    let running = || virsh.lines(&["list", "--name"]).unwrap_or_default();
    for name in running() {
        if let Err(error) = virsh.run(&["shutdown", &name]) {
            log::warn!("shutting `{name}` down: {error}");
        }
    }
    let until = Instant::now() + SHUT_DOWN;
    while !running().is_empty() && Instant::now() < until {
        #[expect(clippy::disallowed_methods, reason = "nothing else is done meanwhile")]
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use agent_api::vino::values::Accelerator;

    use super::{qemu, settings};

    #[test]
    fn qemu_is_root_only_where_nobody_else_may_use_kvm() {
        assert_eq!(qemu(0o020_666, 0).0, "libvirt-qemu");
        assert_eq!(qemu(0o020_660, 108), ("libvirt-qemu".to_owned(), "+108".to_owned()));
        assert_eq!(qemu(0o020_600, 0).0, "root");
    }

    #[test]
    fn settings_are_written_below_the_root() {
        let root = tempfile::tempdir().expect("a folder");
        settings(root.path(), Accelerator::Tcg).expect("written");
        let text = fs_err::read_to_string(root.path().join("etc/libvirt/qemu.conf")).expect("a file");
        assert!(text.contains("user = \"libvirt-qemu\""), "{text}");
    }
}
