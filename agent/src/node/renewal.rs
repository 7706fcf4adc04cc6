//! Certificates of a master, made anew before they end: by kubeadm, and read by its static pods, which begin anew. Each half
//! sees for itself what is left to do, so that a renewal that was cut off goes on, and one that is not due touches nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::Deserialize;

use super::kubernetes::CONTROL_PLANE;
use super::{SHORT, Server};
use crate::cluster::{kubeconfig, pki};
use crate::host::clock;

/// Certificates are made anew this long before they end. kubeadm's last for a year.
const BEFORE_END: Duration = Duration::from_secs(60 * 24 * 3600);
/// What `kubeadm certs renew all` makes anew. Which of them a master has depends on its part in the cluster.
const CERTIFICATES: [&str; 7] = [
    "apiserver",
    "apiserver-etcd-client",
    "apiserver-kubelet-client",
    "etcd/healthcheck-client",
    "etcd/peer",
    "etcd/server",
    "front-proxy-client",
];
const KUBECONFIGS: [&str; 4] = ["admin", "controller-manager", "scheduler", "super-admin"];
/// How long containerd may take for an answer: a static pod has 30 s to end (its `terminationGracePeriodSeconds`), and crictl
/// gives up after two by default.
const CRI_PATIENCE: &str = "--timeout=100s";

/// Whether a certificate is to be made anew that ends at `not_after`. Both times in seconds since 1970.
pub fn is_due(not_after: u64, now: u64) -> bool {
    not_after < now + BEFORE_END.as_secs()
}

/// Pods as `crictl pods --output json` lists them.
#[derive(Deserialize)]
struct Pods {
    #[serde(default)]
    items: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    id: String,
    /// Nanoseconds since 1970, in decimal.
    created_at: String,
}

/// Makes certificates anew if one ends soon, and lets static pods that are older than a certificate begin anew.
///
/// # Errors
/// A file cannot be read, kubeadm or containerd refuses.
pub fn renew(server: &Server) -> anyhow::Result<()> {
    let mut now = seen(server)?;
    if now.ends_soon {
        server.call(&["kubeadm", "certs", "renew", "all"], SHORT)?;
        now = seen(server)?;
    }
    for (component, _) in CONTROL_PLANE {
        let label = format!("component={component}");
        let listed = server.call(&["crictl", CRI_PATIENCE, "pods", "--label", &label, "--output", "json"], SHORT)?;
        let pods: Pods = serde_json::from_str(&listed).with_context(|| format!("the pods of {component}"))?;
        for pod in pods.items {
            let began: u128 = pod.created_at.parse().with_context(|| format!("when pod {} began", pod.id))?;
            if began <= now.made {
                server.call(&["crictl", CRI_PATIENCE, "stopp", &pod.id], SHORT)?;
            }
        }
    }
    Ok(())
}

/// The certificates of a master as they are.
struct Seen {
    /// One of them is to be made anew.
    ends_soon: bool,
    /// When the newest of them was written: nanoseconds since 1970.
    made: u128,
}

fn seen(server: &Server) -> anyhow::Result<Seen> {
    let certificates = CERTIFICATES.iter().map(|name| (format!("/etc/kubernetes/pki/{name}.crt"), false));
    let kubeconfigs = KUBECONFIGS.iter().map(|name| (format!("/etc/kubernetes/{name}.conf"), true));
    let mut seen = Seen { ends_soon: false, made: 0 };
    for (path, is_kubeconfig) in certificates.chain(kubeconfigs).filter(|(path, _)| server.has(path)) {
        let text = fs_err::read_to_string(server.path(&path))?;
        let pem = if is_kubeconfig { kubeconfig::parse(&text).map(|found| found.certificate) } else { Some(text) };
        let certificate = pem.as_deref().and_then(pki::inspect).with_context(|| format!("no certificate in {path}"))?;
        seen.ends_soon |= is_due(certificate.not_after, clock::now_secs());
        seen.made = seen.made.max(nanoseconds(fs_err::metadata(server.path(&path))?.modified()?));
    }
    Ok(seen)
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
