//! What the box's cluster is told of the servers: a `BareMetalHost` each, and the Secret of its BMC.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::config::simulation::{Driver, Firmware, SimulatedServer};

/// The objects of a server. `address`: of its BMC, as hosts name it.
pub fn objects(server: &SimulatedServer, namespace: &str, address: &str) -> [Value; 2] {
    let name = server.name.as_str();
    let credentials = format!("{name}-bmc");
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": credentials, "namespace": namespace },
        "stringData": { "username": server.user, "password": server.password },
    });
    let mode = match server.firmware {
        Firmware::Bios => "legacy",
        Firmware::Uefi => "UEFI",
    };
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "online": true,
            "bootMACAddress": server.mac,
            "bootMode": mode,
            "rootDeviceHints": { "deviceName": "/dev/vda" },
            "bmc": {
                "address": address,
                "credentialsName": credentials,
                "disableCertificateVerification": true,
            },
        },
    });
    [secret, host]
}

/// The scheme of a BMC's address, which is its vendor's; IPMI has its own.
pub fn scheme(server: &SimulatedServer) -> String {
    match server.driver {
        Driver::Redfish => format!("{}+https", server.profile.schemes.network),
        Driver::RedfishVirtualmedia => format!("{}+https", server.profile.schemes.media),
        Driver::Ipmi => "ipmi".to_owned(),
    }
}

/// All objects as YAML, behind the namespace that they are in.
pub fn yaml(objects: &[Value], namespace: &str) -> Result<String> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    let texts = [&namespace].into_iter().chain(objects).map(serde_saphyr::to_string);
    let texts = texts.collect::<Result<Vec<_>, _>>().context("writing the manifests")?;
    Ok(texts.iter().map(|text| format!("---\n{}", text.trim_end())).collect::<Vec<_>>().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::simulation::load;

    #[test]
    fn hosts_and_secrets_are_ready_to_be_applied() {
        let simulation = load("../images/simulation/simulation.yaml".as_ref()).expect("it is right");
        let objects: Vec<Value> = simulation
            .servers
            .iter()
            .flat_map(|server| {
                let address = format!("{}://{}", scheme(server), server.listen);
                objects(server, simulation.namespace.as_str(), &address)
            })
            .collect();
        insta::assert_snapshot!(yaml(&objects, "metal3").expect("YAML"));
    }
}
