//! BMCs, asked in their own right while something waits for them: Ironic says nothing of a BMC before it gives up, and
//! then only what it was about to do.
//!
//! ```text
//! turn ─ wish: this host's BMC ─► run: asked again each EVERY, many at a time ─► known ─► conditions, errors
//!                                                                                  └► the host is woken when it differs
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_api::metal3::bmc_address::Credentials;
use agent_api::metal3::{BareMetalHost, ProvisioningState};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::outcome::Action;
use crate::bmc::rehearsal::{Target, Trouble, pulse};
use crate::bmc::trust::Trust;
use crate::ironic::Node;
use crate::operators::kit::Key;

/// For one answer of a BMC.
const PATIENCE: Duration = Duration::from_secs(5);
/// BMCs that are asked at a time.
const AT_ONCE: usize = 16;
/// What was wrong so long before something failed may be why.
const NEAR: Duration = Duration::from_secs(300);

/// What a BMC answered.
type Verdict = Result<(), Trouble>;

/// What is known of a host's BMC.
#[derive(Default)]
struct Known {
    /// It is being asked.
    under_way: bool,
    asked: Option<Instant>,
    /// The last answer that said anything.
    verdict: Option<Verdict>,
    /// The last trouble, and when it was seen last.
    trouble: Option<(Trouble, Instant)>,
}

/// All of them.
pub struct Pulses {
    every: Option<Duration>,
    known: Mutex<HashMap<Key, Known>>,
    wishes: mpsc::UnboundedSender<(Key, Target)>,
    wished: Mutex<Option<mpsc::UnboundedReceiver<(Key, Target)>>>,
}

impl Default for Pulses {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Pulses {
    /// Asked again so often; none is asked without.
    pub fn new(every: Option<Duration>) -> Self {
        let (wishes, asked_for) = mpsc::unbounded_channel();
        Self { every, known: Mutex::default(), wishes, wished: Mutex::new(Some(asked_for)) }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks what is wished until it is dropped. A host whose BMC answers otherwise than before is sent to `wake`.
    pub async fn run(&self, wake: &mpsc::UnboundedSender<Key>) {
        let wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It runs once.
        let Some(mut wished) = wished else { return };
        let seats = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        loop {
            tokio::select! {
                Some((key, target)) = wished.recv() => {
                    let seats = Arc::clone(&seats);
                    asking.spawn(async move {
                        // It is never closed.
                        let _seat = seats.acquire_owned().await;
                        (key, pulse(&target, PATIENCE).await)
                    });
                }
                Some(Ok((key, verdict))) = asking.join_next() => {
                    if self.learn(&key, verdict, Instant::now()) {
                        // Nobody is left to wake when the controller ends.
                        let _ = wake.send(key);
                    }
                }
                else => return,
            }
        }
    }

    /// Whether that is other news than before.
    fn learn(&self, key: &Key, verdict: Option<Verdict>, now: Instant) -> bool {
        let mut all = self.known();
        // The host is gone, or nothing waits for its BMC any more.
        let Some(known) = all.get_mut(key) else { return false };
        (known.under_way, known.asked) = (false, Some(now));
        let Some(verdict) = verdict else { return false };
        if let Err(trouble) = &verdict {
            known.trouble = Some((trouble.clone(), now));
        }
        let news = known.verdict.as_ref() != Some(&verdict) && (known.verdict.is_some() || verdict.is_err());
        known.verdict = Some(verdict);
        news
    }

    /// Whether a host's BMC is to be asked now, since something waits for it. It counts as being asked then.
    pub fn is_due(&self, key: &Key, now: Instant) -> bool {
        let Some(every) = self.every else { return false };
        let mut all = self.known();
        let known = all.entry(key.clone()).or_default();
        let due = !known.under_way && known.asked.is_none_or(|asked| now.duration_since(asked) >= every);
        known.under_way |= due;
        due
    }

    /// Has a host's BMC asked.
    pub fn wish(&self, key: &Key, target: Target) {
        // Nobody asks when the controller ends.
        let _ = self.wishes.send((key.clone(), target));
    }

    /// Nothing waits for a host's BMC any more: what is known of it grows old. What was wrong may be why something failed.
    pub fn rest(&self, key: &Key) {
        if let Some(known) = self.known().get_mut(key) {
            (known.verdict, known.asked) = (None, None);
        }
    }

    /// A host is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    /// What its BMC answered last, while something waits for it.
    pub fn verdict(&self, key: &Key) -> Option<Verdict> {
        self.known().get(key)?.verdict.clone()
    }

    /// What a BMC has against these credentials, if it has anything. One that does not answer has nothing.
    pub async fn refusal(&self, target: &Target) -> Option<String> {
        self.every?;
        let refused = pulse(target, PATIENCE).await?.err().filter(Trouble::is_refusal);
        refused.map(|trouble| trouble.to_string())
    }

    /// What something that failed now may come of: what its BMC answers now, or what was wrong with it shortly before.
    /// `target`: none where it is not known whom to ask.
    pub async fn cause(&self, key: &Key, target: Option<&Target>) -> Option<String> {
        self.every?;
        let asked = match target {
            Some(target) => pulse(target, PATIENCE).await,
            None => None,
        };
        let now = Instant::now();
        if let Some(Err(trouble)) = &asked {
            return Some(trouble.to_string());
        }
        let before = self.known().get(key).and_then(|known| known.trouble.clone());
        let (trouble, seen) = before.filter(|(_, seen)| now.duration_since(*seen) <= NEAR)?;
        Some(format!("{} s before, {trouble}", now.duration_since(seen).as_secs()))
    }
}

/// Whether Ironic waits for the BMC of this node, or may any time.
pub fn is_waited_for(node: &Node) -> bool {
    node.provision_state.is_busy() || node.target_power_state.is_some()
}

/// Whether what an action does goes by the BMC.
pub fn goes_by_bmc(action: &Action) -> bool {
    !matches!(
        action,
        Action::RestoreStatus
            | Action::SaveHardwareDetails
            | Action::AddFinalizer
            | Action::RemoveAnnotation(_)
            | Action::Adopt
            | Action::Detach
            | Action::Forget
    )
}

/// Whom to ask about a host. `authority`: `ca.crt` of its Secret.
pub fn target(host: &BareMetalHost, credentials: &Credentials, authority: Option<&str>) -> Option<Target> {
    let bmc = host.spec.bmc.as_ref().filter(|_| host.state() != ProvisioningState::Unmanaged)?;
    let unverified = bmc.disable_certificate_verification == Some(true);
    let trust = Trust::of_host(unverified, authority, Trust::System).ok()?;
    Some(Target { address: bmc.address.clone(), credentials: credentials.clone(), trust })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        ("site".to_owned(), "a".to_owned())
    }

    fn trouble(says: &str) -> Trouble {
        Trouble { word: "BMCAway", says: says.to_owned(), hint: "look".to_owned() }
    }

    #[test]
    fn a_bmc_is_asked_once_at_a_time_and_so_often_while_it_is_waited_for() {
        let (pulses, start) = (Pulses::new(Some(Duration::from_secs(20))), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        assert!(pulses.is_due(&key(), at(0)) && !pulses.is_due(&key(), at(30)), "it is being asked");
        pulses.learn(&key(), Some(Ok(())), at(31));
        assert!(!pulses.is_due(&key(), at(50)) && pulses.is_due(&key(), at(51)));
        pulses.rest(&key());
        assert_eq!(pulses.verdict(&key()), None, "nobody waits for it");
        pulses.forget(&key());
        assert!(!pulses.learn(&key(), Some(Ok(())), at(60)), "the host is gone");
        assert!(!Pulses::default().is_due(&key(), at(0)), "none is asked");
    }

    #[test]
    fn only_what_differs_is_news() {
        let (pulses, now) = (Pulses::new(Some(Duration::ZERO)), Instant::now());
        assert!(pulses.is_due(&key(), now));
        for (verdict, news) in [
            (Some(Ok(())), false),
            (Some(Err(trouble("a"))), true),
            (Some(Err(trouble("a"))), false),
            (None, false),
            (Some(Err(trouble("b"))), true),
            (Some(Ok(())), true),
        ] {
            assert_eq!(pulses.learn(&key(), verdict.clone(), now), news, "{verdict:?}");
        }
    }

    /// Of a BMC that says nothing nobody knows what it has against anybody.
    #[tokio::test]
    async fn new_credentials_are_refused_by_a_bmc_that_answers() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let target = |address: String| Target {
            address: format!("redfish+http://{address}/redfish/v1/Systems/1"),
            credentials: Credentials { username: "admin".to_owned(), password: "old".to_owned() },
            trust: Trust::System,
        };
        let mut server = JoinSet::new();
        let refusing = axum::Router::new().fallback(|| async { axum::http::StatusCode::UNAUTHORIZED });
        server.spawn(async move { axum::serve(listener, refusing).await.expect("served") });
        let pulses = Pulses::new(Some(Duration::ZERO));
        let said = pulses.refusal(&target(address.to_string())).await.expect("it refuses");
        assert!(said.starts_with("its BMC does not let anybody in: "), "{said}");
        assert_eq!(pulses.refusal(&target("127.0.0.1:9".to_owned())).await, None);
        assert_eq!(Pulses::default().refusal(&target(address.to_string())).await, None, "none is asked");
    }

    #[tokio::test]
    async fn what_failed_is_told_with_what_was_wrong_shortly_before() {
        let (pulses, now) = (Pulses::new(Some(Duration::ZERO)), Instant::now());
        assert!(pulses.is_due(&key(), now));
        assert_eq!(pulses.cause(&key(), None).await, None);
        pulses.learn(&key(), Some(Err(trouble("no answer within 5 s"))), now);
        pulses.learn(&key(), Some(Ok(())), now);
        let cause = pulses.cause(&key(), None).await.expect("a cause");
        assert!(cause.ends_with("before, its BMC does not answer: no answer within 5 s; hint: look"), "{cause}");
        assert_eq!(Pulses::default().cause(&key(), None).await, None);
    }
}
