//! A domain's serial line, as libvirt gives it.
//!
//! The terminal that QEMU made is another container's, so it is not opened: `virsh console` brings it over libvirt's socket.
//! It wants a terminal of its own, whose other end is ours.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use foothold_qemu::bmc::SerialLine;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::process::Child;

use crate::host::terminal::{self, Ends};
use crate::vino_node::virsh::URI;

/// The line of a domain. The process ends with it. `--safe` leaves a line alone that somebody has already.
pub fn open(domain: &str) -> io::Result<Box<dyn SerialLine>> {
    let argv = ["virsh", "--quiet", "--connect", URI, "console", domain, "--safe"].map(str::to_owned);
    let Ends { ours, theirs } = terminal::pair()?;
    // Whatever can be waited for is read as a pipe is.
    let read = pipe::Receiver::from_owned_fd_unchecked(ours.try_clone()?)?;
    let write = pipe::Sender::from_owned_fd_unchecked(ours)?;
    let child = terminal::start(&argv, theirs)?;
    Ok(Box::new(Console { read, write, _child: child }))
}

struct Console {
    read: pipe::Receiver,
    write: pipe::Sender,
    _child: Child,
}

impl AsyncRead for Console {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, into)
    }
}

impl AsyncWrite for Console {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
