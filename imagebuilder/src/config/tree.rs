//! YAML text as a tree in which every key and value knows its bytes.
//!
//! Serde reports the place of the first wrong thing only, so the shape of a definition is checked on
//! this tree (see `shape`), and typed values are made from it afterwards. Anchors, aliases, tags and
//! keys that are not text are refused here: a definition means what it shows.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle};

use super::problem::line_and_column;

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
            Kind::Scalar { .. } | Kind::Sequence(_) => None,
        }
    }

    /// The text, if this is a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
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
        emit_unresolved_aliases: true,
    };
    let mut builder = Builder { text, open: Vec::new(), documents: Vec::new(), refused: Vec::new() };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => builder.take(event, span.byte_range().unwrap_or_default()),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
                builder.refuse(
                    at..at,
                    format!("this is not YAML: {}", error.kind()),
                    "well-formed YAML",
                    "look at the indentation, the colons and the quotes on this line and the one above".to_owned(),
                );
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
    fn take(&mut self, event: Event<'_>, span: Range<usize>) {
        let tag = event.tag().map(ToString::to_string);
        let anchored = matches!(&event, Event::Scalar(_, _, id, _) | Event::SequenceStart(_, id, _) | Event::MappingStart(_, id, _) if *id != 0);
        if tag.is_some() || anchored {
            self.refuse(
                span.clone(),
                tag.map_or_else(|| "an anchor (`&name`)".to_owned(), |tag| format!("a tag (`{tag}`)")),
                "a plain value",
                "write the value itself; anchors, aliases and tags are not part of a definition".to_owned(),
            );
        }
        match event {
            Event::Scalar(text, style, _, _) => {
                let kind = Kind::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.put(Node { span, kind });
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let found = format!("an alias (`{}`)", &self.text[span.clone()]);
                self.refuse(span.clone(), found, "a plain value", "write the value itself".to_owned());
                self.put(Node { span, kind: Kind::Scalar { text: String::new(), plain: false } });
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
            self.refuse(
                key_span,
                found,
                "each key once",
                format!("it was given first on line {line}: keep one of the two"),
            );
        } else {
            entries.push(Entry { key: name, key_span, value: node });
        }
    }

    fn refuse(&mut self, span: Range<usize>, found: String, expected: &'static str, hint: String) {
        self.refused.push(Refused { span, found, expected, hint });
    }
}
