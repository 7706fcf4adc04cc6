//! Phase `control-plane`: certificates, the kubelet, etcd and the API server; then, once that
//! answers, the controller manager and the scheduler, which would only spin before.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Machine, addons, etcd, leases, network, phase};
use crate::cluster::api::{Api, ApiError};
use crate::cluster::pki::{self, Issued};
use crate::cluster::{Node, TEMPLATES, kubeconfig, kubelet, manifests, state};
use crate::host::files;
use crate::services;
use crate::steps::{Key, Missing, Outcome, Steps, blocking, chain, done};

/// How often the API server is asked while it starts: refused connections cost nothing.
const ASK: Duration = Duration::from_millis(200);
/// How often it is looked up how far it has come: reading the table of sockets is not for nothing.
const LOOK: Duration = Duration::from_secs(2);

/// Written when the API server has answered for the first time in this boot.
const ANSWERED: &str = "/run/foothold/api-answered";
/// The API server's own check whether its roles are there.
const ROLES: &str = "/readyz/poststarthook/rbac/bootstrap-roles";
/// Collection and name of the binding that is there until they are.
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const STARTING: &str = "foothold:starting";
/// How often it is asked: each refusal costs the API server a look at its stack.
const ROLES_ASK: Duration = Duration::from_secs(1);
/// Port of etcd.
const ETCD: u16 = 2379;
/// One folder for each container that runs.
const TASKS: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
/// etcd and kube-apiserver, each with its sandbox.
const FIRST_TASKS: usize = 4;

/// The authorities of the cluster, in PEM, as those who render objects need them.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Certificate of the cluster's authority.
    pub ca: String,
}

/// Makes or renews every certificate and kubeconfig. Also run daily, and when addresses change.
pub fn bring_up_to_date(
    machine: &Machine,
    node: &Node,
    made_before: bool,
) -> anyhow::Result<(Credentials, Vec<Issued>)> {
    let validity = machine.validity();
    let (etc, dir) = (machine.at(kubeconfig::DIR), machine.at(pki::PKI_DIR));
    let cas = pki::authorities(&dir, validity, made_before)?;
    let mut issued = pki::leaves_on_disk(&dir, node, &cas, validity)?;
    issued.extend(kubeconfig::on_disk(&etc, node, &cas, validity)?);
    issued.extend(kubelet::certificates(&etc, &machine.at(kubelet::DIR), node, &cas, validity)?);
    if !issued.is_empty() {
        files::sync(&etc)?;
    }
    Ok((Credentials { ca: cas.cluster.pem }, issued))
}

/// The node with the addresses that the box had before, too: its interfaces may not have them yet, and clients that use
/// them must reach the API server while the box comes up. Addresses that are really gone leave the certificate later.
fn keeping(machine: &Machine, mut node: Node) -> Node {
    node.site_addresses.extend(pki::served_addresses(&machine.at(pki::PKI_DIR)));
    node
}

/// Certificates and kubeconfigs.
pub async fn certificates(machine: &Machine, steps: &Steps, node: &Node) -> Credentials {
    let act = || async {
        let made_before = steps.ledger.was_done(&phase::CERTIFICATES);
        let (on, who) = (machine.clone(), node.clone());
        let (credentials, issued) = blocking(move || bring_up_to_date(&on, &keeping(&on, who), made_before)).await?;
        steps.record(&phase::CERTIFICATES, &Key::of([&credentials.ca]))?;
        if issued.is_empty() {
            return Ok(Outcome::Current(credentials));
        }
        let issued: Vec<String> = issued.iter().map(|one| format!("{}: {:?}", one.file, one.reason)).collect();
        Ok(Outcome::Done(credentials, json!({"issued": issued})))
    };
    steps.perform(&phase::CERTIFICATES, act).await
}

/// Settings of the kubelet, and the static pods that can start at once.
pub async fn place_manifests(machine: &Machine, steps: &Steps, node: &Node) {
    let act = || async {
        let (machine, node) = (machine.clone(), node.clone());
        blocking(move || {
            let anew = etcd::prepare(&machine)?;
            let (templates, dir) = (machine.at(TEMPLATES), machine.at(manifests::DIR));
            let mut changed = kubelet::settings(&templates, &machine.at(kubelet::DIR), &node)?;
            // An agent that was restarted leaves running pods alone.
            if !has_answered(&machine) {
                manifests::hold_back(&dir, &manifests::SECOND)?;
                services::hold_back(&dir)?;
            }
            changed += manifests::place(&templates.join("manifests"), &dir, &manifests::FIRST, &node)?;
            Ok(match (changed, anew) {
                (0, false) => Outcome::Current(()),
                (_, false) => Outcome::Done((), json!({"files": changed})),
                (_, true) => Outcome::Done((), json!({"files": changed, "etcd": "begun anew after a power cut"})),
            })
        })
        .await
    };
    steps.perform(&phase::MANIFESTS, act).await;
}

/// Starts the kubelet.
pub async fn start_kubelet(machine: &Machine, steps: &Steps) {
    let act = || async {
        let machine = machine.clone();
        blocking(move || {
            machine.program(&["systemctl", "--no-block", "start", "kubelet.service"], b"")?;
            done(())
        })
        .await
    };
    steps.perform(&phase::KUBELET, act).await;
}

/// Whether the API server has answered since power-on: then an agent that starts again holds nothing back.
pub fn has_answered(machine: &Machine) -> bool {
    machine.at(ANSWERED).exists()
}

/// Waits until the API server reads and writes: until the namespace of the system is there.
async fn api_answers(machine: &Machine, steps: &Steps) -> Api {
    let act = || async {
        let api = machine.api_by_loopback()?;
        let progress = Progress::default();
        let ask = || async {
            let what = "the API server";
            match api.get("/api/v1/namespaces/kube-system").await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(Missing::new(what, "it has not created the namespace `kube-system` yet")),
                Err(error) => Err(Missing::new(what, in_words(&error, || progress.now(machine)))),
            }
        };
        steps.wait(&phase::API_SERVER, ASK, ask).await;
        etcd::keep(machine)?;
        files::write(&machine.at(ANSWERED), b"", files::PUBLIC)?;
        Ok(Outcome::Done(api, serde_json::Value::Null))
    };
    steps.perform(&phase::API_SERVER, act).await
}

/// Why there is no answer, from the nearest thing that can be seen.
fn in_words(error: &ApiError, not_listening: impl FnOnce() -> String) -> String {
    match error {
        ApiError::Refused { status, message, .. } => format!("it answers {status}: {message}"),
        ApiError::Credentials(text) => text.clone(),
        ApiError::Transport { source, .. } if source.is_timeout() => {
            "it takes the question and does not answer".to_owned()
        }
        ApiError::Transport { source, .. } if source.is_connect() => not_listening(),
        ApiError::Transport { source, .. } => chain(source),
    }
}

/// How far the API server has come, looked up from time to time.
#[derive(Default)]
struct Progress(Mutex<Option<(Instant, String)>>);

impl Progress {
    fn now(&self, machine: &Machine) -> String {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((when, text)) if when.elapsed() < LOOK => text.clone(),
            _ => {
                let text = not_listening(machine);
                *last = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

/// Puts the state of a new cluster into etcd, before the API server begins to create it.
///
/// All of it goes in with one transaction, or nothing, if there is a cluster already: then the API server and
/// [`addons`] do the same piece by piece.
pub async fn state(machine: &Machine, steps: &Steps, node: &Node, credentials: &Credentials) {
    let act = || async {
        if steps.ledger.was_done(&phase::STATE) || has_answered(machine) {
            return Ok(Outcome::Current(()));
        }
        let template = fs_err::read_to_string(machine.at(TEMPLATES).join(state::FILE))?;
        let now = format!("{:.0}", jiff::Timestamp::now());
        let uid = || uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string();
        let entries = state::read(&template, node, &credentials.ca, &now, uid)?;
        let transaction = state::transaction(&entries);
        let etcd = client_of_etcd(machine)?;
        let told = OnceLock::new();
        let ask = || async {
            match etcd.ask(state::TXN, &transaction).await {
                Ok(answer) => {
                    told.get_or_init(|| state::is_in(&answer));
                }
                Err(error @ ApiError::Transport { .. }) if !has_answered(machine) => {
                    return Err(Missing::new("etcd", in_words(&error, || not_listening(machine))));
                }
                Err(error) => log::warn!("etcd takes no state: {error}"),
            }
            Ok(())
        };
        steps.wait(&phase::STATE, ASK, ask).await;
        let told = told.into_inner();
        if told.is_some() {
            etcd::keep(machine)?;
        }
        let taken = told == Some(true);
        if taken {
            steps.record(&phase::OBJECTS, &addons::key(machine, node, credentials)?)?;
            steps.record(&phase::ROLES, &roles_key(machine))?;
        }
        steps.record(&phase::STATE, &Key::of([&template]))?;
        Ok(Outcome::Done((), json!({"entries": entries.len(), "taken": taken})))
    };
    steps.perform(&phase::STATE, act).await;
}

/// A client for etcd's JSON gateway.
fn client_of_etcd(machine: &Machine) -> anyhow::Result<Api> {
    let file = |name: &str| fs_err::read_to_string(machine.at(pki::PKI_DIR).join("etcd").join(name));
    Ok(Api::new(&kubeconfig::ParsedKubeconfig {
        server: format!("https://127.0.0.1:{ETCD}"),
        ca: file("ca.crt")?,
        certificate: file("healthcheck-client.crt")?,
        key: file("healthcheck-client.key")?,
    })?)
}

/// Closes the gate of the API server once it has been started.
///
/// Not before: until then the kubelet is better refused than kept waiting. After a reboot it asks for its Node
/// before it mounts the first volume, and what waits at the gate stays there for half a minute.
async fn gate(machine: &Machine, steps: &Steps, node: &Node) {
    if has_answered(machine) {
        return;
    }
    let started = || async {
        match tasks(machine) {
            all if all >= FIRST_TASKS || has_answered(machine) => Ok(()),
            some => Err(Missing::new("the first static pods", format!("{some} of {FIRST_TASKS} containers run"))),
        }
    };
    let act = || async {
        steps.wait(&phase::GATE, ASK, started).await;
        network::close_gate(machine, node.advertise).await
    };
    steps.perform(&phase::GATE, act).await;
}

/// Behind the gate, waits until the API server answers; then the gate is open.
pub async fn api_behind_gate(machine: &Machine, steps: &Steps, node: &Node) -> Api {
    let ((), api) = tokio::join!(gate(machine, steps, node), api_answers(machine, steps));
    network::open_gate(machine, steps, node).await;
    api
}

/// How many containers run, sandboxes included.
fn tasks(machine: &Machine) -> usize {
    fs_err::read_dir(machine.at(TASKS)).map_or(0, Iterator::count)
}

/// How far the way to a listening API server has come.
fn not_listening(machine: &Machine) -> String {
    let tasks = tasks(machine);
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs_err::read_to_string(machine.at(path)).unwrap_or_default());
    match (tasks, tables.iter().any(|table| listens(table, ETCD))) {
        (0, _) => "the kubelet has not started a pod yet".to_owned(),
        (_, false) => "etcd is starting".to_owned(),
        (_, true) => "etcd answers, kube-apiserver is starting".to_owned(),
    }
}

/// Whether a table of the kernel (`proc_pid_net(5)`) has a listening socket on that port.
fn listens(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace();
        // Number, local address, remote address, state: 0A is LISTEN.
        words.nth(1).is_some_and(|local| local.ends_with(&ending)) && words.nth(1) == Some("0A")
    })
}

/// Binds the control plane to `cluster-admin` while the API server creates the roles that it will have.
///
/// On a first boot that takes as long as everything else together, and without its roles the
/// controller manager ends at once. [`roles`] takes the binding away before the box is ready. On
/// later boots the roles are there, and nothing is granted.
pub async fn grant(machine: &Machine, steps: &Steps, api: &Api) {
    let act = || async {
        if steps.is_current(&phase::ROLES, &roles_key(machine)) {
            return Ok(Outcome::Current(()));
        }
        match api.create(BINDINGS, &starting()).await {
            Ok(()) => done(()),
            Err(error) if error.status() == Some(reqwest::StatusCode::CONFLICT) => Ok(Outcome::Current(())),
            Err(error) => Err(error.into()),
        }
    };
    steps.perform(&phase::GRANT, act).await;
}

fn roles_key(machine: &Machine) -> Key {
    Key::of([&machine.release().kubernetes.version])
}

/// The binding of [`grant`].
fn starting() -> serde_json::Value {
    let subject = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": STARTING},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            subject("User", "system:kube-controller-manager"),
            subject("User", "system:kube-scheduler"),
            subject("Group", "system:serviceaccounts:kube-system"),
        ],
    })
}

/// Waits until the API server has created the roles of the control plane, ends [`grant`], and lets the controller manager
/// lead.
pub async fn roles(machine: &Machine, steps: &Steps, node: &Node, api: &Api) {
    let act = || async {
        let key = roles_key(machine);
        let before = steps.is_current(&phase::ROLES, &key);
        let ask = || async {
            let what = "the roles of the control plane";
            match api.health(ROLES).await {
                Ok((true, _)) => Ok(()),
                Ok((false, _)) => Err(Missing::new(what, "the API server looks through them")),
                Err(error) => Err(Missing::new(what, chain(&error))),
            }
        };
        steps.wait(&phase::ROLES, ROLES_ASK, ask).await;
        leases::hand_over(api, node).await?;
        if before {
            return Ok(Outcome::Current(()));
        }
        api.delete(&format!("{BINDINGS}/{STARTING}")).await?;
        steps.record(&phase::ROLES, &key)?;
        done(())
    };
    steps.perform(&phase::ROLES, act).await;
}

/// Lets the controller manager and the scheduler start: the controller manager leads when [`roles`] hands its Lease over.
pub async fn controllers(machine: &Machine, steps: &Steps, node: &Node, api: &Api) {
    let act = || async {
        if !manifests::any(&machine.at(manifests::DIR), &manifests::SECOND) {
            leases::take(api, node).await?;
        }
        let (machine, node) = (machine.clone(), node.clone());
        blocking(move || {
            let templates = machine.at(TEMPLATES).join("manifests");
            let changed = manifests::place(&templates, &machine.at(manifests::DIR), &manifests::SECOND, &node)?;
            Ok(if changed == 0 { Outcome::Current(()) } else { Outcome::Done((), json!({"files": changed})) })
        })
        .await
    };
    steps.perform(&phase::CONTROLLERS, act).await;
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{bring_up_to_date, keeping, listens, not_listening, pki};
    use crate::cluster::Node;
    use crate::host::runner::FakeRunner;
    use crate::machine::tests::machine;

    fn node() -> Node {
        Node {
            name: "edge".to_owned(),
            advertise: "198.18.0.1".parse().expect("an address"),
            service_address: "10.96.0.1".parse().expect("an address"),
            site_addresses: Vec::new(),
        }
    }

    #[test]
    fn everything_is_issued_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = machine(dir.path(), FakeRunner::default());
        let (_, issued) = bring_up_to_date(&box_, &node(), false).expect("made");
        assert_eq!(issued.len(), 7 + 4 + 2);
        let (_, issued) = bring_up_to_date(&box_, &node(), true).expect("kept");
        assert_eq!(issued, []);
        box_.api().expect("a client");
    }

    /// At a reboot the certificates are looked at before the network has given its addresses.
    #[test]
    fn addresses_that_are_not_there_yet_stay_in_the_certificate() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = machine(dir.path(), FakeRunner::default());
        assert_eq!(keeping(&box_, node()).site_addresses, Vec::<IpAddr>::new());
        let there = Node { site_addresses: vec![[172, 22, 0, 1].into()], ..node() };
        bring_up_to_date(&box_, &there, false).expect("made");
        let (_, issued) = bring_up_to_date(&box_, &keeping(&box_, node()), true).expect("kept");
        assert_eq!(issued, []);
        let moved = Node { site_addresses: vec![[172, 22, 0, 9].into()], ..node() };
        bring_up_to_date(&box_, &keeping(&box_, moved.clone()), true).expect("issued");
        let served = |last| pki::served_addresses(&box_.at(pki::PKI_DIR)).contains(&[172, 22, 0, last].into());
        assert!(served(1) && served(9));
        bring_up_to_date(&box_, &moved, true).expect("issued");
        assert!(!served(1) && served(9), "what is gone goes in the end");
    }

    #[test]
    fn an_api_server_that_does_not_listen_is_explained() {
        let dir = tempfile::tempdir().expect("a directory");
        let box_ = machine(dir.path(), FakeRunner::default());
        assert!(not_listening(&box_).contains("not started a pod"));
        fs_err::create_dir_all(dir.path().join(super::TASKS.trim_start_matches('/')).join("abc")).expect("a directory");
        assert!(not_listening(&box_).contains("etcd is starting"));
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:094B 00000000:0000 0A 00000000:00000000\n";
        fs_err::create_dir_all(dir.path().join("proc/net")).expect("a directory");
        fs_err::write(dir.path().join("proc/net/tcp"), table).expect("a table");
        assert!(not_listening(&box_).contains("etcd answers"));
    }

    #[test]
    fn only_listening_sockets_count() {
        let line = |state: &str| format!("head\n   0: 0100007F:094B 00000000:0000 {state} 0\n");
        assert!(listens(&line("0A"), 2379) && !listens(&line("01"), 2379) && !listens(&line("0A"), 6443));
    }
}
