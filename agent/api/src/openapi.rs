//! OpenAPI 3.1 documents: what those of all interfaces have in common.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// What a document is about.
pub(crate) struct About {
    pub title: &'static str,
    pub description: &'static str,
    pub port: u16,
}

/// Collects the schemas of a document, each with the ones that it needs beside it.
pub(crate) fn generator() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12();
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// The document; `needs` names the schemes of which a request must fulfil one.
pub(crate) fn document(
    about: &About,
    paths: &Map<String, Value>,
    mut schemas: SchemaGenerator,
    security_schemes: &Value,
    needs: &Value,
) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": env!("CARGO_PKG_VERSION"),
            "description": about.description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": format!("https://{{box}}:{}", about.port), "variables": {"box": {"default": "foothold"}}}],
        "security": needs,
        "paths": paths,
        "components": {"schemas": schemas.take_definitions(true), "securitySchemes": security_schemes},
    })
}

/// The scheme of the box's token.
pub(crate) fn token() -> Value {
    json!({
        "type": "http",
        "scheme": "bearer",
        "description": "The token whose hash is in Site, or that the claim gave.",
    })
}

/// Compares a document with the committed one at `path`, or writes it there when `INSTA_UPDATE=always` says so.
#[cfg(test)]
pub(crate) fn is_committed(document: &Value, path: &str) {
    let generated = format!("{document:#}\n");
    let committed = fs_err::read_to_string(path).unwrap_or_default();
    if committed != generated && std::env::var_os("INSTA_UPDATE").is_some_and(|mode| mode == "always") {
        fs_err::write(path, &generated).expect("written");
        return;
    }
    assert!(committed == generated, "{path} is old; hint: INSTA_UPDATE=always cargo test -p agent-api");
}
