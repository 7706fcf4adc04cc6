//! Manifests of the release, from the medium: they are there before `distribution` is.

use std::io;
use std::path::Path;

use agent_api::oci::{INDEX, MANIFEST};
use agent_api::release::Digest;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Deserialize;

use crate::http;

const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// What of a manifest tells its kind (OCI image specification 1.1, "Image Manifest" and "Image Index"): `mediaType`
/// need not be there, an index alone has `manifests`.
#[derive(Deserialize)]
struct Shape {
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
}

/// The answer to `GET` or `HEAD` of a manifest that lies in `store` (OCI distribution specification 1.1, "Pulling
/// manifests"). Reads a file, which may block.
pub(super) fn answer(store: &Path, digest: &Digest, asked: &HeaderMap) -> io::Result<Response<Body>> {
    let bytes = fs_err::read(store.join(digest.hex()))?;
    let kind = HeaderValue::from_str(&media_type(&bytes)).map_err(io::Error::other)?;
    let text = digest.to_string();
    let tag = format!("\"{text}\"");
    let mut known = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let unchanged = known.any(|tags| http::names(tags, &tag));
    let mut response = Response::new(if unchanged { Body::empty() } else { Body::from(bytes) });
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).map_err(io::Error::other)?);
    headers.insert(DIGEST, HeaderValue::from_str(&text).map_err(io::Error::other)?);
    headers.insert("docker-distribution-api-version", HeaderValue::from_static("registry/2.0"));
    Ok(response)
}

fn media_type(bytes: &[u8]) -> String {
    match serde_json::from_slice(bytes) {
        Ok(Shape { media_type: Some(kind), .. }) => kind,
        Ok(Shape { manifests: Some(_), .. }) => INDEX.to_owned(),
        _ => MANIFEST.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{INDEX, MANIFEST, media_type};

    #[test]
    fn a_manifest_tells_its_kind_in_words_or_by_its_shape() {
        let docker = "application/vnd.docker.distribution.manifest.v2+json";
        for (text, expected) in [
            (format!(r#"{{"schemaVersion":2,"mediaType":"{docker}","config":{{}}}}"#), docker),
            (r#"{"schemaVersion":2,"manifests":[{"digest":"x"}]}"#.to_owned(), INDEX),
            (r#"{"schemaVersion":2,"config":{},"layers":[]}"#.to_owned(), MANIFEST),
        ] {
            assert_eq!(media_type(text.as_bytes()), expected);
        }
    }
}
