//! What failed how often in a row, and until when it rests; forgotten with the process, which then tries at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::objects::{Key, Object};

/// First pause after a failure; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(2);
/// Failures after which pauses get no longer: 2 s doubled so often is 8.5 min.
const MOST: u32 = 8;

/// Failures of a kind's objects.
#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<Key, Failure>>);

#[derive(Debug)]
struct Failure {
    count: u32,
    /// The object's, when it failed.
    generation: Option<i64>,
    until: Instant,
}

impl Failures {
    /// It failed: the pause until it is tried again.
    pub fn one_more(&self, object: &impl Object) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&object.key()).map_or(0, |failure| failure.count);
        let rest = pause(before);
        let generation = object.meta().generation;
        all.insert(object.key(), Failure { count: before + 1, generation, until: Instant::now() + rest });
        rest
    }

    /// What is left of the pause, also if something else starts a turn of the object. `None` if the object was changed
    /// since it failed: then it is tried at once.
    pub fn left(&self, object: &impl Object) -> Option<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = all.get(&object.key()).filter(|failure| failure.generation == object.meta().generation)?;
        Some(failure.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// It did not fail.
    pub fn none(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

fn pause(failures: u32) -> Duration {
    FIRST * 2_u32.pow(failures.min(MOST))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::super::objects::Object as _;
    use super::Failures;

    fn object(generation: i64) -> Secret {
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "b", "generation": generation}}))
            .expect("an object")
    }

    #[test]
    fn pauses_grow_up_to_minutes_and_begin_anew_after_a_success() {
        let failures = Failures::default();
        let pauses: Vec<u64> = (0..11).map(|_| failures.one_more(&object(1)).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]);
        failures.none(&object(1).key());
        assert_eq!(failures.one_more(&object(1)).as_secs(), 2);
    }

    #[test]
    fn what_failed_rests_until_its_user_changes_it() {
        let failures = Failures::default();
        assert_eq!(failures.left(&object(1)), None);
        let pause = failures.one_more(&object(1));
        assert!(failures.left(&object(1)).is_some_and(|left| left <= pause));
        assert_eq!(failures.left(&object(2)), None);
    }
}
