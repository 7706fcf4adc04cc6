//! The parts of a release, as its agent prints them, and those that are chosen.

use std::path::Path;

use agent_api::release::Release;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::host::command::Run;
use crate::rootfs::programs::place;
use crate::store::{Cache, Made};

/// A service of the box, for a cluster that someone else set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Servers of a site: the controller of `BareMetalHost`s, and Ironic.
    BareMetalHost,
    /// DHCP, TFTP and network boot for them.
    Dhcp,
    /// Clusters on them: the controller of `Provisioning` and `Software`.
    Bpa,
    /// Charts and manifests on those clusters: the controller of `Release`.
    Kpa,
    /// Hosts and services for tenant clusters: the controller of `SIPCluster`.
    Sip,
    /// Hosts out of virtual machines: the controller of `Vino`.
    Vino,
    /// Images and files for the site, and uploads.
    Registry,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::BareMetalHost, Self::Dhcp, Self::Bpa, Self::Kpa, Self::Sip, Self::Vino, Self::Registry];

    /// Its name on the command line and in the agent.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareMetalHost => "baremetalhost",
            Self::Dhcp => "dhcp",
            Self::Bpa => "bpa",
            Self::Kpa => "kpa",
            Self::Sip => "sip",
            Self::Vino => "vino",
            Self::Registry => "registry",
        }
    }

    /// The keys of a definition that declare it.
    const fn needs(self) -> &'static str {
        match self {
            Self::BareMetalHost | Self::Registry => "`services.provisioning`",
            Self::Dhcp => "`services.provisioning` with a `range`",
            Self::Bpa | Self::Kpa => "`services.provisioning` and `services.clusters: {}`",
            Self::Sip => "`services.provisioning` and `services.sip: {}`",
            Self::Vino => "`services.provisioning` and `services.vino: {}`",
        }
    }
}

/// The part that others share: services that run on the node as they do on the box.
const NODE: &str = "node";
/// Parts that need it.
const ON_NODE: [Part; 3] = [Part::BareMetalHost, Part::Dhcp, Part::Registry];

/// A part, as the agent prints it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Printed {
    /// Its name.
    pub name: String,
    /// Images that it runs.
    pub images: Vec<String>,
    /// The kinds that it needs.
    pub definitions: Vec<Value>,
    /// Its other objects, with the values of a chart.
    pub objects: Vec<Value>,
}

/// Has the agent of the release print the parts that it has.
pub fn printed(cache: &Cache, programs: &Made, release: &Release) -> Result<Vec<Printed>> {
    let work = cache.work_dir()?;
    let (agent, file) = (work.path().join("foothold-agent"), work.path().join("release.json"));
    place(cache, programs, "foothold-agent", &agent)?;
    fs_err::write(&file, serde_json::to_vec(release)?)?;
    let text = ask(&agent, &file).context("asking the release's agent for its parts")?;
    serde_json::from_slice(&text).context("reading what the release's agent says of its parts")
}

fn ask(agent: &Path, release: &Path) -> Result<Vec<u8>> {
    Ok(Run::new(agent).args(["parts", "print", "--release"]).arg(release).output()?)
}

/// Parts that are exported, in the order of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    chosen: Vec<(Part, Printed)>,
    node: Option<Printed>,
}

/// Chooses all parts that the release has, or the `wanted` ones. `definition` is named in errors.
pub fn choose(all: Vec<Printed>, wanted: &[Part], definition: &Path) -> Result<Parts> {
    let find = |part: Part| all.iter().find(|printed| printed.name == part.name()).cloned();
    let mut chosen = Vec::new();
    for part in Part::ALL {
        let (found, wanted_here) = (find(part), wanted.is_empty() || wanted.contains(&part));
        match found {
            Some(printed) if wanted_here => chosen.push((part, printed)),
            None if wanted.contains(&part) => {
                bail!("`{}` declares no `{}`\nhint: add {} to it", definition.display(), part.name(), part.needs())
            }
            _ => {}
        }
    }
    if chosen.is_empty() {
        let all = Part::BareMetalHost.needs();
        bail!("`{}` declares nothing that could be exported\nhint: add {all}, for one", definition.display());
    }
    let on_node = chosen.iter().any(|(part, _)| ON_NODE.contains(part));
    let node = all.into_iter().find(|printed| printed.name == NODE).filter(|_| on_node);
    Ok(Parts { chosen, node })
}

impl Parts {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.chosen.iter().map(|(part, _)| part.name())
    }

    /// Whether one of them is chosen.
    pub fn has(&self, part: Part) -> bool {
        self.chosen.iter().any(|(chosen, _)| *chosen == part)
    }

    /// Those that are chosen, with their names.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Printed)> {
        self.chosen.iter().map(|(part, printed)| (part.name(), printed))
    }

    /// The shared part that runs on the node, if one of them needs it.
    pub const fn node(&self) -> Option<&Printed> {
        self.node.as_ref()
    }

    /// Whether something runs on the node as on the box.
    pub const fn on_node(&self) -> bool {
        self.node.is_some()
    }

    /// Everything that was printed of them.
    pub fn printed(&self) -> impl Iterator<Item = &Printed> {
        self.chosen.iter().map(|(_, printed)| printed).chain(&self.node)
    }

    /// Each kind once, by name.
    pub fn definitions(&self) -> Vec<&Value> {
        let mut all: Vec<&Value> = self.printed().flat_map(|part| &part.definitions).collect();
        all.sort_by_key(|definition| name_of(definition));
        all.dedup_by_key(|definition| name_of(definition));
        all
    }
}

fn name_of(definition: &Value) -> String {
    definition["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
