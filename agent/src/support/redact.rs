//! Takes secrets out of text that leaves the box in a support bundle. The bundle names what goes in; this is the
//! second line: what a program may have written into a log or a manifest.

/// What stands in place of a secret.
const GONE: &str = "[redacted]";

/// Ends of names whose value is a secret.
const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "tokensha256",
    "apikey",
    "api-key",
    "api_key",
    "client-key-data",
    "private-key",
    "private_key",
    "privatekey",
    "credentials",
    "cookie",
    // The whole Site may stand on the kernel's command line.
    "foothold.site",
];

/// Values that are no secret under any name.
const SWITCHES: &[&str] = &["true", "false"];

/// base64 of `-----BEGIN `: this removes certificates, too, which nobody needs in a bundle.
const PEM_IN_BASE64: &str = "LS0tLS1CRUdJTi";

/// Takes the secrets out of a whole text.
pub(crate) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        if in_key {
            in_key = !line.contains("-----END");
            continue;
        }
        if let Some(begin) = line.find("-----BEGIN").filter(|at| line[*at..].contains("PRIVATE KEY")) {
            redact_line(&line[..begin], &mut out);
            out.push_str(GONE);
            out.push('\n');
            in_key = !line[begin..].contains("-----END");
            continue;
        }
        redact_line(line, &mut out);
    }
    out
}

fn redact_line(line: &str, out: &mut String) {
    let mut rest = line;
    let mut name = "";
    while !rest.is_empty() {
        let between = rest.find(is_word).unwrap_or(rest.len());
        let (separator, after) = rest.split_at(between);
        out.push_str(separator);
        if is_secret_of(name, separator) {
            rest = skip_value(separator, after, out);
            name = "";
            continue;
        }
        let end = after.find(|letter| !is_word(letter)).unwrap_or(after.len());
        let (word, next) = after.split_at(end);
        if is_secret_word(word) {
            out.push_str(GONE);
        } else if let Some(next) = skip_user(word, next, out) {
            rest = next;
            name = "";
            continue;
        } else {
            out.push_str(word);
        }
        name = word;
        rest = next;
    }
}

const fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | '+')
}

/// Whether what follows `name` and the `separator` is that name's value, and secret.
fn is_secret_of(name: &str, separator: &str) -> bool {
    let lower = name.trim_start_matches('-').to_ascii_lowercase();
    if lower == "bearer" || lower == "basic" {
        return separator == " ";
    }
    let assigns = separator.contains([':', '=']) && separator.chars().all(|c| "\\\"':= \t".contains(c));
    assigns && SECRET_NAMES.iter().any(|secret| lower.ends_with(secret))
}

/// Leaves a value out: up to the closing quote, or up to the next blank. Gives what follows.
fn skip_value<'a>(separator: &str, value: &'a str, out: &mut String) -> &'a str {
    let quote = separator.chars().next_back().filter(|last| matches!(last, '"' | '\''));
    let end = match quote {
        Some(quote) => value.find(quote),
        None => value.find(|c: char| c.is_whitespace() || matches!(c, ',' | '&' | ';' | '"' | '\'')),
    };
    let (value, next) = value.split_at(end.unwrap_or(value.len()));
    if SWITCHES.contains(&value) {
        // `--use-service-account-credentials=true` is a setting, not a secret.
        out.push_str(value);
    } else if !value.is_empty() {
        // An escaped quote (JSON in a log line) keeps its backslash.
        out.push_str(GONE);
        if value.ends_with('\\') {
            out.push('\\');
        }
    }
    next
}

/// `https://user:password@host`: leaves out what stands before the `@`. Gives what follows it.
fn skip_user<'a>(scheme: &str, after: &'a str, out: &mut String) -> Option<&'a str> {
    let authority = after.strip_prefix("://")?;
    let end = authority.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(authority.len());
    let at = authority[..end].rfind('@')?;
    out.push_str(scheme);
    out.push_str("://");
    out.push_str(GONE);
    Some(&authority[at..])
}

/// Words that look like a secret: JSON web tokens, keys in base64, bootstrap tokens.
fn is_secret_word(word: &str) -> bool {
    let jwt = word.len() > 40 && word.starts_with("eyJ") && word.bytes().filter(|byte| *byte == b'.').count() == 2;
    let lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bootstrap = word
        .split_once('.')
        .is_some_and(|(id, secret)| id.len() == 6 && secret.len() == 16 && lower(id) && lower(secret));
    jwt || bootstrap || word.starts_with(PEM_IN_BASE64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};
    use rstest::rstest;

    use super::redact;

    #[rstest]
    #[case::yaml("    client-key-data: LS0tLS1CRUdJTiBFQyBQ\n", "    client-key-data: [redacted]\n")]
    #[case::certificate("ca: LS0tLS1CRUdJTiBDRVJU==", "ca: [redacted]==")]
    #[case::json(r#"{"password": "a b, c", "user": "x"}"#, r#"{"password": "[redacted]", "user": "x"}"#)]
    #[case::escaped(r#"msg="{\"token\":\"abc\"}""#, r#"msg="{\"token\":\"[redacted]\"}""#)]
    #[case::flag("--bootstrap-token=abc --v=2", "--bootstrap-token=[redacted] --v=2")]
    #[case::switch("--use-service-account-credentials=true x", "--use-service-account-credentials=true x")]
    #[case::file("--token-auth-file=/etc/x", "--token-auth-file=/etc/x")]
    #[case::header("Authorization: Bearer abc.def x", "Authorization: Bearer [redacted] x")]
    #[case::url("proxy https://joe:pw@proxy:3128/ on", "proxy https://[redacted]@proxy:3128/ on")]
    #[case::plain_url("GET https://198.18.0.1:6443/readyz", "GET https://198.18.0.1:6443/readyz")]
    #[case::bootstrap("using abcdef.0123456789abcdef now", "using [redacted] now")]
    #[case::jwt("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl!", "got [redacted]!")]
    #[case::command_line(
        "quiet foothold.site=YWJj foothold.mode=safe",
        "quiet foothold.site=[redacted] foothold.mode=safe"
    )]
    #[case::volume("      secret:\n        secretName: coredns\n", "      secret:\n        secretName: coredns\n")]
    #[case::prose("the token expired at 10:00", "the token expired at 10:00")]
    #[case::key(
        "a\n-----BEGIN EC PRIVATE KEY-----\nMHcC\nAAAA\n-----END EC PRIVATE KEY-----\nb\n",
        "a\n[redacted]\nb\n"
    )]
    #[case::cut_off_key("x -----BEGIN PRIVATE KEY-----\nMHcC\n", "x [redacted]\n")]
    fn secrets_go_and_the_rest_stays(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(redact(text), expected);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it_and_no_password_stays(text in any::<String>(), word in "[A-Za-z0-9]{12}") {
            let _ = redact(&text);
            let told = redact(&format!("password: {word}\n"));
            prop_assert!(!told.contains(&word));
        }
    }
}
