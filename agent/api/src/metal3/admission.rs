//! What is refused when a resource is created or changed, in the words of the original webhooks.
//!
//! ```text
//! object (schema accepted it) ──► rules of its kind ──► problems, all of them ──► message ──► webhook's answer
//! ```
//! Pure functions: what a rule needs from elsewhere, such as who refers to an attachment, is an argument.

use super::SecretReference;
use super::go_url;
use super::image::{DiskFormat, Image};

mod annotations;
mod claim;
mod host;
mod others;

pub use claim::{host_claim, label_value, qualified_name};
pub use host::{host_create, host_update};
pub use others::{
    data_image, event_subscription_create, event_subscription_update, firmware_components, network_attachment_create,
    network_attachment_delete, network_attachment_update,
};

/// Schemes that an image can be fetched by.
const IMAGE_SCHEMES: [&str; 5] = ["http", "https", "ftp", "gopher", "oci"];
/// Schemes that an ISO image or a firmware update can be fetched by.
const FILE_SCHEMES: [&str; 3] = ["http", "https", "oci"];

/// One message of all problems, as API servers word them; `None` without any.
pub fn message(problems: &[String]) -> Option<String> {
    let mut seen: Vec<&str> = Vec::new();
    for problem in problems {
        if !seen.contains(&problem.as_str()) {
            seen.push(problem);
        }
    }
    match seen.as_slice() {
        [] => None,
        [only] => Some((*only).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// A URL that is absolute, or a path, and of one of these schemes.
fn fetchable(url: &str, schemes: &[&str]) -> Result<(), String> {
    let parsed = go_url::parse_request(url)?;
    if schemes.contains(&parsed.scheme.as_str()) {
        Ok(())
    } else {
        Err(format!("invalid scheme in URL, \"{}\" not allowed", parsed.scheme))
    }
}

fn image(image: &Image, problems: &mut Vec<String>) {
    if let Err(problem) = fetchable(&image.url, &IMAGE_SCHEMES) {
        problems.push(format!("image URL {} is invalid: {problem}", image.url));
    }
    let has_checksum = image.checksum.as_ref().is_some_and(|checksum| !checksum.is_empty());
    if image.url.to_ascii_lowercase().starts_with("oci://") {
        if has_checksum {
            problems.push(
                "spec.image.checksum must be empty for OCI images (oci:// images have embedded checksums)".into(),
            );
        }
    } else if image.format != Some(DiskFormat::LiveIso) && !has_checksum {
        problems.push("checksum is required for normal images".into());
    }
}

/// Where an object's Secrets may be: in its own namespace.
struct Secrets<'a> {
    resource: &'a str,
    name: &'a str,
    namespace: &'a str,
}

impl Secrets<'_> {
    fn check(&self, fields: &[(&str, Option<&SecretReference>)], problems: &mut Vec<String>) {
        for (field, reference) in fields {
            let namespace = reference.and_then(|reference| reference.namespace.as_deref()).unwrap_or_default();
            if !namespace.is_empty() && namespace != self.namespace {
                problems.push(format!(
                    "{}.metal3.io \"{}\" is forbidden: {field}: cross-namespace Secret references are not allowed",
                    self.resource, self.name
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests;
