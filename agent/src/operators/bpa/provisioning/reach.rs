//! Connects to the servers of a cluster and checks them, before anything is changed on them.

use std::time::Duration;

use agent_api::clusters::provisioning::{NodePhase, NodeRole};
use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::decide::Chosen;
use super::install::{LOOK, Order, Work};
use crate::node::plan::{CheckPlan, NodeFacts};
use crate::operators::bpa::login::Login;
use crate::operators::bpa::nodes;
use crate::ssh::{Session, SshError};

/// How long a server that was just provisioned may take to boot.
const BOOT: Duration = Duration::from_secs(600);
/// How long a node that was installed before may take: it runs, or is restarted.
const RUNS: Duration = Duration::from_secs(180);

/// How long the API of a master that was restarted may take.
const API: Duration = Duration::from_secs(600);

/// A server with an open connection.
pub(super) struct Server<'a> {
    pub node: &'a Chosen,
    pub session: Session,
    pub agent: &'static str,
    pub facts: NodeFacts,
}

impl Server<'_> {
    pub fn is_master(&self) -> bool {
        self.node.roles.contains(&NodeRole::Master)
    }

    pub async fn ask<T: DeserializeOwned>(&self, arguments: &[&str], plan: &[u8]) -> anyhow::Result<T> {
        let mut argv = vec![self.agent, "node"];
        argv.extend(arguments);
        let answer = self.session.output(&argv, plan).await?;
        Ok(serde_json::from_slice(&answer.stdout)?)
    }

    /// Runs kubectl on a master as the cluster's administrator. Returns what it prints.
    pub async fn kubectl(&self, words: &[&str]) -> Result<Vec<u8>, SshError> {
        nodes::kubectl(&self.session, words).await
    }

    /// Waits until the API of this master is ready: it may just be started, after a power cut or by kubeadm.
    pub async fn until_api_answers(&self, work: &Work) -> anyhow::Result<()> {
        let begun = tokio::time::Instant::now();
        loop {
            let Err(error) = self.kubectl(&["get", "--raw", "/readyz"]).await else { return Ok(()) };
            anyhow::ensure!(
                begun.elapsed() < API,
                "the API of {} is not ready after {} min: {error}",
                self.node.name,
                API.as_secs() / 60
            );
            work.say(format!("waiting for the API of {}", self.node.name));
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The servers of a cluster that answer.
pub(super) struct Reached<'a> {
    /// Servers that answer.
    pub servers: Vec<Server<'a>>,
    /// Nodes that were installed before and do not answer now, each with the reason. The others go on without them.
    pub away: Vec<(&'a Chosen, String)>,
}

/// Connects to all servers at the same time, writes the cluster's key to them, and copies the agent to them.
///
/// # Errors
/// A server that is not a node yet does not answer.
pub(super) async fn reach<'a>(order: &'a Order, work: &Work) -> anyhow::Result<Reached<'a>> {
    let before = work.nodes();
    let known = |node: &Chosen| before.iter().find(|known| known.name == node.name);
    let was_node = |node: &Chosen| order.existed && known(node).is_some_and(|known| known.installed_at.is_some());
    let one = async |node: &'a Chosen| -> anyhow::Result<Server<'a>> {
        let target = order.login.target(node.ip, known(node).and_then(|node| node.host_key.clone()));
        let within = if was_node(node) { RUNS } else { BOOT };
        let session = Session::connect(&target, &order.login.identity, within).await?;
        work.change(&node.name, |status| status.host_key = Some(session.host_key().to_owned()));
        leave_key(&session, &order.login).await?;
        let agent = order.agent.bring(&session).await?;
        Ok(Server { node, session, agent, facts: NodeFacts::default() })
    };
    let named = async |node: &'a Chosen| (node, one(node).await);
    let tried = join_all(order.chosen.iter().map(named)).await;
    let (mut servers, mut away, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (node, tried) in tried {
        match tried {
            Ok(server) => servers.push(server),
            Err(error) => {
                let why = format!("{error:#}");
                let was_node = was_node(node);
                work.change(&node.name, |status| {
                    status.error = Some(why.clone());
                    if was_node {
                        status.phase = NodePhase::Installed;
                    }
                });
                if was_node { away.push((node, why)) } else { failed.push(why) }
            }
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(Reached { servers, away })
}

/// Puts a line (`$3`) into the user's (`$1`) `authorized_keys`, unless it is there. The home is `$2` if nobody knows it.
///
/// The file is written whole: when a server loses its power, the end of a line that was only appended may be zeros, and the
/// next line would be part of that one (ext4: the size of a file in a block that it has already is written before its data).
const LEAVE_KEY: &str = r#"
home=$(getent passwd "$1" | cut -d: -f6); home=${home:-$2}
f=$(readlink -f "$home/.ssh/authorized_keys" || echo "$home/.ssh/authorized_keys")
grep -qxaF "$3" "$f" 2>/dev/null && exit
set -e
install -d -m 700 -o "$1" "$home/.ssh"
umask 077
{ if [ -e "$f" ]; then tr -d '\000' < "$f" | sed -e '$a\'; fi; printf '%s\n' "$3"; } > "$f.new"
chown "$1" "$f.new"
sync "$f.new"
mv "$f.new" "$f"
"#;

/// Writes the cluster's key to a server: it works for the next connection even if the password has changed by then.
async fn leave_key(session: &Session, login: &Login) -> Result<(), SshError> {
    let home = if login.user == "root" { "/root".to_owned() } else { format!("/home/{}", login.user) };
    session.output(&["sh", "-c", LEAVE_KEY, "sh", &login.user, &home, login.authorized.trim()], b"").await.map(drop)
}

/// Asks every server whether it can become a node, before anything is changed on any of them. What was begun on them before is
/// waited for: kubeadm goes on when the operator ends, and meanwhile the API may come and go.
pub(super) async fn check(order: &Order, work: &Work, servers: &mut [Server<'_>]) -> anyhow::Result<()> {
    loop {
        look(order, servers).await?;
        let busy: Vec<&str> =
            servers.iter().filter(|server| server.facts.busy).map(|server| server.node.name.as_str()).collect();
        if busy.is_empty() {
            return judge(servers);
        }
        work.say(format!("waiting until what was begun before has ended on {}", busy.join(", ")));
        tokio::time::sleep(LOOK).await;
    }
}

/// Asks all servers what they are.
async fn look(order: &Order, servers: &mut [Server<'_>]) -> anyhow::Result<()> {
    let brought: Vec<String> = order.goods.programs.iter().map(|program| program.path.clone()).collect();
    let one = async |server: &mut Server<'_>| -> anyhow::Result<()> {
        let plan = CheckPlan {
            cluster: order.id.clone(),
            control_plane: server.is_master(),
            address: server.node.ip,
            reach: order.place.reach(),
            now: Timestamp::now().as_second(),
            brought: brought.clone(),
        };
        server.facts = server.ask(&["check"], &serde_json::to_vec(&plan)?).await?;
        Ok(())
    };
    try_join_all(servers.iter_mut().map(one)).await.map(drop)
}

/// An error when a server cannot become a node.
fn judge(servers: &[Server<'_>]) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        problems.extend(server.facts.problems.iter().map(|problem| format!("{}: {problem}", server.node.name)));
        let twin = servers[..at].iter().find(|other| other.facts.machine_id == server.facts.machine_id);
        if let Some(twin) = twin.filter(|_| !server.facts.machine_id.is_empty()) {
            problems.push(format!(
                "{} and {} have the same machine id; hint: empty /etc/machine-id in their image, and boot them again",
                twin.node.name, server.node.name
            ));
        }
    }
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// The master that has the cluster already; the first master when there is no cluster yet.
pub(super) fn first_master(order: &Order, reached: &Reached<'_>) -> anyhow::Result<usize> {
    let masters = || reached.servers.iter().enumerate().filter(|(_, server)| server.is_master());
    if let Some((at, _)) = masters().find(|(_, server)| server.facts.member) {
        return Ok(at);
    }
    let away = || reached.away.iter().filter(|(node, _)| node.roles.contains(&NodeRole::Master));
    let why: Vec<&str> = away().map(|(_, why)| why.as_str()).collect();
    anyhow::ensure!(why.is_empty(), "no master of the cluster answers: {}", why.join("\n"));
    anyhow::ensure!(
        !order.existed,
        "no master of the cluster is left, and it is not begun anew over its remains; hint: bring one back, or delete the \
         Provisioning and make it again"
    );
    masters().map(|(at, _)| at).next().ok_or_else(|| anyhow::anyhow!("there is no master"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::LEAVE_KEY;
    use crate::host::System;
    use crate::host::runner::Runner as _;

    #[test]
    fn a_key_is_a_line_of_its_own_whatever_a_power_cut_left() {
        let (mine, theirs) = ("ssh-ed25519 AAAAmine foothold one", "ssh-ed25519 AAAAtheirs me");
        for (before, after) in [
            (None, format!("{mine}\n")),
            (Some(String::new()), format!("{mine}\n")),
            (Some(format!("{theirs}\n")), format!("{theirs}\n{mine}\n")),
            (Some(theirs.to_owned()), format!("{theirs}\n{mine}\n")),
            (Some(format!("{theirs}\n{}", "\0".repeat(34))), format!("{theirs}\n{mine}\n")),
            (Some(format!("{mine}\n{theirs}\n")), format!("{mine}\n{theirs}\n")),
            (Some(format!("{mine} more\n")), format!("{mine} more\n{mine}\n")),
        ] {
            let dir = tempfile::tempdir().expect("a folder");
            let file = dir.path().join(".ssh/authorized_keys");
            if let Some(before) = &before {
                fs_err::create_dir(dir.path().join(".ssh")).expect("a folder");
                fs_err::write(dir.path().join("elsewhere"), before).expect("written");
                symlink("../elsewhere", &file).expect("a link");
            }
            let home = dir.path().to_string_lossy();
            // Nobody knows the user of this test: then the home that is told counts, and the owner is a number.
            let script = format!("getent() {{ :; }}\n{LEAVE_KEY}");
            let user = rustix::process::getuid().as_raw().to_string();
            let argv = ["sh", "-c", &script, "sh", &user, &home, mine];
            for _ in ["written", "there already"] {
                System::new().run(&argv, b"", std::time::Duration::from_secs(10)).expect("it runs");
                assert_eq!(fs_err::read_to_string(&file).expect("read"), after, "{before:?}");
            }
            let is_link = fs_err::symlink_metadata(&file).expect("there").is_symlink();
            assert_eq!(is_link, before.is_some(), "{before:?}");
            if before.is_none() || before.as_deref() == Some("") {
                assert_eq!(fs_err::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
            }
        }
    }
}
