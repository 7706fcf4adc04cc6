//! XML as libvirt has it: a small tree over [`quick_xml`], which keeps what it does not know.
//!
//! Prefixes of namespaces need not be declared: some templates of `ViNO`'s users do not, and libvirt accepts them.

use std::fmt::Write as _;

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};

/// Why a text is not XML.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct XmlError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name, with a prefix if it has one.
    pub name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Element(Element),
    Text(String),
}

impl Element {
    /// One without anything in it.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The same with an attribute.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// Reads a document: its root.
    pub fn parse(text: &str) -> Result<Self, XmlError> {
        let mut reader = Reader::from_str(text);
        let mut open: Vec<Self> = vec![Self::default()];
        loop {
            let event = reader.read_event();
            let line = |at: u64| {
                1 + text.bytes().take(usize::try_from(at).unwrap_or(usize::MAX)).filter(|b| *b == b'\n').count()
            };
            let wrong =
                |what: String| XmlError { line: line(reader.error_position().max(reader.buffer_position())), what };
            match event.map_err(|error| wrong(error.to_string()))? {
                Event::Start(start) => open.push(Self::of(&start).map_err(wrong)?),
                Event::Empty(start) => {
                    let element = Self::of(&start).map_err(wrong)?;
                    put(&mut open, Node::Element(element));
                }
                Event::End(_) => {
                    let Some(element) = open.pop() else { break };
                    put(&mut open, Node::Element(element));
                }
                Event::Text(text) => {
                    let text = text.decode().map_err(|error| wrong(error.to_string()))?;
                    put(&mut open, Node::Text(text.into_owned()));
                }
                Event::CData(text) => {
                    let text = text.decode().map_err(|error| wrong(error.to_string()))?;
                    put(&mut open, Node::Text(text.into_owned()));
                }
                Event::GeneralRef(entity) => {
                    let name = entity.decode().map_err(|e| wrong(e.to_string()))?.into_owned();
                    let character = entity.resolve_char_ref().map_err(|e| wrong(e.to_string()))?.map(String::from);
                    let text = character.or_else(|| resolve_predefined_entity(&name).map(str::to_owned));
                    put(&mut open, Node::Text(text.ok_or_else(|| wrong(format!("`&{name};` is unknown")))?));
                }
                Event::Eof if open.len() > 1 => {
                    let name = open.pop().unwrap_or_default().name;
                    return Err(wrong(format!("`{name}` has no end")));
                }
                Event::Eof => break,
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        let top = open.pop().unwrap_or_default();
        let mut roots = top.elements();
        let root = roots.next().cloned().ok_or_else(|| XmlError { line: 1, what: "there is no element".to_owned() })?;
        Ok(root)
    }

    fn of(start: &BytesStart<'_>) -> Result<Self, String> {
        let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
        let mut element = Self::new(&name);
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let value = attribute.unescape_value().map_err(|error| error.to_string())?;
            element.set(&String::from_utf8_lossy(attribute.key.as_ref()), value);
        }
        Ok(element)
    }

    /// An attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        match self.attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((name.to_owned(), value)),
        }
    }

    /// Takes an attribute away.
    pub fn unset(&mut self, name: &str) {
        self.attributes.retain(|(known, _)| known != name);
    }

    /// The elements in it.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The elements in it, to be changed.
    pub fn elements_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        self.children.iter_mut().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first of that name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.elements().find(|element| element.name == name)
    }

    /// The first of that name, to be changed.
    pub fn child_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.elements_mut().find(|element| element.name == name)
    }

    /// The attribute of a child.
    pub fn of_child(&self, name: &str, attribute: &str) -> Option<&str> {
        self.child(name)?.get(attribute)
    }

    /// Adds an element at its end.
    pub fn add(&mut self, element: Self) {
        self.children.push(Node::Element(element));
    }

    /// Takes away all elements of that name.
    pub fn remove(&mut self, name: &str) {
        self.children.retain(|child| !matches!(child, Node::Element(element) if element.name == name));
    }

    /// Its text, without space around it.
    pub fn text(&self) -> String {
        let texts = self.children.iter().filter_map(|child| match child {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        texts.collect::<String>().trim().to_owned()
    }

    /// Sets its text.
    pub fn set_text(&mut self, text: &str) {
        self.children = vec![Node::Text(text.to_owned())];
    }

    /// The document as text.
    pub fn write(&self) -> String {
        let mut text = String::new();
        self.write_to(&mut text);
        text
    }

    fn write_to(&self, text: &mut String) {
        let _ = write!(text, "<{}", self.name);
        for (name, value) in &self.attributes {
            let _ = write!(text, " {name}=\"{}\"", escape(value));
        }
        if self.children.is_empty() {
            text.push_str("/>");
            return;
        }
        text.push('>');
        for child in &self.children {
            match child {
                Node::Element(element) => element.write_to(text),
                Node::Text(plain) => text.push_str(&escape(plain)),
            }
        }
        let _ = write!(text, "</{}>", self.name);
    }
}

fn put(open: &mut [Element], node: Node) {
    if let Some(into) = open.last_mut() {
        into.children.push(node);
    }
}

#[cfg(test)]
mod tests {
    use super::Element;

    #[test]
    fn what_is_read_is_written_again_with_what_is_not_known() {
        let text =
            "<domain type=\"kvm\"><metadata><vino:flavor>a &amp; b</vino:flavor></metadata># text\n<on/></domain>";
        let root = Element::parse(text).expect("XML");
        assert_eq!(root.write(), text);
        assert_eq!(
            root.child("metadata").and_then(|it| it.child("vino:flavor")).map(Element::text).as_deref(),
            Some("a & b")
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let error = Element::parse("<domain>\n<name>a</nam>\n</domain>").expect_err("wrong");
        assert_eq!(error.line, 2, "{error}");
        assert!(Element::parse("<domain>\n<name>").expect_err("no end").what.contains("`name` has no end"));
        assert!(Element::parse("text").is_err());
    }
}
