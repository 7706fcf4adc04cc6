//! What a cluster has from its first day, beside its network: the metrics API, a default `StorageClass`. Pure.

use agent_api::clusters::provisioning::StorageWish;

use super::wishes::Wanted;
use crate::cluster::local_path;
use crate::cluster::metrics_server::{self, Trust};
use crate::cluster::objects::Placed;
use crate::operators::bpa::common::Parts;

/// Namespaces in which these parts live.
pub const NAMESPACES: [&str; 2] = [metrics_server::NAMESPACE, local_path::NAMESPACE];

/// What is applied to a new cluster, as documents of YAML: the parts that the spec asks for, and, where it says nothing,
/// those that the box carries.
///
/// # Errors
/// The box does not carry what was asked for.
pub fn manifests(wanted: &Wanted, parts: &Parts) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    if let Some(image) = carried(wanted.metrics, parts.metrics.as_deref(), "metrics", "metrics: false")? {
        all.push(document(&metrics_server::objects(image, &Trust::Nothing)?));
    }
    let storage = wanted.storage.map(|storage| storage == StorageWish::LocalPath);
    if let Some(image) = carried(storage, parts.storage.as_deref(), "storage", "storage: none")? {
        all.push(document(&local_path::objects(image)?));
    }
    Ok(all)
}

/// The image of a part, if the cluster gets the part.
fn carried<'a>(
    asked: Option<bool>,
    image: Option<&'a str>,
    service: &str,
    without: &str,
) -> anyhow::Result<Option<&'a str>> {
    anyhow::ensure!(
        asked != Some(true) || image.is_some(),
        "the box has no image for `spec.kubernetes.{service}`; hint: add `services: {{ {service}: {{}} }}` to its definition, \
         or say `{without}`"
    );
    Ok(image.filter(|_| asked != Some(false)))
}

/// JSON is YAML.
fn document(objects: &[Placed]) -> String {
    let texts: Vec<String> = objects.iter().map(|placed| format!("{:#}\n", placed.object)).collect();
    texts.join("---\n")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::manifests;
    use agent_api::clusters::provisioning::StorageWish;

    use crate::operators::bpa::common::Parts;
    use crate::operators::bpa::provisioning::kubeadm::tests::wanted;
    use crate::operators::bpa::provisioning::wishes::Wanted;

    #[test]
    fn what_the_box_carries_is_applied_unless_it_is_not_wanted() {
        let with = Parts { metrics: Some("foothold.dev/metrics-server:v1".to_owned()), storage: None };
        let none = Parts::default();
        for (asked, parts, applied) in [
            (None, &with, 1),
            (None, &none, 0),
            (Some(true), &with, 1),
            (Some(false), &with, 0),
            (Some(false), &none, 0),
        ] {
            let all = manifests(&Wanted { metrics: asked, ..wanted(None) }, parts).expect("manifests");
            assert_eq!(all.len(), applied, "{asked:?} {parts:?}");
        }
        let error = manifests(&Wanted { metrics: Some(true), ..wanted(None) }, &none).expect_err("it has none");
        for part in ["`spec.kubernetes.metrics`", "`services: { metrics: {} }`", "`metrics: false`"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn volumes_are_as_the_metrics_api() {
        let with = Parts { metrics: None, storage: Some("foothold.dev/local-path-provisioner:v1".to_owned()) };
        let all = |storage, parts: &Parts| manifests(&Wanted { storage, ..wanted(None) }, parts);
        let applied = |storage, parts: &Parts| all(storage, parts).expect("manifests").len();
        assert_eq!((applied(None, &with), applied(None, &Parts::default())), (1, 0));
        assert_eq!((applied(Some(StorageWish::LocalPath), &with), applied(Some(StorageWish::None), &with)), (1, 0));
        let error = all(Some(StorageWish::LocalPath), &Parts::default()).expect_err("it has none").to_string();
        assert!(error.contains("`services: { storage: {} }`") && error.contains("`storage: none`"), "{error}");
    }

    #[test]
    fn a_manifest_is_one_text_with_the_image_of_the_box() {
        let parts = Parts { metrics: Some("foothold.dev/metrics-server:v1".to_owned()), storage: None };
        let all = manifests(&wanted(None), &parts).expect("manifests");
        let objects: Vec<Value> =
            all[0].split("---\n").map(|text| serde_json::from_str(text).expect("an object")).collect();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "foothold.dev/metrics-server:v1");
    }
}
