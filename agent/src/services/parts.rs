//! What the box's pods are made of: volumes, resources, and as few rights as possible.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, EmptyDirVolumeSource, HostPathVolumeSource, ResourceRequirements, SeccompProfile, SecretVolumeSource,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What a pod sees at a path.
#[derive(Debug)]
pub struct Mount {
    /// Name of the volume.
    pub name: &'static str,
    /// Path in the pod.
    pub path: String,
    /// What is there.
    pub source: MountSource,
    /// It is only read.
    pub read_only: bool,
}

/// Where a volume comes from. A path of the box must be there, but for one.
#[derive(Debug)]
pub enum MountSource {
    /// A folder of the box.
    Folder(String),
    /// A folder of the box, made when it is not there.
    FolderOrNew(String),
    /// A file of the box. If the file is replaced, the pod still sees the old one.
    File(String),
    /// What a Secret holds, for the pod's group.
    Secret(&'static str),
    /// An empty folder for the pod, with its largest size.
    Empty(&'static str),
}

impl Mount {
    /// A folder of the box, at the same path.
    pub fn folder(name: &'static str, path: impl Into<String>) -> Self {
        let path = path.into();
        Self { name, path: path.clone(), source: MountSource::Folder(path), read_only: false }
    }

    /// A file of the box, at another path, only to be read.
    pub fn file(name: &'static str, path: impl Into<String>, of: impl Into<String>) -> Self {
        Self { name, path: path.into(), source: MountSource::File(of.into()), read_only: true }
    }

    /// A folder of the box that may not be there yet, at another path, only to be read.
    pub fn folder_or_new(name: &'static str, path: &str, of: &str) -> Self {
        Self { name, path: path.to_owned(), source: MountSource::FolderOrNew(of.to_owned()), read_only: true }
    }

    /// What a Secret holds.
    pub fn secret(name: &'static str, path: &str, secret: &'static str) -> Self {
        Self { name, path: path.to_owned(), source: MountSource::Secret(secret), read_only: true }
    }

    /// An empty folder.
    pub fn empty(name: &'static str, path: &str, most: &'static str) -> Self {
        Self { name, path: path.to_owned(), source: MountSource::Empty(most), read_only: false }
    }

    /// The same, at another path of the pod.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The same, only to be read.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.read_only_if(true)
    }

    /// The same, only to be read if `read_only`.
    #[must_use]
    pub fn read_only_if(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// The volume.
    pub fn volume(&self) -> Volume {
        let mut volume = Volume { name: self.name.to_owned(), ..Volume::default() };
        let on_host = |path: &String, type_: &str| {
            Some(HostPathVolumeSource { path: path.clone(), type_: Some(type_.to_owned()) })
        };
        match &self.source {
            MountSource::Folder(path) => volume.host_path = on_host(path, "Directory"),
            MountSource::FolderOrNew(path) => volume.host_path = on_host(path, "DirectoryOrCreate"),
            MountSource::File(path) => volume.host_path = on_host(path, "File"),
            MountSource::Secret(name) => {
                volume.secret = Some(SecretVolumeSource {
                    secret_name: Some((*name).to_owned()),
                    default_mode: Some(0o440),
                    ..SecretVolumeSource::default()
                });
            }
            MountSource::Empty(most) => {
                let size_limit = Some(quantity(most));
                volume.empty_dir = Some(EmptyDirVolumeSource { size_limit, ..EmptyDirVolumeSource::default() });
            }
        }
        volume
    }

    /// Where the container sees it.
    pub fn mount(&self) -> VolumeMount {
        VolumeMount {
            name: self.name.to_owned(),
            mount_path: self.path.clone(),
            read_only: self.read_only.then_some(true),
            ..VolumeMount::default()
        }
    }
}

/// Processor and memory that are reserved, and the memory that it is killed above.
pub(crate) fn resources((cpu, memory): (&str, &str), memory_limit: Option<&str>) -> ResourceRequirements {
    let amounts = |amounts: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        amounts.iter().map(|(name, amount)| ((*name).to_owned(), quantity(amount))).collect()
    };
    ResourceRequirements {
        requests: Some(amounts(&[("cpu", cpu), ("memory", memory)])),
        limits: memory_limit.map(|most| amounts(&[("memory", most)])),
        ..ResourceRequirements::default()
    }
}

/// A container that writes to its volumes alone and keeps no capability but these.
pub(crate) fn restricted(capabilities: &[&str]) -> SecurityContext {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(names(&["ALL"])),
            add: (!capabilities.is_empty()).then(|| names(capabilities)),
        }),
        ..SecurityContext::default()
    }
}

/// The runtime's own filter of system calls.
pub(crate) fn default_seccomp() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}

fn quantity(amount: &str) -> Quantity {
    Quantity(amount.to_owned())
}
