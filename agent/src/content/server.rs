//! HTTP on port 6180: every file of the content under its path, with listings of folders; plain or with TLS.
//!
//! ```text
//! GET /images/debian-node.qcow2 ─► Sources, first wins ─► File ─► `crate::http`
//! GET /images/                  ─► listing, HTML or JSON
//! GET /containerd/hosts.toml    ─► how another node of the site pulls every image from this box
//! ```
//! A path is looked up in what the sources list, never opened: there is no way out of it.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use agent_api::ports;
use jiff::Timestamp;

use super::fetches::Fetches;
use super::{Held, Source, listing};
use crate::http::{Answer, File, Head, Method, Peer, Rewound, Sent, Service, Text};
use crate::listen::KnownPeers;

/// What other nodes put into `/etc/containerd/certs.d/_default/`.
pub const HOSTS_TOML: &str = "/containerd/hosts.toml";

/// Where files come from, first wins.
#[derive(Clone)]
pub struct Content {
    sources: Vec<Arc<dyn Source>>,
    medium: PathBuf,
    built: u64,
    fetches: Fetches,
    known: Arc<KnownPeers>,
}

impl Content {
    /// The files of these sources. Those below `medium` are as old as the release, which was `built` then, in seconds
    /// since 1970; none is older.
    pub fn new(sources: Vec<Arc<dyn Source>>, medium: &Path, built: u64) -> Self {
        Self { sources, medium: medium.to_owned(), built, fetches: Fetches::default(), known: Arc::default() }
    }

    /// The same, which notes in `fetches` who fetched what.
    #[must_use]
    pub fn noting(self, fetches: Fetches) -> Self {
        Self { fetches, ..self }
    }

    /// The same, which keeps some of its seats for these networks.
    #[must_use]
    pub fn knowing(self, known: Arc<KnownPeers>) -> Self {
        Self { known, ..self }
    }

    fn find(&self, path: &str, peer: IpAddr) -> Option<Held> {
        self.sources.iter().find_map(|source| source.find(path).filter(|_| source.is_for(path, peer)))
    }

    /// Every file that is reached, by path.
    pub fn list(&self) -> Vec<Held> {
        let mut all: Vec<Held> = self.sources.iter().flat_map(|source| source.list()).collect();
        // A stable sort: of one path, the first source's stays.
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.dedup_by(|later, first| later.path == first.path);
        all
    }

    fn file(&self, held: Held) -> File {
        let written = if held.file.starts_with(&self.medium) { None } else { modified(&held) };
        let modified = written.unwrap_or(0).max(self.built);
        let kind = kind_of(&held.path);
        let immutable = held.path.contains("/by-hash/");
        File { file: held.file, digest: held.digest, size: held.size, modified, kind, immutable, blob: false }
    }

    fn folder(&self, path: &str, head: &Head) -> Answer {
        let entries = listing::entries(&self.list(), path);
        if entries.is_empty() && !path.is_empty() {
            return nothing_at(&head.path);
        }
        let json = head.accept.as_deref().is_some_and(|kinds| kinds.contains("application/json"));
        let text = if json {
            Text::new(200, "application/json", listing::json(&entries))
        } else {
            Text::new(200, "text/html; charset=utf-8", listing::html(&head.path, &entries))
        };
        Answer::Text(text.with("Cache-Control", "no-cache").with("Vary", "Accept"))
    }
}

impl Service for Content {
    fn answer(&self, head: &Head, peer: &Peer) -> Answer {
        self.fetches.began(peer.ip, &head.path, Timestamp::now());
        if head.method == Method::Other {
            return Answer::Text(Text::problem(405, "files are only read here").with("Allow", "GET, HEAD"));
        }
        let path = head.path.trim_start_matches('/');
        if head.path == HOSTS_TOML {
            return hosts_toml(head, peer);
        }
        if path.is_empty() || path.ends_with('/') {
            return self.folder(path, head);
        }
        if let Some(held) = self.find(path, peer.ip) {
            return Answer::File(self.file(held));
        }
        let below = format!("{path}/");
        if listing::entries(&self.list(), &below).is_empty() {
            return nothing_at(&head.path);
        }
        Answer::Text(Text::problem(301, "it is a folder").with("Location", listing::encode(&format!("/{below}"))))
    }

    fn known(&self) -> Arc<KnownPeers> {
        Arc::clone(&self.known)
    }

    fn sent(&self, head: &Head, peer: &Peer, sent: &Sent) {
        self.fetches.ended(peer.ip, &head.path, sent, Timestamp::now());
    }

    fn pass_on(self: Arc<Self>, _: Rewound, _: Peer) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Nothing is passed on here.
        Box::pin(async {})
    }
}

fn nothing_at(path: &str) -> Answer {
    Answer::Text(Text::problem(404, format!("nothing at `{path}`: `/` lists what there is")))
}

/// When an upload was written; the release's own files have the time of the release.
fn modified(held: &Held) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs_err::metadata(&held.file).ok().and_then(|found| u64::try_from(found.mtime()).ok())
}

/// containerd's way to all images: this box under the name by which the client reached it, for every registry.
fn hosts_toml(head: &Head, peer: &Peer) -> Answer {
    let name = head.host.as_deref().map(host_of).filter(|host| is_host(host)).map(str::to_owned);
    let host =
        name.unwrap_or_else(|| SocketAddr::new(peer.local.ip(), 0).to_string().trim_end_matches(":0").to_owned());
    let url = format!("http://{host}:{}", ports::REGISTRY);
    let text = format!(
        "# Every image, whatever its registry, from this Foothold box.\n\
         # Put it at /etc/containerd/certs.d/_default/hosts.toml.\n\
         server = \"{url}\"\n\n[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
    Answer::Text(Text::new(200, "application/toml", text).with("Cache-Control", "no-cache").with("Vary", "Host"))
}

/// The host of `host:port`, `[::1]:port` or without a port.
fn host_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
}

/// `Content-Type` by the end of the name.
fn kind_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("deb") => "application/vnd.debian.binary-package",
        Some("efi") => "application/efi",
        Some("gpg" | "asc" | "pgp") => "application/pgp-keys",
        Some("gz" | "tgz") => "application/gzip",
        Some("html") => "text/html; charset=utf-8",
        Some("iso") => "application/vnd.efi.iso",
        Some("json") => "application/json",
        Some("tar") => "application/x-tar",
        Some("xz") => "application/x-xz",
        Some("yaml" | "yml") => "application/yaml",
        Some("zip") => "application/zip",
        Some("zst") => "application/zstd",
        Some("txt" | "toml" | "cfg" | "conf" | "ipxe" | "list" | "sources" | "sha256" | "md5sum") => {
            "text/plain; charset=utf-8"
        }
        None if matches!(name, "Release" | "InRelease" | "Packages") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests;
