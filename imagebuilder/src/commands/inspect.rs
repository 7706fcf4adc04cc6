//! `foothold inspect`: what an image holds, without mounting it.

use std::fmt::Write as _;

use agent_api::proof::{Proof, Start};
use agent_api::release::{DataPlace, DiskSelector, InstallTarget, Release};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::table::table;
use crate::builder::AgentProfile;
use crate::cli;
use crate::error::WrongUsage;
use crate::medium::keys::{Keys, Verdict};
use crate::medium::proof::State;
use crate::medium::{Found, Medium, MediumError};
use crate::problems::{Damaged, Flaw};
use crate::report::{CommandError, Outcome, Report};

/// Shows the releases in an image.
pub fn run(args: &cli::Inspect, report: &Report) -> Result<Outcome, CommandError> {
    let medium = open(&args.image)?;
    let name = args.image.display().to_string();
    let releases = medium.releases().map_err(|error| damaged(&name, &[error.to_string()]))?;
    if releases.is_empty() {
        let flaws = if medium.flaws.is_empty() { vec![NO_RELEASE.to_owned()] } else { medium.flaws };
        return Err(damaged(&name, &flaws).into());
    }
    if args.sbom {
        return sbom(&name, &releases, report);
    }
    for flaw in &medium.flaws {
        report.warn(flaw);
    }
    let keys = Keys::of_user(None)?;
    let mut data = Vec::new();
    for found in &releases {
        let verdict = Verdict::of(&medium, found, &keys);
        let release = found
            .release()
            .map_err(|error| damaged(&name, &[format!("the release {} cannot be read: {error}", found.folder)]))?;
        if found.id().hex() != found.folder {
            report.warn(&format!("`release.json` was changed: its sha256 is not {}", found.folder));
        }
        let proof = State::of(found, &verdict);
        report.data(&describe(&medium, found, &release, &verdict, &proof));
        data.push(as_data(found, &release, &verdict, &proof));
    }
    let data = json!({ "image": name, "format": medium.format, "bytes": medium.bytes, "releases": data });
    Ok(Outcome::Data { kind: "inspect", data })
}

/// The list of everything, as it lies in the image.
fn sbom(image: &str, releases: &[Found], report: &Report) -> Result<Outcome, CommandError> {
    let lists = releases.iter().filter_map(|found| found.sbom.as_ref());
    let mut data = Vec::new();
    for (json, _) in lists {
        let list: Value = serde_json::from_slice(json)
            .map_err(|error| damaged(image, &[format!("the list of what is in it cannot be read: {error}")]))?;
        report.data(&serde_json::to_string_pretty(&list)?);
        data.push(list);
    }
    match data.len() {
        0 => {
            Err(anyhow::anyhow!("`{image}` has no list of what is in it\nhint: it was made by an earlier version")
                .into())
        }
        1 => Ok(Outcome::Data { kind: "sbom", data: data.remove(0) }),
        _ => Ok(Outcome::Data { kind: "sbom", data: data.into() }),
    }
}

const NO_RELEASE: &str = "there is no release in it";

/// Opens an image. A file that is not an image is wrong usage.
pub fn open(path: &std::path::Path) -> Result<Medium, CommandError> {
    Medium::open(path).map_err(|error| match error {
        MediumError::Io(_) | MediumError::Foreign(_) => {
            let text = error.to_string();
            let message = text.split("\nhint").next().unwrap_or(&text).to_owned();
            WrongUsage { message, hint: "`foothold build` makes images".to_owned() }.into()
        }
        MediumError::Qcow2(error) => error.into(),
    })
}

fn damaged(image: &str, flaws: &[String]) -> Damaged {
    let problem = |flaw: &String| Flaw { place: "image".to_owned(), found: flaw.clone(), needed_by: Vec::new() };
    Damaged { image: image.to_owned(), problems: flaws.iter().map(problem).collect() }
}

fn as_data(found: &Found, release: &Release, verdict: &Verdict, proof: &State) -> Value {
    json!({
        "id": found.folder,
        "signature": verdict.json(Some(release)),
        "proof": proof.json(),
        "sbom": found.sbom.is_some(),
        "release": release,
    })
}

fn describe(medium: &Medium, found: &Found, release: &Release, verdict: &Verdict, proof: &State) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("appliance", format!("{} {}", release.name, release.version)),
        ("release", found.folder.clone()),
        ("image", format!("{}, {}", medium.format.name(), HumanBytes(medium.bytes))),
        ("built", date(release.built)),
        ("signature", verdict.sentence()),
        ("key", key(release, verdict)),
        ("proof", proof.sentence()),
        ("kubernetes", kubernetes(release)),
    ];
    rows.extend(release.development_agent.then(|| ("agent", AgentProfile::DEVELOPMENT.to_owned())));
    for entry in &release.boot {
        rows.push(("kernel", format!("{}, {}", entry.kernel_release, HumanBytes(entry.kernel.size))));
        rows.push(("initrd", HumanBytes(entry.initrd.size).to_string()));
        rows.push(("parameters", entry.command_line.clone()));
    }
    rows.extend(release.install.iter().map(|wish| ("installs on", target(wish))));
    rows.push(("data", release.data.iter().map(place).collect::<Vec<_>>().join(", else ")));
    rows.push(("time service", if release.ntp_serve { "yes" } else { "no" }.to_owned()));
    rows.push(("budgets", budgets(release)));
    rows.push(("packages", format!("{} from Debian", release.packages.len())));
    let head: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
    let mut text = format!("{}\n{}\n{}", table(&head, &[]), layers(release), images(release));
    if let State::Valid(proof) = proof {
        let _ = write!(text, "\n{}", proved(proof));
    }
    text
}

/// The proof in full: what was promised, what was used, and where the time went.
fn proved(proof: &Proof) -> String {
    let mut rows = vec![super::table::row(["proof", "first start", "second start"])];
    let mut row = |name: &str, value: &dyn Fn(&Start) -> String| {
        rows.push(vec![name.to_owned(), value(&proof.first_boot), value(&proof.reboot)]);
    };
    row("node ready", &|start| format!("{:.1} s", start.node_ready_secs));
    row("ready", &|start| format!("{:.1} s", start.ready_secs));
    row("memory at ready", &|start| format!("{} MiB", start.usage.memory_used_mib));
    row("memory at most", &|start| format!("{} MiB", start.usage.memory_peak_mib));
    row("DATA at ready", &|start| format!("{} of {} MiB", start.usage.data_used_mib, start.usage.data_total_mib));
    row("DATA at most", &|start| format!("{} MiB", start.usage.data_peak_mib));
    row("registry requests", &|start| start.requests.len().to_string());
    for step in &proof.first_boot.steps {
        let name = format!("{}/{}", step.phase, step.step);
        let again = proof.reboot.steps.iter().find(|other| other.phase == step.phase && other.step == step.step);
        let again = again.map_or_else(|| "-".to_owned(), |again| format!("{:.1} s", again.secs));
        rows.push(vec![name, format!("{:.1} s", step.secs), again]);
    }
    let mut text = table(&rows, &[1, 2]);
    for budget in &proof.budgets {
        let _ = writeln!(text, "budget  {budget}");
    }
    text
}

fn layers(release: &Release) -> String {
    let mut rows = vec![super::table::row(["layer", "size", "root hash"])];
    rows.extend(
        release
            .layers
            .iter()
            .map(|layer| vec![layer.name.clone(), HumanBytes(layer.size).to_string(), layer.root_hash.clone()]),
    );
    table(&rows, &[1])
}

fn images(release: &Release) -> String {
    let mut rows = vec![super::table::row(["image", "size", "manifest"])];
    rows.extend(release.images.iter().map(|image| {
        let size = image.blobs.iter().map(|blob| blob.size).sum();
        vec![image.reference.clone(), HumanBytes(size).to_string(), image.manifest.to_string()]
    }));
    table(&rows, &[1])
}

fn key(release: &Release, verdict: &Verdict) -> String {
    let id = verdict.signer.as_deref().unwrap_or("unknown");
    let kind = if release.development_key { "a development key" } else { "a release key" };
    format!("{id}, {kind}")
}

fn kubernetes(release: &Release) -> String {
    let cluster = &release.kubernetes;
    format!("{}, pods {}, Services {}", cluster.version, cluster.pod_cidr, cluster.service_cidr)
}

fn date(secs: u64) -> String {
    let stamp = i64::try_from(secs).ok().and_then(|secs| jiff::Timestamp::from_second(secs).ok());
    stamp.map_or_else(|| format!("{secs} s after 1970"), |stamp| stamp.to_string())
}

fn place(place: &DataPlace) -> String {
    match place {
        DataPlace::BootDisk { min_bytes } => {
            format!("free space of the boot disk (at least {})", HumanBytes(*min_bytes))
        }
        DataPlace::Disk { selector } => disk("an empty disk", selector),
        DataPlace::Ram => "memory".to_owned(),
    }
}

fn target(target: &InstallTarget) -> String {
    disk(if target.require_empty { "an empty disk" } else { "a disk, whatever is on it" }, &target.selector)
}

fn disk(what: &str, selector: &DiskSelector) -> String {
    let mut words = vec![what.to_owned()];
    words.extend(selector.bus.iter().map(|bus| format!("on {bus}")));
    words.extend(selector.min_bytes.map(|bytes| format!("of at least {}", HumanBytes(bytes))));
    words.extend(selector.serial.iter().map(|serial| format!("with the serial number {serial}")));
    words.extend(selector.prefer.iter().map(|prefer| format!("(the {prefer})")));
    words.join(" ")
}

fn budgets(release: &Release) -> String {
    let budgets = &release.budgets;
    let mut words = Vec::new();
    words.extend(budgets.image_bytes.map(|bytes| format!("image {}", HumanBytes(bytes))));
    words.extend(budgets.memory_bytes.map(|bytes| format!("memory {}", HumanBytes(bytes))));
    words.extend(budgets.ready_within_secs.map(|secs| format!("ready within {secs} s")));
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
