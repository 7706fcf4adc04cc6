//! Writing to a device that may be dead: a serial line with flow control and nobody there, a virtio port
//! whose host end is closed, a console that does not exist.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Writes whole messages without ever blocking. What the device does not take waits in a bounded buffer; a
/// message that does not fit any more is dropped as a whole and counted.
#[derive(Debug)]
pub struct LossyWriter {
    device: OwnedFd,
    pending: VecDeque<u8>,
    most: usize,
    dropped: u64,
}

impl LossyWriter {
    /// Opens a device for writing; `most` is how many bytes may wait.
    pub fn open(path: &Path, most: usize) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(Self::over(rustix::fs::open(path, flags, Mode::empty())?, most))
    }

    /// Takes an open file, which must be in non-blocking mode.
    pub fn over(device: OwnedFd, most: usize) -> Self {
        Self { device, pending: VecDeque::new(), most, dropped: 0 }
    }

    /// Hands over one message. Returns whether it was taken (written or waiting).
    pub fn write(&mut self, message: &[u8]) -> bool {
        self.flush();
        if self.pending.len() + message.len() > self.most {
            self.dropped += 1;
            return false;
        }
        self.pending.extend(message);
        self.flush();
        true
    }

    /// Writes what waits, as far as the device takes it now. Returns whether nothing waits any more.
    pub fn flush(&mut self) -> bool {
        while !self.pending.is_empty() {
            match rustix::io::write(&self.device, self.pending.as_slices().0) {
                Ok(0) => break,
                Ok(n) => drop(self.pending.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                // AGAIN: full. Any other error: the other end is gone, and may come back.
                Err(_) => break,
            }
        }
        self.pending.is_empty()
    }

    /// How many messages were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The open device, for its `ioctl`s.
    pub fn device(&self) -> &OwnedFd {
        &self.device
    }
}
