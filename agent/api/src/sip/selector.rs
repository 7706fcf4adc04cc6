//! Selectors of labels, as Kubernetes' `meta/v1.LabelSelector` has them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metal3::admission::{label_value, qualified_name};

/// All that is wrong with names and values of labels, which no object could have. `at`: their path, such as
/// `spec.nodeSelector.matchLabels`.
pub fn wrong_labels<'a>(at: &str, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    let of = |(key, value): (&String, &String)| {
        let name = wrong_label_name(at, key);
        name.or_else(|| {
            Some(format!("{at}: the value of `{key}` is `{value}`, which no label has: {}", label_value(value).next()?))
        })
    };
    labels.into_iter().filter_map(of).collect()
}

/// What is wrong with the name of a label, if anything.
pub fn wrong_label_name(at: &str, key: &str) -> Option<String> {
    let problems = qualified_name(key);
    (!problems.is_empty()).then(|| format!("{at}: found `{key}`, which no label is called: {}", problems.join(", ")))
}

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl Operator {
    const fn word(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

/// What a label must be like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requirement {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what: for `In` and `NotIn`, and only for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 63)))]
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether an object with these labels fits.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let found = labels.get(&self.key);
        let listed = found.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
        }
    }
}

/// Which objects are meant: those that fit all of it. An empty one means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements of labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    /// What an object with these labels lacks. Nothing: it fits.
    pub fn lacks(&self, labels: &BTreeMap<String, String>) -> Option<String> {
        let label = self.match_labels.iter().find(|(key, value)| labels.get(*key) != Some(value));
        if let Some((key, value)) = label {
            return Some(format!("it has no label `{key}: {value}`"));
        }
        let requirement = self.match_expressions.iter().find(|requirement| !requirement.matches(labels))?;
        let key = &requirement.key;
        Some(match requirement.operator {
            Operator::In => format!("its label `{key}` is none of {}", requirement.values.join(", ")),
            Operator::NotIn => format!("its label `{key}` is one of {}", requirement.values.join(", ")),
            Operator::Exists => format!("it has no label `{key}`"),
            Operator::DoesNotExist => format!("it has the label `{key}`"),
        })
    }

    /// All that is wrong with it. `at`: its path, such as `spec.nodes.Worker.labelSelector`.
    pub fn wrong(&self, at: &str) -> Vec<String> {
        let mut all = wrong_labels(&format!("{at}.matchLabels"), &self.match_labels);
        for (number, requirement) in self.match_expressions.iter().enumerate() {
            let at = format!("{at}.matchExpressions[{number}]");
            all.extend(wrong_label_name(&format!("{at}.key"), &requirement.key));
            let at = format!("{at}.values");
            all.extend(wrong_labels(&at, requirement.values.iter().map(|value| (&requirement.key, value))));
            let word = requirement.operator.word();
            match requirement.operator {
                Operator::In | Operator::NotIn if requirement.values.is_empty() => {
                    all.push(format!("{at} is empty, and the operator `{word}` needs values"));
                }
                Operator::Exists | Operator::DoesNotExist if !requirement.values.is_empty() => {
                    all.push(format!("{at} is not empty, and the operator `{word}` takes no values"));
                }
                Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
            }
        }
        all
    }
}

/// As Go prints a `LabelSelector` (`%v`), which Airship's own messages do.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.match_labels.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        let expressions = self.match_expressions.iter().map(|requirement| {
            format!("{{{} {} [{}]}}", requirement.key, requirement.operator.word(), requirement.values.join(" "))
        });
        write!(f, "{{map[{}] [{}]}}", labels.join(" "), expressions.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::LabelSelector;

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).expect("a selector")
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// The cases of Kubernetes' own table for requirements.
    #[rstest]
    #[case(json!({}), true)]
    #[case(json!({"matchLabels": {"rack": "a"}}), true)]
    #[case(json!({"matchLabels": {"rack": "b"}}), false)]
    #[case(json!({"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a", "b"]}]}), true)]
    #[case(json!({"matchExpressions": [{"key": "rack", "operator": "In", "values": ["b"]}]}), false)]
    #[case(json!({"matchExpressions": [{"key": "none", "operator": "In", "values": ["a"]}]}), false)]
    #[case(json!({"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["a"]}]}), false)]
    #[case(json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}), true)]
    #[case(json!({"matchExpressions": [{"key": "rack", "operator": "Exists"}]}), true)]
    #[case(json!({"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}), false)]
    #[case(json!({"matchLabels": {"rack": "a"}, "matchExpressions": [{"key": "none", "operator": "Exists"}]}), false)]
    fn all_parts_must_fit(#[case] value: Value, #[case] fits: bool) {
        assert_eq!(selector(value).lacks(&labels(&[("rack", "a")])).is_none(), fits);
    }

    /// An object without labels was a nil map there.
    #[test]
    fn an_object_without_labels_is_refused_in_words() {
        let selector = selector(json!({"matchLabels": {"rack": "a"}}));
        assert_eq!(selector.lacks(&BTreeMap::new()).as_deref(), Some("it has no label `rack: a`"));
    }

    #[test]
    fn what_is_no_requirement_is_named_with_its_path() {
        let wrong = selector(json!({"matchExpressions": [{"key": "a", "operator": "In"},
            {"key": "b", "operator": "Exists", "values": ["x"]}, {"key": "c", "operator": "Exists"}]}))
        .wrong("spec.nodes.Worker.labelSelector");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(
            wrong[0].starts_with("spec.nodes.Worker.labelSelector.matchExpressions[0].values is empty"),
            "{wrong:?}"
        );
    }

    /// Nothing could match it, so that every host would be blamed.
    #[test]
    fn what_no_label_can_be_is_named_with_its_path() {
        let at = "spec.nodes.Worker.labelSelector";
        for (value, words) in [
            (json!({"matchLabels": {"a b": "x"}}), "matchLabels: found `a b`, which no label is called"),
            (json!({"matchLabels": {"a": "x y"}}), "matchLabels: the value of `a` is `x y`, which no label has"),
            (json!({"matchLabels": {"a": "x".repeat(64)}}), "no more than 63 characters"),
            (json!({"matchExpressions": [{"key": "/a", "operator": "Exists"}]}), "matchExpressions[0].key: found `/a`"),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "-"]}]}),
                "matchExpressions[0].values: the value of `a` is `-`",
            ),
        ] {
            let wrong = selector(value).wrong(at);
            assert!(wrong.len() == 1 && wrong[0].contains(words), "{words}: {wrong:?}");
        }
    }

    #[test]
    fn it_is_printed_as_go_prints_it() {
        let selector = selector(json!({"matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [{"key": "rack", "operator": "In", "values": ["x", "y"]}]}));
        assert_eq!(selector.to_string(), "{map[a:1 b:2] [{rack In [x y]}]}");
    }
}
