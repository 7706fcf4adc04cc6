//! The box's half of a cluster as processes of this machine: a real API server, the controller of clusters as the release has
//! it, its content and images, and DHCP. Only the servers are machines, so that two processors do for them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_api::boot::MEDIUM;
use agent_api::ports;
use agent_api::release::{MEDIUM_ROOT, Release};
use foothold::commands::common;
use foothold::host::command::{Run, Running};
use foothold::pipeline;
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig;
use foothold_agent::content::server::Content;
use foothold_agent::content::{Held, Source};
use foothold_agent::door::{self, Gate};
use foothold_agent::events::Bus;
use foothold_agent::provisioning::segment::dnsmasq::LEASES;
use foothold_agent::registry::Front;
use foothold_agent::{http, pulls};
use foothold_tests::appliance;
use foothold_tests::programs::program;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bench::{BOX, dhcp, lan};
use crate::cluster::{Cluster, admin, client, define, define_metal3};

/// Hosts that DHCP knows.
const HOSTS: &str = "hosts.yaml";

/// A release in the builder's cache.
pub struct Made {
    release: Release,
    blobs: PathBuf,
    agent: PathBuf,
}

impl Made {
    /// Makes the release of a definition; no image is made of it.
    pub fn of(definition: &Path) -> Self {
        program("etcd", "server");
        program("kubernetes", "kube-apiserver");
        let make = || -> anyhow::Result<Self> {
            let (at, job) = (appliance::builder()?, common::Job::load(definition)?);
            let lock = common::locked(&at, &job, false)?;
            let built = pipeline::release(&at, &job.appliance, &lock)?;
            let agent = at.cache.blob_path(&built.programs.file("foothold-agent")?.digest);
            Ok(Self { release: built.release, blobs: at.cache.path("blobs/sha256"), agent })
        };
        make().unwrap_or_else(|error| panic!("building `{}`: {error:#}", definition.display()))
    }

    fn content(&self) -> Vec<Held> {
        let held = |file: &agent_api::release::ContentFile| Held {
            path: file.path.clone(),
            kind: file.kind,
            file: self.blobs.join(file.digest.hex()),
            digest: file.digest.clone(),
            size: file.size,
        };
        self.release.content.iter().map(held).collect()
    }
}

/// A box that runs.
pub struct Formed {
    /// Its API.
    pub api: Api,
    operator: Option<Running>,
    tasks: JoinSet<anyhow::Result<()>>,
    segment: Option<std::thread::JoinHandle<()>>,
    stop: CancellationToken,
    dir: TempDir,
    // Last, so that it ends after what asks it.
    _cluster: Cluster,
}

impl Formed {
    /// Starts it, at the box's address on the segment.
    pub async fn start(made: &Made) -> Self {
        lan().address(&format!("{BOX}/24")).expect("an address");
        let (dir, stop, mut tasks) = (tempfile::tempdir().expect("a folder"), CancellationToken::new(), JoinSet::new());
        serve(&mut tasks, made, dir.path(), &stop);
        let (state, loaders) = (dir.path().join("dhcp"), dir.path().join("loaders"));
        fs_err::create_dir(&loaders).expect("a folder");
        let segment = dhcp(&state, loaders, dir.path().join(HOSTS), &stop);
        let cluster = Cluster::start();
        let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
        define_metal3(&api).await;
        define(&api, &agent_api::clusters::crds::all()).await;
        let agent = dir.path().join("foothold-agent");
        fs_err::copy(&made.agent, &agent).expect("copied");
        fs_err::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
        let run = Run::new(&agent)
            .args(["operator", "bpa", "--box", &BOX.to_string(), "--kubernetes", &made.release.kubernetes.version])
            .args([Path::new("--kubeconfig"), &admin(&cluster), Path::new("--clusters"), &dir.path().join("clusters")])
            .args([Path::new("--leases"), &state.join(LEASES)]);
        let operator = Some(run.start().expect("started"));
        Self { api, operator, tasks, segment: Some(segment), stop, dir, _cluster: cluster }
    }

    /// DHCP answers this host from now on.
    pub fn known(&self, host: &Value) {
        let path = self.dir.path().join(HOSTS);
        let mut all = fs_err::read_to_string(&path).unwrap_or_default();
        let _ = writeln!(all, "---\n{host}");
        fs_err::write(&path, all).expect("written");
    }
}

impl Drop for Formed {
    #[expect(clippy::print_stderr, reason = "for who reads why it failed")]
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(mut operator) = self.operator.take() {
            if std::thread::panicking()
                && let Some(said) = operator.ended()
            {
                eprintln!("the controller has ended: {said}");
            }
            operator.stop(std::time::Duration::from_secs(20));
        }
        self.tasks.abort_all();
        if let Some(segment) = self.segment.take() {
            let _ = segment.join();
        }
    }
}

/// Content and images, at the ports and under the paths of a box.
fn serve(tasks: &mut JoinSet<anyhow::Result<()>>, made: &Made, root: &Path, stop: &CancellationToken) {
    let store = root.join(MEDIUM.trim_start_matches('/')).join(MEDIUM_ROOT).join("store");
    fs_err::create_dir_all(&store).expect("a folder");
    fs_err::os::unix::fs::symlink(&made.blobs, store.join("sha256")).expect("a link");
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(made.content())];
    let content = Arc::new(Content::new(sources, Path::new("/nowhere"), made.release.built));
    let recorder = pulls::start(tasks, &Bus::in_memory(), stop);
    let front = Arc::new(Front::new(&made.release, root, Arc::new(Gate::new(&root.join("access"))), recorder));
    let (resolver, _) = door::own_certificate(&root.join("web")).expect("a certificate");
    let tls = door::tls(resolver).expect("TLS");
    http::start(tasks, &[(BOX, ports::CONTENT).into()], content, tls.clone(), stop);
    http::start(tasks, &[(BOX, ports::REGISTRY).into()], front, tls, stop);
}
