//! URLs as Go's `net/url` reads them, with its words for what is wrong with them.
//!
//! What is a valid BMC address or image URL was always decided by that package: a stricter parser would refuse hosts
//! that work, and users search for its messages. Source: RFC 3986 and the documentation of `net/url` of Go 1.24.

use std::fmt::Write;

/// A URL in its parts, percent-decoded where Go decodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    /// Lower case; empty without one.
    pub scheme: String,
    /// What follows the scheme when that is not a slash.
    pub opaque: String,
    /// Host and port, with the brackets of an IPv6 address.
    pub host: String,
    /// Path, decoded.
    pub path: String,
    /// What follows `?`, as it is.
    pub query: String,
}

impl Url {
    /// Host without port and brackets.
    pub fn hostname(&self) -> &str {
        self.split_host().0
    }

    /// Port; empty without one.
    pub fn port(&self) -> &str {
        self.split_host().1
    }

    fn split_host(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':') {
            Some(colon) if valid_optional_port(&self.host[colon..]) => (&self.host[..colon], &self.host[colon + 1..]),
            _ => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host), port)
    }

    /// First value of a key of the query; nothing when the query is not well formed.
    pub fn query_value(&self, key: &str) -> Option<String> {
        let mut found = None;
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            if pair.contains(';') {
                return None;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = unescape(name, Part::Query).ok()?;
            let value = unescape(value, Part::Query).ok()?;
            if name == key && found.is_none() {
                found = Some(value);
            }
        }
        found
    }
}

/// Any URL, or a path.
///
/// # Errors
/// `parse "...": ` and what is wrong.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    read(text, false).map_err(|problem| format!("parse {}: {problem}", quoted(text)))
}

/// A URL that one can send a request to: absolute, or a path that begins with a slash.
///
/// # Errors
/// `parse "...": ` and what is wrong.
pub(super) fn parse_request(text: &str) -> Result<Url, String> {
    read(text, true).map_err(|problem| format!("parse {}: {problem}", quoted(text)))
}

fn read(text: &str, for_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && for_request {
        return Err("empty url".into());
    }
    if text == "*" {
        return Ok(Url { path: "*".into(), ..Url::default() });
    }
    let (scheme, rest) = scheme(text)?;
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), ..Url::default() };
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut url.query);
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if for_request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let has_authority = !url.scheme.is_empty() || !for_request && !rest.starts_with("///");
    if has_authority && let Some(after) = rest.strip_prefix("//") {
        let end = after.find('/').unwrap_or(after.len());
        url.host = authority(&after[..end])?;
        rest = &after[end..];
    }
    url.path = unescape(rest, Part::Path)?;
    Ok(url)
}

/// Scheme and the rest; no scheme when the text does not begin with one.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Host and port of an authority; user and password are checked and left out.
fn authority(text: &str) -> Result<String, String> {
    let Some((user, host)) = text.rsplit_once('@') else { return host(text) };
    let host = self::host(host)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(allowed) {
        return Err("net/url: invalid userinfo".into());
    }
    unescape(user, Part::User)?;
    Ok(host)
}

fn host(text: &str) -> Result<String, String> {
    if text.starts_with('[') {
        let Some(end) = text.rfind(']') else { return Err("missing ']' in host".into()) };
        let port = &text[end + 1..];
        if !valid_optional_port(port) {
            return Err(format!("invalid port {} after host", quoted(port)));
        }
        if let Some(zone) = text[..end].find("%25") {
            let address = unescape(&text[..zone], Part::Host)?;
            let zone = unescape(&text[zone..end], Part::Zone)?;
            return Ok(format!("{address}{zone}{}", unescape(&text[end..], Part::Host)?));
        }
    } else if let Some(colon) = text.rfind(':')
        && !valid_optional_port(&text[colon..])
    {
        return Err(format!("invalid port {} after host", quoted(&text[colon..])));
    }
    unescape(text, Part::Host)
}

fn valid_optional_port(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Where an escaped text stands: what may stand there differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Query,
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let in_host = matches!(part, Part::Host | Part::Zone);
        if byte == b'%' {
            let value = bytes.get(at + 1..at + 3).and_then(hex_byte);
            let escape = || String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]).into_owned();
            let Some(value) = value else { return Err(format!("invalid URL escape {}", quoted(&escape()))) };
            let ascii_in_host = part == Part::Host && value < 0x80 && value != b'%';
            let control_in_zone = part == Part::Zone && value != b'%' && value != b' ' && !allowed_in_host(value);
            if ascii_in_host || control_in_zone {
                return Err(format!("invalid URL escape {}", quoted(&escape())));
            }
            plain.push(value);
            at += 3;
            continue;
        }
        if in_host && byte < 0x80 && !allowed_in_host(byte) {
            return Err(format!("invalid character {} in host name", quoted(&char::from(byte).to_string())));
        }
        plain.push(if byte == b'+' && part == Part::Query { b' ' } else { byte });
        at += 1;
    }
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

fn allowed_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// A text as Go's `%q` writes it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
