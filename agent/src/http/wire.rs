//! A connection as this server writes to it: a bare socket, which takes files from the kernel itself, or one with TLS.

use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fs_err::File;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, sendfile};
use rustix::io::ReadWriteFlags;
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::server::TlsStream;

/// A client that takes nothing for so long is gone.
const DEAD_PEER: Duration = Duration::from_secs(60);
/// Most bytes of one call, so that one client does not keep a thread for long.
const PIECE: usize = 2 << 20;
/// Bytes that are read at a time where sendfile cannot be used.
const TLS_PIECE: usize = 128 << 10;
/// A file of at most so many bytes goes out with its head, in one piece.
const SMALL: u64 = 32 << 10;
/// A file of at most so many bytes whose first and last byte are in the page cache is sent from this thread: waking
/// another one would cost more.
const MIDDLE: u64 = 256 << 10;

/// Both ends of a connection.
pub enum Wire {
    /// A bare socket.
    Plain(Arc<TcpStream>),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    /// Appends what arrives to `into`; 0 at the end.
    pub async fn read(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let start = into.len();
        into.resize(start + most, 0);
        let read = match self {
            Self::Plain(stream) => read_plain(stream, &mut into[start..]).await,
            Self::Tls(stream) => stream.read(&mut into[start..]).await,
        };
        into.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }

    /// Writes all of `bytes`.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => write_plain(stream, bytes, SendFlags::empty()).await,
            Self::Tls(stream) => {
                let write = async {
                    stream.write_all(bytes).await?;
                    stream.flush().await
                };
                in_time(write).await
            }
        }
    }

    /// Writes `head` and these bytes of the file.
    pub async fn send_file(
        &mut self,
        head: Vec<u8>,
        file: File,
        (start, length): (u64, u64),
        hops: &Arc<Semaphore>,
    ) -> io::Result<()> {
        if length <= SMALL {
            let both = read_behind(head, file, start, length).await?.0;
            return self.write_all(&both).await;
        }
        match self {
            Self::Plain(stream) => {
                write_plain(stream, &head, SendFlags::MORE).await?;
                splice(stream, file, start, length, hops).await
            }
            Self::Tls(stream) => {
                let (mut buffer, mut file) = (head, file);
                let (mut at, end) = (start, start + length);
                while at < end {
                    let piece = (end - at).min(TLS_PIECE as u64);
                    (buffer, file) = read_behind(buffer, file, at, piece).await?;
                    in_time(stream.write_all(&buffer)).await?;
                    buffer.clear();
                    at += piece;
                }
                in_time(stream.flush()).await
            }
        }
    }

    /// Ends the writing side, and says so to the client.
    pub async fn shut_down(&mut self) {
        match self {
            Self::Plain(stream) => drop(rustix::net::shutdown(&**stream, rustix::net::Shutdown::Write)),
            Self::Tls(stream) => drop(timeout(Duration::from_secs(2), stream.shutdown()).await),
        }
    }

    /// Hands the connection on; the new owner reads `read` first.
    pub fn rewind(self, read: Vec<u8>) -> Option<Rewound> {
        let inner = match self {
            Self::Plain(stream) => Inner::Plain(Arc::into_inner(stream)?),
            Self::Tls(stream) => Inner::Tls(stream),
        };
        Some(Rewound { read, at: 0, inner, waits: None })
    }
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(DEAD_PEER, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn read_plain(stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.try_read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.readable().await?,
            other => return other,
        }
    }
}

async fn write_plain(stream: &TcpStream, mut bytes: &[u8], flags: SendFlags) -> io::Result<()> {
    while !bytes.is_empty() {
        let write = || Ok(rustix::net::send(stream, bytes, flags | SendFlags::NOSIGNAL)?);
        match stream.try_io(Interest::WRITABLE, write) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => in_time(stream.writable()).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Calls sendfile(2) until all is sent. It may wait for the disk, so it runs on a blocking thread, a few at a time.
async fn splice(stream: &Arc<TcpStream>, file: File, start: u64, length: u64, hops: &Arc<Semaphore>) -> io::Result<()> {
    let (mut at, end) = (start, start + length);
    while length <= MIDDLE && at < end && is_in_memory(&file, at) && is_in_memory(&file, end - 1) {
        let most = usize::try_from(end - at).unwrap_or(PIECE);
        match stream.try_io(Interest::WRITABLE, || Ok(sendfile(&**stream, file.file(), Some(&mut at), most)?)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => in_time(stream.writable()).await?,
            Err(error) => return Err(error),
        }
    }
    let file = Arc::new(file);
    while at < end {
        in_time(stream.writable()).await?;
        let hop = hops.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (socket, from) = (Arc::clone(stream), Arc::clone(&file));
        let sent = spawn_blocking(move || {
            let piece = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
            let sent = socket.try_io(Interest::WRITABLE, || Ok(sendfile(&*socket, from.file(), Some(&mut at), piece)?));
            drop(hop);
            sent
        });
        match sent.await? {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => at += sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether that byte can be read without waiting for the disk.
fn is_in_memory(file: &File, at: u64) -> bool {
    let mut byte = [0];
    rustix::io::preadv2(file.file(), &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) == Ok(1)
}

/// Opens a file; waits for the disk on another thread, and only if it must.
pub async fn open(path: std::path::PathBuf) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    if let Ok(found) = openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::CACHED) {
        return Ok(File::from_parts(found.into(), path));
    }
    spawn_blocking(move || File::open(path)).await?
}

/// Appends bytes of a file to `buffer`; waits for the disk on another thread, and only if it must.
async fn read_behind(mut buffer: Vec<u8>, file: File, at: u64, length: u64) -> io::Result<(Vec<u8>, File)> {
    let start = buffer.len();
    let length = usize::try_from(length).map_err(io::Error::other)?;
    buffer.resize(start + length, 0);
    let mut slices = [IoSliceMut::new(&mut buffer[start..])];
    if rustix::io::preadv2(file.file(), &mut slices, at, ReadWriteFlags::NOWAIT) == Ok(length) {
        return Ok((buffer, file));
    }
    let read = spawn_blocking(move || {
        use std::os::unix::fs::FileExt;
        file.file().read_exact_at(&mut buffer[start..], at)?;
        Ok((buffer, file))
    });
    read.await?
}

/// A connection whose first bytes were read already. A client that takes nothing of its answer for `DEAD_PEER` is gone.
pub struct Rewound {
    read: Vec<u8>,
    at: usize,
    inner: Inner,
    /// Runs while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Rewound {
    /// Lets a write wait for so long and no longer.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.waits = None;
            return write;
        }
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(DEAD_PEER)));
        waits.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! inner {
    ($self:ident, $inner:ident => $call:expr) => {
        match &mut $self.get_mut().inner {
            Inner::Plain($inner) => $call,
            Inner::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = &self.read[self.at..];
        if !left.is_empty() {
            let taken = left.len().min(into.remaining());
            into.put_slice(&left[..taken]);
            self.at += taken;
            return Poll::Ready(Ok(()));
        }
        inner!(self, inner => Pin::new(inner).poll_read(cx, into))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.as_mut();
        let written = inner!(this, inner => Pin::new(inner).poll_write(cx, bytes));
        self.get_mut().bounded(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.as_mut();
        let flushed = inner!(this, inner => Pin::new(inner).poll_flush(cx));
        self.get_mut().bounded(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}
