//! Collects problems and finds the bytes a key path stands at.

use std::ops::Range;

use super::path::{KeyPath, Segment};
use super::tree::{Kind, Node, Refused};
use super::types::Invalid;
use crate::problems::{Problem, Severity, line_and_column};

/// The problems of one text so far, and the document that is being looked at.
pub(super) struct Findings<'t> {
    text: &'t str,
    document: Option<Node>,
    list: Vec<Problem>,
    settled: Vec<KeyPath>,
}

impl<'t> Findings<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, document: None, list: Vec::new(), settled: Vec::new() }
    }

    /// From here on key paths are those of this document.
    pub fn enter(&mut self, document: &Node) {
        self.document = Some(document.clone());
        self.settled.clear();
    }

    /// A part of the text that cannot stand in a definition.
    pub fn refused(&mut self, part: Refused) {
        self.push(Severity::Error, part.span, &part.path, part.found, part.expected.to_owned(), part.hint);
    }

    /// An error at known bytes. Later stages have nothing to add about that key path.
    pub fn add(&mut self, span: Range<usize>, path: &KeyPath, found: &str, expected: impl Into<String>, hint: &str) {
        self.push(Severity::Error, span, path, found.to_owned(), expected.into(), hint.to_owned());
        self.settle(path);
    }

    /// How many errors there are so far.
    pub fn errors(&self) -> usize {
        self.list.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// Everything about that key path has been said.
    pub fn settle(&mut self, path: &KeyPath) {
        self.settled.push(path.clone());
    }

    /// An error about the value at `path`, or the nearest place that exists.
    pub fn at(&mut self, path: &KeyPath, found: &str, expected: impl Into<String>, hint: &str) {
        if self.is_settled(path) {
            return;
        }
        let span = self.place(path);
        self.add(span, path, found, expected, hint);
    }

    /// A warning about the value at `path`.
    pub fn warn(&mut self, path: &KeyPath, found: &str, expected: &str, hint: &str) {
        let span = self.place(path);
        self.push(Severity::Warning, span, path, found.to_owned(), expected.to_owned(), hint.to_owned());
    }

    /// The same as [`Findings::at`] for a value that must not be shown: it may be a secret in the wrong place.
    pub fn at_secret(&mut self, path: &KeyPath, found: &str, expected: impl Into<String>, hint: &str) {
        if self.is_settled(path) {
            return;
        }
        self.at(path, found, expected, hint);
        if let Some(problem) = self.list.last_mut() {
            problem.secret = true;
        }
    }

    /// The value that `text` stands for; an error at `path` if it stands for none.
    pub fn parse<T>(&mut self, path: &KeyPath, text: &str, read: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<T> {
        if self.is_settled(path) {
            return None;
        }
        match read(text) {
            Ok(value) => Some(value),
            Err(invalid) => {
                let found =
                    if text.is_empty() { "the text is empty".to_owned() } else { format!("`{text}` is not valid") };
                self.at(path, &found, invalid.expected, &invalid.hint);
                None
            }
        }
    }

    /// The bytes that stand for a whole collection: its key, or its first key or item.
    pub fn head(&self, node: &Node, path: &KeyPath) -> Range<usize> {
        if matches!(path.0.last(), Some(Segment::Key(_)))
            && let Some(span) = self.key_span(path)
        {
            return span;
        }
        match &node.kind {
            Kind::Mapping(entries) => entries.first().map_or(node.span.clone(), |entry| entry.key_span.clone()),
            Kind::Sequence(items) => items.first().map_or(node.span.clone(), |item| item.span.clone()),
            Kind::Scalar { .. } | Kind::Refused => node.span.clone(),
        }
    }

    /// All problems in the order of the text.
    pub fn into_list(mut self) -> Vec<Problem> {
        self.list.sort_by_key(|problem| problem.span.start);
        self.list
    }

    /// Whether everything about exactly that place has been said; the document itself is never settled.
    fn is_settled(&self, path: &KeyPath) -> bool {
        !path.is_empty() && self.settled.contains(path)
    }

    fn place(&self, path: &KeyPath) -> Range<usize> {
        let Some(document) = &self.document else { return 0..0 };
        let (mut node, mut reached) = (document, KeyPath::default());
        for segment in &path.0 {
            let next = match (segment, &node.kind) {
                (Segment::Key(key), _) => node.get(key).map(|entry| &entry.value),
                (Segment::Index(index), Kind::Sequence(items)) => items.get(*index),
                (Segment::Index(_), Kind::Scalar { .. } | Kind::Mapping(_) | Kind::Refused) => None,
            };
            let Some(next) = next else { break };
            node = next;
            reached.0.push(segment.clone());
        }
        match node.kind {
            Kind::Scalar { .. } | Kind::Refused => node.span.clone(),
            Kind::Sequence(_) | Kind::Mapping(_) => self.head(node, &reached),
        }
    }

    fn key_span(&self, path: &KeyPath) -> Option<Range<usize>> {
        let mut node = self.document.as_ref()?;
        let mut span = None;
        for segment in &path.0 {
            node = match (segment, &node.kind) {
                (Segment::Key(key), _) => {
                    let entry = node.get(key)?;
                    span = Some(entry.key_span.clone());
                    &entry.value
                }
                (Segment::Index(index), Kind::Sequence(items)) => items.get(*index)?,
                (Segment::Index(_), Kind::Scalar { .. } | Kind::Mapping(_) | Kind::Refused) => return None,
            };
        }
        span
    }

    fn push(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        path: &KeyPath,
        found: String,
        expected: String,
        hint: String,
    ) {
        let (line, column) = line_and_column(self.text, span.start);
        let key = path.to_string();
        self.list.push(Problem { severity, key, line, column, span, found, expected, hint, secret: false });
    }
}
