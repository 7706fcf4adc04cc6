//! The box's half of a site, and its servers.

mod servers;

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_api::ports;
use agent_api::release::{ContentKind, Digest};
use foothold::config::DiskFormat;
use foothold::host::command::Running;
use foothold_agent::cluster::api::Api;
use foothold_agent::cluster::kubeconfig::{self, ParsedKubeconfig};
use foothold_agent::content::server::Content;
use foothold_agent::content::{Held, Source};
use foothold_agent::host::files;
use foothold_agent::ironic::{Node, Port};
use foothold_agent::operators::metal3::{self, Limits, Pace, Ramdisk, Settings};
use foothold_agent::provisioning::segment::{self, Segment};
use foothold_agent::provisioning::served::Served;
use foothold_agent::provisioning::wire::SERVERS;
use foothold_agent::provisioning::{RUN, STATE, authorities, database, kept};
use foothold_agent::services::ironic::{ToldServer, known_servers};
use foothold_agent::{door, http, ironic, provisioning};
use foothold_qemu::site::{BRIDGE, Lan, Namespace};
use foothold_qemu::{Accel, Tools, Vm};
use foothold_tests::os_image::Workshop;
use foothold_tests::programs::program;
use foothold_tests::service_image::{ServiceImage, deploy_ramdisk};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::booted::{BESIDE, Booted};
use crate::cluster::{Cluster, admin, client, define_metal3};
use crate::provisioning::{Bench, drivers};
use crate::server::Server;

/// The box on the segment.
pub const BOX: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 1);
/// A server's disk.
pub const DISK: u64 = 8 << 30;
/// The OS image that is written first.
pub const RESCUE: &str = "rescue";
/// Another one.
pub const NODE: &str = "debian-node";
/// Namespace of the hosts.
const NAMESPACE: &str = "metal3";
/// Hosts that DHCP knows, in the site's folder.
pub const HOSTS: &str = "hosts.yaml";
/// Hosts are looked at after so long, whatever the last look took.
const LOOK: Duration = Duration::from_secs(20);
/// Password of the BMCs.
pub const PASSWORD: &str = "of-this-test";

/// Runs a test in a network namespace of its own, with a bridge. What it needs is made before: there, nothing can be
/// fetched. The test begins outside of any runtime.
pub fn in_namespace<P: Send + 'static, F: Future<Output = ()>>(
    make: impl FnOnce() -> P,
    test: impl FnOnce(P) -> F + Send + 'static,
) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tools = Tools::program_or_make("usr/bin/ipmi_sim").and_then(|_| Tools::locate()).expect("a toolbox");
    Accel::detect(&tools);
    let parts = make();
    Namespace::make().unwrap_or_else(|error| panic!("{error}")).run(move || {
        Lan::make(&tools).unwrap_or_else(|error| panic!("{error}"));
        let test = test(parts);
        // Its threads are in the namespace of the one that makes them.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
        runtime.expect("a runtime").block_on(test);
    });
}

/// The network of the namespace.
pub fn lan() -> Lan {
    Lan::of_this_thread(&Tools::locate().expect("a toolbox"))
}

/// What the box's half is made of on this machine.
pub struct Parts {
    ironic: ServiceImage,
    files: Vec<Held>,
    /// Whether machines run [`Imitation`](crate::ramdisk::Imitation)s.
    imitated: bool,
}

impl Parts {
    /// Makes all of it.
    pub fn make() -> Self {
        Self::with(&[RESCUE])
    }

    /// For machines that run imitations of the ramdisk.
    pub fn imitated() -> Self {
        Self { imitated: true, ..Self::make() }
    }

    /// With these OS images.
    pub fn with(images: &[&str]) -> Self {
        program("etcd", "server");
        program("kubernetes", "kube-apiserver");
        let ironic = ServiceImage::ironic().unwrap_or_else(|error| panic!("making Ironic's image: {error:#}"));
        let ramdisk = deploy_ramdisk().unwrap_or_else(|error| panic!("making the ramdisk: {error:#}"));
        let mut files: Vec<Held> = ramdisk
            .into_iter()
            .map(|(it, file)| Held { path: it.path, kind: it.kind, file, digest: it.digest, size: it.size })
            .collect();
        let workshop = Workshop::open().expect("a workshop");
        for image in images {
            let made = workshop.make(image, &[DiskFormat::Raw], &workshop.builder.cache).expect("an OS image");
            let blob = made.file("raw").expect("a disk").clone();
            let (path, kind, file) = (path_of(image), ContentKind::OsImage, workshop.path(&blob));
            files.push(Held { path, kind, file, digest: blob.digest, size: blob.size });
        }
        Self { ironic, files, imitated: false }
    }
}

/// Whether the box answers DHCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dhcp {
    /// Nobody does.
    Off,
    /// When nobody else does.
    Guarded,
}

/// The box's half of a site.
enum Half {
    /// On this machine, a process each.
    Here(Box<Here>),
    /// A machine that has booted an image.
    Booted(Box<Booted>),
    /// A machine that is somebody else's, with the box's services on it.
    Elses(Box<Vm>),
}

/// What a box runs, as processes and tasks of this machine.
struct Here {
    bench: Bench,
    /// Some, but for the instant of a restart.
    ironic: Option<Running>,
    client: ironic::Client,
    /// Of what is served, by its path.
    digests: BTreeMap<String, Digest>,
    tasks: JoinSet<anyhow::Result<()>>,
    segment: Option<std::thread::JoinHandle<()>>,
    // Last, so that it ends after what asks it.
    _cluster: Cluster,
}

impl Here {
    fn alive(&mut self) {
        assert!(self.ironic.as_mut().is_some_and(|it| it.ended().is_none()), "Ironic has ended");
    }

    async fn stop(mut self) {
        self.tasks.shutdown().await;
        self.ironic.take().expect("it runs").stop(Duration::from_secs(20));
        if let Some(segment) = self.segment.take() {
            segment.join().expect("DHCP ended well");
        }
        drop(self.bench);
    }
}

/// A site with a box that provisions.
pub struct Site {
    api: Api,
    half: Half,
    /// This machine's address on the segment, where the BMCs are.
    pub own: Ipv4Addr,
    begun: Instant,
    /// How each host was when it was last looked at.
    told: BTreeMap<String, String>,
    servers: JoinSet<()>,
    stop: CancellationToken,
    dir: TempDir,
}

impl Site {
    /// A box that is made of processes of this machine.
    pub async fn start(Parts { ironic, files, imitated }: Parts, with: Dhcp) -> Self {
        lan().address(&format!("{BOX}/24")).expect("an address");
        let dir = tempfile::tempdir().expect("a folder");
        let mut bench = Bench::on_segment(ironic, BOX);
        bench.imitated = imitated;
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let digests = files.iter().map(|held| (held.path.clone(), held.digest.clone())).collect();
        serve(&mut tasks, &bench, files, &stop);
        let segment = (with == Dhcp::Guarded)
            .then(|| dhcp(&bench.at(provisioning::dhcp::STATE), bench.loaders(), dir.path().join(HOSTS), &stop));
        let cluster = Cluster::start();
        let api = client(&cluster.places, kubeconfig::SUPER_ADMIN).await;
        define_metal3(&api).await;
        let placed = bench.place(false);
        bench.stand_before_ironic(&mut tasks, &stop);
        let mut ironic = bench.start();
        drivers(&placed.access, &mut ironic).await;
        let user = (placed.access.credentials.username.clone(), placed.access.credentials.password.clone());
        let access = ironic::Settings {
            url: format!("https://{}", SocketAddr::from((BOX, ports::IRONIC))),
            ca: Some(placed.access.authority),
            user: Some(user),
        };
        let client = ironic::Client::new(&access).expect("a client");
        let settings = Settings {
            kubeconfig: Some(admin(&cluster)),
            namespace: Some(NAMESPACE.to_owned()),
            ironic: access,
            bmc_authorities: Some(format!("{RUN}/{}", authorities::FILE)),
            external_http_url: Some(placed.access.media),
            ramdisk: Ramdisk::default(),
            preprovisioning_images: false,
            provisioning_limit: 20,
            workers: 2,
            limits: Limits::default(),
            pace: Pace::default(),
            serve: None,
            webhook: None,
            webhook_owner: None,
            pulse: None,
            signs: None,
        };
        let token = stop.clone();
        tasks.spawn(async move { metal3::run(&settings, &token).await });
        tasks.spawn(tells_servers(api.clone(), bench.at(SERVERS)));
        let half = Half::Here(Box::new(Here {
            bench,
            ironic: Some(ironic),
            client,
            digests,
            tasks,
            segment,
            _cluster: cluster,
        }));
        Self::with(api, half, BOX, stop, dir).await
    }

    /// A box that was booted, which this machine is beside.
    pub async fn booted(booted: Booted, kubeconfig: &ParsedKubeconfig) -> Self {
        let api = Api::new(kubeconfig).expect("a client");
        // Its certificate follows its addresses.
        patiently(async || api.get("/version").await).await;
        let (stop, dir) = (CancellationToken::new(), tempfile::tempdir().expect("a folder"));
        Self::with(api, Half::Booted(Box::new(booted)), BESIDE, stop, dir).await
    }

    /// The box's services on a machine of somebody else, which has the box's address; this machine is beside it.
    pub async fn on_machine(vm: Vm, api: Api) -> Self {
        let (stop, dir) = (CancellationToken::new(), tempfile::tempdir().expect("a folder"));
        Self::with(api, Half::Elses(Box::new(vm)), BESIDE, stop, dir).await
    }

    async fn with(api: Api, half: Half, own: Ipv4Addr, stop: CancellationToken, dir: TempDir) -> Self {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        api.create("/api/v1/namespaces", &object).await.expect("a namespace");
        let (begun, told, servers) = (Instant::now(), BTreeMap::new(), JoinSet::new());
        Self { api, half, own, begun, told, servers, stop, dir }
    }

    /// A Secret.
    pub async fn secret(&self, name: &str, texts: Value) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": texts});
        self.api.create(&path, &secret).await.expect("a Secret");
    }

    /// A host for a server; `spec` is laid over what hosts have here.
    pub async fn host(&self, name: &str, server: &Server, spec: Value) {
        self.host_at(name, server.mac(), spec).await;
    }

    /// The same for any MAC address.
    pub async fn host_at(&self, name: &str, mac: &str, spec: Value) {
        self.secret(&format!("{name}-bmc"), json!({"username": "admin", "password": PASSWORD})).await;
        let mut host = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {"name": name},
            "spec": {
                "online": true,
                "bootMACAddress": mac,
                "rootDeviceHints": {"deviceName": "/dev/vda"},
                "bmc": {"credentialsName": format!("{name}-bmc"), "disableCertificateVerification": true},
            },
        });
        merge(&mut host["spec"], spec);
        self.known(&host);
        let path = format!("/apis/metal3.io/v1alpha1/namespaces/{NAMESPACE}/baremetalhosts");
        self.api.create(&path, &host).await.expect("a host");
    }

    /// DHCP answers it at once from now on, as it does where a box tells it of its hosts.
    fn known(&self, host: &Value) {
        make_known(&self.dir.path().join(HOSTS), host);
    }

    /// An OS image as a host names it. The builder lays checksums beside the images of a box; of its parts alone each is
    /// known by its digest.
    pub fn image(&self, name: &str) -> Value {
        let url = format!("http://{}/{}", SocketAddr::from((BOX, ports::CONTENT)), path_of(name));
        let digest = match &self.half {
            Half::Here(here) => here.digests.get(&path_of(name)).expect("it is served").hex().to_owned(),
            Half::Booted(_) | Half::Elses(_) => format!("{url}.sha256"),
        };
        json!({"url": url, "checksum": digest, "checksumType": "sha256", "format": "raw"})
    }

    fn path(name: &str) -> String {
        Self::path_of("baremetalhosts", name)
    }

    /// Where an object of metal3's is.
    pub fn path_of(plural: &str, name: &str) -> String {
        format!("/apis/metal3.io/v1alpha1/namespaces/{NAMESPACE}/{plural}/{name}")
    }

    /// Merges something into a host.
    pub async fn change(&self, name: &str, change: Value) {
        self.merge_at(&Self::path(name), &change).await;
    }

    /// Merges something into whatever lies at a path of the API.
    pub async fn merge_at(&self, path: &str, change: &Value) {
        patiently(async || self.api.merge(path, change).await).await;
    }

    /// Goes on beside the servers, and ends with them.
    pub fn beside(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.servers.spawn(task);
    }

    /// Deletes a host.
    pub async fn delete(&self, name: &str) {
        patiently(async || self.api.delete(&Self::path(name)).await).await;
    }

    /// A host, unless it is gone.
    pub async fn get(&self, name: &str) -> Option<Value> {
        patiently(async || self.api.get(&Self::path(name)).await).await
    }

    /// Waits until a host is in a state.
    pub async fn state(&mut self, name: &str, state: &str, within: Duration) -> Value {
        self.until(name, state, within, in_state(state)).await
    }

    /// Waits until a host is as wanted. Every change of it on the way is told.
    pub async fn until(&mut self, name: &str, what: &str, within: Duration, is: impl Fn(&Value) -> bool) -> Value {
        self.all(&[name], what, within, is).await.remove(0)
    }

    /// The same for several hosts at once.
    pub async fn all(
        &mut self,
        names: &[&str],
        what: &str,
        within: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let mut hosts = Vec::new();
            for name in names {
                let host = self.get(name).await.unwrap_or_else(|| panic!("{name} is gone"));
                self.tell_change(name, &host["status"]);
                hosts.push(host);
            }
            if hosts.iter().all(&is) {
                return hosts;
            }
            if let Half::Here(here) = &mut self.half {
                here.alive();
            }
            if begun.elapsed() > within {
                let late: Vec<Value> = hosts.into_iter().filter(|host| !is(host)).collect();
                panic!("not {what}: {:#}", json!(late));
            }
            // Looking is a tenth of what an emulated box does; one late answer is no reason to look away for long.
            tokio::time::sleep((9 * asked.elapsed()).clamp(Duration::from_millis(500), LOOK)).await;
        }
    }

    fn tell_change(&mut self, name: &str, status: &Value) {
        let state = status["provisioning"]["state"].as_str().unwrap_or_default();
        let now = format!("{name} {state} {} {}", status["operationalStatus"], status["errorMessage"]);
        if self.told.insert(name.to_owned(), now.clone()) != Some(now.clone()) {
            self.tell(&now);
        }
    }

    /// Ironic's database goes while it runs: what the agent does then, the restart included. A booted box does all of it
    /// by itself.
    pub async fn lose_database(&mut self) {
        let Half::Here(here) = &mut self.half else { panic!("Ironic is in a pod of the box") };
        fs_err::remove_file(here.bench.at(STATE).join("db").join(database::FILE)).expect("lost");
        let placed = here.bench.place(true);
        here.ironic.take().expect("it runs").stop(Duration::from_secs(20));
        drivers(&placed.access, here.ironic.insert(here.bench.start())).await;
        self.tell("Ironic has a new database");
    }

    /// The nodes that Ironic knows, with their ports.
    pub async fn nodes(&self) -> Vec<(Node, Vec<Port>)> {
        let Half::Here(here) = &self.half else { panic!("Ironic is in a pod of the box") };
        let mut nodes = Vec::new();
        for node in here.client.nodes("uuid,name,provision_state,power_state").await.expect("Ironic's nodes") {
            let ports = here.client.ports_of(&node.uuid).await.expect("Ironic's ports");
            nodes.push((node, ports));
        }
        nodes
    }

    /// Says what happens now, and when that is.
    #[expect(clippy::print_stderr, reason = "figures for people")]
    pub fn tell(&self, what: &str) {
        eprintln!("{:7.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Waits until a host is gone.
    pub async fn gone(&mut self, name: &str, within: Duration) {
        let begun = Instant::now();
        while self.get(name).await.is_some() {
            assert!(begun.elapsed() < within, "{name} is still there");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.tell(&format!("{name} gone"));
    }

    /// The box that was booted.
    pub fn booted_box(&self) -> &Booted {
        let Half::Booted(booted) = &self.half else { panic!("the box is processes of this machine") };
        booted
    }

    /// The booted box loses its power, and is ready again.
    pub async fn lose_power(&mut self) {
        let Half::Booted(booted) = &mut self.half else { panic!("the box is processes of this machine") };
        tokio::task::block_in_place(|| booted.lose_power());
        patiently(async || self.api.get("/version").await).await;
    }

    /// Whatever lies at a path of the API.
    pub async fn at(&self, path: &str) -> Value {
        patiently(async || self.api.get(path).await).await.unwrap_or_default()
    }

    /// What the booted box's REST answers.
    pub fn rest(&self, path: &str) -> Value {
        let answer = tokio::task::block_in_place(|| self.booted_box().client().get(path));
        serde_json::from_str(&answer).expect("JSON")
    }

    /// What the API server says against a host with this spec.
    pub async fn refusal(&self, name: &str, spec: Value) -> String {
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name}, "spec": spec});
        let path = format!("/apis/metal3.io/v1alpha1/namespaces/{NAMESPACE}/baremetalhosts");
        self.api.create(&path, &host).await.expect_err("it is refused").to_string()
    }

    /// Ends everything.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.servers.shutdown().await;
        match self.half {
            Half::Here(here) => here.stop().await,
            Half::Booted(machine) => drop(machine),
            Half::Elses(machine) => drop(machine),
        }
    }
}

/// Asks again while there is no good answer: a box that is emulated beside a server has moments without one.
async fn patiently<T, E: Debug>(ask: impl AsyncFn() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(180), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Whether a host is in a state, and well.
pub fn in_state(state: &str) -> impl Fn(&Value) -> bool {
    move |host| host["status"]["provisioning"]["state"] == state && host["status"]["errorType"].is_null()
}

/// Whether it is installed with this image, and not with the one that was there before.
pub fn has_image(image: &Value) -> impl Fn(&Value) -> bool {
    move |host| in_state("provisioned")(host) && host["status"]["provisioning"]["image"]["url"] == image["url"]
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn serve(tasks: &mut JoinSet<anyhow::Result<()>>, bench: &Bench, files: Vec<Held>, stop: &CancellationToken) {
    kept::look_through(bench.root(), &[]).expect("nothing is there yet");
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(files), Arc::new(Served::of(bench.root()))];
    let content = Arc::new(Content::new(sources, Path::new("/nowhere"), 1_700_000_000));
    let (resolver, _) = door::own_certificate(&bench.at("/web")).expect("a certificate");
    let tls = door::tls(resolver).expect("TLS");
    http::start(tasks, &[(BOX, ports::CONTENT).into()], content, tls, stop);
}

/// Writes what is known of the servers, as the box does: Ironic's files and look-ups are for those whom they concern.
async fn tells_servers(api: Api, path: PathBuf) -> anyhow::Result<()> {
    let hosts = format!("/apis/metal3.io/v1alpha1/namespaces/{NAMESPACE}/baremetalhosts");
    loop {
        if let Ok(Some(all)) = api.get(&hosts).await {
            let told = all["items"].as_array().into_iter().flatten().map(ToldServer::of).collect();
            let text = serde_json::to_vec(&known_servers(&api, told).await?)?;
            files::write(&path, &text, files::PUBLIC)?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// DHCP and TFTP, on a thread of their own: dnsmasq ends with the thread that started it. `state` and `loaders` are folders,
/// `hosts` is a file that need not be there yet.
pub fn dhcp(state: &Path, loaders: PathBuf, hosts: PathBuf, stop: &CancellationToken) -> std::thread::JoinHandle<()> {
    let text =
        format!("server: {BOX}\nranges: [ {{ start: 172.22.0.10, end: 172.22.0.100, netmask: 255.255.255.0 }} ]\n");
    let segment = Segment {
        interface: BRIDGE.to_owned(),
        settings: segment::settings::Settings::parse(&text).expect("settings"),
        state_dir: state.to_owned(),
        hosts: Some(hosts),
        loaders,
        program: Tools::program_or_make("usr/sbin/dnsmasq").expect("dnsmasq is in the toolbox"),
    };
    let stop = stop.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(segment::serve(&segment, &stop, &mut |_| ())).expect("DHCP");
    })
}

/// Adds a host to the file of those that DHCP answers.
pub fn make_known(hosts: &Path, host: &Value) {
    let mut all = fs_err::read_to_string(hosts).unwrap_or_default();
    let _ = writeln!(all, "---\n{host}");
    fs_err::write(hosts, all).expect("written");
}

/// Where the box serves an OS image.
fn path_of(image: &str) -> String {
    format!("images/{image}.raw")
}
