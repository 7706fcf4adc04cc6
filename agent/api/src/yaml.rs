//! How much YAML is read at once: bounds by bytes and depth that the field fits in, none by how many hosts there are.
//!
//! ```text
//! text ─► options(text): as large as the text allows ─► reader ─► told(error): a bound in words, else the reader's own
//!      └────────────────────────────────── read: all of it ──────────────────────────────────┘
//! ```
//! The reader's own bounds count documents, values and aliases: a thousand hosts with their Secrets, or three hundred with
//! their inventories as `kubectl get -o yaml` prints them, break those. What must not happen is that little text becomes much
//! memory. So values are bounded by the text's length, and what anchors and aliases make of it by a fixed size.

use serde::de::DeserializeOwned;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, Options, UserMessageFormatter, budget, options};

/// Most bytes of texts in a file, with all that aliases repeat: some ten thousand hosts with their inventories.
pub const MOST_BYTES: usize = 64 << 20;
/// Lists and tables within each other: objects of Kubernetes have 20 or so.
pub const DEPTH: usize = 64;
/// Values of any text, however short: what anchors and aliases may make of it.
const VALUES: usize = 250_000;
/// Bytes of text for each value beyond that. Real files have 20 or more.
const BYTES_OF_VALUE: usize = 4;

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
/// What is wrong, in words.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, options(text)).map_err(|error| told(&error))
}

/// What is wrong, in words.
pub fn told(error: &Error) -> String {
    let mut inner = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = inner {
        inner = error;
    }
    let line = error.location().map_or_else(String::new, |at| format!("line {}: ", at.line()));
    match inner {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            format!("{line}found lists and tables within each other, expected at most {DEPTH} levels")
        }
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => {
            let most = MOST_BYTES >> 20;
            format!("{line}found more than fits, expected at most {most} MiB with all that aliases (`*name`) repeat")
        }
        // The words for developers name options of the reader.
        _ => error.render_with_formatter(&UserMessageFormatter),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::Value;

    use super::{DEPTH, options, told};

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
}
