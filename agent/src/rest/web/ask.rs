//! What handlers share that ask the box's API server.

use axum::http::StatusCode;

use super::Options;
use crate::cluster::api::{Api, ApiError};
use crate::cluster::kubeconfig;
use crate::door::Refusal;

/// A label of DNS or several: nothing else is put into a path of the API server.
pub(super) fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(letter) && !text.starts_with('.')
}

/// A client of the box's own API server.
pub(super) fn cluster(options: &Options) -> Result<Api, Refusal> {
    let not_yet = |why: String| {
        let hint = "the cluster comes up; see /api/v1/status";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("the API server cannot be asked: {why}"), hint)
            .again_in(2)
    };
    let text = fs_err::read_to_string(&options.kubeconfig).map_err(|error| not_yet(error.to_string()))?;
    let parsed = kubeconfig::parse(&text).ok_or_else(|| not_yet("its kubeconfig is not whole".to_owned()))?;
    Api::new(&parsed).map_err(|error| not_yet(error.to_string()))
}

/// The API server did not answer.
pub(super) fn away(error: &ApiError) -> Refusal {
    let error = crate::steps::chain(error);
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error, "the API server is asked again; see /api/v1/status")
        .again_in(2)
}
