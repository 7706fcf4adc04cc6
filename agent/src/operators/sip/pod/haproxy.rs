//! `HAProxy` in a pod: a configuration is checked before it replaces one that works, and replaces it without a connection
//! being dropped.
//!
//! ```text
//! Secret, mounted ─ changed? ─► haproxy -c ─┬─ good ─► the file that is run ─► first: started; else SIGUSR2 to the master
//!                                           └─ bad ──► told; what runs goes on
//! ```
//! Source: `HAProxy`'s management guide, 3 (master-worker mode) and 4 (SIGUSR2 reloads, SIGUSR1 ends softly).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

use crate::host::files;
use crate::host::process::start_owned;
use crate::host::runner::{Runner as _, System};
use crate::steps::chain;

/// Pause between two looks at the configuration.
const LOOK: Duration = Duration::from_secs(1);
/// Variable of the environment that our templates name: all addresses where `HAProxy` listens. Without it: those of IPv4.
pub const LISTEN: &str = "SIP_LISTEN";
/// What `haproxy -c` may take.
const CHECK: Duration = Duration::from_secs(20);
/// Where images have it: Debian's, and those of `HAProxy`'s own project.
const PROGRAMS: [&str; 3] = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/usr/local/bin/haproxy"];

/// What `haproxy` takes.
#[derive(Debug, Args)]
pub struct Haproxy {
    /// The configuration, which is followed.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Folder for the configuration that is run.
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
    /// `HAProxy`; looked for where images have it when absent.
    #[arg(long = "haproxy", value_name = "FILE")]
    program: Option<PathBuf>,
}

/// What is done after reading the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Rest,
    /// It is another one: it is checked.
    Check,
}

/// The configuration that was read last, good or bad.
#[derive(Debug, Default)]
struct Seen(Option<Vec<u8>>);

impl Seen {
    fn look(&mut self, found: &[u8]) -> Step {
        if self.0.as_deref() == Some(found) {
            return Step::Rest;
        }
        self.0 = Some(found.to_vec());
        Step::Check
    }
}

impl Haproxy {
    /// Runs until SIGTERM, or until `HAProxy` ends.
    pub fn run(&self) -> anyhow::Result<()> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => find().with_context(|| format!("this image has no HAProxy: {}", PROGRAMS.join(", ")))?,
        };
        // On this thread: HAProxy dies with the thread that started it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.follow(&program.to_string_lossy()))
    }

    async fn follow(&self, program: &str) -> anyhow::Result<()> {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (mut seen, mut child) = (Seen::default(), None::<Child>);
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                ended = ended(&mut child) => bail!("HAProxy ended: {}", ended?),
                _ = term.recv() => return end(child).await,
                _ = int.recv() => return end(child).await,
            }
            let found = match fs_err::read(&self.config) {
                Ok(found) => found,
                Err(error) => {
                    // The kubelet puts another one there at once; without the first one there is nothing to run.
                    log::warn!("{error}");
                    continue;
                }
            };
            if seen.look(&found) == Step::Rest {
                continue;
            }
            match self.take(program, &found) {
                Ok(active) => put(program, &active, &mut child)?,
                Err(error) => log::error!("the configuration is not used: {}", chain(&*error)),
            }
        }
    }

    /// Checks a configuration, and makes it the one that is run.
    fn take(&self, program: &str, config: &[u8]) -> anyhow::Result<PathBuf> {
        let (next, active) = (self.run.join("next.cfg"), self.run.join("haproxy.cfg"));
        files::write(&next, config, 0o600)?;
        System::new().run(&[program, "-c", "-f", &next.to_string_lossy()], b"", CHECK)?;
        fs_err::rename(&next, &active)?;
        Ok(active)
    }
}

/// Starts `HAProxy`, or has it read its configuration again.
fn put(program: &str, active: &Path, child: &mut Option<Child>) -> anyhow::Result<()> {
    if let Some(master) = child.as_ref().and_then(pid) {
        log::info!("the configuration is another one");
        return kill_process(master, Signal::USR2).context("telling HAProxy to read its configuration again");
    }
    let argv = [program, "-W", "-db", "-f", &active.to_string_lossy()].map(str::to_owned);
    let listen = any(Path::new("/proc/net/if_inet6").exists());
    *child = Some(start_owned(&argv, &[(LISTEN, listen)]).with_context(|| format!("starting `{program}`"))?);
    Ok(())
}

/// All addresses, as `HAProxy` is told them: those of IPv6, too, if the kernel has it.
fn any(has_ipv6: bool) -> &'static str {
    if has_ipv6 { "[::]" } else { "" }
}

fn find() -> Option<PathBuf> {
    PROGRAMS.iter().map(PathBuf::from).find(|path| path.exists())
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Waits until the child ends. Without a child it waits for ever.
async fn ended(child: &mut Option<Child>) -> anyhow::Result<std::process::ExitStatus> {
    match child {
        Some(child) => Ok(child.wait().await?),
        None => std::future::pending().await,
    }
}

/// Ends the child. Open connections go on until the kubelet ends the pod.
async fn end(child: Option<Child>) -> anyhow::Result<()> {
    let Some(mut child) = child else { return Ok(()) };
    if let Some(master) = pid(&child) {
        kill_process(master, Signal::USR1).context("ending HAProxy")?;
    }
    child.wait().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Seen, Step};

    #[test]
    fn a_configuration_is_tried_once_whatever_came_of_it() {
        let mut seen = Seen::default();
        let steps = [b"a", b"a", b"b", b"b", b"a"].map(|config| seen.look(config));
        assert_eq!(steps, [Step::Check, Step::Rest, Step::Check, Step::Rest, Step::Check]);
    }
}
