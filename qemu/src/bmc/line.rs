//! Serial lines of machines, for whoever is at the console.
//!
//! ```text
//! QEMU's serial port ─► Tap ─► listeners, from now on; who does not read loses it, as on a real line
//! ```

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::vm::type_into;

/// A serial line: what is written is typed at the machine, what is read is what it says.
pub trait SerialLine: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SerialLine for T {}

/// What a machine says, handed on to listeners. It outlives the machine's power-ons.
#[derive(Debug, Default)]
pub(super) struct Tap {
    listeners: Mutex<Vec<UnixStream>>,
}

impl Tap {
    /// Hands on what was said. Never waits: what does not fit is lost.
    pub fn say(&self, bytes: &[u8]) {
        self.lock().retain(|listener| type_into(listener, bytes).is_ok());
    }

    /// What is said from now on. The listener ends when its end of the pair is dropped.
    pub fn listen(&self) -> io::Result<tokio::net::UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        let theirs = tokio::net::UnixStream::from_std(theirs)?;
        self.lock().push(ours);
        Ok(theirs)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UnixStream>> {
        // A list of whole listeners, whoever panicked.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn who_listens_hears_what_is_said_from_then_on_and_who_leaves_is_forgotten() {
        let tap = Tap::default();
        tap.say(b"before");
        let mut heard = tap.listen().expect("a line");
        tap.say(b"login: ");
        let mut text = [0; 7];
        heard.read_exact(&mut text).await.expect("said");
        assert_eq!(&text, b"login: ");
        drop(heard);
        tap.say(b"nobody");
        assert!(tap.lock().is_empty());
    }

    #[tokio::test]
    async fn a_listener_that_does_not_read_holds_nobody_up() {
        let tap = Tap::default();
        let _silent = tap.listen().expect("a line");
        for _ in 0..100 {
            tap.say(&[b'x'; 16 << 10]);
        }
        assert_eq!(tap.lock().len(), 1);
    }
}
