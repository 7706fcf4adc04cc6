//! What lies in a folder of the content, as a page and as JSON. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::Held;

/// A file or a folder in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Entry {
    /// A folder.
    Folder {
        /// Its name.
        name: String,
        /// How many files are below it.
        files: usize,
        /// Bytes of all of them.
        bytes: u64,
    },
    /// A file.
    File {
        /// Its name.
        name: String,
        /// Bytes.
        bytes: u64,
        /// Digest.
        digest: String,
    },
}

impl Entry {
    fn name(&self) -> &str {
        match self {
            Self::Folder { name, .. } | Self::File { name, .. } => name,
        }
    }
}

/// What lies in `folder`: `images/`, or the root, which is empty.
pub fn entries(all: &[Held], folder: &str) -> Vec<Entry> {
    let mut found: BTreeMap<&str, Entry> = BTreeMap::new();
    for held in all {
        let Some(rest) = held.path.strip_prefix(folder) else { continue };
        let (name, deeper) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
        if !deeper {
            let file = Entry::File { name: name.to_owned(), bytes: held.size, digest: held.digest.to_string() };
            found.insert(name, file);
            continue;
        }
        let empty = || Entry::Folder { name: name.to_owned(), files: 0, bytes: 0 };
        if let Entry::Folder { files, bytes, .. } = found.entry(name).or_insert_with(empty) {
            *files += 1;
            *bytes += held.size;
        }
    }
    found.into_values().collect()
}

/// As JSON.
pub fn json(entries: &[Entry]) -> String {
    serde_json::to_string_pretty(entries).unwrap_or_default() + "\n"
}

/// As a page.
pub fn html(path: &str, entries: &[Entry]) -> String {
    let title = escape(path);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font-family:monospace}}td{{padding-right:2em}}</style></head>\n<body><h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        let (slash, bytes, about) = match entry {
            Entry::Folder { files, bytes, .. } => ("/", bytes, format!("{files} files")),
            Entry::File { bytes, digest, .. } => ("", bytes, digest.clone()),
        };
        let name = format!("{}{slash}", entry.name());
        let link = encode(&name);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}\">{}</a></td><td align=\"right\">{bytes}</td><td>{about}</td></tr>",
            escape(&name)
        );
    }
    page.push_str("</table></body></html>\n");
    page
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A path as a link has it.
pub fn encode(path: &str) -> String {
    let mut link = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/+:@".contains(&byte) {
            link.push(char::from(byte));
        } else {
            let _ = write!(link, "%{byte:02X}");
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use agent_api::release::{ContentKind, Digest};

    use super::super::Held;
    use super::{encode, entries, html, json};

    fn held(path: &str, size: u64) -> Held {
        let digest = Digest::from_hex(&"ab".repeat(32)).expect("a digest");
        Held { path: path.to_owned(), kind: ContentKind::File, file: "/x".into(), digest, size }
    }

    #[test]
    fn a_folder_lists_its_own_files_and_sums_up_its_folders() {
        let all = [held("files/a", 1), held("images/b.qcow2", 2), held("images/deep/c", 3), held("images/deep/d", 4)];
        let images = entries(&all, "images/");
        insta::assert_snapshot!(json(&images));
        assert_eq!(entries(&all, "").len(), 2);
        assert_eq!(entries(&all, "image/"), []);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let page = html("/<b>/", &entries(&[held("<b>/\"><script>'&", 1)], "<b>/"));
        assert!(page.contains("&lt;b&gt;") && !page.contains("<script>"), "{page}");
        assert_eq!(encode("a b/ü%"), "a%20b/%C3%BC%25");
    }
}
