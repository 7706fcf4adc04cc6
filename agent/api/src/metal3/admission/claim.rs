//! Rules of `HostClaim`.

use super::super::annotations::reboot_client;
use super::super::{HostClaim, HostSelectorRequirement};
use super::{Secrets, annotations, image};
use crate::metal3::go_url::quoted;

/// What speaks against a claim.
pub fn host_claim(claim: &HostClaim) -> Vec<String> {
    let mut problems = Vec::new();
    let spec = &claim.spec;
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    Secrets { resource: "hostclaims", name, namespace }.check(
        &[
            ("userData", spec.user_data.as_ref()),
            ("networkData", spec.network_data.as_ref()),
            ("metaData", spec.meta_data.as_ref()),
        ],
        &mut problems,
    );
    if let Some(selector) = &spec.host_selector {
        for (key, value) in selector.match_labels.iter().flatten() {
            let both = qualified_name(key).into_iter().chain(label_value(value));
            problems.extend(both.map(|problem| format!("{key}={value}: {problem}")));
        }
        for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
            expression(index + 1, requirement, &mut problems);
        }
    }
    for (annotation, value) in claim.metadata.annotations.iter().flatten() {
        if reboot_client(annotation).is_some() {
            problems.extend(annotations::reboot(value).err());
        }
    }
    if let Some(wanted) = &spec.image {
        image(wanted, &mut problems);
    }
    problems
}

fn expression(number: usize, requirement: &HostSelectorRequirement, problems: &mut Vec<String>) {
    let HostSelectorRequirement { key, operator, values } = requirement;
    problems.extend(qualified_name(key).into_iter().map(|problem| format!("matchExpr {number}: {problem}")));
    let on_label = format!("operator {operator} in match expression on label key {key}");
    let may_have = match operator.as_str() {
        "=" | "==" | "!=" if values.len() != 1 => {
            problems.push(format!("matchExpr {number}: exactly one value for {on_label}"));
            false
        }
        "in" | "notin" if values.is_empty() => {
            problems.push(format!("matchExpr {number}: At least one value in list for {on_label}"));
            false
        }
        "=" | "==" | "!=" | "in" | "notin" => true,
        "exists" | "!" => {
            if !values.is_empty() {
                problems.push(format!("matchExpr {number}: values not authorized for {on_label}"));
            }
            false
        }
        _ => {
            problems.push(format!(
                "matchExpr {number}: invalid operation {operator} in match expression on label key {key}"
            ));
            false
        }
    };
    if may_have {
        for value in values {
            let told = |problem| format!("matchExpr {number} (value {}): {problem}", quoted(value));
            problems.extend(label_value(value).map(told));
        }
    }
}

const NAME_FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN_FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What Kubernetes says about a label's key (`validation.IsQualifiedName`).
pub fn qualified_name(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".into());
            } else {
                if prefix.len() > 253 {
                    problems.push("prefix part must be no more than 253 characters".into());
                }
                if !prefix.split('.').all(|label| has_form(label, |byte| is_lower(byte) || byte == b'-', is_lower)) {
                    problems.push(format!("prefix part {SUBDOMAIN_FORM}"));
                }
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME_FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".into());
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME_FORM}"));
    }
    problems
}

/// What Kubernetes says about a label's value (`validation.IsValidLabelValue`).
pub fn label_value(value: &str) -> impl Iterator<Item = String> {
    let long = (value.len() > 63).then(|| "must be no more than 63 characters".to_owned());
    let odd = (!value.is_empty() && !is_name(value)).then(|| VALUE_FORM.to_owned());
    long.into_iter().chain(odd)
}

fn is_name(name: &str) -> bool {
    let end = |byte: u8| byte.is_ascii_alphanumeric();
    has_form(name, |byte| end(byte) || b"-_.".contains(&byte), end)
}

const fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn has_form(text: &str, inside: impl Fn(u8) -> bool, end: impl Fn(u8) -> bool) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    text.bytes().all(inside) && ends.into_iter().all(|byte| byte.is_some_and(&end))
}
