//! PATCH: writes a body to the disk while it comes.
//!
//! The writer has a thread of its own, and ends properly whatever becomes of the request: when the connection is
//! cut, what came is made durable, and the next PATCH goes on there.

use std::sync::Arc;
use std::time::Duration;

use agent_api::bpa::Kind;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::access::Caller;
use super::answers::Answer;
use super::handlers::{App, UPLOAD_OFFSET, key_of};
use crate::uploads::{Record, UploadError, UploadKey, Writer};

/// A client that sends nothing for so long is gone: somebody else may go on.
const IDLE: Duration = Duration::from_secs(60);
/// Pieces between connection and disk; a piece has some 16 KiB.
const WAITING: usize = 16;
/// Bytes of a refused body that are read at most, so that the client sees the answer.
const UNWANTED: usize = 1024 * 1024;

pub(super) async fn upload(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((owner, cluster, kind, name)): Path<(String, String, String, String)>,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let begun = match key_of(&caller, &kind, &owner, &cluster, &name) {
        Ok(key) => begin(&app, key, &headers).await,
        Err(answer) => Err(answer),
    };
    let done = match begun {
        Ok(writer) => take_in(writer, &mut body).await,
        Err(answer) => {
            if !headers.contains_key(header::EXPECT) {
                read_unwanted(&mut body).await;
            }
            Err(answer)
        }
    };
    match done {
        Ok(record) => (StatusCode::NO_CONTENT, [(UPLOAD_OFFSET, HeaderValue::from(record.offset()))]).into_response(),
        Err(answer) => answer.compat(app.compat()).into_response(),
    }
}

/// The checks of the table in its order.
async fn begin(app: &App, key: UploadKey, headers: &HeaderMap) -> Result<Writer, Answer> {
    let record = app.uploads.get(&key).ok_or(UploadError::Missing)?;
    if record.digest.is_some() {
        return Err(UploadError::Complete.into());
    }
    let number = |name: HeaderName| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let offset = number(UPLOAD_OFFSET).ok_or(Answer::Bare(StatusCode::BAD_REQUEST))?;
    let Ok(offset) = u64::try_from(offset) else {
        let text = format!("Expected Offset {}, actual offset {offset}", record.offset());
        return Err(Answer::text(StatusCode::CONFLICT, text));
    };
    let length = number(header::CONTENT_LENGTH).and_then(|length| u64::try_from(length).ok());
    let uploads = app.uploads.clone();
    let begun = spawn_blocking(move || uploads.begin(&key, offset, length)).await;
    begun.map_err(|error| Answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?.map_err(Answer::from)
}

async fn take_in(writer: Writer, body: &mut Body) -> Result<Record, Answer> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let writing = spawn_blocking(move || write_all(writer, receiver));
    let whole = pump(body, sender).await;
    let record = ended(writing).await?;
    if let Err(why) = whole {
        let text = format!("{why}: {} of {} bytes are there", record.offset(), record.length);
        return Err(Answer::text(StatusCode::BAD_REQUEST, text));
    }
    Ok(record)
}

async fn ended(writing: JoinHandle<Result<Record, UploadError>>) -> Result<Record, Answer> {
    let ended = writing.await;
    ended.map_err(|error| Answer::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?.map_err(Answer::from)
}

fn write_all(mut writer: Writer, mut pieces: mpsc::Receiver<Bytes>) -> Result<Record, UploadError> {
    while let Some(piece) = pieces.blocking_recv() {
        writer.write(&piece)?;
    }
    writer.end()
}

/// Hands the body on, piece by piece, until it ends, the connection is cut, or the writer fails.
async fn pump(body: &mut Body, to: mpsc::Sender<Bytes>) -> Result<(), &'static str> {
    loop {
        match timeout(IDLE, next_piece(body)).await {
            Err(_) => return Err("no byte came for a minute"),
            Ok(None) => return Ok(()),
            Ok(Some(Err(_))) => return Err("the connection was cut"),
            Ok(Some(Ok(piece))) => {
                if to.send(piece).await.is_err() {
                    // The writer failed: it says why itself.
                    return Ok(());
                }
            }
        }
    }
}

async fn next_piece(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Reads a part of a refused body: a client that still sends might not look at the answer.
async fn read_unwanted(body: &mut Body) {
    let mut read = 0;
    while let Ok(Some(Ok(piece))) = timeout(Duration::from_secs(1), next_piece(body)).await {
        read += piece.len();
        if read > UNWANTED {
            return;
        }
    }
}

/// The type of a path.
pub(super) fn kind_of(text: &str) -> Result<Kind, Answer> {
    text.parse()
        .map_err(|()| Answer::text(StatusCode::NOT_FOUND, "expected binary_images, container_images or os_images"))
}
