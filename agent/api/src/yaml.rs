//! How much YAML is read at once: bounds by bytes and depth that the field fits in, none by how many hosts there are.
//!
//! ```text
//! text ─► options(text): as large as the text allows ─► reader ─► told(error): a bound in words, else place and kind
//!      └───────────────────────────── read: all of it ────────────────────────────┘   (with_lines: the reader's own)
//! ```
//! The reader's own bounds count documents, values and aliases: a thousand hosts with their Secrets, or three hundred with
//! their inventories as `kubectl get -o yaml` prints them, break those. What must not happen is that little text becomes much
//! memory. So values are bounded by the text's length, and what anchors and aliases make of it by a fixed size.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{
    Error, MessageFormatter, Options, SnippetMode, UserMessageFormatter, budget, options, render_options,
};

/// Most bytes of texts in a file, with all that aliases repeat: some ten thousand hosts with their inventories.
pub const MOST_BYTES: usize = 64 << 20;
/// Lists and tables within each other: objects of Kubernetes have 20 or so.
pub const DEPTH: usize = 64;
/// Values of any text, however short: what anchors and aliases may make of it.
const VALUES: usize = 250_000;
/// Bytes of text for each value beyond that. Real files have 20 or more.
const BYTES_OF_VALUE: usize = 4;
/// Letters of a key that messages show: names of labels and of Secrets' keys have at most 63.
const LONGEST_KEY: usize = 63;

/// Options for reading this text; `strict_booleans` and the like are the caller's to set.
pub fn options(text: &str) -> Options {
    let values = VALUES + text.len() / BYTES_OF_VALUE;
    options! {
        budget: budget! {
            max_depth: DEPTH,
            max_nodes: values,
            max_events: values * 4,
            max_documents: values,
            max_anchors: values,
            max_aliases: values,
            max_merge_keys: values,
            max_recorded_anchor_events: values * 2,
            max_total_scalar_bytes: MOST_BYTES,
            // One Secret for all hosts is one anchor and as many aliases as there are hosts.
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// Reads a text within these bounds.
///
/// # Errors
/// What is wrong, as [`told`] says it.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, options(text)).map_err(|error| told(&error))
}

/// What is wrong, in words, with the place. No value and no line of the text is in it: texts hold passwords and keys.
pub fn told(error: &Error) -> String {
    let options = render_options! { formatter: &Discreet, snippets: SnippetMode::Off };
    bound(error).unwrap_or_else(|| error.render_with_options(options))
}

/// The same with the lines around the place and the value that stands there, for texts that never hold a secret: definitions,
/// recipes, settings.
pub fn told_with_lines(error: &Error) -> String {
    // The words for developers name options of the reader.
    bound(error).unwrap_or_else(|| error.render_with_formatter(&UserMessageFormatter))
}

/// The bound that a text goes beyond, in words.
fn bound(error: &Error) -> Option<String> {
    let mut inner = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = inner {
        inner = error;
    }
    let line = error.location().map_or_else(String::new, |at| format!("line {}: ", at.line()));
    match inner {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            Some(format!("{line}found lists and tables within each other, expected at most {DEPTH} levels"))
        }
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            let most = MOST_BYTES >> 20;
            let found = "found more than fits, expected at most";
            Some(format!("{line}{found} {most} MiB with all that aliases (`*name`) repeat"))
        }
        _ => None,
    }
}

/// Words that hold nothing of the text but names of keys.
struct Discreet;

impl MessageFormatter for Discreet {
    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        let told = match error {
            Error::WithSnippet { error, .. } | Error::AliasError { error, .. } => return self.format_message(error),
            Error::SerdeInvalidType { unexpected, expected, .. }
            | Error::SerdeInvalidValue { unexpected, expected, .. } => {
                format!("found {}, expected {expected}", kind(unexpected))
            }
            Error::SerdeUnknownVariant { expected, .. } => format!("found another word, expected {}", one_of(expected)),
            Error::SerdeUnknownField { field, expected, .. } => {
                format!("found the key {}, expected {}", key(Some(field)), one_of(expected))
            }
            Error::DuplicateMappingKey { key: name, .. } => {
                format!("found the key {} again, expected it once", key(name.as_deref()))
            }
            Error::NonFiniteFloat { .. } => "found a number that is not finite, expected a text in quotes".to_owned(),
            Error::QuotingRequired { .. } => "found a value without quotes, expected quotes around it".to_owned(),
            Error::UnsupportedTag { .. } | Error::TaggedEnumMismatch { .. } => {
                "found a tag (`!name`) that is not known, expected none".to_owned()
            }
            // In the words of whoever reads the value, who may have put it into them.
            Error::Message { .. }
            | Error::HookError { .. }
            | Error::SerdeVariantId { .. }
            | Error::UnresolvedProperty { .. }
            | Error::InvalidPropertyName { .. }
            | Error::PropertyRequiredButUnset { .. }
            | Error::PropertyRequiredButEmpty { .. } => "found a value that cannot be used here".to_owned(),
            _ => return UserMessageFormatter.format_message(error),
        };
        Cow::Owned(told)
    }
}

/// What serde found, without the value behind it: ``integer `5` ``, `string "..."`.
fn kind(unexpected: &str) -> &str {
    const KINDS: [&str; 12] = [
        "boolean",
        "integer",
        "floating point",
        "character",
        "string",
        "byte array",
        "unit value",
        "Option value",
        "sequence",
        "map",
        "enum",
        "unit variant",
    ];
    let found = unexpected.split(['`', '"']).next().unwrap_or_default().trim_end();
    if KINDS.contains(&found) { found } else { "another value" }
}

/// A key, if it has the form of one: people put other things there, too.
fn key(name: Option<&str>) -> String {
    let inner = |letter: u8| letter.is_ascii_alphanumeric() || b"-_./".contains(&letter);
    let name = name.filter(|name| (1..=LONGEST_KEY).contains(&name.len()) && name.bytes().all(inner));
    name.map_or_else(|| "that stands here".to_owned(), |name| format!("`{name}`"))
}

fn one_of(expected: &[&str]) -> String {
    if expected.is_empty() { "none".to_owned() } else { format!("one of `{}`", expected.join("`, `")) }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::Value;

    use super::{DEPTH, options, told, told_with_lines};

    fn read(text: &str) -> Result<Vec<Value>, String> {
        serde_saphyr::from_multiple_with_options(text, options(text)).map_err(|error| told(&error))
    }

    fn many(count: usize, one: impl Fn(usize) -> String) -> String {
        (0..count).map(one).collect()
    }

    #[test]
    fn no_number_of_documents_values_or_aliases_is_too_much() {
        let documents = many(5000, |number| format!("---\nkind: Secret\nmetadata: {{ name: s{number} }}\n"));
        assert_eq!(read(&documents).expect("documents").len(), 5000);
        let values =
            "items:\n".to_owned() + &many(100_000, |number| format!("- {{ name: h{number}, mac: \"52:54\" }}\n"));
        assert_eq!(read(&values).expect("values")[0]["items"].as_array().map(Vec::len), Some(100_000));
        let aliases = "bmc: &bmc { user: admin, password: secret }\nhosts:\n".to_owned()
            + &many(2000, |number| format!("- {{ name: h{number}, bmc: *bmc }}\n"));
        assert_eq!(read(&aliases).expect("aliases")[0]["hosts"][1999]["bmc"]["user"], "admin");
        let anchors = "hosts:\n".to_owned() + &many(2000, |number| format!("- &h{number} {{ name: h{number} }}\n"));
        assert_eq!(read(&anchors).expect("anchors")[0]["hosts"].as_array().map(Vec::len), Some(2000));
        let merged = "base: &base { online: true }\nhosts:\n".to_owned()
            + &many(20_000, |number| format!("- {{ <<: *base, name: h{number} }}\n"));
        assert_eq!(read(&merged).expect("merged")[0]["hosts"][19_999]["online"], true);
    }

    #[test]
    fn a_bomb_is_refused_in_words() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = vec![format!("*a{}", level - 1); 10].join(", ");
            let _ = writeln!(laughs, "a{level}: &a{level} [{below}]");
        }
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 200].join(", "));
        for (bomb, expected) in [
            (laughs, "expected at most 64 MiB with all that aliases (`*name`) repeat"),
            (long, "expected at most 64 MiB with all that aliases (`*name`) repeat"),
            ("[".repeat(DEPTH + 1) + &"]".repeat(DEPTH + 1), "expected at most 64 levels"),
            (
                many(DEPTH + 1, |level| format!("{}a:\n", " ".repeat(level))) + &" ".repeat(70) + "b",
                "expected at most 64 levels",
            ),
        ] {
            let said = read(&bomb).expect_err("a bomb");
            assert!(said.starts_with("line ") && said.contains(expected), "{said}");
            assert!(!said.contains("budget") && !said.contains('{'), "{said}");
        }
        assert!(read("a: [\n").expect_err("torn").contains('1'), "other errors are told as they are");
        for text in ["a: 1\na: 2\n", "a: !!binary gA==\n", "a: *b\n"] {
            let said = serde_saphyr::from_str::<std::collections::BTreeMap<String, String>>(text)
                .map_err(|error| told(&error));
            let said = said.expect_err("wrong");
            assert!(!said.contains("Options") && said.contains("line "), "{said}");
        }
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is only read")]
    struct Typed {
        first: Option<String>,
        count: Option<u32>,
        word: Option<Word>,
        address: Option<std::net::IpAddr>,
        last: Option<String>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
        Two,
    }

    /// Wherever the mistake is, and whatever it is: neither its line nor those around it are told.
    #[test]
    fn no_value_of_a_text_is_told_but_its_place_is() {
        let typed = |text: &str| serde_saphyr::from_str_with_options::<Typed>(text, options(text));
        let any = |text: &str| serde_saphyr::from_str_with_options::<Value>(text, options(text));
        let map =
            |text: &str| serde_saphyr::from_str_with_options::<serde_json::Map<String, Value>>(text, options(text));
        for wrong in [
            "a: [hunter2",
            "a: hunter2: hunter2",
            "a: *hunter2",
            "a: {hunter2",
            "a: !hunter2 hunter2",
            "a: \"hunter2",
            "a: @hunter2",
            "- hunter2",
            "hunter2",
            "first: hunter2",
            "? hunter2 hunter2\n: 1\n? hunter2 hunter2\n: 2",
            "a: 1e999",
            "count: hunter2",
            "count: \"hunter2\"",
            "count: [hunter2]",
            "count: { hunter2: 1 }",
            "word: hunter2",
            "word: !hunter2 hunter2",
            "address: hunter2",
            "address: [hunter2]",
            "last: { a: hunter2 }",
            "last: [hunter2]",
            "\"hunter2 is no key\": 1",
            "a: &x hunter2\ncount: *x",
        ] {
            let text = format!("first: hunter2\n{wrong}\nlast: hunter2\n");
            for read in [typed(&text).err(), any(&text).err(), map(&text).err()] {
                let Some(error) = read else { continue };
                let said = told(&error);
                assert!(!said.contains("hunter2") && !said.contains("1e999"), "{wrong}: {said}");
                assert!(said.contains("line "), "{wrong}: {said}");
            }
            typed(&text).expect_err("wrong");
        }
        let alone = [typed("hunter2").expect_err("no map"), map("hunter2").err().unwrap_or_else(|| unreachable!())];
        for error in alone {
            assert!(!told(&error).contains("hunter2"), "{}", told(&error));
        }
        let good = "first: hunter2\ncount: 5\nword: two\naddress: 10.0.0.1\nlast: '1e999'\n";
        typed(good).expect("good");
    }

    #[test]
    fn names_of_keys_and_what_is_expected_are_told() {
        let said = |text: &str| told(&serde_saphyr::from_str::<Typed>(text).expect_err("wrong"));
        for (text, parts) in [
            ("frist: hunter2\n", ["found the key `frist`", "one of `first`, `count`"]),
            ("first: a\nfirst: b\n", ["found the key `first` again", "line 2, column 1"]),
            ("first: a\nword: three\n", ["found another word", "one of `one`, `two`"]),
        ] {
            let said = said(text);
            assert!(parts.iter().all(|part| said.contains(part)), "{text}: {said}");
        }
    }

    #[test]
    fn who_asks_for_lines_gets_them() {
        let error = serde_saphyr::from_str::<Typed>("first: a\ncount: many\n").expect_err("wrong");
        assert!(told_with_lines(&error).contains("count: many"), "{}", told_with_lines(&error));
    }
}
