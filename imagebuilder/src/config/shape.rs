//! Holds a [`Node`] against the JSON Schema that schemars makes of the input types.
//!
//! The types stay the only description of the format: this walk finds unknown keys, missing keys and
//! values of the wrong kind, all of them, each with its place, and gives back the good part as JSON.
//! Serde then always succeeds on that part, so that `validate` can add what only it can see.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::Findings;
use super::path::KeyPath;
use super::tree::{Entry, Kind, Node};

/// What is expected in a mapping that has no keys yet.
const NO_KEYS: &str = "`{}`: it has no keys";

/// The JSON of everything in `node` that fits `schema`; `None` when nothing of it does.
pub(super) fn check(node: &Node, schema: &Value, findings: &mut Findings<'_>) -> Option<Value> {
    Shape { root: schema, findings }.node(node, schema, &KeyPath::default())
}

struct Shape<'a, 'f, 't> {
    root: &'a Value,
    findings: &'f mut Findings<'t>,
}

/// What a schema asks for, as far as our types use JSON Schema.
enum Wanted<'a> {
    Object(&'a Value),
    List(&'a Value),
    OneOf(Vec<&'a str>),
    Boolean,
    Integer,
    Text,
}

impl<'a> Shape<'a, '_, '_> {
    fn node(&mut self, node: &Node, schema: &'a Value, path: &KeyPath) -> Option<Value> {
        let schema = variant(self.root, schema, node);
        let wanted = wanted(schema);
        if node.is_null() {
            let expected = wanted.describe(schema);
            let hint = "give it a value, or remove the key to get the default";
            self.findings.add(node.span.clone(), path, "nothing stands here", expected, hint);
            return None;
        }
        match (&node.kind, &wanted) {
            (Kind::Refused, _) => {
                self.findings.settle(path);
                None
            }
            (Kind::Mapping(entries), Wanted::Object(_)) => Some(self.object(node, entries, schema, path)),
            (Kind::Sequence(items), Wanted::List(item)) => {
                let good = items.iter().enumerate().filter_map(|(i, node)| self.item(node, item, &path.index(i)));
                Some(Value::Array(good.collect()))
            }
            (Kind::Scalar { text, plain }, _) => self.scalar(node, text, *plain, &wanted, schema, path),
            (Kind::Mapping(_), _) => self.mismatch(node, "this is a mapping (`key: value`)", &wanted, schema, path),
            (Kind::Sequence(_), _) => self.mismatch(node, "this is a list", &wanted, schema, path),
        }
    }

    /// An item of a list keeps its index: what is wrong becomes an empty value.
    fn item(&mut self, node: &Node, schema: &'a Value, path: &KeyPath) -> Option<Value> {
        let good = self.node(node, schema, path);
        if good.is_some() {
            return good;
        }
        let schema = variant(self.root, schema, node);
        match wanted(schema) {
            Wanted::Object(_) => Some(Value::Object(Map::new())),
            Wanted::Text if form(schema) != Some("ip") => Some(Value::String(String::new())),
            Wanted::Text | Wanted::List(_) | Wanted::OneOf(_) | Wanted::Boolean | Wanted::Integer => None,
        }
    }

    fn object(&mut self, node: &Node, entries: &[Entry], schema: &'a Value, path: &KeyPath) -> Value {
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let mut good = Map::new();
        for entry in entries {
            if let Some(schema) = schema.get("properties").and_then(|all| all.get(&entry.key)) {
                if let Some(value) = self.node(&entry.value, schema, &path.key(&entry.key)) {
                    good.insert(entry.key.clone(), value);
                }
            } else if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                // A mapping whose keys are the user's own.
                if let Some(value) = self.node(&entry.value, schema, &path.key(&entry.key)) {
                    good.insert(entry.key.clone(), value);
                }
            } else {
                self.unknown(entry, properties, path);
            }
        }
        self.required(node, entries, schema, &mut good, path);
        Value::Object(good)
    }

    /// Reports missing keys. A text that is missing or wrong becomes an empty one, about which no more is said, so
    /// that the other keys beside it are checked all the same.
    fn required(
        &mut self,
        node: &Node,
        entries: &[Entry],
        schema: &'a Value,
        good: &mut Map<String, Value>,
        path: &KeyPath,
    ) {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        for key in required.filter(|key| !good.contains_key(*key)).collect::<Vec<_>>() {
            let Some(property) = schema.pointer(&format!("/properties/{key}")) else { continue };
            if !entries.iter().any(|entry| entry.key == key) {
                let place = self.findings.head(node, path);
                let whole = if path.is_empty() { "the document".to_owned() } else { format!("`{path}`") };
                let about = summary(self.root, property).unwrap_or_default();
                let (found, expected) = (format!("{whole} has no `{key}`"), format!("a key `{key}`"));
                self.findings.add(place, path, &found, expected, &format!("add `{key}: ...` ({about})"));
            }
            if matches!(wanted(resolve(self.root, property)), Wanted::Text) {
                self.findings.settle(&path.key(key));
                good.insert(key.to_owned(), Value::String(String::new()));
            }
        }
    }

    fn unknown(&mut self, entry: &Entry, properties: &Map<String, Value>, path: &KeyPath) {
        let place = if path.is_empty() { "here".to_owned() } else { format!("in `{path}`") };
        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let hint = if let Some(near) = nearest(&entry.key, &known) {
            format!("did you mean `{near}`?")
        } else if let Some(home) = homes(self.root, &entry.key).first() {
            format!("`{}` belongs in `{home}`", entry.key)
        } else {
            "remove it, or move it to where it belongs".to_owned()
        };
        let expected = if known.is_empty() { NO_KEYS.to_owned() } else { format!("one of {}", listed(&known)) };
        self.findings.add(
            entry.key_span.clone(),
            &path.key(&entry.key),
            &format!("there is no key `{}` {place}", entry.key),
            expected,
            &hint,
        );
    }

    fn scalar(
        &mut self,
        node: &Node,
        text: &str,
        plain: bool,
        wanted: &Wanted<'_>,
        schema: &Value,
        path: &KeyPath,
    ) -> Option<Value> {
        let look = if plain { look(text) } else { Look::Text };
        let form = form(schema);
        match (wanted, &look) {
            (Wanted::Text, Look::Text) if form == Some("ip") && text.parse::<IpAddr>().is_err() => {
                let found = format!("`{text}` is not an IP address");
                let hint = "write the address alone, without a prefix length or a port";
                self.findings.add(node.span.clone(), path, &found, "an address such as `10.0.0.1`", hint);
                None
            }
            // Where a text has a form of its own, `validate` knows better what to say about a bare number.
            (Wanted::Text, Look::Integer(_) | Look::Number) if form.is_some() => Some(Value::String(text.to_owned())),
            (Wanted::Text, Look::Text) => Some(Value::String(text.to_owned())),
            (Wanted::Text, _) => {
                let expected = wanted.describe(schema);
                let hint = format!("quote it if you mean the text: \"{text}\"");
                self.findings.add(
                    node.span.clone(),
                    path,
                    &format!("`{text}` is {}", look.describe()),
                    expected,
                    &hint,
                );
                None
            }
            (Wanted::OneOf(_), Look::Boolean(value)) if takes(schema, &Value::Bool(*value)) => {
                Some(Value::Bool(*value))
            }
            (Wanted::OneOf(_), Look::Text) if text.parse().is_ok_and(|value: bool| takes(schema, &value.into())) => {
                let hint = format!("write `{text}` without quotes");
                self.findings.add(
                    node.span.clone(),
                    path,
                    &format!("`\"{text}\"` is text"),
                    wanted.describe(schema),
                    &hint,
                );
                None
            }
            (Wanted::OneOf(choices), _) => self.choice(node, text, choices, wanted.describe(schema), path),
            (Wanted::Boolean, Look::Boolean(value)) => Some(Value::Bool(*value)),
            (Wanted::Boolean, Look::ImplicitBoolean(value)) => {
                let found = format!("`{text}` is an implicit boolean");
                self.findings.add(
                    node.span.clone(),
                    path,
                    &found,
                    wanted.describe(schema),
                    &format!("write `{value}`"),
                );
                None
            }
            (Wanted::Integer, Look::Integer(value)) => self.integer(node, *value, schema, path),
            // Who writes so means to switch it on.
            (Wanted::Object(_), Look::Boolean(true) | Look::ImplicitBoolean(true)) if !asks_for_keys(schema) => {
                let found = format!("`{text}` is {}", look.describe());
                let hint = format!("write `{}: {{}}`", path.last_key().unwrap_or_default());
                self.findings.add(node.span.clone(), path, &found, wanted.describe(schema), &hint);
                None
            }
            (_, look) => {
                let shown = if plain { format!("`{text}`") } else { format!("`\"{text}\"`") };
                self.mismatch(node, &format!("{shown} is {}", look.describe()), wanted, schema, path)
            }
        }
    }

    fn choice(&mut self, node: &Node, text: &str, choices: &[&str], expected: String, path: &KeyPath) -> Option<Value> {
        if choices.contains(&text) {
            return Some(Value::String(text.to_owned()));
        }
        let hint = match (choices, nearest(text, choices)) {
            ([only], _) => format!("write `{only}`"),
            (_, Some(near)) => format!("did you mean `{near}`?"),
            (_, None) => "choose one of them".to_owned(),
        };
        self.findings.add(node.span.clone(), path, &format!("`{text}` is not possible here"), expected, &hint);
        None
    }

    fn integer(&mut self, node: &Node, value: i64, schema: &Value, path: &KeyPath) -> Option<Value> {
        let least = schema.get("minimum").and_then(Value::as_i64).unwrap_or(i64::MIN);
        let most = schema.get("maximum").and_then(Value::as_i64).unwrap_or(i64::from(u32::MAX));
        if (least..=most).contains(&value) {
            return Some(Value::from(value));
        }
        let expected = format!("a number from {least} to {most}");
        self.findings.add(
            node.span.clone(),
            path,
            &format!("`{value}` is out of range"),
            expected,
            "give a number in that range",
        );
        None
    }

    fn mismatch(
        &mut self,
        node: &Node,
        found: &str,
        wanted: &Wanted<'_>,
        schema: &Value,
        path: &KeyPath,
    ) -> Option<Value> {
        let place = match node.kind {
            Kind::Scalar { .. } | Kind::Refused => node.span.clone(),
            Kind::Sequence(_) | Kind::Mapping(_) => self.findings.head(node, path),
        };
        let hint = wanted.advice(path);
        self.findings.add(place, path, found, wanted.describe(schema), &hint);
        None
    }
}

/// Whether a mapping of this schema cannot be empty.
fn asks_for_keys(schema: &Value) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|required| !required.is_empty())
}

impl Wanted<'_> {
    fn describe(&self, schema: &Value) -> String {
        let about = schema.get("title").and_then(Value::as_str);
        match self {
            Self::Object(_) => "a mapping (`key: value`)".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::OneOf(choices) => match choices.as_slice() {
                [only] => format!("`{only}`"),
                _ => format!("one of {}", listed(choices)),
            },
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Integer => "a whole number".to_owned(),
            Self::Text => about.map_or_else(|| "text".to_owned(), str::to_owned),
        }
    }

    fn advice(&self, path: &KeyPath) -> String {
        let Some(key) = path.last_key() else {
            return "a definition begins with `apiVersion: foothold.dev/v1`".to_owned();
        };
        match self {
            Self::Object(schema) => {
                let known: Vec<&str> = schema.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
                if known.is_empty() {
                    return format!("write `{key}: {{}}`");
                }
                format!("write `{key}: {{ ... }}` with keys of {}", listed(&known))
            }
            Self::List(_) => format!("write `{key}: [ ... ]`"),
            Self::Boolean => "write `true` or `false` without quotes".to_owned(),
            Self::Integer => "write the number in decimal digits, without quotes and without a leading zero".to_owned(),
            Self::OneOf(_) | Self::Text => format!("write one value after `{key}:`"),
        }
    }
}

/// How YAML readers old and new would take an unquoted scalar.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Text,
    Boolean(bool),
    ImplicitBoolean(bool),
    Integer(i64),
    Octal,
    Number,
}

impl Look {
    fn describe(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Boolean(_) => "a boolean",
            Self::ImplicitBoolean(_) => "an implicit boolean",
            Self::Octal => "an octal number to some readers",
            Self::Integer(_) | Self::Number => "a number",
        }
    }
}

fn look(text: &str) -> Look {
    match text.to_ascii_lowercase().as_str() {
        "true" if text == "true" => return Look::Boolean(true),
        "false" if text == "false" => return Look::Boolean(false),
        "y" | "yes" | "on" | "true" => return Look::ImplicitBoolean(true),
        "n" | "no" | "off" | "false" => return Look::ImplicitBoolean(false),
        ".inf" | "+.inf" | "-.inf" | ".nan" => return Look::Number,
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Look::Text;
    }
    if digits.starts_with("0o") || (digits.len() > 1 && digits.starts_with('0') && all_digits(digits)) {
        return Look::Octal;
    }
    if all_digits(digits) {
        return text.parse().map_or(Look::Number, Look::Integer);
    }
    let based = digits.starts_with("0x") || digits.starts_with("0b");
    let float = digits.parse::<f64>().is_ok();
    if based || float { Look::Number } else { Look::Text }
}

fn wanted(schema: &Value) -> Wanted<'_> {
    if let Some(choices) = choices(schema) {
        return Wanted::OneOf(choices);
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => Wanted::List(schema.get("items").unwrap_or(&Value::Null)),
        Some("boolean") => Wanted::Boolean,
        Some("integer") => Wanted::Integer,
        Some("string") => Wanted::Text,
        _ => Wanted::Object(schema.get("properties").unwrap_or(&Value::Null)),
    }
}

/// The words of an enum: `enum`, `const`, or `oneOf` of these (schemars writes the last when variants have docs). Booleans may
/// stand beside the words that mean the same: [`takes`] knows them.
fn choices(schema: &Value) -> Option<Vec<&str>> {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return Some(vec![word]);
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.iter().filter(|word| !word.is_boolean()).map(Value::as_str).collect();
    }
    let variants = schema.get("oneOf").and_then(Value::as_array)?;
    let words: Option<Vec<Vec<&str>>> = variants.iter().map(choices).collect();
    words.map(|words| words.concat())
}

/// Whether an enum names this value.
fn takes(schema: &Value, value: &Value) -> bool {
    schema.get("enum").and_then(Value::as_array).is_some_and(|all| all.contains(value))
}

/// The form of a text that is more than a text: a size, a version, an address, ...
fn form(schema: &Value) -> Option<&str> {
    schema.get("x-form").or_else(|| schema.get("format")).and_then(Value::as_str)
}

/// Follows `$ref` and a lone `anyOf`.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    loop {
        let next = match (schema.get("$ref").and_then(Value::as_str), schema.get("anyOf").and_then(Value::as_array)) {
            (Some(name), _) => root.pointer(name.trim_start_matches('#')),
            (None, Some(variants)) if variants.len() == 1 => variants.first(),
            (None, _) => None,
        };
        let Some(next) = next else { return schema };
        schema = next;
    }
}

/// Of a schema with two forms, a text and a mapping, the one that the node has.
fn variant<'a>(root: &'a Value, schema: &'a Value, node: &Node) -> &'a Value {
    let schema = resolve(root, schema);
    let Some(forms) = schema.get("anyOf").and_then(Value::as_array) else { return schema };
    let mut forms = forms.iter().map(|form| resolve(root, form));
    let is_mapping = matches!(node.kind, Kind::Mapping(_));
    forms.find(|form| matches!(wanted(form), Wanted::Object(_)) == is_mapping).unwrap_or(schema)
}

/// First sentence of what the schema says about itself.
fn summary<'a>(root: &'a Value, schema: &'a Value) -> Option<String> {
    let text = schema.get("description").or_else(|| resolve(root, schema).get("description"))?.as_str()?;
    let line = text.split("\n\n").next().unwrap_or(text).replace('\n', " ");
    let mut letters = line.trim_end_matches('.').chars();
    // The first letter is small here, unless it begins an abbreviation or a name in backticks.
    let first = letters.next()?;
    let small = letters.clone().next().is_some_and(char::is_lowercase) || !letters.clone().next()?.is_alphabetic();
    Some(if small {
        first.to_lowercase().chain(letters).collect()
    } else {
        std::iter::once(first).chain(letters).collect()
    })
}

/// The word of `known` that was most probably meant.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let lower = word.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_lowercase());
    let best = known.iter().copied().min_by_key(|known| distance(known))?;
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    (distance(best) <= allowed).then_some(best)
}

/// Key paths of mappings that have a key of that name.
fn homes(root: &Value, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect_homes(root, root, key, &KeyPath::default(), &mut found);
    found
}

fn collect_homes(root: &Value, schema: &Value, key: &str, path: &KeyPath, found: &mut Vec<String>) {
    let schema = resolve(root, schema);
    if let Some(items) = schema.get("items") {
        collect_homes(root, items, key, path, found);
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    if !path.is_empty() && properties.contains_key(key) {
        found.push(path.to_string());
    }
    for (name, schema) in properties {
        collect_homes(root, schema, key, &path.key(name), found);
    }
}

/// `a`, `b` and `c` with backticks.
pub(super) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use agent_api::site::Site;
    use serde_json::Value;

    use super::super::{input, schema, simulation};
    use super::{Look, choices, look, nearest};

    /// What this walk would take for a mapping, though nothing says that it is one.
    fn unclear(schema: &Value, at: &str, found: &mut Vec<String>) {
        let names = ["$ref", "anyOf"].iter().any(|key| schema.get(key).is_some());
        let known = ["object", "array", "boolean", "integer", "string"];
        let typed = schema.get("type").and_then(Value::as_str).is_some_and(|name| known.contains(&name));
        if !names && !typed && choices(schema).is_none() {
            found.push(format!("{at}: {schema}"));
        }
        let parts = schema.get("properties").or_else(|| schema.get("$defs")).and_then(Value::as_object);
        for (name, part) in parts.into_iter().flatten() {
            unclear(part, &format!("{at}.{name}"), found);
        }
        if let Some(defs) = schema.get("$defs").filter(|_| schema.get("properties").is_some()) {
            unclear(&serde_json::json!({ "type": "object", "properties": defs }), at, found);
        }
        let items = [schema.get("items"), schema.get("additionalProperties").filter(|more| more.is_object())];
        for part in
            items.into_iter().flatten().chain(schema.get("anyOf").and_then(Value::as_array).into_iter().flatten())
        {
            unclear(part, at, found);
        }
    }

    #[test]
    fn every_value_of_every_kind_of_file_says_what_it_is() {
        let mut found = Vec::new();
        unclear(&schema::of::<Site>(), "Site", &mut found);
        unclear(&schema::of::<input::Appliance>(), "Appliance", &mut found);
        unclear(&simulation::json_schema(), "Simulation", &mut found);
        assert!(found.is_empty(), "{found:#?}");
        unclear(&serde_json::json!({ "description": "anything" }), "", &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn unquoted_words_are_taken_as_the_most_suspicious_reader_would() {
        for (text, expected) in [
            ("true", Look::Boolean(true)),
            ("True", Look::ImplicitBoolean(true)),
            ("off", Look::ImplicitBoolean(false)),
            ("8", Look::Integer(8)),
            ("010", Look::Octal),
            ("0o17", Look::Octal),
            ("1.36", Look::Number),
            ("1e3", Look::Number),
            ("0x1F", Look::Number),
            ("52:54:00:12:34:56", Look::Text),
            ("1.36.4", Look::Text),
            ("v1.36.4", Look::Text),
            ("10.0.0.0/8", Look::Text),
            ("28GiB", Look::Text),
            ("60s", Look::Text),
        ] {
            assert_eq!(look(text), expected, "{text}");
        }
    }

    #[test]
    fn only_a_near_word_is_suggested() {
        assert_eq!(nearest("kubernets", &["kubernetes", "kind"]), Some("kubernetes"));
        assert_eq!(nearest("podCidr", &["podCIDR", "version"]), Some("podCIDR"));
        assert_eq!(nearest("bananas", &["kubernetes", "kind"]), None);
    }
}
