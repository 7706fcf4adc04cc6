//! The server on port 5000: it sends blobs of the release by sendfile and its manifests from the medium, and leaves
//! everything else to `distribution`.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use agent_api::boot::MEDIUM;
use agent_api::ports;
use agent_api::release::{Digest, MEDIUM_ROOT, Release};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::catalog::Catalog;
use super::{RegistryStorage, pod, proxy};
use crate::door::{Gate, Verdict};
use crate::http::{Answer, File, Head, Method, Peer, Rewound, Service};
use crate::listen::KnownPeers;
use crate::pulls::Recorder;

/// Repositories, tags and blobs of the release, and the way to those that were uploaded.
pub struct Front {
    pub(super) catalog: Catalog,
    store: PathBuf,
    built: u64,
    pub(super) recorder: Arc<Recorder>,
    gate: Arc<Gate>,
    /// `None` when the release has no registry: then only its own images are served.
    pub(super) storage: Option<Arc<RegistryStorage>>,
    pub(super) socket: PathBuf,
    own_token: String,
}

/// Whether somebody may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayWrite {
    Yes,
    /// Nobody may: the registry is read-only.
    ReadOnly,
    /// Not without TLS: others could read the token.
    NotSoOpenly,
    /// Not without the token.
    Token(Verdict),
}

impl Front {
    /// The registry of the box at `root`.
    pub fn new(release: &Release, root: &Path, gate: Arc<Gate>, recorder: Arc<Recorder>) -> Self {
        let at = |path: &str| root.join(path.trim_start_matches('/'));
        let limit = release.registry_writable_bytes;
        let storage = release.image(pod::IMAGE).map(|_| Arc::new(RegistryStorage::new(root, limit)));
        let own: [u8; 32] = rand::random();
        Self {
            catalog: Catalog::new(&release.images),
            store: at(MEDIUM).join(MEDIUM_ROOT).join("store/sha256"),
            built: release.built,
            recorder,
            gate,
            storage,
            socket: at(pod::SOCKET),
            own_token: URL_SAFE_NO_PAD.encode(own),
        }
    }

    /// The storage, when the release has a registry.
    pub fn storage(&self) -> Option<Arc<RegistryStorage>> {
        self.storage.clone()
    }

    /// What the release carries.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Where blobs of the release are, as box and pod see it.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// A bearer token for the agent's own uploads, good until it ends: to port 5000 of the loopback address.
    pub fn own_token(&self) -> &str {
        &self.own_token
    }

    /// Judges a request that would change something.
    pub(super) fn may_write(&self, peer: &Peer, authorization: Option<&str>) -> MayWrite {
        if self.storage.as_ref().is_none_or(|storage| storage.limit().is_none()) {
            return MayWrite::ReadOnly;
        }
        if !peer.tls && !peer.ip.is_loopback() {
            return MayWrite::NotSoOpenly;
        }
        let token = authorization.and_then(token_of);
        if token.as_deref() == Some(&self.own_token) && peer.ip.is_loopback() {
            return MayWrite::Yes;
        }
        match self.gate.check(peer.ip, token.as_deref()) {
            Verdict::Allowed => MayWrite::Yes,
            verdict => MayWrite::Token(verdict),
        }
    }

    fn carried_blob(&self, head: &Head) -> Option<File> {
        let asked = Asked::parse(&head.path, &head.query, head.host.as_deref())?;
        if asked.kind != AskedKind::Blob || head.method == Method::Other {
            return None;
        }
        let digest: Digest = asked.reference.parse().ok()?;
        let size = self.catalog.blob(&asked.repository, &digest)?;
        let file = self.store.join(digest.hex());
        let (modified, kind) = (self.built, "application/octet-stream");
        Some(File { file, digest, size, modified, kind, immutable: true, blob: true })
    }
}

impl Service for Front {
    fn answer(&self, head: &Head, _: &Peer) -> Answer {
        self.carried_blob(head).map_or(Answer::PassOn, Answer::File)
    }

    fn known(&self) -> Arc<KnownPeers> {
        self.gate.known()
    }

    fn pass_on(self: Arc<Self>, io: Rewound, peer: Peer) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let service = hyper::service::service_fn(move |request| proxy::answer(Arc::clone(&self), request, peer));
            let mut builder = hyper::server::conn::http1::Builder::new();
            // One request per connection here: the next may be one that this server answers itself.
            builder.timer(TokioTimer::new()).keep_alive(false);
            let _ = builder.serve_connection(TokioIo::new(io), service).await;
        })
    }
}

/// The token of who has no login: it says nothing.
pub(super) const NOBODY: &str = "nobody";

/// The token of `Bearer TOKEN`, or of `Basic`, as which most registry clients send it, with any user name. An empty one is
/// none.
pub(super) fn token_of(authorization: &str) -> Option<String> {
    let (scheme, value) = authorization.split_once(' ')?;
    let token = if scheme.eq_ignore_ascii_case("bearer") {
        value.trim().to_owned()
    } else {
        let plain = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
        let (_, password) = plain.split_once(':')?;
        scheme.eq_ignore_ascii_case("basic").then(|| password.to_owned())?
    };
    Some(token).filter(|token| !token.is_empty() && token != NOBODY)
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedKind {
    Manifest,
    Blob,
}

/// A request for a manifest or a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Repository of this box.
    pub repository: String,
    pub kind: AskedKind,
    /// Tag or digest.
    pub reference: String,
    /// The image as the client named it.
    pub image: String,
    /// Whether the client asked in the name of another registry, as containerd does.
    pub mirrored: bool,
}

/// Longest name and reference that are taken: the specification's 255 and 128, a digest of SHA-512 within it.
const MOST_NAME: usize = 255;
const MOST_REFERENCE: usize = 160;

impl Asked {
    /// `/v2/<name>/manifests|blobs/<tag or digest>?ns=<registry>` asked of `host`.
    pub fn parse(path: &str, query: &str, host: Option<&str>) -> Option<Self> {
        let rest = path.strip_prefix("/v2/")?;
        let (rest, reference) = rest.rsplit_once('/')?;
        let (name, kind) = rest.rsplit_once('/')?;
        let kind = match kind {
            "manifests" => AskedKind::Manifest,
            "blobs" => AskedKind::Blob,
            _ => return None,
        };
        let is_of = |text: &str, most: usize, more: &str| {
            (1..=most).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(char::from(b)))
        };
        if !is_of(name, MOST_NAME, "._-/") || !is_of(reference, MOST_REFERENCE, "._-:+=") {
            return None;
        }
        let registry = registry_of(query);
        let own = format!("127.0.0.1:{}", ports::REGISTRY);
        let mirrored = registry.as_deref().is_some_and(|registry| !is_this_box(registry, host));
        let registry = registry.unwrap_or(own);
        if !is_of(&registry, MOST_NAME, ".-:[]") {
            return None;
        }
        let sign = if reference.contains(':') { '@' } else { ':' };
        Some(Self {
            repository: if mirrored { format!("{registry}/{name}") } else { name.to_owned() },
            kind,
            reference: reference.to_owned(),
            image: format!("{registry}/{name}{sign}{reference}"),
            mirrored,
        })
    }
}

/// The path of this box for a request in the name of another registry: `/v2/<registry>/<name>/...`.
pub(super) fn mapped(path: &str, query: &str, host: Option<&str>) -> Option<String> {
    let registry = registry_of(query)?;
    let rest = path.strip_prefix("/v2/").filter(|rest| !rest.is_empty())?;
    let good = registry.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
    (good && !is_this_box(&registry, host)).then(|| format!("/v2/{registry}/{rest}"))
}

/// containerd's parameter: the registry that the image's name begins with.
fn registry_of(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("ns=")).filter(|value| !value.is_empty())?;
    Some(crate::http::decode(value).unwrap_or_else(|| value.to_owned()))
}

/// Whether an image of that registry is one of this box under its own name: then its path alone counts.
fn is_this_box(registry: &str, host: Option<&str>) -> bool {
    let port = registry.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    Some(registry) == host || port == Some(ports::REGISTRY)
}

#[cfg(test)]
mod tests;
