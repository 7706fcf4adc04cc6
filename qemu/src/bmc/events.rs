//! Events to those who subscribed: DSP0266, "Eventing"; messages of the `ResourceEvent` registry (DSP2065).

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::state::Subscription;

/// One delivery, of the three that `DeliveryRetryAttempts` promises.
const DELIVER_WITHIN: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_secs(1);

/// An event on its way to a subscriber.
#[derive(Debug)]
pub(super) struct Letter {
    pub to: Subscription,
    pub event: Value,
}

/// A resource has changed.
pub(super) fn changed(path: &str, what: &str) -> Value {
    json!({
        "EventType": "Alert",
        "Severity": "OK",
        "MessageId": "ResourceEvent.1.0.ResourceChanged",
        "Message": what,
        "OriginOfCondition": { "@odata.id": path },
    })
}

/// What `SubmitTestEvent` asks for; properties that it does not give are ours.
pub(super) fn test(asked: &Map<String, Value>) -> Value {
    let mut event = json!({
        "EventType": "Alert",
        "Severity": "OK",
        "MessageId": "ResourceEvent.1.0.TestMessage",
        "Message": "This is a test event.",
    });
    for name in ["EventId", "EventType", "Severity", "MessageId", "Message", "MessageArgs"] {
        if let Some(value) = asked.get(name) {
            event[name] = value.clone();
        }
    }
    event
}

/// The body that a subscriber gets.
pub(super) fn envelope(id: u64, mut event: Value, context: &str, now: Timestamp) -> Value {
    if event.get("EventId").is_none() {
        event["EventId"] = json!(id.to_string());
    }
    event["MemberId"] = json!("0");
    event["EventTimestamp"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    json!({
        "@odata.type": "#Event.v1_5_0.Event",
        "Id": id.to_string(),
        "Name": "Event",
        "Context": context,
        "Events": [event],
    })
}

/// Brings letters to their subscribers, until nobody writes any more. One that cannot be brought is dropped.
pub(super) async fn deliver(mut letters: mpsc::UnboundedReceiver<Letter>, client: reqwest::Client) {
    while let Some(letter) = letters.recv().await {
        for attempt in 1..=ATTEMPTS {
            let mut post = client.post(&letter.to.destination).timeout(DELIVER_WITHIN).json(&letter.event);
            for (name, value) in &letter.to.headers {
                post = post.header(name, value);
            }
            match post.send().await.and_then(reqwest::Response::error_for_status) {
                Ok(_) => break,
                Err(error) if attempt == ATTEMPTS => log::debug!("an event was not delivered: {error}"),
                Err(_) => tokio::time::sleep(BETWEEN).await,
            }
        }
    }
}
