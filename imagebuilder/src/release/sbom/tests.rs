//! The shape of the list: what SPDX 2.3 asks for, and that nothing is left out.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::release::{Blob, Clusters, ContentFile, ContentKind, Digest, Release};
use serde_json::Value;

use super::go::{Module, Program};
use super::parts::{Crate, Parts};
use super::{Input, document, release_of};
use crate::layer::kubernetes;
use crate::lock::{Deb, Lock};
use crate::oci::recipe::Recipe;
use crate::release::testbench::Sample;
use crate::store::{Made, hash};

fn deb(name: &str) -> Deb {
    Deb {
        name: name.to_owned(),
        version: "2:1.0+b1".to_owned(),
        architecture: "amd64".to_owned(),
        sha256: hash::bytes(name.as_bytes()),
        size: 1,
    }
}

fn module(path: &str) -> Module {
    Module { path: path.to_owned(), version: "v1.2.3".to_owned(), sum: "h1:AA=".to_owned() }
}

fn made(names: &[&str]) -> Made {
    let mut made = Made::default();
    for name in names {
        made.files.insert((*name).to_owned(), Blob { digest: hash::bytes(name.as_bytes()), size: 1 });
    }
    made
}

/// A release with every kind of content.
fn release() -> Release {
    let mut release = Sample::new().release;
    for name in ["kubernetes", "appliance"] {
        let mut layer = release.layers[0].clone();
        (layer.name, layer.digest) = (name.to_owned(), hash::bytes(name.as_bytes()));
        release.layers.push(layer);
    }
    release.images[0].reference = "registry.k8s.io/kube-proxy:v1.36.4".to_owned();
    release.images[1].reference = "docker.io/library/nginx:1.29".to_owned();
    release.images[1].manifest = hash::bytes(b"nginx");
    // kubeadm of another release has another name for the same image, and one of its own.
    let mut renamed = release.images[0].clone();
    renamed.reference = "registry.k8s.io/kube-proxy:renamed".to_owned();
    let mut other = release.images[1].clone();
    (other.reference, other.manifest) = ("registry.k8s.io/kube-proxy:v1.35.8".to_owned(), hash::bytes(b"other"));
    release.images.extend([renamed, other]);
    release.clusters = Some(Clusters { versions: vec!["v1.35.8".to_owned()] });
    let digest = hash::bytes(b"tool");
    release.content = vec![ContentFile::stored("files/tool", ContentKind::File, &Blob { digest, size: 4 })];
    release
}

fn listed(release: &Release) -> (Vec<u8>, Value) {
    let mut lock = Lock::new(1_760_000_000);
    for (set, names) in [
        ("os", ["bash", "nftables"]),
        ("kernel", ["linux-image", "linux-base"]),
        ("toolbox", ["gcc", "qemu"]),
        ("site", ["chrony", "lldpd"]),
    ] {
        lock.debian.insert(set.to_owned(), names.map(deb).to_vec());
    }
    let own = kubernetes::PROGRAMS.iter().map(|(name, _)| *name);
    let names: Vec<&str> = own.chain(["kube-proxy", "kube-proxy-v1.35.8"]).collect();
    let program = |main: &str| Program {
        go: "go1.25.1".to_owned(),
        package: format!("{main}/cmd"),
        main: Some(module(main)),
        modules: vec![module("github.com/Shared/lib"), module("go.example/only")],
    };
    let of = |name: &str, sha256: Option<&str>| Crate {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        sha256: sha256.map(str::to_owned),
        licence: "MIT OR Apache-2.0".to_owned(),
    };
    let parts = Parts {
        programs: BTreeMap::from([
            ("kubelet".to_owned(), program("k8s.io/kubernetes")),
            ("kube-proxy".to_owned(), program("k8s.io/kubernetes")),
        ]),
        crates: vec![of("anyhow", Some(&"ab".repeat(32))), of("foothold-agent", None)],
    };
    let recipe = Recipe {
        reference: "registry.k8s.io/kube-proxy:{kubernetes}".to_owned(),
        debian: vec!["nftables".to_owned()],
        files: BTreeMap::from([("/usr/local/bin/kube-proxy".to_owned(), "module:kube-proxy".to_owned())]),
        entrypoint: Vec::new(),
        env: Vec::new(),
        user: String::new(),
        ..Recipe::default()
    };
    let input = Input {
        release,
        id: &"ab".repeat(32),
        lock: &lock,
        programs: &made(&names),
        agent: &made(&["foothold-agent", "pause"]),
        parts: &parts,
        recipes: &[recipe],
        services: &[],
    };
    let bytes = document(&input).expect("a list");
    assert_eq!(bytes, document(&input).expect("a list"), "the same bytes each time");
    let json = serde_json::from_slice(&bytes).expect("JSON");
    (bytes, json)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The package of that name and kind, and what contains it.
fn find<'a>(json: &'a Value, kind: &str, name: &str) -> (&'a Value, Vec<&'a str>) {
    let packages = json["packages"].as_array().expect("packages");
    let kind_of = format!("-{kind}-");
    let is_it = |package: &&Value| package["name"] == name && text(&package["SPDXID"]).contains(&kind_of);
    let found: Vec<&Value> = packages.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    let name_of =
        |id: &str| packages.iter().find(|package| package["SPDXID"] == id).map(|package| text(&package["name"]));
    let relationships = json["relationships"].as_array().expect("relationships").iter();
    let within = relationships
        .filter(|one| one["relationshipType"] == "CONTAINS" && one["relatedSpdxElement"] == found[0]["SPDXID"])
        .filter_map(|one| name_of(text(&one["spdxElementId"])));
    (found[0], within.collect())
}

/// Images of kube-proxy: the box's own under two names, and that of another release.
const PROXIES: [&str; 3] =
    ["registry.k8s.io/kube-proxy:renamed", "registry.k8s.io/kube-proxy:v1.36.4", "registry.k8s.io/kube-proxy:v1.35.8"];

#[test]
fn every_kind_of_content_is_listed_where_it_is() {
    let release = release();
    let (bytes, json) = listed(&release);
    assert_eq!(release_of(&bytes), Some("ab".repeat(32)));
    let purl = |package: &Value| package["externalRefs"][0]["referenceLocator"].as_str().unwrap_or_default().to_owned();
    let (bash, within) = find(&json, "Deb", "bash");
    assert_eq!(
        (purl(bash).as_str(), within),
        ("pkg:deb/debian/bash@2%3A1.0%2Bb1?arch=amd64&distro=trixie", vec!["os"])
    );
    assert_eq!(bash["checksums"][0]["checksumValue"], hash::bytes(b"bash").hex());
    let (_, within) = find(&json, "Deb", "nftables");
    assert_eq!(BTreeSet::from_iter(within), ["os"].into_iter().chain(PROXIES).collect());
    assert_eq!(find(&json, "Deb", "linux-image").1, ["os"]);
    assert_eq!(find(&json, "Deb", "chrony").1, ["edge"], "served by the box");
    assert!(!json.to_string().contains("pkg:deb/debian/gcc@"), "the toolbox is not in the image");
    assert_eq!(find(&json, "Program", "kubelet").1, ["kubernetes"]);
    assert_eq!(find(&json, "Program", "kube-proxy").1, PROXIES[..2]);
    assert_eq!(find(&json, "Program", "kube-proxy-v1.35.8").1, PROXIES[2..]);
    let (shared, within) = find(&json, "Go", "github.com/Shared/lib");
    assert_eq!(purl(shared), "pkg:golang/github.com/shared/lib@v1.2.3");
    assert_eq!(BTreeSet::from_iter(within), BTreeSet::from(["kubelet", "kube-proxy"]));
    let (anyhow, within) = find(&json, "Crate", "anyhow");
    assert_eq!((purl(anyhow).as_str(), within), ("pkg:cargo/anyhow@1.0.0", vec!["foothold-agent"]));
    assert_eq!(find(&json, "Image", "docker.io/library/nginx:1.29").1, ["edge"]);
    assert_eq!(find(&json, "File", "files/tool").1, ["edge"]);
    assert_eq!(find(&json, "Boot", "vmlinuz").1, ["edge"]);
}

#[test]
fn the_document_has_what_the_specification_asks_for() {
    let release = release();
    let (_, json) = listed(&release);
    assert_eq!(json["spdxVersion"], "SPDX-2.3");
    assert_eq!(json["dataLicense"], "CC0-1.0");
    assert_eq!(json["creationInfo"]["created"], "2025-10-09T08:53:20Z");
    let packages = json["packages"].as_array().expect("packages");
    let mut ids: BTreeSet<&str> = packages.iter().filter_map(|package| package["SPDXID"].as_str()).collect();
    assert_eq!(ids.len(), packages.len(), "every id once");
    for id in &ids {
        let rest = id.strip_prefix("SPDXRef-").expect("a prefix");
        assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)), "{id}");
    }
    for package in packages {
        for key in ["name", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"] {
            assert!(package[key].is_string(), "{key} of {package}");
        }
        assert_eq!(package["filesAnalyzed"], false);
        for checksum in package["checksums"].as_array().into_iter().flatten() {
            assert_eq!(checksum["algorithm"], "SHA256");
            Digest::from_hex(checksum["checksumValue"].as_str().expect("a text")).expect("a digest");
        }
    }
    ids.insert("SPDXRef-DOCUMENT");
    let relationships = json["relationships"].as_array().expect("relationships");
    let ends =
        |one: &Value| ["spdxElementId", "relatedSpdxElement"].map(|key| one[key].as_str().expect("a text").to_owned());
    let mut contained = BTreeSet::new();
    for one in relationships {
        let [from, to] = ends(one);
        assert!(ids.contains(from.as_str()) && ids.contains(to.as_str()), "{one}");
        contained.insert(to);
    }
    for package in packages {
        assert!(contained.contains(package["SPDXID"].as_str().expect("an id")), "{package} hangs loose");
    }
    let has = |kind: &str| relationships.iter().any(|one| one["relationshipType"] == kind);
    assert!(has("DESCRIBES") && has("CONTAINS") && has("GENERATED_FROM"));
}
