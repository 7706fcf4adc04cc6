//! How many hosts are inspected, provisioned and deprovisioned at a time: each has a slot, the others stand in a queue.
//!
//! Slots are handed out under one lock, whatever the number of workers, so that the limit holds exactly; a slot that
//! becomes free goes to the host that has waited longest, which is woken at once.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

use super::decide::Slot;
use crate::operators::kit::Key;

/// The slots.
#[derive(Debug)]
pub struct Slots {
    limit: usize,
    queue: Mutex<Queue>,
    wake: UnboundedSender<Key>,
}

#[derive(Debug, Default)]
struct Queue {
    held: HashSet<Key>,
    waiting: VecDeque<Key>,
}

impl Slots {
    /// `limit` slots. A host that gets one after waiting is sent to `wake`.
    pub fn new(limit: usize, wake: UnboundedSender<Key>) -> Self {
        Self { limit, queue: Mutex::default(), wake }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot that a host had before the controller was started: what runs goes on.
    pub fn keep(&self, key: &Key) {
        self.queue().held.insert(key.clone());
    }

    /// A slot for a host, or a place in the queue.
    pub fn ask(&self, key: &Key) -> Slot {
        let mut queue = self.queue();
        if queue.held.contains(key) {
            return Slot::Held;
        }
        if queue.held.len() < self.limit {
            queue.waiting.retain(|waiting| waiting != key);
            queue.held.insert(key.clone());
            return Slot::Free;
        }
        if !queue.waiting.contains(key) {
            queue.waiting.push_back(key.clone());
        }
        Slot::None
    }

    /// The host needs no slot, or none any more.
    pub fn release(&self, key: &Key) {
        let mut queue = self.queue();
        queue.waiting.retain(|waiting| waiting != key);
        if !queue.held.remove(key) {
            return;
        }
        while queue.held.len() < self.limit {
            let Some(next) = queue.waiting.pop_front() else { break };
            queue.held.insert(next.clone());
            // Nobody listens any more only when the controller ends.
            let _ = self.wake.send(next);
        }
    }

    /// Hosts that have one, hosts that wait for one.
    pub fn count(&self) -> (usize, usize) {
        let queue = self.queue();
        (queue.held.len(), queue.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::{Key, Slot, Slots};

    fn key(name: &str) -> Key {
        ("site".to_owned(), name.to_owned())
    }

    #[test]
    fn a_free_slot_goes_to_who_waited_longest() {
        let (wake, mut woken) = unbounded_channel();
        let slots = Slots::new(1, wake);
        assert_eq!(slots.ask(&key("a")), Slot::Free);
        assert_eq!(slots.ask(&key("a")), Slot::Held);
        for name in ["b", "c", "b"] {
            assert_eq!(slots.ask(&key(name)), Slot::None);
        }
        assert_eq!(slots.count(), (1, 2));
        slots.release(&key("a"));
        assert_eq!(woken.try_recv().ok(), Some(key("b")));
        assert_eq!((slots.ask(&key("b")), slots.ask(&key("a"))), (Slot::Held, Slot::None));
        // One that gave up waiting is not given a slot.
        slots.release(&key("c"));
        slots.release(&key("b"));
        assert_eq!(woken.try_recv().ok(), Some(key("a")));
    }

    #[test]
    fn what_ran_before_counts() {
        let (wake, _woken) = unbounded_channel();
        let slots = Slots::new(1, wake);
        slots.keep(&key("a"));
        slots.keep(&key("b"));
        assert_eq!((slots.ask(&key("a")), slots.ask(&key("c"))), (Slot::Held, Slot::None));
        slots.release(&key("a"));
        assert_eq!(slots.ask(&key("c")), Slot::None, "one over the limit, still");
        slots.release(&key("b"));
        assert_eq!(slots.ask(&key("c")), Slot::Held);
    }
}
