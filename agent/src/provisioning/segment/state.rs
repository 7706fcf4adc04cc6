//! What the guard found and does, for people and programs: a JSON file, sentences, an event of Kubernetes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use super::guard::{Guard, Other, Serving};
use super::known::Known;
use super::settings::DhcpPolicy;
use agent_api::net::MacAddress;

/// The file, in the state folder.
pub const STATE: &str = "state.json";

/// Which machines dnsmasq answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answers {
    /// Nobody: it does not run.
    Nobody,
    /// Known machines.
    Known,
    /// Known machines and unknown ones, each after a look for other servers.
    KnownAndAdmitted,
    /// Everybody.
    Everyone,
}

/// An unknown machine that gets no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Its MAC address.
    pub mac: MacAddress,
    /// When it asked last.
    pub asked: Timestamp,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardState {
    /// The interface.
    pub interface: String,
    /// What was asked for.
    pub policy: DhcpPolicy,
    /// Whom dnsmasq answers.
    pub answers: Answers,
    /// Why.
    pub why: String,
    /// Other servers on the segment.
    pub others: Vec<Other>,
    /// How many machines are known.
    pub known: usize,
    /// Unknown machines that are answered for the moment.
    pub admitted: Vec<MacAddress>,
    /// Unknown machines that asked and are not answered.
    pub waiting: Vec<Waiting>,
    /// Errors of single hosts. The other hosts are known all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What is wrong, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl GuardState {
    /// Describes the guard's state.
    pub fn of(interface: &str, policy: DhcpPolicy, guard: &Guard, known: &Known, problem: Option<String>) -> Self {
        let (serving, why) = guard.decide();
        let (answers, admitted) = match serving {
            Serving::Nobody => (Answers::Nobody, Vec::new()),
            Serving::Known => (Answers::Known, Vec::new()),
            Serving::KnownAnd(admitted) => (Answers::KnownAndAdmitted, admitted.into_iter().collect()),
            Serving::Everyone => (Answers::Everyone, Vec::new()),
        };
        let waiting = guard.waiting().map(|(mac, asked)| Waiting { mac, asked }).collect();
        let (others, interface) = (guard.others().cloned().collect(), interface.to_owned());
        let (known, hosts) = (known.machines.len(), known.problems.clone());
        Self { interface, policy, answers, why, others, known, admitted, waiting, hosts, problem }
    }

    /// The part of the state whose changes people must learn of. A server that is heard again is not a change.
    pub fn news(&self) -> String {
        let others: Vec<_> = self.others.iter().map(|other| (other.server, other.mac)).collect();
        format!("{:?} {} {:?} {:?} {others:?}", self.answers, self.why, self.hosts, self.problem)
    }

    /// One line for the console.
    pub fn sentence(&self) -> String {
        let answered = match self.answers {
            Answers::Nobody => "DHCP answers nobody".to_owned(),
            Answers::Known => format!("DHCP answers the {} known machines only", self.known),
            Answers::KnownAndAdmitted => {
                format!("DHCP answers {} known machines, and unknown ones", self.known)
            }
            Answers::Everyone => "DHCP answers everybody".to_owned(),
        };
        let mut text = format!("{answered} on {}: {}", self.interface, self.why);
        for other in &self.others {
            text.push_str("; ");
            text.push_str(&about(other));
        }
        for problem in self.hosts.iter().chain(&self.problem) {
            text.push_str("; ");
            text.push_str(problem);
        }
        text
    }

    /// Warnings for `kubectl get events`, one for each other server, about this node.
    pub fn events(&self, node: &str) -> Vec<Event> {
        self.others.iter().map(|other| self.event(other, node)).collect()
    }

    fn event(&self, other: &Other, node: &str) -> Event {
        // One object a server: seen again, it is the same event.
        let name = format!("{node}.dhcp-{}-{}", other.server, other.mac.to_string().replace(':', ""));
        let time = |stamp: Timestamp| Some(Time(stamp));
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some("default".into()), ..ObjectMeta::default() },
            involved_object: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
            type_: Some("Warning".into()),
            reason: Some("ForeignDHCPServer".into()),
            message: Some(format!("{} on {}; {}", about(other), self.interface, self.why)),
            first_timestamp: time(other.first),
            last_timestamp: time(other.last),
            reporting_component: Some("foothold-agent".into()),
            ..Event::default()
        }
    }
}

/// A sentence about another server: who it is, what it did and when.
fn about(other: &Other) -> String {
    let did = match other.offered {
        Some(address) => format!("offered {address}"),
        None => "answered without an address".to_owned(),
    };
    format!("DHCP server {} ({}) {did} at {}", other.server, other.mac, other.last.strftime("%Y-%m-%dT%H:%M:%SZ"))
}

#[cfg(test)]
mod tests {
    use super::{GuardState, Known, Timestamp};
    use crate::provisioning::segment::guard::{Guard, Now};
    use crate::provisioning::segment::packet::Answer;
    use crate::provisioning::segment::settings::{DhcpPolicy, Probing};
    use agent_api::net::MacAddress;

    #[test]
    fn who_is_heard_again_is_no_news() {
        let answer = |server: [u8; 4]| {
            let (from, to) = (MacAddress([2, 0, 0, 0, 0, 7]), MacAddress([2, 0, 0, 0, 0, 8]));
            Answer { server: server.into(), from, to, offered: None }
        };
        let mut guard = Guard::new(DhcpPolicy::Guard, Probing::default());
        let mut hear = |server: [u8; 4], seconds: i64| {
            let wall = Timestamp::from_second(1_800_000_000 + seconds).expect("a time");
            let run = std::time::Duration::from_secs(seconds.unsigned_abs());
            guard.heard(Now { run, wall }, &answer(server));
            GuardState::of("prov0", DhcpPolicy::Guard, &guard, &Known::default(), None)
        };
        let (first, again) = (hear([192, 0, 2, 1], 0), hear([192, 0, 2, 1], 30));
        assert_ne!(first.sentence(), again.sentence());
        assert_eq!(first.news(), again.news());
        assert_ne!(again.news(), hear([192, 0, 2, 2], 60).news());
    }

    #[test]
    fn who_the_other_is_is_told_everywhere() {
        let mut guard = Guard::new(DhcpPolicy::Guard, Probing::default());
        let wall = Timestamp::from_second(1_800_000_000).expect("a time");
        let (from, to) = (MacAddress([2, 0, 0, 0, 0, 7]), MacAddress([2, 0, 0, 0, 0, 8]));
        let answer = Answer { server: [192, 0, 2, 1].into(), from, to, offered: Some([192, 0, 2, 7].into()) };
        guard.heard(Now { run: std::time::Duration::ZERO, wall }, &answer);
        let mut known = Known::default();
        known.problems.push("host `a`: is odd".to_owned());
        let state = GuardState::of("prov0", DhcpPolicy::Guard, &guard, &known, None);
        insta::assert_snapshot!(state.sentence());
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&state).expect("JSON"));
        insta::assert_snapshot!("event", serde_json::to_string_pretty(&state.events("box")).expect("JSON"));
    }
}
