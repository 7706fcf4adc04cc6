//! The OpenAPI 3.1 document of the box's own REST, made from the types and the list of routes.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::routes::{Body, Operation, Takes, Who};
use crate::openapi::{About, document, generator, token};
use crate::ports;

/// The document, the same text for the same code.
pub fn openapi() -> Value {
    let mut schemas = generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in Operation::ALL {
        let route = operation.route();
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name().to_lowercase()] = told(*operation, &mut schemas);
    }
    let about = About {
        title: "Foothold",
        description: "The box: how it is, what happens on it, its kubeconfig, its servers, its next release.",
        port: ports::WEB,
    };
    document(&about, &paths, schemas, &json!({"token": token()}), &json!([{"token": []}]))
}

fn told(operation: Operation, schemas: &mut SchemaGenerator) -> Value {
    let route = operation.route();
    let mut name = format!("{operation:?}");
    name[..1].make_ascii_lowercase();
    let mut told = json!({
        "operationId": name,
        "summary": operation.summary(),
        "parameters": parameters(operation, schemas),
        "responses": responses(operation, schemas),
    });
    if route.who == Who::Anybody {
        told["security"] = json!([]);
    }
    if let Some(Takes { body, what, most_bytes }) = &route.takes {
        let most = most_bytes.map_or_else(String::new, |most| format!(", at most {} KiB", most / 1024));
        let description = format!("{what}{most}");
        told["requestBody"] = json!({"required": true, "description": description, "content": content(body, schemas)});
    }
    told
}

fn parameters(operation: Operation, schemas: &mut SchemaGenerator) -> Value {
    let route = operation.route();
    let placeholders = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = placeholders
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    for one in route.query {
        let schema = (one.schema)(schemas);
        all.push(json!({"name": one.name, "in": "query", "description": one.what, "schema": schema}));
    }
    json!(all)
}

fn responses(operation: Operation, schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let mut responses: Map<String, Value> = Map::new();
    for answer in operation.answers() {
        let status = answer.status.to_string();
        if let Some(Value::String(when)) = responses.get_mut(&status).map(|known| &mut known["description"]) {
            // Door and route both give it.
            *when = format!("{when}; {}", answer.when);
            continue;
        }
        let mut response = json!({"description": answer.when});
        let content = content(&answer.body, schemas);
        if content.as_object().is_some_and(|content| !content.is_empty()) {
            response["content"] = content;
        }
        responses.insert(status, response);
    }
    responses
}

fn content(body: &Body, schemas: &mut SchemaGenerator) -> Value {
    match body {
        Body::Empty => json!({}),
        Body::Json(schema) => json!({"application/json": {"schema": schema(schemas)}}),
        Body::Other(media) => json!({*media: {}}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::Operation;
    use super::openapi;
    use crate::openapi::is_committed;

    #[test]
    fn the_committed_document_is_the_generated_one() {
        is_committed(&openapi(), concat!(env!("CARGO_MANIFEST_DIR"), "/openapi-rest.json"));
    }

    #[test]
    fn every_route_and_reference_is_in_it() {
        let document = openapi();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().expect("a text");
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        for operation in Operation::ALL {
            let route = operation.route();
            let told = &document["paths"][route.path][route.method.name().to_lowercase()];
            for answer in operation.answers() {
                let said = told["responses"][answer.status.to_string()]["description"].as_str().expect("told");
                assert!(said.contains(answer.when), "{operation:?}: {said}");
            }
        }
    }
}
