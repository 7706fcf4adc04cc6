//! Provisioning, where the release declares it. Ironic: laid out, started by the kubelet, asked until it answers, and
//! started anew when its database is lost or the box's address has changed. Then the controller of `BareMetalHost`s.
//! Beside them DHCP, in [`super::dhcp`].

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ApiResource;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::dhcp::{self, Dhcp};
use super::{Machine, phase, ready};
use crate::cluster::api::Api;
use crate::cluster::follow::Kept;
use crate::cluster::{Node, files, manifests, objects};
use crate::host;
use crate::provisioning::authorities::Certificates;
use crate::provisioning::client::{Access, Trouble};
use crate::provisioning::dhcp::IMAGE as DHCP_IMAGE;
use crate::provisioning::{Placed, Plan, authorities, database, kept, operator, pod};
use crate::steps::{Missing, Outcome, Step, Steps, blocking};

/// How long networkd may need for an address that is not asked of anybody.
const ADDRESSED_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks at what Ironic depends on.
const LOOK: Duration = Duration::from_secs(10);
/// Pause between two looks at files that nobody needs any more.
const TIDY: Duration = Duration::from_secs(600);

/// All of it on this box.
#[derive(Debug)]
pub struct Provisioning {
    ironic: Ironic,
    dhcp: Option<Dhcp>,
}

impl Provisioning {
    /// None where the release does not declare it.
    pub fn of(machine: &Machine) -> Option<Self> {
        let plan = Plan::of(machine.release(), machine.provisioning()?.clone(), &machine.at("/"))?;
        let image = |name: &str| machine.release().image(name).map(|image| image.reference.clone());
        let operator = image(operator::IMAGE)?;
        let dhcp = image(DHCP_IMAGE).and_then(|image| Dhcp::of(&plan, image));
        Some(Self { ironic: Ironic { plan, operator, access: Mutex::new(None) }, dhcp })
    }

    /// Before anybody can be served: what Ironic had not finished when the box was switched off is not given to a server.
    pub async fn look_through(machine: &Machine) {
        let at = machine.clone();
        match blocking(move || Ok(kept::look_through(&at.at("/"), &at.release().content)?)).await {
            Ok(gone) => {
                for path in gone {
                    log::warn!("`{}` was not whole after the box was switched off, and is gone", path.display());
                }
            }
            Err(error) => log::error!("looking through what Ironic had made for servers: {error:#}"),
        }
    }

    /// Whether this release has that step.
    pub fn has(&self, step: &Step) -> bool {
        *step != phase::DHCP || self.dhcp.is_some()
    }

    /// Starts Ironic, which needs no cluster but its kubelet, and waits until it answers.
    pub async fn start_ironic(&self, machine: &Machine, steps: &Steps, node: &Node) {
        self.ironic.start(machine, steps, node).await;
    }

    /// Starts what needs a cluster, and waits until it answers.
    pub async fn start_beside(&self, machine: &Machine, steps: &Steps, api: &Api) {
        let dhcp = async {
            if let Some(dhcp) = &self.dhcp {
                dhcp.start(machine, steps, api).await;
            }
        };
        tokio::join!(self.ironic.start_operator(steps, api), dhcp);
    }

    /// Whether all of it answers; else the step that does not.
    pub async fn ask(&self, machine: &Machine, api: &Api) -> Result<(), (&'static Step, Missing)> {
        if !kept::mark(&machine.at("/")).exists() {
            let why = "a folder or file in it can be neither read nor removed; servers are given none of it";
            return Err((&phase::IRONIC, Missing::new("what Ironic had made before the box was switched on", why)));
        }
        self.ironic.ask().await.map_err(|missing| (&phase::IRONIC, missing))?;
        Ironic::ask_operator(api).await.map_err(|missing| (&phase::OPERATOR, missing))?;
        if self.dhcp.is_some() {
            dhcp::answers(machine).map_err(|missing| (&phase::DHCP, missing))?;
        }
        Ok(())
    }

    /// Keeps it right. Ends only when it is dropped.
    pub async fn tend(&self, machine: &Machine, steps: &Steps, node: &Node) {
        let dhcp = async {
            if let Some(dhcp) = &self.dhcp {
                dhcp.tend(machine, steps, node).await;
            }
        };
        let kept = async {
            loop {
                tokio::time::sleep(TIDY).await;
                Self::look_through(machine).await;
                let at = machine.clone();
                if let Err(error) = blocking(move || Ok(kept::tidy(&at.at("/"), SystemTime::now())?)).await {
                    log::warn!("removing what Ironic does not need any more: {error:#}");
                }
            }
        };
        tokio::join!(self.ironic.tend(machine, node), self.ironic.tend_authorities(machine), dhcp, kept);
    }
}

/// Ironic and its controller on this box. Everybody may ask it; one at a time changes it.
#[derive(Debug)]
struct Ironic {
    plan: Plan,
    operator: String,
    access: Mutex<Option<Access>>,
}

impl Ironic {
    /// Starts it, and waits until it has drivers.
    async fn start(&self, machine: &Machine, steps: &Steps, node: &Node) {
        let act = || async {
            self.until_addressed().await;
            let (changed, placed) = self.place(machine, node, false).await?;
            let made = placed.new_database.map(database::Reason::text);
            steps.wait(&phase::IRONIC, ready::EVERY, || self.ask()).await;
            let detail = json!({"newDatabase": made});
            Ok(if changed { Outcome::Done((), detail) } else { Outcome::Current(()) })
        };
        steps.perform(&phase::IRONIC, act).await;
    }

    /// Waits for the box's own address where the servers are, for Ironic is started anew with each other one. Without its
    /// interface there is none.
    async fn until_addressed(&self) {
        let begun = Instant::now();
        while self.plan.declared.address.is_some() && begun.elapsed() < ADDRESSED_WITHIN {
            if self.plan.segment(&addresses()).is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Starts the controller, and waits until it is there.
    async fn start_operator(&self, steps: &Steps, api: &Api) {
        let act = || async {
            let laid_out = || async {
                let access = self.access.lock().await;
                access.as_ref().map(drop).ok_or_else(|| Missing::new("Ironic", "it is not laid out yet"))
            };
            steps.wait(&phase::OPERATOR, ready::EVERY, laid_out).await;
            let made = self.place_operator(api).await?;
            steps.wait(&phase::OPERATOR, ready::EVERY, || Self::ask_operator(api)).await;
            Ok(if made > 0 { Outcome::Done((), json!({"objects": made})) } else { Outcome::Current(()) })
        };
        steps.perform(&phase::OPERATOR, act).await;
    }

    /// Brings its objects up to date. Returns how many are new.
    async fn place_operator(&self, api: &Api) -> anyhow::Result<usize> {
        let access = self.access.lock().await.clone();
        let access = access.ok_or_else(|| anyhow::anyhow!("Ironic is not laid out yet"))?;
        let mut made = 0;
        for placed in operator::objects(&self.operator, &access)? {
            made += usize::from(objects::apply(api, &placed).await?);
        }
        Ok(made)
    }

    /// Whether the controller is there.
    async fn ask_operator(api: &Api) -> Result<(), Missing> {
        let found = api.get(operator::DEPLOYMENT).await;
        operator::available(found.map_err(|error| Missing::new("the API server", error.to_string()))?.as_ref())
    }

    /// Lays out everything, the pod's manifest last. Returns whether the pod is another one now.
    async fn place(&self, machine: &Machine, node: &Node, lost: bool) -> anyhow::Result<(bool, Placed)> {
        let mut access = self.access.lock().await;
        let (plan, machine, own) = (self.plan.clone(), machine.clone(), node.advertise);
        let (changed, placed) = blocking(move || {
            let placed = plan.place(address(&plan, own), lost)?;
            let path = machine.at(manifests::DIR).join(pod::MANIFEST);
            Ok((files::write(&path, placed.manifest.as_bytes(), files::SECRET)?, placed))
        })
        .await?;
        *access = Some(placed.access.clone());
        Ok((changed, placed))
    }

    /// Whether it has drivers.
    async fn ask(&self) -> Result<(), Missing> {
        match self.drivers().await {
            None => Err(Missing::new("Ironic", "it is not laid out yet")),
            Some(Err(trouble)) => Err(Missing::new("an answer of Ironic", trouble.why())),
            Some(Ok(_)) => Ok(()),
        }
    }

    async fn drivers(&self) -> Option<Result<Vec<String>, Trouble>> {
        let access = self.access.lock().await.clone()?;
        Some(access.drivers().await)
    }

    /// Has it trust whom the Secrets of hosts' BMCs say. Ends only when it is dropped.
    async fn tend_authorities(&self, machine: &Machine) {
        let mut told = Vec::new();
        let tell = |kept: &Kept<Result<Certificates, String>>| {
            let found: Certificates = kept.values().flatten().flatten().cloned().collect();
            let problems: Vec<String> = kept.values().filter_map(|one| one.as_ref().err()).cloned().collect();
            for problem in problems.iter().filter(|problem| !told.contains(*problem)) {
                log::warn!("{problem}");
            }
            told = problems;
            self.trust(found)
        };
        let kind = ApiResource::erase::<Secret>(&());
        let not = "Ironic is not told of the authorities of BMCs";
        machine.follow(&kind, not, authorities::of_secret, tell).await;
    }

    async fn trust(&self, found: Certificates) -> anyhow::Result<()> {
        let access = self.access.lock().await.clone().context("Ironic is not laid out yet")?;
        let (plan, count) = (self.plan.clone(), found.len());
        if blocking(move || plan.trust(&access.authority, &found)).await? {
            log::info!("Ironic trusts {count} authorities of BMCs");
        }
        Ok(())
    }

    /// Lays it out anew whenever that comes to something else: another address, a certificate that was renewed, a
    /// database that was lost. Ends only when it is dropped.
    async fn tend(&self, machine: &Machine, node: &Node) {
        loop {
            tokio::time::sleep(LOOK).await;
            let lost = matches!(self.drivers().await, Some(Err(Trouble::DatabaseLost(_))));
            match self.place(machine, node, lost).await {
                Ok((true, placed)) => {
                    match placed.new_database {
                        Some(reason) => log::warn!("Ironic is started with an empty database: {}", reason.text()),
                        None => log::info!("Ironic is started anew: its address or certificate has changed"),
                    }
                    // Its authority may be another one.
                    let placed = async { self.place_operator(&machine.api()?).await };
                    if let Err(error) = placed.await {
                        log::error!("the controller of BareMetalHosts is not told: {error:#}");
                    }
                }
                Ok((false, _)) => {}
                Err(error) => log::error!("Ironic cannot be laid out: {error:#}"),
            }
        }
    }
}

fn address(plan: &Plan, own: IpAddr) -> IpAddr {
    plan.address(&addresses(), own)
}

/// The box's addresses now, by name of the interface.
pub(super) fn addresses() -> Vec<(String, IpAddr)> {
    let have = host::addresses().unwrap_or_default();
    have.into_iter().map(|one| (one.interface, one.address)).collect()
}
