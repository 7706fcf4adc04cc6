//! `GET /api/v1/events`: what happened in this boot, and what happens, as JSON Lines or server-sent events.

use std::sync::Arc;
use std::time::Duration;

use agent_api::events::Event;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::time::timeout;

use super::routes::{App, bad_query};
use crate::door::{Refusal, body};

/// After so long without an event a sign of life is sent, so that no proxy cuts the stream.
const STREAM_SIGN: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    follow: bool,
}

pub(super) async fn events(
    State(app): State<Arc<App>>,
    query: Result<Query<Stream>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|rejection| bad_query(&rejection, "?since=N&follow=true"))?;
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let form = if text(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/event-stream")) {
        Form::ServerSent
    } else {
        Form::Lines
    };
    // A browser that lost its stream says which event it had last.
    let last = text(HeaderName::from_static("last-event-id")).and_then(|id| id.parse::<u64>().ok());
    let since = last.map_or(query.since, |last| last.saturating_add(1));
    let follow = query.follow || form == Form::ServerSent;
    let (first, _) = app.options.bus.since(since);
    let kind = match form {
        Form::Lines => "application/jsonl",
        Form::ServerSent => "text/event-stream",
    };
    let body = if follow { follow_events(&app, since, form) } else { past_events(&app, since, form) };
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(HeaderName::from_static("x-foothold-first"), HeaderValue::from(first));
    Ok(response)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// JSON Lines.
    Lines,
    /// `text/event-stream`, the number of the event as its id.
    ServerSent,
}

impl Form {
    fn write(self, number: u64, event: &Event, into: &mut Vec<u8>) {
        let json = serde_json::to_string(event).unwrap_or_default();
        let text = match self {
            Self::Lines => json + "\n",
            Self::ServerSent => format!("id: {number}\ndata: {json}\n\n"),
        };
        into.extend_from_slice(text.as_bytes());
    }

    const fn sign_of_life(self) -> &'static [u8] {
        match self {
            // An empty line is no event, and readers of JSON Lines pass over it.
            Self::Lines => b"\n",
            Self::ServerSent => b": still here\n\n",
        }
    }
}

fn past_events(app: &App, since: u64, form: Form) -> Body {
    let (first, events) = app.options.bus.since(since);
    let mut text = Vec::new();
    for (number, event) in (first..).zip(&events) {
        form.write(number, event, &mut text);
    }
    Body::from(text)
}

/// A stream without gaps: a change of the status wakes it, and what is new comes from the history.
fn follow_events(app: &App, since: u64, form: Form) -> Body {
    let (sender, body) = body::channel();
    let bus = app.options.bus.clone();
    let feed = async move {
        let mut news = bus.status();
        let mut next = since;
        loop {
            news.mark_unchanged();
            let (first, events) = bus.since(next);
            let mut text = Vec::new();
            for (number, event) in (first..).zip(&events) {
                form.write(number, event, &mut text);
            }
            next = first + events.len() as u64;
            if text.is_empty() && timeout(STREAM_SIGN, news.changed()).await.is_err() {
                text = form.sign_of_life().to_vec();
            }
            if !text.is_empty() && sender.send(Bytes::from(text)).await.is_err() {
                return;
            }
            if sender.is_closed() {
                return;
            }
        }
    };
    Body::new(body::Fed::new(body, feed))
}
