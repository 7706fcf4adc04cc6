//! Phase `ready`: everything is really asked, in order, and what is missing is named.

use std::net::IpAddr;
use std::time::Duration;

use agent_api::boot::{MEDIUM_FAILURES, MediumFailure};
use agent_api::net::before_port;
use agent_api::ports::{CONTENT, KUBERNETES_API, REGISTRY};
use anyhow::Context;
use serde_json::{Value, json};

use super::{Machine, decide, network, phase};
use crate::cluster::api::Api;
use crate::cluster::checks;
use crate::cluster::{DNS_DOMAIN, Node, dns, kubeconfig, nth_address};
use crate::content::encode;
use crate::events::uptime;
use crate::host::addresses;
use crate::registry::Front;
use crate::registry::catalog::Repository;
use crate::services::{EVERY, Ground, Services, Turn, asked};
use crate::steps::{Missing, Step, Steps, chain};

/// Pods of the system, as the API server remembers them: etcd need not be asked each time.
const PODS: &str = "/api/v1/namespaces/kube-system/pods?resourceVersion=0";
/// How long one question through a Service address may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Waits until the Node is Ready. Returns seconds since power-on.
pub async fn node(steps: &Steps, node: &Node, api: &Api) -> f64 {
    checked(steps, &phase::NODE, || ask_node(api, node)).await;
    uptime()
}

/// Asks everything else in order.
pub async fn everything(on: Ground<'_>, api: &Api, front: &Front, services: &Services) {
    let Ground { machine, steps, node } = on;
    checked(steps, &phase::READYZ, || ask_readyz(api)).await;
    checked(steps, &phase::PODS, || async {
        ask_pods(api).await?;
        // What is asked from here on must go by kube-proxy's own rules.
        let shortcut = network::end_shortcut(machine).await;
        shortcut.map_err(|error| Missing::new("the firewall", format!("{error:#}")))
    })
    .await;
    checked(steps, &phase::DNS, || ask_dns(machine)).await;
    checked(steps, &phase::SERVICE, || ask_service(machine, node)).await;
    services.start(Turn::Last, on, api).await;
    if !front.catalog().repositories.is_empty() {
        checked(steps, &phase::IMAGES, || ask_image(front)).await;
    }
    if !machine.release().content.is_empty() {
        checked(steps, &phase::FILES, || ask_content(machine)).await;
    }
    checked(steps, &phase::MEDIUM, || std::future::ready(ask_medium(machine))).await;
}

/// The event that says that the box is ready.
pub fn tell_ready(machine: &Machine, steps: &Steps, node_ready: f64) {
    let found = decide::site_addresses(&addresses().unwrap_or_default());
    let addresses: Vec<String> = found.iter().map(IpAddr::to_string).collect();
    let usage = machine.usage().look();
    let detail = json!({
        "timings": {"nodeReady": rounded(node_ready), "ready": rounded(uptime())},
        "addresses": addresses,
        "memoryUsedMib": usage.memory_used_mib,
        "memoryPeakMib": usage.memory_peak_mib,
        "dataUsedMib": usage.data_used_mib,
        "dataPeakMib": usage.data_peak_mib,
        "dataTotalMib": usage.data_total_mib,
        "pulls": steps.bus.now().pulls,
    });
    steps.bus.done_with(phase::READY.phase, phase::READY.name, detail);
}

/// One pass over all checks: nothing, or the first that fails.
pub async fn check_once(
    machine: &Machine,
    node: &Node,
    api: &Api,
    front: &Front,
    services: &Services,
) -> Result<(), (&'static Step, Missing)> {
    ask_readyz(api).await.map_err(|missing| (&phase::READYZ, missing))?;
    ask_node(api, node).await.map_err(|missing| (&phase::NODE, missing))?;
    ask_pods(api).await.map_err(|missing| (&phase::PODS, missing))?;
    ask_dns(machine).await.map_err(|missing| (&phase::DNS, missing))?;
    ask_service(machine, node).await.map_err(|missing| (&phase::SERVICE, missing))?;
    ask_image(front).await.map_err(|missing| (&phase::IMAGES, missing))?;
    services.ask(&[Turn::Last, Turn::Behind], machine, api).await?;
    ask_content(machine).await.map_err(|missing| (&phase::FILES, missing))?;
    ask_medium(machine).map_err(|missing| (&phase::MEDIUM, missing))?;
    services.ask(&[Turn::Beside], machine, api).await
}

async fn checked<F, Fut>(steps: &Steps, step: &'static Step, mut ask: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), Missing>>,
{
    // `perform` wants to call it again after a failure; a wait never fails.
    steps.bus.started(step.phase, step.name);
    steps.wait(step, EVERY, &mut ask).await;
    steps.bus.done(step.phase, step.name);
}

async fn ask_readyz(api: &Api) -> Result<(), Missing> {
    let what = "the API server's `/readyz`";
    match api.health("/readyz?verbose").await {
        Ok((true, _)) => Ok(()),
        Ok((false, text)) => Err(Missing::new(what, checks::readyz_missing(&text))),
        Err(error) => Err(Missing::new(what, chain(&error))),
    }
}

async fn ask_node(api: &Api, node: &Node) -> Result<(), Missing> {
    match api.get(&format!("/api/v1/nodes/{}", node.name)).await {
        Ok(found) => checks::node(found.as_ref(), &node.name),
        Err(error) => Err(Missing::new("the API server", chain(&error))),
    }
}

async fn ask_pods(api: &Api) -> Result<(), Missing> {
    match api.get(PODS).await {
        Ok(found) => checks::pods(&found.unwrap_or(Value::Null)),
        Err(error) => Err(Missing::new("the API server", chain(&error))),
    }
}

async fn ask_dns(machine: &Machine) -> Result<(), Missing> {
    let name = format!("kubernetes.default.svc.{DNS_DOMAIN}");
    let what = format!("an answer for `{name}`");
    let Some(server) = nth_address(&machine.release().kubernetes.service_cidr, 10) else {
        return Err(Missing::new(what, "the Service range has no tenth address"));
    };
    match dns::lookup(server, &name, PATIENCE).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Missing::new(what, chain(&error))),
    }
}

/// A whole TLS exchange with the API server through its Service address.
async fn ask_service(machine: &Machine, node: &Node) -> Result<(), Missing> {
    let what = format!("an answer through Service address {}", node.service_address);
    let asked = async {
        let path = machine.at(kubeconfig::DIR).join(kubeconfig::SUPER_ADMIN);
        let mut parsed = kubeconfig::parse(&fs_err::read_to_string(path)?).context("the kubeconfig is damaged")?;
        parsed.server = format!("https://{}:443", before_port(&node.service_address.to_string()));
        let (good, text) = Api::new(&parsed)?.health("/readyz").await?;
        anyhow::ensure!(good, "port {KUBERNETES_API} answers: {text}");
        anyhow::Ok(())
    };
    match tokio::time::timeout(PATIENCE * 3, asked).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Missing::new(what, format!("{error:#}"))),
        Err(_) => Err(Missing::new(what, "nothing came back")),
    }
}

/// An image of the release, by a tag of it.
async fn ask_image(front: &Front) -> Result<(), Missing> {
    let tagged =
        |(name, found): (&String, &Repository)| Some(format!("{name}/manifests/{}", found.tags.keys().next()?));
    let Some(first) = front.catalog().repositories.iter().find_map(tagged) else { return Ok(()) };
    asked(REGISTRY, &format!("/v2/{first}"), "an image of the release", &[200]).await
}

/// A byte of a file of the release.
async fn ask_content(machine: &Machine) -> Result<(), Missing> {
    let Some(first) = machine.release().content.iter().find(|file| file.size > 0) else { return Ok(()) };
    let path = format!("/{}", encode(&first.path));
    asked(CONTENT, &path, "an answer of the content server", &[200, 206]).await
}

/// What the guard has found so far: a box that misses bytes of its release may fail at any time.
fn ask_medium(machine: &Machine) -> Result<(), Missing> {
    undamaged(&fs_err::read_to_string(machine.at(MEDIUM_FAILURES)).unwrap_or_default())
}

fn undamaged(failures: &str) -> Result<(), Missing> {
    let mut failures = failures.lines().filter_map(|line| serde_json::from_str::<MediumFailure>(line).ok());
    match failures.find(MediumFailure::is_in_layer) {
        Some(failure) => Err(Missing::new("another medium", format!("medium is damaged: {}", failure.message))),
        None => Ok(()),
    }
}

fn rounded(secs: f64) -> f64 {
    (secs * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::undamaged;

    #[test]
    fn a_damaged_layer_keeps_the_box_from_being_ready() {
        let line =
            |what: &str| format!(r#"{{"what":"{what}","device":"sda3","block":7,"message":"`{what}` is gone"}}"#);
        assert!(undamaged("").is_ok());
        assert!(undamaged(&line("medium")).is_ok(), "nothing of the release lies there");
        let missing = undamaged(&format!("{}\n{}\nhalf a li", line("medium"), line("os"))).expect_err("damage");
        assert_eq!(missing.why, "medium is damaged: `os` is gone");
    }
}
