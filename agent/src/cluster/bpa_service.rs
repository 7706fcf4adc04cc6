//! The Service under which pods find the server for uploads, by the name that Akraino ICN gave it.
//!
//! The server is no pod: the Service has no selector, and its endpoint is the box's own address.

use agent_api::ports;
use serde_json::json;

use super::Node;
use super::objects::{ObjectsError, Placed, place};

const NAME: &str = "bpa-api-service";

/// Service and endpoint. A `NodePort`, as ICN's clients expect; the firewall leaves only 9015 itself open to the site.
pub fn objects(node: &Node) -> Result<Vec<Placed>, ObjectsError> {
    let family = if node.advertise.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = json!({"name": "rest", "protocol": "TCP", "port": ports::BPA});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"type": "NodePort", "ipFamilyPolicy": "SingleStack", "ports": [port]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{NAME}-box"),
            "namespace": "default",
            "labels": {
                "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": "foothold.dev",
            },
        },
        "addressType": family,
        "endpoints": [{"addresses": [node.advertise.to_string()], "conditions": {"ready": true}}],
        "ports": [port],
    });
    [service, slice].into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::objects;
    use crate::cluster::Node;

    #[test]
    fn pods_are_led_to_the_boxs_own_address() {
        let node = Node {
            name: "edge".to_owned(),
            advertise: "198.18.0.1".parse().expect("an address"),
            service_address: "10.96.0.1".parse().expect("an address"),
            site_addresses: Vec::new(),
        };
        let objects = objects(&node).expect("placed");
        let paths: Vec<String> = objects.iter().map(super::Placed::path).collect();
        let expected = [
            "/api/v1/namespaces/default/services/bpa-api-service",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/bpa-api-service-box",
        ];
        assert_eq!(paths, expected);
        assert_eq!(objects[1].object["endpoints"][0]["addresses"][0], "198.18.0.1");
    }
}
