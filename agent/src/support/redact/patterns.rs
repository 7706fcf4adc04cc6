//! What looks like a secret, in any form that programs write: assignments, flags, headers, keys, YAML over several lines.

use super::GONE;
use super::names::is_secret;

/// Values that are no secret under any name.
const SWITCHES: &[&str] = &["true", "false", "null", "none", "nil", "~"];
/// base64 of `-----BEGIN `: this removes certificates, too, which nobody needs in a bundle.
const PEM_IN_BASE64: &str = "LS0tLS1CRUdJTi";
/// Beginnings of tokens that large services give, with the least that follows.
const TOKENS: &[(&str, usize)] = &[
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AIza", 30),
    ("npm_", 30),
    ("sk-", 20),
    ("hvs.", 20),
    ("dop_v1_", 20),
    ("AGE-SECRET-KEY-", 20),
    ("dckr_pat_", 16),
    ("K10", 40),
];

/// What the lines before this one say of it.
#[derive(Default)]
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
}

/// Takes the secrets out of a whole text.
pub(super) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let is_secret_object =
        |document: &str| document.lines().any(|line| matches!(line.trim(), "kind: Secret" | "kind: \"Secret\""));
    for document in documents(text) {
        let (mut before, holds) = (Before::default(), is_secret_object(document));
        for line in document.split_inclusive('\n') {
            before.line(line, holds, &mut out);
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

impl Before {
    fn line(&mut self, line: &str, of_secret: bool, out: &mut String) {
        if self.key {
            self.key = !line.contains("-----END");
            return;
        }
        let (indent, blank) = (indent_of(line), line.trim().is_empty());
        if let Some(outer) = self.block {
            if blank || indent > outer {
                return;
            }
            self.block = None;
        }
        if let Some(begin) = line.find("-----BEGIN").filter(|at| line[*at..].contains("PRIVATE KEY")) {
            Scan::new(&line[..begin], out).run();
            out.push_str(GONE);
            out.push('\n');
            self.key = !line[begin..].contains("-----END");
            return;
        }
        if self.data.is_some_and(|outer| !blank && indent <= outer) {
            self.data = None;
        }
        match Key::of(line) {
            Some(key) => self.assignment(&key, of_secret, indent, out),
            None if self.flag && !blank => {
                let start = line.find(|letter: char| letter.is_alphanumeric()).unwrap_or(line.len());
                out.push_str(&line[..start]);
                let end = start + line[start..].find(['"', '\'', '\n', ',']).unwrap_or(line.len() - start);
                out.push_str(GONE);
                out.push_str(&line[end..]);
                self.flag = false;
            }
            None => {
                Scan::new(line, out).run();
                self.flag = is_flag(line);
            }
        }
    }

    /// A line that is a key and its value.
    fn assignment(&mut self, key: &Key<'_>, of_secret: bool, indent: usize, out: &mut String) {
        let secret = is_secret(key.name) || self.data.is_some() || (self.variable && key.name == "value");
        let value = key.value.trim();
        out.push_str(key.head);
        if of_secret && matches!(key.name, "data" | "stringData") && value.is_empty() {
            self.data = Some(indent);
        }
        self.variable = match key.name {
            "name" => is_secret(value.trim_matches(['"', '\''])),
            "value" => false,
            _ => self.variable,
        };
        let opens =
            value.strip_prefix(['|', '>']).is_some_and(|rest| rest.bytes().all(|b| b"+-0123456789".contains(&b)));
        let ending = &key.value[key.value.trim_end_matches(['\n', '\r']).len()..];
        if secret && opens {
            self.block = Some(indent);
            out.push(' ');
            out.push_str(GONE);
            out.push_str(ending);
        } else if !secret || value.is_empty() || is_no_secret(key, value) {
            Scan::new(key.value, out).run();
        } else if value.starts_with(['{', '[', '&', '*', '!']) {
            Scan::of(key.name, key.value, out).run();
        } else if let Some(quote) = value.chars().next().filter(|first| matches!(first, '"' | '\'')) {
            // What stands behind the closing quote is another value, or a comment.
            let start = key.value.find(quote).unwrap_or(0) + 1;
            let end = start + closing(&key.value[start..], quote);
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

/// Whether the value of a name that sounds like a secret's is none: a switch, or where a key lies.
fn is_no_secret(key: &Key<'_>, value: &str) -> bool {
    let plain = value.trim_matches(['"', '\'', ',']);
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

const fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '+')
}

/// Bytes up to the closing quote, which a backslash before it does not close.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return at,
            _ => {}
        }
    }
    text.trim_end_matches(['\n', '\r']).len()
}

/// Goes through a line word by word.
struct Scan<'a, 'b> {
    rest: &'a str,
    out: &'b mut String,
    /// The word before, and the one before that.
    name: &'a str,
    before: &'a str,
    /// The first word: which program's arguments these may be.
    programs: Vec<&'a str>,
    /// A variable was named whose value is a secret.
    variable: bool,
}

impl<'a, 'b> Scan<'a, 'b> {
    fn new(rest: &'a str, out: &'b mut String) -> Self {
        Self::of("", rest, out)
    }

    /// What follows this name.
    fn of(name: &'a str, rest: &'a str, out: &'b mut String) -> Self {
        Self { rest, out, name, before: "", programs: Vec::new(), variable: false }
    }

    fn run(mut self) {
        while !self.rest.is_empty() {
            let between = self.rest.find(is_word).unwrap_or(self.rest.len());
            let (separator, after) = self.rest.split_at(between);
            self.out.push_str(separator);
            if let Some(end) = self.value(separator, after) {
                self.leave_out(&after[..end]);
                self.rest = &after[end..];
                (self.before, self.name) = ("", "");
                continue;
            }
            let end = after.find(|letter| !is_word(letter)).unwrap_or(after.len());
            let (word, next) = after.split_at(end);
            if let Some(hash) = self.crypt_hash(separator, after) {
                // The sign before it stands in the text already.
                self.rest = &after[hash..];
                continue;
            }
            if is_secret_word(word) {
                self.out.push_str(GONE);
            } else if let Some(next) = self.skip_user(word, next) {
                self.rest = next;
                (self.before, self.name) = ("", "");
                continue;
            } else {
                self.out.push_str(word);
            }
            if self.before == "name" || self.name == "name" {
                self.variable |= is_secret(word) && assigns(separator);
            }
            if matches!(word, "ipmitool" | "curl" | "wget" | "sshpass" | "mysql" | "redis-cli" | "machine") {
                self.programs.push(word);
            }
            (self.before, self.name, self.rest) = (self.name, word, next);
        }
    }

    /// Length of the secret value that follows the separator.
    fn value(&mut self, separator: &str, after: &str) -> Option<usize> {
        let lower = self.name.to_ascii_lowercase();
        let blank = !separator.is_empty() && separator.chars().all(|letter| letter == ' ' || letter == '\t');
        let listed = separator.contains(',') && separator.chars().all(|letter| "\\\"', \t".contains(letter));
        if (lower == "bearer" || lower == "basic" || lower == "digest") && blank {
            return Some(end_of(separator, after));
        }
        if lower == "cookie" || lower == "set-cookie" {
            return (separator.starts_with(':')).then(|| after.trim_end_matches(['\n', '\r']).len());
        }
        if self.variable && lower == "value" && assigns(separator) {
            self.variable = false;
            return Some(end_of(separator, after));
        }
        let flag = self.name.starts_with('-') && is_secret(self.name) && (blank || listed) && !after.starts_with('-');
        let is = |program: &str| self.programs.contains(&program);
        let of_program = match self.name {
            "-P" => is("ipmitool"),
            "-p" => is("sshpass"),
            "-a" => is("redis-cli"),
            "-u" | "--user" => {
                (is("curl") || is("wget")) && after.split_whitespace().next().is_some_and(|it| it.contains(':'))
            }
            "password" => is("machine"),
            _ => false,
        };
        if flag || (of_program && (blank || listed)) {
            return Some(end_of(separator, after));
        }
        (assigns(separator) && is_secret(self.name)).then(|| end_of(separator, after))
    }

    fn leave_out(&mut self, value: &str) {
        let plain = value.trim_matches(['"', '\'']);
        let of_key = plain.starts_with('/') && self.name.to_ascii_lowercase().contains("key");
        if SWITCHES.contains(&plain) || of_key {
            // `--use-service-account-credentials=true` is a setting, not a secret.
            self.out.push_str(value);
        } else if !value.is_empty() {
            // An escaped quote (JSON in a log line) keeps its backslash.
            self.out.push_str(GONE);
            if value.ends_with('\\') {
                self.out.push('\\');
            }
        }
    }

    /// `$6$salt$hash` and the like, as crypt(5) has them.
    fn crypt_hash(&mut self, separator: &str, after: &str) -> Option<usize> {
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ':')).unwrap_or(after.len());
        let kinds = ["1", "2a", "2b", "2y", "5", "6", "7", "y", "gy", "argon2id", "pbkdf2-sha512"];
        let (kind, rest) = after[..end].split_once('$')?;
        (separator.ends_with('$') && kinds.contains(&kind) && rest.len() > 12).then(|| {
            self.out.push_str(GONE);
            end
        })
    }

    /// `https://user:password@host`: leaves out what stands before the `@`. Gives what follows it.
    fn skip_user(&mut self, scheme: &str, after: &'a str) -> Option<&'a str> {
        let authority = after.strip_prefix("://")?;
        let end =
            authority.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(authority.len());
        let at = authority[..end].rfind('@')?;
        self.out.push_str(scheme);
        self.out.push_str("://");
        self.out.push_str(GONE);
        Some(&authority[at..])
    }
}

/// Whether what stands between a name and what follows makes that its value.
fn assigns(separator: &str) -> bool {
    separator.contains([':', '=', '>']) && separator.chars().all(|c| "\\\"':=> \t".contains(c))
}

/// End of a value: its closing quote, or the next blank or sign that ends one.
fn end_of(separator: &str, value: &str) -> usize {
    match separator.chars().next_back().filter(|last| matches!(last, '"' | '\'')) {
        // Within an escaped text the closing quote has a backslash before it, which stays.
        Some(quote) if separator.ends_with(&format!("\\{quote}")) => {
            value.find(&format!("\\{quote}")).unwrap_or_else(|| value.find(quote).unwrap_or(value.len()))
        }
        Some(quote) => closing(value, quote),
        None => {
            let ends = |c: char| c.is_whitespace() || matches!(c, ',' | '&' | ';' | '"' | '\'' | '<' | ']' | '}' | ')');
            value.find(ends).unwrap_or(value.len())
        }
    }
}

/// Words that look like a secret: JSON web tokens, keys in base64, bootstrap tokens, tokens of large services.
fn is_secret_word(word: &str) -> bool {
    let jwt = word.len() > 40 && word.starts_with("eyJ") && word.bytes().filter(|byte| *byte == b'.').count() == 2;
    let lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bootstrap = word
        .split_once('.')
        .is_some_and(|(id, secret)| id.len() == 6 && secret.len() == 16 && lower(id) && lower(secret));
    let given = TOKENS.iter().any(|(begin, least)| word.strip_prefix(begin).is_some_and(|rest| rest.len() >= *least));
    jwt || bootstrap || given || word.starts_with(PEM_IN_BASE64)
}
