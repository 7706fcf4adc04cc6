//! Response bodies that are produced while they are sent.

use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

use crate::listen::Busy;

/// Pieces that may wait for a slow client.
const WAITING: usize = 4;

/// A body, and the sender that fills it. When the client goes away, sending fails.
pub(crate) fn channel() -> (mpsc::Sender<Bytes>, Body) {
    let (sender, channel) = pieces();
    (sender, Body::new(channel))
}

/// [`channel`] for a client's request.
pub(crate) fn pieces() -> (mpsc::Sender<Bytes>, Channel) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (sender, Channel(receiver))
}

/// The body: what the sender was given.
pub(crate) struct Channel(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Writes into a body from a blocking thread.
pub(crate) struct BlockingWriter(pub mpsc::Sender<Bytes>);

impl Write for BlockingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.0.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body that also drives the future that fills it: when the client goes away, both are dropped.
pub(crate) struct Fed {
    body: Body,
    feed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Fed {
    pub(crate) fn new(body: Body, feed: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { body, feed: Some(Box::pin(feed)) }
    }
}

impl hyper::body::Body for Fed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Poll::Ready(piece) = Pin::new(&mut self.body).poll_frame(cx) {
                return Poll::Ready(piece);
            }
            // Once the feed ended, its sender is gone and the body ends too.
            let Some(feed) = &mut self.feed else { return Poll::Pending };
            if feed.as_mut().poll(cx).is_ready() {
                self.feed = None;
            } else {
                return Pin::new(&mut self.body).poll_frame(cx);
            }
        }
    }
}

/// A body of an answer whose connection is busy with it.
pub(crate) struct Served {
    body: Body,
    _busy: Busy,
}

impl Served {
    pub(crate) fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl hyper::body::Body for Served {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
