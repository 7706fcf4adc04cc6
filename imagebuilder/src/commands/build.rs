//! `foothold build`: a definition in, images out.

use std::path::Path;
use std::time::Instant;

use crate::builder::{AgentProfile, Builder};
use crate::cli;
use crate::config::Format;
use crate::format::OutputFile;
use crate::pipeline;
use crate::report::{BuiltOutput, CommandError, Outcome, Report};

use super::common::{Job, builder, locked};

/// Builds the images of the definition.
pub fn run(args: &cli::Build, report: &Report) -> Result<Outcome, CommandError> {
    let started = Instant::now();
    let mut job = Job::load(&args.definition.file)?;
    job.only(&args.format);
    let at = Builder { agent: args.agent.profile(), ..builder(&args.sources, report)? };
    let files = build(&at, &job, &args.out)?;
    Ok(Outcome::Built {
        outputs: files.into_iter().map(shown).collect(),
        development_agent: at.agent == AgentProfile::Development,
        secs: started.elapsed().as_secs_f64(),
    })
}

/// Builds the job's images into `out`.
pub fn build(at: &Builder, job: &Job, out: &Path) -> anyhow::Result<Vec<OutputFile>> {
    job.check_agent(at.agent)?;
    let lock = locked(at, job, false)?;
    let built = pipeline::release(at, &job.appliance, &lock)?;
    let files = pipeline::outputs(at, &job.appliance, &lock, &built, out)?;
    if at.agent == AgentProfile::Development {
        at.report.warn(&format!("the agent in it is {}", AgentProfile::DEVELOPMENT));
    }
    Ok(files)
}

fn shown(file: OutputFile) -> BuiltOutput {
    BuiltOutput { format: file.format.name().to_owned(), file: file.file, bytes: file.bytes, sha256: file.sha256 }
}

impl Job {
    /// Keeps only these formats, or adds one that the definition does not list with its defaults.
    pub fn only(&mut self, formats: &[Format]) {
        if formats.is_empty() {
            return;
        }
        let outputs = std::mem::take(&mut self.appliance.outputs);
        self.appliance.outputs = formats
            .iter()
            .map(|format| {
                let listed = outputs.iter().find(|output| output.format == *format).cloned();
                listed.unwrap_or(crate::config::Output::of(*format))
            })
            .collect();
    }
}
