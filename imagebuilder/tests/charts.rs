//! Charts of the shapes that the most used public ones have, by the builder's own Helm in its toolbox.
//!
//! The charts in `charts/` are small ones of our own: each has what real ones of that name trip over.

use std::path::{Path, PathBuf};

use foothold::config::{Chart, ChartOrigin, Content};
use foothold::content::manifests::inputs::Inputs;
use foothold::content::manifests::{ClusterApi, Stage, documents};
use foothold::kubernetes::modules::{Build, HELM};
use foothold::store::{Cache, Made};
use foothold::toolbox::Toolbox;

/// What an API server of the pinned Kubernetes serves, as far as the charts ask for it.
const SERVED: [&str; 8] = [
    "apps/v1",
    "autoscaling/v2",
    "batch/v1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1/Ingress",
    "policy/v1",
    "policy/v1/PodDisruptionBudget",
    "v1",
];

/// Objects that would be missing, twice, or refused, if the charts were rendered for another cluster, or taken otherwise.
const HELD: [(&str, &str); 20] = [
    ("argo-cd", "Application argo-cd-system/root"),
    ("cert-manager", "Role kube-system/cert-manager:leaderelection"),
    ("cilium", "Namespace cilium-secrets"),
    ("external-dns", "DNSEndpoint external-dns-system/external-dns"),
    ("external-dns", "ServiceMonitor external-dns-system/external-dns"),
    ("gpu-operator", "ClusterPolicy cluster-policy"),
    ("gpu-operator", "NodeFeatureRule nvidia"),
    ("harbor", "Service harbor-system/harbor-core"),
    ("istio", "PeerAuthentication istio-system/default"),
    ("istio", "ServiceAccount istio-system/istio-reader-service-account"),
    ("kube-prometheus-stack", "Prometheus kube-prometheus-stack-system/kube-prometheus-stack"),
    ("kube-prometheus-stack", "ServiceMonitor kube-prometheus-stack-system/kube-prometheus-stack-grafana"),
    ("metallb", "IPAddressPool metallb-system/first"),
    ("metrics-server", "APIService v1beta1.metrics.k8s.io"),
    ("postgresql", "ConfigMap postgresql-system/postgresql-extra"),
    ("prometheus", "ConfigMap prometheus-system/prometheus-rules"),
    ("prometheus", "Ingress prometheus-system/prometheus"),
    ("redis", "PodDisruptionBudget redis-system/redis"),
    ("traefik", "GatewayClass traefik"),
    ("traefik", "IngressRoute traefik-system/traefik-dashboard"),
];

fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charts")
}

/// The builder's cache, its toolbox, and the Helm that it makes.
fn helm() -> anyhow::Result<(Cache, Toolbox, Made)> {
    foothold_qemu::Tools::locate_or_make()?;
    let cache = Cache::open(&Cache::default_root()?)?;
    let tree = fs_err::canonicalize(cache.path("toolbox/current"))?;
    let toolbox = Toolbox::at(&tree, Path::new(env!("CARGO_BIN_EXE_foothold")));
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages");
    let locked = &HELM.digest(&packages)?;
    let build =
        Build { cache: &cache, toolbox: &toolbox, packages: &packages, locked, offline: false, waiting: &|_| () };
    let (made, _) = HELM.build(&build)?;
    Ok((cache, toolbox, made))
}

fn chart(name: &str) -> Chart {
    Chart {
        name: name.parse().expect("a name"),
        namespace: format!("{name}-system").parse().expect("a name"),
        chart: ChartOrigin::Path(charts().join(name)),
        values: None,
    }
}

#[test]
fn charts_of_the_shapes_of_the_most_used_ones_become_what_helm_installs() {
    let (cache, toolbox, tools) = helm().unwrap_or_else(|error| panic!("{error:#}"));
    let entries = fs_err::read_dir(charts()).expect("charts").map(|entry| entry.expect("a chart"));
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    // A library: others have it by a link.
    names.retain(|name| name != "common");
    names.sort();
    assert_eq!(names.len(), 20);
    let content = Content { charts: names.iter().map(|name| chart(name)).collect(), ..Content::default() };
    let inputs = Inputs { content: &content, directory: &charts(), charts: None, cache: &cache };
    let sources = inputs.sources().unwrap_or_else(|error| panic!("{error:#}"));
    let api = ClusterApi::new(SERVED.map(str::to_owned).to_vec(), false);
    let stage =
        Stage { cache: &cache, toolbox: &toolbox, tools: &tools, version: "v1.36.4", api: &api, waiting: &|_| () };
    let (made, _) = stage.make(&sources).unwrap_or_else(|error| panic!("{error:#}"));
    let titles = |file: &str| -> Vec<String> {
        let found = made.files.iter().find(|(path, _)| path.trim_end_matches(".yaml").ends_with(&format!("-{file}")));
        let Some((path, blob)) = found else { return Vec::new() };
        let text = fs_err::read_to_string(cache.blob_path(&blob.digest)).expect("a file");
        let objects = documents::read(&text, path).unwrap_or_else(|error| panic!("{error}"));
        objects.iter().map(documents::Object::title).collect()
    };
    for name in &names {
        let all = ["-before", "", "-after"].map(|suffix| titles(&format!("{name}{suffix}"))).concat();
        let mut once = all.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), all.len(), "{name}: {all:?}");
        for (_, title) in HELD.iter().filter(|(file, _)| *file == name) {
            assert!(all.iter().any(|found| found == title), "{name} has no `{title}`: {all:?}");
        }
        assert!(!all.iter().any(|title| title.contains("of-a-part-that-is-switched-off")), "{all:?}");
        assert!(!all.iter().any(|title| title.starts_with("PodSecurityPolicy ")), "{all:?}");
    }
    // Hooks run before and after; what both need is there from the first on, and the one that runs, runs twice.
    let has = |file: &str, title: &str| titles(file).iter().any(|found| found == title);
    assert!(has("ingress-nginx-before", "ServiceAccount ingress-nginx-system/ingress-nginx-admission"));
    assert!(has("ingress-nginx-before", "Job ingress-nginx-system/ingress-nginx-admission-create"));
    assert_eq!(titles("ingress-nginx-after"), ["Job ingress-nginx-system/ingress-nginx-admission-patch"]);
    assert!(has("cilium-before", "Job cilium-system/cilium-preflight"));
    assert!(has("cilium-after", "Job cilium-system/cilium-preflight-after"));
    assert!(has("velero-after", "BackupStorageLocation velero-system/site"));
    assert_eq!(titles("longhorn-after"), [""; 0], "nothing that only upgrades and removal run");
}
