//! A box with content: what its image carries runs on it and is served by it, and what is sent to it is used, too.
//!
//! The box has no way out: its network card leads to forwarded ports of this host's loopback, and nowhere else.

mod grown;
mod uploads;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_api::ports;
use foothold::cli::{Attach, MachineFirmware, Network};
use foothold::store::hash;
use foothold_qemu::{Disk, Nic, Segment, Tools, VmBuilder, Writes};
use foothold_tests::registry::Registry;
use foothold_tests::{Appliance, Boxed, How, appliance, noise, os_image};
use reqwest::header::{self, HeaderMap};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A Debian package that is carried, with what it needs.
const PACKAGE: &str = "jq";
/// How often something that comes by itself is looked for, and how long.
const LOOK: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(480);

const MANIFEST: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: { name: hello, namespace: site }
spec:
  selector: { matchLabels: { app: hello } }
  template:
    metadata: { labels: { app: hello } }
    spec: { containers: [{ name: hello, image: hello:1 }] }
---
apiVersion: v1
kind: Namespace
metadata: { name: site }
";

const CHART: [(&str, &str); 3] = [
    ("Chart.yaml", "apiVersion: v2\nname: greeter\nversion: 1.0.0\n"),
    ("values.yaml", "word: none\n"),
    (
        "templates/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: greeter, namespace: {{ .Release.Namespace }} }\n\
         data: { word: {{ .Values.word | quote }} }\n",
    ),
];

/// The box and the server on their segment.
const BOX: &str = "192.168.77.1";
const BOX_MAC: &str = "52:54:00:00:77:01";
const SERVER_ADDRESS: &str = "192.168.77.2";
const SERVER_MAC: &str = "52:54:00:00:77:02";

/// What a server does, with the box's address and names filled in.
const SERVER: &str = r#"#!/bin/sh
set -eu
get() { curl --fail --silent --show-error --retry 3 "$@"; }
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
mkdir -p /etc/apt/keyrings /etc/containerd/certs.d/_default
get http://BOX:6180/debian/foothold.asc -o /etc/apt/keyrings/foothold.asc
echo 'deb [signed-by=/etc/apt/keyrings/foothold.asc] http://BOX:6180/debian trixie main' > /etc/apt/sources.list
apt-get update --error-on=any
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends PACKAGE
echo "jq says $(jq --version)"
get http://BOX:6180/containerd/hosts.toml -o /etc/containerd/certs.d/_default/hosts.toml
for image in IMAGES; do
  ctr images pull --skip-metadata --hosts-dir /etc/containerd/certs.d "$image" > /dev/null
  echo "pulled $image $(ctr images ls "name==$image" | awk 'NR == 2 { print $3 }')"
done
ctr run --rm docker.io/library/hello:1 hello > /dev/null & sleep 5
ctr tasks ls | grep -q 'hello.*RUNNING'
get -r 0-1999999 http://BOX:6180/images/server.raw > /root/image
get -C - -o /root/image http://BOX:6180/images/server.raw
echo "in ranges $(sha256sum < /root/image)"
"#;

/// What a definition has beside what each has here.
#[derive(Clone, Copy, Debug)]
struct More<'a> {
    os_images: &'a [&'a str],
    packages: &'a [&'a str],
    outputs: &'a str,
}

impl Default for More<'_> {
    fn default() -> Self {
        Self { os_images: &[], packages: &[PACKAGE], outputs: "{ format: qcow2 }" }
    }
}

/// An OS image that the builder makes, as a definition names it.
fn recipe(name: &str) -> String {
    let recipe = appliance::builder().expect("a builder").workspace.join("images/os").join(name);
    format!("{{ name: {name}, from: {} }}", recipe.display())
}

/// A definition with some of everything, in a folder of its own.
fn definition(dir: &Path, registry: &Registry, references: &[&str], more: More<'_>) -> PathBuf {
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs_err::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs_err::write(&path, bytes).expect("written");
    };
    for (name, text) in CHART {
        write(&format!("greeter/{name}"), text.as_bytes());
    }
    write("values.yaml", b"word: hello\n");
    write("hello.yaml", MANIFEST.as_bytes());
    write("disk.raw", &disk());
    write("notes.txt", b"what to do at the site\n");
    write("tools.bin", &noise(1, 300_000));
    let content = registry.definition(references);
    let os_images = [&["{ name: server, from: disk.raw }"], more.os_images].concat().join(", ");
    let (packages, outputs) = (more.packages.join(", "), more.outputs);
    let text = format!(
        "apiVersion: foothold.dev/v1\nkind: Appliance\nmetadata: {{ name: airgap, version: 1.0.0 }}\n\
         kubernetes: {{ version: v1.36.4, from: modules }}\noutputs: [{outputs}]\n{content}\
         \x20 osImages: [{os_images}]\n\
         \x20 packages: {{ debian: [{packages}] }}\n\
         \x20 files: [{{ name: notes.txt, from: notes.txt }}, {{ name: tools/tools.bin, from: tools.bin }}]\n\
         \x20 manifests: [hello.yaml]\n\
         \x20 charts: [{{ name: greeter, namespace: site, chart: greeter, values: values.yaml }}]\n\
         services: {{ registry: {{ writable: 1GiB }} }}\n"
    );
    write("appliance.yaml", text.as_bytes());
    dir.join("appliance.yaml")
}

/// A raw disk as far as it must be one: with a boot signature.
fn disk() -> Vec<u8> {
    let mut bytes = noise(1, 4 << 20);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

/// A client on this host of everything that the box serves.
struct Site<'a> {
    machine: &'a Boxed,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

/// An answer, whole.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl<'a> Site<'a> {
    fn of(machine: &'a Boxed) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // The certificate is the box's own; whom we trust is not what is tested here.
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).no_proxy().build();
        Self { machine, client: client.expect("a client"), runtime }
    }

    fn ask(&self, request: reqwest::RequestBuilder) -> Answer {
        self.runtime.block_on(async {
            let answer = request.send().await.unwrap_or_else(|error| panic!("asking: {error:?}"));
            let (status, headers) = (answer.status(), answer.headers().clone());
            Answer { status, headers, body: answer.bytes().await.expect("a body").to_vec() }
        })
    }

    fn content(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("http://{}/{path}", self.machine.address(ports::CONTENT)))
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let answer = self.ask(self.content(path));
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        answer.body
    }

    /// Asks until the path is there.
    fn wait_for(&self, path: &str) -> Vec<u8> {
        let mut body = Vec::new();
        self.until(path, || {
            let answer = self.ask(self.content(path));
            body = answer.body;
            answer.status.is_success()
        });
        body
    }

    /// Waits until it is so.
    fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?}: {what}");
            self.runtime.block_on(async { tokio::time::sleep(LOOK).await });
        }
    }

    /// Writes an answer of any size into a file.
    fn download(&self, path: &str, file: &Path) {
        let mut file = fs_err::File::create(file).expect("a file");
        self.runtime.block_on(async {
            let mut answer = self.content(path).send().await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            while let Some(chunk) = answer.chunk().await.expect("the body") {
                file.write_all(&chunk).expect("written");
            }
        });
    }

    fn registry(&self, path: &str) -> Answer {
        let accept = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                      application/vnd.docker.distribution.manifest.v2+json, \
                      application/vnd.docker.distribution.manifest.list.v2+json";
        let url = format!("http://{}/v2/{path}", self.machine.address(ports::REGISTRY));
        self.ask(self.client.get(url).header(header::ACCEPT, accept))
    }

    fn bpa(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("https://{}/v1/baremetalcluster/{path}", self.machine.address(ports::BPA));
        self.client.request(method, url).bearer_auth(self.machine.token())
    }
}

/// Such an image, and the names of the images in it.
fn built(dir: &Path, more: More<'_>) -> (Appliance, [&'static str; 6]) {
    let registry = Registry::start();
    let references = registry.push_six();
    (Appliance::of(&definition(dir, &registry, &references, more)), references)
}

/// A box of it, ready.
fn ready_box(dir: &Path, more: More<'_>, how: How<'_>) -> (Boxed, [&'static str; 6]) {
    let (appliance, references) = built(dir, more);
    let mut machine = appliance.boot(How { network: Network::User, ..how });
    machine.until_ready();
    (machine, references)
}

#[test]
fn what_an_image_carries_runs_and_is_served() {
    let dir = tempfile::tempdir().expect("a folder");
    // A field of the matrix of `boot`, too.
    let stick = How { format: "raw", attach: Attach::Usb, firmware: MachineFirmware::Uefi, ..How::default() };
    let more = More { outputs: "{ format: raw }", ..More::default() };
    let (machine, references) = ready_box(dir.path(), more, stick);
    let client = machine.client();
    let status: Value = serde_json::from_str(&client.get("/api/v1/status")).expect("JSON");
    let objects = status["objects"].as_array().expect("declared objects").clone();
    assert_eq!(objects.len(), 3, "{objects:?}");
    assert!(objects.iter().all(|object| object["healthy"] == true), "{objects:?}");
    let kubernetes = client.kubernetes();
    assert_eq!(kubernetes.get("/api/v1/namespaces/site/configmaps/greeter")["data"]["word"], "hello");
    let deployment = kubernetes.get("/apis/apps/v1/namespaces/site/deployments/hello");
    assert_eq!(deployment["status"]["readyReplicas"], 1, "an image by a name of docker.io that no node has pulled");
    assert_eq!(status["pulls"], json!([]), "nothing was asked for in vain: {status}");
    let site = Site::of(&machine);
    files_come_whole_and_in_parts(&site);
    images_come_under_every_name(&site, &references);
}

/// Two machines on one segment: the box, and a server that boots an OS image of the box and knows nothing but its
/// address.
#[test]
#[ignore = "slow: `cargo test -p foothold-tests --test airgap -- --ignored`"]
fn a_server_of_the_site_installs_from_the_box_and_what_is_sent_to_it_is_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let segment = Segment::new();
    let site = dir.path().join("site.yaml");
    let text = format!(
        "apiVersion: foothold.dev/v1\nkind: Site\nnetworks:\n  interfaces:\n\
         \x20 - {{ macAddress: \"{BOX_MAC}\", addresses: [{BOX}/24] }}\n"
    );
    fs_err::write(&site, text).expect("written");
    let nics = [Nic::segment(&segment).mac(BOX_MAC)];
    let how = How { nics: &nics, site: Some(&site), ..How::default() };
    let (machine, references) =
        ready_box(dir.path(), More { os_images: &[&recipe("debian-node")], ..More::default() }, how);
    let site = Site::of(&machine);
    uploads::are_used(&site);
    a_server_lives_on_the_box(&site, &segment, dir.path(), &references);
}

fn files_come_whole_and_in_parts(site: &Site<'_>) {
    let (disk, tools) = (disk(), noise(1, 300_000));
    assert_eq!(site.get("files/tools/tools.bin"), tools);
    assert_eq!(site.get("files/notes.txt"), b"what to do at the site\n");
    let digest = hash::bytes(&disk);
    let mut whole = Vec::new();
    for (from, to) in [(0, 1_000_000), (1_000_001, 4_000_000), (4_000_001, (4 << 20) - 1)] {
        let answer = site.ask(site.content("images/server.raw").header(header::RANGE, format!("bytes={from}-{to}")));
        assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT);
        assert_eq!(answer.headers[header::CONTENT_RANGE], format!("bytes {from}-{to}/{}", 4 << 20));
        whole.extend(answer.body);
    }
    assert_eq!(hash::bytes(&whole), digest);
    let told = String::from_utf8(site.get("images/server.raw.sha256")).expect("text");
    assert!(told.starts_with(digest.hex()), "{told}");
    let answer = site.ask(site.content("files/notes.txt"));
    let again = site.content("files/notes.txt").header(header::IF_NONE_MATCH, &answer.headers[header::ETAG]);
    assert_eq!(site.ask(again).status, StatusCode::NOT_MODIFIED);
    let listing = String::from_utf8(site.get("images/")).expect("text");
    assert!(listing.contains("server.raw.md5sum"), "{listing}");
    for path in ["files/%2e%2e/%2e%2e/etc/passwd", "files//etc/passwd", "files/none"] {
        assert_eq!(site.ask(site.content(path)).status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// `docker pull box:5000/org/app:1.2`, and the same with the registry's name before it: manifest, config and layers.
fn images_come_under_every_name(site: &Site<'_>, references: &[&str]) {
    for reference in references {
        let (name, tag) = reference.rsplit_once(':').expect("a tag");
        let (_, plain) = name.split_once('/').expect("a host");
        for repository in [name, plain] {
            let answer = site.registry(&format!("{repository}/manifests/{tag}"));
            assert_eq!(answer.status, StatusCode::OK, "{repository}:{tag}");
            let mut document: Value = serde_json::from_slice(&answer.body).expect("a manifest");
            assert_eq!(answer.headers["docker-content-digest"], hash::bytes(&answer.body).to_string());
            if let Some(platform) = document["manifests"]
                .as_array()
                .and_then(|all| all.iter().find(|manifest| manifest["platform"]["architecture"] == "amd64").cloned())
            {
                let digest = platform["digest"].as_str().expect("a digest").to_owned();
                let answer = site.registry(&format!("{repository}/manifests/{digest}"));
                assert_eq!(hash::bytes(&answer.body).to_string(), digest);
                document = serde_json::from_slice(&answer.body).expect("a manifest");
            }
            let layers = document["layers"].as_array().expect("layers").clone();
            for part in layers.iter().chain([&document["config"]]) {
                let digest = part["digest"].as_str().expect("a digest");
                let answer = site.registry(&format!("{repository}/blobs/{digest}"));
                assert_eq!(hash::bytes(&answer.body).to_string(), digest, "{repository}");
            }
        }
    }
    assert_eq!(site.registry("org/none/manifests/1").status, StatusCode::NOT_FOUND);
    for (scheme, answer) in [("http", StatusCode::FORBIDDEN), ("https", StatusCode::UNAUTHORIZED)] {
        let url = format!("{scheme}://{}/v2/org/app/blobs/uploads/", site.machine.address(ports::REGISTRY));
        assert_eq!(site.ask(site.client.post(url)).status, answer, "nobody writes without a token, by {scheme}");
    }
}

/// A server boots the image that the box serves, then takes a package by apt, images by containerd and the other image
/// by ranges from the box, over the segment.
fn a_server_lives_on_the_box(site: &Site<'_>, segment: &Segment, dir: &Path, references: &[&str]) {
    let image = dir.join("debian-node.qcow2");
    site.download("images/debian-node.qcow2", &image);
    let told = String::from_utf8(site.get("images/debian-node.qcow2.sha256")).expect("text");
    let digest = hash::file(&image).expect("readable").digest;
    assert!(told.starts_with(digest.hex()), "{told}");
    let script = SERVER.replace("BOX", BOX).replace("PACKAGE", PACKAGE).replace("IMAGES", &references.join(" "));
    let script = script.replace('\n', "\n    ");
    let user_data = format!(
        "#cloud-config\nwrite_files:\n- path: /root/try\n  permissions: '0755'\n  content: |\n    {script}\n\
         runcmd:\n- [sh, -c, 'if /root/try > /dev/ttyS0 2>&1; then echo try: good; else echo try: bad; fi > /dev/ttyS0']\n"
    );
    let network = format!(
        "version: 2\nethernets:\n  segment:\n    match: {{ macaddress: \"{SERVER_MAC}\" }}\n\
         \x20   addresses: [{SERVER_ADDRESS}/24]\n"
    );
    let meta_data = "instance-id: test-1\nlocal-hostname: server-1\n";
    let seed =
        os_image::seed(dir, &[("meta-data", meta_data), ("user-data", &user_data), ("network-config", &network)]);
    let tools = Tools::locate().expect("a toolbox");
    let kept = std::env::temp_dir().join(format!("foothold-server-{}", std::process::id()));
    let vm = VmBuilder::new(&tools, "server-1")
        .memory_mib(2048)
        .boot(Disk::open(&image).expect("an image").writes(Writes::Discard).grow_to(6 << 30))
        .disk(Disk::open(seed).expect("a seed"))
        .nic(Nic::segment(segment).mac(SERVER_MAC))
        .keep_on_panic(&kept)
        .start()
        .unwrap_or_else(|error| panic!("{error}"));
    let ended = vm.wait_serial(appliance::PATIENCE, "try: ");
    let text = vm.serial_text();
    assert!(ended.is_ok() && !text.contains("try: bad"), "kept in {}:\n{text}", kept.display());
    let version = text.lines().find_map(|line| line.trim().strip_prefix("jq says "));
    assert!(version.is_some_and(|version| version.starts_with("jq-1.")), "{text}");
    let sent = hash::bytes(&disk());
    assert!(text.contains(&format!("in ranges {}", sent.hex())), "{text}");
    for reference in references {
        let answer = site.registry(&reference.replacen(':', "/manifests/", 1));
        let digest = hash::bytes(&answer.body);
        assert!(text.contains(&format!("pulled {reference} {digest}")), "{reference} {digest} in\n{text}");
    }
}
