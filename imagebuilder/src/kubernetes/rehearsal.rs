//! A control plane that runs once, at build time, to make the state that every new box begins with.
//!
//! ```text
//! foothold -> unshare (network, PID, mount namespaces) -> foothold __rehearse SPEC -> chroot
//!          -> etcd, kube-apiserver; kubeadm's objects, a Node; kube-controller-manager, kube-scheduler
//!          -> settled: etcd's keys on stdout; everything ends with the namespaces
//! ```
//! The programs, their arguments and their certificates are those of a box. It talks to nothing but the
//! loopback interface of its own network namespace.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::render::{CA, NODE};
use super::state::{self, Entry};
use crate::host::command::{Run, Running, pause};

/// First argument by which the builder's own program knows that it is called to run the control plane.
pub const REHEARSE: &str = "__rehearse";
/// Programs that are run: what the module calls them, and their names below `/bin` of the scratch root.
pub const PROGRAMS: [(&str, &str); 7] = [
    ("kubeadm", "kubeadm"),
    ("server", "etcd"),
    ("etcdctl", "etcdctl"),
    ("kube-apiserver", "kube-apiserver"),
    ("kube-controller-manager", "kube-controller-manager"),
    ("kube-scheduler", "kube-scheduler"),
    ("kubectl", "kubectl"),
];

/// Configuration of kubeadm, below the scratch root.
pub const CONFIG: &str = "/etc/kubeadm.yaml";
/// Certificate of the cluster's authority, below the scratch root.
pub const CA_FILE: &str = "/etc/kubernetes/pki/ca.crt";
const SUPER_ADMIN: &str = "/etc/kubernetes/super-admin.conf";
/// What the API server serves, one a line, below the scratch root.
pub const API_VERSIONS: &str = "/tmp/api-versions";
/// Objects of kubeadm as one List, below the scratch root.
const OBJECTS: &str = "/tmp/objects.json";
/// Pods of a new cluster: two of CoreDNS and one of kube-proxy.
const PODS: usize = 3;
/// How long it may take; it takes a tenth.
const PATIENCE: Duration = Duration::from_secs(300);
/// The state must stay the same for so long to count as settled.
const SETTLED: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rehearsal {
    /// Scratch root: programs in `/bin`, certificates and kubeconfigs in `/etc/kubernetes`.
    pub root: PathBuf,
    /// Text of the static pods' manifests: program -> YAML.
    pub manifests: Vec<(String, String)>,
    /// Who makes the objects of a new cluster.
    pub objects: Objects,
}

/// Who makes the objects of a new cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Objects {
    /// They were rendered: a JSON array with placeholders.
    Rendered(String),
    /// kubeadm itself, by its phases, as `kubeadm init` does: what a test compares the rendered ones with.
    Kubeadm,
}

impl Rehearsal {
    /// The call of the builder's own program that runs it. Its output is what etcdctl prints.
    pub fn command(&self, helper: &Path) -> Result<Run> {
        let run = Run::new("unshare").args(["--net", "--mount", "--pid", "--fork", "--kill-child"]);
        let spec = serde_json::to_vec(self)?;
        let run = run.arg("--").arg(helper).arg(REHEARSE).clear_env().stdin(spec);
        Ok(run.env("PATH", "/bin:/usr/bin:/usr/sbin:/sbin").env("HOME", "/tmp").env("TZ", "UTC0"))
    }
}

/// Whether these arguments ask to run the control plane.
pub fn asked(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|word| word.as_bytes() == REHEARSE.as_bytes())
}

/// Reads a [`Rehearsal`] from stdin and runs it in the namespaces of this process.
pub fn main() -> Result<()> {
    let spec: Rehearsal = serde_json::from_reader(std::io::stdin()).context("reading what to run")?;
    let advertised = advertised_address(&spec)?;
    loopback("lo", [127, 0, 0, 1])?;
    loopback("lo:1", advertised)?;
    std::os::unix::fs::chroot(&spec.root).context("entering the scratch root")?;
    std::env::set_current_dir("/")?;
    let answer = rehearse(&spec)?;
    std::io::stdout().write_all(&answer)?;
    Ok(())
}

/// The address that the API server tells, of the manifest.
fn advertised_address(spec: &Rehearsal) -> Result<[u8; 4]> {
    let argv = command_of(spec, "kube-apiserver")?;
    let flag = argv.iter().find_map(|arg| arg.strip_prefix("--advertise-address="));
    let address: std::net::Ipv4Addr = flag.context("kube-apiserver is given no address")?.parse()?;
    Ok(address.octets())
}

/// Gives an interface, or an alias of one, an address and switches it on (netdevice(7)).
#[expect(unsafe_code, reason = "ioctl")]
fn loopback(name: &str, address: [u8; 4]) -> Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let call = |number: libc::c_ulong, request: &mut libc::ifreq| {
        // SAFETY: the kernel reads and writes one `ifreq`, which outlives the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, std::ptr::from_mut(request)) };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    let family = libc::sa_family_t::try_from(libc::AF_INET)?;
    let flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOOPBACK)?;
    let mut data = [0; 14];
    data[2..6].copy_from_slice(&address.map(u8::cast_signed));
    request.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: family, sa_data: data };
    call(libc::SIOCSIFADDR, &mut request).with_context(|| format!("giving `{name}` an address"))?;
    request.ifr_ifru.ifru_flags = flags;
    call(libc::SIOCSIFFLAGS, &mut request).with_context(|| format!("switching `{name}` on"))
}

/// Program and arguments of a static pod.
fn command_of(spec: &Rehearsal, program: &str) -> Result<Vec<String>> {
    let found = spec.manifests.iter().find(|(name, _)| name == program);
    let (_, text) = found.with_context(|| format!("there is no manifest of {program}"))?;
    let pod: Value = serde_saphyr::from_str(text).with_context(|| format!("reading the manifest of {program}"))?;
    let words = pod.pointer("/spec/containers/0/command").and_then(Value::as_array);
    let words = words.with_context(|| format!("the manifest of {program} names no command"))?;
    Ok(words.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// A program of the control plane that runs.
struct Server {
    name: &'static str,
    running: Running,
}

impl Server {
    fn start(spec: &Rehearsal, name: &'static str, more: &[&str]) -> Result<Self> {
        let argv = command_of(spec, name)?;
        let run = Run::new(format!("/bin/{}", argv[0])).args(&argv[1..]).args(more);
        Ok(Self { name, running: run.start()? })
    }

    fn check(&mut self) -> Result<()> {
        match self.running.ended() {
            Some(tail) => bail!("{} ended by itself\n{tail}", self.name),
            None => Ok(()),
        }
    }
}

fn rehearse(spec: &Rehearsal) -> Result<Vec<u8>> {
    let ca = fs_err::read_to_string(CA_FILE)?;
    let until = Instant::now() + PATIENCE;
    // Nothing of this outlives the build, so nothing must reach a disk.
    let etcd = Server::start(spec, "etcd", &["--unsafe-no-fsync"])?;
    let api = Server::start(spec, "kube-apiserver", &["--storage-media-type=application/json"])?;
    let mut servers = vec![etcd, api];
    wait(&mut servers, until, "kube-apiserver to be ready", || Ok(kubectl(&["get", "--raw", "/readyz"]).is_ok()))?;
    match &spec.objects {
        Objects::Rendered(template) => create(&objects(template, &ca)?)?,
        Objects::Kubeadm => {
            create(&json!({"apiVersion": "v1", "kind": "List", "items": [node(json!({}))]}))?;
            for phase in ["upload-config all", "mark-control-plane", "bootstrap-token", "addon all"] {
                let run = Run::new("/bin/kubeadm").args(["init", "phase"]).args(phase.split(' '));
                run.args(["--config", CONFIG]).env("HOME", "/tmp").output()?;
            }
        }
    }
    servers.push(Server::start(spec, "kube-controller-manager", &[])?);
    servers.push(Server::start(spec, "kube-scheduler", &[])?);
    let mut last = (String::new(), Instant::now());
    let mut answer = Vec::new();
    wait(&mut servers, until, "the new cluster to settle", || {
        answer = etcdctl(&["get", "/registry/", "--prefix", "-w", "json"])?;
        let entries: Vec<Entry> = state::read(&answer)?;
        let now = state::settled(&entries, &ca)?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok(state::bound_pods(&entries) == PODS && last.1.elapsed() >= SETTLED)
    })?;
    fs_err::write(API_VERSIONS, served()?.join("\n"))?;
    Ok(answer)
}

/// Asks again and again; the servers must live.
fn wait(servers: &mut [Server], until: Instant, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    while !done()? {
        for server in &mut *servers {
            server.check()?;
        }
        if Instant::now() > until {
            bail!("waited {} s for {what}", PATIENCE.as_secs());
        }
        pause(AGAIN);
    }
    Ok(())
}

fn create(list: &Value) -> Result<()> {
    fs_err::write(OBJECTS, list.to_string())?;
    kubectl(&["create", "--validate=false", "--field-manager=kubeadm", "-f", OBJECTS]).map(drop)
}

fn kubectl(args: &[&str]) -> Result<Vec<u8>> {
    let run = Run::new("/bin/kubectl").arg("--kubeconfig").arg(SUPER_ADMIN).args(args);
    Ok(run.env("HOME", "/tmp").output()?)
}

/// `group/version`, and `group/version/Kind` for each kind there, as Helm asks for them.
fn served() -> Result<Vec<String>> {
    let versions = String::from_utf8(kubectl(&["api-versions"])?).context("kubectl prints no text")?;
    let mut all = Vec::new();
    for version in versions.split_whitespace() {
        let root = if version.contains('/') { "apis" } else { "api" };
        let list = kubectl(&["get", "--raw", &format!("/{root}/{version}")])?;
        let list: Value = serde_json::from_slice(&list).with_context(|| format!("reading the kinds of {version}"))?;
        all.extend(kinds(version, &list));
        all.push(version.to_owned());
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The kinds of an `APIResourceList`, those of subresources among them.
fn kinds(version: &str, list: &Value) -> Vec<String> {
    let resources = list["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    resources.iter().filter_map(|one| one["kind"].as_str()).map(|kind| format!("{version}/{kind}")).collect()
}

fn etcdctl(args: &[&str]) -> Result<Vec<u8>> {
    let pki = "/etc/kubernetes/pki/etcd";
    let run = Run::new("/bin/etcdctl").args(["--endpoints", "https://127.0.0.1:2379"]);
    let run = run.args(["--cacert", &format!("{pki}/ca.crt"), "--cert", &format!("{pki}/healthcheck-client.crt")]);
    Ok(run.args(["--key", &format!("{pki}/healthcheck-client.key")]).args(args).output()?)
}

/// kubeadm's objects for this run and a Node that takes pods, as one List.
fn objects(template: &str, ca: &str) -> Result<Value> {
    let mut items: Vec<Value> = serde_json::from_str(&template.replace(CA, &STANDARD.encode(ca)))?;
    let found = items.iter_mut().find(|item| item["kind"] == "Node").context("there is no Node among the objects")?;
    *found = node(found["metadata"]["labels"].take());
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// A Node as a kubelet would register it, with more labels.
fn node(mut labels: Value) -> Value {
    for (label, value) in [("hostname", NODE), ("os", "linux"), ("arch", "amd64")] {
        labels[format!("kubernetes.io/{label}")] = value.into();
    }
    let resources = json!({"cpu": "2", "memory": "4Gi", "pods": "110"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    })
}

#[cfg(test)]
mod tests {
    use super::{Objects, Rehearsal, advertised_address, command_of, kinds, objects};

    fn spec() -> Rehearsal {
        let manifest =
            "spec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --advertise-address=198.18.0.1\n";
        Rehearsal {
            root: "/scratch".into(),
            manifests: vec![("kube-apiserver".to_owned(), manifest.to_owned())],
            objects: Objects::Kubeadm,
        }
    }

    #[test]
    fn arguments_are_those_of_the_manifest() {
        assert_eq!(command_of(&spec(), "kube-apiserver").expect("a command").len(), 2);
        assert_eq!(advertised_address(&spec()).expect("an address"), [198, 18, 0, 1]);
        assert!(command_of(&spec(), "etcd").is_err());
    }

    #[test]
    fn kinds_are_told_with_their_version() {
        let list = serde_json::json!({"resources": [
            {"name": "deployments", "kind": "Deployment"}, {"name": "deployments/scale", "kind": "Scale"},
        ]});
        assert_eq!(kinds("apps/v1", &list), ["apps/v1/Deployment", "apps/v1/Scale"]);
    }

    #[test]
    fn the_node_takes_pods() {
        let template =
            r#"[{"kind": "Node", "metadata": {"name": "n", "labels": {"a": ""}}}, {"data": "foothold-ca-data"}]"#;
        let list = objects(template, "PEM").expect("a list");
        assert_eq!(
            list["items"][0]["metadata"]["labels"],
            serde_json::json!({
                "a": "", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "foothold-node-name", "kubernetes.io/os": "linux",
            })
        );
        assert_eq!(list["items"][0]["status"]["conditions"][0]["status"], "True");
        assert_eq!(list["items"][1]["data"], "UEVN");
        assert!(objects("[]", "PEM").is_err());
    }
}
