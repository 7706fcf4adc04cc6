//! Serial consoles for the users of jump hosts.
//!
//! ```text
//! jump host: `host console NAME` listens on a port of its pod, and writes it into its ConfigMap
//!       ▲                                  │ the controller takes the request
//!       └── API server: pods/portforward ──┤ whose pod, whose host, is it free
//!                                          └─► bmc::console ─► the host's serial line
//! ```
//! The controller comes to the jump host, and nobody to the controller: so there is no door that needs a certificate and a
//! check of tokens, the jump host's account may do no more than before, and the way is the one that the API server has to each
//! pod of a cluster. Who may write the `ConfigMap` may ask; that pod alone is connected to.
//!
//! ```text
//! controller -> jump host: KEY "\n"           it has read the request
//! jump host -> controller: "ready\n"          and it is the one who wrote it
//! controller -> jump host: {"opened": ...} "\n" or {"refused": WORDS} "\n", and after the first the line itself, both ways
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_api::metal3::BareMetalHost;
use agent_api::metal3::bmc_address::Credentials;
use agent_api::sip::cluster::{CONSOLE_HOST_KEY, SipCluster};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Patch, PatchParams, Portforwarder};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, copy, split};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::decide::is_of;
use super::infra::Infra;
use super::infra::requests::{Listener, Opening, READY};
use crate::bmc::console::{self, Access, Console, ConsoleError};
use crate::operators::kit::{Key, Object as _, text_of, told_key};
use crate::ssh::SshError;
use crate::steps::chain;

/// What the jump host has for its part of the greeting.
const GREETING: Duration = Duration::from_secs(10);

/// A console that is asked for.
pub struct Wish {
    /// The jump host's cluster.
    pub object: SipCluster,
    /// The host; it was the cluster's when it was asked for.
    pub host: Key,
    /// Where the jump host waits.
    pub listener: Listener,
    /// The `ConfigMap`, and the key of the answer in it if the jump host cannot be told otherwise.
    pub answer: (String, String),
}

/// Sessions. They end with this.
#[derive(Default)]
pub struct Consoles {
    held: Arc<Held>,
    tasks: Mutex<JoinSet<()>>,
}

/// Hosts whose console somebody has.
#[derive(Default)]
struct Held(Mutex<HashMap<Key, Holder>>);

struct Holder {
    cluster: Key,
    end: CancellationToken,
}

/// A console that is somebody's until this is dropped.
struct Turn {
    held: Arc<Held>,
    host: Key,
    /// The host is not the cluster's any more.
    end: CancellationToken,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.held.lock().remove(&self.host);
    }
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Holder>> {
        // Entries are whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, host: &Key, cluster: &Key) -> Option<Turn> {
        let mut held = self.lock();
        if held.contains_key(host) {
            return None;
        }
        let end = CancellationToken::new();
        held.insert(host.clone(), Holder { cluster: cluster.clone(), end: end.clone() });
        Some(Turn { held: Arc::clone(self), host: host.clone(), end })
    }
}

impl Consoles {
    /// Opens a console, and has it go on by itself.
    pub fn open(&self, client: Client, wish: Wish) {
        let held = Arc::clone(&self.held);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let (namespace, _) = wish.object.key();
            let what = format!("{namespace}/{}: console of {}", wish.listener.pod, told_key(&wish.host));
            let Err(why) = attend(&client, &wish, &held).await else { return log::info!("{what}: ended") };
            log::warn!("{what}: {why}");
            let (map, key) = &wish.answer;
            let answer = Patch::Merge(json!({"data": {key: why}}));
            let maps = Api::<ConfigMap>::namespaced(client, &namespace);
            if let Err(error) = maps.patch(map, &PatchParams::default(), &answer).await {
                log::warn!("{what}: answering: {}", chain(&error));
            }
        });
    }

    /// Ends the sessions of a cluster, but for those with these hosts.
    pub fn keep(&self, cluster: &Key, hosts: &[Key]) {
        let held = self.held.lock();
        let lost = held.iter().filter(|(host, holder)| holder.cluster == *cluster && !hosts.contains(host));
        for (_, holder) in lost {
            holder.end.cancel();
        }
    }
}

/// One session, to its end. An error is what the jump host could not be told.
async fn attend(client: &Client, wish: &Wish, held: &Arc<Held>) -> Result<(), String> {
    let (mut stream, _forwarder) = connect(client, wish).await?;
    let cluster = wish.object.key();
    let Some(turn) = held.take(&wish.host, &cluster) else {
        tell(&mut stream, &Opening::Refused("somebody else has its console".to_owned())).await;
        return Ok(());
    };
    let opened = tokio::select! {
        opened = open(client, wish) => opened,
        () = turn.end.cancelled() => Err("it is not this cluster's any more".to_owned()),
        // The jump host says nothing before it is told.
        _ = stream.read_u8() => return Ok(()),
    };
    let mut console = match opened {
        Ok(console) => console,
        Err(why) => {
            tell(&mut stream, &Opening::Refused(why)).await;
            return Ok(());
        }
    };
    tell(&mut stream, &Opening::Opened(told_key(&wish.host))).await;
    log::info!("{}/{}: console of {}: opened", cluster.0, wish.listener.pod, told_key(&wish.host));
    let mut line = console.line();
    tokio::select! {
        () = relay(&mut stream, &mut line) => {}
        () = turn.end.cancelled() => {
            // The user may be gone.
            let _ = stream.write_all(b"\r\nthe host is not this cluster's any more\r\n").await;
            let _ = stream.flush().await;
        }
    }
    let _ = stream.shutdown().await;
    console.close().await;
    Ok(())
}

/// Both ways, until one of them ends.
async fn relay(one: &mut (impl AsyncRead + AsyncWrite + Unpin), other: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let ((mut from_one, mut to_one), (mut from_other, mut to_other)) = (split(one), split(other));
    tokio::select! {
        _ = copy(&mut from_one, &mut to_other) => {}
        _ = copy(&mut from_other, &mut to_one) => {}
    }
}

async fn tell(stream: &mut DuplexStream, opening: &Opening) {
    let mut line = serde_json::to_string(opening).unwrap_or_default();
    line.push('\n');
    // The user may be gone: then there is nothing to say.
    let _ = stream.write_all(line.as_bytes()).await;
    let _ = stream.flush().await;
    if matches!(opening, Opening::Refused(_)) {
        let _ = stream.shutdown().await;
    }
}

/// The way to the process on the jump host that asks.
async fn connect(client: &Client, wish: &Wish) -> Result<(DuplexStream, Portforwarder), String> {
    let (namespace, _) = wish.object.key();
    let Listener { pod, port, key } = &wish.listener;
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let found = pods.get_opt(pod).await.map_err(|error| format!("asking for the pod `{pod}`: {}", chain(&error)))?;
    let own = Infra::JumpHost.name(&wish.object);
    if !found.is_some_and(|found| is_jump_host(&found, &own)) {
        return Err(format!("`{pod}` is no pod of this jump host"));
    }
    let ports = [*port];
    let mut forwarder =
        pods.portforward(pod, &ports).await.map_err(|error| format!("connecting to `{pod}`: {}", chain(&error)))?;
    let stream = forwarder.take_stream(*port);
    let mut stream = stream.ok_or_else(|| format!("connecting to `{pod}`: there is no stream"))?;
    let mut greeting = [0; READY.len()];
    let greeted = timeout(GREETING, async {
        stream.write_all(format!("{key}\n").as_bytes()).await?;
        stream.flush().await?;
        stream.read_exact(&mut greeting).await
    });
    match greeted.await {
        Ok(Ok(_)) if greeting == *READY => Ok((stream, forwarder)),
        _ => Err(format!("nobody waits for it on port {port} of `{pod}`")),
    }
}

/// Whether a pod is the jump host's: by its account, and by its label.
fn is_jump_host(pod: &Pod, own: &str) -> bool {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    account == Some(own) && pod.labels().get("app.kubernetes.io/instance").is_some_and(|instance| instance == own)
}

/// Opens the host's serial line. An error is for the user.
async fn open(client: &Client, wish: &Wish) -> Result<Console, String> {
    let (namespace, name) = &wish.host;
    let told = |error: kube::Error| format!("asking for the host: {}", chain(&error));
    let hosts = Api::<BareMetalHost>::namespaced(client.clone(), namespace);
    let host = hosts.get_opt(name).await.map_err(told)?.filter(|host| is_of(host, &wish.object));
    let host = host.ok_or("it is not this cluster's any more")?;
    let bmc = host.spec.bmc.as_ref().filter(|bmc| !bmc.address.is_empty()).ok_or("it has no BMC")?;
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(&bmc.credentials_name).await.map_err(told)?;
    let text =
        |key: &str| text_of(secret.as_ref()?, key).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let credentials = text("username").zip(text("password"));
    let (username, password) = credentials.ok_or("the Secret of its BMC has no `username` and `password`")?;
    let known = host.annotations().get(CONSOLE_HOST_KEY).cloned();
    let access = Access {
        address: bmc.address.clone(),
        unverified: bmc.disable_certificate_verification == Some(true),
        authority: text("ca.crt"),
        credentials: Credentials { username, password },
        host_key: known.clone(),
    };
    let console = console::open(&access).await.map_err(|error| refusal(&error))?;
    if let (None, Some(shown)) = (known, console.host_key()) {
        let change: Value = json!({"metadata": {"annotations": {CONSOLE_HOST_KEY: shown}}});
        hosts.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.map_err(told)?;
    }
    Ok(console)
}

/// Why there is no console, in words that help here.
fn refusal(error: &ConsoleError) -> String {
    match error {
        ConsoleError::Ssh(SshError::OtherKey { target, shown, known }) => {
            let mut text = format!("{target} shows the key {shown}, and is known by {known}");
            let _ =
                write!(text, "; hint: if its BMC was reset, remove the annotation `{CONSOLE_HOST_KEY}` of the host");
            text
        }
        ConsoleError::Address(address) => format!("{}; hint: {}", chain(error), address.hint()),
        other => chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("a".to_owned(), name.to_owned())
    }

    #[test]
    fn a_console_is_one_users_until_he_leaves() {
        let held = Arc::new(Held::default());
        let turn = held.take(&key("h"), &key("one")).expect("free");
        assert!(held.take(&key("h"), &key("two")).is_none());
        assert!(held.take(&key("i"), &key("one")).is_some());
        drop(turn);
        assert!(held.take(&key("h"), &key("two")).is_some());
    }

    #[test]
    fn a_session_ends_when_the_cluster_loses_the_host() {
        let consoles = Consoles::default();
        let take = |host: &str, cluster: &str| consoles.held.take(&key(host), &key(cluster)).expect("free");
        let turns = [take("h", "one"), take("i", "one"), take("j", "two")];
        consoles.keep(&key("one"), &[key("i")]);
        assert_eq!(turns.map(|turn| turn.end.is_cancelled()), [true, false, false]);
    }

    #[test]
    fn only_a_pod_of_the_jump_host_is_connected_to() {
        let pod = |account: &str, instance: &str| {
            let pod = json!({"metadata": {"name": "p", "labels": {"app.kubernetes.io/instance": instance}},
                "spec": {"serviceAccountName": account, "containers": []}});
            serde_json::from_value::<Pod>(pod).expect("a pod")
        };
        assert!(is_jump_host(&pod("jumphost-one", "jumphost-one"), "jumphost-one"));
        assert!(!is_jump_host(&pod("default", "jumphost-one"), "jumphost-one"));
        assert!(!is_jump_host(&pod("jumphost-one", "other"), "jumphost-one"));
    }

    #[test]
    fn another_key_of_a_bmc_comes_with_what_to_do() {
        let [target, shown, known] = ["admin@192.0.2.1:22", "SHA256:a", "SHA256:b"].map(str::to_owned);
        let error = ConsoleError::Ssh(SshError::OtherKey { target, shown, known });
        assert!(refusal(&error).contains("remove the annotation `sip.airshipit.org/console-host-key` of the host"));
    }
}
