//! Error answers as the table of the interface has them: a status and one line of text.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::door::Refusal;
use crate::uploads::UploadError;

/// An error answer.
pub(super) enum Answer {
    /// A line of text.
    Text(StatusCode, String),
    /// No body.
    Bare(StatusCode),
    /// An answer of the door, in JSON.
    Door(Box<Refusal>),
    /// For an image that is missing or exists already: with `compat` the status is 500.
    Old(StatusCode, String),
}

impl Answer {
    pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self::Text(status, text.into())
    }

    /// Takes the old status where `compat` asks for it.
    pub(super) fn compat(self, compat: bool) -> Self {
        match self {
            Self::Old(_, text) if compat => Self::Text(StatusCode::INTERNAL_SERVER_ERROR, text),
            Self::Old(status, text) => Self::Text(status, text),
            other @ (Self::Text(..) | Self::Bare(_) | Self::Door(_)) => other,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Door(Box::new(refusal))
    }
}

impl From<UploadError> for Answer {
    fn from(error: UploadError) -> Self {
        let text = error.to_string();
        let status = match &error {
            UploadError::Missing => return Self::Old(StatusCode::NOT_FOUND, text),
            UploadError::Exists => return Self::Old(StatusCode::CONFLICT, text),
            UploadError::Complete | UploadError::Mismatch { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            UploadError::Busy | UploadError::Offset { .. } | UploadError::Fixed(..) | UploadError::InUse(_) => {
                StatusCode::CONFLICT
            }
            UploadError::Length { .. } | UploadError::TooMuch => StatusCode::BAD_REQUEST,
            UploadError::NoLength => StatusCode::INTERNAL_SERVER_ERROR,
            UploadError::NoRoom(_) => StatusCode::INSUFFICIENT_STORAGE,
            UploadError::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            UploadError::Io(cause) => {
                log::error!("{text}: {cause}");
                return Self::Text(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}: {cause}"));
            }
        };
        Self::Text(status, text)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Self::Text(status, text) | Self::Old(status, text) => {
                let kind = HeaderValue::from_static("text/plain; charset=utf-8");
                (status, [(header::CONTENT_TYPE, kind)], text).into_response()
            }
            Self::Bare(status) => status.into_response(),
            Self::Door(refusal) => refusal.into_response(),
        }
    }
}
