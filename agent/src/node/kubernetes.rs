//! kubeadm on the server: init, join, and whether that is done. A run that was cut is reset first: nobody can have used
//! that node yet.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::plan::{INTERFACE, Invitation, NodeFile, NodePlan, PATCHES, PREFIX, Task};
use super::{SHORT, Server, renewal, reset};

/// Where kubeadm finds its configuration while it runs: in memory, for it has tokens.
const CONFIG: &str = "/run/foothold-node/kubeadm.yaml";
const ADMIN: &str = "/etc/kubernetes/admin.conf";
const KUBELET: &str = "/etc/kubernetes/kubelet.conf";
/// Where the kubelet finds static pods.
const MANIFESTS: &str = "/etc/kubernetes/manifests/";
/// Static pods of kubeadm, by their label `component`, each with the patch that the box's own has: one that is Ready is not
/// asked each second. That would be half of what the kubelet of an emulated server does.
pub(super) const CONTROL_PLANE: [(&str, &str); 4] = [
    ("etcd", include_str!("../../../packages/kubernetes/patches/etcd+strategic.yaml")),
    ("kube-apiserver", include_str!("../../../packages/kubernetes/patches/kube-apiserver+strategic.yaml")),
    (
        "kube-controller-manager",
        include_str!("../../../packages/kubernetes/patches/kube-controller-manager+strategic.yaml"),
    ),
    ("kube-scheduler", include_str!("../../../packages/kubernetes/patches/kube-scheduler+strategic.yaml")),
];
/// How long the API may take to say that it is ready.
const ANSWER: Duration = Duration::from_secs(4);
/// kubeadm pulls images and waits for a control plane that starts cold.
const LONG: Duration = Duration::from_secs(45 * 60);

/// Whether kubeadm has finished: after `init`, what it makes last is there; after `join`, the node's object.
pub fn is_done(server: &Server, plan: &NodePlan) -> bool {
    let asked = |argv: &[&str]| server.call(argv, SHORT).is_ok();
    match plan.task {
        Task::Init { .. } => {
            let proxy = ["kubectl", "--kubeconfig", ADMIN, "-n", "kube-system", "get", "daemonset", "kube-proxy"];
            server.has(ADMIN) && server.has(KUBELET) && asked(&proxy)
        }
        Task::Join { control_plane, .. } => {
            let own = ["kubectl", "--kubeconfig", KUBELET, "get", "node", &plan.node];
            server.has(KUBELET) && (!control_plane || server.has(ADMIN)) && asked(&own)
        }
        // kubeadm itself sees what it has done.
        Task::Upgrade { .. } | Task::Renew => false,
    }
}

/// Whether there is anything of a node of any cluster.
pub fn has_traces(server: &Server) -> bool {
    [KUBELET, ADMIN, "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/manifests/etcd.yaml"]
        .iter()
        .any(|path| server.has(path))
}

/// Runs kubeadm's upgrade of this server. On the `first` server it upgrades the cluster before. This also renews
/// certificates.
fn upgrade(server: &Server, version: &str, first: bool) -> anyhow::Result<()> {
    put_patches(server)?;
    let argv: &[&str] = if first {
        &["kubeadm", "upgrade", "apply", version, "--yes", "--patches", PATCHES]
    } else {
        &["kubeadm", "upgrade", "node", "--patches", PATCHES]
    };
    server.call(argv, LONG).map(drop)
}

/// Runs kubeadm's init or join. `own`: what is there already was begun for this cluster.
pub fn make(server: &Server, plan: &NodePlan, own: bool) -> anyhow::Result<()> {
    let (verb, config) = match &plan.task {
        Task::Init { config, .. } => ("init", config),
        Task::Join { config, .. } => ("join", config),
        Task::Upgrade { first } => return upgrade(server, &plan.version, *first),
        Task::Renew => return renewal::renew(server),
    };
    if has_traces(server) {
        ensure!(own, "{}", super::check::FOREIGN);
        reset::reset(server)?;
    }
    // The first master's API is reached by what they run; who joins has no pods of its own yet (kubeadm's check).
    put_files(server, plan, |path| verb == "init" || !path.starts_with(MANIFESTS))?;
    put_patches(server)?;
    configured(server, config, &["kubeadm", verb, "--config", CONFIG], LONG).map(drop)
}

fn put_patches(server: &Server) -> anyhow::Result<()> {
    for (component, patch) in CONTROL_PLANE {
        server.write(&format!("{PATCHES}/{component}+strategic.yaml"), patch, 0o644)?;
    }
    Ok(())
}

/// Calls kubeadm, which finds its configuration in [`CONFIG`] as long as it runs.
fn configured(server: &Server, config: &str, argv: &[&str], deadline: Duration) -> anyhow::Result<String> {
    server.write(CONFIG, config, 0o600)?;
    let said = server.call(argv, deadline);
    fs_err::remove_file(server.path(CONFIG))?;
    said
}

/// Writes the files of the plan that `meant` selects, with the server's own interface filled in. Returns whether any of
/// them has changed.
pub fn put_files(server: &Server, plan: &NodePlan, meant: impl Fn(&str) -> bool) -> anyhow::Result<bool> {
    let meant: Vec<&NodeFile> = plan.files.iter().filter(|file| meant(&file.path)).collect();
    if meant.is_empty() {
        return Ok(false);
    }
    let own = super::interface_with(plan.address)?;
    let mut changed = false;
    for NodeFile { path, text } in meant {
        let text = text.replace(INTERFACE, &own.interface).replace(PREFIX, &own.prefix.to_string());
        changed |= server.write(path, &text, 0o644)?;
    }
    Ok(changed)
}

/// Whether the API answers at `HOST:PORT` and says that it is ready. Its certificate is not checked.
pub async fn answers(at: &str) -> anyhow::Result<()> {
    let client = crate::http::client::plain().timeout(ANSWER).tls_danger_accept_invalid_certs(true).build()?;
    let answer = client.get(format!("https://{at}/readyz")).send().await?;
    ensure!(answer.status().is_success(), "`{at}` answers {}", answer.status());
    Ok(())
}

/// Applies objects, as `kubectl apply` does.
pub fn apply(server: &Server, manifests: &[String]) -> anyhow::Result<()> {
    for manifest in manifests {
        let argv = ["kubectl", "--kubeconfig", ADMIN, "apply", "--server-side", "--force-conflicts", "-f", "-"];
        server.runner.run(&argv, manifest.as_bytes(), SHORT)?;
    }
    Ok(())
}

/// The kubeconfig of the cluster's administrator.
pub fn kubeconfig(server: &Server) -> anyhow::Result<String> {
    Ok(fs_err::read_to_string(server.path(ADMIN))?)
}

/// How others join; members of the control plane, too, where the address of this one is given. kubeadm forgets the token
/// after a quarter of an hour, and the certificates after two hours.
pub fn invite(server: &Server, control_plane: Option<IpAddr>) -> anyhow::Result<Invitation> {
    let token = ["kubeadm", "--kubeconfig", ADMIN, "token", "create", "--ttl", "15m", "--print-join-command"];
    let command = server.call(&token, SHORT)?;
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
    let of =
        |flag: &str| after(flag).map(str::to_owned).with_context(|| format!("kubeadm's join command has no `{flag}`"));
    let certificate_key = control_plane.map(|address| upload_certificates(server, address)).transpose()?;
    Ok(Invitation { token: of("--token")?, ca_hash: of("--discovery-token-ca-cert-hash")?, certificate_key })
}

/// Puts the certificates that all members of the control plane share into the cluster, encrypted. Returns the key.
fn upload_certificates(server: &Server, address: IpAddr) -> anyhow::Result<String> {
    let version = server.call(&["kubeadm", "version", "--output", "short"], SHORT)?;
    let argv =
        ["kubeadm", "init", "phase", "upload-certs", "--upload-certs", "--config", CONFIG, "--kubeconfig", ADMIN];
    let said = configured(server, &told_to_upload(address, version.trim()), &argv, SHORT)?;
    let is_key = |line: &&str| line.len() == 64 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = said.lines().map(str::trim).find(is_key);
    Ok(key.context("kubeadm printed no certificate key")?.to_owned())
}

/// What kubeadm would look for itself: the server's address by its default route, which a site without a gateway has not,
/// and the newest version on the internet.
fn told_to_upload(address: IpAddr, version: &str) -> String {
    let api = "apiVersion: kubeadm.k8s.io/v1beta4";
    format!(
        "{api}\nkind: InitConfiguration\nlocalAPIEndpoint: {{ advertiseAddress: \"{address}\" }}\n---\n\
         {api}\nkind: ClusterConfiguration\nkubernetesVersion: {version}\n"
    )
}
