//! The OpenAPI 3.1 document, made from the types and the list of routes.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::routes::{Answer, Body, Operation};
use super::{Image, ImageList, Kind, LONGEST_NAME, LONGEST_OWNER, Metadata, PAGE, Storage};
use crate::openapi::{About, document, generator, token};
use crate::ports;
use crate::rest::Problem;

/// The document, the same text for the same code.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for kind in Kind::ALL {
        for operation in Operation::ALL {
            let path = paths.entry(operation.path(kind)).or_insert_with(|| json!({}));
            path[operation.method()] = told(operation, kind);
        }
    }
    let about = About {
        title: "Binary Provisioning Agent",
        description: "Uploads for a site. Clients of Akraino ICN's agent work unchanged; `compat: true` in Site's `uploads` also brings back its status 500 for what is missing or there already.",
        port: ports::BPA,
    };
    let security_schemes = json!({
        "token": token(),
        "certificate": {"type": "mutualTLS", "description": "A certificate of Site's `access.clientCa`. It may act for the owners that its subject names as O, or without O as CN; `foothold:admin` for all."},
    });
    let mut schemas = generator();
    for_each(&mut schemas);
    document(&about, &paths, schemas, &security_schemes, &json!([{"token": []}, {"certificate": []}]))
}

/// Named schemas.
fn for_each(generator: &mut schemars::SchemaGenerator) {
    fn one<T: JsonSchema>(generator: &mut schemars::SchemaGenerator) {
        let _ = generator.subschema_for::<T>();
    }
    one::<Metadata>(generator);
    one::<Image>(generator);
    one::<ImageList>(generator);
    one::<Storage>(generator);
    one::<Problem>(generator);
}

fn told(operation: Operation, kind: Kind) -> Value {
    let mut responses: Map<String, Value> = Map::new();
    for answer in operation.answers() {
        responses.insert(answer.status.to_string(), response(operation, answer));
    }
    let mut told = json!({
        "operationId": format!("{}_{}", format!("{operation:?}").to_lowercase(), kind),
        "summary": operation.summary(),
        "tags": [kind.name()],
        "parameters": parameters(operation),
        "responses": responses,
    });
    if matches!(operation, Operation::Storage | Operation::Document) {
        told["operationId"] = json!(format!("{operation:?}").to_lowercase());
        told["tags"] = json!(["box"]);
    }
    if let Some(body) = request(operation) {
        told["requestBody"] = body;
    }
    told
}

fn parameters(operation: Operation) -> Value {
    let name = |name: &str, longest: usize| {
        let pattern = r"^[A-Za-z0-9][A-Za-z0-9._+~@:=,\-]*$";
        let schema = json!({"type": "string", "minLength": 1, "maxLength": longest, "pattern": pattern});
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    };
    let mut all = Vec::new();
    if !matches!(operation, Operation::Storage | Operation::Document) {
        all.extend([name("owner", LONGEST_OWNER), name("clustername", LONGEST_OWNER)]);
    }
    match operation {
        Operation::Get | Operation::Head | Operation::Update | Operation::Delete => {
            all.push(name("imgname", LONGEST_NAME));
        }
        Operation::Upload => {
            all.push(name("imgname", LONGEST_NAME));
            let offset = json!({"type": "integer", "minimum": 0});
            all.push(json!({"name": "Upload-Offset", "in": "header", "required": true, "schema": offset}));
        }
        Operation::List => {
            let limit = json!({"type": "integer", "minimum": 1, "maximum": PAGE, "default": PAGE});
            all.push(json!({"name": "limit", "in": "query", "schema": limit}));
            all.push(json!({"name": "after", "in": "query", "schema": {"type": "string"}}));
        }
        Operation::Create | Operation::Storage | Operation::Document => {}
    }
    json!(all)
}

fn request(operation: Operation) -> Option<Value> {
    match operation {
        Operation::Create | Operation::Update => Some(json!({
            "required": true,
            "content": {"multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["metadata", "file"],
                    "properties": {
                        "metadata": {"$ref": "#/components/schemas/Metadata"},
                        "file": {"type": "string", "description": "must be there; what is in it is ignored"},
                    },
                },
                "encoding": {"metadata": {"contentType": "application/json"}},
            }},
        })),
        Operation::Upload => Some(json!({
            "required": true,
            "description": "All bytes from Upload-Offset to the end, with Content-Length.",
            "content": {"application/octet-stream": {}},
        })),
        Operation::List
        | Operation::Get
        | Operation::Head
        | Operation::Delete
        | Operation::Storage
        | Operation::Document => None,
    }
}

fn response(operation: Operation, answer: Answer) -> Value {
    let mut told = json!({"description": answer.when});
    let content = |kind: &str, schema: Value| json!({ kind: {"schema": schema} });
    let named = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let body = match answer.body {
        Body::Empty => None,
        Body::Text => Some(content("text/plain", json!({"type": "string"}))),
        Body::Image => Some(content("application/json", named("Image"))),
        Body::List => Some(content("application/json", named("ImageList"))),
        Body::Storage => Some(content("application/json", named("Storage"))),
        Body::Problem => Some(content("application/json", named("Problem"))),
        Body::Document => Some(content("application/json", json!({"type": "object"}))),
    };
    if let Some(body) = body.filter(|_| operation != Operation::Head) {
        told["content"] = body;
    }
    let number = json!({"schema": {"type": "integer", "minimum": 0}});
    if matches!((operation, answer.status), (Operation::Upload, 204) | (Operation::Get | Operation::Head, 200)) {
        told["headers"] = json!({"Upload-Offset": number});
    }
    if matches!((operation, answer.status), (Operation::Get | Operation::Head, 200)) {
        told["headers"]["Upload-Length"] = number;
        let etag = json!({"schema": {"type": "string"}, "description": "the digest of a complete image"});
        told["headers"]["ETag"] = etag;
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::routes::Operation;
    use super::super::{Kind, openapi};
    use crate::openapi::is_committed;

    #[test]
    fn the_committed_document_is_the_generated_one() {
        is_committed(&openapi(), concat!(env!("CARGO_MANIFEST_DIR"), "/openapi-bpa.json"));
    }

    /// The table of ICN's routes: method, collection or image, statuses.
    #[test]
    fn every_route_and_status_of_the_table_is_in_it() {
        let table: [(&str, &str, &[u16]); 5] = [
            ("post", "", &[201, 422, 400, 500, 409]),
            ("get", "/{imgname}", &[200, 500, 404]),
            ("put", "/{imgname}", &[201, 422, 400, 500, 404]),
            ("patch", "/{imgname}", &[204, 500, 422, 400, 409, 404]),
            ("delete", "/{imgname}", &[204, 500, 404, 409]),
        ];
        let document = openapi();
        for kind in ["binary_images", "container_images", "os_images"] {
            for (method, below, statuses) in table {
                let path = format!("/v1/baremetalcluster/{{owner}}/{{clustername}}/{kind}{below}");
                for status in statuses {
                    let answer = &document["paths"][&path][method]["responses"][status.to_string()];
                    assert!(answer["description"].is_string(), "{method} {path} {status}");
                }
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = openapi().to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().expect("a text");
            assert!(openapi().pointer(pointer).is_some(), "{pointer}");
        }
        assert_eq!(openapi()["paths"].as_object().expect("paths").len(), 2 * Kind::ALL.len() + 2);
        assert!(Operation::ALL.iter().all(|operation| text.contains(operation.summary())));
    }
}
