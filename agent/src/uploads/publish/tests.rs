//! Archives on their way into a registry that may be away, and out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_api::bpa::{Description, Kind, Published};
use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::task::JoinSet;

use super::reader::tests::reader;
use super::{Publisher, Registry, Unread, attempt, hex_of};
use crate::events::Bus;
use crate::uploads::{Announced, Record, UploadKey, UploadLimits, Uploads};

fn store(dir: &Path) -> Uploads {
    let limits = UploadLimits { percent: Kind::ALL.map(|kind| (kind, 100)).into(), reserve_percent: 0, images: 10 };
    Uploads::open(dir, limits).expect("a store")
}

fn key(cluster: &str) -> UploadKey {
    UploadKey::new(Kind::ContainerImages, "alpha", cluster, "a.tar").expect("a name")
}

fn upload(uploads: &Uploads, key: &UploadKey, bytes: &[u8]) -> Record {
    let length = bytes.len() as u64;
    uploads.create(key.clone(), Announced { length, ..Announced::default() }).expect("created");
    let mut writer = uploads.begin(key, 0, Some(length)).expect("a writer");
    writer.write(bytes).expect("written");
    writer.end().expect("whole")
}

/// What `docker save` writes of an image of these names, whose configuration is `config`.
fn archive(config: &str, names: &[&str]) -> Vec<u8> {
    let list = serde_json::json!([{ "Config": "config.json", "RepoTags": names, "Layers": [] }]).to_string();
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in [("config.json", config), ("manifest.json", &list)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, text.as_bytes()).expect("added");
    }
    tar.into_inner().expect("an archive")
}

/// Manifests by path, as a registry has them; `None` while it is away.
type Manifests = Arc<Mutex<Option<BTreeMap<String, Bytes>>>>;

async fn registry(tasks: &mut JoinSet<()>) -> (Registry, Manifests) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let manifests: Manifests = Arc::new(Mutex::new(Some(BTreeMap::new())));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let held = Arc::clone(&manifests);
    let answer = |method: Method, uri: Uri, body: Bytes| async move { answered(&held, &method, uri.path(), body) };
    tasks.spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.expect("served") });
    (Registry::new(url.parse().expect("a URL"), None).expect("a client"), manifests)
}

fn answered(held: &Manifests, method: &Method, path: &str, body: Bytes) -> Response {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(held) = held.as_mut() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    match (method.as_str(), path.contains("/manifests/")) {
        ("POST", _) => (StatusCode::ACCEPTED, [(header::LOCATION, format!("{path}1"))]).into_response(),
        ("PUT", false) => StatusCode::CREATED.into_response(),
        ("PUT", true) if path.contains("/refused/") => StatusCode::FORBIDDEN.into_response(),
        ("PUT", true) => {
            held.insert(path.to_owned(), body);
            StatusCode::CREATED.into_response()
        }
        ("GET", false) => {
            let of = path.replace("tags/list", "manifests/");
            let tags: Vec<&str> = held.keys().filter_map(|path| path.strip_prefix(&of)).collect();
            serde_json::json!({ "tags": tags }).to_string().into_response()
        }
        ("GET", true) => {
            held.get(path).cloned().map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
        }
        ("DELETE", true) => {
            let (of, name) = path.rsplit_once('/').expect("a name");
            held.retain(|path, text| {
                !path.starts_with(of)
                    || (path.rsplit('/').next() != Some(name) && format!("sha256:{}", hex_of(text)) != name)
            });
            StatusCode::ACCEPTED.into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn publisher(uploads: &Uploads, registry: &Registry) -> Publisher {
    let (uploads, registry) = (uploads.clone(), Some(registry.clone()));
    Publisher { uploads, reader: reader(), registry, bus: Bus::in_memory(), told: BTreeSet::default() }
}

/// Tags that the registry has, or none while it is away.
fn tags(manifests: &Manifests) -> Vec<String> {
    let held = manifests.lock().unwrap_or_else(PoisonError::into_inner);
    held.iter().flatten().map(|(path, _)| path.replace("/v2/", "").replace("/manifests/", ":")).collect()
}

fn set_away(manifests: &Manifests, kept: Option<BTreeMap<String, Bytes>>) -> Option<BTreeMap<String, Bytes>> {
    std::mem::replace(&mut manifests.lock().unwrap_or_else(PoisonError::into_inner), kept)
}

#[tokio::test]
async fn a_name_that_has_other_bytes_is_not_taken_away_from_them() {
    let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let (registry, manifests) = registry(&mut tasks).await;
    let uploads = store(dir.path());
    let publisher = publisher(&uploads, &registry);
    upload(&uploads, &key("one"), &archive("{}", &["app:1"]));
    upload(&uploads, &key("two"), &archive("{\"os\":\"linux\"}", &["app:1"]));
    assert!(!publisher.archives().await);
    let (one, two) = (uploads.get(&key("one")).expect("it"), uploads.get(&key("two")).expect("it"));
    assert_eq!((one.published, one.references), (Published::Published, vec!["alpha/app:1".to_owned()]));
    let problem = two.problem.expect("a problem");
    assert!(two.references.is_empty() && problem.contains("`container_images/alpha/one/a.tar`"), "{problem}");
    uploads.remove(&key("one")).expect("removed");
    uploads.update(&key("two"), Announced::default()).expect("sent again");
    assert!(!publisher.archives().await);
    assert_eq!(uploads.get(&key("two")).expect("it").published, Published::Published);
    assert_eq!(tags(&manifests), ["alpha/app:1"]);
}

#[tokio::test]
async fn a_removed_image_leaves_a_registry_that_was_away_once_it_is_back() {
    let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let (registry, manifests) = registry(&mut tasks).await;
    let uploads = store(dir.path());
    upload(&uploads, &key("one"), &archive("{}", &["app:1", "app:2"]));
    assert!(!publisher(&uploads, &registry).archives().await);
    assert_eq!(tags(&manifests), ["alpha/app:1", "alpha/app:2"]);
    let kept = set_away(&manifests, None);
    uploads.remove(&key("one")).expect("removed");
    assert!(publisher(&uploads, &registry).archives().await, "it is tried again");
    // Also by the next agent.
    let uploads = store(dir.path());
    set_away(&manifests, kept);
    assert!(!publisher(&uploads, &registry).archives().await);
    assert_eq!(tags(&manifests), [""; 0]);
    assert_eq!(uploads.to_forget(), [""; 0]);
}

#[tokio::test]
async fn what_was_pushed_before_a_refusal_or_under_another_name_goes_too() {
    let (dir, mut tasks) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let (registry, manifests) = registry(&mut tasks).await;
    let uploads = store(dir.path());
    let publisher = publisher(&uploads, &registry);
    upload(&uploads, &key("one"), &archive("{}", &["app:1", "refused/app:1"]));
    assert!(!publisher.archives().await);
    let record = uploads.get(&key("one")).expect("it");
    assert_eq!((record.published, record.references), (Published::Failed, vec!["alpha/app:1".to_owned()]));
    let named = [("repo", "app"), ("tag", "3")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let description = Description { image_records: vec![named] };
    uploads.update(&key("one"), Announced { description, ..Announced::default() }).expect("renamed");
    assert!(!publisher.archives().await);
    assert_eq!(tags(&manifests), ["alpha/app:3"]);
    uploads.remove(&key("one")).expect("removed");
    assert!(!publisher.archives().await);
    assert_eq!(tags(&manifests), [""; 0]);
}

#[test]
fn what_ended_the_box_three_times_is_not_read_a_fourth_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let uploads = store(dir.path());
    let record = upload(&uploads, &key("edge"), b"x");
    for _ in 0..5 {
        assert_eq!(attempt(&uploads, &record, |_| Ok(1)), Ok(1), "what ends well is not counted");
    }
    for _ in 0..3 {
        // The box goes down while it is read: nothing after that line happens.
        let uploads = store(dir.path());
        uploads.begin_reading(&record).expect("noted");
    }
    let uploads = store(dir.path());
    let refused = attempt(&uploads, &record, |_| -> Result<(), Unread> { panic!("it is read") });
    assert!(matches!(&refused, Err(Unread::Never(told)) if told.contains("read 3 times")), "{refused:?}");
}
