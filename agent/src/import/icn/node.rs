//! JSON and YAML as a tree that knows its lines, and reading it strictly.

use std::fmt;

use agent_api::{encrypted, yaml};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

use super::Problem;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// `null`, a boolean, a number or a text.
    Scalar(Value),
    /// A list.
    List(Vec<Spanned<Node>>),
    /// A table, in the order of the file.
    Table(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    /// How messages call it.
    fn describe(&self) -> String {
        match self {
            Self::Scalar(Value::Null) => "nothing".into(),
            Self::Scalar(Value::String(text)) if text.is_empty() => "an empty text".into(),
            Self::Scalar(Value::String(text)) => format!("`{}`", shortened(text)),
            Self::Scalar(value) => format!("`{value}`"),
            Self::List(_) => "a list".into(),
            Self::Table(_) => "a table".into(),
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => items.iter().map(|item| item.value.json()).collect(),
            Self::Table(entries) => {
                Value::Object(entries.iter().map(|(key, value)| (key.value.clone(), value.value.json())).collect())
            }
        }
    }
}

/// What a message can show of a text of the file.
pub(super) fn shortened(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(61).collect();
    if plain.chars().count() > 60 { plain.chars().take(60).chain("...".chars()).collect() } else { plain }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }

            fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
                Node::deserialize(from)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Scalar(Value::Bool(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Scalar(Value::String(value.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Node, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = table.next_entry()? {
                    entries.push(entry);
                }
                Ok(Node::Table(entries))
            }
        }
        from.deserialize_any(Any)
    }
}

/// Reads one document of a file. `above` lines of the file are before it.
pub(super) fn parse(file: &str, text: &str, above: u64, problems: &mut Vec<Problem>) -> Option<Spanned<Node>> {
    let mut options = yaml::options(text);
    options.strict_booleans = true;
    serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options)
        .map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            let told = yaml::told(&error);
            problems.push(Problem {
                file: file.to_owned(),
                line: line + above,
                key: String::new(),
                found: shortened(told.lines().next().unwrap_or_default()),
                expected: "JSON or YAML".into(),
            });
        })
        .ok()
}

/// What was read, with the place where it stands in its file.
#[derive(Clone, Debug, Default)]
pub(super) struct Placed<T> {
    pub value: T,
    pub line: u64,
    pub key: String,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub file: &'a str,
    pub line: u64,
    pub key: String,
    pub node: &'a Node,
    above: u64,
}

impl<'a> At<'a> {
    /// The whole document.
    pub fn top(file: &'a str, above: u64, node: &'a Spanned<Node>) -> Self {
        Self { file, line: above + node.referenced.line(), key: String::new(), node: &node.value, above }
    }

    fn below(&self, key: String, line: u64, node: &'a Node) -> Self {
        Self { file: self.file, line: self.above + line, key, node, above: self.above }
    }

    /// Keeps the place of what was read here.
    pub fn placed<T>(&self, value: T) -> Placed<T> {
        Placed { value, line: self.line, key: self.key.clone() }
    }

    /// Reports that the value is wrong.
    pub fn problem(&self, found: String, expected: &str) -> Problem {
        Problem {
            file: self.file.to_owned(),
            line: self.line,
            key: self.key.clone(),
            found,
            expected: expected.to_owned(),
        }
    }

    /// How messages call the value.
    pub fn found(&self) -> String {
        self.node.describe()
    }

    fn refuse<T>(&self, expected: &str, problems: &mut Vec<Problem>) -> Option<T> {
        problems.push(self.problem(self.node.describe(), expected));
        None
    }

    /// A text that is not empty.
    pub fn text(&self, expected: &str, problems: &mut Vec<Problem>) -> Option<String> {
        match self.node {
            Node::Scalar(Value::String(text)) if encrypted::told(text).is_some() => {
                let told = encrypted::told(text).unwrap_or_default();
                let (what, hint) = told.split_once("; hint: ").unwrap_or((told, "decrypt it first"));
                problems.push(self.problem(format!("a text that {what}"), &format!("{expected}; {hint}")));
                None
            }
            Node::Scalar(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            // What a file has without quotes is not always what it says: `0123` is 83 or 123, and may be a secret.
            Node::Scalar(Value::Number(_) | Value::Bool(_)) => {
                let found = "a number, or true or false".into();
                problems.push(self.problem(found, &format!("{expected}, in quotes")));
                None
            }
            _ => self.refuse(expected, problems),
        }
    }

    /// A text that `read` accepts.
    pub fn read<T>(&self, expected: &str, problems: &mut Vec<Problem>, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(expected, problems)?;
        let read = read(&text);
        if read.is_some() { read } else { self.refuse(expected, problems) }
    }

    /// A text that is as it should be, and that no message shows: it may be a secret.
    pub fn hidden(&self, expected: &str, problems: &mut Vec<Problem>, is_good: fn(&str) -> bool) -> Option<String> {
        let text = self.text(expected, problems)?;
        if !is_good(&text) {
            problems.push(self.problem("another text, which is not shown".into(), expected));
            return None;
        }
        Some(text)
    }

    /// `true` or `false`.
    pub fn boolean(&self, problems: &mut Vec<Problem>) -> Option<bool> {
        match self.node {
            Node::Scalar(Value::Bool(value)) => Some(*value),
            _ => self.refuse("`true` or `false`", problems),
        }
    }

    /// A list's members.
    pub fn list(&self, problems: &mut Vec<Problem>) -> Option<Vec<At<'a>>> {
        let Node::List(items) = self.node else { return self.refuse("a list", problems) };
        let member = |(index, item): (usize, &'a Spanned<Node>)| {
            self.below(format!("{}[{index}]", self.key), item.referenced.line(), &item.value)
        };
        Some(items.iter().enumerate().map(member).collect())
    }

    /// A table whose keys may be anything: each key with its value.
    pub fn entries(&self, problems: &mut Vec<Problem>) -> Option<Vec<(&'a str, At<'a>)>> {
        let Node::Table(entries) = self.node else { return self.refuse("a table", problems) };
        let entry = |(key, value): &'a (Spanned<String>, Spanned<Node>)| {
            let path = if self.key.is_empty() { key.value.clone() } else { format!("{}.{}", self.key, key.value) };
            (key.value.as_str(), self.below(path, key.referenced.line(), &value.value))
        };
        Some(entries.iter().map(entry).collect())
    }

    /// The same, where nothing stands for a table without keys.
    pub fn table_or_nothing(&self, problems: &mut Vec<Problem>) -> Option<Table<'a>> {
        if matches!(self.node, Node::Scalar(Value::Null)) {
            return Some(Table { at: self.clone(), left: Vec::new(), known: Vec::new() });
        }
        self.table(problems)
    }

    /// A table whose keys are known.
    pub fn table(&self, problems: &mut Vec<Problem>) -> Option<Table<'a>> {
        Some(Table { at: self.clone(), left: self.entries(problems)?, known: Vec::new() })
    }
}

/// A table that is being read.
pub(super) struct Table<'a> {
    at: At<'a>,
    left: Vec<(&'a str, At<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The value of a key that may be absent. `null` is absent.
    pub fn optional(&mut self, key: &'static str) -> Option<At<'a>> {
        self.known.push(key);
        let index = self.left.iter().position(|(name, _)| *name == key)?;
        let (_, at) = self.left.swap_remove(index);
        (!matches!(at.node, Node::Scalar(Value::Null))).then_some(at)
    }

    /// The value of a key that must be there.
    pub fn required(&mut self, key: &'static str, expected: &str, problems: &mut Vec<Problem>) -> Option<At<'a>> {
        let found = self.optional(key);
        if found.is_none() {
            let dot = if self.at.key.is_empty() { "" } else { "." };
            let mut problem = self.at.problem("nothing".into(), expected);
            problem.key = format!("{}{dot}{key}", self.at.key);
            problems.push(problem);
        }
        found
    }

    /// Refuses the keys that were not read.
    pub fn end(mut self, problems: &mut Vec<Problem>) {
        self.known.sort_unstable();
        let known = self.known.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        for (_, at) in &self.left {
            problems.push(at.problem("a key that nobody knows".into(), &format!("one of {known}")));
        }
    }
}
