//! Pushing into the box's registry (OCI distribution specification, "Push").

use std::io::Read;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use agent_api::oci;
use axum::body::Bytes;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::archive::{Archive, Blob, Manifest, SectionReader};
use crate::door::body;

/// Manifests and indexes, OCI's and docker's.
const MANIFESTS: [&str; 4] = [oci::INDEX, oci::MANIFEST, oci::DOCKER_LIST, oci::DOCKER_MANIFEST];
/// Bytes of a piece between disk and connection.
const PIECE: usize = 64 * 1024;
/// A registry that says nothing for so long does not answer.
const SILENT: Duration = Duration::from_secs(120);

/// Why a push did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PushError {
    /// It may be otherwise later.
    #[error("the registry does not answer: {0}")]
    Silent(String),
    /// It will be the same later.
    #[error("the registry refuses {what}: {status} {told}")]
    Refused { what: String, status: StatusCode, told: String },
}

/// The box's registry.
#[derive(Clone, Debug)]
pub struct Registry {
    url: Url,
    token: Option<String>,
    client: Client,
}

impl Registry {
    /// The registry at `url`; `token` is sent as bearer.
    pub fn new(url: Url, token: Option<String>) -> reqwest::Result<Self> {
        // It is on this box and speaks plain HTTP: no proxy, nothing to be followed elsewhere, and no authority to
        // trust; reading those of the system takes a second of a machine that starts.
        let nobody = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
        let client = Client::builder().tls_backend_preconfigured(nobody.with_no_client_auth()).no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none()).read_timeout(SILENT);
        Ok(Self { url, token, client: client.build()? })
    }

    fn request(&self, method: reqwest::Method, url: Url) -> RequestBuilder {
        let request = self.client.request(method, url);
        self.token.iter().fold(request, RequestBuilder::bearer_auth)
    }

    fn at(&self, path: &str) -> Result<Url, PushError> {
        self.url.join(path).map_err(|error| PushError::Silent(error.to_string()))
    }

    /// Pushes a manifest with all that it needs, under each of the tags.
    pub(super) async fn push(
        &self,
        archive: &Arc<Archive>,
        manifest: &Manifest,
        repository: &str,
        tag: &str,
    ) -> Result<(), PushError> {
        for child in &manifest.children {
            let digest = format!("sha256:{}", super::hex_of(child.text.as_bytes()));
            Box::pin(self.push(archive, child, repository, &digest)).await?;
        }
        for blob in &manifest.blobs {
            self.push_blob(archive, blob, repository).await?;
        }
        let url = self.at(&format!("v2/{repository}/manifests/{tag}"))?;
        let request = self.request(reqwest::Method::PUT, url).header(CONTENT_TYPE, &manifest.media_type);
        let answer = send(request.body(manifest.text.clone())).await?;
        expect(answer, StatusCode::CREATED, || format!("the manifest of `{repository}:{tag}`")).await?;
        Ok(())
    }

    async fn push_blob(&self, archive: &Arc<Archive>, blob: &Blob, repository: &str) -> Result<(), PushError> {
        let what = || format!("blob {}", blob.digest);
        let url = self.at(&format!("v2/{repository}/blobs/{}", blob.digest))?;
        if send(self.request(reqwest::Method::HEAD, url)).await?.status() == StatusCode::OK {
            return Ok(());
        }
        let url = self.at(&format!("v2/{repository}/blobs/uploads/"))?;
        let begun = send(self.request(reqwest::Method::POST, url)).await?;
        let begun = expect(begun, StatusCode::ACCEPTED, what).await?;
        let place = begun.headers().get(LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default();
        let mut place = begun.url().join(place).map_err(|error| PushError::Silent(error.to_string()))?;
        // The token goes to the registry only, whatever it answers.
        if place.origin() != self.url.origin() {
            return Err(PushError::Silent(format!("it sends uploads to `{place}`")));
        }
        place.query_pairs_mut().append_pair("digest", &blob.digest.to_string());
        let reader = archive.reader(blob.section).map_err(|error| PushError::Silent(error.to_string()))?;
        let request = self.request(reqwest::Method::PUT, place).header(CONTENT_LENGTH, blob.section.size);
        let request = request.header(CONTENT_TYPE, "application/octet-stream").body(streamed(reader));
        expect(send(request).await?, StatusCode::CREATED, what).await?;
        Ok(())
    }

    /// Forgets a name, and the manifests to which no other tag of its repository leads; their blobs are collected later.
    pub(super) async fn forget(&self, reference: &str) -> Result<(), PushError> {
        let Some((repository, tag)) = reference.rsplit_once(':') else { return Ok(()) };
        let mut mine = self.reached(repository, tag).await?;
        let Some(top) = mine.first().cloned() else { return Ok(()) };
        for other in self.tags(repository).await?.iter().filter(|other| *other != tag) {
            let theirs = self.reached(repository, other).await?;
            mine.retain(|digest| !theirs.contains(digest));
        }
        // With a manifest goes every tag of it.
        let name = if mine.contains(&top) { top.as_str() } else { tag };
        for name in iter::once(name).chain(mine.iter().map(String::as_str).filter(|digest| *digest != top)) {
            let url = self.at(&format!("v2/{repository}/manifests/{name}"))?;
            let answer = send(self.request(reqwest::Method::DELETE, url)).await?;
            if answer.status() != StatusCode::NOT_FOUND {
                expect(answer, StatusCode::ACCEPTED, || format!("to forget `{name}` of `{reference}`")).await?;
            }
        }
        Ok(())
    }

    /// Tags of a repository.
    async fn tags(&self, repository: &str) -> Result<Vec<String>, PushError> {
        let answer = send(self.request(reqwest::Method::GET, self.at(&format!("v2/{repository}/tags/list"))?)).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let answer = expect(answer, StatusCode::OK, || format!("the tags of `{repository}`")).await?;
        let list: Value = answer.json().await.map_err(|error| PushError::Silent(causes(&error)))?;
        let tags = list["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(tags.map(str::to_owned).collect())
    }

    /// Digests of the manifests to which a tag leads, its own first; none when it is not there.
    async fn reached(&self, repository: &str, tag: &str) -> Result<Vec<String>, PushError> {
        let (mut waiting, mut found) = (vec![tag.to_owned()], Vec::new());
        while let Some(name) = waiting.pop() {
            let url = self.at(&format!("v2/{repository}/manifests/{name}"))?;
            let request = self.request(reqwest::Method::GET, url).header(ACCEPT, MANIFESTS.join(", "));
            let answer = send(request).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                continue;
            }
            let answer = expect(answer, StatusCode::OK, || format!("the manifest of `{repository}:{name}`")).await?;
            let text = answer.bytes().await.map_err(|error| PushError::Silent(causes(&error)))?;
            let digest = format!("sha256:{}", super::hex_of(&text));
            if found.contains(&digest) {
                continue;
            }
            found.push(digest);
            let manifest: Value = serde_json::from_slice(&text).unwrap_or_default();
            let children = manifest["manifests"].as_array().into_iter().flatten();
            waiting.extend(children.filter_map(|child| child["digest"].as_str()).map(str::to_owned));
        }
        Ok(found)
    }
}

async fn send(request: RequestBuilder) -> Result<Response, PushError> {
    let answer = request.send().await.map_err(|error| PushError::Silent(causes(&error)))?;
    if answer.status().is_server_error() || answer.status() == StatusCode::TOO_MANY_REQUESTS {
        return Err(PushError::Silent(answer.status().to_string()));
    }
    Ok(answer)
}

fn causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map_or_else(String::new, ToString::to_string)
}

async fn expect(answer: Response, status: StatusCode, what: impl Fn() -> String) -> Result<Response, PushError> {
    if answer.status() == status {
        return Ok(answer);
    }
    let found = answer.status();
    let told: String = answer.text().await.unwrap_or_default().chars().take(300).collect();
    Err(PushError::Refused { what: what(), status: found, told })
}

/// A body that is read from the archive as the registry takes it.
fn streamed(reader: SectionReader) -> reqwest::Body {
    let (sender, body) = body::pieces();
    spawn_blocking(move || {
        if let Err(error) = feed(reader, &sender) {
            log::warn!("reading an archive for the registry: {error}");
        }
    });
    reqwest::Body::wrap(body)
}

/// Ends with the section, or when the registry does not take more; what is too short is noticed by its length.
fn feed(mut reader: SectionReader, to: &mpsc::Sender<Bytes>) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = reader.read(&mut piece)?;
        if read == 0 || to.blocking_send(Bytes::copy_from_slice(&piece[..read])).is_err() {
            return Ok(());
        }
    }
}
