//! Finds a host for a claim, keeps it as the claim says, and gives it back.

use std::sync::Arc;
use std::time::Duration;

use agent_api::metal3::annotations::REBOOT;
use agent_api::metal3::host_claim::FINALIZER;
use agent_api::metal3::{BareMetalHost, HostClaim, ProvisioningState};
use kube::ResourceExt as _;
use serde_json::json;

use super::controller::Controller;
use super::decide::choose;
use super::tell::Told;
use super::{is_of, reference, secrets, wishes};
use crate::operators::kit::{Next, Object as _, ObjectError};
use crate::steps::chain;

/// Until a claim without a host looks for one again: labels of namespaces are not watched.
const SEARCH: Duration = Duration::from_secs(30);
/// Until the Secrets of a host that is not provisioned yet are compared again: they are not watched.
const SECRETS: Duration = Duration::from_secs(30);
/// After somebody else took the host.
const AGAIN: Duration = Duration::from_millis(200);

impl Controller {
    /// Finds a host, and makes it the claim's unless it was changed since it was seen.
    pub(super) async fn find(&self, claim: &HostClaim) -> Result<Next, ObjectError> {
        let namespaces = self.namespaces(claim).await?;
        let hosts: Vec<Arc<BareMetalHost>> = self.common.hosts.state();
        let found = match choose(claim, &hosts, &namespaces) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let had = claim.status.as_ref().is_some_and(|status| status.bare_metal_host.is_some());
                let told = if had {
                    Told::Associated(false, "MissingBareMetalHost", "the claim's host is gone".to_owned())
                } else {
                    let why = "no host is available that is as the claim asks for, in a namespace that admits it";
                    Told::Associated(false, "NoBareMetalHost", why.to_owned())
                };
                self.tell(claim, None, vec![told]).await?;
                return Ok(Next::requeue(SEARCH));
            }
            Err(why) => {
                self.tell(claim, None, vec![Told::Associated(false, "NoBareMetalHost", why)]).await?;
                return Ok(Next::await_change());
            }
        };
        let host = if is_of(&found, claim) {
            (*found).clone()
        } else {
            let change = json!({"spec": {"consumerRef": reference(claim)}});
            match self.common.base.objects.merge(&*found, change).await {
                Ok(host) => host,
                Err(error) if error.is_stale() || error.is_gone() => return Ok(Next::requeue(AGAIN)),
                Err(error) => return Err(error),
            }
        };
        log::info!("HostClaim `{}/{}` has the host `{}/{}`", claim.key().0, claim.key().1, host.key().0, host.key().1);
        self.keep(claim, &host).await
    }

    /// Keeps the host as the claim says.
    pub(super) async fn keep(&self, claim: &HostClaim, host: &BareMetalHost) -> Result<Next, ObjectError> {
        let associated = || Told::Associated(true, "BareMetalHostAssociated", String::new());
        let data = match secrets::provide(&self.common, claim, host).await? {
            Ok(data) => data,
            Err(lack) => {
                let lacking = Told::Synchronized(false, lack.role.failure(), lack.why);
                self.tell(claim, Some(host), vec![associated(), lacking]).await?;
                return Ok(Next::requeue(SECRETS));
            }
        };
        let needless = secrets::needless(claim, host);
        let (spec, annotations) = (wishes::changes(claim, host, &data), wishes::reboots(claim, host));
        if !spec.is_empty() || !annotations.is_empty() {
            let change = json!({"spec": spec, "metadata": {"annotations": annotations}});
            match self.common.base.objects.merge(host, change).await {
                Ok(_) => {}
                Err(error) if error.is_stale() || error.is_gone() => return Ok(Next::requeue(AGAIN)),
                Err(error) => {
                    let why = format!("the host cannot be changed: {}", chain(&error));
                    let not = Told::Synchronized(false, "BareMetalHostNotSynchronized", why);
                    self.tell(claim, Some(host), vec![associated(), not]).await?;
                    return Ok(Next::requeue(SEARCH));
                }
            }
        }
        secrets::remove(&self.common, host, &needless).await?;
        // The one-time reboot is the host's now.
        if claim.annotations().contains_key(REBOOT) {
            self.common.base.objects.merge(claim, json!({"metadata": {"annotations": {REBOOT: null}}})).await?;
        }
        let synchronized = Told::Synchronized(true, "ConfigurationSynced", String::new());
        self.tell(claim, Some(host), vec![associated(), synchronized]).await?;
        // What is copied is read once, when the host is provisioned.
        let open = secrets::has_copies(claim, host) && host.state() != ProvisioningState::Provisioned;
        Ok(if open { Next::requeue(SECRETS) } else { Next::await_change() })
    }

    /// Gives the host back, clean.
    pub(super) async fn leave(&self, claim: &HostClaim) -> Result<Next, ObjectError> {
        if !claim.held_by(FINALIZER) {
            return Ok(Next::await_change());
        }
        let host = match self.host(claim).await? {
            Some(host) => Some(host),
            // The status may not say yet what the host does.
            None => match self.common.hosts.state().into_iter().find(|host| is_of(host, claim)) {
                Some(host) => self.common.host(&host.key().0, &host.key().1).await?,
                None => None,
            },
        };
        if let Some(host) = host.filter(|host| is_of(host, claim)) {
            let cleared = wishes::cleared(&host);
            let clean = wishes::is_clean(&host);
            if !cleared.is_empty() {
                self.common.base.objects.merge(&host, json!({"spec": cleared})).await?;
            }
            if !cleared.is_empty() || !clean {
                let why = "the host is being deprovisioned".to_owned();
                self.tell(claim, Some(&host), vec![Told::Associated(false, "HostClaimDeleting", why)]).await?;
                return Ok(Next::requeue(SEARCH));
            }
            secrets::remove(&self.common, &host, secrets::all(claim, &host)).await?;
            self.common.base.objects.merge(&host, json!({"spec": {"consumerRef": null}})).await?;
        }
        self.common.base.objects.let_go(claim, FINALIZER).await?;
        Ok(Next::await_change())
    }
}
