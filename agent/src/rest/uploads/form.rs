//! The form of POST and PUT: a part `metadata` with JSON, and a part `file` that must be there.

use agent_api::bpa::{FORM_BYTES, METADATA_BYTES, Metadata};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::StatusCode;

use super::answers::Answer;
use crate::uploads::Announced;

/// What a form holds.
pub(super) struct Form {
    pub(super) metadata: Metadata,
    has_file: bool,
}

/// Reads the form to its end; `file` is passed over piece by piece.
pub(super) async fn read(request: Request) -> Result<Form, Answer> {
    let mut multipart = Multipart::from_request(request, &())
        .await
        .map_err(|rejection| Answer::text(StatusCode::UNPROCESSABLE_ENTITY, rejection.body_text()))?;
    let (mut metadata, mut has_file) = (None, false);
    while let Some(field) = multipart.next_field().await.map_err(|error| broken(&error))? {
        match field.name() {
            Some("metadata") if metadata.is_none() => metadata = Some(text(field).await?),
            name => {
                has_file |= name == Some("file");
                pass_over(field).await?;
            }
        }
    }
    let metadata = metadata.unwrap_or_default();
    if metadata.iter().all(u8::is_ascii_whitespace) {
        return Err(Answer::text(StatusCode::BAD_REQUEST, "Empty body"));
    }
    let metadata = serde_json::from_slice(&metadata)
        .map_err(|error| Answer::text(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    Ok(Form { metadata, has_file })
}

async fn text(mut field: Field<'_>) -> Result<Vec<u8>, Answer> {
    let mut text = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|error| broken(&error))? {
        if text.len() + piece.len() > METADATA_BYTES {
            let told = format!("`metadata` has more than {METADATA_BYTES} bytes");
            return Err(Answer::text(StatusCode::PAYLOAD_TOO_LARGE, told));
        }
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

async fn pass_over(mut field: Field<'_>) -> Result<(), Answer> {
    while field.chunk().await.map_err(|error| broken(&error))?.is_some() {}
    Ok(())
}

fn broken(error: &MultipartError) -> Answer {
    if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let told = format!("the form has more than {FORM_BYTES} bytes; hint: the image's bytes go by PATCH");
        return Answer::text(StatusCode::PAYLOAD_TOO_LARGE, told);
    }
    Answer::text(StatusCode::UNPROCESSABLE_ENTITY, error.body_text())
}

impl Form {
    /// The checks of the table in its order; `name` is that of the path, for PUT.
    pub(super) fn check(self, owner: &str, cluster: &str, name: Option<&str>) -> Result<(String, Announced), Answer> {
        let wrong = |text: String| Answer::text(StatusCode::BAD_REQUEST, text);
        let metadata = self.metadata;
        let method = if name.is_some() { "PUT" } else { "POST" };
        if metadata.image_name.is_empty() {
            return Err(wrong(format!("Missing name in {method} request")));
        }
        if metadata.owner.is_empty() {
            return Err(wrong(format!("Missing Owner in {method} request")));
        }
        let length = u64::try_from(metadata.image_length).ok().filter(|length| *length > 0 || name.is_some());
        let length = length.ok_or_else(|| wrong("Improper upload length".to_owned()))?;
        if !self.has_file {
            return Err(Answer::text(StatusCode::UNPROCESSABLE_ENTITY, "Unable to process file"));
        }
        for (key, said, path) in [
            ("owner", &metadata.owner, Some(owner)),
            ("cluster_name", &metadata.cluster_name, Some(cluster)),
            ("image_name", &metadata.image_name, name),
        ] {
            if path.is_some_and(|path| !said.is_empty() && path != said) {
                return Err(wrong(format!("`{key}` is another one than in the path")));
            }
        }
        let expected = metadata
            .sha256
            .as_deref()
            .map(digest)
            .transpose()
            .map_err(|()| wrong("`sha256` is not 64 hex digits".to_owned()))?;
        let Metadata { kind: word, description, image_name, .. } = metadata;
        Ok((image_name, Announced { word, description, length, expected }))
    }
}

fn digest(text: &str) -> Result<String, ()> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    let good = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then_some(hex).ok_or(())
}
