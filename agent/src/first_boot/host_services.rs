//! Phase `services`: what the host offers beside the cluster. Started once the control plane has its
//! share of the processor, and never waited for.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use agent_api::site::Site;
use serde_json::json;

use super::{Machine, phase};
use crate::host::files;
use crate::steps::{Outcome, Steps, blocking};

/// Host keys of ssh, kept in DATA.
const SSH_DIR: &str = "/var/lib/foothold/ssh";
/// Where the image's settings for sshd expect root's keys.
const AUTHORIZED_KEYS: &str = "/etc/ssh/authorized_keys";
const HOST_KEY: &str = "ssh_host_ed25519_key";

/// Name service and time.
pub async fn host_services(machine: &Machine, steps: &Steps) {
    let act = || async {
        let machine = machine.clone();
        blocking(move || {
            let units = ["systemd-resolved.service", "chrony.service"];
            let argv = [&["systemctl", "--no-block", "start"], &units[..]].concat();
            machine.program(&argv, b"")?;
            Ok(Outcome::Done((), json!({"started": units})))
        })
        .await
    };
    steps.perform(&phase::HOST_SERVICES, act).await;
}

/// ssh, if Site gives keys: early, for a box that does not come up is the one to be looked into.
pub async fn ssh(machine: &Machine, steps: &Steps, site: &Site) {
    if site.access.ssh_authorized_keys.is_empty() {
        return;
    }
    let act = || async {
        let (machine, site) = (machine.clone(), site.clone());
        blocking(move || {
            prepare_ssh(&machine, &site)?;
            machine.program(&["systemctl", "--no-block", "start", "ssh.service"], b"")?;
            Ok(Outcome::Done((), json!({"keys": site.access.ssh_authorized_keys.len()})))
        })
        .await
    };
    steps.perform(&phase::SSH, act).await;
}

fn prepare_ssh(machine: &Machine, site: &Site) -> anyhow::Result<()> {
    let dir = machine.at(SSH_DIR);
    let key = dir.join(HOST_KEY);
    fs_err::create_dir_all(&dir)?;
    fs_err::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))?;
    if !key.with_extension("pub").exists() {
        make_host_key(machine, &dir, &key)?;
    }
    let mut keys = site.access.ssh_authorized_keys.join("\n");
    keys.push('\n');
    files::write(&machine.at(AUTHORIZED_KEYS), keys.as_bytes(), files::SECRET)?;
    Ok(())
}

/// Made beside and renamed, public half last: a power cut leaves no half a key in its place.
fn make_host_key(machine: &Machine, dir: &Path, key: &Path) -> anyhow::Result<()> {
    let fresh = dir.join("new");
    for path in [fresh.clone(), fresh.with_extension("pub")] {
        let _ = fs_err::remove_file(path);
    }
    let target = format!("{SSH_DIR}/new");
    machine.program(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &target], b"")?;
    files::sync(dir)?;
    fs_err::rename(&fresh, key)?;
    fs_err::rename(fresh.with_extension("pub"), key.with_extension("pub"))?;
    files::sync(dir)?;
    Ok(())
}
