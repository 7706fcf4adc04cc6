//! Static pods: the manifests that kubeadm rendered at build time, with this box's name and address.

use std::io;
use std::path::Path;

use super::{Node, TEMPLATE_ADDRESS, TEMPLATE_NODE};
use crate::host::files::{self, SECRET};

/// Where the kubelet looks for static pods.
pub const DIR: &str = "/etc/kubernetes/manifests";

/// The manifests in the order in which they can do something useful.
pub const FIRST: [&str; 2] = ["etcd.yaml", "kube-apiserver.yaml"];
/// Those that only spin until the API server answers.
pub const SECOND: [&str; 2] = ["kube-controller-manager.yaml", "kube-scheduler.yaml"];

/// A template with this node's name and address.
pub fn render(template: &str, node: &Node) -> String {
    template.replace(TEMPLATE_NODE, &node.name).replace(TEMPLATE_ADDRESS, &node.advertise.to_string())
}

/// Writes these manifests from `templates` to `dir`. Returns how many changed.
pub fn place(templates: &Path, dir: &Path, files: &[&str], node: &Node) -> io::Result<usize> {
    let mut changed = 0;
    for file in files {
        let template = fs_err::read_to_string(templates.join(file))?;
        changed += usize::from(files::write(&dir.join(file), render(&template, node).as_bytes(), SECRET)?);
    }
    Ok(changed)
}

/// Takes these manifests away, so that a kubelet that starts now does not start their pods yet.
pub fn hold_back(dir: &Path, manifests: &[&str]) -> io::Result<()> {
    manifests.iter().try_for_each(|file| files::remove(&dir.join(file)))
}

/// Whether one of these manifests is there, so that its pod may run.
pub fn any(dir: &Path, manifests: &[&str]) -> bool {
    manifests.iter().any(|file| dir.join(file).exists())
}

#[cfg(test)]
pub(super) mod tests {
    use super::{hold_back, place, render};
    use crate::cluster::Node;

    pub fn node() -> Node {
        Node {
            name: "edge".to_owned(),
            advertise: "10.0.0.7".parse().expect("an address"),
            service_address: "10.96.0.1".parse().expect("an address"),
            site_addresses: Vec::new(),
        }
    }

    #[test]
    fn only_name_and_address_differ_from_the_template() {
        let template = "--name=foothold-node-name\n--listen=https://127.0.0.1:2379,https://198.18.0.1:2379\n";
        assert_eq!(render(template, &node()), "--name=edge\n--listen=https://127.0.0.1:2379,https://10.0.0.7:2379\n");
    }

    #[test]
    fn manifests_come_and_go_and_stay_when_nothing_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (templates, target) = (dir.path().join("templates"), dir.path().join("manifests"));
        fs_err::create_dir_all(&templates).expect("a directory");
        fs_err::write(templates.join("etcd.yaml"), "foothold-node-name").expect("a template");
        assert_eq!(place(&templates, &target, &["etcd.yaml"], &node()).expect("placed"), 1);
        assert_eq!(place(&templates, &target, &["etcd.yaml"], &node()).expect("kept"), 0);
        hold_back(&target, &["etcd.yaml", "other.yaml"]).expect("taken away");
        assert!(!target.join("etcd.yaml").exists());
        assert!(place(&templates, &target, &["other.yaml"], &node()).is_err());
    }
}
