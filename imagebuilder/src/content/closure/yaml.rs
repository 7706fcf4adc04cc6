//! Documents of YAML (and of JSON, which is YAML) as trees that know their lines.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Result, anyhow, bail};
use granit_parser::{Event, Parser};

/// Deepest nesting that is read. Objects of Kubernetes need about twenty.
const DEEPEST: usize = 200;
/// Most values that aliases may come to: a page of text can stand for billions (CVE-2019-11253).
const MOST_VALUES: usize = 2_000_000;

/// A value and the line it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Line, from 1.
    pub line: usize,
    /// Bytes of the text: those of a scalar, or where a list or a mapping begins.
    pub bytes: Range<usize>,
    /// What stands there.
    pub value: Value,
}

/// What a [`Node`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text, number or nothing: its text.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in its order.
    Mapping(Vec<(String, Node)>),
}

impl Node {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Mapping(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Value::Scalar(_) | Value::List(_) => None,
        }
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            Value::List(_) | Value::Mapping(_) => None,
        }
    }

    fn values(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 1,
            Value::List(items) => 1 + items.iter().map(Self::values).sum::<usize>(),
            Value::Mapping(entries) => 1 + entries.iter().map(|(_, value)| value.values()).sum::<usize>(),
        }
    }
}

/// A collection that is not closed yet: its line, its anchor, its parts, and the key that waits for its value.
struct Open {
    line: usize,
    bytes: Range<usize>,
    anchor: usize,
    value: Value,
    key: Option<String>,
}

/// All documents of a text.
pub fn documents(text: &str) -> Result<Vec<Node>> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEEPEST,
        block_nesting_limit: DEEPEST,
    };
    let (mut open, mut documents): (Vec<Open>, Vec<Node>) = (Vec::new(), Vec::new());
    let (mut anchors, mut values): (BTreeMap<usize, Node>, usize) = (BTreeMap::new(), 0);
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) =
            next.map_err(|error| anyhow!("line {}: this is not YAML: {}", error.marker().line(), error.kind()))?;
        let (line, bytes) = (span.start.line(), span.byte_range().unwrap_or_default());
        let (anchor, node) = match event {
            Event::Scalar(text, _, anchor, _) => {
                (anchor, Node { line, bytes, value: Value::Scalar(text.into_owned()) })
            }
            Event::Alias(id) => {
                let Some(node) = anchors.get(&id) else { bail!("line {line}: this alias stands for nothing") };
                values += node.values();
                if values > MOST_VALUES {
                    bail!("line {line}: the aliases of this text come to more than {MOST_VALUES} values");
                }
                (0, node.clone())
            }
            Event::SequenceStart(_, anchor, _) => {
                open.push(Open { line, bytes, anchor, value: Value::List(Vec::new()), key: None });
                continue;
            }
            Event::MappingStart(_, anchor, _) => {
                open.push(Open { line, bytes, anchor, value: Value::Mapping(Vec::new()), key: None });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open { line, bytes, anchor, value, .. }) => (anchor, Node { line, bytes, value }),
                None => continue,
            },
            _ => continue,
        };
        if anchor > 0 {
            anchors.insert(anchor, node.clone());
        }
        put(node, &mut open, &mut documents);
    }
    Ok(documents)
}

/// Puts a finished node where it belongs: into the open collection, or as a whole document.
fn put(node: Node, open: &mut [Open], documents: &mut Vec<Node>) {
    match open.last_mut() {
        None => documents.push(node),
        Some(Open { value: Value::List(items), .. }) => items.push(node),
        Some(Open { value: Value::Mapping(entries), key, .. }) => match key.take() {
            Some(name) => entries.push((name, node)),
            // A key that is itself a list or a mapping is nobody's key here.
            None => *key = Some(node.text().unwrap_or_default().to_owned()),
        },
        Some(Open { value: Value::Scalar(_), .. }) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::documents;

    #[test]
    fn values_know_their_lines() {
        let all = documents("a: 1\nb:\n  - c: x\n---\n{\"d\": [1,\n 2]}\n").expect("YAML");
        assert_eq!(all.len(), 2);
        let c = all[0].get("b").and_then(|b| match &b.value {
            super::Value::List(items) => items[0].get("c"),
            _ => None,
        });
        let c = c.expect("it is there");
        assert_eq!((c.line, c.text()), (3, Some("x")));
        assert_eq!(all[1].get("d").expect("it is there").line, 5);
        let text = "é: [ab, \"ü\"]\n";
        let all = documents(text).expect("YAML");
        let Some(super::Value::List(items)) = all[0].get("é").map(|list| &list.value) else { panic!("a list") };
        assert_eq!(items.iter().map(|item| &text[item.bytes.clone()]).collect::<Vec<_>>(), ["ab", "\"ü\""]);
    }

    #[test]
    fn an_alias_is_what_its_anchor_is_and_a_flood_of_them_is_refused() {
        let all = documents("a: &x { image: b }\nc: *x\n").expect("YAML");
        assert_eq!(all[0].get("c").and_then(|c| c.get("image")).and_then(super::Node::text), Some("b"));
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..9 {
            let before = vec![format!("*a{}", n - 1); 10].join(",");
            text.extend([format!("a{n}: &a{n} [{before}]\n")]);
        }
        assert!(documents(&text).is_err());
    }
}
