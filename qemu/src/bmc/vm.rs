//! Power of a virtual machine of this crate.
//!
//! ```text
//! On(boot) ─► VmBuilder: firmware by mode, medium, what is tried first ─► QEMU
//!             once: Vm::boot_next_from(the normal order), which counts from the system's next own reset on
//! ```
//! A machine that switches itself off ends QEMU: it is off. A reset ends QEMU in good order and starts another one.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWrite, join};

use super::line::{SerialLine, Tap};
use super::power::{Act, Boot, BootFrom, Mode, Power, PowerError};
use crate::argv::BootSource;
use crate::builder::{Serial, VmBuilder};
use crate::firmware::Firmware;
use crate::vm::{Vm, VmError};

/// A machine that QEMU runs, for as long as it is on.
///
/// Its disks are as their [`Writes`](crate::Writes) say: with `Discard` a disk is new at each power-on.
pub struct VmPower {
    builder: VmBuilder,
    /// How long a system has for shutting down.
    patience: Duration,
    held: Arc<Mutex<Held>>,
    tap: Arc<Tap>,
}

#[derive(Debug, Default)]
struct Held {
    vm: Option<Vm>,
    image: Option<PathBuf>,
}

impl VmPower {
    /// A machine that is off. `builder`: all of it but firmware, CD drive and boot order, which are the BMC's.
    /// `patience`: how long its system has for shutting down when it is asked to.
    pub fn new(builder: VmBuilder, patience: Duration) -> Self {
        let tap = Arc::new(Tap::default());
        let told = Arc::clone(&tap);
        let builder = match builder.serial_port().clone() {
            Serial::Recorded => builder.serial(Serial::Mirrored(Arc::new(move |bytes| told.say(bytes)))),
            Serial::Mirrored(mirror) => builder.serial(Serial::Mirrored(Arc::new(move |bytes| {
                told.say(bytes);
                mirror(bytes);
            }))),
            Serial::Stuck | Serial::Absent => builder,
        };
        Self { builder, patience, held: Arc::default(), tap }
    }

    /// Looks at the machine, if it is on.
    pub fn with_vm<T>(&self, look: impl FnOnce(&Vm) -> T) -> Option<T> {
        self.lock().vm.as_ref().filter(|vm| vm.exited().is_none()).map(look)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // What is held is whole whoever panicked: a machine, or none.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Presses the power button and waits, without keeping others from looking. A system that does not care stays on.
    fn shut_down(&self) -> Result<(), PowerError> {
        let pressed = self.with_vm(|vm| vm.qmp("system_powerdown", None).map(|_| vm.events()));
        let Some(pressed) = pressed else { return Ok(()) };
        let mut events = pressed.map_err(|error| failed("pressing the power button", error))?;
        let until = Instant::now() + self.patience;
        while self.is_on() && Instant::now() < until {
            // They end with the machine.
            let _ = events.next(until.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn on(&self, held: &mut Held, boot: Boot) -> Result<(), PowerError> {
        let firmware = match boot.mode {
            Mode::Uefi => Firmware::Uefi,
            Mode::Legacy => Firmware::Bios,
        };
        let first = match boot.from {
            BootFrom::Normal => None,
            BootFrom::Network => Some(BootSource::Network),
            BootFrom::Cd => Some(BootSource::Cd),
            BootFrom::Disk => Some(BootSource::Disk),
        };
        let builder = self.builder.clone().firmware(firmware).cd_drive(held.image.clone()).boot_first(first);
        let vm = builder.start().map_err(|error| failed("switching the machine on", error))?;
        if boot.once {
            vm.boot_next_from(None).map_err(|error| failed("setting the boot order back", error))?;
        }
        held.vm = Some(vm);
        Ok(())
    }
}

impl std::fmt::Debug for VmPower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmPower").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Power for VmPower {
    fn is_on(&self) -> bool {
        self.with_vm(|_| ()).is_some()
    }

    fn act(&self, act: Act, boot: Boot) -> Result<(), PowerError> {
        let mut held = self.lock();
        let running = held.vm.as_ref().filter(|vm| vm.exited().is_none());
        let done = match (act, running) {
            (Act::On, Some(_)) | (Act::Off | Act::ShutDown | Act::Interrupt, None) => return Ok(()),
            (Act::On, None) => return self.on(&mut held, boot),
            (Act::Off, Some(vm)) => vm.kill(),
            (Act::Interrupt, Some(vm)) => return vm.qmp("inject-nmi", None).map(drop).map_err(|e| failed("an NMI", e)),
            (Act::ShutDown, Some(_)) => {
                drop(held);
                return self.shut_down();
            }
            (Act::Reset, running) => running.map_or(Ok(()), Vm::quit),
        };
        done.map_err(|error: VmError| failed("switching the machine off", error))?;
        held.vm = None;
        if act == Act::Reset { self.on(&mut held, boot) } else { Ok(()) }
    }

    fn serial(&self) -> Result<Option<Box<dyn SerialLine>>, PowerError> {
        if matches!(self.builder.serial_port(), Serial::Stuck | Serial::Absent) {
            return Ok(None);
        }
        let said = self.tap.listen().map_err(|error| failed("opening the serial line", error))?;
        Ok(Some(Box::new(join(said, Typist(Arc::clone(&self.held))))))
    }

    fn insert(&self, image: Option<&Path>) -> Result<(), PowerError> {
        let mut held = self.lock();
        if let Some(vm) = held.vm.as_ref().filter(|vm| vm.exited().is_none()) {
            vm.insert(image).map_err(|error| failed("changing the medium", error))?;
        }
        held.image = image.map(Path::to_owned);
        Ok(())
    }
}

/// Types into the serial port of the machine as it is now. One that is off, is being switched or does not listen loses what
/// is typed, as on a real line.
struct Typist(Arc<Mutex<Held>>);

impl AsyncWrite for Typist {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Ok(held) = self.0.try_lock()
            && let Some(vm) = &held.vm
        {
            vm.serial_type(bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn failed(doing: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> PowerError {
    PowerError { doing, source: Box::new(error) }
}
