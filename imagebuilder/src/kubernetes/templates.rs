//! What kubeadm renders at build time, as a stage.

use std::path::Path;

use agent_api::release::Blob;
use anyhow::Result;

use super::rehearsal::{self, Rehearsal};
use super::render::{self, Parameters};
use super::state;
use crate::config::Appliance;
use crate::host::needs;
use crate::layer::kubernetes::place;
use crate::store::{Cache, Made, StageKey};
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
    let key = StageKey::new("templates", 1).with("kubeadm", &input.kubeadm.digest).with("config", &config);
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
        for (name, bytes) in render::render(&config, &scratch, &mut run)? {
            made.files.insert(name, input.cache.adopt_bytes(&bytes)?);
        }
        Ok(made)
    })
}

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
    let mut key = StageKey::new("cluster-state", 1).with("kubeadm", &input.programs.file("kubeadm")?.digest);
    for (program, _) in rehearsal::PROGRAMS {
        key = key.with(program, &input.programs.file(program)?.digest);
    }
    for (name, blob) in &input.templates.files {
        key = key.with(name, &blob.digest);
    }
    input.cache.stage(&key, &mut || (input.waiting)("another build is making the same"), |work| {
        let root = work.path().join("root");
        let spec = scratch(input, &root, work.path())?;
        (input.waiting)("a control plane of its own to settle");
        let answer = spec.command(input.helper, needs::is_root())?.output()?;
        let ca = fs_err::read_to_string(root.join(rehearsal::CA_FILE.trim_start_matches('/')))?;
        let text = state::canonical(&state::read(&answer)?, &ca)?;
        let mut made = Made::default();
        made.files.insert(state::FILE.to_owned(), input.cache.adopt_bytes(text.as_bytes())?);
        Ok(made)
    })
}

/// Fills the scratch root: programs, and what kubeadm makes for them.
fn scratch(input: &StateInput<'_>, root: &Path, work: &Path) -> Result<Rehearsal> {
    for folder in ["bin", "dev", "etc", "tmp", "var/lib/etcd"] {
        fs_err::create_dir_all(root.join(folder))?;
    }
    fs_err::write(root.join("dev/null"), "")?;
    fs_err::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    for (program, name) in rehearsal::PROGRAMS {
        place(input.cache, input.programs, program, &root.join("bin").join(name))?;
    }
    let template = |name: &str| -> Result<String> {
        Ok(fs_err::read_to_string(input.cache.blob_path(&input.templates.file(name)?.digest))?)
    };
    fs_err::write(root.join("etc/kubeadm.yaml"), template("kubeadm.yaml")?)?;
    let kubeadm = work.join("kubeadm");
    place(input.cache, input.programs, "kubeadm", &kubeadm)?;
    for phase in ["certs", "kubeconfig"] {
        let tool = input.toolbox.tool(&kubeadm.to_string_lossy()).args(["init", "phase", phase, "all"]);
        let tool = tool.args(["--config", "/etc/kubeadm.yaml", "--rootfs"]).arg(root);
        tool.reads(&kubeadm).writes(root).run()?;
    }
    let programs = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let manifest = |name: &str| Ok((name.to_owned(), template(&format!("manifests/{name}.yaml"))?));
    let manifests = programs.into_iter().map(manifest).collect::<Result<_>>()?;
    Ok(Rehearsal { root: root.to_owned(), manifests, objects: template("objects.json")? })
}
