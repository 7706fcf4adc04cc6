//! Which objects of a kind changed, so that it is watched once for all controllers that want to know.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::{mpsc, watch};

use super::objects::{Key, Object};
use super::turns::Queue;

/// Changes of a kind's objects. The controller that watches them announces them here.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    listeners: Arc<Mutex<Vec<mpsc::UnboundedSender<Key>>>>,
    listed: Arc<watch::Sender<bool>>,
}

impl Changes {
    /// An object changed, or is gone.
    pub fn tell(&self, key: &Key) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.iter() {
            // A controller that has ended does not listen any more.
            let _ = listener.send(key.clone());
        }
    }

    fn listen(&self) -> mpsc::UnboundedReceiver<Key> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
        heard
    }

    /// All objects are known from now on.
    pub fn listed(&self) {
        self.listed.send_replace(true);
    }

    /// Waits until all objects are known. The store's own way to wait wakes only one of several waiters.
    pub async fn until_listed(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Objects of another kind that each change matters to.
    pub fn queue<K: Object>(&self, of: impl Fn(&Key) -> Vec<ObjectRef<K>> + Send + 'static) -> Queue<K> {
        let keys = stream::unfold(self.listen(), async |mut heard| Some((heard.recv().await?, heard)));
        Box::pin(keys.flat_map(move |key| stream::iter(of(&key).into_iter().map(Ok))))
    }
}

#[cfg(test)]
mod tests {
    use super::Changes;

    #[tokio::test]
    async fn all_who_wait_for_the_list_go_on() {
        let changes = Changes::default();
        let tell = async {
            tokio::task::yield_now().await;
            changes.listed();
        };
        tokio::join!(changes.until_listed(), changes.until_listed(), tell);
        changes.until_listed().await;
    }

    #[test]
    fn all_listeners_hear_of_a_change_and_an_ended_one_disturbs_nobody() {
        let changes = Changes::default();
        let (mut one, other) = (changes.listen(), changes.listen());
        drop(other);
        changes.tell(&("a".to_owned(), "b".to_owned()));
        assert_eq!(one.try_recv().expect("heard"), ("a".to_owned(), "b".to_owned()));
    }
}
