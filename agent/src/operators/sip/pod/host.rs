//! `host list`, `host reboot NAME` and `host console NAME` on a jump host. The jump host has no password of a BMC: it writes
//! a request down, and the controller does it (see `requests` of the cluster's services).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Config};
use serde::Deserialize;
use serde_json::json;

use super::console;
use crate::operators::sip::cluster::requests::{ANSWER, REBOOT};
use crate::terminal::show;

/// Longest wait for the controller's answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// What `host` takes.
#[derive(Debug, Args)]
pub struct Host {
    /// The file with the list of hosts.
    #[arg(long, value_name = "FILE", hide = true)]
    hosts: PathBuf,
    /// `NAMESPACE/NAME` of the `ConfigMap` in which requests are written.
    #[arg(long, value_name = "NAMESPACE/NAME", hide = true)]
    requests: String,
    #[command(subcommand)]
    wish: Wish,
}

#[derive(Debug, Subcommand)]
enum Wish {
    /// List the hosts: name, role, address.
    List,
    /// Reboot a host. Its OS is asked to shut down first; if it does not, the power is switched off and on.
    Reboot {
        /// The host's name, as `host list` shows it.
        name: String,
    },
    /// Open a host's serial console; Ctrl-] ends it.
    Console {
        /// The host's name, as `host list` shows it.
        name: String,
    },
}

/// A host, as the controller tells the jump host.
#[derive(Debug, Deserialize)]
struct Known {
    name: String,
    role: String,
    #[serde(default)]
    standby: bool,
    ip: Option<String>,
}

impl Host {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        let text = fs_err::read_to_string(&self.hosts)?;
        let known: Vec<Known> = serde_json::from_str(&text).with_context(|| format!("`{}`", self.hosts.display()))?;
        match &self.wish {
            Wish::List => show(&list(&known)),
            Wish::Reboot { name } => {
                is_known(&known, name)?;
                show(&format!("{}\n", runtime()?.block_on(self.reboot(name))?));
            }
            Wish::Console { name } => {
                is_known(&known, name)?;
                let runtime = runtime()?;
                let (api, map) = {
                    let _inside = runtime.enter();
                    self.requests()?
                };
                // A pod is called as its host is.
                let pod = rustix::system::uname().nodename().to_string_lossy().into_owned();
                console::join(runtime.block_on(console::open(&api, map, name, &pod))?, name)?;
            }
        }
        Ok(())
    }

    /// Where wishes are written, and under which name. Needs a runtime.
    fn requests(&self) -> anyhow::Result<(Api<ConfigMap>, &str)> {
        // One provider in the process: the libraries must not choose.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (namespace, map) = self.requests.split_once('/').context("`--requests` is `NAMESPACE/NAME`")?;
        // By its name: a session of ssh has none of the pod's environment.
        let config = Config::incluster_dns().context("this is no pod of a cluster")?;
        Ok((Api::namespaced(Client::try_from(config)?, namespace), map))
    }

    /// Asks for a reboot. Returns what the controller says.
    async fn reboot(&self, name: &str) -> anyhow::Result<String> {
        let (api, map) = self.requests()?;
        let (request, answer) = (format!("{name}{REBOOT}"), format!("{name}{ANSWER}"));
        let wish = json!({"data": {request.clone(): jiff::Timestamp::now().to_string(), answer.clone(): null}});
        api.patch(map, &PatchParams::default(), &Patch::Merge(&wish)).await.context("asking")?;
        let said = wait_for_answer(&api, map, &request, &answer).await?;
        said.with_context(|| {
            format!("the controller has not answered within {} s; it is still asked", PATIENCE.as_secs())
        })
    }
}

/// The answer to a request, or `None` when none came in [`PATIENCE`].
pub(super) async fn wait_for_answer(
    api: &Api<ConfigMap>,
    map: &str,
    request: &str,
    answer: &str,
) -> anyhow::Result<Option<String>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK).await;
        let now = api.get(map).await.context("waiting for an answer")?;
        let said = answered(now.data.as_ref(), request, answer);
        if said.is_some() {
            return Ok(said);
        }
    }
    Ok(None)
}

fn is_known(known: &[Known], name: &str) -> anyhow::Result<()> {
    if !known.iter().any(|host| host.name == name) {
        bail!("there is no host `{name}`\nhint: `host list` lists them");
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The answer, once the request is gone.
fn answered(data: Option<&BTreeMap<String, String>>, request: &str, answer: &str) -> Option<String> {
    let data = data?;
    (!data.contains_key(request)).then(|| data.get(answer).cloned())?
}

fn list(known: &[Known]) -> String {
    let mut text = String::new();
    for host in known {
        let standby = if host.standby { " (standby)" } else { "" };
        let _ = writeln!(text, "{} {}{standby} {}", host.name, host.role, host.ip.as_deref().unwrap_or("-"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_listed_with_role_and_address() {
        let text = r#"[{"name": "cp", "host": "a/cp", "role": "ControlPlane", "standby": false, "ip": "10.0.0.1"},
            {"name": "w", "host": "a/w", "role": "Worker", "standby": true, "ip": null}]"#;
        let known: Vec<Known> = serde_json::from_str(text).expect("hosts");
        assert_eq!(list(&known), "cp ControlPlane 10.0.0.1\nw Worker (standby) -\n");
    }

    #[test]
    fn an_answer_counts_once_the_request_is_gone() {
        let data = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), "said".to_owned())).collect();
        assert_eq!(answered(Some(&data(&["w.reboot", "w.answer"])), "w.reboot", "w.answer"), None);
        assert_eq!(answered(Some(&data(&["w.answer"])), "w.reboot", "w.answer").as_deref(), Some("said"));
        assert_eq!(answered(None, "w.reboot", "w.answer"), None);
    }
}
