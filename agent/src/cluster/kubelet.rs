//! The kubelet's files as `kubeadm init` leaves them, below `/var/lib/kubelet`.

use std::io;
use std::path::Path;

use super::pki::{self, Authorities, Issued, PkiError, RENEW_BEFORE, Reason, Validity};
use super::{Node, kubeconfig, manifests};
use crate::host::files::{self, PUBLIC, SECRET};

/// Where the kubelet keeps its state.
pub const DIR: &str = "/var/lib/kubelet";
/// The certificate that it answers with, below [`DIR`], and behind it what signed it.
pub const SERVING: &str = "pki/kubelet.crt";

/// Files of kubeadm: name in the templates, name below [`DIR`].
const FILES: [(&str, &str); 3] = [
    ("kubelet-config.yaml", "config.yaml"),
    ("instance-config.yaml", "instance-config.yaml"),
    ("kubeadm-flags.env", "kubeadm-flags.env"),
];

/// Writes the kubelet's settings. Returns how many files changed.
pub fn settings(templates: &Path, dir: &Path, node: &Node) -> io::Result<usize> {
    let mut changed = 0;
    for (template, file) in FILES {
        let text = fs_err::read_to_string(templates.join(template))?;
        changed += usize::from(files::write(&dir.join(file), manifests::render(&text, node).as_bytes(), PUBLIC)?);
    }
    Ok(changed)
}

/// Brings the certificates that the kubelet asks and answers with up to date.
pub fn certificates(
    etc: &Path,
    dir: &Path,
    node: &Node,
    cas: &Authorities,
    validity: Validity,
) -> Result<Vec<Issued>, PkiError> {
    let client = dir.join("pki/kubelet-client-current.pem");
    let conf = etc.join(kubeconfig::KUBELET);
    let mut issued: Vec<Issued> =
        kubeconfig::kubelet(&conf, &client, node, &cas.cluster, validity)?.into_iter().collect();
    issued.extend(serving(dir, node, validity)?);
    Ok(issued)
}

/// The kubelet makes its serving pair only if there is none, with RSA keys, and never renews it.
fn serving(dir: &Path, node: &Node, validity: Validity) -> Result<Option<Issued>, PkiError> {
    let (certificate, key) = (dir.join(SERVING), dir.join("pki/kubelet.key"));
    let found = fs_err::read_to_string(&certificate).ok().and_then(|pem| pki::inspect(&pem));
    let own = fs_err::read_to_string(&key).ok().and_then(|text| pki::keys::from_sec1_pem(&text).ok());
    let reason = match (&found, &own) {
        (Some(found), Some(own)) if found.public != own.public_key_raw() => Reason::Missing,
        (Some(found), Some(_)) if found.names != [node.name.clone()] => Reason::NamesChanged,
        (Some(found), Some(_)) if found.not_after < validity.now + RENEW_BEFORE.as_secs() => Reason::EndsSoon,
        (Some(_), Some(_)) => return Ok(None),
        _ => Reason::Missing,
    };
    let pair = pki::kubelet_serving(&node.name, validity)?;
    // Both are new: a power cut between them leaves a pair that does not fit, which is seen above.
    files::write(&key, pair.key.as_bytes(), SECRET)?;
    files::write(&certificate, pair.certificate.as_bytes(), PUBLIC)?;
    Ok(Some(Issued { file: "kubelet.crt".to_owned(), reason }))
}

#[cfg(test)]
mod tests {
    use super::{certificates, settings};
    use crate::cluster::Node;
    use crate::cluster::pki::{self, Reason, Validity};

    const AT: Validity = Validity { built: 1_790_000_000, now: 1_790_000_000 };

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            advertise: "198.18.0.1".parse().expect("an address"),
            service_address: "10.96.0.1".parse().expect("an address"),
            site_addresses: Vec::new(),
        }
    }

    #[test]
    fn settings_are_the_templates() {
        let dir = tempfile::tempdir().expect("a directory");
        for file in ["kubelet-config.yaml", "instance-config.yaml", "kubeadm-flags.env"] {
            fs_err::write(dir.path().join(file), "--node-ip=198.18.0.1").expect("a template");
        }
        let target = dir.path().join("kubelet");
        assert_eq!(settings(dir.path(), &target, &node("edge")).expect("written"), 3);
        assert_eq!(settings(dir.path(), &target, &node("edge")).expect("kept"), 0);
    }

    #[test]
    fn certificates_are_made_once_and_follow_the_name_and_the_clock() {
        let dir = tempfile::tempdir().expect("a directory");
        let cas = pki::authorities(&dir.path().join("pki"), AT, false).expect("authorities");
        let at =
            |node: &Node, at| certificates(dir.path(), &dir.path().join("kubelet"), node, &cas, at).expect("pairs");
        assert_eq!(at(&node("edge"), AT).len(), 2);
        assert_eq!(at(&node("edge"), AT), []);
        let late = Validity { now: AT.now + 340 * 24 * 3600, ..AT };
        assert!(at(&node("edge"), late).iter().all(|one| one.reason == Reason::EndsSoon));
        assert_eq!(at(&node("other"), late).len(), 2);
        fs_err::write(dir.path().join("kubelet/pki/kubelet.key"), b"").expect("cut off");
        assert_eq!(at(&node("other"), late).len(), 1);
    }
}
