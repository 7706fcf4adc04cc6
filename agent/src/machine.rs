//! The box as its steps and services see it: its release, what the initrd found, where things are, and its API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_api::boot::{self, BootFacts};
use agent_api::release::{Digest, Release};
use agent_api::servers::Provisioning;
use agent_api::servers::ServersNetwork;
use agent_api::site::Site;
use anyhow::Context;
use kube::api::ApiResource;
use serde_json::Value;

use crate::cluster::api::Api;
use crate::cluster::follow::{self, Kept};
use crate::cluster::kubeconfig;
use crate::cluster::pki::Validity;
use crate::host::{Output, RunError, Runner};
use crate::usage::Usage;

/// How long a short program may run: under emulation even `true` takes a while.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pause before objects are followed again after a failure.
const ANEW: Duration = Duration::from_secs(10);

/// The box. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Machine {
    inner: Arc<Inner>,
    /// Site's word about the servers' network, in place of the release's.
    provisioning: Option<Arc<Provisioning>>,
    /// The registry that its own images come from, where they are not unpacked on it.
    registry: Option<Arc<str>>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    runner: Arc<dyn Runner>,
    release: Release,
    facts: BootFacts,
    command_line: String,
    usage: Usage,
}

impl Machine {
    /// Reads what the initrd left.
    pub fn open(runner: Arc<dyn Runner>) -> anyhow::Result<Self> {
        let release = fs_err::read(boot::RELEASE)?;
        let release = serde_json::from_slice(&release).context("reading the release manifest")?;
        let facts = fs_err::read(boot::BOOT_FACTS)?;
        let facts = serde_json::from_slice(&facts).context("reading what the initrd found")?;
        let command_line = fs_err::read_to_string("/proc/cmdline")?;
        Ok(Self::new(Path::new("/"), runner, release, facts, command_line))
    }

    /// A box below `root`.
    pub fn new(root: &Path, runner: Arc<dyn Runner>, release: Release, facts: BootFacts, command_line: String) -> Self {
        let usage = Usage::new(root);
        let inner = Inner { root: root.to_owned(), runner, release, facts, command_line, usage };
        Self { inner: Arc::new(inner), provisioning: None, registry: None }
    }

    /// The same box at its site.
    #[must_use]
    pub fn at_site(&self, site: &Site) -> Self {
        let here = site.networks.provisioning.as_ref().map(ServersNetwork::resolve);
        // A Site with anything wrong in it was refused when it was read.
        Self { provisioning: here.map(|(declared, _)| Arc::new(declared)), ..self.clone() }
    }

    /// The same, whose own images come from a registry: a node that someone else set up.
    #[must_use]
    pub fn pulling_from(&self, registry: &str) -> Self {
        Self { registry: Some(registry.into()), ..self.clone() }
    }

    /// Name of an image of the release in the registry that it comes from, and the digest of its manifest; none where images
    /// are unpacked on the machine.
    pub fn pulled(&self, reference: &str) -> Option<(String, &Digest)> {
        let (registry, image) = (self.registry.as_deref()?, self.release().image(reference)?);
        Some((image.in_registry(registry), &image.manifest))
    }

    /// An absolute path of the box.
    pub fn at(&self, path: &str) -> PathBuf {
        self.inner.root.join(path.trim_start_matches('/'))
    }

    /// The release that runs.
    pub fn release(&self) -> &Release {
        &self.inner.release
    }

    /// How it provisions servers: the release says whether it does, Site where.
    pub fn provisioning(&self) -> Option<&Provisioning> {
        let declared = self.release().provisioning.as_ref()?;
        Some(self.provisioning.as_deref().unwrap_or(declared))
    }

    /// What the initrd found.
    pub fn facts(&self) -> &BootFacts {
        &self.inner.facts
    }

    /// What it takes of memory and disk.
    pub fn usage(&self) -> &Usage {
        &self.inner.usage
    }

    /// A kernel parameter, the last one of that name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        parameter(&self.inner.command_line, name)
    }

    /// Runs a short program.
    pub fn program(&self, argv: &[&str], stdin: &[u8]) -> Result<Output, RunError> {
        self.inner.runner.run(argv, stdin, DEADLINE)
    }

    /// A client for the API server, as the user that needs no RBAC object.
    pub fn api(&self) -> anyhow::Result<Api> {
        Ok(Api::new(&self.super_admin()?)?)
    }

    /// The same past the gate, for who waits until the API server answers.
    pub fn api_by_loopback(&self) -> anyhow::Result<Api> {
        Ok(Api::by_loopback(&self.super_admin()?)?)
    }

    fn super_admin(&self) -> anyhow::Result<kubeconfig::ParsedKubeconfig> {
        let path = self.at(kubeconfig::DIR).join(kubeconfig::SUPER_ADMIN);
        let text = fs_err::read_to_string(&path)?;
        kubeconfig::parse(&text).with_context(|| format!("reading `{}`", path.display()))
    }

    /// Follows a kind of objects ([`follow::follow`]) for as long as it is not dropped. What fails is begun anew, and told
    /// as the reason why `not`.
    pub async fn follow<T: PartialEq, F: Future<Output = anyhow::Result<()>>>(
        &self,
        kind: &ApiResource,
        not: &str,
        keep: impl Fn(&Value) -> Option<T>,
        mut tell: impl FnMut(&Kept<T>) -> F,
    ) {
        loop {
            let following = async {
                let client = follow::client(&self.at(kubeconfig::DIR).join(kubeconfig::SUPER_ADMIN)).await?;
                Box::pin(follow::follow(client, kind, &keep, &mut tell)).await
            };
            if let Err(error) = following.await {
                log::warn!("{not}: {error:#}");
            }
            tokio::time::sleep(ANEW).await;
        }
    }

    /// The clock, and the build time under which nothing is valid.
    pub fn validity(&self) -> Validity {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Validity { built: self.release().built, now }
    }
}

fn parameter<'a>(command_line: &'a str, name: &str) -> Option<&'a str> {
    let value = |word: &'a str| word.strip_prefix(name)?.strip_prefix('=');
    command_line.split_ascii_whitespace().filter_map(value).next_back()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use agent_api::boot::{BootFacts, DataFound, Mode};
    use agent_api::release::Release;
    use agent_api::servers::Provisioning;
    use agent_api::site::Site;

    use super::{Machine, parameter};
    use crate::fixtures::release;
    use crate::host::runner::FakeRunner;

    /// A box below `root` that runs nothing for real.
    pub fn machine(root: &Path, runner: FakeRunner) -> Machine {
        machine_with(root, Arc::new(runner))
    }

    /// The same with a runner that is asked afterwards what was run.
    pub fn machine_with(root: &Path, runner: Arc<FakeRunner>) -> Machine {
        let facts = BootFacts {
            release: "ab".repeat(32),
            mode: Mode::Run,
            medium: "vda3".to_owned(),
            data: DataFound::Ram { reason: "a test".to_owned() },
            machine_id: "4f2a10c3".repeat(4),
            first_boot: true,
            clock_was_wrong: false,
        };
        Machine::new(root, runner, release(), facts, "quiet foothold.stop=a/b".to_owned())
    }

    #[test]
    fn site_says_where_servers_are_and_the_release_whether_there_are_any() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = "apiVersion: foothold.dev/v1\nkind: Site\nnetworks:\n  provisioning:\n    interface: { name: eno2 }\n    \
                    address: 10.7.0.1/24\n";
        let site = Site::parse(text).expect("a Site");
        let machine = |provisioning| {
            let facts = machine(dir.path(), FakeRunner::default()).facts().clone();
            let release = Release { provisioning, ..release() };
            Machine::new(dir.path(), Arc::new(FakeRunner::default()), release, facts, String::new())
        };
        assert_eq!(machine(None).at_site(&site).provisioning(), None);

        let range = "172.22.0.10-172.22.0.99".parse().ok();
        let of_release = Provisioning { range, interface: Some("eno1".to_owned()), ..Provisioning::default() };
        let box_ = machine(Some(of_release.clone()));
        assert_eq!(box_.at_site(&Site::default()).provisioning(), Some(&of_release));
        let here = box_.at_site(&site);
        let here = here.provisioning().expect("it provisions");
        assert_eq!((here.interface.as_deref(), here.range), (Some("eno2"), None), "in place of all of it");
        assert_eq!(here.address.map(|own| own.to_string()).as_deref(), Some("10.7.0.1/24"));
    }

    #[test]
    fn the_last_kernel_parameter_of_a_name_counts() {
        let line = "foothold.mode=run quiet foothold.mode=safe foothold.modes=x\n";
        assert_eq!(parameter(line, "foothold.mode"), Some("safe"));
        assert_eq!(parameter(line, "quiet"), None);
    }
}
