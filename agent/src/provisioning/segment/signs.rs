//! Signs of life by DHCP: the last question and the last answer of each known machine, kept in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_api::host_story::{DhcpAnswered, DhcpAsked, DhcpClient, DhcpSign};
use agent_api::metal3::Time;
use jiff::Timestamp;

use super::packet::Dhcp;
use crate::host::files;
use agent_api::net::MacAddress;

/// The file, in the state folder: a list of [`DhcpSign`]s.
pub const SIGNS: &str = "signs.json";
/// Pause between two writings: a machine that boots sends a dozen packets in as many seconds.
const CALM: Duration = Duration::from_secs(3);
/// The most machines that are remembered. Beyond that, the one that was heard longest ago is forgotten.
const REMEMBERED: usize = 4096;

/// RFC 2132, 9.6.
const MESSAGE_TYPE: u8 = 53;
/// RFC 2132, 9.13.
const VENDOR_CLASS: u8 = 60;
/// RFC 3004, 4.
const USER_CLASS: u8 = 77;
/// RFC 4578, 2.1.
const ARCHITECTURE: u8 = 93;
/// iPXE's own options: only iPXE sends them.
const IPXE: u8 = 175;

/// What each known machine was last heard of.
#[derive(Debug)]
pub(super) struct Signs {
    path: PathBuf,
    machines: BTreeMap<MacAddress, DhcpSign>,
    changed: bool,
    written: Option<Duration>,
}

impl Signs {
    /// Reads the signs of a state folder. A file that cannot be read counts as empty.
    pub fn open(state_dir: &Path) -> Self {
        let path = state_dir.join(SIGNS);
        let kept = fs_err::read(&path).ok().and_then(|bytes| read(&bytes).ok()).unwrap_or_default();
        let machines = kept.into_iter().filter_map(|sign| Some((sign.mac.parse().ok()?, sign))).collect();
        Self { path, machines, changed: false, written: None }
    }

    /// A packet of a known machine; `outgoing`: sent by this box.
    pub fn heard(&mut self, dhcp: &Dhcp<'_>, outgoing: bool, now: Timestamp) {
        // The box's own probes and its relay are no machines.
        if outgoing && !dhcp.reply {
            return;
        }
        if self.machines.len() >= REMEMBERED && !self.machines.contains_key(&dhcp.mac) {
            let oldest = self.machines.iter().min_by_key(|(_, sign)| sign.last()).map(|(mac, _)| *mac);
            oldest.map(|mac| self.machines.remove(&mac));
        }
        let fresh = || DhcpSign { mac: dhcp.mac.to_string(), ..DhcpSign::default() };
        let sign = self.machines.entry(dhcp.mac).or_insert_with(fresh);
        let (at, message) = (Time(now), message(dhcp).to_owned());
        if dhcp.reply {
            let (server, address) = (dhcp.server(), dhcp.gives());
            sign.answered = Some(DhcpAnswered { at, message, address, server, ours: outgoing });
        } else {
            sign.asked = Some(DhcpAsked { at, message, client: client(dhcp), architecture: architecture(dhcp) });
        }
        self.changed = true;
    }

    /// Writes the file when it is due. `run`: since the guard began.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&mut self, run: Duration) -> std::io::Result<()> {
        let due = self.written.is_none_or(|written| run.saturating_sub(written) >= CALM);
        if !self.changed || !due {
            return Ok(());
        }
        let all: Vec<&DhcpSign> = self.machines.values().collect();
        let text = serde_json::to_string(&all)? + "\n";
        files::write(&self.path, text.as_bytes(), files::PUBLIC)?;
        self.changed = false;
        self.written = Some(run);
        Ok(())
    }
}

/// The machines of a file.
///
/// # Errors
/// The text is not such a file.
pub fn read(bytes: &[u8]) -> serde_json::Result<Vec<DhcpSign>> {
    serde_json::from_slice(bytes)
}

fn message(dhcp: &Dhcp<'_>) -> &'static str {
    match dhcp.option(MESSAGE_TYPE) {
        Some([1]) => "discover",
        Some([2]) => "offer",
        Some([3]) => "request",
        Some([4]) => "decline",
        Some([5]) => "ack",
        Some([6]) => "nak",
        Some([7]) => "release",
        Some([8]) => "inform",
        Some(_) => "other",
        None => "bootp",
    }
}

/// What asks. iPXE says `PXEClient` too, as the firmware that it stands in for.
fn client(dhcp: &Dhcp<'_>) -> DhcpClient {
    let vendor = dhcp.option(VENDOR_CLASS).unwrap_or_default();
    // With or without the length before it: iPXE sends it without (RFC 3004 wants it).
    let user = dhcp.option(USER_CLASS).unwrap_or_default();
    if dhcp.option(IPXE).is_some() || user.ends_with(b"iPXE") {
        DhcpClient::Ipxe
    } else if vendor.starts_with(b"PXEClient") {
        DhcpClient::Pxe
    } else if vendor.starts_with(b"HTTPClient") {
        DhcpClient::HttpBoot
    } else {
        DhcpClient::System
    }
}

fn architecture(dhcp: &Dhcp<'_>) -> Option<u16> {
    let first = dhcp.option(ARCHITECTURE)?.get(..2)?;
    Some(u16::from_be_bytes(first.try_into().ok()?))
}

#[cfg(test)]
#[path = "signs_tests.rs"]
mod tests;
