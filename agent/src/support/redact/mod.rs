//! Takes secrets out of text that leaves the box. The bundle names what goes in; this is what a program may have written
//! into a log or a manifest.
//!
//! ```text
//! text ─► exact values of what the box keeps secret (`values`), wherever they stand ─► what looks like a secret (`patterns`)
//! ```

use aho_corasick::{AhoCorasick, MatchKind};

mod collection;
mod names;
mod patterns;
mod programs;
mod scan;
mod values;

pub(crate) use values::Values;

/// What stands in place of a secret.
const GONE: &str = "[redacted]";
/// A shorter value is taken out only where it is a word of its own.
const LONG: usize = 8;

/// Knows what must go.
pub(crate) struct Redactor {
    long: Option<AhoCorasick>,
    short: Option<AhoCorasick>,
}

impl Redactor {
    /// One that takes out these values, and what looks like a secret.
    pub(crate) fn new(values: &Values) -> Self {
        let (long, short): (Vec<&str>, Vec<&str>) = values.iter().partition(|value| value.len() >= LONG);
        Self { long: automaton(&long), short: automaton(&short) }
    }

    /// The text without secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        let text = exact(self.long.as_ref(), text, |_, _| true);
        let text = exact(self.short.as_ref(), &text, |before, behind| {
            let inner = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
            !inner(before) && !inner(behind)
        });
        patterns::redact(&text)
    }
}

fn automaton(values: &[&str]) -> Option<AhoCorasick> {
    if values.is_empty() {
        return None;
    }
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
    built.inspect_err(|error| log::error!("the secrets of this box are too many to look for: {error}")).ok()
}

/// Takes values out where what stands before and behind allows it.
fn exact(automaton: Option<&AhoCorasick>, text: &str, may: impl Fn(Option<char>, Option<char>) -> bool) -> String {
    let Some(automaton) = automaton else { return text.to_owned() };
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for found in automaton.find_iter(text) {
        if may(text[..found.start()].chars().next_back(), text[found.end()..].chars().next()) {
            out.push_str(&text[at..found.start()]);
            out.push_str(GONE);
            at = found.end();
        }
    }
    out.push_str(&text[at..]);
    out
}

#[cfg(test)]
mod tests;
