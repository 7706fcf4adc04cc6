//! The writer for tty1: puts lines where they differ from what is there, and reads the keys that switch pages.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use rustix::termios::tcgetwinsize;

use super::{Line, Page, Style, View, render};
use crate::events::LossyWriter;
use crate::host::keyboard::Keyboard;

/// Everything is written again at this many drawings, in case somebody else wrote on the screen.
const REPAINT: u32 = 10;
/// Bytes of one drawing at most: a large screen with colours.
const PENDING: usize = 256 * 1024;

/// A Linux virtual terminal, or anything that understands the same few sequences (`console_codes`(4)).
pub(super) struct Screen {
    path: PathBuf,
    keys: Option<Keyboard>,
    out: LossyWriter,
    shown: Vec<Line>,
    page: Page,
    drawn: u32,
}

impl Screen {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (keys, out) = open(path)?;
        Ok(Self { path: path.to_owned(), keys, out, shown: Vec::new(), page: Page::default(), drawn: 0 })
    }

    /// Waits for a key that changes what is shown. Never ends when there are no keys to read.
    pub(super) async fn key(&mut self) {
        let mut typed = [0; 32];
        while let Some(keys) = &self.keys {
            match keys.read(&mut typed).await {
                Ok(n) if n > 0 => {
                    if let Some(page) = page_of(&typed[..n]) {
                        self.page = page;
                        self.shown.clear();
                        return;
                    }
                }
                // Hung up: drawing goes on, and `draw` opens it again.
                Ok(_) | Err(_) => self.keys = None,
            }
        }
        std::future::pending::<()>().await;
    }

    pub(super) fn draw(&mut self, view: &View) {
        let Ok(size) = tcgetwinsize(self.out.device()) else { return self.reopen() };
        let (width, height) = (usize::from(size.ws_col.max(20)), usize::from(size.ws_row.max(8)));
        let lines = render(view, self.page, width, height);
        self.drawn += 1;
        if self.shown.len() != lines.len() || self.drawn.is_multiple_of(REPAINT) {
            self.shown.clear();
        }
        let bytes = changes(&self.shown, &lines);
        if bytes.is_empty() {
            self.out.flush();
        } else if self.out.write(bytes.as_bytes()) {
            self.shown = lines;
        } else {
            self.shown.clear();
        }
    }

    fn reopen(&mut self) {
        if let Ok((keys, out)) = open(&self.path) {
            (self.keys, self.out) = (keys, out);
            self.shown.clear();
        }
    }

    /// Resets the terminal for whoever uses it next.
    pub(super) fn leave(&mut self) {
        self.out.write(b"\x1b[0m\x1b[?7h\x1b[?25h\r\n");
    }
}

fn open(path: &Path) -> io::Result<(Option<Keyboard>, LossyWriter)> {
    let mut out = LossyWriter::open(path, PENDING)?;
    tcgetwinsize(out.device())?;
    // UTF-8; never blank nor power down; no line wrap; no cursor; empty.
    out.write(b"\x1b%G\x1b[9;0]\x1b[14;0]\x1b[?7l\x1b[?25l\x1b[0m\x1b[2J");
    Ok((Keyboard::open(path).ok(), out))
}

/// What must be written so that `shown` becomes `lines`.
fn changes(shown: &[Line], lines: &[Line]) -> String {
    let mut text = String::new();
    for (row, line) in lines.iter().enumerate() {
        if shown.get(row) == Some(line) {
            continue;
        }
        let _ = write!(text, "\x1b[{};1H", row + 1);
        for span in &line.spans {
            text += sequence(span.style);
            text += &span.text;
        }
        text += "\x1b[0m";
    }
    text
}

const fn sequence(style: Style) -> &'static str {
    match style {
        Style::Plain => "\x1b[0m",
        // Code 2 (half-bright) is a colour that the Linux console picks by itself; these are ours.
        Style::Dim => "\x1b[0;36m",
        Style::Frame => "\x1b[0;1;30m",
        Style::Bold => "\x1b[0;1;37m",
        Style::Title => "\x1b[0;1;37;44m",
        Style::TitleGood => "\x1b[0;1;37;42m",
        Style::TitleBad => "\x1b[0;1;37;41m",
        Style::Good => "\x1b[0;1;32m",
        Style::Busy => "\x1b[0;1;36m",
        Style::Warn => "\x1b[0;1;33m",
        Style::Bad => "\x1b[0;1;31m",
    }
}

/// F1 to F3 as the Linux console and as xterm send them, and the digits.
fn page_of(typed: &[u8]) -> Option<Page> {
    match typed {
        b"\x1b[[A" | b"\x1bOP" | b"1" => Some(Page::Overview),
        b"\x1b[[B" | b"\x1bOQ" | b"2" => Some(Page::Events),
        b"\x1b[[C" | b"\x1bOR" | b"3" => Some(Page::Steps),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use nix::pty::{OpenptyResult, Winsize, openpty};

    use super::{Line, Page, Screen, Style, changes, page_of};
    use crate::console::Span;
    use crate::console::tests::{failed, ready, waiting};

    /// A terminal of 80x25: the end of whoever looks at it, and its path.
    fn terminal() -> (OwnedFd, OwnedFd, PathBuf) {
        let size = Winsize { ws_row: 25, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).expect("a terminal");
        rustix::io::ioctl_fionbio(&master, true).expect("non-blocking");
        let path = rustix::termios::ttyname(&slave, Vec::new()).expect("a name");
        (master, slave, PathBuf::from(path.to_str().expect("a path")))
    }

    fn seen(master: &OwnedFd) -> String {
        let (mut all, mut some) = (Vec::new(), [0; 8192]);
        while let Ok(n) = rustix::io::read(master, &mut some) {
            all.extend_from_slice(&some[..n]);
        }
        String::from_utf8(all).expect("UTF-8")
    }

    #[tokio::test]
    async fn the_second_drawing_is_short_and_a_key_shows_another_page() {
        let (master, _slave, path) = terminal();
        let mut screen = Screen::open(&path).expect("a screen");
        screen.draw(&waiting());
        let first = seen(&master);
        assert!(first.contains("control-plane/api-server") && first.contains("\x1b[25;1H"));
        let mut later = waiting();
        later.uptime += 1.0;
        screen.draw(&later);
        assert!(seen(&master).len() < first.len() / 3);
        rustix::io::write(&master, b"\x1b[[C").expect("a key");
        tokio::time::timeout(Duration::from_secs(10), screen.key()).await.expect("the key arrives");
        screen.draw(&later);
        let steps = seen(&master);
        assert!(steps.contains("still done") || steps.contains("running"), "{steps}");
        assert!(!steps.contains("[[C"), "typing is echoed");
    }

    #[tokio::test]
    async fn a_screen_nobody_reads_from_and_one_that_is_gone_block_nothing() {
        let (master, slave, path) = terminal();
        let mut screen = Screen::open(&path).expect("a screen");
        let start = Instant::now();
        for _ in 0..200 {
            screen.draw(&ready());
            screen.draw(&failed());
        }
        drop((master, slave));
        assert!(tokio::time::timeout(Duration::from_millis(100), screen.key()).await.is_err());
        screen.draw(&ready());
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(Screen::open(&path).is_err());
    }

    fn line(text: &str) -> Line {
        Line { spans: vec![Span { style: Style::Good, text: text.to_owned() }] }
    }

    #[test]
    fn only_lines_that_changed_are_written() {
        let before = [line("a"), line("b"), line("c")];
        let after = [line("a"), line("B"), line("c")];
        assert_eq!(changes(&before, &after), "\x1b[2;1H\x1b[0;1;32mB\x1b[0m");
        assert_eq!(changes(&after, &after), "");
        assert_eq!(changes(&[], &after).matches("\x1b[0m").count(), 3);
    }

    #[test]
    fn function_keys_switch_pages_and_others_do_nothing() {
        assert_eq!(page_of(b"\x1b[[B"), Some(Page::Events));
        assert_eq!(page_of(b"\x1bOR"), Some(Page::Steps));
        assert_eq!(page_of(b"q"), None);
    }
}
