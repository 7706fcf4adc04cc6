//! Lists and tables on one line whose name is a secret's: `password: [a, b]`, `{"tokens":{"x":"y"}}`.

use super::GONE;
use super::names::is_about;

/// A list or table that begins with a bracket, without its values, and how long it was: up to its end, or that of the
/// line. What tells only something about a secret stays.
pub(super) fn redacted(text: &str) -> (String, usize) {
    let (mut out, mut at, mut depth, mut key) = (String::new(), 0, 0_usize, "");
    while at < text.len() {
        let rest = &text[at..];
        let Some(letter) = rest.chars().next().filter(|letter| !matches!(letter, '\n' | '\r')) else { break };
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' | ':' | '=' | '\\' => {}
            _ if letter.is_whitespace() => {}
            _ => {
                let length = scalar(&text[..at], rest);
                let (word, behind) = (&rest[..length], rest[length..].trim_start_matches([' ', '\\']));
                let names = behind.starts_with([':', '=']);
                if names {
                    key = word.trim_matches(['"', '\'', '\\']);
                }
                out.push_str(if names || is_about(key) { word } else { GONE });
                at += length;
                continue;
            }
        }
        if letter == ',' {
            key = "";
        }
        out.push(letter);
        at += letter.len_utf8();
        if depth == 0 {
            break;
        }
    }
    (out, at)
}

/// Bytes of a word or of a quoted text. Within a text of JSON each quote has the same backslashes before it.
fn scalar(before: &str, text: &str) -> usize {
    let escapes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        return text.find([',', '{', '}', '[', ']', ':', '=', '\n', '\r']).unwrap_or(text.len());
    };
    let wanted = escapes(before);
    let closes = |(at, _): &(usize, &str)| escapes(&text[..*at]) == wanted;
    let found = text.match_indices(quote).skip(1).find(closes);
    found.map_or_else(|| text.trim_end_matches(['\n', '\r']).len(), |(at, _)| at + 1)
}
