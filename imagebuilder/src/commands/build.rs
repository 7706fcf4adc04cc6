//! `foothold build`: a definition in, images out.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use crate::builder::{AgentProfile, Builder};
use crate::cli;
use crate::config::Format;
use crate::error::WrongUsage;
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
    check_folder(out)?;
    let lock = locked(at, job, false)?;
    let built = pipeline::release(at, &job.appliance, &lock)?;
    let files = pipeline::outputs(at, &job.appliance, &lock, &built, out)?;
    if at.agent == AgentProfile::Development {
        at.report.warn(&format!("the agent in it is {}", AgentProfile::DEVELOPMENT));
    }
    Ok(files)
}

/// Makes the folder of the images, and tries whether it takes files: better now than after the build.
fn check_folder(out: &Path) -> anyhow::Result<()> {
    if out.exists() && !out.is_dir() {
        let message = format!("`{}` is no folder", out.display());
        return Err(WrongUsage { message, hint: "`--out` names the folder that the images go to".to_owned() }.into());
    }
    fs_err::create_dir_all(out)?;
    tempfile::tempfile_in(out).with_context(|| format!("writing into `{}`", out.display()))?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::check_folder;
    use crate::error::Exit;
    use crate::report::CommandError;

    #[test]
    fn where_the_images_go_is_looked_at_before_they_are_made() {
        let dir = tempfile::tempdir().expect("a folder");
        check_folder(&dir.path().join("new/out")).expect("made");
        assert!(dir.path().join("new/out").is_dir());
        let file = dir.path().join("edge.qcow2");
        fs_err::write(&file, "").expect("written");
        let error = CommandError::from(check_folder(&file).expect_err("a file"));
        assert_eq!((error.exit(), error.message().ends_with("edge.qcow2` is no folder")), (Exit::Wrong, true));
        check_folder(&file.join("below")).expect_err("below a file");
    }
}
