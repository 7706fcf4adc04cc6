//! A line, word by word: flags, headers, URLs, arguments of programs, JSON within a text, and words that are secrets
//! themselves.

use super::GONE;
use super::names::is_secret;

/// Values that are no secret under any name.
pub(super) const SWITCHES: &[&str] = &["true", "false", "null", "none", "nil", "~"];
/// How a request may say who it is, before the secret.
const SCHEMES: &[&str] = &["bearer", "basic", "digest"];
/// Programs that take a secret right behind the letter of a flag, or in the word after it.
const FLAGS: &[(&str, &[&str])] = &[
    ("-P", &["ipmitool"]),
    ("-a", &["redis-cli"]),
    ("-p", &["sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb"]),
    ("-u", &["curl", "wget"]),
    ("-w", &["ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami"]),
];
/// Other programs whose arguments are looked at.
const PROGRAMS: &[&str] = &["machine", "login", "echo"];
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
];

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
}

impl<'a, 'b> Scan<'a, 'b> {
    pub(super) fn new(rest: &'a str, out: &'b mut String) -> Self {
        Self::of("", rest, out)
    }

    /// What follows this name.
    pub(super) fn of(name: &'a str, rest: &'a str, out: &'b mut String) -> Self {
        let sets_passwords = ["chpasswd", "passwd --stdin"].iter().any(|program| rest.contains(program));
        Self { rest, out, name, before: "", programs: Vec::new(), variable: false, element: false, sets_passwords }
    }

    pub(super) fn run(mut self) {
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
            if self.before == "name" || self.name == "name" {
                self.variable |= is_secret(word) && assigns(separator);
            }
            let program = word.rsplit('/').next().unwrap_or(word);
            if PROGRAMS.contains(&program) || FLAGS.iter().any(|(_, programs)| programs.contains(&program)) {
                self.programs.push(program);
            }
            (self.before, self.name, self.rest) = (self.name, word, next);
        }
    }

    /// Length of the secret value that follows the separator.
    fn value(&mut self, separator: &str, after: &str) -> Option<usize> {
        let lower = self.name.to_ascii_lowercase();
        let blank = !separator.is_empty() && separator.chars().all(|letter| letter == ' ' || letter == '\t');
        let listed = separator.contains(',') && separator.chars().all(|letter| "\\\"', \t".contains(letter));
        let quoted = separator.trim_end_matches(['"', '\'']);
        let quoted = quoted.len() < separator.len() && !quoted.is_empty() && quoted.trim().is_empty();
        if SCHEMES.contains(&lower.as_str()) && blank {
            return Some(end_of(separator, after));
        }
        if lower.ends_with("authorization") && assigns(separator) && !has_open_scheme(after) {
            return Some(after.find(['"', '\'', '\n', '\r']).unwrap_or(after.len()));
        }
        if lower == "cookie" || lower == "set-cookie" {
            return (separator.starts_with(':')).then(|| after.trim_end_matches(['\n', '\r']).len());
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
        let flag = self.name.starts_with('-')
            && is_secret(self.name)
            && (blank || listed || quoted)
            && !after.starts_with('-');
        if flag || self.is_argument(separator, after, blank || listed || quoted) {
            return Some(end_of(separator, after));
        }
        let told = is_secret(self.before) && lower == "is" && assigns(separator);
        if told || (self.before == "ENV" && is_secret(self.name) && blank) {
            return Some(end_of(separator, after));
        }
        (assigns(separator) && is_secret(self.name)).then(|| end_of(separator, after))
    }

    /// Whether what follows is an argument that a program of this line takes for a secret. `apart`: it is a word of its own.
    fn is_argument(&self, separator: &str, after: &str, apart: bool) -> bool {
        let is = |program: &str| self.programs.contains(&program);
        let known = FLAGS.iter().find(|(flag, _)| *flag == self.name || (*flag == "-u" && self.name == "--user"));
        if let Some((flag, programs)) = known
            && programs.iter().any(|program| is(program))
        {
            let both = *flag != "-u" || after.split_whitespace().next().is_some_and(|it| it.contains(':'));
            // MySQL asks for a password that does not stand right behind `-p`.
            let alone = *flag != "-p" || is("sshpass");
            return both && alone && (apart || (separator == "=" && self.name.starts_with("--")));
        }
        match self.name {
            "-p" => is("login") && apart,
            "password" => is("machine") && apart,
            "rocommunity" | "rwcommunity" => apart,
            "echo" => self.sets_passwords && apart,
            // BIND's `secret "...";`
            "secret" => apart && separator.ends_with('"') && after[end_of(separator, after)..].starts_with("\";"),
            // `ipmitool user set password 2 ...`
            number => {
                let of_user = self.before == "password" && number.bytes().all(|byte| byte.is_ascii_digit());
                of_user && is("ipmitool") && apart
            }
        }
    }

    /// A flag and the secret right behind it (`-pX`): where the flag ends, and where the secret does.
    fn glued(&self, after: &str) -> Option<(usize, usize)> {
        let (flag, programs) = FLAGS.iter().find(|(flag, _)| after.starts_with(flag))?;
        let behind = &after[flag.len()..];
        let end = end_of("", behind);
        let both = *flag != "-u" || behind[..end].contains(':');
        let known = programs.iter().any(|program| self.programs.contains(program));
        (known && both && end > 0).then_some((flag.len(), flag.len() + end))
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
        let end =
            authority.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(authority.len());
        let at = authority[..end].rfind('@')?;
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
