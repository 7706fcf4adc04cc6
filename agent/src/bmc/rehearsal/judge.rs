//! What an answer is worth. Pure: documents and numbers in, cells out.
//!
//! Property names by DMTF's DSP2046 ("Redfish Resource and Schema Guide").

use std::time::Duration;

use agent_api::rehearsal::Cell;
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde_json::Value;

use crate::bmc::address::Way;
use crate::bmc::ipmi::{BootOptions, ChassisStatus, DeviceId, IpmiError};
use crate::bmc::redfish::RedfishError;

/// An answer that takes longer makes Ironic's periodic tasks pile up.
const SLOW: Duration = Duration::from_secs(2);
/// Beyond this, logs of BMC and box are hard to match.
const SKEW_WARN: SignedDuration = SignedDuration::from_secs(30);
/// Beyond this, certificates that were just made are not yet valid, or sessions are over at once.
const SKEW_BAD: SignedDuration = SignedDuration::from_mins(5);

/// Time zones are whole quarters of an hour, up to UTC+14 and UTC-12.
const QUARTER_HOUR: i64 = 900;
const FARTHEST_ZONE: i64 = 14 * 3600;

/// How reaching it went: questions, those unanswered, the slowest answer.
pub fn reach(what: &str, (asked, unanswered, slowest): (u32, u32, Duration)) -> Cell {
    let millis = slowest.as_millis();
    if unanswered > 0 {
        return Cell::warn(
            format!("{what} comes and goes: {unanswered} of {asked} questions went unanswered"),
            "look at the cable, at duplicate addresses and at the BMC's load; restart the BMC if it stays so",
        );
    }
    if slowest > SLOW {
        return Cell::warn(
            format!("{what} takes up to {millis} ms for an answer"),
            "restart the BMC, or update its firmware; many clients at once make it slow, too",
        );
    }
    Cell::good(format!("{what} answers within {millis} ms"))
}

/// Why there is no answer to Redfish's root.
pub fn unreached(error: &RedfishError) -> Cell {
    let says = chain(error);
    let hint = match error {
        RedfishError::Untrusted { problem, given } => return Cell::bad(says, problem.hint(*given)),
        RedfishError::Tls(spoken) if spoken.is_for_ironic() => return Cell::warn(says, spoken.hint()),
        RedfishError::Tls(spoken) => spoken.hint(),
        RedfishError::Unreachable(_) => {
            "check the address and port, that the BMC has power and a link, and that this network reaches it"
        }
        RedfishError::Late { .. } => {
            "something takes the connection and says nothing: restart the BMC, or give it more time"
        }
        RedfishError::Dropped { .. } => {
            "check that the port speaks HTTPS, or use the scheme with `+http`; restart the BMC"
        }
        RedfishError::Authorities(_) => "put certificates in PEM there, or leave `ca.crt` out of the Secret",
        RedfishError::Client(_) => "see the journal of this machine",
        RedfishError::Status { .. } | RedfishError::Form { .. } => {
            "no Redfish there: switch it on in the BMC, or use `ipmi://`"
        }
    };
    Cell::bad(says, hint)
}

/// We are let in; `refused`: why by no session.
pub fn let_in(refused: Option<&RedfishError>) -> Cell {
    Cell::good(if refused.is_none() { "let in, by a session" } else { "let in, by basic authentication" })
}

/// Why we are not let in, or cannot read what we need; `refused`: why no session opened before.
pub fn closed(error: &RedfishError, refused: Option<&RedfishError>) -> Cell {
    let hint = match (error.status(), refused.and_then(RedfishError::status)) {
        (Some(StatusCode::UNAUTHORIZED), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) | None) => {
            "check user and password in the Secret, and whether the account is locked"
        }
        // Neither way in, and not for the password.
        (Some(StatusCode::UNAUTHORIZED), Some(_)) => {
            "check user and password in the Secret; see that the BMC has sessions left, or takes basic authentication"
        }
        (Some(StatusCode::FORBIDDEN), _) => "give the account the role Administrator or Operator",
        _ => "look at the BMC's own log; restart it if it stays so",
    };
    let says = match refused {
        Some(refused) => format!("{}; a session before: {}", chain(error), chain(refused)),
        None => chain(error),
    };
    Cell::bad(says, hint)
}

/// What is at a path that should be a system, if it says that it is something else.
pub fn no_system(path: &str, found: &Value, systems: &[String]) -> Option<Cell> {
    let kind = found["@odata.type"].as_str()?.trim_start_matches('#').split('.').next()?;
    if kind == "ComputerSystem" {
        return None;
    }
    let known = |links: &Value| {
        let links = links.as_array().into_iter().flatten();
        links.filter_map(|link| link["@odata.id"].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let of = &found["Links"];
    let own = [known(&of["ManagerForServers"]), known(&of["ComputerSystems"]), systems.to_vec()];
    let own = own.into_iter().find(|own| !own.is_empty()).unwrap_or_default();
    let says = format!("`{path}` is a {kind}, and Ironic wants a ComputerSystem");
    Some(match own.as_slice() {
        [] => Cell::bad(says, "put the path of the BMC's system in `spec.bmc.address`, or leave the path out"),
        own => Cell::bad(says, format!("`spec.bmc.address` may name: {}", own.join(", "))),
    })
}

/// Whether what a chassis says of its power is about this system alone: an enclosure is on while a blade in it is off.
pub fn is_chassis_of(chassis: &Value, system: &str) -> bool {
    const FOR_MANY: [&str; 8] = ["Enclosure", "Rack", "RackGroup", "Row", "Pod", "Zone", "Facility", "Shelf"];
    let path = |link: &Value| link["@odata.id"].as_str().map(|path| path.trim_end_matches('/').to_owned());
    let systems = chassis["Links"]["ComputerSystems"].as_array().map(Vec::as_slice).unwrap_or_default();
    let alone = matches!(systems, [only] if path(only).as_deref() == Some(system.trim_end_matches('/')));
    alone && !chassis["ChassisType"].as_str().is_some_and(|kind| FOR_MANY.contains(&kind))
}

/// Virtual media of a system that does not say who manages it: Ironic asks for that whoever has the drives.
pub fn media_of_no_manager() -> Cell {
    Cell::bad(
        "the system does not say who manages it (`Links/ManagedBy`), and Ironic inserts no disc then",
        "update the BMC's firmware, or use the scheme `redfish` and boot by network",
    )
}

/// A resource that could not be read although we were let in.
pub fn unread(error: &RedfishError) -> Cell {
    let hint = match error.status() {
        Some(StatusCode::FORBIDDEN) => "give the account the role Administrator or Operator",
        _ => "update the BMC's firmware; `foothold-agent rehearse --export` saves its answers for a report",
    };
    Cell::bad(chain(error), hint)
}

/// Power: what the system says at first, what its chassis says, what the system says at last.
pub fn power(first: &Value, chassis: Option<&Value>, last: Option<&Value>) -> Cell {
    let hint = "look at the server itself: the BMC does not know; restart the BMC, or update its firmware";
    let word = |document: &Value| document["PowerState"].as_str().map(str::to_owned);
    let Some(state) = word(first) else {
        return Cell::bad("the system says nothing about its power", hint);
    };
    if !["On", "Off"].contains(&state.as_str()) {
        return Cell::warn(format!("the system says `{state}`"), "wait until the server is on or off, and ask again");
    }
    if let Some(other) = last.and_then(word).filter(|other| *other != state) {
        return Cell::bad(format!("the system says `{state}`, and a moment later `{other}`"), hint);
    }
    // A chassis on its way, or one that is paused, says nothing else.
    let other = chassis.and_then(word).filter(|other| ["On", "Off"].contains(&other.as_str()));
    if let Some(other) = other.filter(|other| *other != state) {
        return Cell::bad(format!("the system says `{state}`, its chassis `{other}`"), hint);
    }
    let resets = &first["Actions"]["#ComputerSystem.Reset"];
    if resets["target"].as_str().is_none() {
        return Cell::bad(
            format!("it is `{state}`, but there is no action that switches it"),
            "give the account the role Administrator or Operator; check the BMC's licence",
        );
    }
    Cell::good(state.to_lowercase())
}

/// The boot override, for a host that boots this way.
pub fn boot(system: &Value, way: Way) -> Cell {
    let boot = &system["Boot"];
    if !boot.is_object() {
        return Cell::bad("the boot source cannot be overridden", "update the BMC's firmware, or use `ipmi://`");
    }
    let wanted: &[&str] = match way {
        Way::Network => &["Pxe"],
        Way::VirtualMedia | Way::IdracVirtualMedia => &["Cd", "UsbCd"],
        Way::UefiHttp => &["UefiHttp"],
    };
    let text = |key: &str| boot[key].as_str().unwrap_or_default();
    let (enabled, target) = (text("BootSourceOverrideEnabled"), text("BootSourceOverrideTarget"));
    let clear = "clear the override in the BMC if nobody is about to use it";
    let list = boot["BootSourceOverrideTarget@Redfish.AllowableValues"].as_array();
    let able = list.map(|list| list.iter().filter_map(Value::as_str).any(|value| wanted.contains(&value)));
    let wanted = wanted.join("` or `");
    if able == Some(false) {
        let hint = match way {
            Way::VirtualMedia | Way::IdracVirtualMedia => {
                "use the scheme `redfish` and boot by network, or update the BMC's firmware"
            }
            Way::Network => "use a scheme with virtual media, or update the BMC's firmware",
            Way::UefiHttp => "use `redfish` or `redfish-virtualmedia`, or update the BMC's firmware",
        };
        return Cell::bad(format!("`{wanted}` is not among what the override takes"), hint);
    }
    match (enabled, target) {
        ("Once", target) => Cell::warn(format!("the next boot is from `{target}`"), clear),
        ("Continuous", target) if target != "None" => Cell::warn(format!("every boot is from `{target}`"), clear),
        _ if able.is_none() => Cell::warn(
            "free, but the BMC does not say what the override takes",
            format!("if `{wanted}` is refused later, update the BMC's firmware"),
        ),
        _ => Cell::good(format!("free, takes `{wanted}`")),
    }
}

/// Virtual media: all drives that were found.
pub fn media(drives: &[Value], way: Way) -> Cell {
    let needed = way.is_media();
    let holds = |drive: &Value, kinds: &[&str]| {
        let types = drive["MediaTypes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        types.into_iter().any(|kind| kinds.contains(&kind))
    };
    let Some(drive) = drives.iter().find(|drive| holds(drive, &["CD", "DVD"])) else {
        let says = if drives.is_empty() { "there are no virtual drives" } else { "no virtual drive takes a disc" };
        return if needed {
            Cell::bad(
                says,
                "check the BMC's licence for virtual media, or use the scheme `redfish` and boot by network",
            )
        } else {
            Cell::skipped(format!("{says}, and none is needed"))
        };
    };
    let id = drive["Id"].as_str().unwrap_or("?");
    if drive["Inserted"].as_bool() == Some(true) {
        return Cell::warn(format!("a disc is in drive `{id}`"), "eject it in the BMC if nobody uses it");
    }
    if drive["Actions"]["#VirtualMedia.InsertMedia"]["target"].as_str().is_none() {
        return Cell::warn(
            format!("drive `{id}` is empty and has no action `InsertMedia`"),
            "inserting by PATCH is tried; if that is refused, update the BMC's firmware",
        );
    }
    Cell::good(format!("drive `{id}` is empty"))
}

/// Whether an iDRAC boots a disc by a way of its own only: until version 6 of its firmware, by Ironic's own rule.
pub fn is_old_idrac(version: Option<&str>) -> bool {
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    major.is_none_or(|major| major < 6)
}

/// The virtual drives of such an iDRAC, where the address does not say that it is one: Ironic refuses that.
pub fn media_of_another_way() -> Cell {
    let hint = "use the scheme `idrac-virtualmedia` in `spec.bmc.address`, or update the iDRAC to firmware 6.00.00.00";
    Cell::bad("an iDRAC with this firmware boots a disc by a way of its own", hint)
}

/// The clock: what the BMC says it is, and what it was in the middle of asking. `by`: where it says so.
pub fn clock(theirs: Timestamp, ours: Timestamp, by: &str) -> Cell {
    let skew = theirs.duration_since(ours);
    let hint = "let the BMC take its time from this box by NTP, or set it";
    let ahead = if skew.is_negative() { "behind" } else { "ahead" };
    let amount = skew.unsigned_abs().as_secs();
    let says = format!("{amount} s {ahead}{by}");
    match skew.abs() {
        skew if skew > SKEW_BAD => Cell::bad(says, hint),
        skew if skew > SKEW_WARN => Cell::warn(says, hint),
        // Times are told in whole seconds.
        _ if amount <= 1 => Cell::good(format!("right{by}")),
        _ => Cell::good(says),
    }
}

/// A clock by IPMI, whose times have no time zone (37): many BMCs keep local time.
pub fn ipmi_clock(theirs: Timestamp, ours: Timestamp) -> Cell {
    let skew = theirs.duration_since(ours).as_secs();
    let quarters = (skew + skew.signum() * QUARTER_HOUR / 2) / QUARTER_HOUR;
    let rest = (skew - quarters * QUARTER_HOUR).abs();
    if quarters == 0 || quarters.abs() * QUARTER_HOUR > FARTHEST_ZONE || rest > SKEW_WARN.as_secs() {
        return clock(theirs, ours, ", by the clock of its event log");
    }
    let sign = if quarters < 0 { '-' } else { '+' };
    let minutes = quarters.abs() * QUARTER_HOUR / 60;
    let zone = format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60);
    Cell::warn(
        format!("right if its event log keeps the time of {zone}"),
        "set the BMC to UTC, so that logs of BMC and box match",
    )
}

/// A clock that nobody tells.
pub fn no_clock() -> Cell {
    Cell::warn("the BMC does not tell its time", "let it take its time from this box by NTP")
}

/// Versions, by what they are of.
pub fn firmware(versions: &[(String, String)]) -> Cell {
    if versions.is_empty() {
        return Cell::warn("the BMC tells no versions", "look for them on the BMC's own page");
    }
    let told = versions.iter().map(|(of, version)| format!("{of} {version}"));
    Cell::good(told.collect::<Vec<_>>().join(", "))
}

/// Why IPMI does not get further.
pub fn ipmi(error: &IpmiError) -> Cell {
    use crate::bmc::ipmi::Refused;
    let hint = match error {
        IpmiError::Silent { .. } | IpmiError::Network { .. } => {
            "check address and UDP port 623, and that IPMI over LAN is switched on in the BMC"
        }
        IpmiError::Old => "switch IPMI 2.0 on in the BMC, or use `redfish://`",
        IpmiError::Long { .. } => "give the BMC a shorter one, and the Secret, too",
        IpmiError::Refused(Refused::User | Refused::Password) => {
            "check user and password in the Secret, and that the account may use IPMI over LAN"
        }
        IpmiError::Refused(Refused::Privilege) => "raise the account's privilege, or add `?privilegelevel=OPERATOR`",
        IpmiError::Refused(Refused::Suite) => "allow cipher suite 17 or 3 in the BMC",
        IpmiError::Refused(Refused::Full) => "close other sessions, or restart the BMC",
        IpmiError::Refused(Refused::Status(_) | Refused::Wire(_)) | IpmiError::Wire(_) => {
            "update the BMC's firmware, or use `redfish://`"
        }
        IpmiError::Completion { .. } => "the BMC does not take the command: update its firmware, or use `redfish://`",
    };
    Cell::bad(chain(error), hint)
}

/// Power by IPMI: at first, and a moment later.
pub fn ipmi_power(first: ChassisStatus, last: ChassisStatus) -> Cell {
    let word = |on| if on { "on" } else { "off" };
    if first.on != last.on {
        let says = format!("it is {}, and a moment later {}", word(first.on), word(last.on));
        return Cell::bad(says, "look at the server itself: the BMC does not know; restart the BMC");
    }
    if first.fault {
        return Cell::bad(format!("{}, with a power fault", word(first.on)), "look at the server's power supplies");
    }
    Cell::good(word(first.on))
}

/// The boot override by IPMI.
pub fn ipmi_boot(options: Result<BootOptions, IpmiError>) -> Cell {
    let options = match options {
        Ok(options) => options,
        Err(IpmiError::Completion { code, .. }) => {
            return Cell::warn(
                format!("the BMC does not tell its boot options (0x{code:02x})"),
                "if booting by network fails later, put the network first in the server's own boot order",
            );
        }
        Err(error) => return ipmi(&error),
    };
    if !options.valid || options.device == 0 {
        return Cell::good("free");
    }
    let (device, times) = (options.device_name(), if options.persistent { "every boot" } else { "the next boot" });
    Cell::warn(format!("{times} is from {device}"), "clear the override in the BMC if nobody is about to use it")
}

/// Firmware by IPMI.
pub fn ipmi_firmware(id: &DeviceId) -> Cell {
    Cell::good(format!("BMC {}, IPMI {}", id.firmware, id.ipmi))
}

/// An error and its root, one line: what lies between is how libraries are made.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut root = None;
    let mut cause = error.source();
    while let Some(error) = cause {
        root = Some(error);
        cause = error.source();
    }
    let text = root.map_or_else(|| error.to_string(), |root| format!("{error}: {root}"));
    text.replace('\n', " ")
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
