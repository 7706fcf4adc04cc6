//! The changes that a claim makes to its host.

use agent_api::metal3::annotations::{REBOOT, reboot_client};
use agent_api::metal3::{BareMetalHost, HostClaim, Image, ProvisioningState, SecretReference};
use serde_json::{Map, Value, json};

/// Secrets that the host shall use: the claim's own, or copies of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// User data.
    pub user: Option<SecretReference>,
    /// Metadata.
    pub meta: Option<SecretReference>,
    /// Network data.
    pub network: Option<SecretReference>,
    /// Name of the one for the image's registry.
    pub registry: Option<String>,
}

/// Fields of the host's spec that are not as the claim says; nothing when all are.
pub fn changes(claim: &HostClaim, host: &BareMetalHost, data: &Data) -> Map<String, Value> {
    let (wanted, is) = (&claim.spec, &host.spec);
    let registry = data.registry.clone();
    let image = wanted.image.clone().map(|image| Image { oci_auth_secret_name: registry, ..image });
    let mut changes = Map::new();
    let mut set = |field: &str, same: bool, value: Value| {
        if !same {
            changes.insert(field.to_owned(), value);
        }
    };
    set("online", is.online == wanted.powered_on, json!(wanted.powered_on));
    set("image", is.image == image, whole(json!(image), "image", host));
    set("customDeploy", is.custom_deploy == wanted.custom_deploy, json!(wanted.custom_deploy));
    set("userData", is.user_data == data.user, json!(data.user));
    set("metaData", is.meta_data == data.meta, json!(data.meta));
    set("networkData", is.network_data == data.network, json!(data.network));
    changes
}

/// An object as a merge patch that leaves nothing of what was there.
fn whole(mut value: Value, field: &str, host: &BareMetalHost) -> Value {
    let before = json!(host.spec);
    if let (Some(new), Some(old)) = (value.as_object_mut(), before[field].as_object()) {
        for name in old.keys() {
            new.entry(name.clone()).or_insert(Value::Null);
        }
    }
    value
}

/// Reboot annotations that the host lacks, or has and the claim no longer has.
pub fn reboots(claim: &HostClaim, host: &BareMetalHost) -> Map<String, Value> {
    let of = |annotations: &Option<std::collections::BTreeMap<String, String>>| {
        let all = annotations.clone().unwrap_or_default();
        all.into_iter().filter(|(name, _)| reboot_client(name).is_some()).collect::<Vec<_>>()
    };
    let (asked, there) = (of(&claim.metadata.annotations), of(&host.metadata.annotations));
    let gone = there.iter().filter(|(name, _)| name != REBOOT && !asked.iter().any(|(other, _)| other == name));
    let gone = gone.map(|(name, _)| (name.clone(), Value::Null));
    let new = asked.iter().filter(|one| !there.contains(one)).map(|(name, value)| (name.clone(), json!(value)));
    gone.chain(new).collect()
}

/// The changes that remove a deleted claim from its host; empty when nothing of the claim is left.
pub fn cleared(host: &BareMetalHost) -> Map<String, Value> {
    let spec = &host.spec;
    let there = [
        ("image", spec.image.is_some()),
        ("customDeploy", spec.custom_deploy.is_some()),
        ("userData", spec.user_data.is_some()),
        ("metaData", spec.meta_data.is_some()),
        ("networkData", spec.network_data.is_some()),
    ];
    let mut changes: Map<String, Value> =
        there.into_iter().filter(|(_, there)| *there).map(|(field, _)| (field.to_owned(), Value::Null)).collect();
    if spec.online {
        changes.insert("online".to_owned(), json!(false));
    }
    changes
}

/// Whether nothing of the claim's is on the host any more, so that another may have it.
pub fn is_clean(host: &BareMetalHost) -> bool {
    match host.state() {
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::Registering
        | ProvisioningState::MatchProfile
        | ProvisioningState::Inspecting
        | ProvisioningState::Preparing
        | ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting => true,
        // What runs there was not the claim's to install, nor is it to erase.
        ProvisioningState::ExternallyProvisioned => host.status.as_ref().is_none_or(|status| !status.powered_on),
        ProvisioningState::Provisioning | ProvisioningState::Provisioned | ProvisioningState::Deprovisioning => false,
    }
}

#[cfg(test)]
mod tests {
    use agent_api::metal3::{BareMetalHost, HostClaim, SecretReference};
    use serde_json::{Value, json};

    use super::{Data, changes, cleared, is_clean, reboots};

    fn claim(spec: Value, annotations: Value) -> HostClaim {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim",
            "metadata": {"name": "c", "namespace": "tenant"}});
        object["metadata"]["annotations"] = annotations;
        object["spec"] = spec;
        serde_json::from_value(object).expect("a claim")
    }

    fn host(spec: Value, annotations: Value) -> BareMetalHost {
        let mut object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "a", "namespace": "site"}});
        object["metadata"]["annotations"] = annotations;
        object["spec"] = spec;
        serde_json::from_value(object).expect("a host")
    }

    #[test]
    fn the_host_is_told_what_differs_and_nothing_else() {
        let image = json!({"url": "http://x", "checksum": "c"});
        let claim = claim(json!({"poweredOn": true, "image": image}), json!({}));
        let user = SecretReference { name: Some("a-userdata".into()), namespace: Some("site".into()) };
        let data = Data { user: Some(user), ..Data::default() };
        let told = changes(&claim, &host(json!({"online": false}), json!({})), &data);
        let user = json!({"name": "a-userdata", "namespace": "site"});
        assert_eq!(json!(told), json!({"online": true, "image": image, "userData": user}));
        let same = host(json!({"online": true, "image": image, "userData": user}), json!({}));
        assert!(changes(&claim, &same, &data).is_empty());
        // A field that the new image lacks must not stay from the old one.
        let old =
            host(json!({"online": true, "image": {"url": "http://y", "format": "raw"}, "userData": user}), json!({}));
        let told = changes(&claim, &old, &data);
        assert_eq!(json!(told), json!({"image": {"url": "http://x", "checksum": "c", "format": null}}));
    }

    #[test]
    fn reboots_are_handed_on_and_taken_back() {
        let asked =
            claim(json!({"poweredOn": true}), json!({"reboot.metal3.io": "", "reboot.metal3.io/a": "", "x": ""}));
        let there = host(json!({"online": true}), json!({"reboot.metal3.io/b": "", "y": ""}));
        let changes = json!({"reboot.metal3.io/b": null, "reboot.metal3.io": "", "reboot.metal3.io/a": ""});
        assert_eq!(json!(reboots(&asked, &there)), changes);
        // The one without a client is the host's once it is there.
        let quiet = claim(json!({"poweredOn": true}), json!({}));
        assert!(reboots(&quiet, &host(json!({"online": true}), json!({"reboot.metal3.io": ""}))).is_empty());
    }

    #[test]
    fn nothing_of_a_claim_stays_on_its_host() {
        let used = json!({"online": true, "image": {"url": "http://x"}, "networkData": {"name": "n"}});
        let expected = json!({"image": null, "networkData": null, "online": false});
        assert_eq!(json!(cleared(&host(used, json!({})))), expected);
        assert!(cleared(&host(json!({"online": false}), json!({}))).is_empty());
    }

    #[test]
    fn a_host_is_clean_when_it_is_deprovisioned() {
        let in_state = |state: &str| {
            let mut host = json!(host(json!({"online": false}), json!({})));
            host["status"] = json!({"operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
                "provisioning": {"state": state, "ID": "u"}});
            serde_json::from_value::<BareMetalHost>(host).expect("a host")
        };
        for (state, clean) in [
            ("available", true),
            ("deleting", true),
            ("provisioned", false),
            ("provisioning", false),
            ("deprovisioning", false),
            ("externally provisioned", false),
        ] {
            assert_eq!(is_clean(&in_state(state)), clean, "{state}");
        }
    }
}
