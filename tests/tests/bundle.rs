//! A bundle from the builder's code to the box's, through the box's real server: whole, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::bundle::blobs_of;
use agent_api::release::{Blob, BootEntry, Digest, Image, Layer, Release};
use agent_api::rest::{BoxStatus, Problem, Taken};
use agent_api::site::Access;
use foothold::bundle::{Source, write};
use foothold::config::SecretReference;
use foothold::medium::Found;
use foothold::medium::bytes::Bytes;
use foothold::release::sign::Signer;
use foothold_agent::content::fetches::Fetches;
use foothold_agent::door::{self, Certificate, Gate};
use foothold_agent::events::Bus;
use foothold_agent::host::runner::{Output, RunError, Runner};
use foothold_agent::releases::Releases;
use foothold_agent::rest;
use foothold_agent::support::SiteOut;
use foothold_agent::vitals::Vitals;
use foothold_tests::{fixture, noise};
use reqwest::{Client, Response, StatusCode};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "a-token-of-this-test";

/// A release with all its blobs in memory.
struct Sample {
    release: Release,
    found: Found,
    blobs: BTreeMap<Digest, Vec<u8>>,
}

impl Source for Sample {
    fn found(&self) -> &Found {
        &self.found
    }

    fn release(&self) -> &Release {
        &self.release
    }

    fn blob(&self, digest: &Digest) -> io::Result<Option<Box<dyn Bytes>>> {
        Ok(self.blobs.get(digest).map(|bytes| Box::new(bytes.clone()) as Box<dyn Bytes>))
    }
}

fn signer(dir: &Path) -> Signer {
    let path = dir.join("release.key");
    if !path.exists() {
        let pair = minisign::KeyPair::generate_unencrypted_keypair().expect("a key");
        fs_err::write(&path, pair.sk.to_box(None).expect("a box").to_string()).expect("written");
    }
    Signer::open(Some(&SecretReference::File(path))).expect("a signer")
}

/// A release whose blobs are made of these seeds: layers, an image, kernel and initrd.
fn sample(version: &str, seeds: [u64; 5], signer: &Signer) -> Sample {
    let mut blobs = BTreeMap::new();
    let mut add = |seed: u64, length| {
        let bytes = noise(seed, length);
        let digest = Digest::of(&bytes);
        let blob = Blob { digest: digest.clone(), size: bytes.len() as u64 };
        blobs.insert(digest, bytes);
        blob
    };
    let layer = |name: &str, blob: Blob| Layer {
        name: name.to_owned(),
        digest: blob.digest,
        size: blob.size,
        data_bytes: blob.size,
        root_hash: "00".repeat(32),
        salt: "00".to_owned(),
    };
    let [os, top, image, kernel, initrd] = seeds;
    let (os, top, image) = (add(os, 900_000), add(top, 300_001), add(image, 70_000));
    let (kernel, initrd) = (add(kernel, 100_000), add(initrd, 400_000));
    let release = Release {
        version: version.to_owned(),
        built: 1_790_000_000,
        development_key: false,
        layers: vec![layer("os", os), layer("appliance", top)],
        boot: vec![BootEntry {
            name: "default".to_owned(),
            kernel,
            initrd,
            command_line: "quiet".to_owned(),
            kernel_release: "6.12.0-test".to_owned(),
        }],
        images: vec![Image {
            reference: "example.org/a:1".to_owned(),
            index: None,
            inner: Vec::new(),
            manifest: image.digest.clone(),
            blobs: vec![image],
        }],
        ..fixture::release()
    };
    let json = serde_json::to_vec_pretty(&release).expect("JSON");
    let folder = Digest::of(&json).hex().to_owned();
    let signature = Some(signer.sign(&json, "test").expect("signed"));
    let found = Found { folder, json, signature, boot_files: None, proof: None, sbom: None };
    Sample { release, found, blobs }
}

fn old(signer: &Signer) -> Sample {
    sample("1.4.0", [1, 2, 3, 4, 5], signer)
}

/// The agent changed: the top layer and the initrd.
fn new(signer: &Signer) -> Sample {
    sample("1.5.0", [1, 12, 3, 4, 15], signer)
}

fn bundle(a: &Sample, b: &Sample, signer: &Signer) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("bundle");
    write(a, b, signer, &out, &mut |_, _| Ok(())).expect("written");
    fs_err::read(out).expect("reads")
}

#[derive(Debug)]
struct Nothing;

impl Runner for Nothing {
    fn run(&self, _: &[&str], _: &[u8], _: Duration) -> Result<Output, RunError> {
        Ok(Output { stdout: Vec::new(), stderr: Vec::new() })
    }
}

/// A box that runs a release: its medium, its DATA, its server.
struct Fixture {
    address: SocketAddr,
    certificate: Certificate,
    client: Client,
    dir: TempDir,
    _tasks: JoinSet<anyhow::Result<()>>,
}

impl Fixture {
    fn running(release: &Sample, signer: &Signer) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a folder");
        let (run, medium, data) = (dir.path().join("run"), dir.path().join("medium"), dir.path().join("data"));
        let store = medium.join("foothold/store/sha256");
        for folder in [&run, &store] {
            fs_err::create_dir_all(folder).expect("a folder");
        }
        fs_err::write(run.join("release.json"), &release.found.json).expect("written");
        fs_err::write(run.join("release.pub"), &signer.public_key).expect("written");
        // Kernel and initrd lie where firmware reads them, not in the store.
        let starts = [&release.release.boot[0].kernel.digest, &release.release.boot[0].initrd.digest];
        for (digest, bytes) in release.blobs.iter().filter(|(digest, _)| !starts.contains(digest)) {
            fs_err::write(store.join(digest.hex()), bytes).expect("written");
        }
        let gate = Arc::new(Gate::new(&dir.path().join("access")));
        let token_sha256 = Some(Digest::of(TOKEN).hex().to_owned());
        gate.set_site(&Access { token_sha256, ..Access::default() });
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let certificate = door::certificate::start(&mut tasks, &dir.path().join("web"), 0, &stop).expect("made");
        let options = rest::web::Options {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            bus: Bus::in_memory(),
            gate,
            certificate: certificate.clone(),
            stored_site: dir.path().join("site.yaml"),
            vitals: Vitals::below(&run, Path::new("/proc")),
            kubeconfig: dir.path().join("admin.conf"),
            runner: Arc::new(Nothing),
            releases: Releases::below(&data, &medium, &run),
            root: dir.path().to_owned(),
            site_out: Arc::new(SiteOut::new(dir.path())),
            fetches: Fetches::default(),
            ironic: "http://127.0.0.1:1".to_owned(),
        };
        let address = rest::web::start(&mut tasks, options, &stop).expect("started")[0];
        let authority = reqwest::Certificate::from_pem(certificate.authority.as_bytes()).expect("the authority");
        let client = Client::builder().tls_certs_only([authority]).no_proxy().build().expect("a client");
        Self { address, certificate, client, dir, _tasks: tasks }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    async fn send(&self, bytes: Vec<u8>) -> Response {
        let url = format!("https://{}/api/v1/bundles", self.address);
        self.client.post(url).bearer_auth(TOKEN).body(bytes).send().await.expect("an answer")
    }

    async fn refused(&self, bytes: Vec<u8>) -> (StatusCode, String) {
        let answer = self.send(bytes).await;
        let status = answer.status();
        let problem: Problem = answer.json().await.expect("a problem");
        assert!(!problem.hint.is_empty());
        (status, problem.error)
    }

    async fn releases(&self) -> Vec<(String, bool)> {
        let url = format!("https://{}/api/v1/status", self.address);
        let status = self.client.get(url).bearer_auth(TOKEN).send().await.expect("an answer");
        let status: BoxStatus = status.json().await.expect("a status");
        status.releases.into_iter().map(|held| (held.version, held.running)).collect()
    }

    /// Every file below DATA's folder, relative.
    fn files(&self) -> BTreeSet<String> {
        fn walk(root: &Path, folder: &Path, into: &mut BTreeSet<String>) {
            for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(root, &path, into);
                } else {
                    into.insert(path.strip_prefix(root).expect("below it").display().to_string());
                }
            }
        }
        let mut files = BTreeSet::new();
        walk(&self.data(), &self.data(), &mut files);
        files
    }
}

#[tokio::test]
async fn a_box_with_a_and_the_bundle_has_b_exactly() {
    let keys = tempfile::tempdir().expect("a folder");
    let signer = signer(keys.path());
    let (a, b) = (old(&signer), new(&signer));
    let fixture = Fixture::running(&a, &signer);
    assert_eq!(fixture.releases().await, [("1.4.0".to_owned(), true)]);
    let bytes = bundle(&a, &b, &signer);
    for _ in 0..2 {
        let answer = fixture.send(bytes.clone()).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let taken: Taken = answer.json().await.expect("what was taken");
        assert_eq!((taken.from, taken.to), (a.found.folder.clone(), b.found.folder.clone()));
        assert_eq!(fixture.releases().await, [("1.4.0".to_owned(), true), ("1.5.0".to_owned(), false)]);
    }
    let folder = format!("releases/{}", b.found.folder);
    let changed = [&b.release.layers[1].digest, &b.release.boot[0].initrd.digest];
    let mut expected: BTreeSet<String> = changed.map(Digest::store_path).into();
    expected.extend(["release.json", "release.json.minisig"].map(|name| format!("{folder}/{name}")));
    assert_eq!(fixture.files(), expected, "nothing that is on the medium, and nothing left over");
    let medium = fixture.dir.path().join("medium/foothold");
    let kernel = &b.release.boot[0].kernel.digest;
    for blob in blobs_of(&b.release).into_iter().filter(|blob| blob.digest != *kernel) {
        let path = blob.digest.store_path();
        let bytes = fs_err::read(fixture.data().join(&path)).or_else(|_| fs_err::read(medium.join(&path)));
        assert_eq!(Digest::of(bytes.expect("it is there")), blob.digest);
    }
    assert_eq!(fs_err::read(fixture.data().join(folder).join("release.json")).expect("reads"), b.found.json);
}

#[tokio::test]
async fn a_bundle_for_another_box_or_by_somebody_else_is_refused() {
    let keys = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let [ours, theirs] = keys.each_ref().map(|dir| signer(dir.path()));
    let (a, b) = (old(&ours), new(&ours));
    let fixture = Fixture::running(&a, &ours);
    let c = sample("1.6.0", [1, 22, 3, 4, 25], &ours);
    let (status, error) = fixture.refused(bundle(&b, &c, &ours)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(error.contains(&b.found.folder) && error.contains(&a.found.folder), "{error}");
    let (status, error) = fixture.refused(bundle(&old(&theirs), &new(&theirs), &theirs)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(error.contains("not signed with the key"), "{error}");
    let (status, _) = fixture.refused(b"hello".repeat(1000)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.files(), BTreeSet::new());
    assert_eq!(fixture.releases().await, [("1.4.0".to_owned(), true)]);
}

#[tokio::test]
async fn a_flipped_byte_anywhere_is_refused_and_named() {
    let keys = tempfile::tempdir().expect("a folder");
    let signer = signer(keys.path());
    let (a, b) = (old(&signer), new(&signer));
    let fixture = Fixture::running(&a, &signer);
    let bytes = bundle(&a, &b, &signer);
    let top = &b.release.layers[1].digest;
    let start = |wanted: &[u8]| bytes.windows(wanted.len()).position(|found| found == wanted).expect("it is in it");
    let cases = [
        (start(&b.blobs[top][..64]) + 150_000, StatusCode::UNPROCESSABLE_ENTITY, top.hex().to_owned()),
        (start(&b.found.json[..64]) + 100, StatusCode::UNPROCESSABLE_ENTITY, "release.json".to_owned()),
        (start(b"\"files\"") + 2, StatusCode::FORBIDDEN, "not signed".to_owned()),
    ];
    for (at, expected, named) in cases {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        let (status, error) = fixture.refused(flipped).await;
        assert_eq!(status, expected, "{error}");
        assert!(error.contains(&named), "{error}");
        assert_eq!(fixture.files(), BTreeSet::new());
    }
    // The medium lost a layer that the bundle does not bring.
    let os = fixture.dir.path().join("medium/foothold").join(b.release.layers[0].digest.store_path());
    fs_err::remove_file(os).expect("removed");
    let (status, error) = fixture.refused(bytes).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(error.contains(b.release.layers[0].digest.hex()), "{error}");
    assert_eq!(fixture.files(), BTreeSet::new());
}

/// Sends so many bytes of a request whose head promises all of them, then cuts the connection.
fn send_part(fixture: &Fixture, bytes: &[u8], part: usize) {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(fixture.certificate.authority.as_bytes()).expect("a certificate"))
        .expect("a root");
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("a name");
    let client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect(fixture.address).expect("connected");
    let mut tls = rustls::StreamOwned::new(client, socket);
    let head = format!(
        "POST /api/v1/bundles HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n",
        bytes.len()
    );
    tls.write_all(head.as_bytes()).expect("sent");
    tls.write_all(&bytes[..part]).expect("sent");
    tls.flush().expect("sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_leaves_nothing_half_and_the_whole_is_taken_later() {
    let keys = tempfile::tempdir().expect("a folder");
    let signer = signer(keys.path());
    let (a, b) = (old(&signer), new(&signer));
    let fixture = Fixture::running(&a, &signer);
    let bytes = bundle(&a, &b, &signer);
    for part in [100, 3000, 200_000, bytes.len() - 300_000, bytes.len() - 2000] {
        send_part(&fixture, &bytes, part);
        let until = Instant::now() + Duration::from_secs(20);
        // Until the box has seen the cut, another bundle is refused as `busy`.
        while fixture.data().join("incoming").exists() {
            assert!(Instant::now() < until, "`incoming` stays after {part} bytes");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fixture.files(), BTreeSet::new(), "after {part} bytes");
        assert_eq!(fixture.releases().await, [("1.4.0".to_owned(), true)]);
    }
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = fixture.send(bytes.clone()).await;
        if answer.status() == StatusCode::CREATED {
            break;
        }
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(Instant::now() < until, "the cut was never seen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(fixture.releases().await.len(), 2);
}
