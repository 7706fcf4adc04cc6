use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use super::{Guard, GuardStep, Now, Serving};
use crate::provisioning::segment::packet::Answer;
use crate::provisioning::segment::settings::{DhcpPolicy, Probing};
use agent_api::net::MacAddress;

const PROBING: Probing = Probing { every_secs: 30, wait_secs: 5, forget_secs: 300, admit_secs: 60 };

fn at(secs: u64) -> Now {
    let wall = Timestamp::from_second(1_800_000_000 + secs.cast_signed()).expect("a time");
    Now { run: Duration::from_secs(secs), wall }
}

fn mac(last: u8) -> MacAddress {
    MacAddress([0x52, 0x54, 0, 0, 0, last])
}

fn answer() -> Answer {
    let (server, offered) = ([192, 0, 2, 1].into(), Some([192, 0, 2, 77].into()));
    Answer { server, from: mac(200), to: mac(9), offered }
}

fn guard(policy: DhcpPolicy) -> Guard {
    Guard::new(policy, PROBING)
}

/// Ticks each second up to and with `to`; the seconds at which a probe was sent. It is never due again at once.
fn run(guard: &mut Guard, from: u64, to: u64) -> Vec<u64> {
    let probes = (from..=to).filter(|second| {
        let probes = guard.tick(at(*second)) == GuardStep::Probe;
        assert!(guard.due().is_none_or(|due| due > at(*second).run), "{guard:?}");
        probes
    });
    probes.collect()
}

#[test]
fn nothing_is_served_before_the_first_round_is_over() {
    let mut guard = guard(DhcpPolicy::Guard);
    assert_eq!(run(&mut guard, 0, 4), [0, 1]);
    assert_eq!(guard.decide().0, Serving::Nobody);
    run(&mut guard, 5, 5);
    assert_eq!(guard.decide().0, Serving::KnownAnd([].into()));
    assert_eq!(run(&mut guard, 6, 36), [35, 36], "the next round is regular");
}

#[test]
fn an_unknown_machine_is_let_in_after_a_round_of_its_own_and_not_for_ever() {
    let mut guard = guard(DhcpPolicy::Guard);
    run(&mut guard, 0, 10);
    guard.asked(at(11), mac(1), false);
    assert_eq!(guard.decide().0, Serving::KnownAnd([].into()));
    assert_eq!(run(&mut guard, 11, 16), [11, 12]);
    assert_eq!(guard.decide().0, Serving::KnownAnd([mac(1)].into()));
    assert_eq!(run(&mut guard, 17, 27), [21, 22], "rounds follow each other");
    run(&mut guard, 28, 76);
    assert_eq!(guard.decide().0, Serving::KnownAnd([].into()));
}

#[test]
fn who_asks_while_others_are_looked_at_waits_no_longer() {
    let mut guard = guard(DhcpPolicy::Guard);
    assert_eq!(run(&mut guard, 0, 37), [0, 1, 35, 36]);
    guard.asked(at(38), mac(1), false);
    assert_eq!(run(&mut guard, 38, 39), [38, 39]);
    guard.asked(at(40), mac(2), false);
    assert_eq!(run(&mut guard, 40, 42), [40, 41]);
    assert_eq!(guard.decide().0, Serving::KnownAnd([].into()));
    run(&mut guard, 43, 43);
    assert_eq!(guard.decide().0, Serving::KnownAnd([mac(1)].into()));
    run(&mut guard, 44, 45);
    assert_eq!(guard.decide().0, Serving::KnownAnd([mac(1), mac(2)].into()));
}

#[test]
fn a_crowd_that_asks_is_no_flood_of_probes_and_each_gets_its_look() {
    let mut guard = guard(DhcpPolicy::Guard);
    run(&mut guard, 0, 9);
    let probes: usize = (10_u8..30)
        .map(|second| {
            let now = at(u64::from(second));
            guard.asked(now, mac(second), false);
            (0..5).filter(|_| guard.tick(now) == GuardStep::Probe).count()
        })
        .sum();
    assert_eq!(probes, 20, "one each second");
    assert_eq!(guard.decide().0, Serving::KnownAnd((10..=24).map(mac).collect()));
}

#[test]
fn another_server_before_ours_leaves_only_known_machines() {
    let mut guard = guard(DhcpPolicy::Guard);
    run(&mut guard, 0, 3);
    guard.heard(at(3), &answer());
    guard.asked(at(4), mac(1), false);
    run(&mut guard, 4, 200);
    assert_eq!(guard.decide().0, Serving::Known);
    let other = guard.others().next().expect("the other");
    assert_eq!((other.server, other.mac), ([192, 0, 2, 1].into(), mac(200)));
}

#[test]
fn another_server_that_appears_takes_back_who_was_let_in_until_it_is_gone() {
    let mut guard = guard(DhcpPolicy::Guard);
    guard.asked(at(0), mac(1), false);
    run(&mut guard, 0, 5);
    assert_eq!(guard.decide().0, Serving::KnownAnd([mac(1)].into()));
    guard.heard(at(6), &answer());
    assert_eq!(guard.decide().0, Serving::Known);
    guard.asked(at(250), mac(1), false);
    run(&mut guard, 7, 305);
    assert_eq!(guard.decide().0, Serving::Known);
    run(&mut guard, 306, 320);
    assert_eq!(guard.decide().0, Serving::KnownAnd([mac(1)].into()), "it still waits");
}

#[test]
fn who_is_behind_a_relay_is_never_let_in() {
    let mut guard = guard(DhcpPolicy::Guard);
    guard.asked(at(0), mac(1), true);
    run(&mut guard, 0, 40);
    assert_eq!(guard.decide().0, Serving::KnownAnd([].into()));
}

#[test]
fn the_other_policies_do_what_they_say_and_off_sends_nothing() {
    for (policy, serving, probes) in [
        (DhcpPolicy::Known, Serving::Known, true),
        (DhcpPolicy::Always, Serving::Everyone, true),
        (DhcpPolicy::Off, Serving::Nobody, false),
    ] {
        let mut guard = guard(policy);
        guard.asked(at(0), mac(1), false);
        assert_eq!(!run(&mut guard, 0, 10).is_empty(), probes, "{policy:?}");
        guard.heard(at(11), &answer());
        assert_eq!(guard.decide().0, serving, "{policy:?}");
        assert_eq!(guard.others().count(), 1);
    }
}

#[derive(Clone, Debug)]
enum Happens {
    Asks(u8),
    Answers,
    Passes(u8),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0_u8..4).prop_map(Happens::Asks),
        proptest::strategy::Just(Happens::Answers),
        any::<u8>().prop_map(Happens::Passes)
    ]
}

proptest! {
    #[test]
    fn nobody_unknown_is_answered_while_another_server_was_heard(all in proptest::collection::vec(happens(), 1..80)) {
        let mut guard = guard(DhcpPolicy::Guard);
        let (mut now, mut heard) = (0, None);
        for one in all {
            match one {
                Happens::Asks(last) => guard.asked(at(now), mac(last), false),
                Happens::Answers => {
                    guard.heard(at(now), &answer());
                    heard = Some(now);
                }
                Happens::Passes(more) => {
                    for _ in 0..more {
                        now += 1;
                        guard.tick(at(now));
                    }
                }
            }
            if heard.is_some_and(|heard| now < heard + u64::from(PROBING.forget_secs)) {
                assert_eq!(guard.decide().0, Serving::Known);
            }
            if now < u64::from(PROBING.wait_secs) && heard.is_none() {
                assert_eq!(guard.decide().0, Serving::Nobody);
            }
        }
    }
}
