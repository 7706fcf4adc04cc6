//! Servers that were on their way when the box was away, and are heard of no more.

use agent_api::host_story::DhcpSign;
use jiff::{SignedDuration, Timestamp};

use super::node::{self, step};
use super::stage::Seen;
use crate::ironic::ProvisionState;

/// Longer than any sign of life takes when the box is back: a ramdisk calls again after five minutes at most.
pub const SILENCE: SignedDuration = SignedDuration::from_mins(10);

/// Whether Ironic waits in vain for a server's ramdisk: it was powered on before `since`, when the box began to listen,
/// and nothing was heard of it for `silence` since then. Firmware that found nobody to boot from does not ask again, and
/// a ramdisk does not outlive its own power cut. Without this it would be noticed when Ironic gives up.
pub fn is_lost(seen: &Seen<'_>, since: Timestamp, silence: SignedDuration) -> bool {
    let node = seen.node;
    let waits = match &node.provision_state {
        ProvisionState::InspectWait => node.inspect_interface.as_deref() == Some("agent"),
        ProvisionState::DeployWait => true,
        // Steps that run are not ended half way.
        ProvisionState::CleanWait => step(&node.clean_step).is_none(),
        _ => false,
    };
    let Some(commanded) = node::bmc(node).commanded.map(|time| time.0).filter(|at| waits && *at < since) else {
        return false;
    };
    let heartbeat = node::ramdisk(node).map(|ramdisk| ramdisk.heartbeat.0);
    let has_called = heartbeat.is_some_and(|at| at >= commanded);
    // Of a ramdisk that has called before, another boot is no sign: Ironic knows the old one only.
    let dhcp = seen.dhcp.filter(|_| !has_called).and_then(DhcpSign::last).map(|time| time.0);
    let http = seen.http.filter(|_| !has_called).map(|fetch| match (&fetch.ended, fetch.cut) {
        (None, false) => seen.now,
        (ended, _) => ended.unwrap_or(fetch.at).0,
    });
    let last = [heartbeat, dhcp, http].into_iter().flatten().fold(since, Timestamp::max);
    seen.now.duration_since(last) >= silence
}

#[cfg(test)]
mod tests {
    use agent_api::host_story::{DhcpAsked, DhcpClient, DhcpSign, HttpSign};
    use agent_api::metal3::Time;
    use jiff::{SignedDuration, Timestamp};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::{SILENCE, Seen, is_lost};
    use crate::ironic::Node;

    /// Minutes after the box began to listen.
    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1) + SignedDuration::from_mins(minutes)
    }

    /// A node that was powered on two minutes before, with these fields.
    fn node(fields: &Value) -> Node {
        let mut info = json!({"last_power_state_change": at(-2).to_string(), "agent_url": "https://a:9999"});
        if let Some(minutes) = fields["heartbeat"].as_i64() {
            info["agent_last_heartbeat"] = json!(at(minutes).to_string());
        }
        if let Some(minutes) = fields["powered"].as_i64() {
            info["last_power_state_change"] = json!(at(minutes).to_string());
        }
        let mut node = json!({
            "uuid": "a", "provision_state": "wait call-back", "inspect_interface": "agent", "driver_internal_info": info,
        });
        node.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        serde_json::from_value(node).expect("a node")
    }

    fn asked(minutes: i64) -> DhcpSign {
        let asked = DhcpAsked {
            at: Time(at(minutes)),
            message: "discover".into(),
            client: DhcpClient::Pxe,
            architecture: None,
        };
        DhcpSign { mac: "52:54:00:00:00:0a".into(), asked: Some(asked), ..DhcpSign::default() }
    }

    fn fetched(minutes: i64, ended: Option<i64>) -> HttpSign {
        HttpSign {
            client: [172, 22, 0, 50].into(),
            path: "/netboot/a.initramfs".into(),
            at: Time(at(minutes)),
            ended: ended.map(|minutes| Time(at(minutes))),
            status: ended.map(|_| 200),
            bytes: None,
            cut: false,
        }
    }

    #[rstest]
    #[case::deployment(json!({}), true)]
    #[case::inspection(json!({"provision_state": "inspect wait"}), true)]
    #[case::inspection_by_the_bmc(json!({"provision_state": "inspect wait", "inspect_interface": "redfish"}), false)]
    #[case::cleaning(json!({"provision_state": "clean wait"}), true)]
    #[case::a_step(json!({"provision_state": "clean wait", "clean_step": {"step": "erase_devices_metadata"}}), false)]
    #[case::ironic_is_at_work(json!({"provision_state": "deploying"}), false)]
    #[case::it_runs(json!({"provision_state": "active"}), false)]
    #[case::powered_on_by_this_box(json!({"powered": 1}), false)]
    #[case::never_powered_on(json!({"driver_internal_info": {}}), false)]
    #[case::a_heartbeat_from_before(json!({"heartbeat": -1}), true)]
    #[case::a_heartbeat(json!({"heartbeat": 3}), false)]
    fn a_server_that_is_waited_for_is_lost_when_it_is_silent(#[case] fields: Value, #[case] lost: bool) {
        let node = node(&fields);
        let is = |minutes| {
            let seen = Seen { node: &node, listened: true, dhcp: None, http: None, began: None, now: at(minutes) };
            is_lost(&seen, at(0), SILENCE)
        };
        assert_eq!((is(9), is(10)), (false, lost));
    }

    #[rstest]
    #[case::asked_before((Some(-1), None), json!({}), true)]
    #[case::asks((Some(4), None), json!({}), false)]
    #[case::fetches((Some(-1), Some((2, None))), json!({}), false)]
    #[case::fetched_long_ago((Some(-1), Some((1, Some(2)))), json!({}), true)]
    #[case::another_boot_of_one_that_has_called((Some(4), Some((5, Some(6)))), json!({"heartbeat": -1}), true)]
    fn what_it_asks_for_is_a_sign_of_a_first_boot(
        #[case] (dhcp, http): (Option<i64>, Option<(i64, Option<i64>)>),
        #[case] fields: Value,
        #[case] lost: bool,
    ) {
        let (node, dhcp) = (node(&fields), dhcp.map(asked));
        let http = http.map(|(began, ended)| fetched(began, ended));
        let (dhcp, http) = (dhcp.as_ref(), http.as_ref());
        let seen = Seen { node: &node, listened: true, dhcp, http, began: None, now: at(13) };
        assert_eq!(is_lost(&seen, at(0), SILENCE), lost);
    }
}
