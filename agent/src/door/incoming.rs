//! Request bodies as a stream: a blocking thread reads what the client sends, as fast as the thread can use it.
//!
//! ```text
//! client ─▶ Body ─▶ a few pieces ─▶ Incoming (Read) ─▶ the thread's work
//! ```
//! A body that is cut off is a read error, never an end of file.

use std::io::{self, Read};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

/// Pieces that may wait for the thread.
const WAITING: usize = 4;
/// A client that sends nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// For so long the rest of a refused body is read: see [`drain`].
const PATIENCE: Duration = Duration::from_secs(10);

/// What came next.
enum Piece {
    Bytes(Bytes),
    End,
    Broken(io::Error),
}

/// A body as a blocking stream.
pub(crate) struct Incoming {
    pieces: mpsc::Receiver<Piece>,
    now: Bytes,
    ended: bool,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.now.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.now = bytes,
                Some(Piece::End) => self.ended = true,
                Some(Piece::Broken(error)) => return Err(error),
                // The connection is gone, and the handler with it.
                None => return Err(cut("the connection was cut".to_owned())),
            }
        }
        let count = self.now.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.now.split_to(count));
        Ok(count)
    }
}

fn cut(cause: String) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, cause)
}

/// Runs `work` on a thread of its own with the body as a stream.
pub(crate) async fn with_body<T: Send + 'static>(
    body: Body,
    work: impl FnOnce(Incoming) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let (sender, pieces) = mpsc::channel(WAITING);
    let work = spawn_blocking(move || work(Incoming { pieces, now: Bytes::new(), ended: false }));
    feed(body, &sender).await;
    drop(sender);
    work.await
}

/// Reads the rest for a while and drops it: a client that is still sending does not see its answer.
async fn drain(mut body: Body) {
    let rest = async {
        while let Some(Ok(_)) = std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await
        {
        }
    };
    let _ = timeout(PATIENCE, rest).await;
}

/// Hands each piece to the thread, until the body ends or the thread does.
async fn feed(mut body: Body, sender: &mpsc::Sender<Piece>) {
    loop {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
        let piece = match timeout(SILENCE, frame).await {
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) if !bytes.is_empty() => Piece::Bytes(bytes),
                _ => continue,
            },
            Ok(Some(Err(error))) => Piece::Broken(cut(error.to_string())),
            Ok(None) => Piece::End,
            Err(_) => Piece::Broken(cut(format!("nothing came for {} s", SILENCE.as_secs()))),
        };
        let last = !matches!(piece, Piece::Bytes(_));
        if last {
            let _ = sender.send(piece).await;
            return;
        }
        if sender.send(piece).await.is_err() {
            return drain(body).await;
        }
    }
}
