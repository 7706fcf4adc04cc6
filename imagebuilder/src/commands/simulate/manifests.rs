//! What the box's cluster is told of the servers: a `BareMetalHost` each, and the Secret of its BMC.

use std::net::Ipv4Addr;

use agent_api::ports;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::config::simulation::{Driver, Firmware, SimulatedServer};

/// Secret with the user data of servers that get an OS image.
const USER_DATA: &str = "simulation-user-data";
/// Secret with the key that lets the box into them, where a `Provisioning` looks by itself.
const KEY: (&str, &str) = ("default", "ssh-key-secret");

/// Where the box's OS images are: `http://172.22.0.1:6180/images`.
pub fn images(box_address: Ipv4Addr) -> String {
    format!("http://{box_address}:{}/images", ports::CONTENT)
}

/// The objects of a server. `address`: of its BMC, as hosts name it. `images`: where the box has OS images.
pub fn objects(server: &SimulatedServer, namespace: &str, address: &str, images: Option<&str>) -> [Value; 2] {
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
    let mut host = json!({
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
    if let (Some(image), Some(images)) = (&server.image, images) {
        let url = format!("{images}/{}.qcow2", image.as_str());
        host["spec"]["image"] = json!({ "checksum": format!("{url}.sha256"), "checksumType": "sha256", "url": url });
        host["spec"]["userData"] = json!({ "name": USER_DATA, "namespace": namespace });
    }
    [secret, host]
}

/// The Secrets of an ssh key: servers let it in, and the box has it.
pub fn key(namespace: &str, private: &str, public: &str) -> [Value; 2] {
    let user_data = format!("#cloud-config\nssh_authorized_keys: [ \"{}\" ]\n", public.trim());
    let secret = |(namespace, name): (&str, &str), kind: &str, data: Value| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
                "type": kind, "stringData": data })
    };
    [
        secret((namespace, USER_DATA), "Opaque", json!({ "userData": user_data })),
        secret(KEY, "kubernetes.io/ssh-auth", json!({ "ssh-privatekey": private })),
    ]
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
                objects(server, simulation.namespace.as_str(), &address, None)
            })
            .collect();
        insta::assert_snapshot!(yaml(&objects, "metal3").expect("YAML"));
    }

    #[test]
    fn a_server_with_an_os_image_lets_the_key_in() {
        let mut simulation = load("../images/simulation/simulation.yaml".as_ref()).expect("it is right");
        let mut server = simulation.servers.remove(0);
        server.image = Some("debian-node".parse().expect("a name"));
        let images = images(Ipv4Addr::new(172, 22, 0, 1));
        let [_, host] = objects(&server, "metal3", "redfish://172.22.0.201", Some(&images));
        let image = &host["spec"]["image"];
        assert_eq!(image["url"], "http://172.22.0.1:6180/images/debian-node.qcow2");
        assert_eq!(image["checksum"], "http://172.22.0.1:6180/images/debian-node.qcow2.sha256");
        let [user_data, key] = key("metal3", "PRIVATE", "ssh-ed25519 AAAA simulation\n");
        assert_eq!(host["spec"]["userData"], json!({"name": user_data["metadata"]["name"], "namespace": "metal3"}));
        let text = user_data["stringData"]["userData"].as_str().expect("text");
        assert!(text.contains("\"ssh-ed25519 AAAA simulation\"") && !text.contains("PRIVATE"), "{text}");
        assert_eq!(key["stringData"]["ssh-privatekey"], "PRIVATE");
    }
}
