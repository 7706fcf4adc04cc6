//! Keys of a terminal, without echo and one by one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use tokio::io::unix::AsyncFd;

/// An open terminal whose keys are read.
#[derive(Debug)]
pub struct Keyboard(AsyncFd<OwnedFd>);

impl Keyboard {
    /// Opens a terminal; what is typed from now on appears nowhere. Needs a tokio runtime.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(path, flags, Mode::empty())?;
        let mut modes = tcgetattr(&terminal)?;
        modes.local_modes &= !(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Now, &modes)?;
        Ok(Self(watch(terminal)?))
    }

    /// Waits for keys. 0 bytes: the terminal hung up.
    pub async fn read(&self, typed: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(read) = ready.try_io(|terminal| Ok(rustix::io::read(terminal.get_ref(), &mut *typed)?)) {
                return read;
            }
        }
    }
}

#[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
fn watch(terminal: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open as long as it lives, is always the same descriptor, and is moved into the
    // `AsyncFd`, which closes it last.
    Ok(unsafe { AsyncFd::register(terminal) }?)
}
