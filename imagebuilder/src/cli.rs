//! The command line: types only. What the commands do is in [`commands`](crate::commands).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::builder::AgentProfile;
use crate::config::{ByteSize, Format, SecretReference};
use crate::report::Show;

mod export;

pub use export::{Export, OfflineBundle};

/// One file in, bootable images out.
#[derive(Debug, Parser)]
#[command(name = "foothold", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "exit codes: 0 done, 1 failed, 64 wrong usage or wrong file, 69 the host lacks something \
                        (named), 130 interrupted and cleaned up")]
pub struct Cli {
    /// What to show
    #[command(flatten)]
    pub show: ShowArgs,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command has.
#[derive(Clone, Copy, Debug, Args)]
pub struct ShowArgs {
    /// Print events as JSON Lines on stdout; the last line is the result
    #[arg(long, global = true)]
    pub json: bool,
    /// Show no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show more
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    pub verbose: bool,
}

impl From<ShowArgs> for Show {
    fn from(args: ShowArgs) -> Self {
        Self { json: args.json, quiet: args.quiet, verbose: args.verbose }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build a definition and run it until it is ready
    Up(Up),
    /// Write a definition to start from
    Init(Init),
    /// Print the JSON Schema of definitions, or of simulations
    Schema(Schema),
    /// Check a definition, a Site or a simulation, and report all its problems
    Lint(Lint),
    /// Show what a build would do, and what the cache already has
    Plan(Plan),
    /// Write the lock: exact versions and checksums of everything that goes in
    Lock(Lock),
    /// Download everything the lock names
    Fetch(Fetch),
    /// Make the toolbox of foreign tools and say where it is
    Toolbox(Toolbox),
    /// Build images
    Build(Build),
    /// Run an image in a virtual machine
    Run(Run),
    /// Boot an image with no network, measure it, and sign the result into it
    Prove(Prove),
    /// Boot images in turn, and say how long they take, what they use, and what else this host did
    Bench(Bench),
    /// Show what an image holds
    Inspect(Inspect),
    /// Compare two images or locks, and make the bundle that turns one image into the other
    Diff(Diff),
    /// Check every byte of an image or device against its signed release
    Verify(Verify),
    /// Write an image to a device, read it back and compare
    Write(Write),
    /// Write the box's services as images, manifests and a Helm chart, for a cluster that someone else set up
    Export(Export),
    /// Write what kubespray downloads, in its own offline layout
    OfflineBundle(OfflineBundle),
    /// Run a site on this machine: servers behind emulated BMCs, and the box
    Simulate(Simulate),
    /// Run kubectl against a box that runs on this machine, or against a cluster of its servers
    Kubectl(Kubectl),
}

/// The definition to work on.
#[derive(Clone, Debug, Args)]
pub struct Definition {
    /// The definition, or a directory with an `appliance.yaml`
    #[arg(value_name = "FILE", default_value = ".")]
    pub file: PathBuf,
}

/// Where things are kept, and whether the network may be used.
#[derive(Clone, Debug, Default, Args)]
pub struct Sources {
    /// Where downloads and results are kept [default: ~/.cache/foothold]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Use nothing but the cache
    #[arg(long)]
    pub offline: bool,
    /// A Debian mirror, the security archive beside it [default: the one that this host's apt uses]
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Credentials for registries [default: what `docker login` or `podman login` left]
    #[arg(long, value_name = "FILE")]
    pub authfile: Option<PathBuf>,
}

/// How the agent of the image is compiled.
#[derive(Clone, Copy, Debug, Args)]
pub struct Agent {
    /// Compile the agent for development: much sooner done after a change in it, but bigger and slower. Such an image is not
    /// for a site
    #[arg(long)]
    pub development: bool,
}

impl Agent {
    /// The profile it asks for.
    pub const fn profile(self) -> AgentProfile {
        if self.development { AgentProfile::Development } else { AgentProfile::Site }
    }
}

/// The virtual machine.
#[derive(Clone, Debug, Args)]
pub struct Machine {
    /// Firmware of the machine
    #[arg(long, value_enum, default_value_t = MachineFirmware::Uefi)]
    pub firmware: MachineFirmware,
    /// Memory: a size such as `4GiB`, or a number of MiB
    #[arg(long, value_name = "M", default_value = "4GiB", value_parser = memory)]
    pub memory: ByteSize,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub cpus: u32,
    /// What its hardware clock shows at power-on, such as `1970-01-01T00:00:00` (UTC); this host's time when not given
    #[arg(long, value_name = "TIME")]
    pub clock: Option<String>,
    /// A Site for this machine
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,
    /// Network of the machine
    #[arg(long, value_enum, default_value_t = Network::User)]
    pub network: Network,
    /// Connect a card to this bridge or TAP device of the host, for servers and BMCs that are there: the card on the
    /// servers' network, where the definition has one
    #[arg(long, value_name = "NAME")]
    pub bridge: Option<String>,
    /// Give up when the box is not ready after this time: seconds, or a duration such as `5m`
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Write what the screen shows at `ready` into this file, a PNG
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
}

/// `foothold up`
#[derive(Debug, Args)]
pub struct Up {
    /// The definition, or a directory with an `appliance.yaml`
    #[arg(value_name = "FILE", default_value = "images/appliance")]
    pub file: PathBuf,
    /// Where the images go
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    /// How the agent is compiled
    #[command(flatten)]
    pub agent: Agent,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
    /// The machine
    #[command(flatten)]
    pub machine: Machine,
    /// End when the box is ready instead of keeping it running
    #[arg(long, value_enum)]
    pub until: Option<Until>,
}

/// `foothold init`
#[derive(Debug, Args)]
pub struct Init {
    /// Directory of the new `appliance.yaml`
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
}

/// `foothold schema`
#[derive(Clone, Copy, Debug, Args)]
pub struct Schema {
    /// Which files the schema describes
    #[arg(long, value_enum, default_value_t = SchemaOf::Appliance)]
    pub of: SchemaOf,
}

/// Files that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// Definitions
    Appliance,
    /// Simulations
    Simulation,
}

/// `foothold simulate`
#[derive(Debug, Args)]
pub struct Simulate {
    /// The simulation
    #[arg(value_name = "SITE")]
    pub file: PathBuf,
    /// Write the hosts and their Secrets here, for `kubectl apply` [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub manifests: Option<PathBuf>,
    /// Keep what the servers print on their serial ports in this folder [default: deleted at the end]
    #[arg(long, value_name = "DIR")]
    pub consoles: Option<PathBuf>,
    /// End when the last condition of the simulation is met, instead of going on until Ctrl-C
    #[arg(long, value_enum)]
    pub until: Option<UntilDone>,
    /// How the agent is compiled
    #[command(flatten)]
    pub agent: Agent,
    /// Where the toolbox is kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold kubectl`
#[derive(Debug, Args)]
pub struct Kubectl {
    /// The box, by the name of its image; needed when several run
    #[arg(long = "box", value_name = "NAME")]
    pub appliance: Option<String>,
    /// A cluster of the box's servers: `NAME` or `NAMESPACE/NAME` [default: the box's own]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Where things are kept [default: ~/.cache/foothold]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// What kubectl gets
    #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

/// `foothold lint`
#[derive(Debug, Args)]
pub struct Lint {
    /// The definition; a Site alone or a simulation, too
    #[command(flatten)]
    pub definition: Definition,
}

/// `foothold plan`
#[derive(Debug, Args)]
pub struct Plan {
    /// The definition
    #[command(flatten)]
    pub definition: Definition,
    /// Only these formats; may be given several times
    #[arg(long, value_name = "F", value_enum)]
    pub format: Vec<Format>,
    /// How the agent is compiled
    #[command(flatten)]
    pub agent: Agent,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold lock`
#[derive(Debug, Args)]
pub struct Lock {
    /// The definition
    #[command(flatten)]
    pub definition: Definition,
    /// Move everything to its newest version, also what is locked already
    #[arg(long)]
    pub update: bool,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold fetch`
#[derive(Debug, Args)]
pub struct Fetch {
    /// The definition
    #[command(flatten)]
    pub definition: Definition,
    /// Also copy it all to this directory, to be used as `--cache` elsewhere
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold toolbox`
#[derive(Debug, Args)]
pub struct Toolbox {
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold build`
#[derive(Debug, Args)]
pub struct Build {
    /// The definition
    #[command(flatten)]
    pub definition: Definition,
    /// Only these formats; may be given several times
    #[arg(long, value_name = "F", value_enum)]
    pub format: Vec<Format>,
    /// Where the images go
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    /// How the agent is compiled
    #[command(flatten)]
    pub agent: Agent,
    /// Where things are kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold run`
#[derive(Debug, Args)]
pub struct Run {
    /// A raw image, qcow2 or ISO
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// How the image is attached [default: cdrom for an ISO, else disk]
    #[arg(long = "as", value_enum)]
    pub attach: Option<Attach>,
    /// The machine
    #[command(flatten)]
    pub machine: Machine,
    /// End when the box is ready instead of keeping it running
    #[arg(long, value_enum)]
    pub until: Option<Until>,
    /// Where the toolbox is kept
    #[command(flatten)]
    pub sources: Sources,
}

/// A machine without a network, in which an image is measured.
#[derive(Clone, Copy, Debug, Args)]
pub struct LoneMachine {
    /// Firmware of the machine
    #[arg(long, value_enum, default_value_t = MachineFirmware::Uefi)]
    pub firmware: MachineFirmware,
    /// Memory: a size such as `4GiB`, or a number of MiB
    #[arg(long, value_name = "M", default_value = "4GiB", value_parser = memory)]
    pub memory: ByteSize,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub cpus: u32,
    /// Give up when the box is not ready after this time: seconds, or a duration such as `5m`
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

/// `foothold prove`
#[derive(Debug, Args)]
pub struct Prove {
    /// A raw image, qcow2 or ISO
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// The secret key of the release, as `file:PATH` or `env:NAME` [default: your development key]
    #[arg(long, value_name = "REFERENCE", value_parser = secret)]
    pub key: Option<SecretReference>,
    /// Only measure; the image stays as it is
    #[arg(long, conflicts_with = "key")]
    pub no_sign: bool,
    /// How the image is attached [default: cdrom for an ISO, else disk]
    #[arg(long = "as", value_enum)]
    pub attach: Option<Attach>,
    /// The machine
    #[command(flatten)]
    pub machine: LoneMachine,
    /// Where the toolbox is kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold bench`
#[derive(Debug, Args)]
pub struct Bench {
    /// Raw images, qcow2 or ISOs: each round boots each of them
    #[arg(value_name = "IMAGE", required = true)]
    pub images: Vec<PathBuf>,
    /// How often each image is booted: a first boot, and a second one of the same disk after a power cut
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Also look for so long at each box that is ready and has nothing to do: seconds, or a duration such as `5m`
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub idle: Option<Duration>,
    /// Add the figures to `figures.jsonl` in this folder, and draw them all in `figures.svg`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// The machine
    #[command(flatten)]
    pub machine: LoneMachine,
    /// Where the toolbox is kept
    #[command(flatten)]
    pub sources: Sources,
}

/// `foothold inspect`
#[derive(Debug, Args)]
pub struct Inspect {
    /// A raw image, qcow2 or ISO
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Print the list of everything in it, as SPDX 2.3 in JSON
    #[arg(long)]
    pub sbom: bool,
}

/// `foothold diff`
#[derive(Debug, Args)]
pub struct Diff {
    /// An image, a lock, or a definition that has a lock
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// What to compare it with
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Also write the bundle that updates a box from A to B into this file
    #[arg(long, value_name = "OUT")]
    pub bundle: Option<PathBuf>,
    /// The secret key of the release, as `file:PATH` or `env:NAME` [default: your development key]
    #[arg(long, value_name = "REFERENCE", value_parser = secret, requires = "bundle")]
    pub key: Option<SecretReference>,
}

/// `foothold verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// An image file or a device that holds one
    #[arg(value_name = "IMAGE|DEVICE")]
    pub image: PathBuf,
    /// The public key to trust [default: the one in the image]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// `foothold write`
#[derive(Debug, Args)]
pub struct Write {
    /// A raw image or ISO
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// A whole disk such as `/dev/sdb`; everything on it is lost
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
    /// Allow DEVICE to be a regular file
    #[arg(long)]
    pub file: bool,
}

/// Firmware of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineFirmware {
    /// BIOS
    Bios,
    /// UEFI
    Uefi,
    /// UEFI with Secure Boot on
    UefiSecure,
}

/// How an image is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attach {
    /// A virtio disk
    Disk,
    /// A USB stick
    Usb,
    /// A CD
    Cdrom,
}

/// Network of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// No interface at all; web and API cannot be reached
    None,
    /// One interface with DHCP; 8443 and 6443 are forwarded from loopback
    User,
}

/// When a simulation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UntilDone {
    /// The last condition is met
    Done,
}

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// Every service answers
    Ready,
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Raw, Self::Qcow2, Self::Iso]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(self.name().into())
    }
}

fn secret(text: &str) -> Result<SecretReference, String> {
    text.parse().map_err(|invalid: crate::config::Invalid| invalid.to_string())
}

fn memory(text: &str) -> Result<ByteSize, String> {
    if let Ok(mib) = text.parse::<u32>() {
        return Ok(ByteSize::mib(mib.into()));
    }
    text.parse().map_err(|invalid: crate::config::Invalid| invalid.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    if let Ok(secs) = text.parse() {
        return Ok(Duration::from_secs(secs));
    }
    crate::config::parse_duration(text).map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
