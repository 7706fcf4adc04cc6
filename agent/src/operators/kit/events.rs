//! Events of Kubernetes, for people.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event as Published, EventType, Recorder};

/// The API server takes 1,024 bytes of a note.
const MOST: usize = 1000;
/// To so many characters a longer note is cut: a character has at most four bytes.
const CUT: usize = 250;

/// Reason of an event. Each kind has an enum of its own.
pub trait Reason: Copy + Debug + PartialEq + Send + Sync + 'static {
    /// One word in CamelCase.
    fn word(self) -> &'static str;

    /// Whether something is wrong.
    fn is_warning(self) -> bool;
}

/// An event, before it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<R> {
    /// Why.
    pub reason: R,
    /// For people.
    pub message: String,
}

impl<R: Reason> Event<R> {
    /// An event.
    pub fn new(reason: R, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Publishes it. If that fails, the work goes on.
    pub async fn publish(&self, recorder: &Recorder, about: &ObjectReference) {
        let word = self.reason.word();
        let event = Published {
            type_: if self.reason.is_warning() { EventType::Warning } else { EventType::Normal },
            reason: word.to_owned(),
            note: Some(cut(&self.message)),
            action: word.to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, about).await {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (kind, namespace, name) = (text(&about.kind), text(&about.namespace), text(&about.name));
            log::warn!("event `{word}` of {kind} `{namespace}/{name}`: {error}");
        }
    }
}

/// The note, cut to what the API server accepts.
fn cut(message: &str) -> String {
    if message.len() > MOST { message.chars().take(CUT).collect::<String>() + "..." } else { message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_note_is_no_longer_than_the_api_server_takes() {
        assert_eq!(cut("short"), "short");
        assert!(cut(&"ü".repeat(600)).len() < 1024);
    }
}
