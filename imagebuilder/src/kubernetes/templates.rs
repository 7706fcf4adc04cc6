//! What kubeadm renders at build time, as a stage.

use std::path::Path;

use agent_api::release::Blob;
use anyhow::Result;

use super::render::{self, Parameters};
use crate::config::Appliance;
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
