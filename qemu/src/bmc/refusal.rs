//! Answers that are not a success: DSP0266, "Error responses", with messages of the Base registry (DSP2065).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Registry of the messages.
const REGISTRY: &str = "Base.1.8";

/// A refusal, as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: StatusCode,
    /// Key in the registry, such as `PropertyUnknown`.
    pub key: &'static str,
    pub message: String,
    pub args: Vec<String>,
}

impl Refusal {
    pub fn new(status: StatusCode, key: &'static str, message: impl Into<String>, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { status, key, message: message.into(), args }
    }

    pub fn missing(path: &str) -> Self {
        let message = format!("The resource at the URI {path} was not found.");
        Self::new(StatusCode::NOT_FOUND, "ResourceMissingAtURI", message, &[path])
    }

    pub fn method() -> Self {
        let message = "The operation is not allowed on this resource.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "OperationNotAllowed", message, &[])
    }

    pub fn no_session() -> Self {
        let message = "There is no valid session established with the implementation.";
        Self::new(StatusCode::UNAUTHORIZED, "NoValidSession", message, &[])
    }

    pub fn too_many_sessions() -> Self {
        let message =
            "The session establishment failed due to the number of simultaneous sessions exceeding the limit.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "SessionLimitExceeded", message, &[])
    }

    pub fn json() -> Self {
        let message = "The request body submitted was malformed JSON and could not be parsed.";
        Self::new(StatusCode::BAD_REQUEST, "MalformedJSON", message, &[])
    }

    pub fn unknown(property: &str) -> Self {
        let message = format!("The property {property} is not in the list of valid properties for the resource.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyUnknown", message, &[property])
    }

    pub fn kind(property: &str, value: &str) -> Self {
        let message =
            format!("The value {value} for the property {property} is of a different type than it can accept.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyValueTypeError", message, &[value, property])
    }

    pub fn not_in_list(property: &str, value: &str) -> Self {
        let message = format!("The value {value} for the property {property} is not in the list of acceptable values.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyValueNotInList", message, &[value, property])
    }

    pub fn parameter_missing(action: &str, parameter: &str) -> Self {
        let message = format!("The action {action} requires the parameter {parameter}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterMissing", message, &[action, parameter])
    }

    pub fn parameter_value(action: &str, parameter: &str, value: &str) -> Self {
        let message = format!("The value {value} of the parameter {parameter} of {action} cannot be taken.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterValueFormatError", message, &[value, parameter, action])
    }

    pub fn state(reset: &str) -> Self {
        let message = format!("The reset {reset} cannot be done in the system's power state.");
        Self::new(StatusCode::CONFLICT, "ActionNotSupported", message, &[reset])
    }

    pub fn precondition() -> Self {
        let message = "The ETag supplied did not match the ETag of the resource.";
        Self::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", message, &[])
    }

    pub fn unavailable() -> Self {
        let message = "The service is temporarily unavailable.  Retry in 2 seconds.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceTemporarilyUnavailable", message, &["2"])
    }

    pub fn internal(why: &str) -> Self {
        let message = format!("The request failed: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, &[])
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let id = format!("{REGISTRY}.{}", self.key);
        let told = json!({ "error": {
            "code": format!("{REGISTRY}.GeneralError"),
            "message": "A general error has occurred. See ExtendedInfo for more information.",
            "@Message.ExtendedInfo": [{
                "@odata.type": "#Message.v1_1_1.Message",
                "MessageId": id,
                "Message": self.message,
                "MessageArgs": self.args,
                "Severity": if self.status.is_server_error() { "Critical" } else { "Warning" },
                "Resolution": "See the message.",
            }],
        }});
        let mut response = (self.status, Json(told)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Basic realm=\"Redfish\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
