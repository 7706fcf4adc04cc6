//! When Ironic is asked for a host's BIOS settings and firmware, and what is known of them in between.
//!
//! Ironic answers out of its database, which changes only with what it does itself: it is asked when inspection ended,
//! when the user asks for another setting, before and after something is written, and else every six hours; every ten
//! minutes while it knows no BIOS settings. Those it reads when a host is made known to it and at each cleaning, and a BMC
//! that did not answer at that moment is not asked again: where the user asks for settings and it knows none, it is made
//! to read them, less and less often. A steady fleet of 10,000 hosts is half a host a second.

use agent_api::metal3::{HostUpdatePolicy, ProvisioningState, UpdatePolicy};
use jiff::{SignedDuration, Timestamp};

use super::super::decide::{Standing, Wish};
use crate::ironic::{Node, ProvisionState};

/// Until Ironic is asked again when nothing happens, give or take a quarter.
const RESYNC: SignedDuration = SignedDuration::from_hours(6);
/// Until Ironic is asked again that knows no settings.
const UNKNOWN: SignedDuration = SignedDuration::from_mins(10);
/// Until Ironic is made to read settings again that it does not know: so long at first, then twice as long, up to some hour.
const READ_AGAIN: SignedDuration = SignedDuration::from_mins(2);
/// Times that this grows.
const READS: u32 = 5;
/// Until Ironic is asked again that did not answer.
const RETRY: SignedDuration = SignedDuration::from_secs(60);

/// What an object's copy in the watch tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Whether it asks for a change that can be made; not known when nobody has judged this generation.
    pub pending: Option<bool>,
}

/// Generations of the two objects of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    /// Of `HostFirmwareSettings`.
    pub settings: i64,
    /// Of `HostFirmwareComponents`.
    pub components: i64,
}

/// What is remembered of a host from when Ironic was asked last; lost with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Objects that were judged.
    pub judged: Generations,
    /// Whether there are settings to write.
    pub settings: bool,
    /// Whether there are updates to write.
    pub updates: bool,
    /// Inspection that Ironic's answer was from.
    pub inspected: Option<String>,
    /// Until when its answer is taken to hold.
    pub next: Option<Timestamp>,
    /// No question before then.
    pub retry: Option<Timestamp>,
    /// `FirmwareSchema` that is known to have the host's settings among its owners.
    pub schema: Option<String>,
    /// `HostUpdatePolicy`, by UID, that is known to go with the host.
    pub policy: Option<String>,
    /// Objects that could not be had.
    pub failed: Option<Generations>,
    /// How Ironic was made to read settings that it does not know.
    pub reading: Option<Reading>,
}

/// Times that Ironic was made to read a host's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Generation of the `HostFirmwareSettings` for which it was.
    generation: i64,
    tries: u32,
    /// Not before then.
    next: Option<Timestamp>,
}

/// What is to be done about a host's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// They are to be there; nothing is known of them yet.
    Create,
    /// Ironic is to be asked.
    Ask,
}

/// What is to be done now.
pub fn due(
    state: ProvisioningState,
    node: &Node,
    known: Option<&Known>,
    seen: (Option<Seen>, Option<Seen>),
    now: Timestamp,
) -> Due {
    if matches!(node.provision_state, ProvisionState::Enroll | ProvisionState::Verifying) {
        return Due::Nothing;
    }
    let early = matches!(state, ProvisioningState::Registering | ProvisioningState::Inspecting);
    let Some(known) = known else { return if early { Due::Create } else { Due::Ask } };
    let waits = is_ahead(known.retry, now, RETRY);
    if early || waits || node.provision_state.is_busy() {
        return Due::Nothing;
    }
    let newer = seen.0.is_some_and(|seen| seen.generation > known.judged.settings)
        || seen.1.is_some_and(|seen| seen.generation > known.judged.components);
    let over = !is_ahead(known.next, now, RESYNC.mul_f64(1.25));
    if newer || over || known.inspected != node.inspection_finished_at { Due::Ask } else { Due::Nothing }
}

impl Known {
    /// What the objects of a host that nothing is done with tell after a restart. `chance`, from 0 to 1, spreads when
    /// Ironic is asked again.
    pub fn recalled(
        state: ProvisioningState,
        node: &Node,
        seen: (Option<Seen>, Option<Seen>),
        now: Timestamp,
        chance: f64,
    ) -> Option<Self> {
        let steady = matches!(
            state,
            ProvisioningState::Ready
                | ProvisioningState::Available
                | ProvisioningState::Provisioned
                | ProvisioningState::ExternallyProvisioned
        );
        let (settings, components) = (seen.0.filter(|_| steady)?, seen.1?);
        Some(Self {
            judged: Generations { settings: settings.generation, components: components.generation },
            settings: settings.pending?,
            updates: components.pending?,
            inspected: node.inspection_finished_at.clone(),
            next: after(now, RESYNC.mul_f64(chance)),
            ..Self::default()
        })
    }

    /// Until when an answer of now holds, which has settings in it or not.
    pub fn holds_until(now: Timestamp, chance: f64, has_settings: bool) -> Option<Timestamp> {
        let pause = if has_settings { RESYNC } else { UNKNOWN };
        after(now, pause.mul_f64(0.75 + chance / 2.0))
    }

    /// Ironic did not answer.
    pub fn later(&mut self, now: Timestamp) {
        self.retry = after(now, RETRY);
    }

    /// Whether Ironic may be made to read settings that it does not know, for a generation that asks for some.
    pub fn may_read(&self, generation: i64, node: &Node, now: Timestamp) -> bool {
        let idle = matches!(
            node.provision_state,
            ProvisionState::Manageable
                | ProvisionState::Available
                | ProvisionState::InspectFail
                | ProvisionState::CleanFail
        );
        let again = self.reading.filter(|reading| reading.generation == generation);
        let due = again.is_none_or(|it| !is_ahead(it.next, now, READ_AGAIN * (1 << READS)));
        idle && node.powered_on().is_some() && due
    }

    /// It is made to now.
    pub fn reads(&mut self, now: Timestamp) {
        let generation = self.judged.settings;
        let before = self.reading.filter(|reading| reading.generation == generation).map_or(0, |it| it.tries);
        let tries = (before + 1).min(READS);
        self.next = after(now, READ_AGAIN * (1 << before));
        self.reading = Some(Reading { generation, tries, next: self.next });
    }

    /// When Ironic is asked again, if it knows no settings and the host asks for some. A time in the past does not count:
    /// with it, Ironic would be asked at every look.
    pub fn next_reading(&self, generation: i64, now: Timestamp) -> Option<Timestamp> {
        self.reading.filter(|reading| reading.generation == generation)?.next.filter(|next| *next > now)
    }

    /// What a decision needs.
    pub fn standing(&self, policy: Option<&HostUpdatePolicy>, seen: (Option<Seen>, Option<Seen>)) -> Standing {
        let allowed = Allowed::by(policy);
        let newest = Generations {
            settings: seen.0.map_or(0, |seen| seen.generation).max(self.judged.settings),
            components: seen.1.map_or(0, |seen| seen.generation).max(self.judged.components),
        };
        let wish = if self.settings && allowed.settings || self.updates && allowed.updates {
            Wish::Service
        } else if self.settings || self.updates {
            Wish::Prepare
        } else {
            Wish::None
        };
        Standing { wish, changed: self.failed.is_some_and(|failed| failed != newest), servicing: false }
    }
}

/// What may be changed on a host that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// BIOS settings.
    pub settings: bool,
    /// Firmware.
    pub updates: bool,
}

impl Allowed {
    /// By the host's policy; nothing without one.
    pub fn by(policy: Option<&HostUpdatePolicy>) -> Self {
        let on_reboot = |policy: Option<UpdatePolicy>| policy == Some(UpdatePolicy::OnReboot);
        Self {
            settings: policy.is_some_and(|policy| on_reboot(policy.spec.firmware_settings)),
            updates: policy.is_some_and(|policy| on_reboot(policy.spec.firmware_updates)),
        }
    }
}

/// Whether a moment is still to come. If it is further away than `most`, the clock was set back, and the moment does not
/// count.
fn is_ahead(moment: Option<Timestamp>, now: Timestamp, most: SignedDuration) -> bool {
    moment.is_some_and(|moment| now < moment && moment.duration_since(now) <= most)
}

fn after(now: Timestamp, pause: SignedDuration) -> Option<Timestamp> {
    now.checked_add(pause).ok()
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::HostUpdatePolicySpec;
    use rstest::rstest;

    use super::super::super::tests::start;
    use super::*;

    fn node(state: ProvisionState, inspected: Option<&str>) -> Node {
        Node { provision_state: state, inspection_finished_at: inspected.map(str::to_owned), ..Node::default() }
    }

    fn seen(settings: i64, components: i64) -> (Option<Seen>, Option<Seen>) {
        let one = |generation| Some(Seen { generation, pending: Some(false) });
        (one(settings), one(components))
    }

    fn unanswered() -> Known {
        Known { retry: after(start(), RETRY), next: None, ..known() }
    }

    fn known() -> Known {
        Known {
            judged: Generations { settings: 2, components: 1 },
            inspected: Some("1".to_owned()),
            next: after(start(), RESYNC),
            ..Known::default()
        }
    }

    /// State of the host, of its node with its inspection, what is known, generations, seconds from now.
    #[rstest]
    #[case::not_tried_yet(ProvisioningState::Registering, (ProvisionState::Verifying, None), None, (0, 0), 0, Due::Nothing)]
    #[case::new(ProvisioningState::Inspecting, (ProvisionState::InspectWait, None), None, (0, 0), 0, Due::Create)]
    #[case::made(ProvisioningState::Inspecting, (ProvisionState::InspectWait, None), Some(known()), (0, 0), 0, Due::Nothing)]
    #[case::inspected(ProvisioningState::Preparing, (ProvisionState::Manageable, Some("2")), Some(known()), (2, 1), 0, Due::Ask)]
    #[case::steady(ProvisioningState::Available, (ProvisionState::Available, Some("1")), Some(known()), (2, 1), 0, Due::Nothing)]
    #[case::settings(ProvisioningState::Available, (ProvisionState::Available, Some("1")), Some(known()), (3, 1), 0, Due::Ask)]
    #[case::updates(ProvisioningState::Available, (ProvisionState::Available, Some("1")), Some(known()), (2, 2), 0, Due::Ask)]
    #[case::an_old_copy(ProvisioningState::Available, (ProvisionState::Available, Some("1")), Some(known()), (1, 1), 0, Due::Nothing)]
    #[case::busy(ProvisioningState::Available, (ProvisionState::Cleaning, Some("1")), Some(known()), (3, 1), 0, Due::Nothing)]
    #[case::within_hours(ProvisioningState::Provisioned, (ProvisionState::Active, Some("1")), Some(known()), (2, 1), 21_599, Due::Nothing)]
    #[case::after_hours(ProvisioningState::Provisioned, (ProvisionState::Active, Some("1")), Some(known()), (2, 1), 21_600, Due::Ask)]
    #[case::no_answer(ProvisioningState::Available, (ProvisionState::Available, Some("1")), Some(unanswered()), (3, 1), 59, Due::Nothing)]
    #[case::again(ProvisioningState::Available, (ProvisionState::Available, Some("1")), Some(unanswered()), (2, 1), 60, Due::Ask)]
    #[case::set_back(ProvisioningState::Provisioned, (ProvisionState::Active, Some("1")), Some(known()), (2, 1), -86_400, Due::Ask)]
    #[case::restarted(ProvisioningState::Provisioned, (ProvisionState::Active, Some("1")), None, (2, 1), 0, Due::Ask)]
    fn ironic_is_asked_only_when_it_may_say_something_new(
        #[case] state: ProvisioningState,
        #[case] (provision_state, inspected): (ProvisionState, Option<&str>),
        #[case] known: Option<Known>,
        #[case] (settings, components): (i64, i64),
        #[case] seconds: i64,
        #[case] wanted: Due,
    ) {
        let now = start() + SignedDuration::from_secs(seconds);
        let node = node(provision_state, inspected);
        assert_eq!(due(state, &node, known.as_ref(), seen(settings, components), now), wanted);
    }

    #[test]
    fn settings_that_ironic_does_not_know_are_asked_for_again_soon() {
        let minutes = |has_settings| {
            let until = Known::holds_until(start(), 0.5, has_settings).expect("a time");
            until.duration_since(start()).as_mins()
        };
        assert_eq!((minutes(false), minutes(true)), (10, 360));
    }

    #[test]
    fn unknown_settings_are_read_where_some_are_asked_for_and_seldom_in_vain() {
        let mut known = known();
        let idle = |power: Option<&str>| Node {
            power_state: power.map(str::to_owned),
            ..node(ProvisionState::Available, Some("1"))
        };
        let later = |minutes| start() + SignedDuration::from_mins(minutes);
        assert!(known.may_read(2, &idle(Some("power on")), start()));
        assert!(!known.may_read(2, &idle(None), start()), "its power would be changed");
        let active = Node { provision_state: ProvisionState::Active, ..idle(Some("power on")) };
        assert!(!known.may_read(2, &active, start()));
        for (time, pause) in [(0, 2), (10, 4), (20, 8), (30, 16), (60, 32), (100, 64), (200, 64)] {
            assert!(known.may_read(2, &idle(Some("power off")), later(time)));
            known.reads(later(time));
            let next = Some(later(time + pause));
            assert_eq!((known.next, known.next_reading(2, later(time + pause - 1))), (next, next));
            assert!(!known.may_read(2, &idle(Some("power off")), later(time + pause - 1)));
            assert_eq!(known.next_reading(2, later(time + pause)), None, "a host in use is asked of at every look");
        }
        assert!(known.may_read(3, &idle(Some("power off")), later(200)), "other settings are asked for");
    }

    #[test]
    fn after_a_restart_the_objects_tell() {
        let active = node(ProvisionState::Active, Some("1"));
        let told =
            (Some(Seen { generation: 4, pending: Some(true) }), Some(Seen { generation: 1, pending: Some(false) }));
        let known = Known::recalled(ProvisioningState::Provisioned, &active, told, start(), 0.5).expect("known");
        assert_eq!((known.settings, known.updates, known.judged.settings), (true, false, 4));
        assert_eq!(known.next, after(start(), SignedDuration::from_hours(3)));
        assert_eq!(due(ProvisioningState::Provisioned, &active, Some(&known), told, start()), Due::Nothing);
        // What nobody has judged, and what was being worked on, is asked for.
        let unjudged = (told.0.map(|seen| Seen { pending: None, ..seen }), told.1);
        assert_eq!(Known::recalled(ProvisioningState::Provisioned, &active, unjudged, start(), 0.5), None);
        assert_eq!(Known::recalled(ProvisioningState::Preparing, &active, told, start(), 0.5), None);
    }

    #[test]
    fn a_host_in_use_is_changed_only_as_its_policy_says() {
        let policy = |settings, updates| {
            HostUpdatePolicy::new("a", HostUpdatePolicySpec { firmware_settings: settings, firmware_updates: updates })
        };
        let (reboot, preparing) = (Some(UpdatePolicy::OnReboot), Some(UpdatePolicy::OnPreparing));
        let both = Known { settings: true, updates: true, ..known() };
        let settings = Known { settings: true, ..known() };
        let table = [
            (&both, None, Wish::Prepare),
            (&both, Some(policy(None, None)), Wish::Prepare),
            (&both, Some(policy(preparing, preparing)), Wish::Prepare),
            (&both, Some(policy(preparing, reboot)), Wish::Service),
            (&settings, Some(policy(preparing, reboot)), Wish::Prepare),
            (&settings, Some(policy(reboot, None)), Wish::Service),
        ];
        for (known, policy, wanted) in table {
            let standing = known.standing(policy.as_ref(), seen(2, 1));
            assert_eq!(standing.wish, wanted, "{policy:?}");
        }
    }

    #[test]
    fn another_wish_after_a_failure_is_seen() {
        let failed = Known { failed: Some(Generations { settings: 2, components: 1 }), ..known() };
        assert!(!failed.standing(None, seen(2, 1)).changed);
        assert!(failed.standing(None, seen(3, 1)).changed);
        assert!(!known().standing(None, seen(3, 1)).changed);
    }
}
