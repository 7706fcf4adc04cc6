//! The command line of the agent.

use std::fmt::Write;
use std::process::ExitCode;

use agent_api::boot::{EVENTS, SITE_STATUS};
use agent_api::events::{Event, Status};
use agent_api::rest::{SiteStatus, done_about};
use anyhow::Context;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::bmc::command::Rehearse;
use crate::helm::command::Release;
use crate::import::icn::command::Hosts;
use crate::node::command::Node;
use crate::operators::Operator;
use crate::parts::command::Parts;
use crate::provisioning::segment::command::Dhcp;
use crate::ramdisk::RamdiskNetwork;
use crate::ramdisk::clock::RamdiskClock;
use crate::ramdisk::image::ServerNetwork;
use crate::terminal::show;
use crate::uploads::publish::ReadUpload;
use crate::vino_node::command::VinoNode;
use crate::{daemon, init};

/// The agent of a Foothold box.
#[derive(Debug, Parser)]
#[command(name = "foothold-agent", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring the box up and keep it up (started by systemd).
    Run,
    /// Find the medium and switch to it (started by the kernel as process 1 of the initrd).
    Init,
    /// Watch the medium for damage (started by `init`).
    #[command(hide = true)]
    Guard,
    /// Print the events of this boot, one JSON object a line.
    Events,
    /// Print each step of the box: its state, its time, and its last message.
    Status,
    /// Ask every BMC of a site what provisioning will need of it, without changing anything.
    ///
    /// The exit code is 0 when no BMC would fail, else 1.
    Rehearse(Rehearse),
    /// Run a controller of Kubernetes objects.
    #[command(subcommand)]
    Operator(Operator),
    /// Make a server a node of an application cluster (started by the controller of clusters, over SSH).
    #[command(subcommand, hide = true)]
    Node(Node),
    /// Run a container of the pod that makes virtual machines on a node (started by the controller of `Vino`s).
    #[command(subcommand, hide = true)]
    VinoNode(VinoNode),
    /// Install a chart on a cluster, or remove it (started by the controller of releases, in a pod with Helm).
    #[command(hide = true)]
    Release(Release),
    /// Services of the box on a node that someone else set up (started by the chart of `foothold export`).
    #[command(subcommand, hide = true)]
    Parts(Parts),
    /// Print the hosts of Akraino ICN's files as `BareMetalHost`s and Secrets, ready for `kubectl apply -f -`.
    ///
    /// If any file has a mistake, all mistakes are reported and no object is printed.
    Hosts(Hosts),
    #[command(hide = true)]
    ReadUpload(ReadUpload),
    /// Set up the network of a server that runs the deploy ramdisk, as its virtual medium says (started by systemd).
    #[command(hide = true)]
    RamdiskNetwork(RamdiskNetwork),
    /// Set the clocks of a server that runs the deploy ramdisk by that of the box (started by systemd).
    #[command(hide = true)]
    RamdiskClock(RamdiskClock),
    /// Set up the network of an installed server, as its config drive says (started by systemd).
    #[command(hide = true)]
    ServerNetwork(ServerNetwork),
    /// Serve DHCP, TFTP and network boot on an interface; by default without disturbing another DHCP server.
    Dhcp(Dhcp),
}

/// The command line as data, for tests of what is written about it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line, runs, prints the chain of an error, tells the exit code.
#[expect(clippy::print_stderr, reason = "this is the command line")]
pub fn main() -> ExitCode {
    if init::is_wanted() {
        return init::main();
    }
    match run(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Init => Ok(init::main()),
        Command::Guard => Ok(init::guard::main()),
        Command::Run => daemon::main().map(|()| ExitCode::SUCCESS),
        Command::Events => {
            show(&events()?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Status => {
            show(&status_lines(&events()?));
            show(&site_lines(&site_status()?));
            Ok(ExitCode::SUCCESS)
        }
        Command::Rehearse(rehearse) => rehearse.run(),
        Command::Operator(operator) => {
            log_to_stderr();
            operator.run().map(|()| ExitCode::SUCCESS)
        }
        Command::Parts(parts) => {
            log_to_stderr();
            parts.run().map(|()| ExitCode::SUCCESS)
        }
        Command::Node(node) => node.run().map(|()| ExitCode::SUCCESS),
        Command::VinoNode(container) => {
            log_to_stderr();
            container.run()
        }
        Command::Release(release) => release.run(),
        Command::Hosts(hosts) => hosts.run(),
        Command::ServerNetwork(network) => {
            show(&network.run()?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Dhcp(dhcp) => dhcp.run(),
        Command::ReadUpload(reader) => {
            reader.run()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::RamdiskNetwork(network) => {
            show(&network.run()?);
            Ok(ExitCode::SUCCESS)
        }
        Command::RamdiskClock(clock) => {
            let _ = rustls::crypto::ring::default_provider().install_default();
            show(&clock.run()?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The events of this boot, as they were written.
fn events() -> anyhow::Result<String> {
    fs_err::read_to_string(EVENTS).context("no events: this is not a running box")
}

/// Prints the servers of the site and what runs on them: clusters, nodes, packages. Prints nothing on a box without
/// servers.
fn site_status() -> anyhow::Result<SiteStatus> {
    match fs_err::read(SITE_STATUS) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("reading `{SITE_STATUS}`")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(SiteStatus::default()),
        Err(error) => Err(error.into()),
    }
}

/// One line for the servers, one per object, one per node of it.
fn site_lines(site: &SiteStatus) -> String {
    let mut text = String::new();
    if !site.servers.is_empty() {
        let _ = writeln!(text, "servers: {}", site.counts());
    }
    for object in &site.objects {
        let name = format!("{} {}/{}", object.kind, object.namespace, object.name);
        let since = object.since.as_deref().unwrap_or_default();
        let state = format!("{}{}", object.state, done_about(object.eta.as_deref()));
        let _ = writeln!(text, "{name:<40} {state:<14} {since:<20} {}", object.message.replace('\n', "; "));
        for node in &object.nodes {
            let state = format!("{}{}", node.state, done_about(node.eta.as_deref()));
            let _ = writeln!(text, "  {:<24} {:<15} {state} {}", node.name, node.ip, node.message);
        }
    }
    text
}

/// Log lines of a program in a pod, for `kubectl logs`. The level is `info` unless `RUST_LOG` names another one.
fn log_to_stderr() {
    let wanted = env_logger::Env::new().default_filter_or("info");
    env_logger::Builder::from_env(wanted).format_timestamp(None).init();
}

/// One line per step: its state, how long it took or takes, and what its last event says.
fn status_lines(events: &str) -> String {
    let mut status = Status::default();
    // A line that is being written right now is not whole yet.
    for event in events.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok()) {
        status.apply(&event);
    }
    let mut text = format!("{} at {:.1} s\n", if status.ready { "ready" } else { "not ready" }, status.t);
    for step in &status.steps {
        let state = serde_json::to_value(step.state).ok();
        let state = state.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        let secs = step.secs.unwrap_or(status.t - step.since);
        let words = ["message", "why", "cause"].into_iter().find_map(|key| step.detail.get(key)?.as_str());
        let name = format!("{}/{}", step.phase, step.step);
        let _ = writeln!(text, "{name:<32} {state:<8} {secs:7.1} s  {}", words.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use agent_api::rest::{SiteNode, SiteObject, SiteStatus};

    use clap::error::ErrorKind;

    use super::{site_lines, status_lines};

    /// Commands that messages name are some that this program takes.
    #[test]
    fn every_command_of_ours_that_a_message_names_is_one() {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut seen = 0;
        for entry in walkdir::WalkDir::new(sources).sort_by_file_name() {
            let path = entry.expect("a file").into_path();
            if path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = fs_err::read_to_string(&path).expect("a source");
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for command in lines.flat_map(|line| line.split('`').skip(1).step_by(2)) {
                if !command.starts_with("foothold-agent ") {
                    continue;
                }
                seen += 1;
                let parsed = super::command().try_get_matches_from(command.split_whitespace());
                // A message may leave out what its reader knows.
                let short = [
                    ErrorKind::MissingRequiredArgument,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                    ErrorKind::InvalidValue,
                ];
                let error = parsed.err().map(|error| error.kind()).filter(|kind| !short.contains(kind));
                assert_eq!(error, None, "{}: `{command}`", path.display());
            }
        }
        assert!(seen >= 2, "only {seen} commands were found");
    }

    #[test]
    fn status_tells_servers_by_state_and_each_cluster_with_its_nodes() {
        let own = str::to_owned;
        let node = SiteNode {
            name: own("w-0"),
            ip: own("192.0.2.11"),
            state: own("kubernetes/join (7 of 9)"),
            eta: Some(own("2027-01-15T08:04:20Z")),
            ..SiteNode::default()
        };
        let cluster = SiteObject {
            kind: own("Provisioning"),
            namespace: own("default"),
            name: own("one"),
            state: own("Installing"),
            message: own("w-0 joins\nand more"),
            nodes: vec![node],
            ..SiteObject::default()
        };
        let site = SiteStatus { servers: [(own("provisioned"), 2)].into(), objects: vec![cluster] };
        let lines = site_lines(&site);
        let words: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["servers:", "2", "provisioned"]);
        assert_eq!(words[1], ["Provisioning", "default/one", "Installing", "w-0", "joins;", "and", "more"]);
        assert_eq!(
            words[2],
            ["w-0", "192.0.2.11", "kubernetes/join", "(7", "of", "9),", "done", "about", "08:04", "UTC"]
        );
        assert_eq!(site_lines(&SiteStatus::default()), "");
    }

    #[test]
    fn status_tells_the_state_of_every_step_and_ignores_half_a_line() {
        let events = concat!(
            r#"{"t":1.0,"source":"box","phase":"medium","step":"find","state":"started"}"#,
            "\n",
            r#"{"t":3.5,"source":"box","phase":"medium","step":"find","state":"done","detail":{"message":"on vda3"}}"#,
            "\n",
            r#"{"t":4.0,"source":"box","phase":"disk","st"#,
        );
        let expected = "not ready at 3.5 s\nmedium/find                      done         2.5 s  on vda3\n";
        assert_eq!(status_lines(events), expected);
    }
}
