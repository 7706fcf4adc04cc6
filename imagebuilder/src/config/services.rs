//! `services`: what the box offers to its site. This file is the list of its keys.
//!
//! ```text
//! ServicesInput ─check─> Services ─manifest─> `agent_api::release::Release` ─> the box
//!                           └─ has(ServiceName) ─> images, files and stages that only such a box needs
//! ```
//! A new key is written in two places of the builder: here (what may be said, what comes of it, its name, what it needs),
//! and in `pipeline.rs`, where the compiler asks for the release's new field. Its type is `agent_api::release`'s, for the
//! definition too, where it holds nothing that has to be read out of a text. `images/NAME/image.yaml` with
//! `service: { of: KEY }` brings its image.

use std::str::FromStr;

use agent_api::net::is_interface_name;
use agent_api::release::{Sip, Storage, Vino};
use agent_api::servers::{Provisioning, ServersNetwork};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::appliance::KubernetesSource;
use super::findings::Findings;
use super::input::KubernetesFrom;
use super::path::KeyPath;
use super::site::servers_network;
use super::types::{ByteSize, Invalid, KubernetesVersion};

/// What the box offers to its site.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Services")]
pub struct ServicesInput {
    /// Network boot and provisioning of servers.
    pub provisioning: Option<ServersNetwork>,
    /// Clusters of Kubernetes that the box forms of the servers it provisions: `{}`. Needs `services.provisioning`.
    pub clusters: Option<ClustersInput>,
    /// The metrics API, which `kubectl top` and autoscalers ask: `{}`. On the box, and on the clusters that it forms.
    pub metrics: Option<Metrics>,
    /// A default `StorageClass`, whose volumes lie on DATA: `{}`. On the box; on the clusters that it forms volumes lie on their
    /// nodes.
    pub storage: Option<StorageInput>,
    /// Tenant clusters, by Airship's `SIPCluster`: hosts, load balancers and a jump host for each: `{}`. Needs
    /// `services.provisioning`.
    pub sip: Option<Sip>,
    /// Virtual machines as hosts, by Airship's `Vino`: `{}`, or the interface that their networks are plugged into. Needs
    /// `services.provisioning`.
    pub vino: Option<Vino>,
    /// The container registry.
    pub registry: Option<Registry>,
    /// Time.
    pub ntp: Option<Ntp>,
}

/// Clusters of servers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Clusters")]
pub struct ClustersInput {
    /// Releases of Kubernetes that clusters may have beside the box's own: those that run there already get new nodes of
    /// their own release until they are upgraded. Default: none.
    pub versions: Option<Vec<OtherKubernetes>>,
}

/// A release of Kubernetes for clusters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OtherKubernetes {
    /// Release such as `v1.35.8`.
    #[schemars(required, title = "a Kubernetes release such as `v1.35.8`", extend("x-form" = "version"))]
    pub version: Option<String>,
    /// Where its programs come from. Default: `modules`.
    pub from: Option<KubernetesFrom>,
    /// Directory with the programs, for `from: directory`; relative to this file.
    #[schemars(title = "a directory")]
    pub path: Option<String>,
    /// Release server, for `from: upstream`: `URL/release/v1.35.8/bin/linux/amd64/kubelet`, with `kubelet.sha256` beside it.
    #[schemars(title = "a URL", extend("x-form" = "uri"))]
    pub url: Option<String>,
}

/// The metrics API.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metrics {}

/// Volumes of the cluster.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Storage")]
pub struct StorageInput {
    /// Share of DATA that is set aside for volumes, such as `50%`: they get no more of it, and nothing else takes it. 1 to 80.
    /// Default: `50%`.
    #[schemars(title = "a share such as `50%`", regex(pattern = r"^[0-9]{1,2}%$"))]
    pub share: Option<String>,
}

/// The container registry.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// Space for uploads, such as `60GiB`. Default: read-only.
    #[schemars(title = "a size such as `60GiB`", extend("x-form" = "size"))]
    pub writable: Option<String>,
}

/// Time for the site.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ntp {
    /// Whether the box serves time. Default: true.
    pub serve: Option<bool>,
}

/// Clusters of servers, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Clusters {
    /// Releases of Kubernetes beside the box's own, in the order of the definition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<ClusterVersion>,
}

/// A release of Kubernetes for clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersion {
    /// Release.
    pub version: KubernetesVersion,
    /// Where its programs come from.
    pub source: KubernetesSource,
}

/// What the box offers to its site, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Services {
    /// Whether the box serves time.
    pub ntp_serve: bool,
    /// Space for uploads to the registry; `None` is read-only.
    pub registry_writable: Option<ByteSize>,
    /// Network boot and provisioning.
    pub provisioning: Option<Provisioning>,
    /// Clusters of servers; there is provisioning, too, where there are these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Clusters>,
    /// The metrics API, on the box and on its clusters.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub metrics: bool,
    /// Volumes on DATA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Tenant clusters; there is provisioning, too, where there are these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sip: Option<Sip>,
    /// Virtual machines as hosts; there is provisioning, too, where there are these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vino: Option<Vino>,
}

/// A service that a definition switches on by its key, as recipes of images name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceName {
    /// `services.provisioning`.
    Provisioning,
    /// `services.clusters`.
    Clusters,
    /// `services.metrics`.
    Metrics,
    /// `services.storage`.
    Storage,
    /// `services.sip`.
    Sip,
    /// `services.vino`.
    Vino,
}

/// Services of servers, each with its key: `services.provisioning` has to say where those are.
const OF_SERVERS: [(ServiceName, &str); 3] =
    [(ServiceName::Clusters, "clusters"), (ServiceName::Sip, "sip"), (ServiceName::Vino, "vino")];

impl Services {
    /// Releases of Kubernetes for clusters, beside the box's own.
    pub fn cluster_versions(&self) -> &[ClusterVersion] {
        self.clusters.as_ref().map(|clusters| clusters.versions.as_slice()).unwrap_or_default()
    }

    /// Whether the definition declares it.
    pub fn has(&self, name: ServiceName) -> bool {
        match name {
            ServiceName::Provisioning => self.provisioning.is_some(),
            ServiceName::Clusters => self.clusters.is_some(),
            ServiceName::Metrics => self.metrics,
            ServiceName::Storage => self.storage.is_some(),
            ServiceName::Sip => self.sip.is_some(),
            ServiceName::Vino => self.vino.is_some(),
        }
    }
}

/// Percent of DATA that volumes have where the definition does not say it.
const SHARE_PERCENT: u8 = 50;
/// The most that they may have: the kubelet needs the rest.
const MOST_PERCENT: u8 = 80;

/// The services that `input` declares, after saying what is wrong with them.
pub(super) fn check(input: &ServicesInput, findings: &mut Findings<'_>) -> Services {
    let path = KeyPath::of("services");
    let writable = input.registry.as_ref().and_then(|registry| registry.writable.as_deref());
    let writable_path = path.key("registry").key("writable");
    let provisioning = input.provisioning.as_ref();
    let services = Services {
        ntp_serve: input.ntp.as_ref().and_then(|ntp| ntp.serve).unwrap_or(true),
        registry_writable: writable.and_then(|text| findings.parse(&writable_path, text, ByteSize::from_str)),
        provisioning: provisioning.map(|input| servers_network(input, findings)),
        // `Validate` fills in their releases.
        clusters: input.clusters.as_ref().map(|_| Clusters::default()),
        metrics: input.metrics.is_some(),
        storage: input.storage.as_ref().map(|input| storage(input, &path.key("storage"), findings)),
        sip: input.sip.clone(),
        vino: input.vino.as_ref().map(|input| vino(input, &path.key("vino"), findings)),
    };
    for (name, key) in OF_SERVERS {
        if services.has(name) && !services.has(ServiceName::Provisioning) {
            without_servers(&path.key(key), key, findings);
        }
    }
    services
}

fn storage(input: &StorageInput, path: &KeyPath, findings: &mut Findings<'_>) -> Storage {
    let share = input.share.as_deref().and_then(|text| findings.parse(&path.key("share"), text, share_percent));
    Storage { share_percent: share.unwrap_or(SHARE_PERCENT) }
}

/// Percent of DATA, such as `50%`.
fn share_percent(text: &str) -> Result<u8, Invalid> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
    percent.filter(|percent| (1..=MOST_PERCENT).contains(percent)).ok_or_else(|| Invalid {
        expected: format!("a share of DATA from `1%` to `{MOST_PERCENT}%`, such as `50%`"),
        hint: "the rest is for the cluster, its images and uploads".to_owned(),
    })
}

fn vino(input: &Vino, path: &KeyPath, findings: &mut Findings<'_>) -> Vino {
    if let Some(name) = input.interface.as_deref().filter(|name| !is_interface_name(name)) {
        let hint = "`ip link` on the box lists them";
        findings.at(&path.key("interface"), &format!("`{name}`"), "the name of an interface such as `ens5`", hint);
    }
    input.clone()
}

fn without_servers(path: &KeyPath, key: &str, findings: &mut Findings<'_>) {
    let found = format!("`{key}` needs servers, and there is no network to provision servers on");
    let hint = format!(
        "say in `services.provisioning` where the servers are: `provisioning: {{ interface: {{ name: ens4 }}, address: \
         172.22.0.1/24, range: 172.22.0.10-172.22.0.100 }}`; or remove `{key}`"
    );
    findings.at(path, &found, "`services.provisioning` beside it", &hint);
}
