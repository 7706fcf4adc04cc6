//! `hosts.ini`: the inventory of an Ansible installer, in the form of ICN's operator, byte for byte, and in the form that
//! kubespray of today validates. Pure.

use std::fmt::Write as _;

use agent_api::clusters::provisioning::NodeRole;

use super::decide::Chosen;

/// Name of the inventory of ICN's form, in the cluster's folder.
pub const LEGACY: &str = "hosts.ini";
/// Name of the inventory of kubespray's form, in the same folder.
pub const KUBESPRAY: &str = "inventory.ini";

fn names(nodes: &[Chosen], role: NodeRole) -> Vec<&str> {
    nodes.iter().filter(|node| node.roles.contains(&role)).map(|node| &*node.name).collect()
}

/// As ICN's operator writes it. `vm`: the label `cluster-type: virtlet-vm`, whose sections are fewer.
pub fn legacy(nodes: &[Chosen], port: u16, vm: bool) -> String {
    let mut all = String::from("[all]\n");
    for node in nodes {
        let login = if vm { " ansible_ssh_user=root ansible_ssh_pass=root" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(all, "{}  ansible_ssh_host={} ansible_ssh_port={port}{login}", node.name, node.ip);
    }
    let (masters, workers) = (names(nodes, NodeRole::Master), names(nodes, NodeRole::Worker));
    let mut sections =
        vec![("kube-master", masters.clone()), ("kube-node", workers.clone()), ("etcd", masters.clone())];
    if !vm {
        sections.extend([("ovn-central", masters), ("ovn-controller", workers.clone()), ("virtlet", workers)]);
    }
    sections.push(("k8s-cluster:children", vec!["kube-node", "kube-master"]));
    for (name, members) in sections {
        let _ = write!(all, "\n[{name}]\n{}\n", members.join("\n"));
    }
    all
}

/// As kubespray of today takes it: `ansible_host`, `ip` and `etcd_member_name`; its own groups.
pub fn kubespray(nodes: &[Chosen], user: &str, port: u16) -> String {
    let mut all = String::from("[all]\n");
    let mut member = 0;
    for node in nodes {
        let _ = write!(
            all,
            "{} ansible_host={} ip={} ansible_user={user} ansible_port={port}",
            node.name, node.ip, node.ip
        );
        if node.roles.contains(&NodeRole::Master) {
            member += 1;
            let _ = write!(all, " etcd_member_name=etcd{member}");
        }
        all.push('\n');
    }
    let workers = names(nodes, NodeRole::Worker).join("\n");
    let masters = names(nodes, NodeRole::Master).join("\n");
    let _ = write!(
        all,
        "\n[kube_control_plane]\n{masters}\n\n[etcd:children]\nkube_control_plane\n\n[kube_node]\n{workers}\n"
    );
    all
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeRole::{Master, Worker};

    use super::{kubespray, legacy};
    use crate::operators::bpa::provisioning::decide::tests::chosen;

    #[test]
    fn the_old_form_is_that_of_icn_byte_for_byte() {
        let nodes =
            [chosen("master-0", 10, &[Master]), chosen("worker-0", 11, &[Worker]), chosen("worker-1", 12, &[Worker])];
        let expected = "[all]\nmaster-0  ansible_ssh_host=172.22.0.10 ansible_ssh_port=22\n\
            worker-0  ansible_ssh_host=172.22.0.11 ansible_ssh_port=22\nworker-1  ansible_ssh_host=172.22.0.12 ansible_ssh_port=22\n\
            \n[kube-master]\nmaster-0\n\n[kube-node]\nworker-0\nworker-1\n\n[etcd]\nmaster-0\n\n[ovn-central]\nmaster-0\n\
            \n[ovn-controller]\nworker-0\nworker-1\n\n[virtlet]\nworker-0\nworker-1\n\n[k8s-cluster:children]\nkube-node\nkube-master\n";
        assert_eq!(legacy(&nodes, 22, false), expected);
        let vm = legacy(&nodes[..1], 22, true);
        assert!(vm.starts_with("[all]\nmaster-0  ansible_ssh_host=172.22.0.10 ansible_ssh_port=22 ansible_ssh_user=root ansible_ssh_pass=root\n"));
        assert!(!vm.contains("ovn") && !vm.contains("virtlet"), "{vm}");
    }

    #[test]
    fn the_new_form_has_the_groups_of_kubespray() {
        let nodes = [chosen("a", 10, &[Master, Worker]), chosen("b", 11, &[Worker])];
        let expected = "[all]\na ansible_host=172.22.0.10 ip=172.22.0.10 ansible_user=debian ansible_port=22 etcd_member_name=etcd1\n\
            b ansible_host=172.22.0.11 ip=172.22.0.11 ansible_user=debian ansible_port=22\n\
            \n[kube_control_plane]\na\n\n[etcd:children]\nkube_control_plane\n\n[kube_node]\na\nb\n";
        assert_eq!(kubespray(&nodes, "debian", 22), expected);
    }
}
