//! Phase `identity`: who this box is, and where it keeps what it is.

use agent_api::site::Site;
use serde_json::json;

use super::{Machine, decide, phase, site};
use crate::host::files;
use crate::host::mount;
use crate::steps::{Outcome, Steps, blocking};

/// Fact of the ledger: the name, decided once.
const FACT_HOSTNAME: &str = "hostname";
/// Where `/etc/kubernetes` really is.
const ETC_IN_DATA: &str = "/var/lib/foothold/etc-kubernetes";
const ETC_KUBERNETES: &str = "/etc/kubernetes";

/// Finds Site. What is seen beside it and not used is told.
pub async fn site(machine: &Machine, steps: &Steps) -> Site {
    let find = || async {
        let machine = machine.clone();
        let provisions = machine.release().provisioning.is_some();
        let found = blocking(move || site::find(&machine)).await?;
        let mut detail = json!({"from": found.origin.to_string()});
        if found.site.networks.provisioning.is_some() && !provisions {
            detail["ignored"] = json!("`networks.provisioning`: this release installs no servers");
        }
        if !found.empty.is_empty() {
            detail["seen"] = json!(found.empty);
        }
        Ok(Outcome::Done(found, detail))
    };
    let found = steps.perform(&phase::SITE, find).await;
    if !found.passed_over.is_empty() {
        steps.fail_aside(&phase::OTHER_SITE, &found.passed_over.join("; "));
    }
    found.site
}

/// Decides the name and gives it to the host.
pub async fn hostname(machine: &Machine, steps: &Steps, site: &Site) -> String {
    let act = || async {
        let earlier = steps.ledger.fact(FACT_HOSTNAME);
        let (release, id) = (&machine.release().name, &machine.facts().machine_id);
        let name = decide::hostname(earlier.as_deref(), site, release, id);
        steps.ledger.set_fact(FACT_HOSTNAME, &name)?;
        let wanted = site.hostname.as_ref().filter(|wanted| **wanted != name);
        let detail = match wanted {
            Some(wanted) => {
                json!({"name": name, "kept": format!("a node keeps its name: Site's `{wanted}` is for a new box")})
            }
            None => json!({"name": name}),
        };
        let (machine, given) = (machine.clone(), name.clone());
        blocking(move || give_name(&machine, &given)).await?;
        Ok(Outcome::Done(name, detail))
    };
    steps.perform(&phase::HOSTNAME, act).await
}

fn give_name(machine: &Machine, name: &str) -> anyhow::Result<()> {
    rustix::system::sethostname(name.as_bytes())?;
    files::write(&machine.at("/etc/hostname"), format!("{name}\n").as_bytes(), files::PUBLIC)?;
    files::write(&machine.at("/etc/hosts"), decide::hosts(name).as_bytes(), files::PUBLIC)?;
    Ok(())
}

/// Makes `/etc/kubernetes` a view of DATA.
pub async fn etc_kubernetes(machine: &Machine, steps: &Steps) {
    let act = || async {
        let machine = machine.clone();
        blocking(move || bind_etc(&machine)).await
    };
    steps.perform(&phase::ETC_KUBERNETES, act).await;
}

fn bind_etc(machine: &Machine) -> anyhow::Result<Outcome<()>> {
    let mounts = fs_err::read_to_string("/proc/self/mountinfo")?;
    let (source, target) = (machine.at(ETC_IN_DATA), machine.at(ETC_KUBERNETES));
    if is_mounted(&mounts, &target.to_string_lossy()) {
        return Ok(Outcome::Current(()));
    }
    fs_err::create_dir_all(&source)?;
    fs_err::create_dir_all(&target)?;
    mount::bind(&source, &target)?;
    Ok(Outcome::Done((), serde_json::Value::Null))
}

/// Whether something is mounted at `target`.
pub fn is_mounted(mountinfo: &str, target: &str) -> bool {
    mount::points(mountinfo).any(|point| point == std::path::Path::new(target))
}

#[cfg(test)]
mod tests {
    use super::is_mounted;

    #[test]
    fn a_mount_is_seen_by_its_target() {
        let line = "36 35 98:0 /lib/foothold/etc-kubernetes /etc/kubernetes rw,noatime - ext4 /dev/vda4 rw\n";
        assert!(is_mounted(line, "/etc/kubernetes"));
        assert!(!is_mounted(line, "/etc"));
    }
}
