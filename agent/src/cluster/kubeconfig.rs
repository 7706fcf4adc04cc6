//! The kubeconfig files of kubeadm, byte for byte but for keys and certificates.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Node;
use super::pki::{self, Authorities, Ca, Issued, LeafSpec, Pair, PkiError, Subject, Validity};
use crate::host::files::{self, SECRET};

/// Where kubeadm keeps kubeconfigs.
pub const DIR: &str = "/etc/kubernetes";
/// Where the kubelet keeps the certificate it asks with; it rotates it there by itself.
pub const KUBELET_CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// Name of the administrator's kubeconfig, bound to `cluster-admin` by an object.
pub const ADMIN: &str = "admin.conf";
/// Name of the kubeconfig whose group needs no object.
pub const SUPER_ADMIN: &str = "super-admin.conf";
/// Name of the kubelet's kubeconfig.
pub const KUBELET: &str = "kubelet.conf";

/// The kubeconfigs that hold their own certificate: file and subject.
pub fn users() -> [(&'static str, Subject); 4] {
    [
        (ADMIN, Subject::member("kubeadm:cluster-admins", "kubernetes-admin")),
        (SUPER_ADMIN, Subject::member("system:masters", "kubernetes-super-admin")),
        ("controller-manager.conf", Subject::user("system:kube-controller-manager")),
        ("scheduler.conf", Subject::user("system:kube-scheduler")),
    ]
}

/// How a kubeconfig proves who it is.
pub enum Credentials<'a> {
    /// In the file itself.
    Inline(&'a Pair),
    /// In a file of certificate and key.
    File(&'a str),
}

/// The text of a kubeconfig, as kubeadm writes it.
pub fn render(server: &str, ca_pem: &str, user: &str, credentials: &Credentials<'_>) -> String {
    let ca = STANDARD.encode(ca_pem);
    let credentials = match credentials {
        Credentials::Inline(pair) => format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(&pair.certificate),
            STANDARD.encode(&pair.key)
        ),
        Credentials::File(path) => format!("    client-certificate: {path}\n    client-key: {path}\n"),
    };
    format!(
        "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {ca}
    server: {server}
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: {user}
  name: {user}@kubernetes
current-context: {user}@kubernetes
kind: Config
users:
- name: {user}
  user:
{credentials}"
    )
}

/// A kubeconfig taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedKubeconfig {
    /// `https://...`.
    pub server: String,
    /// PEM of the authority.
    pub ca: String,
    /// PEM of the client's certificate, if the file holds it.
    pub certificate: String,
    /// PEM of the client's key.
    pub key: String,
}

/// Takes apart a kubeconfig that [`render`] or kubeadm wrote with its credentials inside.
pub fn parse(text: &str) -> Option<ParsedKubeconfig> {
    let value = |key: &str| {
        let line = text.lines().map(str::trim_start).find_map(|line| line.strip_prefix(key));
        line.map(|rest| rest.trim().to_owned())
    };
    let decoded = |key: &str| String::from_utf8(STANDARD.decode(value(key)?).ok()?).ok();
    Some(ParsedKubeconfig {
        server: value("server:")?,
        ca: decoded("certificate-authority-data:")?,
        certificate: decoded("client-certificate-data:")?,
        key: decoded("client-key-data:")?,
    })
}

/// Brings every kubeconfig below `dir` up to date. Returns what was issued.
pub fn on_disk(dir: &Path, node: &Node, cas: &Authorities, validity: Validity) -> Result<Vec<Issued>, PkiError> {
    let mut issued = Vec::new();
    for (file, subject) in users() {
        let path = dir.join(file);
        let user = subject.common_name.clone();
        let spec = LeafSpec::client(subject);
        let found = fs_err::read_to_string(&path).ok().and_then(|text| parse(&text));
        let good = found.filter(|found| found.server == node.server() && found.ca == cas.cluster.pem);
        let leaf = good.and_then(|found| pki::inspect_leaf(&found.certificate, &cas.cluster));
        let Some(reason) = pki::decide(&spec, leaf.as_ref(), validity.now) else { continue };
        let pair = pki::issue_pair(&spec, &cas.cluster, validity)?;
        let text = render(&node.server(), &cas.cluster.pem, &user, &Credentials::Inline(&pair));
        files::write(&path, text.as_bytes(), SECRET)?;
        issued.push(Issued { file: file.to_owned(), reason });
    }
    Ok(issued)
}

/// The kubelet's kubeconfig in kubeadm's final shape, and the certificate it points at in `client`.
/// A certificate that the kubelet rotated itself is kept while it holds.
pub fn kubelet(
    path: &Path,
    client: &Path,
    node: &Node,
    ca: &Ca,
    validity: Validity,
) -> Result<Option<Issued>, PkiError> {
    let user = format!("system:node:{}", node.name);
    let spec = LeafSpec::client(Subject::member("system:nodes", &user));
    let found = fs_err::read_to_string(client).ok().and_then(|pem| pki::inspect_leaf(&pem, ca));
    let reason = pki::decide(&spec, found.as_ref(), validity.now);
    if reason.is_some() {
        let pair = pki::issue_pair(&spec, ca, validity)?;
        place_client_pair(client, &pair, validity.now)?;
    }
    let text = render(&node.server(), &ca.pem, &user, &Credentials::File(&client.to_string_lossy()));
    files::write(path, text.as_bytes(), SECRET)?;
    Ok(reason.map(|reason| Issued { file: KUBELET.to_owned(), reason }))
}

/// The kubelet insists that `kubelet-client-current.pem` is a symbolic link to a file with a date.
fn place_client_pair(client: &Path, pair: &Pair, now: u64) -> std::io::Result<()> {
    let dir = client.parent().unwrap_or(Path::new("/"));
    let file = dir.join(format!("kubelet-client-{}.pem", date(now)));
    files::write(&file, format!("{}{}", pair.certificate, pair.key).as_bytes(), SECRET)?;
    let temporary = dir.join(".kubelet-client-current.new");
    let _ = fs_err::remove_file(&temporary);
    fs_err::os::unix::fs::symlink(&file, &temporary)?;
    fs_err::rename(&temporary, client)
}

fn date(now: u64) -> String {
    let second = i64::try_from(now).unwrap_or(0);
    let time = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%d-%H-%M-%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::{Credentials, date, kubelet, on_disk, parse, render, users};
    use crate::cluster::Node;
    use crate::cluster::pki::{self, Pair, Reason, Validity};

    const AT: Validity = Validity { built: 1_790_000_000, now: 1_790_000_000 };

    fn node() -> Node {
        Node {
            name: "edge".to_owned(),
            advertise: "198.18.0.1".parse().expect("an address"),
            service_address: "10.96.0.1".parse().expect("an address"),
            site_addresses: Vec::new(),
        }
    }

    #[test]
    fn the_text_is_that_of_kubeadm() {
        let pair = Pair { certificate: "C".to_owned(), key: "K".to_owned() };
        let text = render("https://198.18.0.1:6443", "CA", "kubernetes-admin", &Credentials::Inline(&pair));
        insta::assert_snapshot!(text);
        let parsed = parse(&text).expect("parsed");
        assert_eq!((parsed.ca.as_str(), parsed.certificate.as_str(), parsed.key.as_str()), ("CA", "C", "K"));
    }

    #[test]
    fn kubeconfigs_are_made_once_and_follow_the_authority() {
        let dir = tempfile::tempdir().expect("a directory");
        let cas = pki::authorities(&dir.path().join("pki"), AT, false).expect("authorities");
        assert_eq!(on_disk(dir.path(), &node(), &cas, AT).expect("made").len(), users().len());
        assert_eq!(on_disk(dir.path(), &node(), &cas, AT).expect("kept").len(), 0);
        let others = pki::authorities(&dir.path().join("other"), AT, false).expect("authorities");
        let issued = on_disk(dir.path(), &node(), &others, AT).expect("made again");
        assert!(issued.iter().all(|one| one.reason == Reason::Missing));
    }

    #[test]
    fn the_kubelets_certificate_is_a_link_and_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let cas = pki::authorities(dir.path(), AT, false).expect("authorities");
        let (conf, client) = (dir.path().join("kubelet.conf"), dir.path().join("kubelet-client-current.pem"));
        assert!(kubelet(&conf, &client, &node(), &cas.cluster, AT).expect("made").is_some());
        assert!(fs_err::symlink_metadata(&client).expect("metadata").is_symlink());
        assert!(kubelet(&conf, &client, &node(), &cas.cluster, AT).expect("kept").is_none());
    }

    #[test]
    fn dates_are_those_of_the_kubelet() {
        assert_eq!(date(1_790_000_000), "2026-09-21-14-13-20");
    }
}
