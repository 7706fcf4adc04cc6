//! `foothold simulate`: a site on this machine, until the user ends it.
//!
//! ```text
//! SITE.yaml ─► Simulation ─► Site: namespace, BMCs, servers that are off ─► manifests, addresses
//!                        └─► the box, with one more card on the same network ─► kubeconfig
//! ```

mod manifests;
mod site;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use foothold_qemu::Nic;
use serde_json::{Value, json};

use self::site::{Ground, Site};
use super::common::builder;
use super::machine::{self, Plan, Session};
use crate::builder::Builder;
use crate::cli::{self, MachineFirmware, Network};
use crate::config::simulation::{self, Firmware, SimulatedBox, Simulation};
use crate::host::files::write_whole;
use crate::report::{CommandError, Outcome, Report, shell_word};

/// Programs of the toolbox that a site takes beside QEMU; an old toolbox lacks them.
const PROGRAMS: [&str; 2] = ["usr/bin/ip", "usr/bin/ipmi_sim"];
/// How often it is looked whether a machine is on.
const LOOKS: Duration = Duration::from_millis(200);

/// Runs the site until the user ends it.
pub fn run(args: &cli::Simulate, report: &Report) -> Result<Outcome, CommandError> {
    let plan = simulation::load(&args.file)?;
    let at = builder(&args.sources, report)?;
    let tools = machine::tools_with(&at, &PROGRAMS)?;
    let accel = machine::accelerator(&at, &tools)?;
    let work = at.cache.work_dir()?;
    let consoles = args.consoles.clone().unwrap_or_else(|| work.path().join("consoles"));
    fs_err::create_dir_all(&consoles)?;
    let ground = Ground { tools, accel, dir: work.path().to_owned(), consoles: fs_err::canonicalize(consoles)? };
    let step = report.step("simulate", "site");
    let site = Site::start(&plan, &ground)?;
    let told = tell(&plan, &site, &ground);
    let objects: Vec<Value> = told["manifests"].as_array().cloned().unwrap_or_default();
    let manifests = manifests::yaml(&objects, plan.namespace.as_str())?;
    if let Some(file) = &args.manifests {
        // Passwords are in them.
        write_whole(file, manifests.as_bytes()).with_context(|| format!("writing `{}`", file.display()))?;
    }
    step.done_with(told.as_object().cloned().unwrap_or_default());
    if args.manifests.is_none() {
        report.data(&manifests);
    }
    explain(report, args.manifests.as_deref(), &told);
    let mut session = plan.appliance.as_ref().map(|it| start_box(&at, it, &site)).transpose()?;
    let ready = match &mut session {
        None => None,
        Some(session) => {
            session.tell_access(report);
            let event = session.until_ready(report, None)?;
            Some(session.outcome(&at, &event)?)
        }
    };
    if let Some(ready) = &ready {
        report.info(&ready.to_string());
    }
    report.info("the site runs until you press Ctrl-C");
    watch(report, &site, session.as_ref())?;
    Ok(Outcome::Data { kind: "simulation", data: told })
}

/// The box, on the network of the site, and with one of its own whose ports are forwarded from loopback.
fn start_box(at: &Builder, plan: &SimulatedBox, site: &Site) -> Result<Session> {
    let cable = site.cable.as_ref().context("the box has no cable")?;
    let nics = [Nic::device(cable).mac(plan.mac.as_str())];
    let plan = Plan {
        image: &plan.image,
        attach: None,
        firmware: match plan.firmware {
            Firmware::Bios => MachineFirmware::Bios,
            Firmware::Uefi => MachineFirmware::Uefi,
        },
        memory: plan.memory,
        cpus: plan.cpus,
        network: Network::User,
        nics: &nics,
        clock: None,
        site: plan.site.as_deref(),
        overlay: None,
    };
    machine::start(at, &plan)
}

/// What there is, for programs.
fn tell(plan: &Simulation, site: &Site, ground: &Ground) -> Value {
    let addresses = plan.servers.iter().zip(&site.servers);
    let addresses: Vec<_> = addresses.map(|(plan, server)| (plan, server.address(&manifests::scheme(plan)))).collect();
    let servers: Vec<Value> = addresses
        .iter()
        .map(|(server, address)| {
            let name = server.name.as_str();
            json!({ "name": name, "mac": server.mac, "bmc": address, "console": ground.console(name) })
        })
        .collect();
    let objects =
        addresses.iter().flat_map(|(server, address)| manifests::objects(server, plan.namespace.as_str(), address));
    json!({ "servers": servers, "manifests": objects.collect::<Vec<_>>(), "namespace": site.namespace() })
}

/// The same for people.
fn explain(report: &Report, manifests: Option<&Path>, told: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for server in told["servers"].as_array().into_iter().flatten() {
        let [name, mac, bmc, console] = ["name", "mac", "bmc", "console"].map(|key| text(&server[key]));
        report.info(&format!("{name}  {mac}  {bmc}  console {console}"));
    }
    report.info(&format!("from this machine: nsenter --net={} COMMAND", text(&told["namespace"])));
    if let Some(file) = manifests {
        report.info(&format!("hosts and their Secrets: kubectl apply -f {}", shell_word(file)));
    }
}

/// Says what is switched on and off until the user, or the box, ends it.
fn watch(report: &Report, site: &Site, session: Option<&Session>) -> Result<()> {
    use foothold_qemu::bmc::Power as _;
    let mut on = vec![false; site.servers.len()];
    while !report.cancel().is_cancelled() {
        for (server, was) in site.servers.iter().zip(&mut on) {
            let is = server.power().is_on();
            if is != *was {
                *was = is;
                report.happened(server.name(), if is { "on" } else { "off" });
            }
        }
        if session.is_some_and(|session| session.vm.exited().is_some()) {
            anyhow::bail!("the box has ended");
        }
        crate::host::command::pause(LOOKS);
    }
    Ok(())
}
