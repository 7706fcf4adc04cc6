//! What Ironic knows of a server's life.

use agent_api::host_story::{BmcSign, RamdiskSign};
use agent_api::metal3::Time;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::ironic::Node;

/// Fields of a node that are read here, for a listing.
pub const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,target_power_state,last_error,\
                          maintenance,maintenance_reason,fault,boot_interface,inspect_interface,inspection_started_at,\
                          provision_updated_at,deploy_step,clean_step,service_step,driver_internal_info";

/// What Ironic calls it that a BMC does not answer any more.
pub const LOST: &str = "power failure";

/// Its BMC. Ironic tells no time of an answer: it asks again and again, and notes what is new.
pub fn bmc(node: &Node) -> BmcSign {
    let failed = node.fault.as_deref() == Some(LOST);
    let known = node.powered_on().is_some();
    let problem = if failed { node.maintenance_reason.as_deref().or(node.error()) } else { node.error() };
    let answers = match (failed, known, problem) {
        (true, ..) | (false, false, Some(_)) => Some(false),
        (false, true, _) => Some(true),
        (false, false, None) => None,
    };
    BmcSign {
        answers,
        power: node.power_state.clone(),
        commanded: noted(node, "last_power_state_change").map(Time),
        problem: problem.filter(|_| answers == Some(false)).map(str::to_owned),
    }
}

/// Its ramdisk; none before the first heartbeat.
pub fn ramdisk(node: &Node) -> Option<RamdiskSign> {
    let heartbeat = noted(node, "agent_last_heartbeat").map(Time)?;
    Some(RamdiskSign { heartbeat, url: text(node, "agent_url").map(str::to_owned) })
}

/// Name of the step that is done in a deployment, or in a cleaning.
pub fn step(step: &serde_json::Value) -> Option<&str> {
    step["step"].as_str().filter(|name| !name.is_empty())
}

/// A moment as Ironic writes it: with an offset in its own fields, without one, in UTC, in what it notes for itself.
pub fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let bare: DateTime = text.parse().ok()?;
        Some(bare.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })
}

fn noted(node: &Node, name: &str) -> Option<Timestamp> {
    moment(text(node, name)?)
}

fn text<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.driver_internal_info.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::{bmc, moment, ramdisk, step};
    use crate::ironic::Node;

    fn node(fields: Value) -> Node {
        serde_json::from_value(fields).expect("a node")
    }

    #[rstest]
    #[case::on(json!({"power_state": "power on"}), Some(true), None)]
    #[case::an_old_error(json!({"power_state": "power off", "last_error": "x"}), Some(true), None)]
    #[case::not_asked(json!({"power_state": null, "last_error": null}), None, None)]
    #[case::refused(json!({"power_state": null, "last_error": "401"}), Some(false), Some("401"))]
    #[case::lost(json!({"power_state": "power on", "fault": "power failure", "maintenance_reason": "timed out"}), Some(false), Some("timed out"))]
    #[case::lost_without_a_word(json!({"power_state": "error", "fault": "power failure"}), Some(false), None)]
    fn a_bmc_answers_or_ironic_says_why_not(
        #[case] fields: Value,
        #[case] answers: Option<bool>,
        #[case] problem: Option<&str>,
    ) {
        let sign = bmc(&node(fields));
        assert_eq!((sign.answers, sign.problem.as_deref()), (answers, problem));
    }

    #[test]
    fn a_heartbeat_is_read_as_ironic_notes_it() {
        assert_eq!(ramdisk(&node(json!({"driver_internal_info": {"agent_url": "https://a:9999"}}))), None);
        let info =
            json!({"agent_last_heartbeat": "2026-03-02T08:00:01.250000", "agent_url": "https://172.22.0.50:9999"});
        let sign = ramdisk(&node(json!({"driver_internal_info": info}))).expect("a ramdisk");
        assert_eq!(sign.heartbeat.0.to_string(), "2026-03-02T08:00:01.25Z");
        assert_eq!(sign.url.as_deref(), Some("https://172.22.0.50:9999"));
        for (text, wanted) in [
            ("2016-09-08T20:35:06+00:00", Some("2016-09-08T20:35:06Z")),
            ("2016-09-08T22:35:06+02:00", Some("2016-09-08T20:35:06Z")),
            ("2016-09-08T20:35:06", Some("2016-09-08T20:35:06Z")),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(moment(text).map(|moment| moment.to_string()).as_deref(), wanted, "{text}");
        }
        assert_eq!(step(&json!({"step": "write_image", "interface": "deploy"})), Some("write_image"));
        assert_eq!((step(&json!({})), step(&Value::Null)), (None, None));
    }
}
