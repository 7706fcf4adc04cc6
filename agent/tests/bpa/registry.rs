//! Archives that are uploaded are in the real registry. Runs where `FOOTHOLD_REGISTRY` names `distribution`'s program
//! (`go build github.com/distribution/distribution/v3/cmd/registry` in packages/registry); says so and passes elsewhere.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use agent_api::bpa::Published;
use reqwest::header::ACCEPT;
use reqwest::multipart::Form;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::server::{Process, Server, start, wait_until};

const COLLECTION: &str = "/v1/baremetalcluster/alpha/beta/container_images";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("FOOTHOLD_REGISTRY").map(PathBuf::from);
    if program.is_none() {
        eprintln!("FOOTHOLD_REGISTRY is not set: nothing is pushed");
    }
    program
}

/// `distribution` on a free port of loopback.
fn registry(program: &Path, dir: &Path) -> (Process, String) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let config = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
        dir.join("registry").display()
    );
    fs_err::write(dir.join("registry.yml"), config).expect("written");
    let arguments = ["serve", &dir.join("registry.yml").display().to_string()].map(str::to_owned);
    (
        start(program, &arguments.each_ref().map(String::as_str), &[], &dir.join("registry.log")),
        format!("http://127.0.0.1:{port}/"),
    )
}

fn hex_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes.as_slice()).expect("added");
    }
    tar.into_inner().expect("an archive")
}

fn layer() -> Vec<u8> {
    tar(&[("hello".to_owned(), vec![b'x'; 300_000])])
}

/// As `docker save` of old writes it.
fn docker_archive() -> Vec<u8> {
    let layer = layer();
    let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex_of(&layer))]}});
    let list = json!([{"Config": "c.json", "RepoTags": ["docker.io/org/app:1.2"], "Layers": ["l/layer.tar"]}]);
    tar(&[
        ("l/layer.tar".to_owned(), layer),
        ("c.json".to_owned(), config.to_string().into_bytes()),
        ("manifest.json".to_owned(), list.to_string().into_bytes()),
    ])
}

/// An OCI layout with an index of one platform; `name` is what it is called inside.
fn oci_archive(name: &str) -> Vec<u8> {
    let mut files = Vec::new();
    let mut blob = |kind: &str, bytes: Vec<u8>| {
        let descriptor =
            json!({"mediaType": kind, "digest": format!("sha256:{}", hex_of(&bytes)), "size": bytes.len()});
        files.push((format!("blobs/sha256/{}", hex_of(&bytes)), bytes));
        descriptor
    };
    let layer = blob("application/vnd.oci.image.layer.v1.tar", layer());
    let config =
        blob("application/vnd.oci.image.config.v1+json", b"{\"architecture\":\"amd64\",\"os\":\"linux\"}".to_vec());
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let manifest = blob(MANIFEST, manifest.to_string().into_bytes());
    let index =
        json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]});
    let mut index = blob("application/vnd.oci.image.index.v1+json", index.to_string().into_bytes());
    index["annotations"] = json!({"io.containerd.image.name": name});
    let top = json!({"schemaVersion": 2, "manifests": [index]});
    files.push(("index.json".to_owned(), top.to_string().into_bytes()));
    files.push(("oci-layout".to_owned(), b"{\"imageLayoutVersion\":\"1.0.0\"}".to_vec()));
    tar(&files)
}

async fn upload(server: &Server, name: &str, description: &Value, bytes: Vec<u8>) {
    let metadata =
        json!({"owner": "alpha", "image_name": name, "image_length": bytes.len(), "description": description});
    server.announce(COLLECTION, &metadata).await;
    let sent = server.ask("PATCH", &format!("{COLLECTION}/{name}")).header("Upload-Offset", 0).body(bytes);
    assert_eq!(sent.send().await.expect("an answer").status(), 204);
}

async fn published(server: &Server, name: &str, as_what: Published) {
    let path = format!("{COLLECTION}/{name}");
    wait_until(name, async || server.image(&path).await.published != Published::Pending).await;
    let image = server.image(&path).await;
    assert_eq!(image.published, as_what, "{:?}", image.problem);
}

/// Pulls everything a tag leads to, and checks each digest.
async fn pull(url: &str, repository: &str, tag: &str) -> usize {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let get = async |path: String| {
        let kinds = [MANIFEST, "application/vnd.oci.image.index.v1+json"].join(", ");
        let answer =
            client.get(format!("{url}v2/{repository}/{path}")).header(ACCEPT, kinds).send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{repository}/{path}");
        answer.bytes().await.expect("bytes")
    };
    let mut waiting = vec![("manifests", tag.to_owned())];
    let mut pulled = 0;
    while let Some((kind, reference)) = waiting.pop() {
        let bytes = get(format!("{kind}/{reference}")).await;
        pulled += 1;
        if let Some(hex) = reference.strip_prefix("sha256:") {
            assert_eq!(hex_of(&bytes), hex);
        }
        if kind == "manifests" {
            let manifest: Value = serde_json::from_slice(&bytes).expect("JSON");
            let named = |list: &Value| {
                list.as_array()
                    .into_iter()
                    .flatten()
                    .map(|one| one["digest"].as_str().expect("a digest").to_owned())
                    .collect::<Vec<_>>()
            };
            waiting.extend(named(&manifest["manifests"]).into_iter().map(|digest| ("manifests", digest)));
            waiting.extend(named(&manifest["layers"]).into_iter().map(|digest| ("blobs", digest)));
            waiting.extend(manifest["config"]["digest"].as_str().map(|digest| ("blobs", digest.to_owned())));
        }
    }
    pulled
}

/// Folders that have a `link`.
fn links(folder: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path().join("link")).filter(|link| link.exists()).collect()
}

#[tokio::test]
async fn an_archive_is_in_the_registry_under_its_owners_names() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let (_registry, url) = registry(&program, dir.path());
    let server = Server::start(dir.path(), Some(&url)).await;
    let said = json!({"image_records": [{"image_record_name": "r", "repo": "icn", "tag": "2"}]});
    upload(&server, "docker.tar", &said, docker_archive()).await;
    upload(&server, "oci.tar", &json!({}), oci_archive("quay.io/org/app:1.2")).await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &docker_archive()).expect("packed");
    upload(&server, "docker.tar.gz", &json!({}), packed.finish().expect("packed")).await;
    upload(&server, "broken.tar", &said, vec![7; 2000]).await;
    for name in ["docker.tar", "oci.tar", "docker.tar.gz"] {
        published(&server, name, Published::Published).await;
    }
    published(&server, "broken.tar", Published::Failed).await;
    assert_eq!(pull(&url, "alpha/icn", "2").await, 3);
    // Index, manifest, config, layer; then the packed one took the name.
    assert!(pull(&url, "alpha/org/app", "1.2").await >= 3);
    let image = server.image(&format!("{COLLECTION}/docker.tar")).await;
    assert_eq!(
        (image.references.as_slice(), image.url.as_deref()),
        (["alpha/icn:2".to_owned()].as_slice(), Some("127.0.0.1:5000/alpha/icn:2"))
    );

    // Another description is another name, and the old one goes.
    let path = format!("{COLLECTION}/docker.tar");
    let changed = json!({"owner": "alpha", "image_name": "docker.tar", "description": {"image_records": [{"repo": "new", "tag": "3"}]}});
    let form = Form::new().text("metadata", changed.to_string()).text("file", "x");
    assert_eq!(server.ask("PUT", &path).multipart(form).send().await.expect("an answer").status(), 201);
    published(&server, "docker.tar", Published::Published).await;
    assert_eq!(pull(&url, "alpha/new", "3").await, 3);
    let status = async |path: &str| reqwest::get(format!("{url}v2/{path}")).await.expect("an answer").status().as_u16();
    wait_until("the old name is gone", async || status("alpha/icn/manifests/2").await == 404).await;
    assert_eq!(server.ask("DELETE", &path).send().await.expect("an answer").status(), 204);
    wait_until("the new name is gone", async || status("alpha/new/manifests/3").await == 404).await;
    // Its manifest went with it, so that its blobs can be collected; another image's is still there.
    let revisions = |repository: &str| {
        let folder = format!("registry/docker/registry/v2/repositories/{repository}/_manifests/revisions/sha256");
        links(&dir.path().join(folder)).len()
    };
    assert_eq!((revisions("alpha/new"), revisions("alpha/icn")), (0, 0));
    assert!(revisions("alpha/org/app") > 0);
}

#[tokio::test]
async fn a_registry_that_comes_late_gets_it_all_the_same() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    // Its port is known, and nobody answers there yet.
    let (early, url) = registry(&program, dir.path());
    drop(early);
    let server = Server::start(dir.path(), Some(&url)).await;
    upload(&server, "oci.tar", &json!({}), oci_archive("app:1")).await;
    let path = format!("{COLLECTION}/oci.tar");
    wait_until("it is told why", async || server.image(&path).await.problem.is_some()).await;
    let image = server.image(&path).await;
    assert_eq!(image.published, Published::Pending);
    assert!(image.problem.expect("a problem").starts_with("the registry does not answer"));
    let config = dir.path().join("registry.yml").display().to_string();
    let _late = start(&program, &["serve", &config], &[], &dir.path().join("registry.log"));
    published(&server, "oci.tar", Published::Published).await;
    assert_eq!(pull(&url, "alpha/app", "1").await, 4);
}
