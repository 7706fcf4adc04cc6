//! Which labels a host must have.

use std::collections::BTreeMap;

use agent_api::metal3::{HostSelector, HostSelectorRequirement};

/// What a requirement asks for, in the words of Kubernetes' label selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

fn operator(requirement: &HostSelectorRequirement) -> Result<Operator, String> {
    let HostSelectorRequirement { key, operator, values } = requirement;
    let wrong = |wants: &str| Err(format!("the expression on the label `{key}` wants {wants} for `{operator}`"));
    let number = || match values.as_slice() {
        [one] => one.parse::<i64>().ok(),
        _ => None,
    };
    match operator.to_lowercase().as_str() {
        "=" | "==" | "!=" if values.len() != 1 => wrong("one value"),
        "in" | "notin" if values.is_empty() => wrong("values"),
        "exists" | "!" | "doesnotexist" if !values.is_empty() => wrong("no values"),
        "=" | "==" | "in" => Ok(Operator::In),
        "!=" | "notin" => Ok(Operator::NotIn),
        "exists" => Ok(Operator::Exists),
        "!" | "doesnotexist" => Ok(Operator::Absent),
        "gt" => number().map_or_else(|| wrong("a whole number"), |number| Ok(Operator::Greater(number))),
        "lt" => number().map_or_else(|| wrong("a whole number"), |number| Ok(Operator::Less(number))),
        _ => Err(format!("the expression on the label `{key}` has the unknown operator `{operator}`")),
    }
}

/// Whether labels are as asked for.
///
/// # Errors
/// Which expression is wrong, and why.
pub fn matches(selector: Option<&HostSelector>, labels: &BTreeMap<String, String>) -> Result<bool, String> {
    let Some(selector) = selector else { return Ok(true) };
    let mut fits = selector.match_labels.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    for requirement in selector.match_expressions.iter().flatten() {
        let value = labels.get(&requirement.key);
        let number = value.and_then(|value| value.parse::<i64>().ok());
        fits &= match operator(requirement)? {
            Operator::In => value.is_some_and(|value| requirement.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::Greater(than) => number.is_some_and(|number| number > than),
            Operator::Less(than) => number.is_some_and(|number| number < than),
        };
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agent_api::metal3::HostSelector;
    use serde_json::{Value, json};

    use super::matches;

    fn found(selector: Value) -> Result<bool, String> {
        let labels = [("size", "big"), ("disks", "4")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let selector: HostSelector = serde_json::from_value(selector).expect("a selector");
        matches(Some(&selector), &BTreeMap::from(labels))
    }

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let expression =
            |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        for (expression, holds) in [
            (expression("size", "in", json!(["small", "big"])), true),
            (expression("size", "In", json!(["small"])), false),
            (expression("size", "=", json!(["big"])), true),
            (expression("size", "!=", json!(["big"])), false),
            (expression("size", "notin", json!(["small"])), true),
            (expression("rack", "NotIn", json!(["1"])), true),
            (expression("rack", "in", json!(["1"])), false),
            (expression("size", "exists", json!([])), true),
            (expression("rack", "!", json!([])), true),
            (expression("size", "DoesNotExist", json!([])), false),
            (expression("disks", "gt", json!(["3"])), true),
            (expression("disks", "lt", json!(["4"])), false),
            (expression("size", "gt", json!(["3"])), false),
        ] {
            assert_eq!(found(json!({"matchExpressions": [expression]})), Ok(holds), "{expression}");
        }
        assert_eq!(found(json!({"matchLabels": {"size": "big"}})), Ok(true));
        assert_eq!(found(json!({"matchLabels": {"size": "big", "rack": "1"}})), Ok(false));
        assert_eq!(found(json!({})), Ok(true));
        assert_eq!(matches(None, &BTreeMap::new()), Ok(true));
    }

    #[test]
    fn an_expression_that_is_none_is_told() {
        for (operator, values, why) in [
            ("~", json!(["a"]), "unknown operator `~`"),
            ("in", json!([]), "wants values"),
            ("=", json!(["a", "b"]), "wants one value"),
            ("exists", json!(["a"]), "wants no values"),
            ("gt", json!(["a"]), "wants a whole number"),
        ] {
            let expression = json!({"key": "size", "operator": operator, "values": values});
            let told = found(json!({"matchExpressions": [expression]})).expect_err("wrong");
            assert!(told.contains(why), "{told}");
        }
    }
}
