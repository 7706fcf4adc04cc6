//! What is applied to the box and its clusters, and what is waited for, in the order of the file.
//!
//! ```text
//! servers ─► apply without `after` ─► until 1 ─► apply `after: 1` ─► until 2 ─► ...
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::config::Name;
use crate::config::simulation::{Application, Awaited, Simulation};
use crate::error::Interrupted;
use crate::host::command::{RunError, pause};
use crate::report::{Report, SimulatedCondition, SimulatedStage};
use crate::running::{Kubectl, Running};

/// How long one call of `kubectl wait` waits. In between, what the object says is told.
const LOOK: &str = "--timeout=5s";
/// Until a call that failed at once is made again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a cluster may take to answer when something is applied to it: its API server may have just begun.
const APPLIED: Duration = Duration::from_secs(180);

/// A site whose box is ready.
pub struct Story<'a> {
    /// The file.
    pub plan: &'a Simulation,
    /// The box.
    pub running: &'a Running,
    /// Who is told.
    pub report: &'a Report,
    /// Whether the box still runs.
    pub runs: &'a dyn Fn() -> bool,
    /// What has taken how long.
    pub stages: Vec<SimulatedStage>,
}

impl Story<'_> {
    /// Applies and waits. `servers`: their objects. The conditions, in order; those behind the first that is not met are not
    /// waited for.
    pub fn tell(&mut self, servers: &str) -> Result<Vec<SimulatedCondition>> {
        let plan = self.plan;
        if !plan.apply.is_empty() || !plan.until.is_empty() {
            self.stage("servers", |story| story.give(None, "apply", servers))?;
        }
        self.apply(None)?;
        let mut conditions: Vec<SimulatedCondition> =
            plan.until.iter().map(|wanted| SimulatedCondition { name: wanted.name.to_string(), met: false }).collect();
        for (at, wanted) in plan.until.iter().enumerate() {
            let met = self.stage(wanted.name.as_str(), |story| story.wait(wanted))?;
            conditions[at].met = met;
            if !met {
                break;
            }
            self.apply(Some(at))?;
        }
        Ok(conditions)
    }

    /// What is due behind a condition.
    fn apply(&mut self, after: Option<usize>) -> Result<()> {
        let plan = self.plan;
        for application in plan.apply.iter().filter(|application| application.after == after) {
            let Application { file, cluster, delete, .. } = application;
            let text = fs_err::read_to_string(file)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let verb = if *delete { "delete" } else { "apply" };
            self.stage(&name, |story| {
                let done = story.give(cluster.as_ref(), verb, &text);
                done.with_context(|| format!("{verb} of `{}`", file.display()))
            })?;
        }
        Ok(())
    }

    /// Does something, and notes how long it takes.
    fn stage<T>(&mut self, name: &str, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let step = self.report.step("simulate", name);
        let done = step.run(|_| work(self))?;
        self.stages.push(SimulatedStage { name: name.to_owned(), secs: begun.elapsed().as_secs_f64() });
        Ok(done)
    }

    fn kubectl(&self, cluster: Option<&Name>) -> Result<Kubectl> {
        match cluster {
            None => Ok(Kubectl::of_box(self.running)),
            Some(name) => Kubectl::of_cluster(self.running, name.as_str()),
        }
    }

    /// Objects for a cluster. A webhook or a definition that is a moment late is no failure.
    fn give(&self, cluster: Option<&Name>, verb: &str, text: &str) -> Result<()> {
        let begun = Instant::now();
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let delete = ["delete", "--ignore-not-found", "--wait=false", "-f", "-"];
        let words: &[&str] = if verb == "delete" { &delete } else { &apply };
        loop {
            let failed = match self.kubectl(cluster)?.run(words).stdin(text.as_bytes().to_vec()).output() {
                Ok(said) => {
                    String::from_utf8_lossy(&said).lines().for_each(|line| self.report.info(line));
                    return Ok(());
                }
                Err(error @ RunError::Interrupted(_)) => return Err(error.into()),
                Err(error) => error,
            };
            anyhow::ensure!((self.runs)(), "the box has ended");
            if begun.elapsed() > APPLIED {
                return Err(failed.into());
            }
            pause(AGAIN);
        }
    }

    /// Whether it came to hold in time. What the object says on the way is told.
    fn wait(&self, wanted: &Awaited) -> Result<bool> {
        let begun = Instant::now();
        let namespace = format!("--namespace={}", wanted.namespace);
        let holds = format!("--for={}", wanted.holds);
        let all = if wanted.object.contains('/') { None } else { Some("--all") };
        let mut words = vec!["wait", &wanted.object, &namespace, &holds, LOOK];
        words.extend(all);
        let mut told = String::new();
        loop {
            let asked = Instant::now();
            // A cluster may have no kubeconfig yet.
            let why = match self.kubectl(wanted.cluster.as_ref()) {
                Err(error) if error.root_cause().is::<Interrupted>() => return Err(error),
                Err(error) => format!("{error:#}"),
                Ok(kubectl) => match kubectl.run(&words).output() {
                    Ok(_) => return Ok(true),
                    Err(RunError::Failed { stderr, .. }) => {
                        let words = ["get", &wanted.object, &namespace, "--ignore-not-found", "--output=json"];
                        let said = kubectl.run(&words).output().map(|said| said_of(&said)).unwrap_or_default();
                        if said.is_empty() { stderr.lines().last().unwrap_or_default().to_owned() } else { said }
                    }
                    Err(error) => return Err(error.into()),
                },
            };
            if why != told {
                self.report.info(&format!("{}: {why}", wanted.name));
                told = why;
            }
            anyhow::ensure!((self.runs)(), "the box has ended");
            if begun.elapsed() > wanted.within {
                self.report.warn(&format!("{}: not within {} s: {told}", wanted.name, wanted.within.as_secs()));
                return Ok(false);
            }
            if asked.elapsed() < AGAIN {
                pause(AGAIN);
            }
        }
    }
}

/// What objects say of themselves: phase or state, and why they are not Ready.
fn said_of(json: &[u8]) -> String {
    let Ok(read) = serde_json::from_slice::<Value>(json) else { return String::new() };
    let one = |object: &Value| -> Option<String> {
        let status = &object["status"];
        let phase = [&status["phase"], &status["provisioning"]["state"]].into_iter().find_map(Value::as_str);
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready" && condition["status"] != "True");
        let message = ready.and_then(|ready| ready["message"].as_str()).or_else(|| status["errorMessage"].as_str());
        let words = [phase, message].into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        (!words.is_empty()).then(|| words.join(": "))
    };
    match read["items"].as_array() {
        None => one(&read).unwrap_or_default(),
        Some(items) => {
            let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let all = items.iter().filter_map(|item| Some(format!("{} {}", name(item), one(item)?)));
            all.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_says_how_far_it_is_and_what_it_waits_for() {
        let said = |value: Value| said_of(value.to_string().as_bytes());
        let ready = |status: &str| json!([{"type": "Ready", "status": status, "message": "step 2 of 7"}]);
        let object = |status: Value| json!({"metadata": {"name": "a"}, "status": status});
        assert_eq!(
            said(object(json!({"phase": "Installing", "conditions": ready("False")}))),
            "Installing: step 2 of 7"
        );
        assert_eq!(said(object(json!({"phase": "Ready", "conditions": ready("True")}))), "Ready");
        let host = object(json!({"provisioning": {"state": "inspecting"}, "errorMessage": "no power"}));
        assert_eq!(said(json!({"items": [host, object(json!({}))]})), "a inspecting: no power");
        assert_eq!(said_of(b""), "");
    }
}
