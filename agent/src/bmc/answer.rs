//! The body of an answer as Ironic reads it: by Python's requests (`Response.json`) and the standard library's `json`, which
//! take more than JSON. Bytes in, a value out.
//!
//! ```text
//! Content-Type ─► charset, or what stands for it ─► text ─► JSON, with NaN and the like ─► value
//! ```

use std::borrow::Cow;

use serde_json::Value;

/// How messages call what cannot be read.
pub const NO_JSON: &str = "no JSON";
/// Python's `json` refuses it in a text, and takes it in bytes of which nobody says what they are.
const WITH_MARK: &str = "JSON behind a byte order mark, which Ironic does not read";
const MARK: char = '\u{feff}';

/// Reads a body.
///
/// # Errors
/// What it is instead, in words.
pub fn read(bytes: &[u8], content_type: Option<&str>) -> Result<Value, &'static str> {
    let text = match charset(content_type) {
        Some(charset) if is_latin1(&charset) => latin1(bytes),
        // Bytes that are none of it are replaced.
        Some(_) => String::from_utf8_lossy(bytes),
        None => guessed(bytes),
    };
    let read = |text: &str| serde_json::from_str(text).or_else(|_| serde_json::from_str(&plain(text)));
    match text.strip_prefix(MARK) {
        Some(rest) if read(rest).is_ok() => Err(WITH_MARK),
        _ => read(&text).map_err(|_| NO_JSON),
    }
}

/// What the header says of letters, or what requests takes it to say (`get_encoding_from_headers`).
fn charset(content_type: Option<&str>) -> Option<String> {
    let (kind, parameters) = content_type.map(|text| text.split_once(';').unwrap_or((text, "")))?;
    let named = parameters.split(';').find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['\'', '"']).to_ascii_lowercase())
    });
    let assumed = if kind.contains("text") { Some("iso-8859-1") } else { None };
    let assumed = assumed.or_else(|| kind.contains("application/json").then_some("utf-8"));
    named.or_else(|| assumed.map(str::to_owned))
}

/// Names of it in Python's `codecs`.
fn is_latin1(charset: &str) -> bool {
    matches!(charset.replace('_', "-").as_str(), "iso-8859-1" | "iso8859-1" | "latin-1" | "latin1" | "l1" | "8859")
}

fn latin1(bytes: &[u8]) -> Cow<'_, str> {
    bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into()
}

/// Of bytes whose kind nobody says: with a mark or without one, or else, as requests has it, "usually Latin-1".
fn guessed(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_or_else(|_| latin1(bytes), Cow::from)
}

/// A text without what Python takes and JSON does not have: numbers that are none become `null`, halves of letters `\ufffd`.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| matches!(letter, '"' | '-' | 'N' | 'I' | '0'..='9')) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with('"') { string(rest, &mut plain) } else { word(rest, &mut plain) };
        rest = &rest[length..];
    }
    plain + rest
}

/// Takes a number, or what stands for one: how many bytes.
fn word(text: &str, plain: &mut String) -> usize {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '+' | '.');
    let length = text.find(|letter| !is_inner(letter)).unwrap_or(text.len());
    let word = &text[..length];
    let begins = word.trim_start_matches('-').starts_with(|letter: char| letter.is_ascii_digit());
    let endless = begins && word.parse().is_ok_and(f64::is_infinite);
    plain.push_str(if endless || matches!(word, "NaN" | "Infinity" | "-Infinity") { "null" } else { word });
    length
}

/// Takes a string with its quotes: how many bytes.
fn string(text: &str, plain: &mut String) -> usize {
    let mut length = 1;
    plain.push('"');
    while let Some(at) = text[length..].find(['"', '\\']) {
        plain.push_str(&text[length..length + at]);
        length += at;
        if text[length..].starts_with('"') {
            plain.push('"');
            return length + 1;
        }
        let taken = match (unit(&text[length..]), text.get(length + 6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                plain.push_str("\\ufffd");
                length += 6;
                continue;
            }
            _ => text[length..].chars().take(2).map(char::len_utf8).sum(),
        };
        plain.push_str(&text[length..length + taken]);
        length += taken;
    }
    plain.push_str(&text[length..]);
    text.len()
}

/// The number of `\uXXXX`.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::json;

    use super::{NO_JSON, WITH_MARK, read};

    const JSON: Option<&str> = Some("application/json");

    /// Bytes, the header `Content-Type`, and what comes of them.
    type Case = (&'static [u8], Option<&'static str>, Result<serde_json::Value, &'static str>);

    /// What requests 2.34 and Python 3.13 make of the same bytes.
    #[test]
    fn bodies_are_read_as_requests_reads_them() {
        let with_charset = Some("application/json;odata.metadata=minimal; Charset=\"ISO-8859-1\"");
        let table: [Case; 22] = [
            (b"{\"a\": 1}", JSON, Ok(json!({"a": 1}))),
            (b"\xef\xbb\xbf{\"a\": 1}", None, Ok(json!({"a": 1}))),
            (b"\xef\xbb\xbf{\"a\": 1}", Some("application/octet-stream"), Ok(json!({"a": 1}))),
            (b"\xef\xbb\xbf{\"a\": 1}", JSON, Err(WITH_MARK)),
            (b"\xef\xbb\xbf<html>", JSON, Err(NO_JSON)),
            (b"{\"a\": \"Stra\xdfe\"}", JSON, Ok(json!({"a": "Stra\u{fffd}e"}))),
            (b"{\"a\": \"Stra\xdfe\"}", with_charset, Ok(json!({"a": "Straße"}))),
            (b"{\"a\": \"Stra\xdfe\"}", None, Ok(json!({"a": "Straße"}))),
            ("{\"a\": \"Straße\"}".as_bytes(), None, Ok(json!({"a": "Straße"}))),
            ("{\"a\": \"Straße\"}".as_bytes(), Some("text/plain"), Ok(json!({"a": "StraÃ\u{9f}e"}))),
            ("{\"a\": \"Straße\"}".as_bytes(), Some("text/plain; charset=bogus"), Ok(json!({"a": "Straße"}))),
            (
                b"{\"a\": NaN, \"b\": [-Infinity, Infinity], \"c\": 1e999, \"d\": -2.5}",
                JSON,
                Ok(json!({"a": null, "b": [null, null], "c": null, "d": -2.5})),
            ),
            (b"{\"a\": \"NaN \\\" -Infinity\", \"b\": NaN}", JSON, Ok(json!({"a": "NaN \" -Infinity", "b": null}))),
            (
                b"{\"a\": \"\\ud800x\", \"b\": \"\\ud83d\\ude00\"}",
                JSON,
                Ok(json!({"a": "\u{fffd}x", "b": "\u{1f600}"})),
            ),
            (b"{\"a\": nan}", JSON, Err(NO_JSON)),
            (b"{\"a\": NaNs}", JSON, Err(NO_JSON)),
            (b"{\"a\": 01}", JSON, Err(NO_JSON)),
            (b"{\"a\": 1}\0", JSON, Err(NO_JSON)),
            (b"{\"a\": \"x\ty\"}", JSON, Err(NO_JSON)),
            (b"{\"a\": \"\\", JSON, Err(NO_JSON)),
            (b"<html>NaN</html>", Some("text/html"), Err(NO_JSON)),
            (b"", JSON, Err(NO_JSON)),
        ];
        for (bytes, kind, expected) in table {
            assert_eq!(read(bytes, kind), expected, "{:?} {kind:?}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(noise in proptest::collection::vec(any::<u8>(), 0..60), text in "[\"\\\\u0dDN8Ia1é-]{0,40}") {
            let _ = read(&noise, None);
            let _ = read(&noise, JSON);
            let _ = read(text.as_bytes(), JSON);
        }
    }
}
