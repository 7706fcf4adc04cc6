//! Why the box cannot start, in the words of its user: what was found, what was expected, what to do.

use std::fmt::Write;

use agent_api::events::Phase;

/// Columns of the message on the screen: fits a text console of 80.
const WIDTH: usize = 78;
/// Columns of the names of its parts.
const NAMES: usize = 10;

/// Why the box cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {found}; expected {expected}")]
pub struct Fatal {
    /// Phase in which it happened.
    pub phase: Phase,
    /// Step in which it happened.
    pub step: &'static str,
    /// What was found, one line or several.
    pub found: String,
    /// What was expected.
    pub expected: String,
    /// What the user can do.
    pub next: String,
}

impl Fatal {
    /// A failure of the phase `medium`.
    pub fn medium(step: &'static str, found: impl Into<String>, expected: &str, next: &str) -> Self {
        Self { phase: Phase::Medium, step, found: found.into(), expected: expected.to_owned(), next: next.to_owned() }
    }

    /// A failure of the phase `disk`.
    pub fn disk(step: &'static str, found: impl Into<String>, expected: &str, next: &str) -> Self {
        Self { phase: Phase::Disk, ..Self::medium(step, found, expected, next) }
    }

    /// The framed message, in plain ASCII.
    pub fn frame(&self, title: &str) -> String {
        let mut lines = vec![title.to_owned(), String::new()];
        let step = format!("{}/{}", self.phase, self.step);
        for (name, text) in
            [("step", &step), ("found", &self.found), ("expected", &self.expected), ("to do", &self.next)]
        {
            for (index, line) in text.lines().flat_map(|line| wrap(line, WIDTH - 4 - NAMES)).enumerate() {
                let name = if index == 0 { name } else { "" };
                lines.push(format!("{name:<NAMES$}{line}"));
            }
        }
        framed(&lines)
    }
}

/// Puts a frame around lines.
pub fn framed(lines: &[String]) -> String {
    let edge = format!("+{}+\n", "-".repeat(WIDTH - 2));
    let mut text = format!("\n{edge}");
    for line in lines {
        let _ = writeln!(text, "| {:<1$} |", plain(line), WIDTH - 4);
    }
    text + &edge
}

/// Only what every console can show.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Breaks a line at blanks; a word that is too long is cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        while let Some(line) = lines.last_mut() {
            let blank = usize::from(!line.is_empty());
            if line.len() + blank + word.len() <= width {
                if blank == 1 {
                    line.push(' ');
                }
                line.push_str(word);
                break;
            }
            if line.is_empty() {
                let cut = (1..=width).rev().find(|at| word.is_char_boundary(*at)).unwrap_or(word.len());
                line.push_str(&word[..cut]);
                word = &word[cut..];
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Fatal, WIDTH, wrap};

    #[test]
    fn the_message_is_framed_and_fits_the_screen() {
        let fatal = Fatal::medium(
            "layers",
            "layer `os` on vda3: block 4711 does not match its digest, and then some more words to break the line",
            "the bytes that were signed",
            "write the image again",
        );
        let frame = fatal.frame("Foothold edge 1.4.0 cannot start");
        for line in frame.lines().skip(1) {
            assert_eq!(line.len(), WIDTH, "{line}");
        }
        assert!(frame.contains("| step      medium/layers"), "{frame}");
        assert!(frame.contains("\n|           then some"), "{frame}");
    }

    #[test]
    fn a_word_longer_than_the_line_is_cut() {
        assert_eq!(wrap("ab cdefghij k", 4), ["ab", "cdef", "ghij", "k"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
