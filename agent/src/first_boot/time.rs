//! Phase `time`: where the clock is set from. Never waited for: the box works with a wrong clock.

use agent_api::site::Site;
use serde_json::json;

use super::{Machine, decide, phase};
use crate::host::files;
use crate::steps::{Outcome, Steps};

/// chrony's configuration.
const CONFIG: &str = "/etc/chrony/chrony.conf";

/// Writes the configuration; the service is started with the others of the host.
pub async fn sources(machine: &Machine, steps: &Steps, site: &Site) {
    let act = || async {
        let text = decide::chrony(&site.ntp.peers, machine.release().ntp_serve);
        if !files::write(&machine.at(CONFIG), text.as_bytes(), files::PUBLIC)? {
            return Ok(Outcome::Current(()));
        }
        Ok(Outcome::Done((), json!({"peers": site.ntp.peers, "serve": machine.release().ntp_serve})))
    };
    steps.perform(&phase::CLOCK, act).await;
}
