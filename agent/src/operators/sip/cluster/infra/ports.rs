//! Ports and addresses of Services when they change. No two Services have one port of all nodes or one address, not even
//! between two writes, and a Service's address cannot be changed. So Services that are in the way are deleted before others
//! are written; and before that the API server is asked whether it would give what is new. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::ResourceExt;
use kube::api::ObjectMeta;

fn address(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.cluster_ip.as_deref()
}

fn ports(service: &Service) -> impl Iterator<Item = &ServicePort> {
    service.spec.iter().flat_map(|spec| spec.ports.iter().flatten())
}

fn node_ports(service: &Service) -> BTreeSet<i32> {
    ports(service).filter_map(|port| port.node_port).collect()
}

/// Names of Services that are deleted: they have another address than is wanted, or what another one is to have.
pub fn in_the_way(wanted: &[&Service], found: &[Service]) -> BTreeSet<String> {
    let is_in_the_way = |there: &Service| {
        wanted.iter().any(|wanted| {
            let same_address = address(wanted).is_some() && address(wanted) == address(there);
            if wanted.name_any() == there.name_any() {
                return address(wanted).is_some() && !same_address;
            }
            same_address || !node_ports(wanted).is_disjoint(&node_ports(there))
        })
    };
    found.iter().filter(|there| is_in_the_way(there)).map(ResourceExt::name_any).collect()
}

/// A Service, to be called `name`, with the ports and the address that are wanted and that none of the cluster's Services
/// has; `None` if there are none.
pub fn trial(name: &str, wanted: &Service, found: &[Service]) -> Option<Service> {
    let had: BTreeSet<i32> = found.iter().flat_map(node_ports).collect();
    let is_new = |port: &&ServicePort| port.node_port.is_some_and(|number| !had.contains(&number));
    let mut new: Vec<ServicePort> = ports(wanted).filter(is_new).cloned().collect();
    let new_address = address(wanted).filter(|wanted| found.iter().all(|there| address(there) != Some(*wanted)));
    if new.is_empty() && new_address.is_none() {
        return None;
    }
    let mut spec = wanted.spec.clone().unwrap_or_default();
    if new.is_empty() {
        // Each Service has a port: one of all nodes it needs not.
        spec.type_ = None;
        new = ports(wanted).map(|port| ServicePort { node_port: None, ..port.clone() }).collect();
    }
    spec.ports = Some(new);
    spec.cluster_ip = new_address.map(str::to_owned);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: wanted.metadata.namespace.clone(),
        ..ObjectMeta::default()
    };
    Some(Service { metadata, spec: Some(spec), status: None })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, address: Option<&str>, node_ports: &[i32]) -> Service {
        let ports: Vec<Value> = node_ports
            .iter()
            .map(|port| json!({"name": format!("port-{port}"), "port": 22, "nodePort": port}))
            .collect();
        let spec = json!({"type": "NodePort", "clusterIP": address, "ports": ports});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Service")
    }

    fn names(wanted: &[&Service], found: &[Service]) -> Vec<String> {
        in_the_way(wanted, found).into_iter().collect()
    }

    /// Neither could be written before the other one.
    #[test]
    fn services_that_exchange_their_ports_or_addresses_are_made_anew() {
        let found = [service("a", Some("10.96.0.1"), &[30000]), service("b", Some("10.96.0.2"), &[30001])];
        let (a, b) = (service("a", None, &[30001]), service("b", None, &[30000]));
        assert_eq!(names(&[&a, &b], &found), ["a", "b"]);
        assert!(trial("trial", &a, &found).is_none(), "the cluster has it already");
        let (a, b) = (service("a", Some("10.96.0.2"), &[30000]), service("b", Some("10.96.0.1"), &[30001]));
        assert_eq!(names(&[&a, &b], &found), ["a", "b"]);
        let same = service("a", None, &[30000, 30002]);
        assert!(names(&[&same], &found).is_empty(), "what only grows stays");
    }

    /// A Service that works is not deleted for an address that nobody would give.
    #[test]
    fn what_is_new_is_asked_for_before_anything_is_deleted() {
        let found = [service("a", Some("10.96.0.1"), &[30000])];
        let asked = |wanted: &Service| {
            let spec = trial("trial", wanted, &found).map(|trial| json!(trial.spec));
            spec.map(|spec| (spec["clusterIP"].clone(), spec["ports"][0]["nodePort"].clone(), spec["type"].clone()))
        };
        assert_eq!(asked(&found[0]), None);
        let other = service("a", Some("10.0.0.9"), &[30000]);
        assert_eq!(asked(&other), Some((json!("10.0.0.9"), Value::Null, Value::Null)));
        assert_eq!(names(&[&other], &found), ["a"]);
        let more = service("a", Some("10.96.0.1"), &[30000, 30007]);
        assert_eq!(asked(&more), Some((Value::Null, json!(30007), json!("NodePort"))));
    }
}
