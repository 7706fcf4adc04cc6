//! A line, word by word: flags, headers, URLs, arguments of programs, JSON within a text, and words that are secrets
//! themselves.

use super::GONE;
use super::collection;
use super::names::{is_collection, is_secret};
use super::programs::{self, Place};

/// Values that are no secret under any name.
pub(super) const SWITCHES: &[&str] = &["true", "false", "null", "none", "nil", "~"];
/// How a request may say who it is, before the secret.
const SCHEMES: &[&str] = &["bearer", "basic", "digest"];
/// base64 of `-----BEGIN `: this removes certificates, too, which nobody needs in a bundle.
const PEM_IN_BASE64: &str = "LS0tLS1CRUdJTi";
/// Beginnings of tokens that large services give, with the least that follows.
const TOKENS: &[(&str, usize)] = &[
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xapp-", 10),
    ("SG.", 40),
    ("pypi-", 20),
    ("hf_", 20),
    ("shpat_", 20),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("glrt-", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("sk-", 20),
    ("hvs.", 20),
    ("dop_v1_", 20),
    ("AGE-SECRET-KEY-", 20),
    ("dckr_pat_", 16),
    ("K10", 40),
    ("hooks.slack.com/services/", 20),
];
/// Schemes before a hash of LDAP and of htpasswd (RFC 3112): `{SSHA}...`.
const HASHES: &[&str] = &["SHA", "SSHA", "SHA256", "SSHA256", "SHA512", "SSHA512", "MD5", "SMD5", "CRYPT"];

pub(super) const fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '+')
}

/// Bytes up to the closing quote, which a backslash before it does not close.
pub(super) fn closing(text: &str, quote: char) -> usize {
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
#[expect(clippy::struct_excessive_bools, reason = "each is something that stood before the word")]
pub(super) struct Scan<'a, 'b> {
    rest: &'a str,
    out: &'b mut String,
    /// The word before, and the one before that.
    name: &'a str,
    before: &'a str,
    /// The first word: which program's arguments these may be.
    programs: Vec<&'a str>,
    /// A variable was named whose value is a secret.
    variable: bool,
    /// Within an element of XML that is a secret's, before its text.
    element: bool,
    /// What is echoed goes to a program that sets passwords.
    sets_passwords: bool,
    /// The quote right before the word before: it may end its value, too (`"PASSWORD=a b"`).
    quote: Option<char>,
    /// A blank stands between the last two words.
    blank: bool,
    /// How many words there were.
    words: usize,
}

impl<'a, 'b> Scan<'a, 'b> {
    pub(super) fn new(rest: &'a str, out: &'b mut String) -> Self {
        Self::of("", rest, out)
    }

    /// What follows this name.
    pub(super) fn of(name: &'a str, rest: &'a str, out: &'b mut String) -> Self {
        let sets_passwords = ["chpasswd", "passwd --stdin"].iter().any(|program| rest.contains(program));
        Self {
            rest,
            out,
            name,
            before: "",
            programs: Vec::new(),
            variable: false,
            element: false,
            sets_passwords,
            quote: None,
            blank: false,
            words: 0,
        }
    }

    pub(super) fn run(mut self) {
        while !self.rest.is_empty() {
            let between = self.rest.find(is_word).unwrap_or(self.rest.len());
            let (separator, after) = self.rest.split_at(between);
            if let Some(from) = self.collection(separator) {
                self.out.push_str(&self.rest[..from]);
                let (redacted, length) = collection::redacted(&self.rest[from..]);
                self.out.push_str(&redacted);
                self.rest = &self.rest[from + length..];
                (self.before, self.name) = ("", "");
                continue;
            }
            self.out.push_str(separator);
            if let Some(end) = self.value(separator, after) {
                self.leave_out(&after[..end]);
                self.rest = &after[end..];
                (self.before, self.name) = ("", "");
                continue;
            }
            if let Some((flag, end)) = self.glued(after) {
                self.out.push_str(&after[..flag]);
                self.leave_out(&after[flag..end]);
                self.rest = &after[end..];
                continue;
            }
            let end = after.find(|letter| !is_word(letter)).unwrap_or(after.len());
            let (word, next) = after.split_at(end);
            self.element = (separator.ends_with('<') && is_secret(word)) || (self.element && !separator.contains('<'));
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
            if [self.before, self.name].iter().any(|name| ["name", "key"].contains(name)) {
                self.variable |= is_secret(word) && assigns(separator);
            }
            let program = word.rsplit('/').next().unwrap_or(word);
            if programs::is_program(program) {
                self.programs.push(program);
            }
            self.quote = separator.chars().next_back().filter(|last| matches!(last, '"' | '\''));
            self.blank = separator == " ";
            self.words += 1;
            (self.before, self.name, self.rest) = (self.name, word, next);
        }
    }

    /// Where a list or table begins that is the value of the word before, which is a secret's name.
    fn collection(&self, separator: &str) -> Option<usize> {
        let from = separator.find(['{', '['])?;
        (is_collection(self.name) && assigns(&separator[..from])).then_some(from)
    }

    /// Length of the secret value that follows the separator.
    fn value(&mut self, separator: &str, after: &str) -> Option<usize> {
        let line = after.trim_end_matches(['\n', '\r']).len();
        let lower = self.name.to_ascii_lowercase();
        let blank = !separator.is_empty() && separator.chars().all(|letter| letter == ' ' || letter == '\t');
        let listed = separator.contains(',') && separator.chars().all(|letter| "\\\"', \t".contains(letter));
        let quoted = separator.trim_end_matches(['"', '\'']);
        let quoted = quoted.len() < separator.len() && !quoted.is_empty() && quoted.trim().is_empty();
        if SCHEMES.contains(&lower.as_str()) && blank {
            // The hash stands among other parts.
            return Some(if lower == "digest" { line } else { end_of(separator, after) });
        }
        if lower.ends_with("authorization") && assigns(separator) && !has_open_scheme(after) {
            return Some(after.find(['"', '\'', '\n', '\r']).unwrap_or(after.len()));
        }
        if (lower == "cookie" || lower == "set-cookie") && separator.starts_with(':') {
            return Some(line);
        }
        if self.element && separator.contains('>') {
            self.element = false;
            return Some(after.find('<').unwrap_or(after.len()));
        }
        if lower == "value" && assigns(separator) {
            let end = end_of(separator, after);
            if std::mem::take(&mut self.variable) || is_named_secret(&after[end..]) {
                return Some(end);
            }
        }
        let flag = (self.name.starts_with('-') && is_secret(self.name) || self.name == "--from-literal")
            && (blank || listed || quoted)
            && !after.starts_with('-');
        if flag
            || self.place().is_argument(after, blank || listed || quoted, separator == "=")
            || self.is_told(separator, after)
        {
            return Some(end_of(separator, after));
        }
        if separator == "}" && HASHES.contains(&self.name) {
            return Some(end_of("", after));
        }
        self.is_named(separator).then(|| self.end_of_assigned(separator, after))
    }

    /// Whether the words before name a secret, and the separator makes what follows its value.
    fn is_named(&self, separator: &str) -> bool {
        let both = self.blank && ["key", "string"].contains(&self.name.to_ascii_lowercase().as_str());
        let named = is_secret(self.name)
            || (self.name == "--from-literal")
            || (both && is_secret(&format!("{}-{}", self.before, self.name)));
        named && assigns(separator)
    }

    /// End of an assigned value: that of the quotes around name and value, or of a line that is nothing else.
    fn end_of_assigned(&self, separator: &str, after: &str) -> usize {
        if let Some(quote) = self.quote.filter(|_| separator == "=") {
            return closing(after, quote);
        }
        let first = self.words == 1 || (self.words == 2 && ["export", "set"].contains(&self.before));
        let line = after.trim_end_matches(['\n', '\r']);
        let alone = first
            && separator == "="
            && !self.name.starts_with('-')
            && !line.contains(['=', '"', '\'', '&', ';', '|', ',']);
        if alone { line.len() } else { end_of(separator, after) }
    }

    /// Whether the words before say that a secret follows, in other ways than by a name and a sign.
    fn is_told(&self, separator: &str, after: &str) -> bool {
        let blank = !separator.is_empty() && separator.trim_matches([' ', '\t', '"', '\'']).is_empty();
        match self.name {
            "is" => is_secret(self.before) && assigns(separator),
            "echo" => self.sets_passwords && blank,
            // BIND's `secret "...";`
            "secret" => blank && separator.ends_with('"') && after[end_of(separator, after)..].starts_with("\";"),
            name => self.before == "ENV" && is_secret(name) && blank,
        }
    }

    /// A flag and the secret right behind it (`-pX`): where the flag ends, and where the secret does.
    fn glued(&self, after: &str) -> Option<(usize, usize)> {
        self.place().glued(after, |behind| end_of("", behind))
    }

    fn place(&self) -> Place<'_> {
        Place { programs: &self.programs, name: self.name, before: self.before }
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
        let kinds = [
            "1",
            "2a",
            "2b",
            "2x",
            "2y",
            "3",
            "5",
            "6",
            "7",
            "y",
            "gy",
            "apr1",
            "md5",
            "sha1",
            "argon2d",
            "argon2i",
            "argon2id",
            "scrypt",
            "pbkdf2",
            "pbkdf2-sha256",
            "pbkdf2-sha512",
            "bcrypt-sha256",
        ];
        let (kind, rest) = after[..end].split_once('$')?;
        (separator.ends_with('$') && kinds.contains(&kind) && rest.len() > 12).then(|| {
            self.out.push_str(GONE);
            end
        })
    }

    /// `https://user:password@host`: leaves out what stands before the `@`. Gives what follows it.
    fn skip_user(&mut self, scheme: &str, after: &'a str) -> Option<&'a str> {
        let authority = after.strip_prefix("://")?;
        let end = authority.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(authority.len());
        let slash = authority[..end].find('/').unwrap_or(end);
        let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let at = authority[..slash].rfind('@').or_else(|| {
            // A password with a slash in it: what stands behind the colon is no port.
            let (_, behind) = authority[..slash].split_once(':').filter(|(_, behind)| !port(behind))?;
            (!behind.ends_with(']')).then(|| authority[..end].rfind('@'))?
        })?;
        self.out.push_str(scheme);
        self.out.push_str("://");
        self.out.push_str(GONE);
        Some(&authority[at..])
    }
}

/// Whether a header's value begins with a word that says how the secret behind it is to be read.
pub(super) fn has_open_scheme(value: &str) -> bool {
    let first = value.split_whitespace().next().unwrap_or_default().trim_start_matches(['"', '\'']);
    SCHEMES.iter().any(|scheme| first.eq_ignore_ascii_case(scheme))
}

/// Whether a `name` follows in JSON, and is that of a secret.
fn is_named_secret(rest: &str) -> bool {
    let quotes = ['"', '\\', ',', ' '];
    let Some(name) = rest.trim_start_matches(quotes).strip_prefix("name") else { return false };
    let name = name.trim_start_matches(['"', '\\', ':', ' ']);
    is_secret(name.split(|letter| !is_word(letter)).next().unwrap_or_default())
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
            // Python's `b'...'` and `u'...'`.
            let of_python = value.strip_prefix(['b', 'u']).and_then(|rest| rest.chars().next());
            if let Some(quote) = of_python.filter(|letter| matches!(letter, '"' | '\'')) {
                return 2 + closing(&value[2..], quote);
            }
            let ends = |c: char| c.is_whitespace() || matches!(c, ',' | '&' | ';' | '"' | '\'' | '<' | ']' | '}' | ')');
            value.find(ends).unwrap_or(value.len())
        }
    }
}

/// Words that look like a secret: JSON web tokens, keys in base64, bootstrap tokens, tokens of large services.
fn is_secret_word(word: &str) -> bool {
    let jwt = word.len() > 40 && word.starts_with("eyJ") && [2, 4].contains(&word.matches('.').count());
    let lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bootstrap = word
        .split_once('.')
        .is_some_and(|(id, secret)| id.len() == 6 && secret.len() == 16 && lower(id) && lower(secret));
    let given = TOKENS.iter().any(|(begin, least)| {
        word.trim_start_matches('/').strip_prefix(begin).is_some_and(|rest| rest.len() >= *least)
    });
    jwt || bootstrap || given || word.starts_with(PEM_IN_BASE64)
}
