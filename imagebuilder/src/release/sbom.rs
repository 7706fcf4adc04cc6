//! The list of everything in a release, as SPDX 2.3 in JSON.

use serde_json::Value;

/// The release that a list names.
pub fn release_of(json: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(json).ok()?;
    let namespace = document.get("documentNamespace")?.as_str()?;
    namespace.rsplit('/').next().map(str::to_owned)
}
