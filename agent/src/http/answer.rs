//! The answer to a request for a file: all of it, a part, or 304 Not Modified (RFC 9110, 13 and 14). Pure.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{File, Head, Method};

/// The answer's status, its headers, and which bytes follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// HTTP status.
    pub status: u16,
    /// Headers of the file, each with its line's end.
    pub headers: String,
    /// First byte and number of bytes; `None` for an answer without a body.
    pub bytes: Option<(u64, u64)>,
}

/// Decides what is answered.
pub fn decide(head: &Head, file: &File) -> Decision {
    let tag = format!("\"{}\"", file.digest);
    let modified = http_date(file.modified);
    let mut headers = describe(file, &tag, &modified);
    if is_unchanged(head, &tag, &modified) {
        return Decision { status: 304, headers, bytes: None };
    }
    let _ = write!(headers, "Content-Type: {}\r\nAccept-Ranges: bytes\r\n", file.kind);
    let part = match (head.method, &head.range) {
        (Method::Get, Some(range)) if may_be_part(head, &tag, &modified) => part_of(range, file.size),
        _ => Part::Whole,
    };
    let whole = (0, file.size);
    let (status, bytes) = match part {
        Part::Whole => (200, whole),
        Part::Bytes(start, length) => {
            let _ = write!(headers, "Content-Range: bytes {start}-{}/{}\r\n", start + length - 1, file.size);
            (206, (start, length))
        }
        Part::Outside => {
            let _ = write!(headers, "Content-Range: bytes */{}\r\nContent-Length: 0\r\n", file.size);
            return Decision { status: 416, headers, bytes: None };
        }
    };
    let _ = write!(headers, "Content-Length: {}\r\n", bytes.1);
    if status == 200 {
        // Of the bytes that follow (RFC 9530), which are all.
        let _ = write!(headers, "Content-Digest: sha-256=:{}:\r\n", in_base64(file));
    }
    Decision { status, headers, bytes: (head.method == Method::Get).then_some(bytes) }
}

fn describe(file: &File, tag: &str, modified: &str) -> String {
    let cache = if file.immutable { "public, max-age=31536000, immutable" } else { "public, no-cache" };
    let digest = in_base64(file);
    let mut headers = format!(
        "ETag: {tag}\r\nLast-Modified: {modified}\r\nCache-Control: {cache}\r\nRepr-Digest: sha-256=:{digest}:\r\n\
         Digest: sha-256={digest}\r\n"
    );
    if file.blob {
        let _ = write!(
            headers,
            "Docker-Content-Digest: {}\r\nDocker-Distribution-Api-Version: registry/2.0\r\n",
            file.digest
        );
    }
    headers
}

/// The digest as header fields have it.
fn in_base64(file: &File) -> String {
    STANDARD.encode(hex::decode(file.digest.hex()).unwrap_or_default())
}

/// `If-None-Match` counts before `If-Modified-Since`. The time must be the same one: a path may go back to an older file.
fn is_unchanged(head: &Head, tag: &str, modified: &str) -> bool {
    match (&head.if_none_match, &head.if_modified_since) {
        (Some(tags), _) => names(tags, tag),
        (None, Some(time)) => time == modified,
        (None, None) => false,
    }
}

/// Whether the list of an `If-None-Match` names that entity tag.
pub fn names(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// Whether the part that the client has is of the same file (`If-Range`).
fn may_be_part(head: &Head, tag: &str, modified: &str) -> bool {
    head.if_range.as_deref().is_none_or(|is| is == tag || is == modified)
}

/// Which bytes a `Range` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The whole file: no range is asked for, or one that may be ignored, such as several at once.
    Whole,
    /// First byte and how many.
    Bytes(u64, u64),
    /// A range outside of the file.
    Outside,
}

fn part_of(range: &str, size: u64) -> Part {
    let Some((unit, spec)) = range.split_once('=') else { return Part::Whole };
    let Some((first, last)) = spec.trim().split_once('-') else { return Part::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return Part::Whole;
    }
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that does not fit lies behind the end of every file.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (number(first), number(last), first.is_empty(), last.is_empty()) {
        (Some(first), Some(last), ..) if first > last => Part::Whole,
        (Some(first), last, _, empty) if last.is_some() || empty => {
            let end = last.map_or(size, |last| last.saturating_add(1).min(size));
            if first < size { Part::Bytes(first, end - first) } else { Part::Outside }
        }
        (None, Some(0), true, _) => Part::Outside,
        (None, Some(_), true, _) if size == 0 => Part::Outside,
        (None, Some(last), true, _) => Part::Bytes(size.saturating_sub(last), last.min(size)),
        _ => Part::Whole,
    }
}

/// A moment as HTTP writes it (RFC 9110, 5.6.7).
pub fn http_date(secs: u64) -> String {
    let moment = i64::try_from(secs).ok().and_then(|secs| jiff::Timestamp::from_second(secs).ok());
    moment.unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Reason phrase of a status.
pub const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Answer",
    }
}

#[cfg(test)]
mod tests {
    use agent_api::release::Digest;
    use proptest::prelude::any;
    use proptest::proptest;

    use super::{Part, decide, http_date, part_of};
    use crate::http::head::parse;
    use crate::http::{File, Head};

    const TAG: &str = "\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";
    const DATE: &str = "Fri, 17 Jan 2025 10:00:00 GMT";

    fn file(size: u64) -> File {
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest: Digest = digest.parse().expect("a digest");
        let (kind, path) = ("text/plain", "/store".into());
        File { file: path, digest, size, modified: 1_737_108_000, kind, immutable: false, blob: false }
    }

    fn head(method: &str, headers: &str) -> Head {
        let text = format!("{method} /a HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        parse(text.as_bytes()).expect("good").expect("whole").0
    }

    #[test]
    fn conditions_and_ranges_decide() {
        let none = "If-None-Match: ";
        let part = |start, length| (206, Some((start, length)));
        let whole = (200, Some((0, 10)));
        let table = [
            (String::new(), whole),
            (format!("{none}{TAG}\r\n"), (304, None)),
            (format!("{none}\"x\", W/{TAG}\r\n"), (304, None)),
            (format!("{none}*\r\n"), (304, None)),
            (format!("{none}\"x\"\r\nIf-Modified-Since: {DATE}\r\n"), whole),
            (format!("If-Modified-Since: {DATE}\r\n"), (304, None)),
            ("If-Modified-Since: Sat, 18 Jan 2025 10:00:00 GMT\r\n".to_owned(), whole),
            ("Range: bytes=2-4\r\n".to_owned(), part(2, 3)),
            ("Range: bytes=2-\r\n".to_owned(), part(2, 8)),
            ("Range: bytes=-3\r\n".to_owned(), part(7, 3)),
            ("Range: bytes=-30\r\n".to_owned(), part(0, 10)),
            ("Range: bytes=0-99\r\n".to_owned(), part(0, 10)),
            ("Range: bytes=10-\r\n".to_owned(), (416, None)),
            ("Range: bytes=-0\r\n".to_owned(), (416, None)),
            ("Range: bytes=99999999999999999999999-\r\n".to_owned(), (416, None)),
            ("Range: bytes=4-2\r\n".to_owned(), whole),
            ("Range: bytes=0-1,4-5\r\n".to_owned(), whole),
            ("Range: lines=0-1\r\n".to_owned(), whole),
            (format!("Range: bytes=2-4\r\nIf-Range: {TAG}\r\n"), part(2, 3)),
            (format!("Range: bytes=2-4\r\nIf-Range: {DATE}\r\n"), part(2, 3)),
            (format!("Range: bytes=2-4\r\nIf-Range: W/{TAG}\r\n"), whole),
        ];
        for (headers, expected) in table {
            let decision = decide(&head("GET", &headers), &file(10));
            assert_eq!((decision.status, decision.bytes), expected, "{headers}");
        }
    }

    #[test]
    fn a_head_request_tells_everything_and_sends_nothing() {
        let decision = decide(&head("HEAD", "Range: bytes=2-4\r\n"), &file(10));
        assert_eq!((decision.status, decision.bytes), (200, None));
        insta::assert_snapshot!(decision.headers.replace("\r\n", "\n"));
    }

    #[test]
    fn a_part_has_no_digest_of_its_own_and_a_path_with_a_digest_is_kept_for_ever() {
        let part = decide(&head("GET", "Range: bytes=2-4\r\n"), &file(10));
        assert!(!part.headers.contains("Content-Digest") && part.headers.contains("Repr-Digest"), "{}", part.headers);
        assert!(part.headers.contains("Content-Range: bytes 2-4/10\r\n"), "{}", part.headers);
        let for_ever = decide(&head("GET", ""), &File { immutable: true, ..file(10) });
        assert!(for_ever.headers.contains("immutable\r\n"), "{}", for_ever.headers);
    }

    #[test]
    fn nothing_is_a_part_of_an_empty_file() {
        for range in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(part_of(range, 0), Part::Outside, "{range}");
        }
        assert_eq!(http_date(1_737_108_000), DATE);
    }

    proptest! {
        #[test]
        fn a_part_lies_in_the_file(size in 0_u64..1000, range in "bytes=[0-9]{0,4}-[0-9]{0,4}", big in any::<bool>()) {
            let size = if big { u64::MAX } else { size };
            if let Part::Bytes(start, length) = part_of(&range, size) {
                assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= size));
            }
        }
    }
}
