//! The layout compared with what kubespray's own templates ask for.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use agent_api::image::ImageName;
use agent_api::release::{Kubernetes, Release};
use rstest::rstest;
use serde_json::Value;

use super::facts::{ABSENT, DOWNLOADS, Holds};
use super::{Addresses, Plan, plan, without_registry, write};
use crate::content::images::archive;
use crate::export::{Folder, SUMS};
use crate::oci::recipe::{ImageLayer, Recipe};
use crate::store::{Cache, Made, hash};

const PACKAGES: &str = "../packages";

struct Bench {
    dir: tempfile::TempDir,
    cache: Cache,
    release: Release,
    programs: Made,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(&dir.path().join("cache")).expect("a cache");
        let mut programs = Made::default();
        for download in DOWNLOADS {
            let names: Vec<&str> = match download.holds {
                Holds::Program(program) => vec![program],
                Holds::Archive(members) => members.iter().map(|(_, program)| *program).collect(),
            };
            for name in names {
                programs.files.insert(name.to_owned(), cache.adopt_bytes(name.as_bytes()).expect("a blob"));
            }
        }
        let mut bench = Self { release: release(), programs, cache, dir };
        for reference in [
            "registry.k8s.io/kube-apiserver:v1.36.4",
            "registry.k8s.io/kube-controller-manager:v1.36.4",
            "registry.k8s.io/kube-proxy:v1.36.4",
            "registry.k8s.io/kube-scheduler:v1.36.4",
            "registry.k8s.io/coredns/coredns:v1.14.2",
            "registry.k8s.io/pause:3.10.2",
            "registry.k8s.io/etcd:3.6.8-0",
            "ghcr.io/flannel-io/flannel:v0.28.10",
            "docker.io/library/nginx:1.29",
        ] {
            bench.add_image(reference);
        }
        bench
    }

    fn add_image(&mut self, reference: &str) {
        let root = self.dir.path().join("root");
        fs_err::create_dir_all(&root).expect("a folder");
        fs_err::write(root.join("name"), reference).expect("written");
        let work = self.cache.work_dir().expect("a folder");
        let layer = ImageLayer::of(&self.cache, &work, &root, 7).expect("a layer");
        let recipe = Recipe { reference: reference.to_owned(), ..Recipe::default() };
        self.release.images.push(recipe.pack(&self.cache, &[layer], 7, "").expect("packed").image);
    }

    fn plan(&self) -> Plan {
        let named = ["docker.io/library/nginx:1.29".to_owned()];
        plan(&self.release, &self.programs, Path::new(PACKAGES), &named).expect("a plan")
    }

    fn write(&self, to: &str, addresses: &Addresses) -> (Plan, std::path::PathBuf) {
        let to = self.dir.path().join(to);
        let plan = self.plan();
        let mut folder = Folder::new(&to).expect("begun");
        write(&mut folder, &self.cache, &self.release, &plan, addresses, "kind: Namespace\n").expect("written");
        folder.finish().expect("finished");
        (plan, to)
    }
}

fn release() -> Release {
    Release {
        built: 7,
        kubernetes: Kubernetes {
            version: "v1.36.4".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            service_cidr: "10.96.0.0/12".to_owned(),
        },
        ..Release::default()
    }
}

/// `*_download_url` of kubespray, its variables filled in, with its four domains below `files_repo`.
#[rstest]
#[case("kubelet", "{dl_k8s_io_url}/release/v{kube_version}/bin/linux/amd64/kubelet")]
#[case("kubectl", "{dl_k8s_io_url}/release/v{kube_version}/bin/linux/amd64/kubectl")]
#[case("kubeadm", "{dl_k8s_io_url}/release/v{kube_version}/bin/linux/amd64/kubeadm")]
#[case("etcd", "{github_url}/etcd-io/etcd/releases/download/v{etcd_version}/etcd-v{etcd_version}-linux-amd64.tar.gz")]
#[case(
    "cni",
    "{github_url}/containernetworking/plugins/releases/download/v{cni_version}/cni-plugins-linux-amd64-v{cni_version}.tgz"
)]
#[case(
    "crictl",
    "{github_url}/kubernetes-sigs/cri-tools/releases/download/v{crictl_version}/crictl-v{crictl_version}-linux-amd64.tar.gz"
)]
#[case("runc", "{github_url}/opencontainers/runc/releases/download/v{runc_version}/runc.amd64")]
#[case(
    "containerd",
    "{github_url}/containerd/containerd/releases/download/v{containerd_version}/containerd-{containerd_version}-linux-amd64.tar.gz"
)]
#[case("helm", "{get_helm_url}/helm-v{helm_version}-linux-amd64.tar.gz")]
fn each_file_lies_where_kubesprays_template_looks(#[case] name: &str, #[case] template: &str) {
    let bench = Bench::new();
    let repo = "http://files.example:8080";
    let addresses = Addresses { files_repo: Some(repo.to_owned()), registry_host: Some("r.example:5000".to_owned()) };
    let (_, to) = bench.write("out", &addresses);
    let variables = variables(&to);
    let value = |variable: &str| {
        let value = variables[variable].as_str().unwrap_or_else(|| panic!("no `{variable}`"));
        value.replace("{{ files_repo }}", repo)
    };
    let mut url = template.to_owned();
    while let Some((before, rest)) = url.clone().split_once('{') {
        let (variable, after) = rest.split_once('}').expect("a variable");
        url = format!("{before}{}{after}", value(variable));
    }
    assert_eq!(value(&format!("{name}_download_url")), url, "the overriding address is the template's own");
    let path = url.strip_prefix(repo).expect("below the repository");
    let file = hash::file(&to.join("offline-files").join(path.trim_start_matches('/'))).expect("a file");
    let download = DOWNLOADS.iter().find(|download| download.name == name).expect("in the table");
    assert_eq!(value(download.checksum), file.digest.to_string());
}

fn variables(to: &Path) -> Value {
    let text = fs_err::read_to_string(to.join("group_vars/all/offline.yml")).expect("variables");
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Paths that kubespray's roles read in what they unpack.
#[test]
fn archives_hold_programs_where_the_roles_look() {
    let bench = Bench::new();
    let (plan, to) = bench.write("out", &Addresses::default());
    let members = |name: &str| -> BTreeMap<String, String> {
        let file = plan.files.iter().find(|file| file.download == name).expect("carried");
        let path = to.join("offline-files").join(&file.address);
        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(fs_err::File::open(path).expect("opened")));
        let members = read.entries().expect("a tar").map(|member| {
            let mut member = member.expect("a member");
            assert_eq!(member.header().mode().expect("a mode"), 0o755);
            let (path, mut text) = (member.path().expect("a path").display().to_string(), String::new());
            member.read_to_string(&mut text).expect("text");
            (path, text)
        });
        members.collect()
    };
    let etcd = &plan.versions["etcd_version"];
    let of_etcd = members("etcd");
    // `{{ local_release_dir }}/etcd-v{{ etcd_version }}-linux-{{ host_architecture }}/{{ item }}`
    assert_eq!(of_etcd[&format!("etcd-v{etcd}-linux-amd64/etcdctl")], "etcdctl");
    assert_eq!(of_etcd[&format!("etcd-v{etcd}-linux-amd64/etcd")], "server");
    // `--strip-components=1` into `containerd_bin_dir`
    assert_eq!(members("containerd")["bin/containerd-shim-runc-v2"], "containerd-shim-runc-v2");
    // into `/opt/cni/bin`, `bin_dir`
    assert_eq!(members("cni")["loopback"], "loopback");
    assert_eq!(members("crictl")["crictl"], "crictl");
    assert_eq!(members("helm")["linux-amd64/helm"], "helm");
}

#[test]
fn every_files_checksum_is_the_lists_and_images_are_read_back() {
    let bench = Bench::new();
    let (plan, to) = bench.write("out", &Addresses::default());
    let sums = fs_err::read_to_string(to.join(SUMS)).expect("sums");
    let listed: BTreeMap<&str, &str> =
        sums.lines().map(|line| line.split_once("  ").expect("two columns")).map(|(sum, path)| (path, sum)).collect();
    let mut found = 0;
    for entry in walkdir::WalkDir::new(&to) {
        let entry = entry.expect("an entry");
        let path = entry.path().strip_prefix(&to).expect("inside").display().to_string();
        if entry.file_type().is_file() && path != SUMS {
            assert_eq!(listed[path.as_str()], hash::file(entry.path()).expect("read").digest.hex(), "{path}");
            found += 1;
        }
    }
    assert_eq!(found, listed.len());
    let list = fs_err::read_to_string(to.join("container-images/container-images.txt")).expect("a list");
    let images = fs_err::read_to_string(to.join("temp/images.list")).expect("a list");
    assert_eq!(images.lines().count(), plan.images.len());
    for (line, reference) in list.lines().zip(images.lines()) {
        let (file, name) = line.split_once("  ").expect("two columns");
        assert_eq!(name, without_registry(reference));
        let image = bench.release.images.iter().find(|image| image.reference == reference).expect("carried");
        let name: ImageName = reference.parse().expect("a name");
        let read = archive::import(&bench.cache, &to.join("container-images").join(file), &name).expect("an image");
        assert_eq!((read.image.manifest.digest, read.called), (image.manifest.clone(), Vec::new()));
    }
    assert!(!images.contains("etcd"), "kubespray runs etcd on the host: {images}");
    assert!(images.contains("docker.io/library/nginx:1.29"), "what the definition names comes along: {images}");
}

#[test]
fn the_same_release_gives_the_same_bytes() {
    let bench = Bench::new();
    let sums = |to: &str| {
        let (_, to) = bench.write(to, &Addresses::default());
        fs_err::read_to_string(to.join(SUMS)).expect("sums")
    };
    assert_eq!(sums("one"), sums("two"));
}

#[test]
fn what_is_missing_is_switched_off_or_told_as_needed() {
    let bench = Bench::new();
    let (plan, to) = bench.write("out", &Addresses::default());
    let variables = variables(&to);
    for missing in &plan.missing {
        for (variable, value) in &missing.switched_off_by {
            let said = &variables[variable.as_str()];
            let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
            assert_eq!(&said, value, "`{}` is switched off by `{variable}`", missing.name);
        }
    }
    assert_eq!(plan.needed().map(|missing| missing.name.as_str()).collect::<Vec<_>>(), ["etcdutl", "nerdctl"]);
    let told: Vec<Value> =
        serde_json::from_slice(&fs_err::read(to.join("missing.json")).expect("a list")).expect("JSON");
    assert_eq!(told.len(), plan.missing.len());
    // The address of the site is asked for where it is not known.
    assert!(variables["files_repo"].as_str().expect("a text").contains("undef("), "{variables}");
}

#[test]
fn a_release_without_clusters_names_the_programs_that_it_lacks() {
    let mut bench = Bench::new();
    for program in ["crictl", "runc", "helm"] {
        bench.programs.files.remove(program);
    }
    bench.release.images.retain(|image| !image.reference.contains("flannel"));
    let plan = bench.plan();
    let needed: Vec<&str> = plan.needed().map(|missing| missing.name.as_str()).collect();
    assert_eq!(needed, ["etcdutl", "crictl", "runc", "nerdctl", "the network between nodes"]);
    assert!(!plan.versions.contains_key("runc_version") && !plan.flannel);
    let helm = plan.missing.iter().find(|missing| missing.name == "helm").expect("told");
    assert_eq!(helm.switched_off_by["helm_enabled"], "false");
    let network = plan.missing.iter().find(|missing| missing.address.contains("flannel-io")).expect("told");
    assert!(network.why.contains("services.clusters"), "{}", network.why);
}

#[test]
fn no_name_of_a_download_is_carried_and_absent() {
    for absent in ABSENT.iter().filter(|absent| !absent.image) {
        assert!(DOWNLOADS.iter().all(|download| download.name != absent.name), "{}", absent.name);
    }
}

#[test]
fn registries_that_kubespray_replaces_are_taken_off() {
    for (reference, name) in [
        ("registry.k8s.io/coredns/coredns:v1", "coredns/coredns:v1"),
        ("ghcr.io/flannel-io/flannel:v1@sha256:00", "flannel-io/flannel:v1"),
        ("a.example/b:1", "a.example/b:1"),
    ] {
        assert_eq!(without_registry(reference), name);
    }
}
