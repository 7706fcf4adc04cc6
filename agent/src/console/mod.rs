//! What somebody in front of the box sees: a full screen on tty1, lines on serial consoles.
//!
//! ```text
//! Bus, Gate, Vitals --> View --render--> Vec<Line> --> Screen --> tty1, only what changed
//!                        |
//!                        +----Narrator--> String ----> serial consoles, one line an event
//! ```
//!
//! `render` and the narrator are pure. Writing never blocks: a dead serial line or a missing screen costs nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::door::Gate;
use crate::events::{Bus, LossyWriter};
use crate::vitals::{self, Vitals};

mod render;
mod screen;
mod serial;
mod view;

pub use render::{Line, Page, Span, Style, render};
pub use serial::Narrator;
pub use view::View;

/// The clock and the waiting times on the screen move this often.
const TICK: Duration = Duration::from_secs(1);
/// Serial consoles are looked after this often when nothing happens: reminders, new addresses.
const SERIAL_TICK: Duration = Duration::from_secs(5);
/// Events that come together are drawn together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Bytes that are kept for a serial console that is slow: a minute at 115200 baud is ten times as much.
const SERIAL_PENDING: usize = 64 * 1024;

/// What the console needs from the rest of the agent.
pub struct Options {
    /// The news.
    pub bus: Bus,
    /// Knows the claim code, while there is one.
    pub gate: Arc<Gate>,
    /// Facts of the box.
    pub vitals: Vitals,
    /// Fingerprint of the web authority.
    pub fingerprint: String,
    /// The screen.
    pub screen: PathBuf,
    /// Serial consoles.
    pub serials: Vec<PathBuf>,
}

impl Options {
    /// As on a real box: tty1, and every serial line that the kernel uses as a console.
    pub fn of_box(bus: Bus, gate: Arc<Gate>, vitals: Vitals, fingerprint: String) -> Self {
        let active = fs_err::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
        let serials = serials_of(&active).map(|name| Path::new("/dev").join(name)).collect();
        Self { bus, gate, vitals, fingerprint, screen: PathBuf::from("/dev/tty1"), serials }
    }
}

/// The serial lines among the kernel's consoles. Other serial lines may have any device at their other end.
fn serials_of(active: &str) -> impl Iterator<Item = &str> {
    let is_screen = |name: &str| name.strip_prefix("tty").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    active.split_whitespace().filter(move |name| !is_screen(name))
}

/// Starts drawing and telling. Consoles that cannot be opened are left out. Needs a tokio runtime.
pub fn start(tasks: &mut JoinSet<anyhow::Result<()>>, options: Options, stop: &CancellationToken) {
    let options = Arc::new(options);
    // The kernel's messages are in the journal; on the screen they would garble the view.
    if let Err(error) = fs_err::write("/proc/sys/kernel/printk", "1") {
        log::debug!("the kernel's messages may show up on the screen: {error}");
    }
    match screen::Screen::open(&options.screen) {
        Ok(screen) => drop(tasks.spawn(draw(screen, Arc::clone(&options), stop.clone()))),
        Err(error) => log::info!("there is no screen to draw on: {error}"),
    }
    // What was told before (by the initrd, or by the agent that ran before this one) is on the consoles already.
    let (first, past) = options.bus.since(0);
    let next = first + past.len() as u64;
    for path in &options.serials {
        match LossyWriter::open(path, SERIAL_PENDING) {
            Ok(line) => drop(tasks.spawn(tell(line, next, Arc::clone(&options), stop.clone()))),
            Err(error) => log::info!("there is no serial console to tell on: {error}"),
        }
    }
}

impl Options {
    fn view(&self) -> View {
        let code = self.gate.claim_code().borrow().clone();
        View::of(&self.vitals.box_status(&self.bus, &self.fingerprint), &vitals::addresses(), code)
    }
}

/// Draws the screen: at each tick, shortly after an event, and when somebody presses a key.
async fn draw(mut screen: screen::Screen, options: Arc<Options>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut news = options.bus.status();
    let mut code = options.gate.claim_code();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = tick.tick() => {}
            changed = either(&mut news, &mut code) => if changed.is_err() { break },
            () = screen.key() => {}
        }
        news.mark_unchanged();
        code.mark_unchanged();
        screen.draw(&options.view());
        tokio::time::sleep(TOGETHER).await;
    }
    screen.leave();
    Ok(())
}

async fn either<A, B>(a: &mut watch::Receiver<A>, b: &mut watch::Receiver<B>) -> Result<(), watch::error::RecvError> {
    tokio::select! {
        changed = a.changed() => changed,
        changed = b.changed() => changed,
    }
}

/// Tells each event on a serial console, and a summary when what matters changed.
async fn tell(
    mut line: LossyWriter,
    mut next: u64,
    options: Arc<Options>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut news = options.bus.status();
    let mut code = options.gate.claim_code();
    let mut tick = tokio::time::interval(SERIAL_TICK);
    let mut narrator = Narrator::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = tick.tick() => {}
            changed = either(&mut news, &mut code) => if changed.is_err() { return Ok(()) },
        }
        news.mark_unchanged();
        code.mark_unchanged();
        let (first, events) = options.bus.since(next);
        next = first + events.len() as u64;
        for event in &events {
            if let Some(text) = narrator.event(event) {
                line.write(text.as_bytes());
            }
        }
        if let Some(text) = narrator.look(&options.view()) {
            line.write(text.as_bytes());
        }
        line.flush();
    }
}

#[cfg(test)]
mod tests;
