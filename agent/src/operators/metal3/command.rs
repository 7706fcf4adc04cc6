//! `foothold-agent operator baremetalhost`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::baremetalhost::Limits;
use super::common::{Pace, Ramdisk};
use super::run::{Settings, run};
use crate::ironic;
use crate::operators::kit::command::{self, variable};
use crate::provisioning::client::MEDIA;

/// Hosts that are worked on at a time, as metal3's operator has it.
const PROVISIONING_LIMIT: usize = 20;

/// A BMC that something waits for is asked so often: each time with a session of its own, of which it has few.
const PULSE: Duration = Duration::from_secs(30);

/// What `operator baremetalhost` takes. Where metal3's operator has a variable of the environment for the same setting,
/// that is taken when the option is absent.
#[derive(Debug, Args)]
pub struct BareMetalHosts {
    /// Kubeconfig; without it that of the pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the hosts, all without it (`WATCH_NAMESPACE`).
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// URL of Ironic (`IRONIC_ENDPOINT`).
    #[arg(long, value_name = "URL")]
    ironic: Option<String>,
    /// Trust an Ironic whose certificate these sign, in PEM (`IRONIC_CACERT_FILE`).
    #[arg(long, value_name = "FILE")]
    ironic_ca: Option<PathBuf>,
    /// Folder with the files `username` and `password` for Ironic (`METAL3_AUTH_ROOT_DIR`, then with `/ironic`). Those of a
    /// box have `external-http-url`, too: below it BMCs fetch virtual media, by TLS.
    #[arg(long, value_name = "DIR")]
    ironic_auth: Option<PathBuf>,
    /// Check BMCs' certificates against the authorities in this file of Ironic's machine.
    #[arg(long, value_name = "FILE")]
    bmc_authorities: Option<String>,
    /// Kernel of the ramdisk, when it is not Ironic's own (`DEPLOY_KERNEL_URL`).
    #[arg(long, value_name = "URL")]
    deploy_kernel: Option<String>,
    /// Initial ramdisk, when it is not Ironic's own (`DEPLOY_RAMDISK_URL`).
    #[arg(long, value_name = "URL")]
    deploy_ramdisk: Option<String>,
    /// Ramdisk as an ISO image, for virtual media and UEFI HTTP boot (`DEPLOY_ISO_URL`).
    #[arg(long, value_name = "URL")]
    deploy_iso: Option<String>,
    /// Hosts get the ramdisks that are made for them as `PreprovisioningImage`s: these, or those of another controller.
    #[arg(long)]
    build_preprov_image: bool,
    /// Hosts inspected, provisioned and deprovisioned at a time (`PROVISIONING_LIMIT`) [default: 20].
    #[arg(long, value_name = "N")]
    provisioning_limit: Option<usize>,
    /// Hosts decided on at a time (`BMO_CONCURRENCY`) [default: processors, 2 to 8].
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// Tries to provision an image.
    #[arg(long, value_name = "N", default_value_t = Limits::default().provisioning_tries)]
    max_provisioning_retries: i64,
    /// Where metrics and health are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8085")]
    metrics_address: SocketAddr,
    /// Where the API server asks what is admitted, as it reaches it; without it the API server is not told to ask.
    #[arg(long, value_name = "ADDRESS:PORT")]
    webhook_address: Option<SocketAddr>,
    /// ClusterRole with which the API server forgets that; with `--namespace` it is the namespace.
    #[arg(long, value_name = "NAME", requires = "webhook_address")]
    webhook_owner: Option<String>,
    /// File in which the box writes signs of life of hosts; they show how far a host is.
    #[arg(long, value_name = "FILE")]
    signs: Option<PathBuf>,
}

/// Where BMCs fetch virtual media of the Ironic whose credentials are in this folder, if it says so.
fn external_http_url(auth: &Path) -> anyhow::Result<Option<String>> {
    match fs_err::read_to_string(auth.join(MEDIA)) {
        Ok(url) => Ok(Some(url.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl BareMetalHosts {
    fn settings(&self) -> anyhow::Result<Settings> {
        let ironic = self.ironic.clone().map_or_else(|| variable("IRONIC_ENDPOINT"), |url| Ok(Some(url)))?;
        let ironic = ironic.context("no Ironic: neither `--ironic` nor `IRONIC_ENDPOINT`")?;
        let file = |given: &Option<PathBuf>, name: &str| -> anyhow::Result<Option<PathBuf>> {
            given.clone().map_or_else(|| variable(name), |path| Ok(Some(path)))
        };
        let url = |given: &Option<String>, name: &str| -> anyhow::Result<Option<String>> {
            given.clone().map_or_else(|| variable(name), |url| Ok(Some(url)))
        };
        let ca = file(&self.ironic_ca, "IRONIC_CACERT_FILE")?;
        let root: Option<PathBuf> = variable("METAL3_AUTH_ROOT_DIR")?;
        let auth = self.ironic_auth.clone().or_else(|| root.map(|root| root.join("ironic")));
        let processors = std::thread::available_parallelism().map_or(2, |all| u16::try_from(all.get()).unwrap_or(8));
        let limit = self.provisioning_limit.map_or_else(|| variable("PROVISIONING_LIMIT"), |limit| Ok(Some(limit)))?;
        let workers = self.workers.map_or_else(|| variable("BMO_CONCURRENCY"), |workers| Ok(Some(workers)))?;
        Ok(Settings {
            kubeconfig: self.kubeconfig.clone(),
            namespace: url(&self.namespace, "WATCH_NAMESPACE")?,
            ironic: ironic::Settings::from_files(&ironic, ca.as_deref(), auth.as_deref().map(Path::new))?,
            bmc_authorities: self.bmc_authorities.clone(),
            external_http_url: auth.as_deref().map(external_http_url).transpose()?.flatten(),
            ramdisk: Ramdisk {
                kernel: url(&self.deploy_kernel, "DEPLOY_KERNEL_URL")?,
                initrd: url(&self.deploy_ramdisk, "DEPLOY_RAMDISK_URL")?,
                iso: url(&self.deploy_iso, "DEPLOY_ISO_URL")?,
                kernel_params: None,
            },
            preprovisioning_images: self.build_preprov_image,
            provisioning_limit: limit.unwrap_or(PROVISIONING_LIMIT).max(1),
            workers: workers.unwrap_or_else(|| processors.clamp(2, 8)).max(1),
            limits: Limits { provisioning_tries: self.max_provisioning_retries.max(1) },
            pace: Pace::default(),
            serve: Some(self.metrics_address),
            webhook: self.webhook_address,
            webhook_owner: self.webhook_owner.clone(),
            pulse: Some(PULSE),
            signs: self.signs.clone(),
        })
    }

    /// Runs until a signal ends it.
    pub fn run(&self) -> anyhow::Result<()> {
        let settings = self.settings()?;
        command::run(async move |stop| run(&settings, &stop).await)
    }
}
