//! What looks like a secret, in any form that programs write: assignments, flags, headers, keys, YAML over several lines.
//!
//! ```text
//! line ─┬─ within a key, a block, the data of a Secret: gone
//!       ├─ a key and its value: by the name of the key
//!       └─ anything else: word by word (`scan`)
//! ```

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::GONE;
use super::collection;
use super::names::{is_about, is_collection, is_secret};
use super::scan::{SWITCHES, Scan, closing, has_open_scheme, is_word};

/// The line of an object that says that it is a Secret, in YAML or in JSON over several lines.
static IS_SECRET: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?m)^\s*(?:-\s+)?"?kind"?\s*:\s*["']?Secret["']?,?\s*(?:#.*)?$"#).ok());
/// The same within a line of JSON, which may be a text of JSON itself.
static IN_JSON: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"\\*"kind\\*"\s*:\s*\\*"Secret\\*""#).ok());
/// Where the data of a Secret begin there.
static DATA: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"(\\*)"(?:data|stringData)\\*"\s*:\s*\{"#).ok());

/// What the lines before this one say of it.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is something that may follow")]
struct Before {
    /// Within a private key.
    key: bool,
    /// Within the text of a secret, of which each line has more indent than this.
    block: Option<usize>,
    /// Within `data` or `stringData` of a Secret, whose keys have more indent than this.
    data: Option<usize>,
    /// An environment variable whose value comes next is a secret.
    variable: bool,
    /// A flag whose value comes next is a secret.
    flag: bool,
    /// A secret has no value in the line of its name: what stands below, with more indent than this, is it.
    below: Option<usize>,
    /// Within a text between these quotes, which is a secret.
    fence: Option<&'static str>,
    /// Within what cloud-init's `chpasswd` says.
    passwords: bool,
    /// Within an entry of a `.netrc`.
    login: bool,
}

/// Takes the secrets out of a whole text.
pub(super) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for document in documents(text) {
        let holds = IS_SECRET.as_ref().is_some_and(|secret| secret.is_match(document));
        // The end of a file may begin within a key.
        let key = document
            .lines()
            .find(|line| begins_key(line) || ends_key(line))
            .is_some_and(|line| !begins_key(line) && line.contains("PRIVATE KEY"));
        if key {
            out.push_str(GONE);
            out.push('\n');
        }
        let (mut before, mut lines) = (Before { key, ..Before::default() }, document.split_inclusive('\n').peekable());
        while let Some(line) = lines.next() {
            let next = lines.peek().copied().unwrap_or_default();
            before.line(&without_data(line), next, holds, &mut out);
        }
    }
    out
}

/// Documents of YAML; of any other text, all of it.
fn documents(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" && at > start {
            found.push(&text[start..at]);
            start = at;
        }
        at += line.len();
    }
    found.push(&text[start..]);
    found
}

/// A line without the data of the Secrets that stand in it as JSON.
fn without_data(line: &str) -> Cow<'_, str> {
    let (Some(secret), Some(data)) = (IN_JSON.as_ref(), DATA.as_ref()) else { return line.into() };
    if !secret.is_match(line) {
        return line.into();
    }
    let (mut out, mut at) = (String::with_capacity(line.len()), 0);
    for found in data.captures_iter(line) {
        let (Some(all), escapes) = (found.get(0), found.get(1).map_or(0, |it| it.len())) else { continue };
        if all.start() >= at {
            out.push_str(&line[at..all.end()]);
            out.push_str(GONE);
            at = all.end() + closing_brace(&line[all.end()..], escapes);
        }
    }
    out.push_str(&line[at..]);
    out.into()
}

/// Bytes up to the brace that closes a table of texts, whose quotes have so many backslashes before them.
fn closing_brace(text: &str, escapes: usize) -> usize {
    let (mut within, mut backslashes, mut depth) = (false, 0, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if backslashes == escapes => within = !within,
            '{' if !within => depth += 1,
            '}' if !within && depth == 0 => return at,
            '}' if !within => depth -= 1,
            _ => {}
        }
        backslashes = if letter == '\\' { backslashes + 1 } else { 0 };
    }
    text.trim_end_matches(['\n', '\r']).len()
}

impl Before {
    /// Whether the line is a part of a secret that began above it.
    fn is_within(&mut self, line: &str) -> bool {
        let (indent, blank) = (indent_of(line), line.trim().is_empty());
        if self.key {
            self.key = !ends_key(line);
            return true;
        }
        if let Some(fence) = self.fence {
            if line.contains(fence) {
                self.fence = None;
            }
            return true;
        }
        if let Some(outer) = self.block {
            if blank || indent > outer {
                return true;
            }
            self.block = None;
        }
        false
    }

    fn line(&mut self, line: &str, next: &str, of_secret: bool, out: &mut String) {
        if self.is_within(line) {
            return;
        }
        let (indent, blank) = (indent_of(line), line.trim().is_empty());
        if let Some(begin) = line.find("---- BEGIN").or_else(|| line.find("-----BEGIN")).filter(|_| begins_key(line)) {
            Scan::new(&line[..begin], out).run();
            out.push_str(GONE);
            out.push('\n');
            self.key = !ends_key(&line[begin..]);
            return;
        }
        if self.data.is_some_and(|outer| !blank && indent <= outer) {
            self.data = None;
        }
        if let Some(outer) = self.below.filter(|_| !blank) {
            let item = line.trim_start().strip_prefix("- ");
            if indent <= outer && !(indent == outer && item.is_some()) {
                self.below = None;
            } else if Key::of(line).is_none() && !line.trim().starts_with(['}', ']']) {
                let value = item.unwrap_or(line.trim_start());
                out.push_str(&line[..line.len() - value.len()]);
                if value.starts_with(['{', '[']) {
                    let (redacted, length) = collection::redacted(value);
                    out.push_str(&redacted);
                    out.push_str(&value[length..]);
                } else {
                    out.push_str(GONE);
                    out.push_str(ending_of(line));
                }
                return;
            }
        }
        match Key::of(line) {
            Some(key) => self.assignment(&key, (next, of_secret), indent, out),
            None if self.flag && !blank => {
                let start = line.find(|letter: char| letter.is_alphanumeric()).unwrap_or(line.len());
                out.push_str(&line[..start]);
                let end = start + line[start..].find(['"', '\'', '\n', ',']).unwrap_or(line.len() - start);
                out.push_str(GONE);
                out.push_str(&line[end..]);
                self.flag = false;
            }
            None if self.login && line.trim_start().starts_with("password ") => {
                let start = line.len() - line.trim_start().len() + "password ".len();
                out.push_str(&line[..start]);
                out.push_str(GONE);
                out.push_str(ending_of(line));
            }
            None => {
                Scan::new(&without_hash(line), out).run();
                self.flag = is_flag(line);
                let first = line.split_whitespace().next().unwrap_or_default();
                self.login = matches!(first, "machine" | "default" | "login" | "account") || (self.login && blank);
            }
        }
    }

    /// What stands below with more indent is secret from now on, if it is so.
    fn begin_below(&mut self, secret: bool, indent: usize) {
        if secret && self.data.is_none() && self.below.is_none() {
            self.below = Some(indent);
        }
    }

    /// A line that is a key and its value. `next`: the line behind it.
    fn assignment(&mut self, key: &Key<'_>, (next, of_secret): (&str, bool), indent: usize, out: &mut String) {
        let named_below =
            |next: &str| Key::of(next).is_some_and(|next| next.name == "name" && is_secret(plain(next.value)));
        let variable = key.name == "value" && (self.variable || named_below(next));
        let listed = self.passwords && key.name == "list";
        let header = key.name.to_ascii_lowercase().ends_with("authorization") && !has_open_scheme(key.value);
        let within = self.below.is_some() && !is_about(key.name);
        let secret = is_secret(key.name) || self.data.is_some() || variable || listed || header || within;
        out.push_str(key.head);
        let lead = tags(key.value);
        if !secret {
            out.push_str(&key.value[..lead]);
        }
        let key = &Key { value: &key.value[lead..], ..*key };
        let value = key.value.trim();
        self.passwords = key.name == "chpasswd" || (self.passwords && !listed);
        if of_secret && matches!(key.name, "data" | "stringData") {
            if value.is_empty() || value == "{" {
                self.data = Some(indent);
            } else if value.starts_with('{') {
                self.block = (!value.trim_end_matches(',').ends_with('}')).then_some(indent);
                out.push(' ');
                out.push_str(GONE);
                out.push_str(ending_of(key.value));
                return;
            }
        }
        self.variable = match key.name {
            "name" => is_secret(value.trim_matches(['"', '\''])),
            "value" => false,
            _ => self.variable,
        };
        let opens = value.strip_prefix(['|', '>']).is_some_and(|rest| {
            let sign = rest.split(" #").next().unwrap_or_default().trim_end();
            sign.bytes().all(|b| b"+-0123456789".contains(&b))
        });
        let ending = ending_of(key.value);
        let fence = ["\"\"\"", "'''"].into_iter().find(|fence| value.starts_with(fence));
        if let Some(fence) = fence.filter(|_| secret) {
            self.fence = (!value[fence.len()..].contains(fence)).then_some(fence);
            out.push(' ');
            out.push_str(GONE);
            out.push_str(ending);
        } else if secret && opens {
            self.block = Some(indent);
            out.push(' ');
            out.push_str(GONE);
            out.push_str(ending);
        } else if value.starts_with(['{', '[']) && (within || is_collection(key.name)) {
            let from = key.value.len() - key.value.trim_start().len();
            let (redacted, length) = collection::redacted(&key.value[from..]);
            out.push_str(&key.value[..from]);
            out.push_str(&redacted);
            // It may go on below.
            self.begin_below(matches!(value, "{" | "["), indent);
            Scan::new(&key.value[from + length..], out).run();
        } else if !secret || value.is_empty() || is_no_secret(key, value) {
            self.begin_below(is_collection(key.name) && value.is_empty(), indent);
            Scan::new(key.value, out).run();
        } else if value.starts_with(['{', '[', '*']) {
            Scan::of(key.name, key.value, out).run();
        } else if let Some(quote) = value.chars().next().filter(|first| matches!(first, '"' | '\'')) {
            // What stands behind the closing quote is another value, or a comment.
            let start = key.value.find(quote).unwrap_or(0) + 1;
            let end = start + closing(&key.value[start..], quote);
            // YAML goes on below, with more indent.
            self.block = (!key.value[end..].starts_with(quote)).then_some(indent);
            out.push_str(&key.value[..start]);
            out.push_str(GONE);
            Scan::new(&key.value[end..], out).run();
        } else {
            out.push_str(&key.value[..key.value.len() - key.value.trim_start().len()]);
            out.push_str(GONE);
            out.push_str(ending);
        }
    }
}

/// Whether a private key begins in this line.
fn begins_key(line: &str) -> bool {
    ["-----BEGIN", "---- BEGIN"].iter().any(|begin| line.contains(begin)) && line.contains("PRIVATE KEY")
}

fn ends_key(line: &str) -> bool {
    line.contains("-----END") || line.contains("---- END")
}

/// A line of `shadow` (shadow(5)) without the hash.
fn without_hash(line: &str) -> Cow<'_, str> {
    let fields: Vec<&str> = line.trim_end().split(':').collect();
    let number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    match fields.as_slice() {
        [name, hash, rest @ ..] if rest.len() == 7 && rest.iter().all(number) && hash.len() > 1 => {
            format!("{name}:{GONE}:{}{}", rest.join(":"), ending_of(line)).into()
        }
        _ => line.into(),
    }
}

/// Bytes of YAML's tags and anchors before a value: `!!str`, `&name`.
fn tags(value: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &value[at..];
        let word = rest.trim_start_matches([' ', '\t']);
        if !word.starts_with(['!', '&']) {
            return at;
        }
        let blank = rest.len() - word.len();
        at += blank + word.find(char::is_whitespace).unwrap_or(word.len());
    }
}

/// A value without its quotes and the comma behind it.
fn plain(value: &str) -> &str {
    value.trim().trim_matches(['"', '\'', ','])
}

fn ending_of(line: &str) -> &str {
    &line[line.trim_end_matches(['\n', '\r']).len()..]
}

/// Whether a value is not a secret although its name sounds like one: a switch, or the path of a key.
fn is_no_secret(key: &Key<'_>, value: &str) -> bool {
    let plain = plain(value);
    SWITCHES.contains(&plain) || (plain.starts_with('/') && key.name.to_ascii_lowercase().contains("key"))
}

/// A line that begins with a key: `password: x`, `- name: x`, `export TOKEN=x`, `"auth": "x"`.
struct Key<'a> {
    name: &'a str,
    /// All before the value, with its colon or equals sign.
    head: &'a str,
    value: &'a str,
}

impl<'a> Key<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut start = line.len() - line.trim_start().len();
        for before in ["- ", "export ", "set "] {
            if let Some(rest) = line[start..].strip_prefix(before) {
                start = line.len() - rest.trim_start().len();
            }
        }
        let quoted = line[start..].starts_with(['"', '\'']);
        let name_start = start + usize::from(quoted);
        let length = line[name_start..].find(|letter: char| !is_word(letter)).filter(|length| *length > 0)?;
        let name = &line[name_start..name_start + length];
        let behind = &line[name_start + length..];
        let behind = if quoted { behind.strip_prefix(['"', '\''])? } else { behind };
        let assigned = behind.trim_start_matches([' ', '\t']).strip_prefix([':', '='])?;
        // `https://...` and `10:15:03` are no keys; behind `a=b` and `--flag=x` there may be more.
        let apart = assigned.is_empty() || assigned.starts_with(char::is_whitespace);
        let is_key = !name.starts_with('-') && (apart || (quoted && !assigned.starts_with('/')));
        is_key.then(|| Self { name, head: &line[..line.len() - assigned.len()], value: assigned })
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Whether the line is a flag of a list whose value stands on the next.
fn is_flag(line: &str) -> bool {
    let word = line.trim().trim_start_matches("- ").trim_end_matches(',').trim_matches(['"', '\'']);
    word.starts_with('-') && !word.contains(['=', ' ']) && is_secret(word)
}
