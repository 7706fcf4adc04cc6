//! Real Ironic of one test: the image that the builder makes, with what the agent lays out for it.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_api::ports;
use agent_api::release::Release;
use agent_api::servers::Provisioning;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foothold::host::command::Running;
use foothold::toolbox::{Tool, Toolbox};
use foothold_agent::ironic::CALLBACK_SECS;
use foothold_agent::provisioning::client::Access;
use foothold_agent::provisioning::wire::{self, Wire};
use foothold_agent::provisioning::{IronicPlan, PlacedIronic, RUN, STATE, USER, authorities};
use foothold_tests::fixture;
use foothold_tests::service_image::ServiceImage;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Version of the API that has all of what is asked here.
pub const VERSION: (&str, &str) = ("X-OpenStack-Ironic-API-Version", "1.95");
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A box that only has what Ironic needs of it.
pub struct Bench {
    made: ServiceImage,
    root: TempDir,
    plan: IronicPlan,
    address: IpAddr,
    port: u16,
    /// Whether servers run an imitation of the ramdisk, which does not speak TLS, and is waited for no longer than ninety
    /// seconds.
    pub imitated: bool,
}

impl Bench {
    /// On a free port of the loopback address.
    pub fn on_loopback() -> Self {
        let free = TcpListener::bind((LOOPBACK, 0)).expect("a port").local_addr().expect("an address");
        let made = ServiceImage::ironic().unwrap_or_else(|error| panic!("making the image: {error:#}"));
        Self::new(made, LOOPBACK, free.port())
    }

    /// For servers of a segment, in a network namespace of its own.
    pub fn on_segment(made: ServiceImage, address: Ipv4Addr) -> Self {
        Self::new(made, address.into(), ports::IRONIC)
    }

    fn new(made: ServiceImage, address: IpAddr, port: u16) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let services = root.path().join("usr/share/foothold/services");
        fs_err::create_dir_all(&services).expect("a folder");
        for (name, blob) in &made.exports {
            fs_err::copy(blob, services.join(name)).expect("copied");
        }
        let release = Release {
            images: vec![made.image.clone()],
            provisioning: Some(Provisioning::default()),
            ..fixture::release()
        };
        let plan = IronicPlan::of(&release, Provisioning::default(), root.path()).expect("it is declared");
        Self { made, root, plan, address, port, imitated: false }
    }

    /// Loaders of network boot, of the image.
    pub fn loaders(&self) -> PathBuf {
        self.made.tree.path().join("usr/lib/ipxe")
    }

    /// Where the box's files are.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// What the agent lays out, with another port.
    pub fn place(&self, lost: bool) -> PlacedIronic {
        let mut placed = self.plan.place(self.address, lost).expect("laid out");
        let path = self.at(RUN).join("ironic.conf");
        let mut text = fs_err::read_to_string(&path).expect("text");
        if self.port != ports::IRONIC {
            placed.access.port = self.port;
            // Nobody stands before it.
            text = text.replace(&format!("port = {}", ports::IRONIC_LOOPBACK), &format!("port = {}", self.port));
        }
        if self.imitated {
            text = text.replace("[agent]\n", "[agent]\nrequire_tls = false\n");
            text = text.replace(&format!("_timeout = {CALLBACK_SECS}"), "_timeout = 90");
        }
        fs_err::write(&path, text).expect("written");
        placed
    }

    /// Starts who stands before Ironic on the box, for servers of the /24 that this one's address is in. It is laid out already.
    pub fn stand_before_ironic(&self, tasks: &mut JoinSet<anyhow::Result<()>>, stop: &CancellationToken) {
        let segment = self.at(wire::SEGMENT);
        fs_err::create_dir_all(segment.parent().expect("a folder")).expect("a folder");
        fs_err::write(segment, format!("{}/24\n", self.address)).expect("written");
        let server = self.at(RUN).join("server.pem");
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&server).expect("certificates").collect();
        let key = PrivateKeyDer::from_pem_file(&server).expect("a key");
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain.expect("certificates"), key);
        let gate = wire::Gate::new(Wire::of(self.root()), ports::IRONIC_LOOPBACK).expect("a client");
        wire::start(tasks, &[(Ipv4Addr::UNSPECIFIED, ports::IRONIC).into()], gate, tls.expect("TLS"), stop);
    }

    /// Has Ironic trust BMCs whose certificates these sign, as the box does by their hosts' Secrets.
    pub fn trust(&self, own: &str, signers: &[&str]) {
        let secret = |pem: &&str| json!({"data": {"username": "", "password": "", "ca.crt": STANDARD.encode(pem)}});
        let named = |pem| authorities::of_secret(&secret(pem)).expect("a BMC's").expect("authorities");
        let found = signers.iter().flat_map(named).collect();
        self.plan.trust(own, &found).expect("written");
    }

    /// A program of the image, as the pod's user, with the pod's folders.
    pub fn tool<'a>(&self, toolbox: &'a Toolbox, argv: &[&str]) -> Tool<'a> {
        let user = USER.to_string();
        let tool = toolbox.tool("/usr/bin/setpriv").args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        // Another user does not end with its parent unless it says so anew.
        let tool = tool.args(["--pdeathsig", "KILL"]);
        let authority = Path::new("/etc/ssl/certs/ca-certificates.crt");
        tool.args(argv)
            .bind(&self.at(RUN), Path::new(RUN), false)
            .bind(&self.at(RUN).join("ca.crt"), authority, false)
            .bind(&self.at(STATE), Path::new(STATE), true)
    }

    pub fn toolbox(&self) -> Toolbox {
        Toolbox::at(self.made.tree.path(), &self.made.helper)
    }

    pub fn start(&self) -> Running {
        let (toolbox, config) = (self.toolbox(), format!("{RUN}/ironic.conf"));
        self.tool(&toolbox, &["/usr/bin/ironic", "--config-file", &config]).start().expect("started")
    }
}

/// Waits until it has drivers. An Ironic that has ended says why.
pub async fn drivers(access: &Access, ironic: &mut Running) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let trouble = match access.drivers().await {
            Ok(drivers) => return drivers,
            Err(trouble) => trouble,
        };
        if let Some(words) = ironic.ended() {
            panic!("Ironic has ended: {words}");
        }
        assert!(begin.elapsed() < PATIENCE, "no drivers: {trouble:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
