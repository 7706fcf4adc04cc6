//! What kubeadm renders at build time, as a stage.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use agent_api::release::Blob;
use anyhow::Result;

use super::rehearsal::{self, Objects, Rehearsal};
use super::render::{self, Parameters};
use super::state::{self, Entry};
use crate::config::Appliance;
use crate::rootfs::programs::place_all;
use crate::store::{Cache, Made, StageKey, hash};
use crate::toolbox::Toolbox;

/// What the templates are made from.
pub struct Input<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// The program `kubeadm`.
    pub kubeadm: &'a Blob,
    /// The appliance.
    pub appliance: &'a Appliance,
    /// The folder `packages/`.
    pub packages: &'a Path,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// Makes the templates or takes them from the cache.
pub fn make(input: &Input<'_>) -> Result<(Made, bool)> {
    let kubernetes = &input.appliance.kubernetes;
    let parameters = Parameters {
        version: kubernetes.version.to_string(),
        pod_cidr: kubernetes.pod_cidr.to_string(),
        service_cidr: kubernetes.service_cidr.to_string(),
    };
    let template = fs_err::read_to_string(input.packages.join("kubernetes/kubeadm.yaml"))?;
    let config = render::fill(&template, &parameters);
    let patches = render::patches_in(&input.packages.join("kubernetes/patches"))?;
    let mut key = StageKey::new("templates", 2).with("kubeadm", &input.kubeadm.digest).with("config", &config);
    for (name, bytes) in &patches {
        key = key.with(name, hash::bytes(bytes));
    }
    input.cache.stage(&key, &mut || (input.waiting)("another build is rendering the same"), |work| {
        let scratch = work.path().join("root");
        let program = work.path().join("kubeadm");
        fs_err::copy(input.cache.blob_path(&input.kubeadm.digest), &program)?;
        fs_err::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        fs_err::create_dir(&scratch)?;
        let mut run = |argv: &[String], (name, value): (&str, &str)| {
            let tool = input.toolbox.tool(&program.to_string_lossy()).args(argv).env(name, value);
            Ok(tool.reads(&program).writes(&scratch).run()?)
        };
        let mut made = Made::default();
        for (name, bytes) in render::render(&config, &patches, &scratch, &mut run)? {
            made.files.insert(name, input.cache.adopt_bytes(&bytes)?);
        }
        Ok(made)
    })
}

/// Name of the fact with what the API server serves: `group/version`, and `group/version/Kind` for each of its kinds.
pub const API_VERSIONS: &str = "apiVersions";

/// What the state of a new cluster is made from.
pub struct StateInput<'a> {
    /// The builder's cache.
    pub cache: &'a Cache,
    /// The toolbox.
    pub toolbox: &'a Toolbox,
    /// The `foothold` program.
    pub helper: &'a Path,
    /// All programs.
    pub programs: &'a Made,
    /// The templates.
    pub templates: &'a Made,
    /// Told what is waited for.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// Makes the state that a new box begins with, or takes it from the cache.
pub fn state(input: &StateInput<'_>) -> Result<(Made, bool)> {
    let mut key = StageKey::new("cluster-state", 3);
    for (program, _) in rehearsal::PROGRAMS {
        key = key.with(program, &input.programs.file(program)?.digest);
    }
    for (name, blob) in &input.templates.files {
        key = key.with(name, &blob.digest);
    }
    input.cache.stage(&key, &mut || (input.waiting)("another build is making the same"), |work| {
        let root = work.path().join("root");
        let spec = scratch(input, &root)?;
        (input.waiting)("a control plane of its own to settle");
        let answer = spec.command(input.helper)?.output()?;
        let ca = fs_err::read_to_string(root.join(rehearsal::CA_FILE.trim_start_matches('/')))?;
        let text = state::canonical(&state::read(&answer)?, &ca)?;
        let mut made = Made::default();
        made.files.insert(state::FILE.to_owned(), input.cache.adopt_bytes(text.as_bytes())?);
        let versions = fs_err::read_to_string(root.join(rehearsal::API_VERSIONS.trim_start_matches('/')))?;
        made.set_fact(API_VERSIONS, &versions.lines().collect::<Vec<_>>())?;
        Ok(made)
    })
}

/// A cluster that stock `kubeadm init` makes of the same programs, to compare with.
#[derive(Debug)]
pub struct Stock {
    /// Everything in etcd.
    pub entries: Vec<Entry>,
    /// Static pods: program -> manifest.
    pub manifests: Vec<(String, String)>,
}

/// Lets kubeadm itself make a cluster, phase by phase, and returns what it made. Nothing of it is cached.
pub fn stock(input: &StateInput<'_>) -> Result<Stock> {
    let work = input.cache.work_dir()?;
    let root = work.path().join("root");
    let mut spec = scratch(input, &root)?;
    for phase in ["control-plane all", "etcd local"] {
        kubeadm(input, &root, phase)?;
    }
    for (name, text) in &mut spec.manifests {
        *text = fs_err::read_to_string(root.join(format!("etc/kubernetes/manifests/{name}.yaml")))?;
    }
    spec.objects = Objects::Kubeadm;
    let answer = spec.command(input.helper)?.output()?;
    Ok(Stock { entries: state::read_all(&answer)?, manifests: spec.manifests })
}

/// Runs a phase of `kubeadm init` with the scratch root.
fn kubeadm(input: &StateInput<'_>, root: &Path, phase: &str) -> Result<()> {
    let program = root.join("bin/kubeadm");
    let tool = input.toolbox.tool(&program.to_string_lossy()).args(["init", "phase"]).args(phase.split(' '));
    tool.args(["--config", rehearsal::CONFIG, "--rootfs"]).arg(root).writes(root).run()?;
    Ok(())
}

/// Fills the scratch root: programs, and what kubeadm makes for them.
fn scratch(input: &StateInput<'_>, root: &Path) -> Result<Rehearsal> {
    for folder in ["bin", "dev", "etc", "tmp", "var/lib/etcd"] {
        fs_err::create_dir_all(root.join(folder))?;
    }
    // As kubeadm has it.
    fs_err::set_permissions(root.join("var/lib/etcd"), Permissions::from_mode(0o700))?;
    fs_err::write(root.join("dev/null"), "")?;
    fs_err::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    place_all(input.cache, input.programs, &root.join("bin"), rehearsal::PROGRAMS)?;
    let template = |name: &str| -> Result<String> {
        Ok(fs_err::read_to_string(input.cache.blob_path(&input.templates.file(name)?.digest))?)
    };
    fs_err::write(root.join(rehearsal::CONFIG.trim_start_matches('/')), template("kubeadm.yaml")?)?;
    let mut patches = render::Patches::new();
    for (name, blob) in &input.templates.files {
        if let Some(name) = name.strip_prefix(render::PATCHES_FOLDER) {
            patches.insert(name.to_owned(), fs_err::read(input.cache.blob_path(&blob.digest))?);
        }
    }
    render::put_patches(root, &patches)?;
    for phase in ["certs all", "kubeconfig all"] {
        kubeadm(input, root, phase)?;
    }
    let programs = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let manifest = |name: &str| Ok((name.to_owned(), template(&format!("manifests/{name}.yaml"))?));
    let manifests = programs.into_iter().map(manifest).collect::<Result<_>>()?;
    Ok(Rehearsal { root: root.to_owned(), manifests, objects: Objects::Rendered(template("objects.json")?) })
}
