//! `foothold simulate`: a site on this machine, until the user ends it.
//!
//! ```text
//! SITE.yaml ─► Simulation ─► Site: namespace, BMCs, servers that are off ─► manifests, addresses
//!                        └─► the box, with one more card on the same network ─► kubeconfig
//!                             └─► Story: what is applied, what is waited for ─► stages, conditions
//! ```

mod manifests;
mod site;
mod story;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use foothold_qemu::Nic;
use serde_json::{Value, json};
use ssh_key::{Algorithm, LineEnding, PrivateKey};

use self::site::{Ground, Site};
use self::story::Story;
use super::build::build;
use super::common::{Job, builder};
use super::machine::{self, Plan, Session};
use crate::builder::Builder;
use crate::cli::{self, MachineFirmware, Network};
use crate::config::Format;
use crate::config::simulation::{self, BoxImage, Firmware, SimulatedBox, Simulation};
use crate::error::WrongUsage;
use crate::host::command::pause;
use crate::host::files::{is_same, write_whole};
use crate::report::{CommandError, Outcome, Report, SimulatedStage, shell_word};

/// Programs of the toolbox that a site takes beside QEMU; an old toolbox lacks them.
const PROGRAMS: [&str; 2] = ["usr/bin/ip", "usr/bin/ipmi_sim"];
/// How often it is looked whether a machine is on.
const LOOKS: Duration = Duration::from_millis(200);

/// Runs the site until the user ends it, or until the last condition is met.
pub fn run(args: &cli::Simulate, report: &Report) -> Result<Outcome, CommandError> {
    let plan = simulation::load(&args.file)?;
    if args.until.is_some() && plan.until.is_empty() {
        let message = format!("`{}` has no `until`, so `--until done` never ends", args.file.display());
        let hint = "name conditions in `until`, or leave the flag out".to_owned();
        return Err(WrongUsage { message, hint }.into());
    }
    if args.manifests.as_ref().is_some_and(|file| is_same(file, &args.file)) {
        let message = format!("`{}` is the site itself: the manifests would take its place", args.file.display());
        return Err(WrongUsage { message, hint: "name another file for `--manifests`".to_owned() }.into());
    }
    let builds = plan.appliance.as_ref().is_some_and(|it| matches!(it.image, BoxImage::Definition(_)));
    if args.agent.development && !builds {
        let message = format!("`{}` names no definition, so there is no agent to compile", args.file.display());
        let hint = "name a definition in `box.definition`, or leave `--development` out".to_owned();
        return Err(WrongUsage { message, hint }.into());
    }
    let at = Builder { agent: args.agent.profile(), ..builder(&args.sources, report)? };
    let mut stages = Vec::new();
    let begun = Instant::now();
    let image = plan.appliance.as_ref().map(|it| image_of(&at, &it.image)).transpose()?;
    if builds {
        stages.push(SimulatedStage { name: "build".to_owned(), secs: begun.elapsed().as_secs_f64() });
    }
    let tools = machine::tools_with(&at, &PROGRAMS)?;
    let accel = machine::accelerator(&at, &tools)?;
    let work = at.cache.work_dir()?;
    let consoles = args.consoles.clone().unwrap_or_else(|| work.path().join("consoles"));
    fs_err::create_dir_all(&consoles)?;
    let ground = Ground { tools, accel, dir: work.path().to_owned(), consoles: fs_err::canonicalize(consoles)? };
    let step = report.step("simulate", "site");
    let site = Site::start(&plan, &ground)?;
    let key = new_key()?;
    let told = tell(&plan, &site, &ground, images(&plan, image.as_deref())?.as_deref(), &key);
    let objects: Vec<Value> = told["manifests"].as_array().cloned().unwrap_or_default();
    let manifests = manifests::yaml(&objects, plan.namespace.as_str())?;
    if let Some(file) = &args.manifests {
        // Passwords are in them.
        write_whole(file, manifests.as_bytes()).with_context(|| format!("writing `{}`", file.display()))?;
    }
    step.done_with(told.as_object().cloned().unwrap_or_default());
    let applied = !plan.apply.is_empty() || !plan.until.is_empty();
    if args.manifests.is_none() && !applied {
        report.data(&manifests);
    }
    explain(report, args.manifests.as_deref(), &told);
    let both = plan.appliance.as_ref().zip(image.as_deref());
    let Some((appliance, image)) = both else {
        report.info("the site runs until you press Ctrl-C");
        watch(report, &site, None)?;
        return Ok(Outcome::Data { kind: "simulation", data: told });
    };
    let begun = Instant::now();
    let mut session = start_box(&at, appliance, image, &site)?;
    session.tell_access(report);
    let event = session.until_ready(report, None)?;
    stages.push(SimulatedStage { name: "box".to_owned(), secs: begun.elapsed().as_secs_f64() });
    report.info(&session.outcome(&at, &event, site.namespace())?.to_string());
    if plan.servers.iter().any(|server| server.image.is_some()) {
        let file = session.dir().join("ssh_key");
        write_whole(&file, key.0.as_bytes()).with_context(|| format!("writing `{}`", file.display()))?;
        report.info(&format!("servers with an OS image let in the key {}", shell_word(&file)));
    }
    if !applied {
        report.info("the site runs until you press Ctrl-C");
        watch(report, &site, Some(&session))?;
        return Ok(Outcome::Data { kind: "simulation", data: told });
    }
    let running = session.tell(&at, &session.kubeconfig()?, site.namespace())?;
    let runs = || session.vm.exited().is_none();
    let mut story = Story { plan: &plan, running: &running, report, runs: &runs, stages };
    let conditions = story.tell(&manifests)?;
    let outcome = Outcome::Simulated { stages: story.stages, conditions };
    if args.until.is_none() {
        report.info(&outcome.to_string());
        report.info("`foothold kubectl get nodes` asks the box, with `--cluster NAME` a cluster of its servers");
        report.info("the site runs until you press Ctrl-C");
        watch(report, &site, Some(&session))?;
    }
    Ok(outcome)
}

/// The box's image, built when it is not there.
fn image_of(at: &Builder, image: &BoxImage) -> Result<PathBuf> {
    let definition = match image {
        BoxImage::File(file) => return Ok(file.clone()),
        BoxImage::Definition(definition) => definition,
    };
    let mut job = Job::load(definition)?;
    job.only(&[Format::Qcow2]);
    let out = at.cache.path("simulate").join(definition.file_stem().unwrap_or_default());
    let built = build(at, &job, &out)?;
    built.into_iter().next().map(|file| file.file).context("the definition makes no image")
}

/// Where the box has OS images, for hosts that ask for one.
fn images(plan: &Simulation, image: Option<&Path>) -> Result<Option<String>> {
    if plan.servers.iter().all(|server| server.image.is_none()) {
        return Ok(None);
    }
    let declared = image.and_then(machine::release_of).and_then(|release| release.provisioning);
    let address = declared.and_then(|declared| declared.address).context(
        "servers name an `image`, and the box has no address of its own on their network\n\
         hint: `services: { provisioning: { address: ... } }` in its definition gives it one",
    )?;
    Ok(Some(manifests::images(address.address)))
}

/// A key of this simulation: the private half in OpenSSH's form, and the public one.
fn new_key() -> Result<(String, String)> {
    let mut key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).context("making an ssh key")?;
    key.set_comment("foothold simulate");
    Ok((key.to_openssh(LineEnding::LF)?.to_string(), key.public_key().to_openssh()?))
}

/// The box, on the network of the site, and with one of its own whose ports are forwarded from loopback.
fn start_box(at: &Builder, plan: &SimulatedBox, image: &Path, site: &Site) -> Result<Session> {
    let cable = site.cable.as_ref().context("the box has no cable")?;
    let nics = [Nic::device(cable).mac(plan.mac.as_str())];
    let plan = Plan {
        image,
        attach: None,
        firmware: match plan.firmware {
            Firmware::Bios => MachineFirmware::Bios,
            Firmware::Uefi => MachineFirmware::Uefi,
        },
        memory: plan.memory,
        cpus: plan.cpus,
        network: Network::User,
        nics: &nics,
        bridge: None,
        clock: None,
        site: plan.site.as_deref(),
        overlay: None,
    };
    machine::start(at, &plan)
}

/// What there is, for programs.
fn tell(plan: &Simulation, site: &Site, ground: &Ground, images: Option<&str>, key: &(String, String)) -> Value {
    let addresses = plan.servers.iter().zip(&site.servers);
    let addresses: Vec<_> = addresses.map(|(plan, server)| (plan, server.address(&manifests::scheme(plan)))).collect();
    let servers: Vec<Value> = addresses
        .iter()
        .map(|(server, address)| {
            let name = server.name.as_str();
            json!({ "name": name, "mac": server.mac, "bmc": address, "console": ground.console(name) })
        })
        .collect();
    let namespace = plan.namespace.as_str();
    let hosts = addresses.iter().flat_map(|(server, address)| manifests::objects(server, namespace, address, images));
    let key = images.map(|_| manifests::key(namespace, &key.0, &key.1));
    let objects: Vec<Value> = key.into_iter().flatten().chain(hosts).collect();
    json!({ "servers": servers, "manifests": objects, "namespace": site.namespace() })
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
        pause(LOOKS);
    }
    Ok(())
}
