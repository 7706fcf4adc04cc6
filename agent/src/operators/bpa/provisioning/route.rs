//! A route to the addresses of Services on every node. The kernel needs a route to a Service's address before kube-proxy
//! can redirect the packets of programs on the node's network, such as flannel. A site without a gateway has no such route.
//! Pure.

use super::decide::Chosen;
use super::wishes::Wanted;
use crate::node::plan::{NodeFile, SERVICES_DROP_IN, SERVICES_INTERFACE};

/// The file that has systemd add the route before each start of the kubelet.
pub fn file(wanted: &Wanted, own: &Chosen) -> NodeFile {
    let (cidr, name) = (&wanted.service_cidr, SERVICES_INTERFACE);
    let same_family = cidr.contains(':') == own.ip.is_ipv6();
    let source = if same_family { format!(" src {}", own.ip) } else { String::new() };
    let text = format!(
        "# Services have a route where the site has no gateway.\n[Service]\nExecStartPre=-ip link add {name} type dummy\n\
         ExecStartPre=ip link set {name} up\nExecStartPre=ip route replace {cidr} dev {name}{source}\n"
    );
    NodeFile { path: SERVICES_DROP_IN.to_owned(), text }
}

#[cfg(test)]
mod tests {
    use agent_api::clusters::provisioning::NodeRole::Worker;

    use super::super::decide::tests::chosen;
    use super::super::kubeadm::tests::wanted;
    use super::file;

    #[test]
    fn the_route_has_the_nodes_own_address_as_its_source() {
        let own = chosen("w", 21, &[Worker]);
        let text = file(&wanted(None), &own).text;
        let route =
            format!("ExecStartPre=ip route replace {} dev kube-services src 172.22.0.21\n", wanted(None).service_cidr);
        assert!(text.contains(&route), "{text}");
        let mixed = file(&super::Wanted { service_cidr: "fd00:1::/112".to_owned(), ..wanted(None) }, &own).text;
        assert!(mixed.contains("ip route replace fd00:1::/112 dev kube-services\n"), "{mixed}");
    }
}
