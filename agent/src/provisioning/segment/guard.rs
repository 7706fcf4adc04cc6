//! Who may be answered: a decision without I/O.
//!
//! ```text
//!            nobody heard in a round ──► known machines, and each unknown one that asked before the round began
//! round ──┬─►
//!         └─ another server answered ──► known machines only, until it was not heard for `forgetSecs`
//! ```
//! dnsmasq never answers an unknown machine by itself: it is let in by its MAC address, after a round of probes that
//! began when it had asked already, and only for `admitSecs`, in which rounds follow each other. So a server that
//! appears later keeps unknown machines for itself. Packets of relays are another matter: no probe reaches their
//! segment, so unknown machines behind them are never let in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::packet::Answer;
use super::settings::{Mac, Policy, Probing, secs};

/// Between two rounds while unknown machines are let in.
const PRESSING: Duration = Duration::from_secs(5);
/// The probes of a round are sent twice, for a packet may be lost.
const AGAIN: Duration = Duration::from_secs(1);
/// Unknown machines that are remembered. More are a flood.
const REMEMBERED: usize = 4096;

/// Who is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Nobody: dnsmasq does not run.
    Nobody,
    /// Known machines.
    Known,
    /// Known machines, and these.
    KnownAnd(BTreeSet<Mac>),
    /// Everybody.
    Everyone,
}

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Other {
    /// How it calls itself (option 54), or where its packet came from.
    pub server: std::net::Ipv4Addr,
    /// MAC address that its packets come from.
    pub mac: Mac,
    /// Address that it offered last; none when it only tells what to boot.
    pub offered: Option<std::net::Ipv4Addr>,
    /// When it was heard first.
    pub first: Timestamp,
    /// When it was heard last.
    pub last: Timestamp,
}

/// Now, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the guard began; never goes back.
    pub run: Duration,
    /// For people.
    pub wall: Timestamp,
}

/// What a tick wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Send the probes.
    Probe,
}

#[derive(Debug)]
struct Round {
    began: Duration,
    again: bool,
}

/// When a machine asked.
#[derive(Debug)]
struct Asked {
    first: Duration,
    last: Duration,
    wall: Timestamp,
}

/// What the guard knows.
#[derive(Debug)]
pub struct Guard {
    policy: Policy,
    probing: Probing,
    others: BTreeMap<(std::net::Ipv4Addr, Mac), (Duration, Other)>,
    round: Option<Round>,
    /// When the last round was over.
    over: Option<Duration>,
    /// Unknown machines that wait for an answer.
    waiting: BTreeMap<Mac, Asked>,
    admitted: BTreeMap<Mac, Duration>,
}

impl Guard {
    /// A guard that has heard nothing yet.
    pub fn new(policy: Policy, probing: Probing) -> Self {
        Self {
            policy,
            probing,
            others: BTreeMap::new(),
            round: None,
            over: None,
            waiting: BTreeMap::new(),
            admitted: BTreeMap::new(),
        }
    }

    /// Somebody else answered, us or a machine.
    pub fn heard(&mut self, now: Now, answer: &Answer) {
        let fresh =
            Other { server: answer.server, mac: answer.from, offered: answer.offered, first: now.wall, last: now.wall };
        if self.others.len() >= REMEMBERED && !self.others.contains_key(&(answer.server, answer.from)) {
            return;
        }
        let (run, other) = self.others.entry((answer.server, answer.from)).or_insert((now.run, fresh));
        (*run, other.last) = (now.run, now.wall);
        other.offered = answer.offered.or(other.offered);
        self.admitted.clear();
    }

    /// A machine that is not known asked; `relayed` from another segment.
    pub fn asked(&mut self, now: Now, mac: Mac, relayed: bool) {
        let may = self.policy == Policy::Guard && !relayed && !self.admitted.contains_key(&mac);
        if may && (self.waiting.len() < REMEMBERED || self.waiting.contains_key(&mac)) {
            let fresh = Asked { first: now.run, last: now.run, wall: now.wall };
            let asked = self.waiting.entry(mac).or_insert(fresh);
            (asked.last, asked.wall) = (now.run, now.wall);
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Now) -> Step {
        let forget = secs(self.probing.forget_secs);
        self.others.retain(|_, (heard, _)| now.run.saturating_sub(*heard) < forget);
        self.admitted.retain(|_, until| now.run < *until);
        self.waiting.retain(|_, asked| now.run.saturating_sub(asked.last) < forget);
        if self.policy == Policy::Off {
            return Step::Wait;
        }
        if let Some(round) = &mut self.round {
            if now.run >= round.began + secs(self.probing.wait_secs) {
                let began = round.began;
                self.round = None;
                self.over = Some(now.run);
                self.let_in(now, began);
            } else if !round.again && now.run >= round.began + AGAIN {
                round.again = true;
                return Step::Probe;
            }
            return Step::Wait;
        }
        if self.next_round().is_some_and(|at| now.run < at) {
            return Step::Wait;
        }
        self.round = Some(Round { began: now.run, again: false });
        Step::Probe
    }

    /// When [`Guard::tick`] has something to do at the latest.
    pub fn due(&self) -> Duration {
        let next = match &self.round {
            Some(round) if !round.again => round.began + AGAIN,
            Some(round) => round.began + secs(self.probing.wait_secs),
            None => self.next_round().unwrap_or_default(),
        };
        self.admitted.values().copied().fold(next, Duration::min)
    }

    /// `None`: at once.
    fn next_round(&self) -> Option<Duration> {
        let over = self.over?;
        if self.others.is_empty() && !self.waiting.is_empty() {
            return None;
        }
        let pause = if self.admitted.is_empty() { secs(self.probing.every_secs) } else { PRESSING };
        Some(over + pause)
    }

    /// A round is over: who waited when it began is let in, if nobody else was heard.
    fn let_in(&mut self, now: Now, began: Duration) {
        if self.others.is_empty() {
            let until = now.run + secs(self.probing.admit_secs);
            self.admitted.extend(self.waiting.iter().filter(|(_, it)| it.first <= began).map(|(mac, _)| (*mac, until)));
            self.waiting.retain(|_, asked| asked.first > began);
        }
    }

    /// Who is answered now, and why.
    pub fn decide(&self) -> (Serving, String) {
        match self.policy {
            Policy::Off => (Serving::Nobody, "policy `off`".into()),
            Policy::Known => (Serving::Known, "policy `known`".into()),
            Policy::Always => (Serving::Everyone, "policy `always`".into()),
            Policy::Guard if !self.others.is_empty() => {
                (Serving::Known, "another DHCP server answers on this segment".into())
            }
            Policy::Guard if self.over.is_none() => {
                (Serving::Nobody, "looking for other DHCP servers before the first offer".into())
            }
            Policy::Guard => {
                let admitted = self.admitted.keys().copied().collect();
                (Serving::KnownAnd(admitted), "no other DHCP server answers on this segment".into())
            }
        }
    }

    /// Other servers, heard not longer ago than `forgetSecs`.
    pub fn others(&self) -> impl Iterator<Item = &Other> {
        self.others.values().map(|(_, other)| other)
    }

    /// Unknown machines that asked and wait, with when they asked last.
    pub fn waiting(&self) -> impl Iterator<Item = (Mac, Timestamp)> {
        self.waiting.iter().map(|(mac, asked)| (*mac, asked.wall))
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
