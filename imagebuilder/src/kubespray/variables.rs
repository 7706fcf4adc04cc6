//! `group_vars/all/offline.yml`: pure text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use agent_api::release::{Blob, Release};

use super::facts::{ABSENT, DOWNLOADS};
use super::{Plan, REGISTRIES};

/// Where the bundle is served at the site. For what is not known yet, Ansible stops and asks for the variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// URL under which the domains of `offline-files` are.
    pub files_repo: Option<String>,
    /// Host, and port, of the registry: no scheme and no path.
    pub registry_host: Option<String>,
}

/// The variables of kubespray that make it use the bundle alone.
pub fn variables(
    release: &Release,
    plan: &Plan,
    checksums: &BTreeMap<&'static str, Blob>,
    addresses: &Addresses,
) -> String {
    let mut text =
        "---\n# Written by `foothold offline-bundle`. Programs are compiled: the checksums are theirs.\n".to_owned();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name}: {value}");
    };
    let asked = |given: Option<&String>, hint: &str| {
        given.map_or_else(|| format!("\"{{{{ undef(hint='{hint}') }}}}\""), |given| format!("\"{given}\""))
    };
    line("files_repo", &asked(addresses.files_repo.as_ref(), "the URL that serves offline-files"));
    line("registry_host", &asked(addresses.registry_host.as_ref(), "host and port of the registry"));
    for registry in ["kube", "gcr", "github", "docker", "quay"] {
        line(&format!("{registry}_image_repo"), "\"{{ registry_host }}\"");
    }
    for (variable, domain) in [
        ("dl_k8s_io_url", "dl.k8s.io"),
        ("get_helm_url", "get.helm.sh"),
        ("github_url", "github.com"),
        ("storage_googleapis_url", "storage.googleapis.com"),
    ] {
        line(variable, &format!("\"{{{{ files_repo }}}}/{domain}\""));
    }
    for (variable, version) in &plan.versions {
        line(variable, &format!("\"{version}\""));
    }
    for download in DOWNLOADS {
        let carried = plan.files.iter().find(|file| file.download == download.name);
        if let (Some(file), Some(blob)) = (carried, checksums.get(download.name)) {
            line(&format!("{}_download_url", download.name), &format!("\"{{{{ files_repo }}}}/{}\"", file.address));
            line(download.checksum, &format!("\"{}\"", blob.digest));
        }
    }
    line("kube_pods_subnet", &format!("\"{}\"", release.kubernetes.pod_cidr));
    line("kube_service_addresses", &format!("\"{}\"", release.kubernetes.service_cidr));
    let mut switches: BTreeMap<&str, &str> = ABSENT.iter().flat_map(|absent| absent.switch.iter().copied()).collect();
    let helm = plan.files.iter().any(|file| file.download == "helm");
    switches.insert("helm_enabled", if helm { "true" } else { "false" });
    // Commands of containerd's own that need no nerdctl.
    switches.insert("image_command_tool", "crictl");
    for (variable, value) in switches {
        line(variable, value);
    }
    text + &mirrors(plan)
}

/// The settings by which containerd asks the registry of the site for images of all other registries.
fn mirrors(plan: &Plan) -> String {
    let of = |reference: &str| reference.split_once('/').map(|(registry, _)| registry.to_owned());
    let named: BTreeSet<String> = plan.images.iter().filter_map(|image| of(&image.reference)).collect();
    let mut text = "containerd_registries_mirrors:\n".to_owned();
    for registry in named.iter().filter(|registry| REGISTRIES.contains(&registry.as_str())) {
        let _ = writeln!(
            text,
            "- prefix: {registry}\n  mirrors:\n  - host: \"http://{{{{ registry_host }}}}\"\n    capabilities: [pull, \
             resolve]\n    skip_verify: false"
        );
    }
    let own = "- prefix: \"{{ registry_host }}\"\n  mirrors:\n  - host: \"http://{{ registry_host }}\"\n    capabilities: \
               [pull, resolve]\n    skip_verify: false\n";
    text + own
}
