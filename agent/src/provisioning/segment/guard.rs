//! Which machines DHCP may answer: a decision without I/O.
//!
//! ```text
//!            no other server heard ───► known machines, and each unknown one after a look of its own
//! round ──┬─►
//!         └─ another server answered ──► known machines only, until it was not heard for `forgetSecs`
//! ```
//! dnsmasq never answers an unknown machine by itself: it is let in by its MAC address, when probes that were sent after
//! it had asked were not answered for `waitSecs`, and only for `admitSecs`, in which rounds follow each other. So a server
//! that appears later keeps unknown machines for itself. A look begins when a machine asks, whatever else is going on:
//! iPXE gives up after its fourth question, 15 s after the first. Packets of relays are another matter: no probe reaches
//! their segment, so unknown machines behind them are never let in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::packet::Answer;
use super::settings::{DhcpPolicy, Probing, secs};
use agent_api::net::MacAddress;

/// Pause between two rounds while unknown machines are let in.
const PRESSING: Duration = Duration::from_secs(5);
/// Pause from one probe to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// Number of probes of a look: a packet may be lost.
const PROBES: u8 = 2;
/// The most unknown machines that are remembered. More are taken for an attack.
const REMEMBERED: usize = 4096;

/// Who is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Nobody: dnsmasq does not run.
    Nobody,
    /// Known machines.
    Known,
    /// Known machines, and these.
    KnownAnd(BTreeSet<MacAddress>),
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
    pub mac: MacAddress,
    /// Address that it offered last; none when it only tells what to boot.
    pub offered: Option<std::net::Ipv4Addr>,
    /// When it was heard first.
    pub first: Timestamp,
    /// When it was heard last.
    pub last: Timestamp,
}

/// The time, by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the guard began; never goes back.
    pub run: Duration,
    /// Time of day, for messages.
    pub wall: Timestamp,
}

/// What a tick wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardStep {
    /// Nothing.
    Wait,
    /// Send the probes.
    Probe,
}

/// A look for other servers: for everybody, regularly, or for a machine that asked.
#[derive(Debug, Default)]
struct Look {
    /// When its first probe was sent.
    began: Option<Duration>,
    /// Probes that were sent.
    sent: u8,
}

impl Look {
    const fn wants_a_probe(&self) -> bool {
        self.sent < PROBES
    }

    fn probed(&mut self, now: Duration) {
        if self.wants_a_probe() {
            self.began.get_or_insert(now);
            self.sent += 1;
        }
    }

    /// When every other server has had time to answer.
    fn over(&self, wait: Duration) -> Option<Duration> {
        self.began.map(|began| began + wait)
    }
}

/// A machine that asked.
#[derive(Debug)]
struct Asked {
    last: Duration,
    wall: Timestamp,
    look: Look,
}

/// What the guard knows.
#[derive(Debug)]
pub struct Guard {
    policy: DhcpPolicy,
    probing: Probing,
    others: BTreeMap<(std::net::Ipv4Addr, MacAddress), (Duration, Other)>,
    /// The regular look, while there is one.
    round: Option<Look>,
    /// When the last look was over.
    over: Option<Duration>,
    /// When the last probe was sent.
    probed: Option<Duration>,
    /// Unknown machines that wait for an answer.
    waiting: BTreeMap<MacAddress, Asked>,
    admitted: BTreeMap<MacAddress, Duration>,
}

impl Guard {
    /// A guard that has heard nothing yet.
    pub fn new(policy: DhcpPolicy, probing: Probing) -> Self {
        Self {
            policy,
            probing,
            others: BTreeMap::new(),
            round: None,
            over: None,
            probed: None,
            waiting: BTreeMap::new(),
            admitted: BTreeMap::new(),
        }
    }

    /// Another server answered this box or a machine.
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
        for asked in self.waiting.values_mut() {
            asked.look = Look::default();
        }
    }

    /// A machine that is not known asked; `relayed` from another segment.
    pub fn asked(&mut self, now: Now, mac: MacAddress, relayed: bool) {
        let may = self.policy == DhcpPolicy::Guard && !relayed && !self.admitted.contains_key(&mac);
        if may && (self.waiting.len() < REMEMBERED || self.waiting.contains_key(&mac)) {
            let fresh = Asked { last: now.run, wall: now.wall, look: Look::default() };
            let asked = self.waiting.entry(mac).or_insert(fresh);
            (asked.last, asked.wall) = (now.run, now.wall);
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Now) -> GuardStep {
        let forget = secs(self.probing.forget_secs);
        self.others.retain(|_, (heard, _)| now.run.saturating_sub(*heard) < forget);
        self.admitted.retain(|_, until| now.run < *until);
        self.waiting.retain(|_, asked| now.run.saturating_sub(asked.last) < forget);
        if self.policy == DhcpPolicy::Off {
            return GuardStep::Wait;
        }
        self.end_looks(now.run);
        if self.probe_at().is_some_and(|at| now.run < at) {
            return GuardStep::Wait;
        }
        self.probed = Some(now.run);
        if self.round_at().is_none_or(|at| now.run >= at) {
            self.round.get_or_insert_default();
        }
        let alone = self.others.is_empty();
        let of_machines = self.waiting.values_mut().filter(|_| alone).map(|asked| &mut asked.look);
        for look in of_machines.chain(&mut self.round) {
            look.probed(now.run);
        }
        GuardStep::Probe
    }

    /// Ends looks that nobody answered: machines that waited for theirs are let in.
    fn end_looks(&mut self, now: Duration) {
        let wait = secs(self.probing.wait_secs);
        let is_over = |look: &Look| look.over(wait).is_some_and(|over| now >= over);
        let mut ended = self.round.take_if(|round| is_over(round)).is_some();
        if self.others.is_empty() {
            let until = now + secs(self.probing.admit_secs);
            let theirs: Vec<MacAddress> =
                self.waiting.iter().filter(|(_, asked)| is_over(&asked.look)).map(|(mac, _)| *mac).collect();
            ended |= !theirs.is_empty();
            self.waiting.retain(|_, asked| !is_over(&asked.look));
            self.admitted.extend(theirs.into_iter().map(|mac| (mac, until)));
        }
        if ended {
            self.over = Some(now);
        }
    }

    /// When [`Guard::tick`] has something to do at the latest; `None` when it never has.
    pub fn due(&self) -> Option<Duration> {
        if self.policy == DhcpPolicy::Off {
            return None;
        }
        let wait = secs(self.probing.wait_secs);
        let ends = self.looks().filter_map(|look| look.over(wait));
        let ends = ends.chain(self.admitted.values().copied());
        Some(ends.fold(self.probe_at().unwrap_or_default(), Duration::min))
    }

    /// Looks that are under way. Machines wait for who was heard to be forgotten, not for a look.
    fn looks(&self) -> impl Iterator<Item = &Look> {
        let waiting = self.waiting.values().filter(|_| self.others.is_empty()).map(|asked| &asked.look);
        waiting.chain(&self.round)
    }

    /// When the next probe is sent. `None`: at once.
    fn probe_at(&self) -> Option<Duration> {
        let after_the_last = self.probed.map(|at| at + AGAIN);
        if self.looks().any(Look::wants_a_probe) {
            return after_the_last;
        }
        match (self.round_at(), after_the_last) {
            (Some(round), Some(after)) => Some(round.max(after)),
            (round, after) => round.or(after),
        }
    }

    /// When the next regular look begins, or when the one that is under way is over. `None`: at once.
    fn round_at(&self) -> Option<Duration> {
        if let Some(round) = &self.round {
            return round.over(secs(self.probing.wait_secs));
        }
        let pause = if self.admitted.is_empty() { secs(self.probing.every_secs) } else { PRESSING };
        self.over.map(|over| over + pause)
    }

    /// Who is answered now, and why.
    pub fn decide(&self) -> (Serving, String) {
        match self.policy {
            DhcpPolicy::Off => (Serving::Nobody, "policy `off`".into()),
            DhcpPolicy::Known => (Serving::Known, "policy `known`".into()),
            DhcpPolicy::Always => (Serving::Everyone, "policy `always`".into()),
            DhcpPolicy::Guard if !self.others.is_empty() => {
                (Serving::Known, "another DHCP server answers on this segment".into())
            }
            DhcpPolicy::Guard if self.over.is_none() => {
                (Serving::Nobody, "looking for other DHCP servers before the first offer".into())
            }
            DhcpPolicy::Guard => {
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
    pub fn waiting(&self) -> impl Iterator<Item = (MacAddress, Timestamp)> {
        self.waiting.iter().map(|(mac, asked)| (*mac, asked.wall))
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
