//! Ironic, where the release declares provisioning: laid out, started by the kubelet, asked until it answers, and started
//! anew when its database is lost or the box's address has changed.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex;

use super::steps::{Outcome, Steps, blocking};
use super::{Machine, network, phase, ready};
use crate::cluster::checks::Missing;
use crate::cluster::{Node, files, manifests};
use crate::provisioning::client::{Access, Trouble};
use crate::provisioning::{Placed, Plan, database, pod};

/// Pause between two looks at what Ironic depends on.
const LOOK: Duration = Duration::from_secs(10);

/// Ironic on this box. Everybody may ask it; one at a time changes it.
#[derive(Debug)]
pub struct Ironic {
    plan: Plan,
    access: Mutex<Option<Access>>,
}

impl Ironic {
    /// None where the release does not declare it.
    pub fn of(machine: &Machine) -> Option<Self> {
        Some(Self { plan: Plan::of(machine.release(), &machine.at("/"))?, access: Mutex::new(None) })
    }

    /// Starts it, and waits until it has drivers.
    pub async fn start(&self, machine: &Machine, steps: &Steps, node: &Node) {
        let act = || async {
            let (changed, placed) = self.place(machine, node, false).await?;
            let made = placed.new_database.map(database::Reason::text);
            steps.wait(&phase::IRONIC, ready::EVERY, || self.ask()).await;
            let detail = json!({"newDatabase": made});
            Ok(if changed { Outcome::Done((), detail) } else { Outcome::Current(()) })
        };
        steps.perform(&phase::IRONIC, act).await;
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
    pub async fn ask(&self) -> Result<(), Missing> {
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

    /// Lays it out anew whenever that comes to something else: another address, a certificate that was renewed, a
    /// database that was lost. Ends only when it is dropped.
    pub async fn tend(&self, machine: &Machine, node: &Node) {
        loop {
            tokio::time::sleep(LOOK).await;
            let lost = matches!(self.drivers().await, Some(Err(Trouble::DatabaseLost(_))));
            match self.place(machine, node, lost).await {
                Ok((true, Placed { new_database: Some(reason), .. })) => {
                    log::warn!("Ironic is started with an empty database: {}", reason.text());
                }
                Ok((true, _)) => log::info!("Ironic is started anew: its address or certificate has changed"),
                Ok((false, _)) => {}
                Err(error) => log::error!("Ironic cannot be laid out: {error:#}"),
            }
        }
    }
}

fn address(plan: &Plan, own: IpAddr) -> IpAddr {
    let have = network::addresses().unwrap_or_default();
    let have: Vec<(String, IpAddr)> = have.into_iter().map(|one| (one.interface, one.address)).collect();
    plan.address(&have, own)
}
