//! `foothold plan`: the table of what a build would make, and what the cache already has.

mod survey;
#[cfg(test)]
mod tests;

use indicatif::HumanBytes;
use serde_json::json;

use self::survey::{Row, State, Survey, survey};
use super::common::Job;
use super::table::{row, table};
use crate::builder::{AgentProfile, Builder, workspace};
use crate::cli;
use crate::config::Output;
use crate::lock::Lock;
use crate::lock::fetch::Network;
use crate::lock::known::Known;
use crate::report::{CommandError, Outcome, Report};
use crate::store::Cache;

/// Shows the plan. Nothing is made, fetched or written.
pub fn run(args: &cli::Plan, report: &Report) -> Result<Outcome, CommandError> {
    let mut job = Job::load(&args.definition.file)?;
    job.only(&args.format);
    let root = match &args.sources.cache {
        Some(dir) => dir.clone(),
        None => Cache::default_root()?,
    };
    let agent = args.agent.profile();
    job.check_agent(agent)?;
    let at = Builder { agent, ..looking(Cache::look(&root), args.sources.offline)? };
    let path = job.lock_path();
    let lock = Lock::read(&path)?;
    if lock.is_none() {
        report.info(&format!("there is no lock `{}`: a build would resolve and write it first", path.display()));
    }
    let warnings = lock.as_ref().map(|lock| Known::read(&at.cache).map(|known| known.warnings(lock))).transpose()?;
    warnings.iter().flatten().for_each(|warning| report.info(warning));
    let step = report.step("plan", "cache");
    let survey = step.run(|_| survey(&at, &job.appliance, lock.as_ref()))?;
    let outputs = &job.appliance.outputs;
    let name = format!("{}-{}", job.appliance.name, job.appliance.version);
    report.data(&text(&survey, outputs, &name, lock.is_some()));
    let outputs: Vec<_> = outputs.iter().map(|output| json!({ "format": output.format, "state": "toWrite" })).collect();
    let data = json!({
        "lock": { "path": path, "exists": lock.is_some() },
        "warnings": warnings.unwrap_or_default(),
        "stages": survey.stages,
        "outputs": outputs,
        "fetch": survey.fetch,
        "contentBytes": survey.content_bytes,
    });
    Ok(Outcome::Data { kind: "plan", data })
}

/// A builder that looks and makes nothing.
fn looking(cache: Cache, offline: bool) -> anyhow::Result<Builder> {
    Ok(Builder {
        cache,
        workspace: workspace()?,
        helper: "foothold".into(),
        network: Network { offline, ..Network::default() },
        agent: AgentProfile::Site,
        report: Report::silent(),
    })
}

/// The table for people. `name`: of the image files, without extension.
fn text(survey: &Survey, outputs: &[Output], name: &str, locked: bool) -> String {
    let mut rows = vec![row(["stage", "state", "size", "what"])];
    if !locked {
        rows.push(row(["lock", "to make", "", "exact versions and digests of what goes in"]));
    }
    rows.extend(survey.stages.iter().map(stage));
    rows.extend(outputs.iter().map(|output| output_row(output, name)));
    let sum = size(survey.content_bytes);
    rows.push(vec!["sum".to_owned(), tally(survey, outputs.len()), sum, "content of every image".to_owned()]);
    format!("{}\n{}", table(&rows, &[2]), fetch(survey, locked))
}

fn stage(stage: &Row) -> Vec<String> {
    let words = match &stage.state {
        State::Cached => "cached".to_owned(),
        State::ToMake => "to make".to_owned(),
        State::After(names) => format!("to make (after {})", listed(names)),
    };
    vec![stage.name.clone(), words, size(stage.bytes), stage.note.clone()]
}

/// A size that may not be known yet.
fn size(bytes: Option<u64>) -> String {
    bytes.map(|bytes| HumanBytes(bytes).to_string()).unwrap_or_default()
}

/// `a`, `a, b`, `a, b and 3 more`.
fn listed(names: &[String]) -> String {
    match names {
        [first, second, rest @ ..] if rest.len() > 1 => format!("{first}, {second} and {} more", rest.len()),
        _ => names.join(", "),
    }
}

fn output_row(output: &Output, name: &str) -> Vec<String> {
    let format = crate::pipeline::image_format(output.format).name();
    let mut words = vec![format!("{name}.{format}")];
    words.extend(output.size.map(|size| format!("a disk of {size}")));
    words.extend(output.max_size.map(|size| format!("at most {size}")));
    vec![format.to_owned(), "to write".to_owned(), String::new(), words.join(", ")]
}

fn tally(survey: &Survey, outputs: usize) -> String {
    let cached = survey.stages.iter().filter(|stage| stage.state == State::Cached).count();
    format!("{cached} of {} cached, {outputs} to write", survey.stages.len())
}

/// What is fetched. Without a lock nobody knows which packages and images that are.
fn fetch(survey: &Survey, locked: bool) -> String {
    let fetch = &survey.fetch;
    let mut words = Vec::new();
    if fetch.missing > 0 {
        let (missing, packages, bytes) = (fetch.missing, fetch.packages, HumanBytes(fetch.bytes));
        words.push(format!("{missing} of {packages} Debian packages, {bytes}"));
    }
    if fetch.programs > 0 {
        words.push(format!("{} programs of Kubernetes, {}", fetch.programs, HumanBytes(fetch.program_bytes)));
    }
    if fetch.image_blobs > 0 {
        words.push(format!("{} blobs of container images, {}", fetch.image_blobs, HumanBytes(fetch.image_bytes)));
    }
    if !fetch.modules.is_empty() {
        let sets = fetch.modules.join(", ");
        words.push(format!("Go modules of {sets} that the cache does not have (sizes are not known before)"));
    }
    if !locked {
        words.push("packages and images, which are known once there is a lock (hint: `foothold lock FILE`)".to_owned());
    }
    if words.is_empty() { "nothing to fetch".to_owned() } else { format!("to fetch: {}", words.join("; ")) }
}
