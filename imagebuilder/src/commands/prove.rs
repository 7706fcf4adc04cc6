//! `foothold prove`: boots an image with no network at all, twice, measures, and signs the result into it.
//!
//! ```text
//! image ─▶ key, place ─▶ first start ─▶ second start ─▶ Proof ─judge─▶ signed ─▶ the image's reserved place
//! ```
//! A missing key is an error before anything is booted. A proof that fails leaves the image as it was.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use agent_api::proof::{self, Budget, ImageFile, Machine, Proof};
use agent_api::release::Release;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum as _;
use foothold_qemu::Accel;

use crate::builder::{AgentProfile, Builder};
use crate::cli;
use crate::format::{self, Format};
use crate::medium::proof::Reserved;
use crate::medium::{Found, Medium};
use crate::pipeline;
use crate::release::sign::{self, Signer};
use crate::report::{CommandError, Outcome, ProofStep, Pull, Report};
use crate::store::Stamp;

use super::common::builder;
use super::inspect::open;
use super::machine::Plan;
use super::measure::{Boot, boot};

/// How long the box is listened to after the first `ready`: pods that nothing waits for may still ask for images.
const LISTEN: Duration = Duration::from_secs(10);

/// Proves the image.
pub fn run(args: &cli::Prove, report: &Report) -> Result<Outcome, CommandError> {
    let at = builder(&args.sources, report)?;
    let medium = open(&args.image)?;
    let (found, release) = only_release(&medium)?;
    let seal = if args.no_sign { None } else { Some(Seal::new(args, &medium, (&found, &release))?) };
    let work = at.cache.work_dir()?;
    let overlay = work.path().join("disk.qcow2");
    let plan = Plan::alone(&args.image, args.attach, args.machine, &overlay);
    report.info(match &release.provisioning {
        Some(_) => "first boot, no network but a network card to which no server is connected",
        None => "first boot, no network interface",
    });
    let (first, _) = boot(&at, &plan, args.machine.timeout, LISTEN)?;
    report.info("second boot of the same disk, after a power cut");
    let (second, _) = boot(&at, &plan, args.machine.timeout, Duration::ZERO)?;
    if !first.records_pulls() {
        report.info("the box does not say what it tried to pull: its image was made by an earlier version");
    }
    let pulls: Vec<Pull> =
        [(&first, "first"), (&second, "second")].iter().flat_map(|(boot, name)| boot.pulls(name)).collect();
    let proof = proof(&found.folder, args, &medium, &release, (&first, &second))?;
    let failures = judge(&proof, &pulls);
    let signed = seal.is_some() && failures.is_empty();
    if let Some(seal) = seal.filter(|_| failures.is_empty()) {
        seal.put(&at, &args.image, &proof)?;
    }
    let outcome = outcome(args, proof, pulls, signed)?;
    if failures.is_empty() {
        return Ok(outcome);
    }
    report.info(&outcome.to_string());
    Err(NotProved { image: args.image.display().to_string(), failures }.into())
}

fn only_release(medium: &Medium) -> Result<(Found, Release)> {
    let mut releases = medium.releases()?;
    let found =
        releases.pop().context("there is no release in the image\nhint: `foothold verify` says what is wrong")?;
    if !releases.is_empty() {
        bail!("the image holds {} releases, a proof is of one", releases.len() + 1);
    }
    let release = found.release().context("reading the release\nhint: `foothold verify` says what is wrong")?;
    Ok((found, release))
}

/// Why such a release is not proved, and what to do: it is not what a site will run.
fn no_proof_of(release: &Release) -> Option<String> {
    let build = AgentProfile::DEVELOPMENT;
    release.development_agent.then(|| format!("its agent is {build}\nhint: build it without `--development`"))
}

/// Who signs, and where it goes.
struct Seal {
    signer: Signer,
    place: Reserved,
}

impl Seal {
    fn new(args: &cli::Prove, medium: &Medium, (found, release): (&Found, &Release)) -> Result<Self> {
        let without = "or measure only: `--no-sign`";
        if let Some(why) = no_proof_of(release) {
            bail!("`{}` gets no proof: {why}, {without}", args.image.display());
        }
        let signer = Signer::open(args.key.as_ref())?;
        let signature = found.signature.as_deref().context("the release has no signature")?;
        sign::verify(&signer.public_key, &found.json, signature).map_err(|_| {
            anyhow!(
                "the release in `{}` was signed with another key than yours\nhint: `--key file:PATH` names the \
                 secret key that the definition's `sign.key` names, {without}",
                args.image.display()
            )
        })?;
        let place = Reserved::find(medium, found)?.with_context(|| {
            format!(
                "`{}` has no place for a proof\nhint: `foothold build` makes one that has, {without}",
                args.image.display()
            )
        })?;
        // Better now than after the measuring.
        fs_err::OpenOptions::new().write(true).open(&args.image)?;
        Ok(Self { signer, place })
    }

    fn put(&self, at: &Builder, image: &Path, proof: &Proof) -> Result<()> {
        let step = at.report.step("prove", "sign");
        let json = serde_json::to_string(proof)?;
        let signature = self.signer.sign(json.as_bytes(), &format!("proof of release {}", proof.release))?;
        let bytes = proof::place(&json, &signature)
            .with_context(|| format!("the proof has {} bytes, at most {} fit", json.len(), proof::RESERVED))?;
        let before = Stamp::of(image)?;
        self.place.write(image, &bytes)?;
        format::follow(&at.cache.path(pipeline::IMAGES), image, before)?;
        step.done();
        Ok(())
    }
}

fn proof(id: &str, args: &cli::Prove, medium: &Medium, release: &Release, boots: (&Boot, &Boot)) -> Result<Proof> {
    let (first, second) = boots;
    let file = fs_err::metadata(&args.image)?;
    // Of a raw image only what is written counts: the rest is room.
    let bytes = if medium.format == Format::Raw { file.blocks() * 512 } else { file.len() };
    let mut proof = Proof {
        api_version: "foothold.dev/v1".to_owned(),
        kind: "Proof".to_owned(),
        release: id.to_owned(),
        builder: env!("CARGO_PKG_VERSION").to_owned(),
        date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        machine: Machine {
            accel: match first.accel {
                Accel::Kvm => "kvm",
                Accel::Tcg => "tcg",
            }
            .to_owned(),
            cpus: args.machine.cpus,
            memory_mib: args.machine.memory.bytes() >> 20,
            firmware: args
                .machine
                .firmware
                .to_possible_value()
                .map(|name| name.get_name().to_owned())
                .unwrap_or_default(),
            network: "none".to_owned(),
        },
        image: ImageFile { format: medium.format.name().to_owned(), bytes },
        first_boot: first.start(),
        reboot: second.start(),
        budgets: Vec::new(),
    };
    proof.budgets = budgets(release, &proof);
    Ok(proof)
}

/// Every promise of the definition, compared.
#[expect(clippy::cast_precision_loss, reason = "sizes below 4 PiB")]
fn budgets(release: &Release, proof: &Proof) -> Vec<Budget> {
    let promised = &release.budgets;
    let image =
        promised.image_bytes.map(|most| Budget::at_most("image", "bytes", most as f64, proof.image.bytes as f64));
    let peak = (proof.peak_memory_mib() << 20) as f64;
    let memory = promised.memory_bytes.map(|most| Budget::at_most("memory", "bytes", most as f64, peak));
    let slowest = proof.first_boot.ready_secs.max(proof.reboot.ready_secs);
    let ready = promised.ready_within_secs.map(|most| Budget::at_most("readyWithin", "s", most as f64, slowest));
    [image, memory, ready].into_iter().flatten().collect()
}

/// Everything that keeps it from being a proof.
fn judge(proof: &Proof, pulls: &[Pull]) -> Vec<String> {
    let broken = proof.budgets.iter().filter(|budget| !budget.kept).map(|budget| format!("the budget {budget}"));
    let missing = pulls.iter().map(|pull| format!("the image `{}` was {} (at {:.1} s)", pull.image, pull.why, pull.t));
    missing.chain(broken).collect()
}

fn outcome(args: &cli::Prove, proof: Proof, pulls: Vec<Pull>, signed: bool) -> Result<Outcome> {
    let steps = proof.first_boot.steps.iter().map(|step| ProofStep {
        phase: step.phase.clone(),
        step: step.step.clone(),
        start: step.start,
        secs: step.secs,
    });
    Ok(Outcome::Proof {
        node_ready_secs: proof.first_boot.node_ready_secs,
        ready_secs: proof.first_boot.ready_secs,
        reboot_ready_secs: proof.reboot.ready_secs,
        memory_used_mib: proof.first_boot.usage.memory_used_mib,
        image_bytes: fs_err::metadata(&args.image)?.len(),
        pulls,
        steps: steps.collect(),
        signed,
        proof: Box::new(proof),
    })
}

/// What was measured is no proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotProved {
    image: String,
    failures: Vec<String>,
}

impl fmt::Display for NotProved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not proved:", self.image)?;
        for failure in &self.failures {
            write!(f, "\n  {failure}")?;
        }
        write!(
            f,
            "\nhint: add a missing image to `content.images`; raise a budget, or remove what breaks it; build again"
        )
    }
}

impl std::error::Error for NotProved {}

#[cfg(test)]
#[path = "prove_tests.rs"]
mod tests;
