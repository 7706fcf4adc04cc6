//! The box's half of a cluster as processes of this machine: a real API server, the controller of clusters as the release has
//! it, its content and images, and DHCP. Only the servers are machines, so that two processors do for them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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
use foothold_agent::services::clusters::{self, HELM};
use foothold_agent::{http, pulls};
use foothold_tests::appliance;
use foothold_tests::programs::program;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bench::{BOX, HOSTS, dhcp, lan, make_known};
use crate::cluster::{Cluster, admin, client, define, define_metal3};

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
            let lock = appliance::locked(&at, &job)?;
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
    made: Made,
    /// The agent of the release.
    agent: PathBuf,
    /// The controller's command line.
    controller: Run,
    /// Some, but while the box is away.
    half: Mutex<Option<Half>>,
    dir: TempDir,
    // Last, so that it ends after what asks it.
    _cluster: Cluster,
}

/// What ends when the box is switched off. Its API server stays, for nobody on the servers asks it.
struct Half {
    controller: Running,
    tasks: JoinSet<anyhow::Result<()>>,
    segment: Option<std::thread::JoinHandle<()>>,
    stop: CancellationToken,
}

impl Formed {
    /// Starts it, at the box's address on the segment.
    pub async fn start(made: Made) -> Self {
        lan().address(&format!("{BOX}/24")).expect("an address");
        let dir = tempfile::tempdir().expect("a folder");
        fs_err::create_dir(dir.path().join("loaders")).expect("a folder");
        let cluster = Cluster::start();
        let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
        define_metal3(&api).await;
        define(&api, &agent_api::clusters::crds::all()).await;
        let agent = dir.path().join("foothold-agent");
        fs_err::copy(&made.agent, &agent).expect("copied");
        fs_err::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
        let controller = Run::new(&agent)
            .args(["operator", "bpa", "--box", &BOX.to_string(), "--kubernetes", &made.release.kubernetes.version])
            .args(clusters::parts(&made.release))
            .args([Path::new("--kubeconfig"), &admin(&cluster), Path::new("--clusters"), &dir.path().join("clusters")])
            .args([Path::new("--leases"), &dir.path().join("dhcp").join(LEASES)]);
        let formed = Self { api, made, agent, controller, half: Mutex::default(), dir, _cluster: cluster };
        formed.switch_on();
        formed
    }

    /// Its content, its DHCP and its controller run.
    pub fn switch_on(&self) {
        let (stop, mut tasks, dir) = (CancellationToken::new(), JoinSet::new(), self.dir.path());
        serve(&mut tasks, &self.made, dir, &stop);
        let segment = Some(dhcp(&dir.join("dhcp"), dir.join("loaders"), dir.join(HOSTS), &stop));
        let controller = self.controller.start().expect("started");
        *self.half.lock().expect("no panic") = Some(Half { controller, tasks, segment, stop });
    }

    /// Its content, its DHCP and its controller are gone.
    pub fn switch_off(&self) {
        drop(self.half.lock().expect("no panic").take());
    }

    /// The controller is killed, and started anew.
    pub fn kill_controller(&self) {
        let mut half = self.half.lock().expect("no panic");
        let half = half.as_mut().expect("it is on");
        // What it was before is killed when it is dropped.
        half.controller = self.controller.start().expect("started");
    }

    /// The controller of releases, in another cluster than the box's, whose administrator's kubeconfig this is: its Jobs need a
    /// kubelet.
    pub fn controller_of_releases(&self, kubeconfig: &str) -> Running {
        let path = self.dir.path().join("releases.conf");
        fs_err::write(&path, kubeconfig).expect("written");
        let images = &self.made.release.images;
        let helm = images.iter().find(|image| image.reference.starts_with(HELM)).expect("an image with Helm");
        let run = Run::new(&self.agent).args(["operator", "kpa", "--box", &BOX.to_string(), "--helm", &helm.reference]);
        run.args([Path::new("--kubeconfig"), &path]).start().expect("started")
    }

    /// What the controller knows of the times of parts of its work: for estimates.
    pub fn durations(&self) -> Value {
        let text = fs_err::read(self.dir.path().join("clusters/.durations.json")).expect("it was written");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// DHCP answers this host from now on.
    pub fn known(&self, host: &Value) {
        make_known(&self.dir.path().join(HOSTS), host);
    }
}

impl Drop for Half {
    #[expect(clippy::print_stderr, reason = "for who reads why it failed")]
    fn drop(&mut self) {
        if let Some(said) = self.controller.ended() {
            eprintln!("the controller has ended: {said}");
        }
        self.stop.cancel();
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
    let link = store.join("sha256");
    if !link.exists() {
        fs_err::os::unix::fs::symlink(&made.blobs, link).expect("a link");
    }
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(made.content())];
    let content = Arc::new(Content::new(sources, Path::new("/nowhere"), made.release.built));
    let recorder = pulls::start(tasks, &Bus::in_memory(), stop);
    let front = Arc::new(Front::new(&made.release, root, Arc::new(Gate::new(&root.join("access"))), recorder));
    let (resolver, _) = door::own_certificate(&root.join("web")).expect("a certificate");
    let tls = door::tls(resolver).expect("TLS");
    http::start(tasks, &[(BOX, ports::CONTENT).into()], content, tls.clone(), stop);
    http::start(tasks, &[(BOX, ports::REGISTRY).into()], front, tls, stop);
}
