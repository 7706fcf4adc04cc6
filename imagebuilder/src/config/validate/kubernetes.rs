//! `kubernetes`: release, source, and networks that must not collide.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{Exists, Validate};
use crate::config::appliance::{Kubernetes, KubernetesSource};
use crate::config::input::{self, KubernetesFrom};
use crate::config::path::KeyPath;
use crate::config::services::{self, ClusterVersion};
use crate::config::types::{Ipv4Network, KubernetesVersion};

/// The release that `packages/kubernetes` pins, and that is built when the definition names none.
const DEFAULT_KUBERNETES: &str = "v1.36.4";
/// The releases that `packages/kubernetes-*` pin: clusters may have them beside the box's own.
const OTHER_KUBERNETES: [&str; 1] = ["v1.35.8"];
/// Minor releases that clusters may have: kubeadm of each takes the configuration that the box writes.
const CLUSTER_MINORS: [u64; 2] = [35, 36];
/// Minor releases whose layout this version knows.
const KUBERNETES_MINORS: [u64; 1] = [36];
const DEFAULT_POD_CIDR: &str = "10.244.0.0/16";
const DEFAULT_SERVICE_CIDR: &str = "10.96.0.0/12";
/// kube-controller-manager cuts a /24 for the node out of the pods' network, and counts at most 65536 of them.
const POD_PREFIXES: RangeInclusive<u8> = 8..=24;
/// kube-apiserver refuses networks for Services of more than 20 bits.
const SERVICE_PREFIXES: RangeInclusive<u8> = 12..=26;
/// The cluster's own address, on every box.
const CLUSTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

impl Validate<'_, '_, '_> {
    pub(super) fn kubernetes(&mut self, input: &input::Kubernetes) -> Option<Kubernetes> {
        let path = KeyPath::of("kubernetes");
        let version = self.kubernetes_version(input, &path.key("version"));
        let source = self.kubernetes_source(input, &path);
        let (pods, services) = (path.key("podCIDR"), path.key("serviceCIDR"));
        let pod_cidr = self.cluster_cidr(&pods, input.pod_cidr.as_deref().unwrap_or(DEFAULT_POD_CIDR), POD_PREFIXES);
        let service_cidr = self.cluster_cidr(
            &services,
            input.service_cidr.as_deref().unwrap_or(DEFAULT_SERVICE_CIDR),
            SERVICE_PREFIXES,
        );
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

    fn kubernetes_version(&mut self, input: &input::Kubernetes, path: &KeyPath) -> Option<KubernetesVersion> {
        let text = input.version.as_deref().unwrap_or(DEFAULT_KUBERNETES);
        let version = self.parse(path, Some(text), KubernetesVersion::from_str)?;
        let modules = matches!(input.from, None | Some(KubernetesFrom::Modules));
        if !KUBERNETES_MINORS.contains(&version.minor()) {
            let found = format!("{version} is not a release that this version of foothold knows");
            self.findings.at(path, &found, "v1.36.x", &format!("write `{DEFAULT_KUBERNETES}`"));
        } else if modules && text != DEFAULT_KUBERNETES {
            let found = format!("{version} is not the release whose modules are pinned");
            let hint = format!("write `{DEFAULT_KUBERNETES}`, or take {version} `from: upstream`");
            self.findings.at(path, &found, format!("`{DEFAULT_KUBERNETES}` with `from: modules`"), &hint);
        }
        Some(version)
    }

    /// The releases for clusters. `own`: that of the box.
    pub(super) fn cluster_versions(
        &mut self,
        input: &services::ClustersInput,
        own: &Kubernetes,
    ) -> Vec<ClusterVersion> {
        let list = KeyPath::of("services").key("clusters").key("versions");
        let mut found: Vec<ClusterVersion> = Vec::new();
        for (index, entry) in input.versions.iter().flatten().enumerate() {
            let path = list.index(index);
            let source = input::Kubernetes {
                from: entry.from,
                path: entry.path.clone(),
                url: entry.url.clone(),
                ..input::Kubernetes::default()
            };
            let source = self.kubernetes_source(&source, &path);
            let version = self.cluster_version(entry, &path.key("version"));
            let (Some(version), Some(source)) = (version, source) else { continue };
            let twice = |other: &str| format!("{version} is {other}");
            let found_twice = if version == own.version {
                Some(twice("the box's own release, which clusters have anyway"))
            } else {
                found.iter().any(|other| other.version == version).then(|| twice("there twice"))
            };
            if let Some(said) = found_twice {
                self.findings.at(&path.key("version"), &said, "each release once", "remove this entry");
                continue;
            }
            found.push(ClusterVersion { version, source });
        }
        found
    }

    fn cluster_version(&mut self, input: &services::OtherKubernetes, path: &KeyPath) -> Option<KubernetesVersion> {
        let version = self.parse(path, input.version.as_deref(), KubernetesVersion::from_str)?;
        let modules = matches!(input.from, None | Some(KubernetesFrom::Modules));
        let pinned = OTHER_KUBERNETES.map(|pinned| format!("`{pinned}`")).join(", ");
        if !CLUSTER_MINORS.contains(&version.minor()) {
            let found = format!("{version} is not a release that this version of foothold makes clusters of");
            let minors = CLUSTER_MINORS.map(|minor| format!("v1.{minor}.x")).join(" or ");
            self.findings.at(path, &found, minors, &format!("write {pinned}"));
            return None;
        }
        if modules && !OTHER_KUBERNETES.contains(&&*version.to_string()) {
            let found = format!("{version} is not a release whose modules are pinned");
            let hint = format!("write {pinned}, or take {version} `from: upstream` or `from: directory`");
            self.findings.at(path, &found, format!("{pinned} with `from: modules`"), &hint);
            return None;
        }
        Some(version)
    }

    pub(super) fn cluster_cidr(
        &mut self,
        path: &KeyPath,
        text: &str,
        prefixes: RangeInclusive<u8>,
    ) -> Option<Ipv4Network> {
        let cidr = self.parse(path, Some(text), Ipv4Network::from_str)?;
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
        if let Some(use_of) = cidr.reserved() {
            let found = format!("{cidr} is for {use_of}");
            self.findings.at(path, &found, "a private network", "choose another one, such as `10.200.0.0/16`");
            return None;
        }
        if !prefixes.contains(&cidr.prefix()) {
            let found = format!("{cidr} is too {}", if cidr.prefix() < *prefixes.start() { "large" } else { "small" });
            let expected = format!("a prefix length from {} to {}", prefixes.start(), prefixes.end());
            self.findings.at(path, &found, expected, "choose another prefix length");
            return None;
        }
        Some(cidr)
    }

    pub(super) fn kubernetes_source(&mut self, input: &input::Kubernetes, path: &KeyPath) -> Option<KubernetesSource> {
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
                let Some(url) = input.url.as_deref().map(|url| url.trim_end_matches('/')) else {
                    let hint = "add `url: URL`, a server that has `URL/release/v1.36.4/bin/linux/amd64/kubelet` and the others";
                    self.findings.at(
                        &path.key("from"),
                        "`from: upstream` needs a `url`",
                        "a key `url` beside it",
                        hint,
                    );
                    return None;
                };
                if !is_url(url) {
                    let found = format!("`{url}` is not a URL");
                    self.findings.at(
                        &path.key("url"),
                        &found,
                        "`https://HOST/...` or `http://HOST/...`",
                        "give scheme and host",
                    );
                    return None;
                }
                Some(KubernetesSource::Upstream { url: url.to_owned() })
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

pub(super) fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !text.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_KUBERNETES, OTHER_KUBERNETES};

    fn pinned(go_mod: &str) -> &str {
        let required = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes ")).expect("it");
        required.trim_end_matches(" // indirect")
    }

    #[test]
    fn the_default_release_is_the_pinned_one() {
        assert_eq!(pinned(include_str!("../../../../packages/kubernetes/go.mod")), DEFAULT_KUBERNETES);
    }

    #[test]
    fn the_other_releases_are_the_pinned_ones() {
        let others = [include_str!("../../../../packages/kubernetes-1.35/go.mod")];
        assert_eq!(others.map(pinned), OTHER_KUBERNETES);
    }
}
