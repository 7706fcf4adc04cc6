//! YAML text as a tree in which every key and value knows its bytes.
//!
//! Serde reports the place of the first wrong thing only, so the shape of a definition is checked on
//! this tree (see `shape`), and typed values are made from it afterwards. Anchors, aliases, tags and
//! keys that are not text are refused here: a definition means what it shows.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle};

use super::path::KeyPath;
use crate::problems::line_and_column;

/// Deepest nesting that is read; definitions need about six.
const DEEPEST: usize = 64;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Bytes of the value.
    pub span: Range<usize>,
    /// What stands there.
    pub kind: Kind,
}

/// What a [`Node`] is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Text; `plain` when it is not quoted and not a block.
    Scalar { text: String, plain: bool },
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping, in the order of the text.
    Mapping(Vec<Entry>),
    /// Something that was refused while reading; no more is to be said about it.
    Refused,
}

/// One key of a mapping with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The key.
    pub key: String,
    /// Bytes of the key.
    pub key_span: Range<usize>,
    /// The value.
    pub value: Node,
}

/// A part of the text that cannot stand in a definition.
#[derive(Debug)]
pub(super) struct Refused {
    /// Its bytes.
    pub span: Range<usize>,
    /// The key path it stands at.
    pub path: KeyPath,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: &'static str,
    /// What to do.
    pub hint: String,
}

impl Node {
    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Mapping(entries) => entries.iter().find(|entry| entry.key == key),
            Kind::Scalar { .. } | Kind::Sequence(_) | Kind::Refused => None,
        }
    }

    /// The text, if this is a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::Sequence(_) | Kind::Mapping(_) | Kind::Refused => None,
        }
    }

    /// Whether nothing stands here (`key:`, `~` or `null`).
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// Reads all documents of `text`, and everything in it that cannot stand in a definition.
pub(super) fn read(text: &str) -> (Vec<Node>, Vec<Refused>) {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEEPEST,
        block_nesting_limit: DEEPEST,
        emit_anchor_events: true,
        emit_unresolved_aliases: true,
    };
    let mut builder = Builder { text, open: Vec::new(), documents: Vec::new(), refused: Vec::new() };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => {
                let tag = span.tag_span().and_then(|span| span.byte_range());
                builder.take(event, span.byte_range().unwrap_or_default(), tag);
            }
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
                let why = error.kind().to_string();
                let hint = if why.contains("tab") {
                    "indent with spaces, not with tabs"
                } else {
                    "look at the indentation, the brackets and the quotes on this line and the one above"
                };
                builder.refuse(at..at, format!("this is not YAML: {why}"), "well-formed YAML", hint.to_owned());
                break;
            }
        }
    }
    (builder.documents, builder.refused)
}

/// A collection that is not closed yet.
enum Open {
    Sequence { start: usize, items: Vec<Node> },
    Mapping { start: usize, entries: Vec<Entry>, key: Option<Key> },
}

/// A key that waits for its value; `None` when it was refused.
type Key = (Option<String>, Range<usize>);

struct Builder<'a> {
    text: &'a str,
    open: Vec<Open>,
    documents: Vec<Node>,
    refused: Vec<Refused>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Range<usize>, tag: Option<Range<usize>>) {
        let plain = "write the value itself; anchors, aliases and tags are not part of a definition";
        if event.tag().is_some() {
            let span = tag.unwrap_or_else(|| span.clone());
            let found = format!("a tag (`{}`) stands here", self.slice(&span));
            self.refuse(span, found, "a plain value", plain.to_owned());
        }
        match event {
            Event::Scalar(text, style, _, _) => {
                let kind = Kind::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.put(Node { span, kind });
            }
            Event::Anchor(..) => {
                let found = format!("an anchor (`{}`) stands here", self.slice(&span));
                self.refuse(span, found, "a plain value", plain.to_owned());
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let found = format!("an alias (`{}`) stands here", self.slice(&span));
                self.refuse(span.clone(), found, "a plain value", plain.to_owned());
                self.put(Node { span, kind: Kind::Refused });
            }
            Event::SequenceStart(..) => self.open.push(Open::Sequence { start: span.start, items: Vec::new() }),
            Event::MappingStart(..) => {
                self.open.push(Open::Mapping { start: span.start, entries: Vec::new(), key: None });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span.end),
            _ => {}
        }
    }

    fn close(&mut self, end: usize) {
        match self.open.pop() {
            Some(Open::Sequence { start, items }) => {
                self.put(Node { span: start..end.max(start), kind: Kind::Sequence(items) });
            }
            Some(Open::Mapping { start, entries, .. }) => {
                self.put(Node { span: start..end.max(start), kind: Kind::Mapping(entries) });
            }
            None => {}
        }
    }

    /// Puts a finished node where it belongs: into the open collection, or as a whole document.
    fn put(&mut self, node: Node) {
        let (entries, key) = match self.open.last_mut() {
            None => return self.documents.push(node),
            Some(Open::Sequence { items, .. }) => return items.push(node),
            Some(Open::Mapping { entries, key, .. }) => (entries, key),
        };
        let Some((name, key_span)) = key.take() else {
            let span = node.span.clone();
            if let Kind::Scalar { text, .. } = node.kind {
                *key = Some((Some(text), span));
            } else {
                *key = Some((None, span.clone()));
                let found = "a key that is itself a list or a mapping".to_owned();
                self.refuse(span, found, "a word as the key", "quote a value that begins with `{` or `[`".to_owned());
            }
            return;
        };
        let Some(name) = name else { return };
        if let Some(first) = entries.iter().find(|entry| entry.key == name) {
            let line = line_and_column(self.text, first.key_span.start).0;
            let found = format!("key `{name}` stands here a second time");
            let hint = format!("it was given first on line {line}: keep one of the two");
            let path = self.path().key(&name);
            self.refused.push(Refused { span: key_span, path, found, expected: "each key once", hint });
        } else {
            entries.push(Entry { key: name, key_span, value: node });
        }
    }

    fn slice(&self, span: &Range<usize>) -> String {
        self.text.get(span.clone()).unwrap_or_default().to_owned()
    }

    /// Where the next value goes.
    fn path(&self) -> KeyPath {
        let step = |path: KeyPath, open: &Open| match open {
            Open::Sequence { items, .. } => path.index(items.len()),
            Open::Mapping { key: Some((Some(key), _)), .. } => path.key(key),
            Open::Mapping { .. } => path,
        };
        self.open.iter().fold(KeyPath::default(), step)
    }

    fn refuse(&mut self, span: Range<usize>, found: String, expected: &'static str, hint: String) {
        let path = self.path();
        self.refused.push(Refused { span, path, found, expected, hint });
    }
}
