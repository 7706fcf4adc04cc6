//! `kubernetes`: release, source, and networks that must not collide.

use std::net::Ipv4Addr;
use std::str::FromStr;

use super::{Exists, Validate};
use crate::config::appliance::{Kubernetes, KubernetesSource};
use crate::config::input::{self, KubernetesFrom};
use crate::config::path::Path;
use crate::config::types::{Cidr, KubernetesVersion};

/// The release that is built when the definition names none.
const DEFAULT_KUBERNETES: &str = "v1.36.4";
/// Minor releases whose layout this version knows.
const KUBERNETES_MINORS: [u64; 1] = [36];
const DEFAULT_POD_CIDR: &str = "10.244.0.0/16";
const DEFAULT_SERVICE_CIDR: &str = "10.96.0.0/12";
/// The cluster's own address, on every box.
const CLUSTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

impl Validate<'_, '_, '_> {
    pub(super) fn kubernetes(&mut self, input: &input::Kubernetes) -> Option<Kubernetes> {
        let path = Path::of("kubernetes");
        let version = input.version.as_deref().or(Some(DEFAULT_KUBERNETES));
        let version = self.parse(&path.key("version"), version, KubernetesVersion::from_str);
        if let Some(version) = version.as_ref().filter(|version| !KUBERNETES_MINORS.contains(&version.minor())) {
            let found = format!("{version} is not a release that this version of foothold knows");
            self.findings.at(&path.key("version"), &found, "v1.36.x", &format!("write `{DEFAULT_KUBERNETES}`"));
        }
        let source = self.kubernetes_source(input, &path);
        let (pods, services) = (path.key("podCIDR"), path.key("serviceCIDR"));
        let pod_cidr = self.cluster_cidr(&pods, input.pod_cidr.as_deref().unwrap_or(DEFAULT_POD_CIDR), 24);
        let service_cidr =
            self.cluster_cidr(&services, input.service_cidr.as_deref().unwrap_or(DEFAULT_SERVICE_CIDR), 26);
        if let (Some(pod), Some(service)) = (pod_cidr, service_cidr)
            && pod.overlaps(service)
        {
            let (path, other, found) =
                if input.pod_cidr.is_some() { (&pods, "serviceCIDR", pod) } else { (&services, "podCIDR", service) };
            let theirs = if found == pod { service } else { pod };
            let found = format!("{found} overlaps `{other}` {theirs}");
            self.findings.at(
                path,
                &found,
                "networks that share no address",
                "choose another private network, such as `10.200.0.0/16`",
            );
        }
        Some(Kubernetes { version: version?, source: source?, pod_cidr: pod_cidr?, service_cidr: service_cidr? })
    }

    pub(super) fn cluster_cidr(&mut self, path: &Path, text: &str, longest: u8) -> Option<Cidr> {
        let cidr = self.parse(path, Some(text), Cidr::from_str)?;
        if cidr.contains(CLUSTER_ADDRESS) {
            let found = format!("{cidr} contains {CLUSTER_ADDRESS}, the cluster's own address on every box");
            self.findings.at(
                path,
                &found,
                "a network without that address",
                "choose a private network, such as `10.200.0.0/16`",
            );
            return None;
        }
        if cidr.prefix() > longest || cidr.prefix() < 8 {
            let found = format!("{cidr} is too {}", if cidr.prefix() < 8 { "large" } else { "small" });
            self.findings.at(
                path,
                &found,
                format!("a prefix length from 8 to {longest}"),
                "choose another prefix length",
            );
            return None;
        }
        Some(cidr)
    }

    pub(super) fn kubernetes_source(&mut self, input: &input::Kubernetes, path: &Path) -> Option<KubernetesSource> {
        let from = input.from.unwrap_or(KubernetesFrom::Modules);
        let word = match from {
            KubernetesFrom::Modules => "modules",
            KubernetesFrom::Upstream => "upstream",
            KubernetesFrom::Directory => "directory",
        };
        let owners = [("path", input.path.is_some(), "directory"), ("url", input.url.is_some(), "upstream")];
        for (key, _, owner) in owners.into_iter().filter(|(_, given, owner)| *given && *owner != word) {
            let found = format!("`{key}` means nothing with `from: {word}`");
            self.findings.at(
                &path.key(key),
                &found,
                format!("`{key}` with `from: {owner}` only"),
                &format!("write `from: {owner}`, or remove `{key}`"),
            );
        }
        match from {
            KubernetesFrom::Modules => Some(KubernetesSource::Modules),
            KubernetesFrom::Upstream => {
                let url = input.url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
                if let Some(url) = url.as_deref().filter(|url| !is_url(url)) {
                    let found = format!("`{url}` is not a URL");
                    self.findings.at(
                        &path.key("url"),
                        &found,
                        "`https://HOST/...` or `http://HOST/...`",
                        "give scheme and host",
                    );
                    return None;
                }
                Some(KubernetesSource::Upstream { url })
            }
            KubernetesFrom::Directory => {
                let Some(given) = input.path.as_deref() else {
                    let hint =
                        "add `path: DIR`, the directory that holds kubelet, kubeadm, kube-apiserver and the others";
                    self.findings.at(
                        &path.key("from"),
                        "`from: directory` needs a `path`",
                        "a key `path` beside it",
                        hint,
                    );
                    return None;
                };
                let path = self.existing(&path.key("path"), given, Exists::Directory)?;
                Some(KubernetesSource::Directory { path })
            }
        }
    }
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !text.contains(char::is_whitespace))
}
