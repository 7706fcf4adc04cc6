//! The last line of a command.

use std::fmt;
use std::ops::Not;
use std::path::{Path, PathBuf};

use agent_api::proof::Proof;
use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::CommandError;
use super::figures::{self, BenchHost, BenchImage};
use super::shell::shell_word;
use crate::error::Exit;

/// What a command achieved. As JSON it is the last line on stdout; its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// `build`, `fetch`: the files.
    Built {
        /// One a format.
        outputs: Vec<BuiltOutput>,
        /// Whether the agent in them is a development build.
        #[serde(skip_serializing_if = "Not::not")]
        development_agent: bool,
        /// Seconds since the start.
        secs: f64,
    },
    /// `up`, `run --until ready`: the box is ready.
    Ready {
        /// Address of the web page on this host.
        web: String,
        /// Path of a kubeconfig that works from this host.
        #[serde(serialize_with = "lossy")]
        kubeconfig: PathBuf,
        /// Seconds since the start.
        secs: f64,
        /// Seconds since power-on.
        timings: Timings,
    },
    /// `prove`: what was measured.
    Proof {
        /// Power-on to Node Ready.
        node_ready_secs: f64,
        /// Power-on to `ready`.
        ready_secs: f64,
        /// Power-on to `ready` at the second start.
        reboot_ready_secs: f64,
        /// Memory in use at `ready`.
        #[serde(rename = "memoryUsedMiB")]
        memory_used_mib: u64,
        /// Size of the image file.
        image_bytes: u64,
        /// Every attempt to pull an image.
        pulls: Vec<Pull>,
        /// The timeline.
        steps: Vec<ProofStep>,
        /// All of it, as it is signed into the image.
        proof: Box<Proof>,
        /// Whether it was.
        signed: bool,
    },
    /// `bench`: what was measured.
    Bench {
        /// The machine that measured.
        host: BenchHost,
        /// The images, in the order in which they were named.
        images: Vec<BenchImage>,
    },
    /// `lint`: nothing but warnings.
    Linted {
        /// The file.
        #[serde(serialize_with = "lossy")]
        file: PathBuf,
        /// Number of warnings.
        warnings: usize,
        /// The problems as JSON.
        problems: Vec<Value>,
    },
    /// `init`: a definition was written.
    Initialised {
        /// The new file.
        #[serde(serialize_with = "lossy")]
        file: PathBuf,
    },
    /// `write`: the device holds the image, read back and compared.
    Written {
        /// The device.
        #[serde(serialize_with = "lossy")]
        device: PathBuf,
        /// Bytes of the image.
        bytes: u64,
        /// Their SHA-256 in hex.
        sha256: String,
        /// Seconds since the start.
        secs: f64,
    },
    /// `simulate` with conditions: what took how long, and what was met.
    Simulated {
        /// In their order.
        stages: Vec<SimulatedStage>,
        /// In the order of the file.
        conditions: Vec<SimulatedCondition>,
    },
    /// `export`, `offline-bundle`: a folder was written.
    Exported {
        /// The folder.
        #[serde(serialize_with = "lossy")]
        folder: PathBuf,
        /// What it is made of: parts of the box, or versions of components.
        of: Vec<String>,
        /// Number of files.
        files: usize,
        /// References of the images in it.
        images: Vec<String>,
        /// Bytes of all files.
        bytes: u64,
        /// What its user needs beside it, a line each.
        missing: Vec<String>,
        /// Seconds since the start.
        secs: f64,
    },
    /// Anything else that has data to show: `schema`, `plan`, `inspect`, `verify`, `lock`.
    Data {
        /// What it is: the name of the command.
        kind: &'static str,
        /// The data.
        data: Value,
    },
    /// Nothing more to say.
    Done,
}

/// One file of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuiltOutput {
    /// `raw`, `qcow2` or `iso`.
    pub format: String,
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hex.
    pub sha256: String,
}

/// A part of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedStage {
    /// `build`, `box`, `servers`, the name of a file or of a condition.
    pub name: String,
    /// Seconds that it took.
    pub secs: f64,
}

/// A condition of a simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedCondition {
    /// Its name.
    pub name: String,
    /// Whether it held in time.
    pub met: bool,
}

/// Seconds since power-on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// Until the Node was Ready.
    pub node_ready: f64,
    /// Until every service answered.
    pub ready: f64,
}

/// One attempt of the box to pull an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pull {
    /// The reference.
    pub image: String,
    /// Seconds since power-on when it was asked for first.
    pub t: f64,
    /// At which of the two starts, and what was answered.
    pub why: String,
}

/// One step of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProofStep {
    /// Phase.
    pub phase: String,
    /// Step.
    pub step: String,
    /// Seconds since power-on when it began.
    pub start: f64,
    /// Seconds it took.
    pub secs: f64,
}

/// A path as text: JSON has no other.
pub(super) fn lossy<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

impl Outcome {
    /// The last line of `--json`.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|error| json!({"result": "unknown", "message": error.to_string()}))
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Simulated { conditions, .. } if conditions.iter().any(|condition| !condition.met) => Exit::Failed,
            _ => Exit::Done,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Built { outputs, secs, .. } => {
                for output in outputs {
                    writeln!(f, "{}  {}  sha256:{}", output.file.display(), HumanBytes(output.bytes), output.sha256)?;
                }
                write!(f, "built in {secs:.1} s")
            }
            Self::Ready { web, kubeconfig, secs, timings } => {
                // Without a network, and with a token of Site's own, there is none.
                for (what, place) in [("web", web.clone()), ("kubeconfig", kubeconfig.display().to_string())] {
                    if !place.is_empty() {
                        writeln!(f, "{what:<10}  {place}")?;
                    }
                }
                let Timings { node_ready, ready } = timings;
                write!(f, "ready after {secs:.1} s (from power-on: node {node_ready:.1} s, everything {ready:.1} s)")
            }
            Self::Proof {
                node_ready_secs,
                ready_secs,
                reboot_ready_secs,
                memory_used_mib,
                image_bytes,
                pulls,
                proof,
                signed,
                ..
            } => {
                writeln!(f, "node ready after     {node_ready_secs:6.1} s")?;
                writeln!(f, "ready after          {ready_secs:6.1} s")?;
                writeln!(f, "reboot to ready      {reboot_ready_secs:6.1} s")?;
                writeln!(f, "memory in use        {memory_used_mib:4} MiB")?;
                writeln!(f, "image                {}", HumanBytes(*image_bytes))?;
                writeln!(f, "memory at most       {:4} MiB", proof.peak_memory_mib())?;
                writeln!(f, "DATA at most         {:4} MiB", proof.peak_data_mib())?;
                writeln!(f, "image pulls          {:4}", pulls.len())?;
                for budget in &proof.budgets {
                    writeln!(f, "budget               {budget}")?;
                }
                write!(f, "{}", if *signed { "signed into the image" } else { "not signed: the image is as it was" })
            }
            Self::Bench { host, images } => figures::write(f, host, images),
            Self::Linted { file, warnings: 0, .. } => write!(f, "`{}` is good", file.display()),
            Self::Linted { file, warnings, .. } => write!(f, "`{}` is good, with {warnings} warnings", file.display()),
            Self::Initialised { file } => {
                write!(f, "wrote `{}`; next: `foothold up {}`", file.display(), shell_word(file))
            }
            Self::Written { device, bytes, secs, .. } => {
                write!(
                    f,
                    "wrote {} to `{}` in {secs:.1} s, read back and compared",
                    HumanBytes(*bytes),
                    device.display()
                )
            }
            Self::Simulated { stages, conditions } => {
                for stage in stages {
                    writeln!(f, "{:<24} {:8.1} s", stage.name, stage.secs)?;
                }
                let missed: Vec<&str> =
                    conditions.iter().filter(|condition| !condition.met).map(|condition| &*condition.name).collect();
                match missed.as_slice() {
                    [] => write!(f, "all {} conditions are met", conditions.len()),
                    missed => write!(f, "not met: {}", missed.join(", ")),
                }
            }
            Self::Exported { folder, of, files, images, bytes, missing, secs } => {
                for line in missing {
                    writeln!(f, "missing: {line}")?;
                }
                let (folder, bytes, images) = (folder.display(), HumanBytes(*bytes), images.len());
                let of = of.join(", ");
                write!(f, "wrote `{folder}` in {secs:.1} s: {files} files, {images} images, {bytes} ({of})")
            }
            Self::Data { .. } | Self::Done => Ok(()),
        }
    }
}

/// The error for people: the problems of a definition with their carets, or `error: ...` and the hint.
pub(super) fn error_text(error: &CommandError, message: &str, hint: Option<&str>, colours: bool) -> String {
    if let Some(problems) = error.problems() {
        let summary = crate::problems::summary(problems);
        return format!("{}\n\nerror: {summary}", crate::problems::render(problems, colours));
    }
    match hint {
        Some(hint) => format!("error: {message}\nhint: {hint}"),
        None => format!("error: {message}"),
    }
}
