//! Static pods of the box: what each of them says for itself, and what they have in common.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSecurityContext, PodSpec, Probe};
use kube::api::ObjectMeta;

use super::parts::{Mount, default_seccomp, resources, restricted};
use crate::cluster::manifests;
use crate::host::files;
use crate::machine::Machine;

/// What the files of these pods begin with, among the kubelet's static pods.
const PREFIX: &str = "foothold-";
/// Annotation of a pod: the digest of what it reads when it starts.
const GENERATION: &str = "foothold.dev/generation";
/// Annotation with the digest of the image's manifest, where the pod names it by tag.
const IMAGE: &str = "foothold.dev/image";

/// A pod of the kubelet's own, on the box's network: with no right and no file that is not named here.
#[derive(Debug, Default)]
pub struct StaticPod {
    /// Name of the pod and of its container.
    pub name: &'static str,
    /// Image, which the release has.
    pub image: String,
    /// Arguments of the image's program.
    pub args: Vec<String>,
    /// Further variables of its environment.
    pub env: Vec<(&'static str, String)>,
    /// Its user and group; none is root.
    pub user: Option<u32>,
    /// Capabilities that it keeps.
    pub capabilities: &'static [&'static str],
    /// Processor and memory that are reserved, such as `10m` and `32Mi`.
    pub requests: (&'static str, &'static str),
    /// Memory that it is killed above.
    pub memory_limit: Option<&'static str>,
    /// Seconds that it may take to end.
    pub grace_secs: Option<i64>,
    /// The startup probe: other probes begin after it.
    pub startup: Option<Probe>,
    /// Whether it is restarted.
    pub liveness: Option<Probe>,
    /// Folders and files of the box that it sees.
    pub mounts: Vec<Mount>,
    /// Digest of what it only reads when it starts. When it changes, the pod is replaced.
    pub generation: Option<String>,
}

impl StaticPod {
    /// The pod.
    pub fn object(&self) -> Pod {
        let text = |one: &str| one.to_owned();
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| (text(key), text(value))).collect()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some(text(self.name)),
                namespace: Some(text("kube-system")),
                labels: Some(pairs(&[("component", self.name), ("tier", "foothold")])),
                annotations: self.generation.as_deref().map(|generation| pairs(&[(GENERATION, generation)])),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                host_network: Some(true),
                priority_class_name: Some(text("system-node-critical")),
                termination_grace_period_seconds: self.grace_secs,
                security_context: Some(PodSecurityContext {
                    run_as_user: self.user.map(i64::from),
                    run_as_group: self.user.map(i64::from),
                    run_as_non_root: self.user.map(|_| true),
                    seccomp_profile: Some(default_seccomp()),
                    ..PodSecurityContext::default()
                }),
                containers: vec![self.container()],
                volumes: Some(self.mounts.iter().map(Mount::volume).collect()),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    fn container(&self) -> Container {
        let env = |(name, value): &(&str, String)| EnvVar {
            name: (*name).to_owned(),
            value: Some(value.clone()),
            value_from: None,
        };
        Container {
            name: self.name.to_owned(),
            image: Some(self.image.clone()),
            image_pull_policy: Some("Never".to_owned()),
            args: Some(self.args.clone()),
            env: (!self.env.is_empty()).then(|| self.env.iter().map(env).collect()),
            resources: Some(resources(self.requests, self.memory_limit)),
            startup_probe: self.startup.clone(),
            liveness_probe: self.liveness.clone(),
            security_context: Some(restricted(self.capabilities)),
            volume_mounts: Some(self.mounts.iter().map(Mount::mount).collect()),
            ..Container::default()
        }
    }

    /// The manifest: JSON, which is YAML.
    pub fn manifest(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(&self.object())? + "\n")
    }

    /// Lets the kubelet run it. Returns whether the pod has changed.
    pub fn place(&self, machine: &Machine) -> anyhow::Result<bool> {
        let path = machine.at(manifests::DIR).join(format!("{PREFIX}{}.yaml", self.name));
        let text = match machine.pulled(&self.image) {
            None => self.manifest()?,
            Some((image, digest)) => {
                let mut pod = self.object();
                // What was imported under the same tag is another image.
                pod.metadata.annotations.get_or_insert_default().insert(IMAGE.to_owned(), digest.to_string());
                for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
                    container.image = Some(image.clone());
                    container.image_pull_policy = Some("IfNotPresent".to_owned());
                }
                serde_json::to_string_pretty(&pod)? + "\n"
            }
        };
        Ok(files::write(&path, text.as_bytes(), files::SECRET)?)
    }
}

/// Removes the manifests of all these pods from the kubelet's folder, also those of services that the release does not have
/// any more.
pub fn hold_back(dir: &Path) -> io::Result<()> {
    let entries = match fs_err::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            files::remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::hold_back;

    #[test]
    fn the_boxs_own_pods_are_held_back_and_no_others() {
        let dir = tempfile::tempdir().expect("a folder");
        hold_back(&dir.path().join("none")).expect("nothing to do");
        for file in ["etcd.yaml", "foothold-ironic.yaml", "foothold-of-an-older-release.yaml"] {
            fs_err::write(dir.path().join(file), "").expect("written");
        }
        hold_back(dir.path()).expect("held back");
        let left: Vec<_> =
            fs_err::read_dir(dir.path()).expect("read").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(left, ["etcd.yaml"]);
    }
}
