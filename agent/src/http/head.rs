//! The head of a request (RFC 9112), as far as serving files needs it.

/// Most bytes of a head, and most headers in it.
pub const MOST_BYTES: usize = 16 * 1024;
const MOST_HEADERS: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The bytes.
    Get,
    /// Only what is known about them.
    Head,
    /// Every other method: it would change something, or asks about the server.
    Other,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What is asked for.
    pub method: Method,
    /// Path, decoded, with its leading `/`. It is looked up, never opened.
    pub path: String,
    /// What follows `?`, as it came.
    pub query: String,
    /// Whether the client wants to ask again on this connection, and may.
    pub keep_alive: bool,
    /// Whether a body follows, which is not read here.
    pub has_body: bool,
    /// `Host`.
    pub host: Option<String>,
    /// `Accept`.
    pub accept: Option<String>,
    /// `Range`.
    pub range: Option<String>,
    /// `If-Range`.
    pub if_range: Option<String>,
    /// `If-None-Match`.
    pub if_none_match: Option<String>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<String>,
}

/// The status that tells the client what is wrong with its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad(pub u16);

/// The head at the start of `bytes` and how long it is; `None` while it has not arrived whole.
pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Bad> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err(Bad(431)),
        Err(httparse::Error::Version) => return Err(Bad(505)),
        Err(_) => return Err(Bad(400)),
    };
    let version_1_1 = request.version == Some(1);
    let (path, query) = target(request.path.unwrap_or_default())?;
    let mut head = Head {
        method: match request.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            _ => Method::Other,
        },
        path,
        query,
        keep_alive: version_1_1,
        has_body: false,
        host: None,
        accept: None,
        range: None,
        if_range: None,
        if_none_match: None,
        if_modified_since: None,
    };
    for header in request.headers.iter() {
        let text = || std::str::from_utf8(header.value).map(|value| value.trim().to_owned()).map_err(|_| Bad(400));
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("host") {
            if head.host.is_some() {
                return Err(Bad(400));
            }
            head.host = Some(text()?);
        } else if is("connection") {
            let words = text()?.to_ascii_lowercase();
            let says = |wanted: &str| words.split(',').any(|word| word.trim() == wanted);
            head.keep_alive = if version_1_1 { !says("close") } else { says("keep-alive") };
        } else if is("accept") {
            join(&mut head.accept, &text()?);
        } else if is("range") {
            join(&mut head.range, &text()?);
        } else if is("if-range") {
            head.if_range = Some(text()?);
        } else if is("if-none-match") {
            join(&mut head.if_none_match, &text()?);
        } else if is("if-modified-since") {
            head.if_modified_since = Some(text()?);
        } else if is("content-length") || is("transfer-encoding") {
            head.has_body |= header.value != b"0";
        }
    }
    if version_1_1 && head.host.is_none() {
        return Err(Bad(400));
    }
    // No body is read here, so the next request could not be told from it.
    head.keep_alive &= !head.has_body;
    Ok(Some((head, length)))
}

/// A header that is there several times is one list (RFC 9110, 5.3).
fn join(list: &mut Option<String>, more: &str) {
    *list = Some(list.take().map_or_else(|| more.to_owned(), |before| format!("{before}, {more}")));
}

/// Path and query of a target: `/path?query`, or `http://host/path?query` as clients of proxies write it.
fn target(text: &str) -> Result<(String, String), Bad> {
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => text,
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err(Bad(400));
    }
    Ok((decode(path).ok_or(Bad(400))?, query.to_owned()))
}

/// Percent-decodes a path. No control characters: they have no place in a path of ours.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, left) = match (first, tail) {
            (b'%', [high, low, left @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                (digit(high)? << 4 | digit(low)?, left)
            }
            (b'%', _) => return None,
            (byte, left) => (*byte, left),
        };
        if byte.is_ascii_control() {
            return None;
        }
        bytes.push(byte);
        rest = left;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop};
    use proptest::proptest;

    use super::{Bad, MOST_BYTES, Method, decode, parse};

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let text = "GET /images/a%20b.qcow2?x=1 HTTP/1.1\r\nHost: box:6180\r\nRange: bytes=0-1\r\n\r\nrest";
        for cut in 0..text.len() - 4 {
            assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        let (head, length) = parse(text.as_bytes()).expect("good").expect("whole");
        assert_eq!(&text[length..], "rest");
        assert_eq!((head.method, head.path.as_str(), head.query.as_str()), (Method::Get, "/images/a b.qcow2", "x=1"));
        assert_eq!(head.range.as_deref(), Some("bytes=0-1"));
        assert!(head.keep_alive);
    }

    #[test]
    fn the_connection_stays_open_only_when_both_can_go_on() {
        let table = [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", false),
        ];
        for (text, expected) in table {
            let (head, _) = parse(text.as_bytes()).expect("good").expect("whole");
            assert_eq!(head.keep_alive, expected, "{text}");
        }
    }

    #[test]
    fn a_list_may_stand_in_several_headers() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nAccept: a\r\naccept: b\r\nIf-None-Match: \"x\"\r\nIf-None-Match: \"y\"\r\n\r\n";
        let (head, _) = parse(text.as_bytes()).expect("good").expect("whole");
        assert_eq!((head.accept.as_deref(), head.if_none_match.as_deref()), (Some("a, b"), Some("\"x\", \"y\"")));
    }

    #[test]
    fn a_proxys_target_is_its_path_and_what_is_no_request_is_told() {
        let (head, _) = parse(b"GET http://box:6180/a HTTP/1.1\r\nHost: b\r\n\r\n").expect("good").expect("whole");
        assert_eq!(head.path, "/a");
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(MOST_BYTES));
        let table = [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            (long.as_str(), 431),
        ];
        for (text, status) in table {
            assert_eq!(parse(text.as_bytes()), Err(Bad(status)), "{text:.40}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn decoding_undoes_encoding(path in "/[a-zA-Z0-9 äöü%?#/]{0,40}") {
            let encoded = format!("%{}", path.bytes().map(|byte| hex::encode([byte])).collect::<Vec<_>>().join("%"));
            assert_eq!(decode(&encoded), Some(path));
        }
    }
}
