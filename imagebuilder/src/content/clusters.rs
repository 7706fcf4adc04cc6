//! What servers become nodes of a cluster with, whatever their OS has of it: served below `kubernetes/VERSION/`.
//!
//! ```text
//! kubelet, kubeadm, containerd, ...  in the box's own layers    ─┐
//! foothold-agent                     in the layer `appliance`  ─┼─► ContentFile, by digest
//! crictl, runc, flannel; manifest    in the store              ─┘
//! ```
//! What the box's own layers hold is read out of them: the medium has no second copy. Another release of Kubernetes
//! ([`super::versions`]) has its own kubelet, kubeadm and kubectl in the store, and all else of the box.

use std::path::Path;

use agent_api::release::{ContentFile, ContentKind, InLayer};
use anyhow::{Context, Result, ensure};

use crate::kubernetes::modules::FLANNEL;
use crate::layer::{appliance, kubernetes};
use crate::oci::recipe::Recipe;
use crate::store::{Cache, Made, StageKey, hash};

/// What the stage is about.
pub const NOTE: &str = "what servers become nodes of a cluster with";

/// The programs, by the names under which they are served. All of them run on any Linux: none needs a library.
pub const PROGRAMS: [&str; 14] = [
    "bridge",
    "containerd",
    "containerd-shim-runc-v2",
    "crictl",
    "ctr",
    "flannel",
    "foothold-agent",
    "host-local",
    "kubeadm",
    "kubectl",
    "kubelet",
    "loopback",
    "portmap",
    "runc",
];

/// The manifest of the network between nodes, as it is served.
const MANIFEST: &str = "kube-flannel.yaml";
/// What stands in it for the addresses of a cluster's pods.
pub const POD_CIDR: &str = "{podCIDR}";
/// Recipe of the image that it runs.
const IMAGE: &str = "flannel/image.yaml";
/// Name of the fact of the stage.
const FILES: &str = "files";

/// The manifest of flannel, in `packages`, which runs the image of the recipe in `images`.
pub fn flannel(images: &Path, packages: &Path) -> Result<String> {
    let (path, recipe) = (packages.join(FLANNEL.name).join(MANIFEST), images.join(IMAGE));
    let text = fs_err::read_to_string(&path)?;
    let reference = Recipe::read(&recipe)?.reference;
    let named: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    let (manifest, recipe) = (path.display(), recipe.display());
    ensure!(
        !named.is_empty() && named.iter().all(|name| *name == reference),
        "`{manifest}` runs {named:?}, `{recipe}` makes `{reference}`\nhint: write the same in both"
    );
    let version = FLANNEL.version(packages)?;
    ensure!(
        reference.ends_with(&format!(":{version}")),
        "`{recipe}` makes `{reference}` of flannel {version}\nhint: let its tag be the version"
    );
    ensure!(text.matches(POD_CIDR).count() == 1, "`{manifest}` must have `{POD_CIDR}` once");
    Ok(text)
}

/// Looks up where each program of a release of Kubernetes lies, and puts into the store what no layer has. `own`: what the box
/// itself runs. Fact `files`: what is served.
pub fn make(
    cache: &Cache,
    (programs, own): (&Made, &Made),
    version: &str,
    flannel: &str,
    waiting: &(dyn Fn(&str) + Sync),
) -> Result<(Made, bool)> {
    let mut key = StageKey::new("clusters", 3).with("version", version).with(MANIFEST, hash::bytes(flannel.as_bytes()));
    for name in PROGRAMS {
        key = key.with(name, &programs.file(name)?.digest).with("own", &own.file(name)?.digest);
    }
    cache.stage(&key, &mut || waiting("another build is making the same"), |_| {
        let (mut made, mut files) = (Made::default(), Vec::new());
        let mut all = Vec::new();
        for name in PROGRAMS {
            all.push((name, programs.file(name)?.clone()));
        }
        all.push((MANIFEST, cache.adopt_bytes(flannel.as_bytes())?));
        for (name, blob) in all {
            let is_own = own.files.get(name).is_some_and(|other| *other == blob);
            let within = if is_own { in_layer(own, name)? } else { None };
            let file = ContentFile::stored(format!("kubernetes/{version}/{name}"), ContentKind::Kubernetes, &blob);
            if within.is_none() {
                made.files.insert(name.to_owned(), blob);
            }
            files.push(ContentFile { within, ..file });
        }
        made.set_fact(FILES, &files)?;
        Ok(made)
    })
}

/// Where the box itself has a program.
fn in_layer(programs: &Made, name: &str) -> Result<Option<InLayer>> {
    let of = |layer: &str, path: String| InLayer { layer: layer.to_owned(), path };
    if name == "foothold-agent" {
        return Ok(Some(of("appliance", appliance::AGENT.to_owned())));
    }
    Ok(kubernetes::place_of(programs, name)?.map(|(layer, path)| of(layer, path)))
}

/// What the stage made, as it is served.
pub fn files(made: &Made) -> Result<Vec<ContentFile>> {
    made.fact(FILES).context("the files of clusters")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{PROGRAMS, files, flannel, make};
    use crate::store::{Cache, Made, hash};

    #[test]
    fn what_a_layer_has_is_served_out_of_it_and_only_the_rest_is_stored() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let mut programs = Made::default();
        for name in PROGRAMS {
            let blob = cache.adopt_bytes(name.as_bytes()).expect("a blob");
            programs.files.insert(name.to_owned(), blob);
        }
        let (made, _) = make(&cache, (&programs, &programs), "v1.36.4", "kind: Namespace\n", &|_| ()).expect("made");
        assert_eq!(made.files.keys().collect::<Vec<_>>(), ["crictl", "flannel", "kube-flannel.yaml", "runc"]);
        let served = files(&made).expect("files");
        let lines: Vec<String> = served
            .iter()
            .map(|file| {
                let place = file.within.as_ref().map_or("store".into(), |at| format!("{}:{}", at.layer, at.path));
                format!("{} {place}", file.path)
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
        for file in &served {
            let name = file.path.rsplit('/').next().expect("a name");
            let bytes = if name == "kube-flannel.yaml" { "kind: Namespace\n" } else { name };
            assert_eq!((&file.digest, file.size), (&hash::bytes(bytes.as_bytes()), bytes.len() as u64), "{name}");
            assert_eq!(file.blob(), made.files.get(name).cloned(), "{name}");
        }
    }

    #[test]
    fn programs_that_are_one_are_served_out_of_the_images_layer() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let mut programs = Made::default();
        for name in PROGRAMS {
            let bytes = if name.starts_with("kube") { "kubernetes" } else { name };
            programs.files.insert(name.to_owned(), cache.adopt_bytes(bytes.as_bytes()).expect("a blob"));
        }
        let (made, _) = make(&cache, (&programs, &programs), "v1.36.4", "kind: Namespace\n", &|_| ()).expect("made");
        let served = files(&made).expect("files");
        let mut of_kubernetes = served.iter().filter(|file| file.path.contains("/kube") && file.within.is_some());
        let places: Vec<String> = of_kubernetes
            .by_ref()
            .map(|file| file.within.as_ref().map(|at| format!("{}:{}", at.layer, at.path)).unwrap_or_default())
            .collect();
        let expected = ["kubeadm", "kubectl", "kubelet"].map(|name| format!("containers:host/usr/bin/{name}"));
        assert_eq!(places, expected);
    }

    #[test]
    fn another_release_has_its_own_programs_in_the_store_and_all_else_of_the_box() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let of = |version: &str| {
            let mut programs = Made::default();
            for name in PROGRAMS {
                let bytes = if name.starts_with("kube") { version } else { name };
                programs.files.insert(name.to_owned(), cache.adopt_bytes(bytes.as_bytes()).expect("a blob"));
            }
            programs
        };
        let (own, other) = (of("v1.36.4"), of("v1.35.8"));
        let (made, _) = make(&cache, (&other, &own), "v1.35.8", "kind: Namespace\n", &|_| ()).expect("made");
        let of_kubernetes = ["kubeadm", "kubectl", "kubelet"];
        let stored = ["crictl", "flannel", "kube-flannel.yaml"].into_iter().chain(of_kubernetes).chain(["runc"]);
        assert!(made.files.keys().map(String::as_str).eq(stored), "{:?}", made.files.keys());
        for file in files(&made).expect("files") {
            let (folder, name) = file.path.rsplit_once('/').expect("a folder");
            assert_eq!(folder, "kubernetes/v1.35.8");
            let is_of_box = !of_kubernetes.contains(&name);
            assert_eq!(file.digest == hash::bytes(b"v1.35.8"), !is_of_box, "{name}");
            let expected = own.files.get(name).filter(|_| is_of_box).map(|blob| blob.digest.clone());
            assert!(name == "kube-flannel.yaml" || expected.is_none_or(|digest| digest == file.digest), "{name}");
        }
        // The box's own programs lie where they lay.
        let (made, _) = make(&cache, (&own, &own), "v1.36.4", "kind: Namespace\n", &|_| ()).expect("made");
        let kubelet =
            files(&made).expect("files").into_iter().find(|file| file.path.ends_with("/kubelet")).expect("it");
        assert!(kubelet.within.is_some(), "{kubelet:?}");
    }

    #[test]
    fn flannels_manifest_runs_the_image_that_is_made_with_settings_that_are_json() {
        let text = flannel(Path::new("../images"), Path::new("../packages")).expect("right");
        let text = text.replace("{podCIDR}", "10.245.0.0/16");
        let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).expect("objects");
        let kinds: Vec<&str> = objects.iter().map(|object| object["kind"].as_str().expect("a kind")).collect();
        let expected = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet"];
        assert_eq!(kinds, expected);
        for object in &objects[1..] {
            let of_cluster = object["kind"].as_str().is_some_and(|kind| kind.starts_with("Cluster"));
            assert!(of_cluster || object["metadata"]["namespace"] == "kube-flannel", "{object}");
        }
        let json = |key: &str| -> serde_json::Value {
            serde_json::from_str(objects[4]["data"][key].as_str().expect("a text")).expect("JSON")
        };
        let (net, cni) = (json("net-conf.json"), json("cni-conf.json"));
        assert_eq!((&net["Network"], &net["Backend"]["Type"]), (&"10.245.0.0/16".into(), &"vxlan".into()));
        // What the plugin of v0.9.1 speaks at most.
        assert_eq!(cni["cniVersion"], "0.3.1");
        let plugins: Vec<&str> =
            cni["plugins"].as_array().into_iter().flatten().filter_map(|one| one["type"].as_str()).collect();
        assert!(plugins.iter().all(|plugin| PROGRAMS.contains(plugin)), "{plugins:?}");
    }

    #[test]
    fn a_manifest_that_runs_another_image_than_is_made_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs_err::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs_err::write(path, text).expect("written");
        };
        write("packages/flannel/go.mod", "require github.com/flannel-io/flannel v0.28.10\n");
        let right = ("a.example/flannel:v0.28.10", "image: a.example/flannel:v0.28.10\n{podCIDR}\n");
        for ((reference, manifest), said) in [
            (right, ""),
            ((right.0, "image: a.example/flannel:v0.28.9\n{podCIDR}\n"), "write the same in both"),
            ((right.0, "{podCIDR}\n"), "write the same in both"),
            (("a.example/flannel:v1", "image: a.example/flannel:v1\n{podCIDR}\n"), "let its tag be the version"),
            ((right.0, "image: a.example/flannel:v0.28.10\n"), "once"),
        ] {
            write("images/flannel/image.yaml", &format!("reference: {reference}\n"));
            write("packages/flannel/kube-flannel.yaml", manifest);
            let found = flannel(&dir.path().join("images"), &dir.path().join("packages"));
            let error = found.err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(said) && error.is_empty() == said.is_empty(), "{error}");
        }
    }
}
