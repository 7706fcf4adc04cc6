//! Parts of the fake Ironic: virtual drives, and subscriptions to events of BMCs.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// What BMCs have besides their servers.
#[derive(Debug, Default)]
pub struct Bmcs {
    /// What is in the drives, by the nodes' UUIDs.
    pub drives: BTreeMap<String, String>,
    /// Everything that was put into a drive or taken out of it (`""`), in its order.
    pub moved: Vec<String>,
    /// Subscriptions by their names.
    pub subscriptions: BTreeMap<String, Value>,
    /// So many calls about drives and subscriptions fail first.
    pub failures: u64,
    count: u64,
}

fn refused(status: StatusCode, text: &str) -> Response {
    let inner = json!({"faultcode": "Client", "faultstring": text, "debuginfo": null}).to_string();
    (status, axum::Json(json!({"error_message": inner}))).into_response()
}

impl Bmcs {
    /// Answers what is about drives and subscriptions; nothing when it is about something else.
    pub fn answer(
        &mut self,
        node: &Value,
        (method, rest): (&str, &str),
        query: &BTreeMap<String, String>,
        body: &Value,
    ) -> Option<Response> {
        let uuid = node["uuid"].as_str().unwrap_or_default().to_owned();
        let passthru = query.get("method").map(String::as_str).filter(|_| rest == "vendor_passthru");
        if rest != "vmedia" && passthru.is_none() {
            return None;
        }
        if node["driver"] == "ipmi" {
            return Some(refused(StatusCode::BAD_REQUEST, "Driver ipmi does not support this"));
        }
        if method != "GET" && self.failures > 0 {
            self.failures -= 1;
            return Some(refused(StatusCode::INTERNAL_SERVER_ERROR, "the BMC says no"));
        }
        Some(match (method, rest, passthru) {
            ("GET", "vmedia", _) => {
                let image = self.drives.get(&uuid);
                axum::Json(json!([{"media_types": ["CD", "DVD"], "inserted": image.is_some(), "image": image}]))
                    .into_response()
            }
            ("POST", "vmedia", _) if body["device_type"] == "cdrom" => {
                let url = body["image_url"].as_str().unwrap_or_default().to_owned();
                self.moved.push(url.clone());
                self.drives.insert(uuid, url);
                StatusCode::NO_CONTENT.into_response()
            }
            ("DELETE", "vmedia", _) if query.get("device_types").is_some_and(|types| types == "cdrom") => {
                self.moved.push(String::new());
                self.drives.remove(&uuid);
                StatusCode::NO_CONTENT.into_response()
            }
            ("POST", _, Some("create_subscription")) => {
                self.count += 1;
                let id = self.count.to_string();
                self.subscriptions.insert(id.clone(), body.clone());
                axum::Json(json!({"Id": id, "Destination": body["Destination"], "Protocol": "Redfish"})).into_response()
            }
            ("DELETE", _, Some("delete_subscription")) => {
                let id = body["id"].as_str().unwrap_or_default();
                match self.subscriptions.remove(id) {
                    Some(_) => StatusCode::OK.into_response(),
                    None => refused(StatusCode::NOT_FOUND, "Redfish delete_subscription failed. returned code 404."),
                }
            }
            _ => refused(StatusCode::BAD_REQUEST, &format!("{method} {rest} {query:?} {body}")),
        })
    }
}
